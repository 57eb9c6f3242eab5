"""Starts Claude Code with only the listed environment variables, so that it ends with its host.

A script: the wrapper that `program` writes runs it as `python -I -S launch.py CLI ARGUMENT…`. It replaces itself with
the CLI, so that process id and pipes stay the same.

Must never import our own modules, nor keep a variable because of its name: the caller lists them.
"""

import ctypes
import os
import signal
import sys

KEPT = "TOOLCRIB_CLAUDE_VARIABLES"
"""The variable that lists all others to keep, separated by commas."""
_OF_THE_SDK = ("PWD", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDE_CODE_SDK_READS_SESSION_STATE")
_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> None:
    """Replace this process with the command."""
    variables = dict(os.environ)
    kept = {*variables.get(KEPT, "").split(","), *_OF_THE_SDK}
    host = os.getppid()
    os.setsid()  # Ctrl-C in the host's terminal is meant for the host, which then interrupts
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != host:
            sys.exit("The host has ended.")
    os.execve(command[0], command, {name: value for name, value in variables.items() if name in kept})


if __name__ == "__main__":
    main(sys.argv[1:])
