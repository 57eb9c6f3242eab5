"""What a consent is bound to, what the trust question shows, and its warnings."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolcrib.base.processes.sandbox import SandboxSupport
from toolcrib.model.errors import ConfigError
from toolcrib.model.sandbox import Sandbox
from toolcrib.model.servers import Auth, DefinitionSource, ServerSpec
from toolcrib.servers import trust
from toolcrib.servers.dangers import dangers
from toolcrib.servers.resolve import origins
from toolcrib.servers.trust import (
    TrustBook,
    TrustRecord,
    change_trust,
    definition_digest,
    load_trust,
    trust_question,
)

PROJECT = DefinitionSource("claude-code", "project", "/r/.mcp.json", 3, "/r", "/r")
PERSONAL = DefinitionSource("cursor", "user", "/h/.cursor/mcp.json", 2)
SPEC = ServerSpec("s", "stdio", PROJECT, command="npx", args=("-y", "p@1.0.0"), env={"K": "v"}, variables="claude")


def test_consent_covers_exactly_one_definition_of_one_project() -> None:
    """Any change of what runs needs new consent; switches, timeouts and tool lists do not."""
    book = TrustBook().with_definitions([SPEC])
    assert book.covers(SPEC)
    assert book.covers(replace(SPEC, enabled=False, timeout_ms=5, source=replace(PROJECT, line=9)))
    changes: list[dict[str, Any]] = [
        {"name": "t"},
        {"command": "node"},
        {"args": ("-y", "p@1.0.1")},
        {"env": {"K": "other"}},
        {"env": {"K": "v", "L": "1"}},
        {"cwd": "/elsewhere"},
        {"type": "http", "url": "https://x"},
        {"headers": {"A": "b"}},
        {"env_file": ".env"},
        {"env_pass": ("HOME",)},
        {"source": replace(PROJECT, project="/r/nested")},
        {"source": replace(PROJECT, project="/moved")},
        {"source": replace(PROJECT, directory="/r/packages")},
        {"source": replace(PROJECT, client="cursor")},
    ]
    for change in changes:
        assert not book.covers(replace(SPEC, **change)), change


def test_users_definition_needs_consent_and_the_cribs_own_does_not() -> None:
    spec = replace(SPEC, source=PERSONAL)
    book = TrustBook()
    assert not book.covers(spec)
    assert book.with_definitions([spec]).covers(replace(spec, source=replace(PERSONAL, line=9)))
    assert not book.with_definitions([spec]).covers(replace(spec, command="anything"))
    assert not book.with_definitions([spec]).covers(SPEC)
    assert book.covers(replace(SPEC, source=DefinitionSource("toolcrib", "user", "/h/.crib/mcp.json")))
    assert not book.covers(replace(SPEC, source=replace(PROJECT, client="toolcrib")))


WHOLE_FILE = TrustBook((TrustRecord(PERSONAL.file, None),))
"""The record of earlier versions for a file of the user."""


def test_trust_in_a_whole_file_becomes_trust_in_its_definitions() -> None:
    """Later additions to the file need consent."""
    spec = replace(SPEC, source=PERSONAL)
    later = replace(spec, name="later", command="evil")
    assert WHOLE_FILE.covers(spec)
    assert WHOLE_FILE.renewed([], []) == WHOLE_FILE  # the file cannot be read at the moment
    book = WHOLE_FILE.renewed([spec, SPEC], [PERSONAL.file])
    assert (book.covers(spec), book.covers(later), book.covers(SPEC)) == (True, False, False)
    assert all(record.digest for record in book.records)
    assert book.renewed([spec, later], [PERSONAL.file]) is book
    assert not TrustBook((TrustRecord(PROJECT.file, None),)).covers(SPEC)


@pytest.mark.parametrize(
    "auth",
    [Auth(), Auth(credential_id="github"), Auth(client_id="x"), Auth(client_secret="x"), Auth(scopes=("repo",))],
)
def test_sign_in_is_part_of_the_consent(auth: Auth) -> None:
    book = TrustBook().with_definitions([SPEC])
    assert not book.covers(replace(SPEC, auth=auth))
    agreed = book.with_definitions([replace(SPEC, auth=auth)])
    assert agreed.covers(replace(SPEC, auth=auth))
    assert not agreed.covers(replace(SPEC, auth=replace(auth, credential_id="other")))
    assert trust_question(replace(SPEC, auth=auth), {}).auth is not None


def test_earlier_consent_to_a_users_definition_with_sign_in_is_kept() -> None:
    """Its record does not contain `auth`; a project's definition needs new consent."""
    personal, project = (replace(SPEC, source=source, auth=Auth()) for source in (PERSONAL, PROJECT))
    digests = [definition_digest(replace(spec, auth=None)) for spec in (personal, project)]
    book = TrustBook((TrustRecord("personal", digests[0]), TrustRecord("/r", digests[1])))
    assert (book.covers(personal), book.covers(project)) == (True, False)
    renewed = book.renewed([personal, project], [])
    assert (renewed.covers(personal), renewed.covers(project)) == (True, False)
    assert not renewed.covers(replace(personal, auth=Auth(credential_id="another")))


def test_consent_can_be_revoked() -> None:
    """For one server, a whole file or a whole project."""
    spec = replace(SPEC, source=PERSONAL)
    assert not WHOLE_FILE.without_definitions([spec]).covers(spec)
    assert not TrustBook().with_definitions([SPEC]).without_definitions([SPEC]).covers(SPEC)
    assert not TrustBook().with_definitions([SPEC]).without_place("/r").covers(SPEC)


def test_records_are_stored_privately_and_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "trust.json"
    assert load_trust(file) == TrustBook()
    written = change_trust(file, lambda book: book.with_definitions([SPEC], secrets=True))
    assert load_trust(file) == written
    assert file.stat().st_mode & 0o777 == 0o600
    for damaged in ("{", "[]", '{"records": 5}', '{"records": [5]}'):
        file.write_text(damaged, "utf-8")
        with pytest.raises(ConfigError) as caught:
            load_trust(file)
        assert caught.value.code == "trust.unreadable"


def test_question_shows_the_complete_command_and_no_values() -> None:
    """Names of variables and headers, the directory and the program; hidden characters are escaped."""
    long = "x" * 5000
    spec = replace(
        SPEC,
        args=("-y", "a b", long, "zero\u200bwidth"),
        env={"TOKEN": "top-secret-value"},
        env_pass=("HOME",),
        cwd="sub",
    )
    question = trust_question(spec, {"PATH": "/nowhere"})
    assert question.command_line == f"npx -y 'a b' {long} 'zero\\u{{200b}}width'"
    assert (question.env, question.cwd, question.program) == (("TOKEN", "HOME"), "sub", None)
    assert "top-secret-value" not in str(question.to_json())
    assert "hidden_characters" in {danger.code for danger in question.dangers}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["npx", "-y", "p@1", "--token", "hunter2hunter2"], "npx -y p@1 --token '****'"),
        (["npx", "p@1", "--password=hunter2hunter2"], "npx p@1 '--password=****'"),
        (["npx", "--api-key", "hunter2hunter2", "p"], "npx --api-key '****' p"),
        (["docker", "run", "--secret", "hunter2/hunter2", "i/x"], "docker run --secret '****' i/x"),
        (["sh", "-c", "TOKEN=hunter2hunter2 evil"], "sh -c 'TOKEN=**** evil'"),
    ],
)
def test_secret_in_arguments_is_masked_in_the_question_and_the_origins(words: list[str], shown: str) -> None:
    """Warnings do not show it either."""
    spec = replace(SPEC, command=words[0], args=tuple(words[1:]), variables="toolcrib", env={"K": "!get --key hunter2"})
    question = trust_question(spec, {})
    assert question.command_line == shown
    shown_origins = origins(spec, {})
    assert shlex.join(origin.shown for origin in shown_origins if not origin.key.startswith("env.")) == shown
    assert "hunter2" not in repr(question) + repr(shown_origins)
    assert "It runs `get --key ****` to get K." in {danger.message for danger in question.dangers}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sh", "-c", "id"], "inline_code"),
        (["/bin/bash", "-lc", "id"], "inline_code"),
        (["bash", "run.sh"], "shell"),
        (["node", "-e", "1"], "inline_code"),
        (["python3.12", "-c", "1"], "inline_code"),
        (["npx", "-c", "id"], "inline_code"),
        (["deno", "eval", "1"], "inline_code"),
        (["env", "X=1", "sh", "-c", "id"], "inline_code"),
        (["C:\\Windows\\cmd.exe", "/c", "dir"], "inline_code"),
        (["powershell", "-EncodedCommand", "AAAA"], "inline_code"),
        (["sudo", "server"], "administrator"),
        (["docker", "run", "--privileged", "i/x:1"], "privileged_container"),
        (["docker", "run", "-v", "/:/host", "i/x:1"], "privileged_container"),
        (["docker", "run", "-v", "/var/run/docker.sock:/s", "i/x:1"], "privileged_container"),
        (["podman", "run", "--pid=host", "i/x:1"], "privileged_container"),
        (["docker", "run", "--mount", "type=bind,source=/etc,target=/e", "i/x:1"], "privileged_container"),
        (["docker", "run", "-v", "/h/.ssh:/keys", "i/x:1"], "privileged_container"),
        (["docker", "run", "-v", "~/.ssh:/keys:ro", "i/x:1"], "privileged_container"),
        (["docker", "run", "--volume=../other:/data", "i/x:1"], "privileged_container"),
        (["docker", "run", "--mount", "type=bind,src=/r/../h,dst=/data", "i/x:1"], "privileged_container"),
        (["docker", "run", "ghcr.io/i/x"], "floating_version"),
        (["npx", "-y", "pkg"], "floating_version"),
        (["npx", "-y", "@s/pkg@latest"], "floating_version"),
        (["uvx", "pkg"], "floating_version"),
        (["uvx", "--with", "evil", "pkg==1.0"], "other_packages"),
        (["./server"], "project_program"),
    ],
)
def test_command_line_that_hides_what_it_does_has_a_warning(words: list[str], code: str) -> None:
    """Inline code, shells, privileged containers, floating versions, and wrappers around them."""
    spec = replace(SPEC, command=words[0], args=tuple(words[1:]), env={})
    assert code in {danger.code for danger in dangers(spec)}


@pytest.mark.parametrize("mount", ["/r:/work", "./data:/data:ro", "${workspaceFolder}:/work", "cache:/cache", "/cache"])
def test_mounts_of_a_project_are_no_danger(mount: str) -> None:
    spec = replace(SPEC, command="docker", args=("run", "-v", mount, "i/x:1"), env={})
    own = replace(spec, source=PERSONAL, args=("run", "-v", "/h/notes:/work", "i/x:1"))
    assert not any(danger.grave for danger in (*dangers(spec), *dangers(own)))


def test_trust_prompt_states_that_a_container_runs_outside_of_the_sandbox() -> None:
    spec = replace(SPEC, command="docker", args=("run", "-i", "i/x:1"), env={}, sandbox=Sandbox("project"))
    (warning,) = trust_question(spec, {}).dangers
    assert (warning.code, warning.grave) == ("container", False)
    assert "outside of the sandbox" in warning.message


def test_preload_variables_and_secret_commands_have_a_warning() -> None:
    """A pinned package with an ordinary key needs no warning."""
    assert dangers(SPEC) == ()
    for name in ("LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "PATH", "DYLD_INSERT_LIBRARIES"):
        assert {danger.code for danger in dangers(replace(SPEC, env={name: "x"}))} == {"preload"}
    own = replace(SPEC, variables="toolcrib", env={"K": "!pass show k"})
    assert [danger.code for danger in dangers(own)] == ["secret_command"]
    plain = replace(SPEC, type="http", command=None, args=(), url="http://example.com/mcp")
    assert [danger.code for danger in dangers(plain)] == ["not_encrypted"]


@pytest.mark.parametrize(
    ("sandbox", "supported", "enforced", "words"),
    [
        (Sandbox("project"), True, True, "reaches the project"),
        (Sandbox("project"), False, False, "so it runs without a sandbox"),
        (Sandbox("strict", chosen=True), False, False, "so it does not start"),
        (Sandbox("off"), True, False, "would confine it"),
    ],
)
def test_question_shows_the_sandbox_and_whether_it_is_enforced(
    monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox, supported: bool, enforced: bool, words: str
) -> None:
    monkeypatch.setattr(trust, "sandbox_support", lambda: SandboxSupport(supported, ""))
    shown = trust_question(replace(SPEC, sandbox=sandbox), {}).to_json()["sandbox"]
    assert (shown["profile"], shown["enforced"], words in shown["sentence"]) == (sandbox.profile, enforced, True)
    assert trust_question(replace(SPEC, type="http", url="https://x"), {}).to_json()["sandbox"] is None
