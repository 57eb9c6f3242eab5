"""Warnings to show before a definition runs: patterns that make a command line do more than it shows.

Judges a definition as written; the trust prompt shows the result. Must never put a secret into a message.
"""

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from toolcrib.model.servers import ServerSpec
from toolcrib.model.text import visible
from toolcrib.servers.commands import SHELLS, program, takes_code, unwrapped
from toolcrib.servers.masking import mask_code, mask_command, mask_text
from toolcrib.servers.variables import LOOKED_UP


@dataclass(frozen=True, slots=True)
class Danger:
    """One warning. A `grave` one lets the definition do anything, so the user must accept it by name."""

    code: str
    message: str
    grave: bool = False


_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_RUNNERS = frozenset({"npx", "bunx", "pnpx", "uvx", "pipx", "dnx", "pnpm", "yarn"})
_PRELOAD = re.compile(
    r"^(?:LD_\w+|DYLD_\w+|NODE_OPTIONS|NODE_PATH|PYTHON(?:PATH|STARTUP|HOME)|PERL5(?:LIB|OPT)|RUBY(?:OPT|LIB)|PATH"
    r"|BASH_ENV|ENV|SHELLOPTS|GIT_SSH_COMMAND|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|ELECTRON_RUN_AS_NODE|UV_INDEX_URL"
    r"|UV_DEFAULT_INDEX|PIP_INDEX_URL|NPM_CONFIG_\w+|NODE_TLS_REJECT_UNAUTHORIZED|HTTPS?_PROXY|ALL_PROXY)$",
    re.IGNORECASE,
)
_GRAVE_MOUNT = re.compile(
    r"^(?:/|[A-Za-z]:[/\\]?|/(?:etc|root|home|Users|var/run/docker\.sock|run/docker\.sock)/?)(?::|$)"
)


def dangers(spec: ServerSpec) -> tuple[Danger, ...]:
    """Return all warnings in a stable order."""
    found = [*_of_command(spec), *_of_environment(spec), *_of_address(spec), *_of_text(spec)]
    return tuple(dict.fromkeys(found))


def _of_command(spec: ServerSpec) -> Iterator[Danger]:
    if spec.command is None:
        return
    words = (spec.command, *spec.args)
    if any(program(word) in ("sudo", "doas") for word in words[:2]):
        yield Danger("administrator", "It runs with an administrator's rights.", grave=True)
    rest = unwrapped(words)
    if not rest:
        return
    name, arguments = program(rest[0]), rest[1:]
    shown = mask_command(words)[len(words) - len(arguments) :]
    if any(takes_code(name, argument) for argument in arguments):
        yield Danger("inline_code", f"It gives {name} code to run in its arguments.", grave=True)
    elif name in SHELLS:
        yield Danger("shell", f"It runs a shell ({name}).", grave=True)
    if name in _CONTAINERS:
        yield from _of_container(spec, arguments, shown)
    if name in _RUNNERS:
        yield from _of_runner(name, arguments, shown)
    if spec.source.project is not None and _is_relative(rest[0]):
        yield Danger("project_program", "The program comes from the project itself.")
    if name in ("curl", "wget"):
        yield Danger("download", f"It runs {name}, which loads something from the network.")


def _of_container(spec: ServerSpec, arguments: Sequence[str], shown: Sequence[str]) -> Iterator[Danger]:
    if spec.sandbox.is_confined:
        yield Danger("container", "Its container runs outside of the sandbox, with what these options give it.")
    joined = [*arguments, *(f"{a}={b}" for a, b in itertools.pairwise(arguments))]
    for argument in joined:
        flag, _, value = argument.partition("=")
        if flag == "--privileged" and value not in ("false",):
            yield Danger("privileged_container", "The container runs privileged.", grave=True)
        elif flag in ("--pid", "--net", "--network", "--ipc", "--userns", "--uts") and value == "host":
            yield Danger("privileged_container", f"The container shares the host's {flag[2:]}.", grave=True)
        elif flag in ("--cap-add", "--device", "--security-opt") and value:
            yield Danger("privileged_container", f"The container gets {flag} {_display(value)}.", grave=True)
        elif flag in ("-v", "--volume", "--mount") and (
            _GRAVE_MOUNT.match(_mount_source(value)) or _is_outside(spec, value)
        ):
            yield Danger("privileged_container", f"The container sees {_display(value)} of this machine.", grave=True)
    named = (i for i, a in enumerate(arguments) if i and "/" in a and "=" not in a and not a.startswith(("-", "/")))
    index = next(named, None)
    if index is not None and "@sha256:" not in arguments[index]:
        tag = arguments[index].rpartition("/")[2].partition(":")[2]
        if tag in ("", "latest"):
            yield Danger("floating_version", f"The image {visible(shown[index])} has no fixed version.")


def _mount_source(value: str) -> str:
    source = re.search(r"(?:^|,)(?:source|src)=([^,]*)", value)
    return source[1] if source else value


def _is_outside(spec: ServerSpec, mount: str) -> bool:
    """Return whether a project's definition mounts something outside of the project."""
    source, is_bound = _mount_source(mount), "=" in mount or ":" in mount
    path = source.partition(":")[0]
    is_path = path.startswith(("/", "~", "$HOME", "${HOME}", "${env:HOME}", "${userHome}")) or ".." in path.split("/")
    if spec.source.project is None or not is_path or not is_bound:
        return False
    return not Path(os.path.normpath(path)).is_relative_to(spec.source.project)


def _of_runner(name: str, arguments: Sequence[str], shown: Sequence[str]) -> Iterator[Danger]:
    if any(a in ("--with", "--from", "--index-url", "--extra-index-url", "--registry") for a in arguments):
        yield Danger("other_packages", f"{name} is told to take packages from elsewhere or to add others.")
    named = (i for i, a in enumerate(arguments) if not a.startswith("-") and a not in ("run", "dlx", "exec", "x"))
    index = next(named, None)
    if index is None or _is_relative(arguments[index]) or arguments[index].startswith(("$", "{")):
        return
    version = re.search(r"(?<!^)(?:@|==)([^/]+)$", arguments[index])
    if version is None or version[1] in ("latest", "next", "beta", "canary", "*"):
        package = visible(shown[index])
        yield Danger("floating_version", f"{package} has no fixed version: what runs may change at any time.")


def _of_environment(spec: ServerSpec) -> Iterator[Danger]:
    for name in (*spec.env, *spec.env_pass):
        if _PRELOAD.match(name):
            yield Danger("preload", f"It sets {visible(name)}, which changes what programs load or reach.", grave=True)
    if spec.env_file is not None:
        yield Danger("env_file", f"It takes variables from the file {visible(spec.env_file)}.")
    if spec.variables in LOOKED_UP:
        for name, value in (*spec.env.items(), *spec.headers.items()):
            if value.startswith("!"):
                yield Danger(
                    "secret_command", f"It runs `{visible(mask_code(value[1:]))}` to get {visible(name)}.", grave=True
                )


def _of_address(spec: ServerSpec) -> Iterator[Danger]:
    if spec.url is None:
        return
    try:
        parts = urlsplit(spec.url)
        host = parts.hostname or ""
    except ValueError:
        yield Danger("address", "Its address cannot be taken apart.", grave=True)
        return
    local = host in ("localhost", "::1") or host.startswith("127.")
    if parts.scheme == "http" and not local:
        yield Danger("not_encrypted", f"It talks to {visible(host)} without encryption.")
    if "xn--" in host or not host.isascii():
        yield Danger("look_alike", f"The name {visible(host)} may look like another one.")


def _display(value: str) -> str:
    return visible(mask_text(value))


def _of_text(spec: ServerSpec) -> Iterator[Danger]:
    texts = (spec.name, spec.command or "", *spec.args, spec.cwd or "", spec.url or "", *spec.env, *spec.headers)
    if any(visible(text) != text for text in texts):
        yield Danger("hidden_characters", "It holds characters that a screen would hide.", grave=True)


def _is_relative(command: str) -> bool:
    return command.startswith((".", "..")) or ("/" in command and not command.startswith(("/", "~", "@", "$", "{")))
