"""Lines from chunks: independent of chunk borders, and bounded."""

import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.base.processes.pipes import GARBAGE_BYTES, GARBAGE_LINES, Garbage, Line, Lines, OversizedLine

LIMIT = 20


def read_lines(chunks: list[bytes], limit: int = LIMIT) -> list[Line]:
    """Return all lines of these chunks."""
    lines = Lines(limit)
    return [line for chunk in chunks for line in lines.feed(chunk)] + lines.end()


def split_at(data: bytes, places: list[int]) -> list[bytes]:
    """Split the bytes at these places."""
    at = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(at)]


@given(
    st.lists(st.binary(max_size=2 * LIMIT).map(lambda line: line.replace(b"\n", b"-"))), st.lists(st.integers(0, 999))
)
def test_lines_do_not_depend_on_chunk_borders(written: list[bytes], places: list[int]) -> None:
    data = b"".join(line + b"\n" for line in written)
    found = [line for line in read_lines(split_at(data, places)) if isinstance(line, bytes) or line.over]
    assert [line if isinstance(line, bytes) else line.size for line in found] == [
        line if len(line) <= LIMIT else len(line) for line in written
    ]


def test_oversized_line_is_reported_at_the_limit_and_at_its_end() -> None:
    lines = Lines(LIMIT)
    assert lines.feed(b"before\nhead" + b"x" * 20) == [
        b"before",
        OversizedLine(24, b"head" + b"x" * 20, b"head" + b"x" * 20, over=False),
    ]
    assert lines.feed(b"y" * 30) == []
    assert lines.pending == 54
    last = lines.feed(b"tail\nafter\n")
    assert last[1:] == [b"after"]
    assert isinstance(last[0], OversizedLine)
    assert (last[0].size, last[0].over, last[0].head[:4], last[0].tail[-4:]) == (58, True, b"head", b"tail")
    assert lines.pending == 0


def test_unterminated_text_is_a_line_at_the_end() -> None:
    assert read_lines([b"one\ntw", b"o"]) == [b"one", b"two"]
    assert read_lines([b"one\n"]) == [b"one"]
    assert [line.size for line in read_lines([b"x" * 50]) if isinstance(line, OversizedLine)] == [50, 50]


def test_endless_line_uses_bounded_memory() -> None:
    lines = Lines()
    chunk = b"x" * 65_536
    tracemalloc.start()
    for _ in range(2_000):
        lines.feed(chunk)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lines.pending == 2_000 * 65_536
    assert most < 3 * 16 * 1024 * 1024


def test_garbage_is_counted_sampled_and_limited() -> None:
    garbage = Garbage()
    for number in range(GARBAGE_LINES):
        garbage.add(f"line {number} {'x' * 300}".encode())
    assert not garbage.is_too_much
    assert [sample[:6] for sample in garbage.samples] == ["line 0", "line 1", "line 2", "line 3", "line 4"]
    assert max(map(len, garbage.samples)) <= 200
    garbage.add_refused()
    assert garbage.is_too_much


def test_empty_lines_count_by_size_only() -> None:
    garbage = Garbage()
    for _ in range(GARBAGE_BYTES):
        garbage.add_blank()
    assert not garbage.is_too_much
    garbage.add_blank()
    assert garbage.is_too_much
    assert (garbage.lines, garbage.samples) == (0, [])
