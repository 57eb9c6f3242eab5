"""Plugins: third-party packages with tools, their manifests, and the owner's grants."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

from toolcrib.model.json import Json, JsonObject
from toolcrib.model.problems import Problem

Capability = Literal["network", "filesystem", "subprocess", "secrets", "sessions"]
"""What a plugin declares to access beyond its arguments."""
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)
PluginState = Literal["loaded", "not_granted", "changed", "disabled", "failed", "invalid"]
"""`changed`: version, capabilities or manifest differ from the grant."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The declaration of a plugin, read without running its code. `digest` is the digest of the file."""

    name: str
    version: str
    description: str
    capabilities: tuple[Capability, ...]
    digest: str


@dataclass(frozen=True, slots=True)
class PluginGrant:
    """The owner's grant, for exactly this version, these capabilities and this manifest."""

    name: str
    version: str
    capabilities: tuple[str, ...]
    digest: str
    granted_at: datetime
    granted_by: str
    enabled: bool = True

    def covers(self, manifest: Manifest) -> bool:
        """Return whether the grant matches a manifest."""
        asked = (manifest.name, manifest.version, manifest.capabilities, manifest.digest)
        return asked == (self.name, self.version, self.capabilities, self.digest)


@dataclass(frozen=True, slots=True)
class Plugin:
    """An installed plugin. `package` is its distribution, `servers` are the servers it would add."""

    name: str
    package: str
    state: PluginState
    servers: tuple[str, ...]
    manifest: Manifest | None = None
    grant: PluginGrant | None = None
    tools: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the public shape, without absent fields."""
        manifest, grant = self.manifest, self.grant
        shape: JsonObject = {
            "name": self.name,
            "package": self.package,
            "state": self.state,
            "servers": list(self.servers),
            "tools": list(self.tools),
            "problems": [problem.to_json() for problem in self.problems],
            "capabilities": list(manifest.capabilities) if manifest is not None else [],
        }
        optional: Mapping[str, Json] = {
            "version": manifest.version if manifest is not None else None,
            "description": manifest.description if manifest is not None else None,
            "digest": manifest.digest if manifest is not None else None,
            "grantedVersion": grant.version if grant is not None else None,
            "grantedCapabilities": list(grant.capabilities) if grant is not None else None,
            "grantedAt": grant.granted_at.isoformat(timespec="milliseconds") if grant is not None else None,
            "grantedBy": grant.granted_by if grant is not None else None,
        }
        return shape | {key: value for key, value in optional.items() if value is not None}
