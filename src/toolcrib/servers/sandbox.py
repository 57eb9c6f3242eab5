"""Which sandbox a server has: the owner's choice in our own file, else the default for where it is defined.

A choice is an overlay in the user's file, so no project can make one. For a project's server it is bound to the
definition that the owner saw: when the project changes that, the default applies again.
"""

from dataclasses import dataclass, replace

from toolcrib.base.processes.sandbox import sandbox_support
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text
from toolcrib.model.problems import Problem
from toolcrib.model.sandbox import OFF, PROFILES, Sandbox, profile_of
from toolcrib.model.servers import ServerSpec
from toolcrib.servers.trust import definition_digest


def default_sandbox(spec: ServerSpec) -> Sandbox:
    """Return the sandbox of a server that the owner chose none for."""
    is_foreign = spec.source.project is not None or registry_origin(spec) is not None
    return Sandbox("project") if spec.type == "stdio" and is_foreign else OFF


def registry_origin(spec: ServerSpec) -> JsonObject | None:
    """Return the `registry` member of our own file: the name and version of a server that the registry published."""
    return as_object(spec.extra.get("registry")) if spec.source.client == "toolcrib" else None


def sandbox_of(spec: ServerSpec, overlay: JsonObject) -> Sandbox:
    """Return the sandbox of a server with this overlay of our own file."""
    default = default_sandbox(spec)
    chosen = as_object(overlay.get("sandbox"))
    if chosen is None or spec.type != "stdio":
        return default
    profile = profile_of(chosen.get("profile"))
    is_bound = spec.source.project is None or chosen.get("definition") == definition_digest(spec)
    if profile is None or not is_bound:
        return default
    network = chosen.get("network")
    return Sandbox(
        profile,
        True,
        _paths(chosen.get("read")),
        _paths(chosen.get("write")),
        network if isinstance(network, bool) else None,
    )


def sandbox_problems(spec: ServerSpec) -> tuple[Problem, ...]:
    """Return a problem if the sandbox of a server cannot be enforced on this system."""
    if not spec.sandbox.is_confined or sandbox_support().is_supported:
        return ()
    return (unsupported(spec),)


def unsupported(spec: ServerSpec) -> Problem:
    """Return the problem that the sandbox of a server cannot be enforced, and what follows from that."""
    support, name = sandbox_support(), spec.alias or spec.name
    outcome = "so it does not start" if spec.sandbox.chosen else "so it runs without a sandbox"
    message = f'Server "{spec.name}" has the sandbox profile {spec.sandbox.profile}, which cannot be enforced here, '
    hint = support.fix or f"Run it without a sandbox: `toolcrib mcp sandbox {name} --profile off`."
    return Problem(
        "sandbox.unsupported", f"{message}{outcome}. {support.details}", hint, spec.source.file, spec.source.line
    )


@dataclass(frozen=True, slots=True)
class SandboxChoice:
    """What the owner changes. Paths are added to those allowed before; None keeps what was chosen before."""

    profile: str | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool | None = None


def changed_sandbox(spec: ServerSpec, choice: SandboxChoice) -> Sandbox:
    """Return the sandbox of a server after a choice of the owner.

    Raises `sandbox.invalid` for an unknown profile, a relative path, or a server that the crib does not start.
    """
    if spec.type != "stdio":
        message = f'Server "{spec.name}" is remote: the crib does not start it, so it has no sandbox.'
        raise InvalidRequest("sandbox.invalid", message)
    profile, read, write, network = choice.profile, choice.read, choice.write, choice.network
    known = profile_of(profile or spec.sandbox.profile)
    if known is None:
        hint = f"Choose one of {', '.join(PROFILES)}. What a profile refuses is listed as a problem of the server."
        raise InvalidRequest("sandbox.invalid", f"{profile!r} is not a sandbox profile.", hint)
    for path in (*read, *write):
        if not path.startswith("/"):
            raise InvalidRequest("sandbox.invalid", f"{path!r} is not an absolute path.")
    if known == "off" and (read or write or network is not None):
        raise InvalidRequest("sandbox.invalid", f'Server "{spec.name}" has no sandbox, so everything is allowed.')
    before = spec.sandbox
    return replace(
        before,
        profile=known,
        chosen=True,
        read=tuple(dict.fromkeys((*before.read, *read))),
        write=tuple(dict.fromkeys((*before.write, *write))),
        network=network if network is not None else before.network,
    )


def stored_sandbox(spec: ServerSpec, sandbox: Sandbox) -> JsonObject:
    """Return the overlay member that stores a choice."""
    shape: JsonObject = {"profile": sandbox.profile}
    shape |= {"read": list(sandbox.read)} if sandbox.read else {}
    shape |= {"write": list(sandbox.write)} if sandbox.write else {}
    shape |= {"network": sandbox.network} if sandbox.network is not None else {}
    return shape | ({"definition": definition_digest(spec)} if spec.source.project is not None else {})


def _paths(value: Json) -> tuple[str, ...]:
    return tuple(path for each in as_list(value) or () if (path := as_text(each)) is not None and path.startswith("/"))
