"""Typed access to form fields. Empty fields count as absent.

Must never read a file as text, nor guess a value that was not chosen.
"""

from collections.abc import Sequence
from typing import TypeVar

import orjson
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, is_object, loads

T = TypeVar("T")


class FormFields:
    """The fields of a form or a query string."""

    def __init__(self, form: FormData) -> None:
        self._form = form

    def text(self, name: str) -> str:
        """Return the text as typed, with normalised line breaks."""
        value = self._form.get(name, "")
        return value.replace("\r\n", "\n").replace("\r", "\n") if isinstance(value, str) else ""

    def line(self, name: str) -> str | None:
        """Return the stripped text, or None if empty."""
        return self.text(name).strip() or None

    def lines(self, name: str) -> list[str]:
        """Return the non-empty lines."""
        return [line.strip() for line in self.text(name).split("\n") if line.strip()]

    def words(self, name: str) -> list[str]:
        """Return the comma-separated parts."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()]

    def all(self, name: str) -> list[str]:
        """Return all values of a field."""
        return [value for value in self._form.getlist(name) if isinstance(value, str) and value]

    def has(self, name: str) -> bool:
        """Return whether a checkbox is ticked."""
        return name in self._form

    def choice(self, name: str, choices: Sequence[T]) -> T | None:
        """Return the chosen option, or None if it is not one of `choices`."""
        return next((each for each in choices if each == self.text(name)), None)

    def number(self, name: str) -> float | None:
        """Return a number; raise `request.invalid` if it is none."""
        given = self.line(name)
        if given is None:
            return None
        try:
            return float(given)
        except ValueError:
            raise InvalidRequest("request.invalid", f"{given!r} is not a number.") from None

    def page(self, name: str = "page") -> int:
        """Return the number of a page, 1 if there is none."""
        text = self.line(name) or ""
        return max(int(text), 1) if text.isascii() and text.isdigit() and len(text) < 7 else 1

    def json(self, name: str) -> Json:
        """Return parsed JSON, or None if empty; raise `request.invalid` if malformed."""
        given = self.line(name)
        if given is None:
            return None
        try:
            return loads(given)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest("request.invalid", f"`{name}` is not valid JSON: {error}.") from None

    def json_object(self, name: str) -> JsonObject | None:
        """Return a JSON object, or None if empty; raise `request.invalid` for anything else."""
        value = self.json(name)
        if value is None or is_object(value):
            return value
        raise InvalidRequest("request.invalid", f"`{name}` is not a JSON object.")

    async def files(self, name: str) -> list[tuple[str, str]]:
        """Return name and text of each uploaded file; raise `request.invalid` if one is not UTF-8."""
        given = [each for each in self._form.getlist(name) if isinstance(each, UploadFile)]
        read = [(each.filename or "", await each.read()) for each in given]
        await self._form.close()
        try:
            return [(file, body.decode()) for file, body in read if file]
        except UnicodeDecodeError:
            raise InvalidRequest("request.invalid", "The file is not UTF-8 text.") from None


async def read(request: Request) -> FormFields:
    """Return the form of a request."""
    return FormFields(await request.form())


def read_query(request: Request) -> FormFields:
    """Return the query string, wrapped like a form."""
    items: list[tuple[str, str | UploadFile]] = [*request.query_params.multi_items()]
    return FormFields(FormData(items))
