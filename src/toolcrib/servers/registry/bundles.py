"""MCPB bundles: verified against their digest, unpacked into the home, and turned into a definition.

A bundle is a zip file with a `manifest.json` that says what to run. It is unpacked under the name of its digest, so a
bundle that was reviewed is the one that runs.

Must never write outside the directory of the bundle, or keep one whose digest differs.
"""

import io
import re
import shutil
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from hashlib import sha256
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import Final

import orjson

from toolcrib.model.errors import InvalidRequest
from toolcrib.model.json import Json, JsonObject, as_list, as_object, as_text, at
from toolcrib.model.text import normalized
from toolcrib.servers.registry.server_json import (
    InputValues,
    InstallOption,
    PublishedInput,
    package_arguments,
    variable_reference,
)

LARGEST_BUNDLE: Final = 128 * 1024 * 1024
LARGEST_UNPACKED: Final = 512 * 1024 * 1024
MOST_FILES: Final = 20_000
LARGEST_MANIFEST: Final = 1024 * 1024
_LARGEST_DIRECTORY: Final = 8 * 1024 * 1024
"""Bytes of a zip file's directory, which is read into memory before its files can be counted."""
_END, _END64 = b"PK\x05\x06", b"PK\x06\x07"
_END_BYTES: Final = 22
_DAMAGED = (zlib.error, LZMAError)
"""What decompression raises."""
_PIECE: Final = 1024 * 1024
_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_HOME_FOLDERS: Final = {"HOME": "", "DESKTOP": "Desktop", "DOCUMENTS": "Documents", "DOWNLOADS": "Downloads"}


def unpack_bundle(content: bytes, expected: str | None, directory: Path) -> Path:
    """Unpack a bundle into a directory of its own below `directory`, and return that. Raises `registry.bundle`."""
    if expected is None or re.fullmatch(r"[0-9a-f]{64}", expected) is None:
        raise _refusal("the registry publishes no SHA-256 digest for it")
    actual = sha256(content).hexdigest()
    if actual != expected:
        raise _refusal(f"its SHA-256 digest is {actual}, but the registry publishes {expected}")
    target = directory / expected
    if target.is_dir():
        return target
    directory.mkdir(mode=0o700, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=directory, prefix=".unpacking-"))
    try:
        _unpack(content, made)
        read_manifest(made)
        made.rename(target)
    except OSError as error:
        if not target.is_dir():  # else another request was first
            raise _refusal(f"it cannot be unpacked: {error.strerror or error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _unpack(content: bytes, target: Path) -> None:
    _check_directory(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = archive.infolist()
            if len(members) > MOST_FILES:
                raise _refusal(f"it has more than {MOST_FILES} files")
            left = LARGEST_UNPACKED
            names = {normalized("NFC", member.filename).casefold() for member in members}
            if len(names) < len(members):
                raise _refusal("two of its files have the same name, apart from case")
            for member in members:
                left -= _unpack_member(archive, member, target, left)
    except (
        zipfile.BadZipFile,
        zlib.error,
        LZMAError,
        NotImplementedError,
        RuntimeError,
        EOFError,
        ValueError,
    ) as error:
        raise _refusal(f"it is not a usable zip file: {error}") from error


def _check_directory(content: bytes) -> None:
    """Refuse a zip file whose directory is too large to read. Its size is in the record at the end of the file."""
    for end in (len(content) - _END_BYTES, content.rfind(_END)):
        if end < 0 or content[end : end + 4] != _END:
            continue
        size = int.from_bytes(content[end + 12 : end + 16], "little")
        if size > _LARGEST_DIRECTORY or content[max(end - 20, 0) : end].startswith(_END64):
            raise _refusal("its directory of files is too large")


def _unpack_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Write one file, and return its size. The size in the archive is a claim, so what is read counts."""
    path = target / _inside(member)
    if member.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        return 0
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with archive.open(member) as source, path.open("xb") as file:
        while piece := source.read(_PIECE):
            written += len(piece)
            if written > left:
                raise _refusal(f"it is larger than {LARGEST_UNPACKED} bytes when unpacked")
            file.write(piece)
    path.chmod(0o700 if (member.external_attr >> 16) & 0o111 else 0o600)
    return written


def _inside(member: zipfile.ZipInfo) -> PurePosixPath:
    """Return the path of a member inside the bundle. Refuses links, devices, and paths that lead out of it."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    path = PurePosixPath(member.filename)
    is_plain = kind in (0, stat.S_IFREG, stat.S_IFDIR)
    escapes = path.is_absolute() or ".." in path.parts or "\\" in member.filename or ":" in member.filename
    if not is_plain or escapes or "\0" in member.filename or not path.parts:
        raise _refusal(f"it contains {member.filename!r}, which is not a file inside it")
    return path


def read_manifest(bundle: Path) -> JsonObject:
    """Return the manifest of an unpacked bundle. Raises `registry.bundle` if it does not say what to run."""
    file = bundle / "manifest.json"
    try:
        if file.stat().st_size > LARGEST_MANIFEST:
            raise _refusal(f"its manifest is larger than {LARGEST_MANIFEST} bytes")
        manifest = as_object(orjson.loads(file.read_bytes()))
    except (OSError, orjson.JSONDecodeError):
        manifest = None
    if manifest is None or as_object(at(manifest, "server", "mcp_config")) is None:
        raise _refusal("it has no manifest that says what to run")
    return manifest


def bundle_inputs(manifest: JsonObject) -> tuple[PublishedInput, ...]:
    """Return the values that the user can set: the manifest's `user_config`."""
    declared = as_object(manifest.get("user_config")) or {}
    return tuple(_input(name, as_object(each) or {}) for name, each in declared.items())


def _input(name: str, declared: JsonObject) -> PublishedInput:
    default = declared.get("default")
    return PublishedInput(
        name,
        "value",
        str(declared.get("description") or declared.get("title") or ""),
        None if default is None or isinstance(default, list) else _text(default),
        required=declared.get("required") is True,
        secret=declared.get("sensitive") is True,
        repeated=declared.get("multiple") is True,
    )


def bundle_entry(
    bundle: Path, manifest: JsonObject, option: InstallOption, values: InputValues, user_home: Path
) -> JsonObject:
    """Return the definition that runs an unpacked bundle."""
    config = dict(as_object(at(manifest, "server", "mcp_config")) or {})
    config |= as_object(at(config.pop("platform_overrides", None), sys.platform)) or {}
    filling = _Filling(bundle, as_object(manifest.get("user_config")) or {}, values, user_home)
    more_arguments, more_env = package_arguments(option.published, values)
    arguments = [word for each in as_list(config.get("args")) or () for word in filling.words(str(each))]
    env = {name: filling.text(_text(value)) for name, value in (as_object(config.get("env")) or {}).items()}
    # An optional value that is not set leaves no variable behind.
    env = {name: value for name, value in env.items() if value} | more_env
    command = filling.text(str(config.get("command") or ""))
    entry: JsonObject = {"command": command, "args": [*arguments, *more_arguments]}
    return entry | ({"env": env} if env else {})


class _Filling:
    """Fills the references of a manifest: its directory, folders of the user, and the user's values."""

    def __init__(self, bundle: Path, declared: JsonObject, values: InputValues, user_home: Path) -> None:
        self._declared = declared
        self._values = values
        folders = {name: str(user_home / below) for name, below in _HOME_FOLDERS.items()}
        self._known = folders | {"__dirname": str(bundle), "pathSeparator": "/", "/": "/"}

    def words(self, text: str) -> Sequence[str]:
        """Return the words for one argument: a value that can be repeated becomes several, an unset one none."""
        whole = _REFERENCE.fullmatch(text)
        if whole is not None and whole[1].startswith("user_config."):
            return self._of(whole[1].removeprefix("user_config."))
        return [self.text(text)]

    def text(self, text: str) -> str:
        """Return a text with its references filled."""
        return _REFERENCE.sub(self._value, text)

    def _value(self, match: re.Match[str]) -> str:
        if match[1].startswith("user_config."):
            return " ".join(self._of(match[1].removeprefix("user_config.")))
        if match[1] not in self._known:
            raise _refusal(f"its manifest refers to {match[0]}, which is not defined")
        return self._known[match[1]]

    def _of(self, name: str) -> Sequence[str]:
        declared = as_object(self._declared.get(name)) or {}
        if chosen := self._values.get(name):
            return list(chosen) if declared.get("multiple") is True else [chosen[-1]]
        default = declared.get("default")
        if default is not None:
            listed = as_list(default)
            found = [_text(each) for each in listed] if listed is not None else [_text(default)]
            return [_REFERENCE.sub(self._folder, each) for each in found]
        return [variable_reference(name)] if declared.get("required") is True else []

    def _folder(self, match: re.Match[str]) -> str:
        if match[1] not in self._known:
            raise _refusal(f"a default in its manifest refers to {match[0]}, which is not defined")
        return self._known[match[1]]


def _text(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return as_text(value) or str(value)


def _refusal(reason: str) -> InvalidRequest:
    return InvalidRequest("registry.bundle", f"The bundle was not installed: {reason}.")
