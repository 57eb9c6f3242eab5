"""Judges one entry: takes common field names, returns a `ServerSpec` or the reasons why it is invalid.

The spellings of all apps are accepted everywhere, since users copy entries between apps. If the app itself would reject
one, a problem reports it. Nothing is expanded, started or looked up.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from toolcrib.model.json import Json, JsonObject, as_list, as_object
from toolcrib.model.problems import Problem
from toolcrib.model.servers import Auth, DefinitionSource, Placement, ServerSpec, ServerType, Share, ToolFilter
from toolcrib.servers.readers.dialect import Dialect, Translated

TYPE_SPELLINGS: Mapping[str, ServerType] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
}

_TYPE_KEYS = ("type", "transport", "transportType")
_URL_KEYS = ("httpUrl", "url", "serverUrl", "serverURL", "uri")
_CWD_KEYS = ("cwd", "working_directory", "workingDirectory")
_ALLOW_KEYS = ("includeTools", "enabledTools", "enabled_tools", "available_tools")
_DENY_KEYS = ("excludeTools", "disabledTools", "disabled_tools")
_APPROVE_KEYS = ("autoApprove", "alwaysAllow", "trust", "toolPermissions", "default_tools_approval_mode")
_HELPER_KEYS = ("headersHelper", "http_headers_helper")
_OAUTH_KEYS = ("oauth", "oauthClientId", "oauth_client_id", "oauth_client_secret", "oauthScopes", "scopes")
_NOTES = frozenset(
    {"name", "description", "title", "metadata", "icon", "version", "gallery", "bundled", "source", "registry"}
)
"""Fields that describe a server to people; kept without a report."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A usable definition or None, and its problems."""

    spec: ServerSpec | None
    problems: tuple[Problem, ...]


def judge(name: str, raw: Json, dialect: Dialect, source: DefinitionSource) -> Judged:
    """Judge an entry as the app wrote it."""
    entry_object = as_object(raw)
    if entry_object is None:
        return Judged(None, (_invalid(name, "the entry is not an object", source),))
    translated = dialect.translate(entry_object)
    entry = _Entry(name, dialect, source, translated)
    spec = entry.spec()
    problems = [_invalid(name, reason, source) for reason in entry.wrong]
    return Judged(None if problems else spec, (*problems, *entry.notices))


def _invalid(name: str, reason: str, source: DefinitionSource) -> Problem:
    message = f'Invalid server config: Server "{name}": {reason}'
    return Problem("server.invalid", message, file=source.file, line=source.line)


class _Entry:
    """One entry while it is read; `wrong` makes it unusable, `notices` do not."""

    def __init__(self, name: str, dialect: Dialect, source: DefinitionSource, translated: Translated) -> None:
        self.wrong: list[str] = list(translated.wrong)
        self.notices: list[Problem] = []
        self._name = name
        self._dialect = dialect
        self._source = source
        self._translated = translated
        self._left: JsonObject = dict(translated.raw)
        for note in translated.notes:
            self.notice("server.field_ignored", note)

    def spec(self) -> ServerSpec:
        self._name_is_there()
        command, url = self._command(), self._url()
        kind, is_declared = self._kind(command, url)
        if command is not None and url is not None and is_declared:
            command, url = self._one_endpoint(kind, command, url)
        spec = ServerSpec(
            name=self._name,
            type=kind,
            source=self._source,
            command=command,
            args=self._args(),
            env=self._strings("env"),
            env_pass=self._translated.env_pass,
            env_file=self._text("envFile"),
            cwd=self._cwd(),
            url=url,
            headers=self._strings("headers"),
            header_env=self._translated.header_env,
            enabled=self._read_enabled(),
            timeout_ms=self._timeout(),
            auth=self._auth(),
            tools=self._tools(),
            share=self._share(),
            placement=self._placement(),
            variables=self._dialect.variables,
            extra={**self._rest(), **self._translated.extra},
        )
        return spec

    def notice(self, code: str, message: str, hint: str | None = None) -> None:
        self.notices.append(
            Problem(code, f'Server "{self._name}": {message}', hint, self._source.file, self._source.line)
        )

    def _name_is_there(self) -> None:
        if not self._name.strip():
            self.wrong.append("Server name cannot be empty")

    def _take(self, *keys: str) -> tuple[str, Any] | None:
        """Remove and return the first of these fields that is set; its alternatives are left for `_rest`."""
        for key in keys:
            if key in self._left:
                value = self._left.pop(key)
                if value is not None:
                    return key, value
        return None

    def _text(self, *keys: str) -> str | None:
        taken = self._take(*keys)
        if taken is None:
            return None
        key, value = taken
        if not isinstance(value, str):
            self.wrong.append(f'"{key}" must be text')
            return None
        return value

    def _command(self) -> str | None:
        command = self._text("command")
        return command if command is not None and command.strip() else None

    def _url(self) -> str | None:
        taken = [key for key in _URL_KEYS if self._left.get(key) is not None]
        url = self._text(*_URL_KEYS)
        if len(taken) > 1:
            self.notice("server.field_ignored", f'"{taken[0]}" is used, "{taken[1]}" is ignored', "Keep one of them.")
            self._left.pop(taken[1], None)
        if url is not None and not url.strip():
            return None
        if url is not None:
            self._check_url(url)
        if taken[:1] == ["httpUrl"]:
            self._left.pop("type", None)
            self._left["type"] = "http"
        return url

    def _check_url(self, url: str) -> None:
        scheme, separator, _ = url.partition("://")
        if any(mark in scheme for mark in "${%") or (not separator and any(mark in url for mark in "${%")):
            return
        if scheme.lower() not in ("http", "https") or not separator:
            self.wrong.append('"url" must begin with http:// or https://')

    def _kind(self, command: str | None, url: str | None) -> tuple[ServerType, bool]:
        """Return the type, and whether the entry declares it."""
        declared = kind = self._declared_type()
        if kind is None and command is not None and url is not None:
            self.wrong.append('both "command" and "url" are set, and no "type"; keep one of them')
        if kind is None:
            kind = self._default_type(command, url)
        if kind == "stdio" and command is None and not self.wrong:
            self.wrong.append('stdio server requires "command" field')
        if kind != "stdio" and url is None and not self.wrong:
            self.wrong.append(f'{kind} server requires "url" field')
        return kind, declared is not None

    def _one_endpoint(self, kind: ServerType, command: str, url: str) -> tuple[str | None, str | None]:
        """Return the endpoint that the declared type uses; the other one is reported."""
        used, ignored = ("command", "url") if kind == "stdio" else ("url", "command")
        self.notice("server.field_ignored", f'the type is {kind}, so "{used}" is used and "{ignored}" is ignored')
        return (command, None) if kind == "stdio" else (None, url)

    def _declared_type(self) -> ServerType | None:
        taken = self._take(*_TYPE_KEYS)
        if taken is None:
            return None
        key, value = taken
        for other in _TYPE_KEYS:
            self._left.pop(other, None)
        kind = TYPE_SPELLINGS.get(value.lower()) if isinstance(value, str) else None
        own = self._dialect.client == "toolcrib" and value not in ("stdio", "http", "sse")
        if kind is None or own:
            self.wrong.append(f"unknown {key} {str(value)[:40]!r}; use stdio, http or sse")
        return kind

    def _default_type(self, command: str | None, url: str | None) -> ServerType:
        if url is None:
            if command is None:
                self.wrong.append('neither "command" nor "url" is set')
            return "stdio"
        kind = self._dialect.untyped
        if self._dialect.needs_type:
            self.notice(
                "server.type_missing",
                f"{self._dialect.title} rejects a URL without a type; it is read as {kind} here",
                f'Add "type": "{kind}".',
            )
        elif self._dialect.client == "toolcrib":
            self.notice("server.type_missing", "no type; read as http", 'Add "type": "http".')
        return kind

    def _args(self) -> tuple[str, ...]:
        taken = self._take("args")
        if taken is None:
            return ()
        listed = as_list(taken[1])
        if listed is None:
            self.wrong.append('"args" must be a list')
            return ()
        return tuple(self._scalars('"args"', listed))

    def _scalars(self, what: str, values: Iterable[Any]) -> list[str]:
        texts: list[str] = []
        for value in values:
            text = scalar_text(value)
            if text is None:
                self.wrong.append(f"{what} can only contain text")
            else:
                texts.append(text)
                if not isinstance(value, str):
                    # Never include the value itself: a number can be a secret too.
                    kind = "true or false" if isinstance(value, bool) else "a number"
                    self.notice(
                        "server.value_type", f"{what} contains {kind}, which is read as text", "Put it in quotes."
                    )
        return texts

    def _strings(self, key: str) -> Mapping[str, str]:
        taken = self._take(key)
        if taken is None:
            return {}
        values = as_object(taken[1])
        if values is None:
            self.wrong.append(f'"{key}" must be an object')
            return {}
        unset = [name for name, value in values.items() if value is None]
        for name in unset:
            self.notice("server.value_type", f'"{key}" has no value for {name}, which is not set')
        present = {name: value for name, value in values.items() if value is not None}
        return dict(zip(present, self._scalars(f'"{key}"', present.values()), strict=False))

    def _cwd(self) -> str | None:
        cwd = self._text(*_CWD_KEYS)
        if cwd is not None and not self._dialect.cwd:
            self.notice("server.field_ignored", f'{self._dialect.title} ignores "cwd"; Toolcrib applies it')
        return cwd

    def _read_enabled(self) -> bool:
        enabled, disabled = self._flag("enabled"), self._flag("disabled")
        off = enabled is False or disabled is True
        written = "enabled" if enabled is False else "disabled"
        own = "enabled" if self._dialect.switch == "active" else self._dialect.switch
        if off and own != written:
            self.notice(
                "server.switch_ignored",
                f'{self._dialect.title} ignores "{written}" here; Toolcrib keeps the server disabled',
            )
        return not off

    def _flag(self, key: str) -> bool | None:
        taken = self._take(key)
        if taken is None:
            return None
        value = taken[1]
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            self.wrong.append(f'"{key}" must be true or false')
            return None
        return value

    def _timeout(self) -> int | None:
        for key, factor in (("timeoutMs", 1), ("timeout", 1000 if self._dialect.seconds else 1)):
            taken = self._take(key)
            if taken is None:
                continue
            number = _number(taken[1])
            if number is None or number < 0 or not math.isfinite(number) or number * factor > 2**53:
                self.notice("server.value_type", f'"{key}" is not a duration and is ignored')
                return None
            return int(number * factor)
        return None

    def _auth(self) -> Auth | None:
        oauth = {key: self._left.pop(key) for key in _OAUTH_KEYS if key in self._left}
        taken = self._take("auth")
        if oauth.get("oauth") is False or (not oauth and taken is None):
            return None
        given = taken[1] if taken is not None else "oauth"
        details = as_object(given)
        if details is None and given not in ("oauth", "chatgpt"):
            self.notice("server.field_ignored", '"auth" is unknown; kept as written')
            self._left["auth"] = given
            return None
        return _auth_of({**oauth, **(as_object(oauth.get("oauth")) or {}), **(details or {})})

    def _tools(self) -> ToolFilter:
        allow = self._names(*_ALLOW_KEYS)
        deny = self._names(*_DENY_KEYS) or ()
        if self._dialect.client == "goose" and allow == ():
            allow = None
        tools = self._left.get("tools")
        own, listed = as_object(tools), as_list(tools)
        if own is not None and set(own) <= {"allow", "deny"}:
            del self._left["tools"]
            self._left |= own
            allow, deny = self._names("allow"), self._names("deny") or ()
        elif listed is not None:
            del self._left["tools"]
            names = tuple(item for item in listed if isinstance(item, str))
            rules = [rule for item in listed if (rule := as_object(item)) is not None]
            allow = allow if "*" in names or rules else names
            deny = (*deny, *(str(rule.get("name")) for rule in rules if rule.get("permission_policy") == "always_deny"))
        self._approvals()
        return ToolFilter(allow, deny)

    def _names(self, *keys: str) -> tuple[str, ...] | None:
        taken = self._take(*keys)
        if taken is None:
            return None
        listed = as_list(taken[1])
        if listed is None:
            self.wrong.append(f'"{taken[0]}" must be a list of tool names')
            return None
        return tuple(str(item) for item in listed)

    def _approvals(self) -> None:
        for key in _APPROVE_KEYS:
            value = self._left.get(key)
            if value:
                self.notice(
                    "server.auto_approve",
                    f'"{key}" lets {self._dialect.title} run tools without asking; Toolcrib does not apply it',
                    "Allow tools with `toolcrib rules allow` if you want the same here.",
                )
        for key in _HELPER_KEYS:
            if self._left.get(key):
                self.notice("server.helper", f'"{key}" names a program that prints headers; it is never run')

    def _share(self) -> Share:
        value = self._text("share") if self._dialect.client == "toolcrib" else None
        if value not in (None, "shared", "session"):
            self.wrong.append('"share" must be shared or session')
        return "session" if value == "session" else "shared"

    def _placement(self) -> Placement:
        value = self._text("placement") if self._dialect.client == "toolcrib" else None
        if value not in (None, "node", "one"):
            self.wrong.append('"placement" must be node or one')
        return "one" if value == "one" else "node"

    def _rest(self) -> JsonObject:
        known = {*_NOTES, *_APPROVE_KEYS, *_HELPER_KEYS}
        unknown = sorted(key for key in self._left if key not in known and not key.startswith(("_", "$", "//")))
        if unknown:
            names = ", ".join(f'"{key}"' for key in unknown)
            self.notice("server.field_unknown", f"unknown fields {names}; kept as written")
        return self._left


def _auth_of(details: JsonObject) -> Auth:
    def first(*keys: str) -> str | None:
        return next((value for key in keys if isinstance(value := details.get(key), str) and value), None)

    scopes: Any = next((details[key] for key in ("scopes", "scope", "oauthScopes") if key in details), ())
    listed = scopes.split() if isinstance(scopes, str) else as_list(scopes) or []
    return Auth(
        credential_id=first("credentialId"),
        client_id=first("clientId", "client_id", "CLIENT_ID", "oauthClientId", "oauth_client_id"),
        client_secret=first("clientSecret", "client_secret", "CLIENT_SECRET", "oauth_client_secret"),
        scopes=tuple(str(scope) for scope in listed),
    )


def scalar_text(value: Json) -> str | None:
    """Return a scalar as text; None for other values."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else None


def _number(value: Json) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
