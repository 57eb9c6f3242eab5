"""Prompts, resources, completion and messages with the official client, in both eras, over HTTP and stdio."""

from typing import Any

import anyio
import pytest
from mcp import Client, MCPError
from mcp.types import PromptReference, ResourceTemplateReference, TextContent, TextResourceContents

from integration.web.mcp.library import ROOM, Library
from lab import Door, Lab, ModeName, eventually
from long_tests import takes_long

pytestmark = pytest.mark.anyio

ERAS: list[ModeName] = ["legacy", "2026-07-28"]
DOORS = ["http", pytest.param("stdio", marks=takes_long)]
"""A stdio front starts a process; `test_official_client` always tests both."""
both_eras = pytest.mark.parametrize("era", ERAS)
both_doors = pytest.mark.parametrize("door", DOORS)
deprecated = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")  # the legacy era has it
PAGE = "library://books/emma/pages/7"


async def text_of(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


class Notifications:
    """Records the notifications of a client."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def __call__(self, message: object) -> None:
        self.messages.append(message)

    def has(self, method: str) -> bool:
        """Return whether a notification with this method has arrived."""
        return any(getattr(message, "method", None) == method for message in self.messages)


@both_doors
@both_eras
async def test_prompt_names_are_prefixed_in_lists_and_translated_in_requests(
    lab: Lab, library: Library, door: Door, era: ModeName
) -> None:
    async with lab.client(door, era) as client:
        listed = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert {name for name in listed if not name.startswith("agent_zoo_use_")} == {"library_greet"}
        got = await client.get_prompt("library_greet", {"who": "Ada"})
        (message,) = got.messages
        assert isinstance(message.content, TextContent)
        assert message.content.text == "Hello Ada"
    assert library.requests == [("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})]


@both_doors
@both_eras
async def test_resources_and_templates_keep_their_uris(lab: Lab, door: Door, era: ModeName) -> None:
    async with lab.client(door, era) as client:
        listed = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert {uri for uri in listed if not uri.startswith("agent-zoo://")} == {ROOM, "library://books/emma"}
        templates = {each.uri_template for each in (await client.list_resource_templates()).resource_templates}
        assert {uri for uri in templates if not uri.startswith("agent-zoo://")} == {
            "library://books/{book}/pages/{page}"
        }
        assert await text_of(client, ROOM) == f"library: {ROOM}"
        assert await text_of(client, PAGE) == f"library: {PAGE}"


@both_doors
@pytest.mark.parametrize(("era", "code"), [("legacy", -32002), ("2026-07-28", -32602)])
@pytest.mark.parametrize("uri", ["other://nothing", "library://books/missing/pages/1"])
async def test_missing_resource_has_the_error_code_of_the_era(
    lab: Lab, door: Door, era: ModeName, code: int, uri: str
) -> None:
    async with lab.client(door, era) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)
        assert (caught.value.error.code, caught.value.error.data) == (code, {"uri": uri})


@both_eras
async def test_unknown_prompt_is_an_invalid_parameter(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era) as client:
        with pytest.raises(MCPError) as caught:
            await client.get_prompt("library_nothing")
        assert caught.value.error.code == -32602


@both_doors
@both_eras
async def test_completion_translates_names_for_the_server(
    lab: Lab, library: Library, door: Door, era: ModeName
) -> None:
    async with lab.client(door, era) as client:
        argument = {"name": "who", "value": "e"}
        of_prompt = await client.complete(PromptReference(type="ref/prompt", name="library_greet"), argument)
        assert of_prompt.completion.values == ["emma"]
        template = ResourceTemplateReference(type="ref/resource", uri="library://books/{book}/pages/{page}")
        assert (await client.complete(template, argument)).completion.values == ["emma"]
        with pytest.raises(MCPError):
            await client.complete(PromptReference(type="ref/prompt", name="greet"), argument)
    assert [params["ref"]["type"] for _, params in library.requests] == ["ref/prompt", "ref/resource"]
    assert library.requests[0][1]["ref"]["name"] == "greet"


async def test_members_of_the_modern_era_are_removed_for_legacy_clients(lab: Lab) -> None:
    async with lab.client("http", "legacy") as client:
        old = (await client.read_resource(ROOM)).model_dump(by_alias=True, exclude_unset=True)
        called = (await client.call_tool("library_look", {})).model_dump(by_alias=True, exclude_unset=True)
    assert old.keys() == {"contents"}
    assert called["_meta"] == {"own/key": 1}
    assert "resultType" not in called
    async with lab.client("http", "2026-07-28") as client:
        new = (await client.read_resource(ROOM)).model_dump(by_alias=True, exclude_unset=True)
        called = (await client.call_tool("library_look", {})).model_dump(by_alias=True, exclude_unset=True)
    assert (new["resultType"], new["ttlMs"], new["cacheScope"]) == ("complete", 7, "private")
    assert called["_meta"]["own/key"] == 1
    assert called["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "toolcrib"


@deprecated
@both_doors
async def test_legacy_client_gets_updates_of_subscribed_resources(lab: Lab, library: Library, door: Door) -> None:
    notifications = Notifications()
    async with lab.client(door, "legacy", notifications) as client:
        await client.subscribe_resource(ROOM)  # pyright: ignore[reportDeprecated] the legacy era has it
        assert library.requests == [("resources/subscribe", {"uri": ROOM})]
        library.notify("resources/updated", {"uri": "library://books/emma"})
        library.notify("resources/updated", {"uri": ROOM})
        await eventually(lambda: notifications.has("notifications/resources/updated"))
        (update,) = (each for each in notifications.messages if each.method == "notifications/resources/updated")
        assert str(update.params.uri) == ROOM
        await client.unsubscribe_resource(ROOM)  # pyright: ignore[reportDeprecated] the legacy era has it
        assert library.requests[-1] == ("resources/unsubscribe", {"uri": ROOM})


@both_doors
async def test_modern_client_gets_updates_of_resources_it_listens_for(lab: Lab, library: Library, door: Door) -> None:
    async with lab.client(door, "2026-07-28") as client:
        async with client.listen(resource_subscriptions=[ROOM, "other://unknown"]) as changes:
            assert library.requests == [("resources/subscribe", {"uri": ROOM})]
            library.notify("resources/updated", {"uri": ROOM})
            with anyio.fail_after(10):
                assert getattr(await anext(aiter(changes)), "uri", None) == ROOM
        await eventually(lambda: library.requests[-1] == ("resources/unsubscribe", {"uri": ROOM}))


@both_doors
async def test_list_change_of_resources_reaches_clients_of_both_eras(lab: Lab, library: Library, door: Door) -> None:
    notifications = Notifications()
    async with (
        lab.client(door, "legacy", notifications) as old,
        lab.client(door, "2026-07-28") as new,
        new.listen(resources_list_changed=True) as changes,
    ):
        await old.list_resources()
        library.add_book("persuasion")
        with anyio.fail_after(10):
            await anext(aiter(changes))
        await eventually(lambda: notifications.has("notifications/resources/list_changed"))
        assert not notifications.has("notifications/tools/list_changed")
        uris = {str(resource.uri) for resource in (await old.list_resources()).resources}
        assert "library://books/persuasion" in uris


@deprecated
@both_doors
async def test_legacy_client_gets_log_messages_of_its_level(lab: Lab, door: Door) -> None:
    logged: list[str] = []

    async def on_log(params: Any) -> None:
        logged.append(params.data)

    async with lab.client(door, "legacy", logging_callback=on_log) as client:
        await client.call_tool("library_log", {})
        assert logged == ["info!", "error!"]
        await client.set_logging_level("error")  # pyright: ignore[reportDeprecated] the legacy era has it
        await client.call_tool("library_log", {})
        assert logged == ["info!", "error!", "error!"]


@both_doors
async def test_modern_client_gets_log_messages_only_on_request(lab: Lab, door: Door) -> None:
    logged: list[str] = []

    async def on_log(params: Any) -> None:
        logged.append(params.data)

    async with lab.client(door, "2026-07-28", logging_callback=on_log) as client:
        await client.call_tool("library_log", {})
    assert logged == []
    async with lab.client(door, "2026-07-28", logging_callback=on_log, log_level="debug") as client:
        await client.call_tool("library_log", {})
    assert logged == ["debug!", "info!", "error!"]


async def test_message_to_one_mcp_session_reaches_no_other(lab: Lab, library: Library) -> None:
    first, second = Notifications(), Notifications()
    async with lab.client("http", "legacy", first) as one, lab.client("http", "legacy", second) as other:
        for client in (one, other):
            await client.call_tool("library_look", {})
        (session, _) = (client.session for client in library.clients if client is not None)
        assert session is not None
        library.notify("message", {"level": "error", "data": "for one"}, session)
        library.notify("message", {"level": "debug", "data": "too quiet"}, session)
        await eventually(lambda: first.has("notifications/message"))
        await other.call_tool("library_look", {})
        assert not second.has("notifications/message")
        assert "too quiet" not in str(first.messages)
