"""MCPB bundles: which ones are refused before a file is written outside, and the definition from a manifest."""

import io
import json
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from toolcrib.model.errors import InvalidRequest
from toolcrib.servers.registry import bundles
from toolcrib.servers.registry.server_json import InstallOption

MANIFEST = {"manifest_version": "0.3", "server": {"mcp_config": {"command": "node", "args": ["${__dirname}/x.js"]}}}


def make_zip(*members: tuple[str | zipfile.ZipInfo, str]) -> bytes:
    """Return a zip file with these members."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members:
            archive.writestr(name, text)
    return written.getvalue()


def zip_link(name: str) -> zipfile.ZipInfo:
    """Return a symbolic link in a zip file."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    "member",
    [
        ("../outside", "x"),
        ("a/../../outside", "x"),
        ("/etc/outside", "x"),
        ("C:\\outside", "x"),
        ("..\\outside", "x"),
        (zip_link("link"), "/etc"),
    ],
)
def test_member_that_leads_out_of_the_bundle_is_refused(tmp_path: Path, member: Any) -> None:
    content = make_zip(("manifest.json", json.dumps(MANIFEST)), member)
    with pytest.raises(InvalidRequest, match="which is not a file inside it"):
        bundles.unpack_bundle(content, sha256(content).hexdigest(), tmp_path / "kept")
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


def test_bundle_that_unpacks_to_more_than_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "LARGEST_UNPACKED", 10_000)
    content = make_zip(("manifest.json", json.dumps(MANIFEST)), ("zeros", "0" * 20_000))
    assert len(content) < 10_000
    with pytest.raises(InvalidRequest, match="larger than 10000 bytes"):
        bundles.unpack_bundle(content, sha256(content).hexdigest(), tmp_path / "kept")
    monkeypatch.setattr(bundles, "MOST_FILES", 1)
    with pytest.raises(InvalidRequest, match="more than 1 files"):
        bundles.unpack_bundle(content, sha256(content).hexdigest(), tmp_path / "kept")


def damaged_zip() -> bytes:
    """Return a zip file whose compressed data is damaged."""
    content = bytearray(make_zip(("manifest.json", json.dumps(MANIFEST)), ("data", "0123456789" * 100)))
    at = content.index(b"data") + 4
    content[at : at + 8] = b"\xff" * 8
    return bytes(content)


def zip_with_large_directory() -> bytes:
    """Return a zip file that declares a directory too large for the memory."""
    content = bytearray(make_zip(("manifest.json", "{}")))
    content[-10:-6] = (100 * 1024 * 1024).to_bytes(4, "little")
    return bytes(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (
            make_zip(("manifest.json", json.dumps(MANIFEST)), ("A.js", "1"), ("a.js", "2")),
            "the same name, apart from case",
        ),
        (make_zip(("manifest.json", json.dumps(MANIFEST)), ("caf\u00e9", "1"), ("cafe\u0301", "2")), "the same name"),
        (make_zip(("manifest.json", json.dumps(MANIFEST)), ("a", "1"), ("a/b", "2")), "cannot be unpacked"),
        (make_zip(("manifest.json", json.dumps(MANIFEST | {"x": " " * 2_000_000}))), "manifest is larger than"),
        (make_zip(("manifest.json", "[" * 100_000)), "no manifest"),
        (make_zip(("manifest.json", json.dumps(MANIFEST)), ("n" * 5_000, "1")), "cannot be unpacked"),
        (damaged_zip(), "not a usable zip file"),
        (zip_with_large_directory(), "directory of files is too large"),
    ],
)
def test_hostile_archive_is_refused_and_leaves_nothing(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        bundles.unpack_bundle(content, sha256(content).hexdigest(), tmp_path / "kept")
    assert list(tmp_path.rglob("*")) == [tmp_path / "kept"]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"no zip", "not a usable zip file"), (make_zip(("a", "b")), "manifest")]
)
def test_file_that_is_not_a_bundle_is_refused(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        bundles.unpack_bundle(content, sha256(content).hexdigest(), tmp_path / "kept")
    with pytest.raises(InvalidRequest, match="publishes no SHA-256"):
        bundles.unpack_bundle(content, None, tmp_path / "kept")


def test_manifest_values_come_from_the_user_the_default_or_a_variable(tmp_path: Path) -> None:
    config = {
        "command": "${__dirname}/bin/run",
        "args": ["--in=${HOME}", "${user_config.dirs}", "${user_config.unset}"],
        "env": {"KEY": "${user_config.key}", "MODE": "${user_config.mode}", "NONE": "${user_config.unset}"},
        "platform_overrides": {"linux": {"command": "python3"}, "darwin": {"command": "python3"}},
    }
    declared = {
        "dirs": {"type": "directory", "multiple": True, "default": ["${HOME}/Documents"]},
        "key": {"type": "string", "sensitive": True, "required": True},
        "mode": {"type": "boolean", "default": True},
        "unset": {"type": "string"},
    }
    manifest: dict[str, Any] = {"server": {"mcp_config": config}, "user_config": declared}
    option = InstallOption("mcpb", "mcpb", "https://x.example/x.mcpb")
    plain = bundles.bundle_entry(tmp_path, manifest, option, {}, Path("/u"))
    given = bundles.bundle_entry(tmp_path, manifest, option, {"dirs": ["/a", "/b"], "key": ["k"]}, Path("/u"))
    assert plain == {
        "command": "python3",
        "args": ["--in=/u", "/u/Documents"],
        "env": {"KEY": "${key}", "MODE": "true"},
    }
    assert given["args"] == ["--in=/u", "/a", "/b"]
    assert given["env"]["KEY"] == "k"
    names = {each.name: (each.required, each.secret, each.repeated) for each in bundles.bundle_inputs(manifest)}
    assert names["key"] == (True, True, False)
    assert names["dirs"] == (False, False, True)
