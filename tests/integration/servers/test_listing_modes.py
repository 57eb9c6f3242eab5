"""Real coding apps as clients in search mode and code mode: few tools, calls audited under the app's token."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import pytest

from deadlines import stretched
from integration.servers.coding_apps import CodingApp, claude_code, opencode
from lab import Lab, make_lab
from long_tests import takes_long
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject
from toolcrib.servers.apps.connections import AppConnectRequest, OfferedTools
from toolcrib.store.audit import Filters
from toolcrib.testing.environments import bare_environment
from toolcrib.testing.scripted_model.server import ScriptedModel
from toolcrib.web.run import Holding, hold

pytestmark = [pytest.mark.anyio, takes_long]

PROGRAM = """\
heard = await lab_echo(text="quiet")
for text in (heard["said"], "please"):
    print(await lab_shout(text=text))
"""


@pytest.fixture
async def crib(tmp_path: Path) -> AsyncGenerator[Holding]:
    """A crib with the tools of the lab, on a machine without any app."""
    settings = make_lab(tmp_path).settings
    async with hold(settings, kind="serve", port=0, environment=bare_environment(tmp_path)) as holding:
        yield holding


@pytest.fixture
def model() -> Generator[ScriptedModel]:
    """The model of the apps."""
    with ScriptedModel() as model:
        yield model


@pytest.fixture(params=["claude-code", "opencode"])
def app(request: pytest.FixtureRequest, tmp_path: Path, model: ScriptedModel) -> CodingApp:
    """An app that is not connected yet."""
    if request.param == "opencode":
        return opencode(tmp_path, model, request.getfixturevalue("client_programs"))
    try:
        return claude_code(tmp_path, model)
    except Unavailable as error:
        pytest.skip(error.message)


async def connect(crib: Holding, app: CodingApp, tools: OfferedTools) -> None:
    await crib.crib.clients.connect(AppConnectRequest(app.name, tools=tools), anyway=True)


async def intents(crib: Holding, tool: str) -> list[JsonObject]:
    """Return the calls of a tool of the lab in the audit, oldest first."""
    return (await crib.crib.audit.find(Filters(server="lab", tool=tool, phase="intent")))[::-1]


def callers(records: list[JsonObject]) -> set[tuple[str, str]]:
    return {(record["principal"]["kind"], record["principal"]["name"]) for record in records}


async def pending(crib: Holding) -> JsonObject:
    """Wait for the one pending approval."""
    async with Lab(crib.crib.settings, crib.info.url).http() as http:
        with anyio.fail_after(stretched(60)):
            while not (found := (await http.get("/api/approvals")).json()):  # noqa: ASYNC110 nothing announces it
                await anyio.sleep(0.05)
    (approval,) = found
    return approval


async def answer(crib: Holding, approval: JsonObject, decision: str) -> None:
    async with Lab(crib.crib.settings, crib.info.url).http() as http:
        response = await http.post(f"/api/approvals/{approval['id']}", json={"decision": decision})
        assert response.status_code == 200, response.text


async def test_app_in_search_mode_finds_a_tool_by_a_sentence_and_calls_it(crib: Holding, app: CodingApp) -> None:
    await connect(crib, app, "search")
    output = await app.work(
        ("find_tools", {"query": "Repeat the words that I say to you"}),
        ("call_tool", {"ref": "lab/echo", "arguments": {"text": "hello", "times": 2}}),
    )
    assert "hellohello" in output, output
    assert app.offered() == {"find_tools", "call_tool"}
    assert "lab/echo" in app.results()[0]
    (call,) = await intents(crib, "echo")
    assert callers([call]) == {("token", f"connect-{app.name}")}
    assert (call["door"], call["arguments"]) == ("mcp", {"text": "hello", "times": 2})


@pytest.mark.parametrize("decision", ["approve", "deny"])
async def test_app_in_code_mode_runs_a_program_whose_writes_are_one_approval(
    crib: Holding, app: CodingApp, decision: str
) -> None:
    await connect(crib, app, "code")
    async with Lab(crib.crib.settings, crib.info.url).http() as http:
        rule = {"effect": "ask", "pattern": "lab/shout"}
        assert (await http.post("/api/policy/rules", json=rule)).status_code == 201
    output: list[str] = []
    id = None

    async def work() -> None:
        output.append(
            await app.work(
                ("find_tools", {"query": "Repeat the words that I say to you"}),
                ("describe_tools", {"tools": ["lab_echo", "lab_shout"]}),
                ("run_code", {"code": PROGRAM}),
            )
        )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        approval = await pending(crib)
        id = approval["id"]
        assert (approval["server"], approval["tool"]) == ("toolcrib", "run_code")
        planned = [(call["tool"], call["arguments"]) for call in approval["arguments"]["calls"]]
        assert planned == [("lab/shout", {"text": "quiet"}), ("lab/shout", {"text": "please"})]
        assert await intents(crib, "shout") == []
        await answer(crib, approval, decision)
    assert app.offered() == {"find_tools", "describe_tools", "run_code"}
    found, described, result = app.results()
    assert "lab_echo" in found and "async def lab_shout(*, text: str)" in described
    reads, writes = await intents(crib, "echo"), await intents(crib, "shout")
    assert callers(reads) == {("token", f"connect-{app.name}")}
    if decision == "deny":
        assert writes == [] and "Nothing was changed." in result
        return
    assert "QUIET" in output[0] and "PLEASE" in output[0], output
    assert [call["arguments"]["text"] for call in writes] == ["quiet", "please"]
    assert callers(writes) == callers(reads)
    assert {call["approvalId"] for call in writes} == {id}
    assert len({call["programId"] for call in (*reads, *writes)}) == 1
