"""Recognises servers in pasted text: an app's snippet, a URL, a command line, an install link.

Nothing is started, downloaded or trusted. The result is a list of definitions to review, with a problem for each
unusable part.
"""

import base64
import binascii
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from toolcrib.base.files.reading import FileText
from toolcrib.base.masking.words import Suspicion, is_secret_word
from toolcrib.model.json import JsonObject, as_object, as_text
from toolcrib.model.problems import Problem
from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.servers.commands import program, unwrapped
from toolcrib.servers.readers.apps import FORMATS
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.fields import judge
from toolcrib.servers.readers.read import ConfigFile, FileReading, read_content

SOURCE = DefinitionSource("toolcrib", "user", "pasted text")
MAX_CHARACTERS = 1024 * 1024

_GUESSES = (
    ("json", "pasted"),
    ("json", "opencode"),
    ("json", "zed"),
    ("json", "amp"),
    ("json", "crush"),
    ("json", "registry"),
    ("json", "mcpb"),
    ("json", "devcontainer"),
    ("toml", "codex"),
    ("yaml", "goose"),
    ("yaml", "continue"),
)
_URL = re.compile(r"^https?://\S+$", re.IGNORECASE)
_MEMBER = re.compile(r'^\s*"(?:[^"\\]|\\.)+"\s*:\s*\{')
_RUNNERS = ("npx", "bunx", "pnpx", "uvx", "pipx", "dnx", "docker", "podman", "uv", "node", "python")
_ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_PROMPT = re.compile(r"^\s*(?:[$%>]\s+)")


@dataclass(frozen=True, slots=True)
class Pasted:
    """The recognised servers, as if they were in our own file, and the problems."""

    servers: tuple[ServerSpec, ...] = ()
    problems: tuple[Problem, ...] = ()


def recognise(text: str) -> Pasted:
    """Return the servers in a pasted text."""
    stripped = text.strip()
    if not stripped or len(stripped) > MAX_CHARACTERS:
        return _nothing("there is nothing to read" if not stripped else "the text is too long")
    if _URL.match(stripped):
        return _judge_entries({guess_name([stripped]): {"type": "http", "url": stripped}})
    if stripped.lower().startswith(("cursor:", "vscode:", "vscode-insiders:", "https://cursor.com/")):
        return _from_link(stripped)
    if stripped.startswith(("{", "[", '"', "//", "/*")) or "\n" in stripped:
        found = _from_snippet(stripped)
        if found is not None:
            return found
    return _from_command_line(stripped)


def guess_name(words: Sequence[str]) -> str:
    """Derive a name from a command line or URL: the package or host without common words."""
    rest = [word for word in unwrapped(words) if not word.startswith("-")] or ["server"]
    chosen = _host_word(rest[0]) if _URL.match(rest[0]) else _package_word(rest)
    chosen = re.sub(r"(?<!^)@[^/]*$|==.*$|:[^/]*$|\.(?:js|mjs|py|ts|exe)$", "", chosen).rpartition("/")[2]
    chosen = re.sub(r"^(?:mcp-server-|server-|mcp-)|(?:-mcp-server|-mcp|-server)$", "", chosen)
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", chosen).strip("-.")[:60] or "server"


def _host_word(url: str) -> str:
    host = (urlsplit(url).hostname or "server").split(".")
    if host[-1].isdigit():
        return "-".join(host)  # an IP address
    usual = ("www", "mcp", "api", "com", "net", "org", "io", "dev", "app", "ai")
    return ([part for part in host if part not in usual] or host)[-1]


def _package_word(words: Sequence[str]) -> str:
    runner = program(words[0])
    usual = ("run", "exec", "dlx", "tool", "x")
    after = [word for word in words[1:] if word not in usual and not is_secret_word(word, Suspicion.SETTING)]
    if runner not in _RUNNERS or not after:
        return words[0]
    return after[-1] if runner in ("docker", "podman") else after[0]


def _from_snippet(text: str) -> Pasted | None:
    """Parse a snippet in any app's format; return None if it matches none."""
    candidates = [text, f"{{{text.rstrip().rstrip(',')}}}"] if _MEMBER.match(text) else [text]
    for candidate in candidates:
        single = _single_entry(candidate)
        if single is not None:
            return single
        readings = [_read(candidate, family, name) for family, name in _GUESSES]
        useful = [reading for reading in readings if reading.entries]
        if useful:
            best = max(useful, key=lambda reading: sum(entry.spec is not None for entry in reading.entries))
            specs = tuple(_with_own_source(entry.spec) for entry in best.entries if entry.spec is not None)
            problems = tuple(problem for entry in best.entries for problem in entry.problems)
            return Pasted(specs, problems if specs else (*problems, *best.problems))
    if text.startswith(("{", "[", '"')):
        broken = _read(text, "json", "pasted")
        return Pasted((), broken.problems or _nothing("there is no server in this text").problems)
    return None


def _read(text: str, family: str, name: str) -> FileReading:
    place = ConfigFile(name, "user", Path(f"pasted.{family}"))
    return read_content(place, FileText(text, False, ""), ReadingContext(place.file))


def _single_entry(text: str) -> Pasted | None:
    """Parse one server without a name."""
    reading = _read(text, "json", "warp")
    if len(reading.entries) != 1 or reading.entries[0].path != ():
        return None
    raw = reading.entries[0].raw
    words = [str(raw.get("command") or raw.get("url") or "server"), *(str(each) for each in raw.get("args") or ())]
    return _judge_entries({as_text(raw.get("name")) or guess_name(words): raw})


def _from_command_line(text: str) -> Pasted:
    line = _PROMPT.sub("", text.replace("\\\n", " ").replace("\\\r\n", " "))
    try:
        words = shlex.split(line, comments=False)
    except ValueError as error:
        return _nothing(f"this is not a command line: {error}")
    if not words or "\n" in line.strip():
        return _nothing("this is neither a snippet, nor a URL, nor one command line")
    if program(words[0]) in ("claude", "codex", "gemini", "qwen") and words[1:3] == ["mcp", "add"]:
        return _from_add_command(words[3:])
    if program(words[0]) == "claude" and words[1:3] == ["mcp", "add-json"]:
        return _from_add_json(words[3:])
    env = dict(_assignments(words))
    command = words[len(env) :]
    if not command:
        return _nothing("there is no command after the variables")
    entry: JsonObject = {"type": "stdio", "command": command[0], "args": command[1:]}
    return _judge_entries({guess_name(command): entry | ({"env": env} if env else {})})


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        matched = _ASSIGNMENT.match(word)
        if matched is None:
            return
        yield matched[1], matched[2]


def _from_add_command(words: Sequence[str]) -> Pasted:
    """Parse `claude mcp add NAME …` and similar: options before the command, a URL or command after the name."""
    options: dict[str, list[str]] = {}
    plain: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            plain += words[index + 1 :]
            break
        flag, equals, value = word.partition("=")
        if word.startswith("-") and flag in _ADD_OPTIONS and (len(plain) < 2 or _URL.match(plain[1])):
            index += 0 if equals else 1
            options.setdefault(_ADD_OPTIONS[flag], []).append(value if equals else "".join(words[index : index + 1]))
        else:
            plain.append(word)
        index += 1
    if len(plain) < 2 and "url" not in options:
        return _nothing("the command names no server or nothing to start")
    name, rest = plain[0], plain[1:]
    env = dict(_assignments(options.get("env", [])))
    if "url" in options or _URL.match(rest[0]):
        kind = options.get("type", ["http"])[0]
        headers = dict(part.split(":", 1) for part in options.get("header", []) if ":" in part)
        entry: JsonObject = {"type": kind, "url": (options.get("url") or rest)[0]}
        entry |= {"headers": {key.strip(): value.strip() for key, value in headers.items()}} if headers else {}
    else:
        entry = {"type": "stdio", "command": rest[0], "args": rest[1:]} | ({"env": env} if env else {})
    return _judge_entries({name: entry})


_ADD_OPTIONS = {
    "-t": "type",
    "--transport": "type",
    "-e": "env",
    "--env": "env",
    "-H": "header",
    "--header": "header",
    "-s": "scope",
    "--scope": "scope",
    "--url": "url",
}


def _from_add_json(words: Sequence[str]) -> Pasted:
    plain = [
        word for index, word in enumerate(words) if not word.startswith("-") and words[index - 1 : index] != ["-s"]
    ]
    if len(plain) != 2:
        return _nothing("the command names no server or no definition")
    return _from_json(plain[0], plain[1])


def _from_link(text: str) -> Pasted:
    """Parse install links of Cursor and VS Code."""
    parts = urlsplit(text)
    query = parse_qs(parts.query)
    if "config" in query:
        encoded = query["config"][0].replace(" ", "+")
        try:
            decoded = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_" if "-" in encoded else None)
        except (binascii.Error, ValueError):
            return _nothing("the link's definition cannot be decoded")
        return _from_json(query.get("name", ["server"])[0], decoded.decode("utf-8", "replace"))
    found = as_object(_parse_json(unquote(parts.query)))
    if found is None:
        return _nothing("the link holds no definition")
    return _judge_entries({as_text(found.get("name")) or "server": found})


def _from_json(name: str, text: str) -> Pasted:
    found = as_object(_parse_json(text))
    return _judge_entries({name: found}) if found is not None else _nothing("the definition is not a JSON object")


def _parse_json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _judge_entries(entries: dict[str, JsonObject]) -> Pasted:
    """Judge entries of any app leniently and convert them to our own format."""
    judged = [judge(name, raw, FORMATS["pasted"], SOURCE) for name, raw in entries.items()]
    specs = tuple(_with_own_source(each.spec) for each in judged if each.spec is not None)
    return Pasted(specs, tuple(problem for each in judged for problem in each.problems))


def _with_own_source(spec: ServerSpec) -> ServerSpec:
    return replace(spec, source=SOURCE)


def _nothing(reason: str) -> Pasted:
    return Pasted((), (Problem("server.invalid", f"Invalid server config: {reason}"),))
