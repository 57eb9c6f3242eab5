"""Starts Claude Code with the variables it was given by name and no others, to end when its host does.

A script: the wrapper that `program` writes runs it as `python -I -S launch.py CLI ARGUMENT…`. It becomes the CLI, so
the process keeps its number and its pipes. Above: the SDK starts the wrapper. Below: the operating system. It must
never import anything of ours, nor keep a variable because of what its name looks like: whoever starts it decides.
"""

import ctypes
import os
import signal
import sys

KEPT = "TOOLCRIB_CLAUDE_VARIABLES"
"""The variable that names all others to be kept, with commas between them."""
_OF_THE_SDK = ("PWD", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_AGENT_SDK_VERSION", "CLAUDE_CODE_SDK_READS_SESSION_STATE")
_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> None:
    """Become the command."""
    variables = dict(os.environ)
    kept = {*variables.get(KEPT, "").split(","), *_OF_THE_SDK}
    host = os.getppid()
    os.setsid()  # a Ctrl-C in the host's terminal is for the host, which asks to interrupt
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != host:
            sys.exit("The host has ended.")
    os.execve(command[0], command, {name: value for name, value in variables.items() if name in kept})


if __name__ == "__main__":
    main(sys.argv[1:])
