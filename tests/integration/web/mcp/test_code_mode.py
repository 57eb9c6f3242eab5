"""Code mode over MCP in both eras: sandboxed programs, their calls, and one approval for several calls."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from httpx2 import AsyncClient
from mcp import Client
from mcp.types import CallToolResult, TextContent

from deadlines import stretched
from lab import Lab, ModeName
from toolcrib.gate.programs import interpreter
from toolcrib.model.json import JsonObject

pytestmark = pytest.mark.anyio
ERAS: list[ModeName] = ["legacy", "2026-07-28"]
both_eras = pytest.mark.parametrize("era", ERAS)
CODE = "/mcp?tools=code"
MODERN: ModeName = "2026-07-28"


async def run(client: Client, code: str, **more: Any) -> CallToolResult:
    return await client.call_tool("run_code", {"code": code, **more})


def text_of(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


async def require_approval(http: AsyncClient, pattern: str) -> None:
    answer = await http.post("/api/policy/rules", json={"effect": "ask", "pattern": pattern})
    assert answer.status_code == 201


async def pending(http: AsyncClient) -> JsonObject:
    """Wait for the one pending approval."""
    with anyio.fail_after(stretched(20)):
        while True:
            found = [each for each in (await http.get("/api/approvals")).json() if each["status"] == "pending"]
            if found:
                (approval,) = found
                return approval
            await anyio.sleep(0.05)


async def until_withdrawn(http: AsyncClient) -> None:
    """Wait until no approval is pending."""
    with anyio.fail_after(stretched(20)):
        while True:
            if all(each["status"] != "pending" for each in (await http.get("/api/approvals")).json()):
                return
            await anyio.sleep(0.05)


async def calls_of(http: AsyncClient, tool: str) -> list[JsonObject]:
    """Return the intents of calls of a tool, oldest first."""
    records = (await http.get("/api/audit", params={"server": "lab", "tool": tool, "phase": "intent"})).json()
    return records[::-1]


@asynccontextmanager
async def running(client: Client, code: str) -> AsyncGenerator[list[CallToolResult]]:
    """Run a program during the block; the list holds its result afterwards."""
    results: list[CallToolResult] = []

    async def work() -> None:
        results.append(await run(client, code))

    async with anyio.create_task_group() as beside:
        beside.start_soon(work)
        yield results


@both_eras
async def test_program_finds_describes_and_calls_tools(lab: Lab, era: ModeName) -> None:
    async with lab.client("http", era, path=CODE) as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
        assert listed == {"find_tools", "describe_tools", "run_code"}
        found = await client.call_tool("find_tools", {"query": "say something again"})
        assert found.structured_content is not None
        assert found.structured_content["tools"][0]["function"] == "lab_echo"
        described = await client.call_tool("describe_tools", {"tools": ["lab_echo", "lab/shout", "nothing"]})
        assert text_of(described).startswith("async def lab_echo(*, text: str, times: int = 1) -> Any:")
        assert "async def lab_shout(*, text: str)" in text_of(described)
        assert "# Unknown: nothing." in text_of(described)
        result = await run(
            client,
            "import asyncio\n"
            "both = await asyncio.gather(lab_echo(text='a'), lab_echo(text='b', times=2))\n"
            "print('done')\n"
            "[each['said'] for each in both]",
        )
        assert result.structured_content is not None
        assert result.structured_content["result"] == ["a", "bb"]
        assert result.structured_content["output"] == "done\n"
    async with lab.http() as http:
        calls = await calls_of(http, "echo")
    assert {call["programId"] for call in calls} == {result.structured_content["programId"]}
    assert len(calls) == 2


@both_eras
async def test_loop_over_writes_runs_after_one_approval_of_the_full_list(lab: Lab, era: ModeName) -> None:
    code = "for word in 'abc':\n    seen = await lab_echo(text=word)\n    print(await lab_shout(text=seen['said']))"
    async with lab.http() as http, lab.client("http", era, path=CODE) as client:
        await require_approval(http, "lab/shout")
        async with running(client, code) as results:
            approval = await pending(http)
            assert (approval["server"], approval["tool"]) == ("toolcrib", "run_code")
            planned = [(call["tool"], call["arguments"]) for call in approval["arguments"]["calls"]]
            assert planned == [("lab/shout", {"text": word}) for word in "abc"]
            assert approval["arguments"]["code"] == code
            assert await calls_of(http, "shout") == []
            await http.post(f"/api/approvals/{approval['id']}", json={"decision": "approve"})
        assert text_of(results[0]) == "A\nB\nC"
        made = await calls_of(http, "shout")
        assert [call["arguments"]["text"] for call in made] == ["a", "b", "c"]
        assert {call["approvalId"] for call in made} == {approval["id"]}
        assert len(await calls_of(http, "echo")) == 5  # reads after a change are repeated, the first one is not


async def test_denied_program_changes_nothing_and_reports_it(lab: Lab) -> None:
    async with lab.http() as http, lab.client("http", MODERN, path=CODE) as client:
        await require_approval(http, "lab/shout")
        code = "await lab_count_to(end=1)\nawait lab_shout(text='a')"
        async with running(client, code) as results:
            approval = await pending(http)
            always = {"decision": "approve", "scope": "always"}
            scoped = await http.post(f"/api/approvals/{approval['id']}", json=always)
            assert scoped.status_code == 422
            await http.post(f"/api/approvals/{approval['id']}", json={"decision": "deny", "reason": "Not today."})
        assert results[0].is_error
        assert "Not today." in text_of(results[0])
        assert "Nothing was changed." in text_of(results[0])
        assert await calls_of(http, "shout") == await calls_of(http, "count_to") == []


async def test_call_that_depends_on_a_change_gets_its_own_approval(lab: Lab) -> None:
    code = "first = await lab_shout(text='a')\nsecond = await lab_shout(text=first + 'b')\nprint(second)"
    async with lab.http() as http, lab.client("http", MODERN, path=CODE) as client:
        await require_approval(http, "lab/shout")
        async with running(client, code) as results:
            for text in ("a", "Ab"):
                approval = await pending(http)
                assert approval["arguments"]["calls"][0]["arguments"] == {"text": text}
                await http.post(f"/api/approvals/{approval['id']}", json={"decision": "approve"})
        assert text_of(results[0]) == "AB"
        assert [call["arguments"]["text"] for call in await calls_of(http, "shout")] == ["a", "Ab"]


async def test_read_after_a_change_sees_the_change(lab: Lab) -> None:
    async with lab.http() as http, lab.client("http", MODERN, path=CODE) as client:
        result = await run(client, "await lab_shout(text='a')\n(await lab_echo(text='b'))['said']")
        assert text_of(result) == "b"
        order = [(record["tool"]) for record in (await http.get("/api/audit", params={"phase": "intent"})).json()]
    assert order == ["echo", "shout", "echo"]  # planned, changed, read again; newest first


async def test_dry_run_lists_calls_and_makes_no_changing_ones(lab: Lab) -> None:
    async with lab.http() as http, lab.client("http", MODERN, path=CODE) as client:
        await require_approval(http, "lab/shout")
        result = await run(client, "await lab_shout(text='a')\nawait lab_count_to(end=2)", dry_run=True)
        assert text_of(result).splitlines() == [
            "Dry run. Calls that would be made: 2, of which 1 need approval.",
            'lab/shout {"text":"a"}',
            'lab/count_to {"end":2}',
        ]
        assert await calls_of(http, "shout") == []


async def test_misspelt_dry_run_runs_nothing(lab: Lab) -> None:
    async with lab.http() as http, lab.client("http", MODERN, path=CODE) as client:
        result = await run(client, "await lab_shout(text='a')", dryRun=True)
        assert result.is_error
        assert text_of(result) == "dryRun: unknown argument. Use code, dry_run."
        assert await calls_of(http, "shout") == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("await lab_echo(text=3)", "Expected `str`, found `Literal[3]`"),
        ("await lab_nothing()", "Name `lab_nothing` used when not defined"),
        ("await lab_secret()", "Name `lab_secret` used when not defined"),
        ("x = 1 +", "Expected an expression"),
        ("await lab_fail(message='broken')", "broken"),
        ("1 / 0", "ZeroDivisionError"),
        ("import os\nos.listdir('/')", "PermissionError"),
        ("import socket", "socket"),
        ("def f() -> int:\n    return f()\nf()", "RecursionError"),
        ("x = 'a' * 10**12", "MemoryError"),
        ("", "code: a program"),
    ],
)
async def test_faulty_program_is_an_actionable_error_result(lab: Lab, code: str, expected: str) -> None:
    async with lab.client("http", MODERN, path=CODE) as client:
        result = await run(client, code)
        assert result.is_error
        assert expected in text_of(result)


async def test_function_of_a_tool_can_be_stored_and_passed(lab: Lab) -> None:
    async with lab.client("http", MODERN, path=CODE) as client:
        result = await run(client, "named = {'echo': lab_echo}\nawait named['echo'](text='hello')")
        assert (result.is_error, '"said": "hello"' in text_of(result)) == (False, True)
        assert "lab_echo" in text_of(await run(client, "lab_echo"))
        assert (await run(client, "await (lambda **given: lab_secret)()(x=1)")).is_error


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("2**100", "1267650600228229401496703205376"),
        ("[-2**80]", "[\n  -1208925819614629174706176\n]"),
        ("10**400", "an integer of 1,329 bits"),
        ("float('nan')", "nan"),
        ("{'x': float('inf')}", '{\n  "x": "inf"\n}'),
    ],
)
async def test_number_beyond_json_or_64_bits_is_shown(lab: Lab, code: str, expected: str) -> None:
    async with lab.client("http", MODERN, path=CODE) as client:
        result = await run(client, code)
        assert (result.is_error, text_of(result)) == (False, expected)


async def test_deeply_nested_value_is_truncated(lab: Lab) -> None:
    async with lab.client("http", MODERN, path=CODE) as client:
        result = await run(client, "nested: list = []\nfor _ in range(5_000):\n    nested = [nested]\nnested")
        assert (result.is_error, "…" in text_of(result)) == (False, True)


async def test_endless_program_ends_at_its_time_limit_and_the_next_one_runs(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "SECONDS", 0.3)
    async with lab.client("http", MODERN, path=CODE) as client:
        result = await run(client, "while True:\n    pass")
        assert (result.is_error, "time limit" in text_of(result)) == (True, True)
        assert text_of(await run(client, "1 + 1")) == "2"


async def test_cancelled_program_ends_and_the_next_one_runs(lab: Lab) -> None:
    async with lab.http() as http, lab.client("http", MODERN, path=CODE) as client:
        await require_approval(http, "lab/shout")
        async with anyio.create_task_group() as beside:
            beside.start_soon(run, client, "await lab_shout(text='a')")
            await pending(http)
            beside.cancel_scope.cancel()
        await until_withdrawn(http)
        assert text_of(await run(client, "1 + 1")) == "2"
        assert await calls_of(http, "shout") == []


async def test_large_output_of_a_program_is_shortened(lab: Lab) -> None:
    async with lab.client("http", MODERN, path=f"{CODE}&result_tokens=100") as client:
        result = await run(client, "for number in range(5_000):\n    print('line', number)")
        first = result.content[0]
        assert isinstance(first, TextContent)
        handle = first.text.partition("Handle: ")[2].partition(".")[0]
        read = await client.call_tool("read_result", {"handle": handle, "lines": "4001"})
        assert text_of(read) == "4001: line 4000"
