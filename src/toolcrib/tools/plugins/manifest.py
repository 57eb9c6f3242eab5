"""Reads plugin manifests: the file `toolcrib-plugin.toml` in a package, as data.

Must never import the package.
"""

import hashlib
import re
from pathlib import Path
from typing import Final, cast

from toolcrib.model import toml
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.model.plugins import CAPABILITIES, Capability, Manifest
from toolcrib.model.problems import Problem

FILE: Final = "toolcrib-plugin.toml"
_LARGEST: Final = 65_536
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_TEXTS: Final = ("name", "version", "description")


def read_manifest(file: Path) -> Manifest | Problem:
    """Return the manifest in a file, or the problem with it."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            return _problem(file, f"it is larger than {_LARGEST // 1024} KiB")
        fields: JsonObject = toml.loads(content.decode("utf-8"))
    except OSError as error:
        return _problem(file, f"it cannot be read ({error.strerror})")
    except ValueError as error:
        return _problem(file, f"it is not TOML: {error}")
    wrong = _wrong(fields)
    if wrong is not None:
        return _problem(file, wrong)
    return Manifest(
        name=fields["name"],
        version=fields["version"],
        description=fields["description"],
        capabilities=tuple(each for each in CAPABILITIES if each in fields["capabilities"]),
        digest=hashlib.sha256(content).hexdigest(),
    )


def _wrong(fields: JsonObject) -> str | None:
    """Return why these fields are not a valid manifest. Unknown fields are rejected, since one may be a typo."""
    unknown = sorted(set(fields) - {*_TEXTS, "capabilities"})
    if unknown:
        return f"`{unknown[0]}` is not a known field"
    for name in _TEXTS:
        if not isinstance(fields.get(name), str) or not fields[name].strip():
            return f"`{name}` is not a text"
    if not _NAME.fullmatch(fields["name"]):
        return "`name` must have 1 to 100 letters, digits or `_.-`"
    asked: Json = fields.get("capabilities")
    if not is_array(asked) or not all(isinstance(each, str) for each in asked):
        return "`capabilities` is not a list; use an empty list to request nothing"
    other = [each for each in asked if cast("Capability", each) not in CAPABILITIES]
    return f"{other[0]!r} is not a capability: {', '.join(CAPABILITIES)}" if other else None


def _problem(file: Path, wrong: str) -> Problem:
    return Problem("plugin.manifest", f"The manifest cannot be used: {wrong}.", None, str(file))
