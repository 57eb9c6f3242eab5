"""Writes a definition in the format of any app: the reverse of the readers.

`entry_for` returns the entry, `snippet` a whole new file with it. What an app cannot express is left out and reported.
So is what it would misread: a text that looks like one of its variables, or a value we would run as a command.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import JsonObject
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Auth, ServerSpec, ServerType
from toolcrib.servers.edit.entries import put_server
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.servers.readers.dialect import Dialect
from toolcrib.servers.readers.read import ConfigFile
from toolcrib.servers.resolve import LOOKED_UP
from toolcrib.servers.variables import SYNTAXES, Field, references, rewrite, syntax_in


@dataclass(frozen=True, slots=True)
class Style:
    """How an app's format differs from the common one.

    `types` maps our types to the app's words; "" means the type is not written, and a missing type is not supported.
    `urls` are the keys of URLs by type.
    """

    types: Mapping[ServerType, str]
    urls: Mapping[ServerType, str]
    allow: str | None = None
    deny: str | None = None
    env: str = "env"
    headers: str = "headers"
    timeout: str | None = "timeout"
    type_key: str = "type"


_URL: Mapping[ServerType, str] = {"http": "url", "sse": "url"}
_TYPED: Mapping[ServerType, str] = {"stdio": "", "http": "http", "sse": "sse"}
_UNTYPED: Mapping[ServerType, str] = {"stdio": "", "http": ""}
_COMMON = Style(_TYPED, _URL)

STYLES: Mapping[str, Style] = {
    "toolcrib": Style({"stdio": "stdio", "http": "http", "sse": "sse"}, _URL),
    "claude-desktop": Style({"stdio": ""}, {}, timeout=None),
    "copilot-cli": Style({"stdio": "local", "http": "http", "sse": "sse"}, _URL, allow="tools"),
    "windsurf": Style(_UNTYPED, {"http": "serverUrl"}, deny="disabledTools", timeout=None),
    "antigravity": Style(_UNTYPED, {"http": "serverUrl"}, deny="disabledTools", timeout=None),
    "zed": Style(_UNTYPED, _URL),
    "codex": Style(
        _UNTYPED, _URL, "enabled_tools", "disabled_tools", headers="http_headers", timeout="tool_timeout_sec"
    ),
    "gemini": Style(_TYPED, _URL, "includeTools", "excludeTools"),
    "qwen": Style(
        {"stdio": "", "http": "", "sse": ""}, {"http": "httpUrl", "sse": "url"}, "includeTools", "excludeTools"
    ),
    "opencode": Style({"stdio": "local", "http": "remote"}, _URL, env="environment"),
    "kilo": Style({"stdio": "local", "http": "remote"}, _URL, env="environment"),
    "kilo-legacy": Style({"stdio": "stdio", "http": "streamable-http", "sse": "sse"}, _URL, deny="disabledTools"),
    "roo": Style({"stdio": "stdio", "http": "streamable-http", "sse": "sse"}, _URL, deny="disabledTools"),
    "cline": Style({"stdio": "stdio", "http": "streamableHttp", "sse": "sse"}, _URL),
    "continue": Style({"stdio": "stdio", "http": "streamable-http", "sse": "sse"}, _URL, timeout="connectionTimeout"),
    "goose": Style({"stdio": "stdio", "http": "streamable_http"}, {"http": "uri"}, "available_tools", env="envs"),
    "kiro": Style(_UNTYPED, _URL, deny="disabledTools", timeout=None),
    "boltai": Style({"stdio": ""}, {}, timeout=None),
    "copilot-jetbrains": Style({"stdio": "stdio", "http": "http", "sse": "sse"}, _URL, timeout=None),
    "grok": Style(_UNTYPED, _URL, timeout=None),
    "hermes": Style(_UNTYPED, _URL),
    "iflow": Style(
        {"stdio": "", "http": "", "sse": ""}, {"http": "httpUrl", "sse": "url"}, "includeTools", "excludeTools"
    ),
    "jan": Style({"stdio": "", "http": "http", "sse": "sse"}, _URL, timeout=None),
    "kimi": Style(_UNTYPED, _URL, "enabledTools", "disabledTools", timeout="toolTimeoutMs"),
    "tabnine": Style(_TYPED, _URL, "includeTools", "excludeTools"),
    "librechat": Style({"stdio": "stdio", "http": "streamable-http", "sse": "sse"}, _URL),
    "mcphost": Style({"stdio": "local", "http": "remote"}, _URL, "allowedTools", "excludedTools", env="environment"),
    "openclaw": Style({"stdio": "", "http": "streamable-http", "sse": "sse"}, _URL, type_key="transport"),
    "openhands": Style(_TYPED, _URL, type_key="transport"),
    "rovodev": Style({"stdio": "stdio", "http": "http", "sse": "sse"}, _URL, timeout=None, type_key="transport"),
    "crush": Style({"stdio": "stdio", "http": "http", "sse": "sse"}, _URL, "enabled_tools", "disabled_tools"),
    "factory": Style({"stdio": "stdio", "http": "http", "sse": "sse"}, _URL, "enabledTools", "disabledTools"),
}


@dataclass(frozen=True, slots=True)
class ExportedEntry:
    """An entry in an app's format, and the problems with what could not be expressed."""

    entry: JsonObject
    problems: tuple[Problem, ...] = ()


def client_named(name: str) -> Dialect:
    """Return the app of this name if its files can be written. Raises `config.unsupported` for others."""
    dialect = CLIENTS.get(name)
    if dialect is None or not dialect.writable:
        known = sorted(client for client, row in CLIENTS.items() if row.writable)
        near = get_close_matches(name, known)
        hint = f"Did you mean {' or '.join(near)}?" if near else "Choose one of the known apps."
        raise InvalidRequest("config.unsupported", f"Unknown app {name!r}. Known apps: {', '.join(known)}.", hint)
    return dialect


def takes_http(client: str) -> bool:
    """Return whether that app supports servers over HTTP with headers."""
    return "http" in STYLES.get(client_named(client).client, _COMMON).types


def entry_for(spec: ServerSpec, client: str) -> ExportedEntry:
    """Return the definition in that app's format."""
    return _Writer(spec, client_named(client)).written()


def snippet(specs: Mapping[str, ServerSpec], client: str) -> tuple[str, tuple[Problem, ...]]:
    """Return a file of that app with exactly these servers, and the problems with what could not be expressed."""
    dialect = client_named(client)
    suffix = {"json": "json", "toml": "toml", "yaml": "yaml"}[dialect.family]
    place = ConfigFile(client, "user", Path(f"servers.{suffix}"))
    text = ""
    problems: list[Problem] = []
    for name, spec in specs.items():
        written = entry_for(spec, client)
        problems += written.problems
        if written.entry:
            text = put_server(place, name, written.entry)(text)
    return text, tuple(problems)


class _Writer:
    def __init__(self, spec: ServerSpec, dialect: Dialect) -> None:
        # Some apps have no variables in texts but can pass them on by name.
        self._spec = _by_name(spec) if dialect.client in ("codex", "goose") else spec
        self._dialect = dialect
        self._style = STYLES.get(dialect.client, _COMMON)
        self._problems: list[Problem] = []

    def written(self) -> ExportedEntry:
        spec, style = self._spec, self._style
        if spec.type not in style.types:
            self._cannot(f"{self._dialect.title} does not support {spec.type} servers; left out")
        elif not spec.enabled and self._dialect.switch is None:
            # Without a switch, the app would connect to the server.
            self._cannot("it is disabled, which the app cannot express; left out")
        if self._problems:
            return ExportedEntry({}, tuple(self._problems))
        entry: JsonObject = {style.type_key: style.types[spec.type]} if style.types[spec.type] else {}
        entry |= self._process() if spec.type == "stdio" else self._address()
        entry |= self._switch() | self._timeout() | self._tools() | self._auth()
        for field, value, default in (("share", spec.share, "shared"), ("placement", spec.placement, "node")):
            if value != default and self._dialect.client == "toolcrib":
                entry[field] = value
            elif value != default:
                self._cannot(f'"{field}" is not supported')
        if self._dialect.client == "goose":
            entry = {"name": spec.name, "enabled": spec.enabled, **entry}
        return ExportedEntry(entry, tuple(self._problems))

    def _process(self) -> JsonObject:
        spec, style = self._spec, self._style
        command = self._text("command", spec.command or "")
        args = [self._text("args", argument) for argument in spec.args]
        entry: JsonObject = {"command": command} | ({"args": args} if args else {})
        if self._dialect.client in ("opencode", "kilo", "mcphost"):
            entry = {"command": [command, *args]}
        elif self._dialect.client == "goose":
            entry = {"cmd": command, "args": args}
        env = self._map("env", spec.env)
        passed = list(spec.env_pass)
        if passed and self._dialect.client == "codex":
            entry["env_vars"] = passed
        elif passed and self._dialect.client == "goose":
            entry["env_keys"] = passed
        else:
            env |= {name: text for name in passed if (text := self._reference("env", f"${{{name}}}")) is not None}
        entry |= {style.env: env} if env else {}
        if spec.cwd is not None:
            if not self._dialect.cwd:
                self._cannot('"cwd" is ignored by the app')
            entry["cwd"] = self._text("cwd", spec.cwd)
        if spec.env_file is not None:
            entry["envFile"] = spec.env_file
        return entry

    def _address(self) -> JsonObject:
        spec, style = self._spec, self._style
        entry: JsonObject = {style.urls[spec.type]: self._text("url", spec.url or "")}
        headers = self._map("headers", spec.headers)
        from_variables: dict[str, str] = {}
        for header, text in spec.header_env.items():
            bare = references(text, "claude")
            if self._dialect.client == "codex" and len(bare) == 1 and bare[0].text == text:
                from_variables[header] = bare[0].name
            elif self._dialect.client == "codex" and len(bare) == 1 and text == f"Bearer {bare[0].text}":
                entry["bearer_token_env_var"] = bare[0].name
            else:
                written = self._reference("headers", text)
                headers |= {header: written} if written is not None else {}
        entry |= {"env_http_headers": from_variables} if from_variables else {}
        if headers and self._dialect.client == "continue":
            entry["requestOptions"] = {"headers": headers}
        elif headers:
            entry[style.headers] = headers
        return entry

    def _switch(self) -> JsonObject:
        switch = self._dialect.switch
        return {switch: switch == "disabled"} if switch is not None and not self._spec.enabled else {}

    def _timeout(self) -> JsonObject:
        key, milliseconds = self._style.timeout, self._spec.timeout_ms
        if milliseconds is None:
            return {}
        if key is None:
            self._cannot('"timeout" is not supported')
            return {}
        seconds = milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000
        return {key: seconds if self._dialect.seconds else milliseconds}

    def _tools(self) -> JsonObject:
        tools = self._spec.tools
        if self._dialect.client == "toolcrib":
            lists = {"allow": tools.allow, "deny": tools.deny or None}
            kept = {key: list(names) for key, names in lists.items() if names is not None}
            return {"tools": kept} if kept else {}
        entry: JsonObject = {}
        for key, names, word in (
            (self._style.allow, tools.allow, "allow"),
            (self._style.deny, tools.deny or None, "deny"),
        ):
            if names is not None and key is not None:
                entry[key] = list(names)
            elif names is not None:
                self._cannot(f'"tools.{word}" is not supported')
        if self._dialect.client == "copilot-cli" and tools.allow is None:
            entry["tools"] = ["*"]
        return entry

    def _auth(self) -> JsonObject:
        auth = self._spec.auth
        if auth is None:
            return {}
        if self._dialect.client == "toolcrib":
            return {"auth": _own_auth(auth)}
        self._cannot('"auth" is not exported; sign in with the app')
        return {}

    def _map(self, kind: Field, values: Mapping[str, str]) -> dict[str, str]:
        written: dict[str, str] = {}
        own, target = self._spec.variables in LOOKED_UP, self._dialect.variables in LOOKED_UP
        for name, value in values.items():
            # A leading `!` means a command in some formats and is literal in others.
            if value.startswith("!") and own != target:
                self._cannot(f"{kind}.{name} begins with !, which means something else there")
            else:
                written[name] = self._text(kind, value)
        return written

    def _text(self, kind: Field, text: str) -> str:
        source, target = syntax_in(kind, self._spec.variables), SYNTAXES[self._dialect.variables]
        said = references(text, source)
        written, lost = rewrite(text, source, self._dialect.variables) if said else (text, ())
        if kind not in target.fields and said:
            written, lost = text, said
        for reference in lost:
            self._cannot(f"{reference.shown} in {kind} cannot be written there")
        read_back = references(written, syntax_in(kind, self._dialect.variables))
        if len(read_back) > len(said) - len(lost):
            self._cannot(f"a text in {kind} would be read as a variable by the app")
        return written

    def _reference(self, kind: Field, text: str) -> str | None:
        """Convert a text of `${VAR}` references to the app's syntax; return None if it has no equivalent."""
        target = SYNTAXES[self._dialect.variables]
        written, lost = rewrite(text, "claude", self._dialect.variables)
        if lost or kind not in target.fields:
            named = ", ".join(reference.shown for reference in references(text, "claude"))
            self._cannot(f"{named} in {kind} cannot be written there")
            return None
        return written

    def _cannot(self, reason: str) -> None:
        message = f'Server "{self._spec.name}" for {self._dialect.title}: {reason}'
        self._problems.append(Problem("server.not_exportable", message))


def _by_name(spec: ServerSpec) -> ServerSpec:
    """Return the definition with variables that are a whole value (or follow `Bearer`) passed by name."""
    passed = {name for name, value in spec.env.items() if _whole(spec, value) == name}
    named: dict[str, str] = {}
    for header, value in spec.headers.items():
        scheme = "Bearer " if value.startswith("Bearer ") else ""
        variable = _whole(spec, value.removeprefix("Bearer "))
        if variable is not None:
            named[header] = f"{scheme}${{{variable}}}"
    return replace(
        spec,
        env={name: value for name, value in spec.env.items() if name not in passed},
        env_pass=(*spec.env_pass, *sorted(passed)),
        headers={header: value for header, value in spec.headers.items() if header not in named},
        header_env={**spec.header_env, **named},
    )


def _whole(spec: ServerSpec, text: str) -> str | None:
    """Return the variable if the text is nothing but a reference to it."""
    found = references(text, spec.variables)
    whole = len(found) == 1 and found[0].text == text and found[0].kind == "variable" and found[0].default is None
    return found[0].name if whole else None


def _own_auth(auth: Auth) -> JsonObject:
    shape = {
        "type": auth.type,
        "credentialId": auth.credential_id,
        "clientId": auth.client_id,
        "clientSecret": auth.client_secret,
        "scopes": list(auth.scopes) or None,
    }
    return {key: value for key, value in shape.items() if value is not None}
