"""Rules in settings files about servers defined elsewhere: disabled ones, or the only ones allowed.

Only rules that disable are applied. An app's own approval (`enableAllProjectMcpServers` and the like) never counts as
trust, since a project could write it for itself.
"""

from fnmatch import fnmatchcase

from toolcrib.model.json import Json, as_list, as_object, as_text, at
from toolcrib.model.servers import ServerSpec
from toolcrib.servers.readers.dialect import ClientRule, Dialect


def claude(value: Json, dialect: Dialect, file: str) -> tuple[ClientRule, ...]:
    """Return Claude Code's rules: disabled servers of `.mcp.json`, and an administrator's lists."""
    off = _names(at(value, "disabledMcpjsonServers"))
    rules = [ClientRule(dialect.client, "off", "disabledMcpjsonServers", file, off, project_only=True)] if off else []
    for key, effect in (("deniedMcpServers", "off"), ("allowedMcpServers", "only")):
        listed = as_list(at(value, key))
        if listed is None:
            continue
        items = [item for entry in listed if (item := as_object(entry)) is not None]
        commands = (as_list(item.get("serverCommand")) for item in items)
        rules.append(
            ClientRule(
                dialect.client,
                "off" if effect == "off" else "only",
                key,
                file,
                frozenset(name for item in items if (name := as_text(item.get("serverName")))),
                tuple(tuple(str(part) for part in command) for command in commands if command is not None),
                tuple(url for item in items if (url := as_text(item.get("serverUrl")))),
            )
        )
    return tuple(rules)


def gemini(value: Json, dialect: Dialect, file: str) -> tuple[ClientRule, ...]:
    """Return the rules of Gemini CLI and Qwen: `mcp.excluded` and `mcp.allowed`."""
    excluded = _names(at(value, "mcp", "excluded"))
    rules = [ClientRule(dialect.client, "off", "mcp.excluded", file, excluded)] if excluded else []
    if as_list(at(value, "mcp", "allowed")) is not None:
        rules.append(ClientRule(dialect.client, "only", "mcp.allowed", file, _names(at(value, "mcp", "allowed"))))
    return tuple(rules)


def oh_my_pi(value: Json, dialect: Dialect, file: str) -> tuple[ClientRule, ...]:
    """Return the rules of oh-my-pi: `disabledServers`."""
    off = _names(at(value, "disabledServers"))
    return (ClientRule(dialect.client, "off", "disabledServers", file, off),) if off else ()


def switches_off(rule: ClientRule, spec: ServerSpec) -> bool:
    """Return whether a rule disables this server."""
    if rule.client != spec.source.client or (rule.project_only and spec.source.scope != "project"):
        return False
    matched = (
        spec.name in rule.names
        or (spec.command is not None and (spec.command, *spec.args) in rule.commands)
        or (spec.url is not None and any(fnmatchcase(spec.url, pattern) for pattern in rule.urls))
    )
    return matched if rule.effect == "off" else not matched


def _names(value: Json) -> frozenset[str]:
    return frozenset(name for item in as_list(value) or () if (name := as_text(item)))
