"""What a form says, read field by field. What was left empty was not said.

Above: the screens. It must never take a file for a text, nor guess at what a person did not choose.
"""

from collections.abc import Sequence
from typing import TypeVar

import orjson
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from toolcrib.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, is_object

T = TypeVar("T")


class Fields:
    """The fields of one form, or of the query of an address."""

    def __init__(self, form: FormData) -> None:
        self._form = form

    def text(self, name: str) -> str:
        """A text as it was typed, with our line breaks."""
        value = self._form.get(name, "")
        return value.replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else ""

    def line(self, name: str) -> str | None:
        """A text without white space around it; None if nothing was typed."""
        return self.text(name).strip() or None

    def lines(self, name: str) -> list[str]:
        """The lines of a text that are not empty."""
        return [line.strip() for line in self.text(name).split("\n") if line.strip()]

    def words(self, name: str) -> list[str]:
        """What stands between commas."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def all(self, name: str) -> list[str]:
        """Everything that was chosen under this name."""
        return [value for value in self._form.getlist(name) if isinstance(value, str) and value]

    def has(self, name: str) -> bool:
        """Whether a box was ticked."""
        return name in self._form

    def choice(self, name: str, choices: Sequence[T]) -> T | None:
        """The one that was chosen; None if none was, or something else."""
        return next((each for each in choices if each == self.text(name)), None)

    def number(self, name: str) -> float | None:
        """A number; raises `request.invalid`."""
        given = self.line(name)
        if given is None:
            return None
        try:
            return float(given)
        except ValueError:
            raise InvalidRequest("request.invalid", f"{given!r} is not a number.") from None

    def json(self, name: str) -> Json:
        """A text that is JSON, None if there is none; raises `request.invalid`."""
        given = self.line(name)
        if given is None:
            return None
        try:
            return orjson.loads(given)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest("request.invalid", f"`{name}` is not JSON: {error}.") from None

    def json_object(self, name: str) -> JsonObject | None:
        """A text that is a JSON object, None if there is none; raises `request.invalid`."""
        value = self.json(name)
        if value is None or is_object(value):
            return value
        raise InvalidRequest("request.invalid", f"`{name}` is not a JSON object.")

    async def files(self, name: str) -> list[tuple[str, str]]:
        """Names and texts of the files that were given; raises `request.invalid` for what is no text."""
        given = [each for each in self._form.getlist(name) if isinstance(each, UploadFile)]
        read = [(each.filename or "", await each.read()) for each in given]
        await self._form.close()
        try:
            return [(file, body.decode()) for file, body in read if file]
        except UnicodeDecodeError:
            raise InvalidRequest("request.invalid", "A file is not text in UTF-8.") from None


async def read(request: Request) -> Fields:
    """The form of a request."""
    return Fields(await request.form())


def asked(request: Request) -> Fields:
    """The query of an address, read as a form is."""
    items: list[tuple[str, str | UploadFile]] = [*request.query_params.multi_items()]
    return Fields(FormData(items))
