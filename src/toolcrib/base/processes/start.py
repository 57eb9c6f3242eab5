"""The only place that starts a process: a list of words, no shell, and three pipes.

Every way to run a server's command (connect, test, reload, import) goes through here and has the same guarantees: its
own session and process group, no descriptors except its pipes, only the given environment, a checked working directory,
and private files (umask 077) unless it works on the user's files.

Must never pass a word through a shell. System errors are raised as messages with the next step.
"""

import errno
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from toolcrib.base.home import MARKER
from toolcrib.base.processes.descendants import start_marked
from toolcrib.base.processes.sandbox import sandbox_support, sandboxed_command
from toolcrib.model.errors import ConfigError, ToolcribError, Unavailable
from toolcrib.model.sandbox import SandboxGrants

BASE_NAMES = ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
PROXY_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
NETWORK_NAMES = (
    *PROXY_NAMES, "NO_PROXY", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
)  # fmt: skip
"""How programs reach the network from this machine: proxies and certificate authorities."""
PRIVATE = 0o077
"""The umask of programs whose files are private."""
INHERITED = -1
"""The umask of programs that write the user's files: that of the crib."""

_INSTALL = {
    "npx": "Install Node.js, which brings `npx`.",
    "node": "Install Node.js.",
    "uvx": "Install uv, which brings `uvx`.",
    "uv": "Install uv.",
    "docker": "Install Docker.",
    "bunx": "Install Bun, which brings `bunx`.",
    "deno": "Install Deno.",
}
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})


def child_environment(base: Mapping[str, str], declared: Mapping[str, str], marker: str) -> dict[str, str]:
    """Return a server's environment: the base and network variables, the declared ones and the marker, nothing else."""
    inherited = {name: base[name] for name in (*BASE_NAMES, *NETWORK_NAMES) if name in base}
    return {**inherited, **declared, MARKER: marker}


def start(
    words: Sequence[str],
    environment: Mapping[str, str],
    cwd: str | None,
    *,
    is_heard: bool = True,
    umask: int = PRIVATE,
    mark: str | None = None,
    descriptors: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a program. `is_heard` False connects only its input. Raises `OSError` and `ValueError` from the system.

    `mark` identifies it and its descendants. Besides its pipes it gets these `descriptors`.

    Blocks until the program runs or has failed to start; call it in a worker thread.
    """
    output = subprocess.PIPE if is_heard else subprocess.DEVNULL

    def begin() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            list(words),
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            close_fds=True,
            pass_fds=descriptors,
            shell=False,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            umask=umask,
        )

    return start_marked(begin, mark)


def start_server(
    name: str,
    words: Sequence[str],
    environment: Mapping[str, str],
    cwd: str | None,
    umask: int = PRIVATE,
    mark: str | None = None,
    sandbox: SandboxGrants | None = None,
    trace: tuple[str, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a server's command. Raises `ConfigError` or `Unavailable` with the reason and the next step.

    `trace` is the command of a tracer that runs it.
    """
    if cwd is not None and not Path(cwd).is_dir():
        raise _bad_cwd(name, cwd)
    try:
        if sandbox is None and not trace:
            return start(words, environment, cwd, umask=umask, mark=mark)
        _check_program(words[0], environment, cwd)
        if sandbox is None:
            return start([*trace, *words], environment, cwd, umask=umask, mark=mark)
        launched, passed = sandboxed_command(words, environment, sandbox, sandbox_support())
        descriptors = (sandbox.guard,) if sandbox.guard >= 0 else ()
        return start(launched, passed, cwd, umask=umask, mark=mark, descriptors=descriptors)
    except OSError as error:
        raise _start_error(name, words[0], environment, cwd, error) from None
    except ValueError as error:  # a NUL in a word, a variable or the directory
        raise ConfigError("server.command_unusable", f'Server "{name}" did not start: {error}.') from None


def _check_program(command: str, environment: Mapping[str, str], cwd: str | None) -> None:
    """Raise what the system would raise for a missing program; in a sandbox, the launcher is always found."""
    path = str(Path(cwd or ".") / command) if os.sep in command else command
    if shutil.which(path, path=environment.get("PATH", os.defpath)) is None:
        number = errno.EACCES if os.sep in command and Path(path).exists() else errno.ENOENT
        raise OSError(number, os.strerror(number), command)


def _bad_cwd(name: str, cwd: str) -> ToolcribError:
    what = "is not a directory" if Path(cwd).exists() else "does not exist"
    return ConfigError("server.cwd_unusable", f'Server "{name}" did not start: its working directory {cwd} {what}.')


def _start_error(
    name: str, command: str, environment: Mapping[str, str], cwd: str | None, error: OSError
) -> ToolcribError:
    failed = f'Server "{name}" did not start: command "{command}"'
    message = f"{failed}: {error.strerror or error} (errno {error.errno})."
    if error.errno in _EXHAUSTED:
        return Unavailable("server.no_room", message)
    if cwd is not None and error.filename == cwd:
        return ConfigError("server.cwd_unusable", message)
    if error.errno == errno.ENOENT:
        hint = _not_found_hint(command, environment, cwd)
        return ConfigError("server.command_not_found", f"{failed} not found.", hint)
    return ConfigError("server.command_unusable", message, _repair_hint(error.errno))


def _not_found_hint(command: str, environment: Mapping[str, str], cwd: str | None) -> str:
    if command.startswith("~"):
        return "`~` is not expanded: write the full path."
    if os.sep not in command:
        return _install_hint(command, environment.get("PATH"))
    if (Path(cwd) / command if cwd else Path(command)).exists():
        return f"{command} exists, but the interpreter in its first line does not: install that."
    return "Install it, or correct the path in the definition."


def _install_hint(command: str, path: str | None) -> str:
    if not path:
        return "PATH is not set: write the command's full path."
    if shutil.which(command, path=path):
        return f"{command} exists, but the interpreter in its first line does not: install that."
    return _INSTALL.get(command, f"Install {command}, or write its full path: it is not on the PATH ({path}).")


def _repair_hint(number: int | None) -> str | None:
    match number:
        case errno.EACCES | errno.EPERM:
            return "Make the file executable (`chmod +x`) and its directories accessible to you."
        case errno.ENOEXEC:
            return (
                "It is built for another platform, or it is a script without an interpreter line (`#!/usr/bin/env …`)."
            )
        case errno.E2BIG:
            return "Its arguments and variables are too long in total: move the long ones into a file."
        case _:
            return None
