"""The protocol log keeps the most recent messages, newest first."""

import asyncio

import pytest

from toolcrib.model.errors import Unavailable
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.protocol_log import KEPT, OK, LoggedMessage, ProtocolLog, ending


def test_newest_entry_comes_first_and_the_oldest_is_dropped() -> None:
    log = ProtocolLog()
    for number in range(KEPT + 5):
        log.note((float(number), None, "in", f"notifications/{number}", None, None))
    entries = log.entries()
    assert len(entries) == KEPT
    assert (entries[0].method, entries[-1].method) == (f"notifications/{KEPT + 4}", "notifications/5")


def test_request_has_a_duration_and_an_outcome() -> None:
    log = ProtocolLog()
    log.note((100.0, 100.25, "out", "tools/call", "echo", OK))
    assert log.entries() == (LoggedMessage(100.0, "out", "tools/call", "echo", 250.0, "ok"),)


def test_clock_that_was_set_back_yields_no_negative_duration() -> None:
    log = ProtocolLog()
    log.note((100.0, 40.0, "out", "ping", None, OK))
    assert log.entries()[0].milliseconds == 0


def test_only_a_valid_tool_name_of_the_parameters_is_stored() -> None:
    log = ProtocolLog()
    log.note((0.0, 0.0, "out", "prompts/get", "greet", OK))
    assert log.entries()[0].tool is None
    log.note((0.0, 0.0, "out", "tools/call", {"no": "name"}, OK))
    assert log.entries()[0].tool is None


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (ProtocolError(-32602, "no"), "-32602"),
        (Unavailable("server.timeout", "late"), "server.timeout"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_failed_request_is_logged_with_its_code(error: BaseException, word: str) -> None:
    assert ending(error) == word
