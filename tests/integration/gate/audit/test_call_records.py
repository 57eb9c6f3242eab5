"""Records of calls in the audit, and the filters that find them."""

import asyncio
import hashlib
import os
import resource
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from integration.gate.audit.calls import FORECAST, call, make_calls
from integration.store.databases import fetch_rows
from toolcrib.gate.audit.audit import Audit
from toolcrib.model.errors import Unavailable
from toolcrib.model.json import JsonObject, digest
from toolcrib.model.principals import Principal
from toolcrib.model.tools import ToolRef
from toolcrib.store.audit import Filters
from toolcrib.store.engine import open_store

pytestmark = pytest.mark.anyio


@pytest.fixture
def head(tmp_path: Path) -> Path:
    return tmp_path / "audit.head"


async def newest(audit: Audit, **filters: Any) -> JsonObject:
    return (await audit.find(Filters(limit=1, **filters)))[0]


async def test_call_leaves_an_intent_and_an_outcome_with_all_fields(database: str, head: Path) -> None:
    principal = Principal("session", "s-1", "web", agent="reviewer", session="s-1", cwd="/project")
    async with open_store(database) as store, Audit(store, head) as audit:
        record = call(audit, 7, principal=principal, arguments={"city": "Ulm"}, approval="ap-1")
        assert await record.intent() == 1
        assert await record.outcome(is_error=False, duration_ms=12.5) == 2
        outcome, intent = await audit.find(Filters())
    common = {
        "call": "call-7",
        "door": "mcp",
        "principal": principal.to_json(),
        "server": "weather",
        "tool": "forecast",
        "definitionHash": FORECAST.definition_hash,
        "argumentsDigest": digest({"city": "Ulm"}),
        "arguments": {"city": "Ulm"},
        "decision": "allow",
        "rules": ["rule-1"],
        "approvalId": "ap-1",
    }
    links = {"id": 1, "at": intent["at"], "phase": "intent", "prev": "0" * 64, "hash": intent["hash"]}
    assert intent == common | links
    links = {"id": 2, "at": outcome["at"], "phase": "outcome", "prev": intent["hash"], "hash": outcome["hash"]}
    assert outcome == common | links | {"isError": False, "durationMs": 12.5}
    at = datetime.fromisoformat(outcome["at"])
    assert at.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - at) < timedelta(minutes=1)


async def test_hash_can_be_checked_with_the_record_alone(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        await make_calls(audit, 2)
        for record in await audit.find(Filters()):
            stored_hash = record.pop("hash")
            assert hashlib.sha256(record["prev"].encode() + orjson.dumps(record)).hexdigest() == stored_hash


async def test_refused_call_leaves_one_record_and_a_cancelled_call_an_outcome(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        await call(audit, verdict="deny").refused("policy.denied")
        refused = await newest(audit)
        assert (refused["phase"], refused["decision"], refused["isError"]) == ("outcome", "deny", True)
        record = call(audit, 2)
        await record.intent()
        record.abandoned(3.0)
        await call(audit, 3).intent()
        phases = [(found["call"], found["phase"], found.get("abandoned")) for found in await audit.find(Filters())]
        expected = [("call-3", "intent", None), ("call-2", "outcome", True), ("call-2", "intent", None)]
        assert phases[:3] == expected


async def test_call_cancelled_while_its_intent_is_written_has_an_outcome(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        caught = 0
        for turns in range(6):
            calls = [asyncio.ensure_future(call(audit, turns * 100 + number).intent()) for number in range(20)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for waiting in calls:
                waiting.cancel()
            await asyncio.wait(calls)
            caught += sum(waiting.cancelled() for waiting in calls)
        await make_calls(audit, 1)
        found = await audit.find(Filters(limit=1000))
        intents = {record["call"] for record in found if record["phase"] == "intent"}
        ended = {record["call"] for record in found if record["phase"] == "outcome"}
        assert (await audit.verify()).ok
        assert caught > 20
        assert len(intents & ended) > 1
        assert ended <= intents
        assert len(intents) == 120 - caught + len(ended)


async def test_unknown_tool_is_recorded_with_a_truncated_name(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        await call(audit, ref=ToolRef("s", "x" * 1_000_000), tool=None, verdict="unknown").refused("policy.denied")
        record = await newest(audit)
        assert record["definitionHash"] is None
        assert len(record["tool"]) < 300


async def test_secrets_are_masked_and_the_digest_covers_the_original(database: str, head: Path) -> None:
    arguments = {"city": "Ulm", "api_key": "hunter22", "text": "x" * 100_000}
    async with open_store(database) as store, Audit(store, head) as audit:
        await call(audit, arguments=arguments).intent()
        record = await newest(audit)
        assert record["arguments"]["api_key"] == "***"
        assert len(orjson.dumps(record["arguments"])) < 10_000
        assert record["argumentsDigest"] == digest(arguments)
    assert b"hunter22" not in bytes(fetch_rows(database, "SELECT body FROM audit")[0][0])


async def test_records_match_every_filter(database: str, head: Path) -> None:
    agent = Principal("session", "s-1", "web", agent="reviewer", session="s-1")
    async with open_store(database) as store, Audit(store, head) as audit:
        await call(audit, 1).intent()
        await call(audit, 2, principal=agent, door="api", verdict="deny").refused("policy.denied")
        await call(audit, 3, ref=ToolRef("other", "tool"), tool=None).intent()
        later = datetime.now(UTC) + timedelta(hours=1)
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({}, ["call-3", "call-2", "call-1"]),
            ({"server": "weather"}, ["call-2", "call-1"]),
            ({"tool": "tool"}, ["call-3"]),
            ({"agent": "reviewer"}, ["call-2"]),
            ({"session": "s-1"}, ["call-2"]),
            ({"principal": "owner"}, ["call-3", "call-1"]),
            ({"door": "api"}, ["call-2"]),
            ({"decision": "deny", "phase": "outcome"}, ["call-2"]),
            ({"since": later}, []),
            ({"until": later, "server": "other"}, ["call-3"]),
            ({"since": later - timedelta(hours=2), "until": later}, ["call-3", "call-2", "call-1"]),
            ({"server": "' OR 1=1 --"}, []),
            ({"after": 3, "limit": 1}, ["call-2"]),
            ({"after": 2**80}, ["call-3", "call-2", "call-1"]),
            ({"after": -5}, []),
            ({"limit": 0}, ["call-3"]),
        ]
        for filters, expected in cases:
            assert [found["call"] for found in await audit.find(Filters(**filters))] == expected, filters


async def test_pages_have_no_gap_or_repeat(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        await make_calls(audit, 11)
        seen: list[int] = []
        after = None
        while page := await audit.find(Filters(after=after, limit=5)):
            seen += [record["id"] for record in page]
            after = seen[-1]
            await make_calls(audit, 1)
        assert seen == list(range(22, 0, -1))


UNUSUAL_TEXTS = ("ünïcödé 🛠", "a\0b", "back\\slash", "\\u0000", 'quo"te', "'; DROP TABLE audit; --", "\u202e", "")


@pytest.mark.parametrize("text", UNUSUAL_TEXTS)
async def test_names_of_any_characters_are_recorded_and_found(database: str, head: Path, text: str) -> None:
    principal = Principal("token", text, "ide", agent=text, session=text)
    async with open_store(database) as store, Audit(store, head) as audit:
        await call(audit, principal=principal, ref=ToolRef(text, text), tool=None, arguments={text: text}).intent()
        record = await newest(audit, server=text, tool=text, agent=text, session=text, principal=text)
        assert (record["server"], record["principal"]["name"], record["arguments"]) == (text, text, {text: text})
        assert (await audit.verify()).ok


async def test_values_that_are_not_json_are_recorded_as_text(database: str, head: Path) -> None:
    principal = Principal("owner", "owner", "cli", cwd="/lone/\udcff")
    async with open_store(database) as store, Audit(store, head) as audit:
        await call(audit, principal=principal).intent()
        assert (await newest(audit))["principal"]["cwd"] == "/lone/\\udcff"
        body = {"phase": "intent", "server": "\ud800", "big": 2**70, "odd": (1, {2, 3}), "deep": {"x": Path("/a")}}
        assert await audit.record(body) == 2
        record = await newest(audit)
        assert (record["server"], record["big"], record["deep"]) == ("\\ud800", 2**70, {"x": "/a"})
        assert (await audit.verify()).ok


async def test_concurrent_calls_make_one_chain_without_gaps(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        numbers = await asyncio.gather(*(call(audit, number).intent() for number in range(200)))
        assert sorted(numbers) == list(range(1, 201))
        verification = await audit.verify()
        assert (verification.ok, verification.records) == (True, 200)


async def test_head_file_is_private_and_names_the_newest_record(database: str, head: Path) -> None:
    async with open_store(database) as store, Audit(store, head) as audit:
        before = os.umask(0)
        try:
            await make_calls(audit, 3)
        finally:
            os.umask(before)
        record = await newest(audit)
        assert content(head) == f"{record['id']:020d} {record['hash']}\n"
        assert mode(head) == 0o600


def content(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_chain_continues_after_a_restart(database: str, head: Path) -> None:
    for _ in range(3):
        async with open_store(database) as store, Audit(store, head) as audit:
            await make_calls(audit, 2)
    async with open_store(database) as store, Audit(store, head) as audit:
        verification = await audit.verify()
        assert (verification.ok, verification.records) == (True, 12)


async def test_failed_filter_uses_only_the_top_level_field(database: str, head: Path) -> None:
    hidden = {"isError": True, "durationMs": 1, "deep": {"isError": True}, "text": 'ü "isError":true} {'}
    writer = Principal("owner", "owner", "cli", agent="wri\\ter")
    async with open_store(database) as store, Audit(store, head) as audit:
        for number, (arguments, failed) in enumerate([(hidden, False), ({}, False), ({}, True), (hidden, True)]):
            record = call(audit, number, arguments=arguments, principal=writer)
            await record.intent()
            await record.outcome(is_error=failed, duration_ms=1.5)
        await call(audit, 4, arguments=hidden, verdict="deny").refused("policy.denied")
        call(audit, 5, arguments=hidden).abandoned(2.0)
        found = {
            failed: {each["call"] for each in await audit.find(Filters(failed=failed))} for failed in (True, False)
        }
        rows, failures = await audit.tally(Filters(server="weather", after=1))
        late = await audit.tally(Filters(since=datetime.now(UTC) + timedelta(hours=1)))
    assert found == {True: {"call-2", "call-3", "call-4", "call-5"}, False: {"call-0", "call-1"}}
    assert sorted((values[0], values[3], number) for values, number in rows if values[3]) == [("allow", "wri\\ter", 4)]
    assert (sum(number for _, number in rows), failures, late) == (6, 4, ([], 0))


async def test_call_is_not_made_without_a_record_and_the_audit_recovers(sqlite_url: str, head: Path) -> None:
    async with open_store(sqlite_url) as store, Audit(store, head) as audit:
        await make_calls(audit, 1)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            for attempt in (call(audit).intent(), call(audit).refused("policy.denied")):
                with pytest.raises(Unavailable, match="not made") as raised:
                    await attempt
                assert raised.value.code == "audit.unavailable"
            with pytest.raises(Unavailable, match="was made"):
                await call(audit).outcome(is_error=False, duration_ms=0.0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await make_calls(audit, 1)
        verification = await audit.verify()
        assert (verification.ok, verification.records) == (True, 4)


async def test_two_audits_of_one_database_write_one_chain(database: str, tmp_path: Path) -> None:
    async with (
        open_store(database) as one,
        open_store(database) as two,
        Audit(one, tmp_path / "one.head", crib="one") as first,
        Audit(two, tmp_path / "two.head", crib="two") as second,
    ):
        with anyio.fail_after(20):
            for _ in range(5):
                await make_calls(first, 1)
                await asyncio.gather(make_calls(first, 5), make_calls(second, 5))
                await make_calls(second, 1)
        for audit in (first, second):
            verification = await audit.verify()
            assert (verification.findings, verification.records) == ((), 120)


async def test_text_filter_searches_arguments_callers_and_reasons(database: str, head: Path) -> None:
    robot = Principal("token", "robot", "api")
    async with open_store(database) as store, Audit(store, head) as audit:
        arguments = {"city": 'Köln 100% "mine" \\o/', "under_score": 1}
        first, second = (
            call(audit, 1, arguments=arguments),
            call(audit, 2, principal=robot, arguments={"a": "undererscore"}),
        )
        for record in (first, second):
            await record.intent()
            await record.outcome(is_error=False, duration_ms=1)

        async def found(text: str) -> set[str]:
            return {record["call"] for record in await audit.find(Filters(text=text))}

        assert await found("KÖLN".lower()) == await found("100%") == await found('"mine"') == {"call-1"}
        assert await found("\\o/") == await found("under_score") == {"call-1"}
        assert await found("ROBOT weather") == {"call-2"}
        assert await found("rule-1") == {"call-1", "call-2"}
        assert await found("robot köln") == set()
        assert await audit.count(Filters(text="forecast", phase="outcome")) == 2
