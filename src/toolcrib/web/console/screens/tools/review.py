"""Review: all changed definitions and unaccepted hints on one page, accepted together after a look at each.

Every accepted definition is bound to the hash that the page showed, and recorded on its own.
"""

from typing import Final

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from toolcrib.model.errors import InvalidRequest, ToolcribError
from toolcrib.model.json import Json, JsonObject, dumps, is_array, loads
from toolcrib.model.pins import PIN_KINDS, PinKind
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.web.console.responses import Console, ScreenContent, error_json, route
from toolcrib.web.console.screens.tools.list import (
    CHANGES_ON_PAGE,
    pending_changes,
    place_of,
    tool_address,
    unaccepted_hash,
)

_PAGE: Final = 100
"""Hints on one page; accepting them shows the next ones."""


def routes(console: Console) -> list[Route]:
    """Return the routes of the review."""
    screen = ReviewScreen(console)
    return [route("/tools/review", screen.show), route("/tools/review", screen.accept, "POST")]


class ReviewScreen:
    """Accepts several definitions at once."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def show(self, request: Request) -> Response:
        """Show every difference and every hint that waits for a decision."""
        return await self._respond(request, [], [])

    async def accept(self, request: Request) -> Response:
        """Accept what was ticked. A definition that has changed since is left out and reported."""
        form = await request.form()
        principal = await self._console.local_principal(request)
        done: list[str] = []
        failed: list[JsonObject] = []
        for text in form.getlist("item"):
            what, ref, hash = _item(str(text))
            label = str(ref) if ref.tool else ref.server
            try:
                await self._accept(request, principal, what, ref, hash, label)
                done.append(label)
            except ToolcribError as error:
                failed.append({"ref": label, **error_json(error)})
        return await self._respond(request, done, failed)

    async def _accept(
        self, request: Request, principal: Principal, what: PinKind, ref: ToolRef, hash: str, label: str
    ) -> None:
        crib, person = self._console.crib, self._console.principal(request)
        reviewed: JsonObject = {"ref": label, "hash": hash} | ({} if what == "tool" else {"what": what})

        async def work() -> None:
            await crib.intake.accept(place_of(principal), ref, hash, person, what)

        await crib.changes.make("tools.accept", reviewed, work, by=person, door="console")

    async def _respond(self, request: Request, done: list[str], failed: list[JsonObject]) -> Response:
        principal = await self._console.local_principal(request)
        changes = [each | {"item": _item_key(each)} for each in pending_changes(self._console, principal)]
        changes.sort(key=lambda each: each["rejectedBy"] is not None)
        hints: list[JsonObject] = []
        for tool in self._console.crib.gate.listing(principal).tools:
            hash = unaccepted_hash(self._console, principal, tool)
            if hash is not None:
                item = {"what": "tool", "server": tool.ref.server, "tool": tool.ref.tool, "hash": hash}
                words = [word for word, is_on in (tool.annotations or {}).items() if is_on is True]
                href = tool_address(tool.ref)
                hints.append({"ref": str(tool.ref), "href": href, "hints": words, "item": _item_key(item)})
        value: JsonObject = {
            "changes": changes[:CHANGES_ON_PAGE], "changed": len(changes), "hints": hints[:_PAGE], "total": len(hints),
            "done": done, "failed": failed,
        }  # fmt: skip
        return await self._console.respond(request, ScreenContent("tools", "Review", "tool_review.html", value))


def _item_key(item: JsonObject) -> str:
    return dumps([item["what"], item["server"], item["tool"], item["hash"]]).decode()


def _item(text: str) -> tuple[PinKind, ToolRef, str]:
    try:
        value: Json = loads(text)
    except orjson.JSONDecodeError:
        value = None
    parts = value if is_array(value) and len(value) == 4 and all(isinstance(each, str) for each in value) else None
    what: PinKind | None = next((each for each in PIN_KINDS if parts is not None and each == parts[0]), None)
    if parts is None or what is None:
        raise InvalidRequest("request.invalid", "The review names something that is not a definition.")
    return what, ToolRef(parts[1], parts[2]), parts[3]
