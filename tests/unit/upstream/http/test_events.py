"""Server-sent events, parsed from pieces of any size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.upstream.http.events import EventParser, EventTooLarge, ServerSentEvent

ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])
WORDS = st.sampled_from(
    [
        *(b"data: a", b"data:b", b"data", b"data:", b"data:  c: d", "data: \u00fc\u2028".encode(), b"data x"),
        *(b"id: 7", b"id", b"id: \0", b"retry: 10", b"retry: x", b"event: endpoint", b"event:"),
        *(b": note", b":", b"", b"", b"other: x"),
    ]
)


def read(chunks: list[bytes]) -> tuple[list[ServerSentEvent], str | None, int | None]:
    parser = EventParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events, parser.last_id, parser.retry


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [ServerSentEvent("message", b"a")]),
        (
            b"data: a\r\rdata: b\r\n\r\ndata: c\n\n",
            [ServerSentEvent("message", letter) for letter in (b"a", b"b", b"c")],
        ),
        (b"data: a\ndata: b\n\n", [ServerSentEvent("message", b"a\nb")]),
        (
            b"event: endpoint\ndata: /x\n\ndata: y\n\n",
            [ServerSentEvent("endpoint", b"/x"), ServerSentEvent("message", b"y")],
        ),
        (b"\xef\xbb\xbfdata:x\n\n", [ServerSentEvent("message", b"x")]),
        (b"data\n\n", [ServerSentEvent("message", b"")]),
        (b": only a note\n\n", []),
        (b"event: lost\n\ndata: a\n\n", [ServerSentEvent("message", b"a")]),
        (b"data: unfinished\n", []),
    ],
)
def test_events_follow_the_specification(stream: bytes, expected: list[ServerSentEvent]) -> None:
    assert read([stream])[0] == expected


def test_id_and_retry_keep_their_value_until_changed() -> None:
    parser = EventParser()
    parser.feed(b"id: 1\nretry: 2500\ndata: a\n\n")
    assert (parser.last_id, parser.retry) == ("1", 2500)
    parser.feed(b"data: b\n\nid: 2\nretry: soon\n")
    assert (parser.last_id, parser.retry) == ("1", 2500)
    parser.feed(b"\n")
    assert parser.last_id == "2"


@given(st.lists(st.tuples(WORDS, ENDS), max_size=30), st.data())
def test_events_do_not_depend_on_the_size_of_the_pieces(lines: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    stream = b"".join(word + end for word, end in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(chunks) == read([stream]) == read([stream[at : at + 1] for at in range(len(stream))])


@given(st.lists(st.binary(max_size=40).filter(lambda data: b"\r" not in data and b"\n" not in data), max_size=10))
def test_data_of_each_event_is_complete(values: list[bytes]) -> None:
    stream = b"".join(b"data: " + value + b"\n\n" for value in values)
    assert [event.data for event in read([stream])[0]] == values


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_without_an_exception(stream: bytes) -> None:
    read([stream])


def test_event_size_is_limited_over_one_or_many_lines() -> None:
    for piece in (b"x" * 100, b"data: " + b"x" * 60 + b"\n"):
        parser = EventParser(limit=1000)
        parser.feed(b"data: ")
        with pytest.raises(EventTooLarge):
            for _ in range(100):
                parser.feed(piece)


def test_comments_do_not_count_towards_the_size_of_an_event() -> None:
    parser = EventParser(limit=100)
    for _ in range(100):
        assert parser.feed(b": still here\n") == []
    assert parser.feed(b"data: a\n\n") == [ServerSentEvent("message", b"a")]
