"""The tail of a server's stderr: bounded, masked and cleaned."""

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.base.processes.stderr import StderrRing


def hide(line: str) -> str:
    """Mask the secret of these tests."""
    return line.replace("s3cret", "****")


@given(st.lists(st.binary(max_size=50)))
def test_ring_keeps_the_end_up_to_its_limit(chunks: list[bytes]) -> None:
    ring = StderrRing(str, limit=100)
    for chunk in chunks:
        ring.add(chunk)
    assert ring.total == sum(map(len, chunks))
    assert sum(len(line.encode()) for line in ring.tail(1_000)) <= 3 * 100  # an invalid byte is shown as three bytes


def test_only_complete_lines_of_a_cut_text_are_shown() -> None:
    ring = StderrRing(str, limit=20)
    for number in range(10):
        ring.add(f"line {number}\n".encode())
    assert ring.tail() == ("line 9",)


def test_secret_is_masked_across_chunks_and_at_the_cut() -> None:
    ring = StderrRing(hide)
    ring.add(b"token s3c")
    ring.add(b"ret!\n" + b"x" * 497 + b"s3cret\n")
    assert ring.tail() == ("token ****!", "x" * 497 + "***…")


def test_control_characters_are_removed_and_long_lines_cut() -> None:
    ring = StderrRing(str)
    ring.add("\x1b[31merror\x1b[0m \x1b]0;title\x07\x00\x9bok\n\n\r\n".encode() + b"y" * 600 + b"\nbad \xff\n")
    assert ring.tail() == ("error ok", "y" * 500 + "…", "bad \ufffd")


def test_tail_returns_the_requested_number_of_lines() -> None:
    ring = StderrRing(str)
    ring.add(b"".join(b"%d\n" % number for number in range(100)))
    assert ring.tail(3) == ("97", "98", "99")
