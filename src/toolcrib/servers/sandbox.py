"""Which sandbox a server has: the owner's choice in our own file, else the default for where it is defined.

A choice is an overlay in the user's file, so no project can make one. For the server of a project or a registry it is
bound to the definition that the owner saw. When that changes, what the owner loosened no longer applies: a chosen
profile that confines it stays, without the paths and hosts that were allowed besides, else the default applies.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolcrib.base.lazy_modules import lazy_module
from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.base.processes.trace import tracer_support
from toolcrib.model.errors import ConfigError, Conflict, InvalidRequest
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text
from toolcrib.model.problems import Problem
from toolcrib.model.sandbox import OFF, PROFILES, Sandbox, profile_of
from toolcrib.model.servers import ServerSpec
from toolcrib.servers.trust import definition_digest

if TYPE_CHECKING:
    from toolcrib.base.network import host_proxy
else:
    host_proxy = lazy_module("toolcrib.base.network.host_proxy")


def default_sandbox(spec: ServerSpec) -> Sandbox:
    """Return the sandbox of a server that the owner chose none for."""
    return Sandbox("project") if spec.type == "stdio" and _is_foreign(spec) else OFF


def _is_foreign(spec: ServerSpec) -> bool:
    """Return whether others wrote the definition: a project or a registry."""
    return spec.source.project is not None or registry_origin(spec) is not None


def registry_origin(spec: ServerSpec) -> JsonObject | None:
    """Return the `registry` member of our own file: the name and version of a server that the registry published."""
    return as_object(spec.extra.get("registry")) if spec.source.client == "toolcrib" else None


def sandbox_of(spec: ServerSpec, overlay: JsonObject) -> Sandbox:
    """Return the sandbox of a server with this overlay of our own file."""
    default = default_sandbox(spec)
    chosen = as_object(overlay.get("sandbox"))
    profile = profile_of(chosen.get("profile")) if chosen is not None else None
    if chosen is None or profile is None or spec.type != "stdio":
        return default
    if _is_foreign(spec) and chosen.get("definition") != definition_digest(spec):
        return Sandbox(profile, True) if profile in ("project", "strict") else default
    network = chosen.get("network")
    return Sandbox(
        profile,
        True,
        _paths(chosen.get("read")),
        _paths(chosen.get("write")),
        network if isinstance(network, bool) else None,
        tuple(host for each in as_list(chosen.get("hosts")) or () if (host := as_text(each))),
    )


def sandbox_problems(spec: ServerSpec) -> tuple[Problem, ...]:
    """Return a problem if the sandbox of a server cannot be enforced on this system, or is being recorded."""
    if spec.sandbox.profile == "learn":
        return (_learning_problem(spec) if tracer_support().program is not None else unsupported(spec),)
    if not spec.sandbox.is_confined or sandbox_support().is_supported:
        return ()
    return (unsupported(spec),)


def _learning_problem(spec: ServerSpec) -> Problem:
    name = spec.alias or spec.name
    message = f'Server "{spec.name}" runs without a sandbox while the profile learn records what it uses.'
    hint = f"Use its tools, then run `toolcrib mcp sandbox {name} --apply`."
    return Problem("sandbox.recording", message, hint, spec.source.file, spec.source.line)


def unsupported(spec: ServerSpec) -> Problem:
    """Return the problem that the sandbox of a server cannot be enforced, and what follows from that."""
    is_learning = spec.sandbox.profile == "learn"
    support, name = tracer_support() if is_learning else sandbox_support(), spec.alias or spec.name
    outcome = "so it does not start" if spec.sandbox.chosen else "so it runs without a sandbox"
    message = f'Server "{spec.name}" has the sandbox profile {spec.sandbox.profile}, which cannot be enforced here, '
    hint = support.fix or f"Run it without a sandbox: `toolcrib mcp sandbox {name} --profile off`."
    return Problem(
        "sandbox.unsupported", f"{message}{outcome}. {support.details}", hint, spec.source.file, spec.source.line
    )


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """What the owner changes. Paths and hosts are added to those allowed before; None keeps what was chosen before.

    `removed` are paths and hosts that are no longer allowed. `unconfined` confirms that the profile `learn` runs the
    server without its sandbox.
    """

    profile: str | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool | None = None
    hosts: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unconfined: bool = False


def changed_sandbox(spec: ServerSpec, choice: SandboxChoice) -> Sandbox:
    """Return the sandbox of a server after a choice of the owner.

    Raises `sandbox.invalid` for an unknown profile, a relative path, or a server that the crib does not start.
    """
    if spec.type != "stdio":
        message = f'Server "{spec.name}" is remote: the crib does not start it, so it has no sandbox.'
        raise InvalidRequest("sandbox.invalid", message)
    profile, before = choice.profile, spec.sandbox
    known = profile_of(profile or before.profile)
    if known is None:
        hint = f"Choose one of {', '.join(PROFILES)}. What a profile refuses is listed as a problem of the server."
        raise InvalidRequest("sandbox.invalid", f"{profile!r} is not a sandbox profile.", hint)
    for path in (*choice.read, *choice.write):
        if not path.startswith("/") or "\0" in path:
            raise InvalidRequest("sandbox.invalid", f"{path!r} is not an absolute path.")
    hosts = tuple(host_proxy.show_host(host_proxy.parse_host(each)) for each in choice.hosts)
    if known in ("off", "learn") and (choice.read or choice.write or hosts or choice.network is not None):
        raise InvalidRequest("sandbox.invalid", f'Server "{spec.name}" has no sandbox, so everything is allowed.')
    if known == "learn":
        _check_learning(spec, choice)
    network = choice.network if choice.network is not None else None if hosts else before.network
    changed = replace(
        before,
        profile=known,
        chosen=True,
        read=_merge(before.read, choice.read, choice.removed),
        write=_merge(before.write, choice.write, choice.removed),
        network=network,
        hosts=_merge(before.hosts, hosts, choice.removed),
    )
    if len(changed.hosts) > host_proxy.MAX_HOSTS:
        raise InvalidRequest("sandbox.invalid", f"A server can have at most {host_proxy.MAX_HOSTS} hosts.")
    return changed


def _merge(before: tuple[str, ...], more: tuple[str, ...], removed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(each for each in dict.fromkeys((*before, *more)) if each not in removed)


def _check_learning(spec: ServerSpec, choice: SandboxChoice) -> None:
    """Raise `sandbox.unsupported` without a tracer, `sandbox.unconfirmed` if the server would lose its sandbox."""
    support, name = tracer_support(), spec.alias or spec.name
    if support.program is None:
        raise ConfigError("sandbox.unsupported", f"The profile learn is not available. {support.details}", support.fix)
    if spec.sandbox.is_confined and not choice.unconfined:
        message = f'Server "{spec.name}" runs in the profile {spec.sandbox.profile}. To record it, it runs without it.'
        hint = f"If you trust it with everything you can do, run `toolcrib mcp sandbox {name} --learn --yes`."
        raise Conflict("sandbox.unconfirmed", message, hint)


def stored_sandbox(spec: ServerSpec, sandbox: Sandbox) -> JsonObject:
    """Return the overlay member that stores a choice."""
    shape: JsonObject = {"profile": sandbox.profile}
    shape |= {"read": list(sandbox.read)} if sandbox.read else {}
    shape |= {"write": list(sandbox.write)} if sandbox.write else {}
    shape |= {"network": sandbox.network} if sandbox.network is not None else {}
    shape |= {"hosts": list(sandbox.hosts)} if sandbox.hosts else {}
    return shape | ({"definition": definition_digest(spec)} if _is_foreign(spec) else {})


def _paths(value: Json) -> tuple[str, ...]:
    return tuple(path for each in as_list(value) or () if (path := as_text(each)) is not None and path.startswith("/"))
