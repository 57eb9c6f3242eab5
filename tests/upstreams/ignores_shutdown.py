"""A server that does not shut down. The arguments select how; the call `pids` returns all process ids involved.

`term` ignores SIGTERM. `eof` keeps running after its input has ended. `stops` stops itself with SIGSTOP at the end of
its input. `child` starts a child that holds all pipes and ignores SIGTERM, `forks` one that was forked twice, `daemon`
one in its own session, and `clean` one that also has an empty environment. `deaf` stops reading after its first call.

"""

import os
import signal
import sys

from upstreams.protocol import Message, reply, requests

FORGETFUL = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.write(1, str(os.getpid()).encode())
nothing = os.open(os.devnull, os.O_RDWR)
for number in range(3):
    os.dup2(nothing, number)
os.closerange(3, 256)
while True:
    signal.pause()
"""


def linger() -> None:
    """Sleep until killed."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()


def descend(*, twice: bool, session: bool, clean: bool = False) -> int:
    """Start a process that lingers, and return its id."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        if session:
            os.setsid()
        if not twice or os.fork() == 0:
            if clean:
                forget_everything(writing)
            os.write(writing, str(os.getpid()).encode())
            linger()
        os._exit(0)
    if twice:
        os.wait()
    return int(os.read(reading, 20))


def forget_everything(writing: int) -> None:
    """Replace the process by one with an empty environment, which reports its process id instead."""
    os.dup2(writing, 1)
    os.execve(sys.executable, [sys.executable, "-S", "-c", FORGETFUL], {})


def main(ways: list[str]) -> None:
    """Serve, then refuse to end."""
    pids: Message = {"server": os.getpid()}
    if "term" in ways:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for way, twice, session in (("child", False, False), ("forks", True, False), ("daemon", True, True)):
        if way in ways:
            pids[way] = descend(twice=twice, session=session)
    if "clean" in ways:
        pids["clean"] = descend(twice=True, session=True, clean=True)
    for request in requests():
        reply(request, pids)
        if "deaf" in ways:
            signal.pause()
    if "stops" in ways:
        os.kill(os.getpid(), signal.SIGSTOP)
    while "eof" in ways:
        signal.pause()


if __name__ == "__main__":
    main(sys.argv[1:])
