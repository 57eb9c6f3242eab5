"""The names that sign-ins are stored under, chosen so that no other server definition can refer to them.

A sign-in belongs to an address and to the origin of its definition. In the user's own files a `credentialId` names a
sign-in that several definitions share. In a project's file it only names the project's own sign-in: anyone who can
write to a repository must not be able to reach a token that was issued for another server. Pure.
"""

from toolcrib.model.json import digest
from toolcrib.model.servers import ServerSpec
from toolcrib.servers.identity import normal_url

_DIGITS = 24


def credential_name(spec: ServerSpec) -> str:
    """Return the name that the sign-in at a server is stored under."""
    named = spec.auth.credential_id if spec.auth is not None else None
    project = spec.source.project
    if project is None and (named or spec.type == "stdio"):
        return named or _alias(spec)
    address = normal_url(spec.url) if spec.url is not None else [spec.command, *spec.args]
    bound = digest([project, address, named or spec.name])[:_DIGITS]
    return f"{'project' if project is not None else 'personal'} {bound}"


def former_name(spec: ServerSpec) -> str | None:
    """Return the name that earlier versions used for this sign-in, or None if it must not be adopted."""
    name = _alias(spec)
    return name if spec.source.project is None and credential_name(spec) not in (name, _named(spec)) else None


def _named(spec: ServerSpec) -> str | None:
    return spec.auth.credential_id if spec.auth is not None else None


def _alias(spec: ServerSpec) -> str:
    return spec.alias or spec.name
