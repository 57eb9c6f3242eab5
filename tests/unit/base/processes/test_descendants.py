"""The marker that a server and all its descendants carry."""

import subprocess
import sys
import threading

import pytest

from toolcrib.base.processes.descendants import find_marked, kill_marked, new_mark, start_marked

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Needs /proc.")

PROGRAM = (sys.executable, "-S", "-c", "input()")


def start_program() -> "subprocess.Popen[bytes]":
    """Start a program that waits for its input to end."""
    return subprocess.Popen(PROGRAM, stdin=subprocess.PIPE, env={}, start_new_session=True)


def pids(mark: str) -> list[int]:
    """Return the ids of the processes with a marker."""
    return [seen.pid for seen in find_marked({mark})]


def test_process_is_found_and_killed_by_its_marker() -> None:
    mark = new_mark()
    with (
        start_marked(start_program, mark) as marked,
        start_marked(start_program, new_mark()) as other,
        start_marked(start_program, None) as none,
    ):
        assert pids(mark) == [marked.pid]
        assert kill_marked({mark}) == ()
        assert (marked.wait(10), other.poll(), none.poll()) == (-9, None, None)
        other.kill()
        none.kill()


def test_process_started_by_another_thread_is_not_marked() -> None:
    mark, others = new_mark(), list["subprocess.Popen[bytes]"]()

    def begin_both() -> "subprocess.Popen[bytes]":
        thread = threading.Thread(target=lambda: others.append(start_program()))
        thread.start()
        thread.join()
        return start_program()

    with start_marked(begin_both, mark) as marked:
        assert pids(mark) == [marked.pid]
        marked.kill()
    with others[0] as other:
        other.kill()


def test_failed_start_leaves_no_marker_on_the_crib() -> None:
    mark = new_mark()
    with pytest.raises(FileNotFoundError):
        start_marked(lambda: subprocess.Popen(["/nowhere/at/all"]), mark)
    with start_marked(start_program, None) as after:
        assert pids(mark) == []
        after.kill()
