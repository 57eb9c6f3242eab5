"""Audit records as journal lines: valid ones are distinguished from old and torn ones."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.gate.audit.chain import Chain, Entry, columns_of, stored, unbroken
from toolcrib.gate.audit.head import ChainHead, HeadFile
from toolcrib.model.json import JsonObject, canonical

BODIES = st.lists(
    st.dictionaries(st.sampled_from(["at", "phase", "server", "tool", "text"]), st.text(), min_size=1), max_size=8
)


def entry(body: JsonObject) -> Entry:
    return canonical(body)[1:-1], stored(columns_of(body))


def journal_lines(entries: list[Entry], after: ChainHead) -> tuple[list[bytes], list[ChainHead]]:
    """Return the lines of these records and their positions in the chain."""
    with tempfile.TemporaryDirectory() as folder:
        file = HeadFile(Path(folder) / "head")
        chain = Chain(file, after)
        rows = chain.rows(entries)
        file.close()
    return [chain.line(row) for row in rows], [ChainHead(row[0], row[1]) for row in rows]


START = st.builds(ChainHead, st.integers(0, 10**12), st.just("ab" * 32))


@given(BODIES, START)
def test_written_records_are_read_back_unchanged(bodies: list[JsonObject], start: ChainHead) -> None:
    entries = [entry(body) for body in bodies]
    lines, heads = journal_lines(entries, start)
    found = unbroken(lines)
    assert [record.entry for record in found] == entries
    assert [record.head for record in found] == heads
    assert [record.prev for record in found] == [start, *heads][: len(heads)]


@given(BODIES, BODIES, st.data())
def test_torn_line_over_old_ones_ends_the_chain(
    older: list[JsonObject], newer: list[JsonObject], data: st.DataObject
) -> None:
    old, heads = journal_lines([entry(body) for body in older], ChainHead())
    new, _ = journal_lines([entry(body) for body in newer], [ChainHead(), *heads][-1])
    before = b"".join(line + b"\n" for line in old)
    after = b"".join(line + b"\n" for line in new)
    reached = data.draw(st.integers(0, len(after)))
    file = after[:reached] + before[reached:]
    whole = after[:reached].count(b"\n")
    found = unbroken(file.split(b"\n"))
    if whole:
        assert len(found) - whole in (0, 1)  # one more if only its line feed is missing, which changes nothing
        assert [record.head.number for record in found] == [len(old) + 1 + index for index in range(len(found))]
    else:
        assert {record.head.number for record in found} <= set(range(1, len(old) + 2))
