"""Converts the field names of individual apps to the common ones.

Unknown fields stay in the entry, so that `fields` keeps and reports them.
"""

from typing import Any

from toolcrib.model.json import JsonObject, as_list, as_object
from toolcrib.servers.readers.dialect import Translated


def as_written(raw: JsonObject) -> Translated:
    """Return the entry unchanged: it already uses the common names."""
    return Translated(raw)


def codex(raw: JsonObject) -> Translated:
    """Codex: no type, headers under three names, variables passed by name, times in seconds."""
    left = dict(raw)
    # Codex decides by the endpoint alone and has no such switch.
    ignored = {key: left.pop(key) for key in ("type", "disabled") if key in left}
    notes = ('Codex reads "http_headers" and ignores "headers"; both are used here',) if "headers" in left else ()
    _merge(left, "http_headers", "headers")
    header_env = {
        str(header): f"${{{variable}}}"
        for header, variable in (as_object(left.pop("env_http_headers", None)) or {}).items()
    }
    token = left.pop("bearer_token_env_var", None)
    if isinstance(token, str):
        header_env["Authorization"] = f"Bearer ${{{token}}}"
    seconds = left.pop("tool_timeout_sec", None)
    if isinstance(seconds, int | float):
        left["timeout"] = seconds
    wrong = ('Codex rejects a literal "bearer_token"; name a variable instead',) if "bearer_token" in left else ()
    env_pass = tuple(name for item in as_list(left.pop("env_vars", None)) or () if (name := _variable_name(item)))
    kept = {key: left.pop(key) for key in _CODEX_KEPT if key in left}
    return Translated(left, env_pass, header_env, wrong, notes, {**ignored, **kept})


_CODEX_KEPT = (
    "required",
    "environment_id",
    "startup_timeout_sec",
    "startup_timeout_ms",
    "tools",
    "supports_parallel_tool_calls",
    "omit_tools_from",
    "oauth_resource",
    "bearer_token",
)


def opencode(raw: JsonObject) -> Translated:
    """opencode and Kilo: the command is a list with its arguments, and variables are under `environment`."""
    left = dict(raw)
    notes: list[str] = []
    parts = as_list(left.get("command"))
    if parts is not None:
        if "args" in left:
            notes.append('opencode drops "args" next to a list; they are used here')
        left |= {"command": parts[0] if parts else "", "args": [*parts[1:], *(as_list(left.get("args")) or ())]}
    elif isinstance(left.get("command"), str):
        notes.append('opencode rejects a file whose "command" is not a list; it is used as written here')
    if "env" in left:
        notes.append('opencode reads "environment" and drops "env"; both are used here')
    _merge(left, "environment", "env")
    times = as_object(left.get("timeout"))
    if times is not None:
        left["timeout"] = times.get("request")
    return Translated(left, notes=tuple(notes))


def zed(raw: JsonObject) -> Translated:
    """Zed: an older form nests path, arguments and variables under `command`."""
    left = dict(raw)
    nested = as_object(left.get("command"))
    if nested is not None:
        del left["command"]
        left |= nested
        _rename(left, "path", "command")
    kept = {key: left.pop(key) for key in ("source", "remote", "settings") if key in left}
    return Translated(left, extra=kept)


def goose(raw: JsonObject) -> Translated:
    """Goose: `cmd`, `envs`, `uri`, and `env_keys` stored in its keyring."""
    left = dict(raw)
    _rename(left, "cmd", "command")
    _rename(left, "envs", "env")
    kept = {key: left.pop(key) for key in ("display_name", "bundled", "name", "description") if key in left}
    env_pass = tuple(str(key) for key in as_list(left.pop("env_keys", None)) or ())
    wrong = ("Goose does not support sse",) if left.get("type") == "sse" else ()
    return Translated(left, env_pass, wrong=wrong, extra=kept)


def continue_(raw: JsonObject) -> Translated:
    """Continue: headers under `requestOptions`, a bearer token as `apiKey`."""
    left = dict(raw)
    kept = dict(as_object(left.get("requestOptions")) or {})
    if kept:
        del left["requestOptions"]
    headers = {**(as_object(left.get("headers")) or {}), **(as_object(kept.pop("headers", None)) or {})}
    key = left.pop("apiKey", None)
    if isinstance(key, str):
        headers = {"Authorization": f"Bearer {key}", **headers}
    if headers:
        left["headers"] = headers
    _rename(left, "connectionTimeout", "timeout")
    kept |= {name: left.pop(name) for name in ("faviconUrl", "sourceFile") if name in left}
    return Translated(left, extra=kept)


def cline(raw: JsonObject) -> Translated:
    """Cline: newer versions nest the endpoint under `transport`; sign-in tokens next to it are ignored."""
    left = dict(raw)
    nested = as_object(left.get("transport"))
    if nested is not None:
        del left["transport"]
        left = {**nested, **left}
    kept = {key: left.pop(key) for key in ("oauth", "oauthClient", "remoteConfigured") if key in left}
    return Translated(left, extra=kept)


def crush(raw: JsonObject) -> Translated:
    """Crush: `oauth` is a switch or an object; the rest uses the common names."""
    left = dict(raw)
    kept = {key: left.pop(key) for key in ("oauth_callback_port",) if key in left}
    if left.get("oauth") is True:
        left["oauth"] = {}
    return Translated(left, extra=kept)


def grok(raw: JsonObject) -> Translated:
    """Grok Build: times in seconds under Codex's names."""
    left = dict(raw)
    seconds = left.pop("tool_timeout_sec", None)
    if isinstance(seconds, int | float):
        left["timeout"] = seconds * 1000
    kept = {key: left.pop(key) for key in ("startup_timeout_sec", "tool_timeouts") if key in left}
    return Translated(left, extra=kept)


def kimi(raw: JsonObject) -> Translated:
    """Kimi Code CLI: a bearer token of a variable, and times under their own names."""
    left = dict(raw)
    variable = left.pop("bearerTokenEnvVar", None)
    header_env = {"Authorization": f"Bearer ${{{variable}}}"} if isinstance(variable, str) and variable else {}
    _rename(left, "toolTimeoutMs", "timeoutMs")
    kept = {key: left.pop(key) for key in ("startupTimeoutMs",) if key in left}
    return Translated(left, header_env=header_env, extra=kept)


def jan(raw: JsonObject) -> Translated:
    """Jan: `active` enables a server; local entries have an empty `url`, remote ones an empty `command`."""
    left = dict(raw)
    _rename(left, "active", "enabled")
    kept = {key: left.pop(key) for key in ("official", "managed") if key in left}
    return Translated(left, extra=kept)


def mcphost(raw: JsonObject) -> Translated:
    """MCPHost: opencode's form, with `allowedTools` and `excludedTools`; its built-in servers are not MCP servers."""
    left = dict(raw)
    _rename(left, "allowedTools", "includeTools")
    _rename(left, "excludedTools", "excludeTools")
    if isinstance(left.get("headers"), list):
        lines = [str(line).partition(":") for line in as_list(left["headers"]) or ()]
        left["headers"] = {name.strip(): value.strip() for name, _, value in lines}
    parts = as_list(left.get("command"))
    if parts is not None:
        left |= {"command": parts[0] if parts else "", "args": [*parts[1:], *(as_list(left.get("args")) or ())]}
    _merge(left, "environment", "env")
    wrong = ("it is built into MCPHost",) if left.get("type") in ("builtin", "inprocess") else ()
    if wrong:
        left["type"] = "stdio"
    return Translated(left, wrong=wrong)


def vibe(raw: JsonObject) -> Translated:
    """Mistral Vibe: an API key of a variable, sent in a header; times in seconds under their own names."""
    left = dict(raw)
    variable = left.pop("api_key_env", None)
    header, form = left.pop("api_key_header", "Authorization"), left.pop("api_key_format", "Bearer {token}")
    header_env: dict[str, str] = {}
    if isinstance(variable, str) and variable:
        header_env[str(header)] = str(form).replace("{token}", f"${{{variable}}}")
    seconds = left.pop("tool_timeout_sec", None)
    if isinstance(seconds, int | float):
        left["timeout"] = seconds * 1000
    kept = {key: left.pop(key) for key in ("startup_timeout_sec", "prompt", "sampling_enabled") if key in left}
    return Translated(left, header_env=header_env, extra=kept)


def _rename(entry: JsonObject, old: str, new: str) -> None:
    if old in entry:
        entry[new] = entry.pop(old)


def _merge(entry: JsonObject, own: str, common: str) -> None:
    """Merge an app's own field over the common one; a value that is not an object is left for `judge` to refuse."""
    if own not in entry:
        return
    above, below = as_object(entry.get(own)), as_object(entry.get(common))
    entry[common] = {**below, **above} if above is not None and below is not None else entry[own]
    del entry[own]


def _variable_name(item: Any) -> str | None:
    named = as_object(item)
    if named is not None:
        item = named.get("name")
    return item if isinstance(item, str) and item else None
