"""What was said with a server is kept, the newest first, and not more than its bound."""

import asyncio

import pytest

from toolcrib.model.errors import Unavailable
from toolcrib.model.sources import ProtocolError
from toolcrib.upstream.protocol_log import KEPT, OK, LoggedMessage, ProtocolLog, ending


def test_the_newest_comes_first_and_the_oldest_goes() -> None:
    talk = ProtocolLog()
    for number in range(KEPT + 5):
        talk.note((float(number), None, "in", f"notifications/{number}", None, None))
    said = talk.entries()
    assert len(said) == KEPT
    assert (said[0].method, said[-1].method) == (f"notifications/{KEPT + 4}", "notifications/5")


def test_a_request_has_a_duration_and_an_end() -> None:
    talk = ProtocolLog()
    talk.note((100.0, 100.25, "out", "tools/call", "echo", OK))
    assert talk.entries() == (LoggedMessage(100.0, "out", "tools/call", "echo", 250.0, "ok"),)


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    talk = ProtocolLog()
    talk.note((100.0, 40.0, "out", "ping", None, OK))
    assert talk.entries()[0].milliseconds == 0


def test_of_the_parameters_only_the_name_of_a_tool_is_kept_and_only_if_it_is_one() -> None:
    talk = ProtocolLog()
    talk.note((0.0, 0.0, "out", "prompts/get", "greet", OK))
    assert talk.entries()[0].tool is None
    talk.note((0.0, 0.0, "out", "tools/call", {"no": "name"}, OK))
    assert talk.entries()[0].tool is None


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (ProtocolError(-32602, "no"), "-32602"),
        (Unavailable("server.timeout", "late"), "server.timeout"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_what_gave_no_result_is_told_by_its_code(error: BaseException, word: str) -> None:
    assert ending(error) == word
