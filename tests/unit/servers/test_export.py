"""Writing in a client's format is the inverse of reading; what the format cannot express is reported."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.base.files.reading import FileText
from toolcrib.model.errors import InvalidRequest
from toolcrib.model.servers import Auth, DefinitionSource, ServerSpec, ToolFilter
from toolcrib.servers.export import entry_for, snippet
from toolcrib.servers.identity import identity
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.servers.readers.dialect import ReadingContext
from toolcrib.servers.readers.fields import judge
from toolcrib.servers.readers.read import ConfigFile, read_content

SOURCE = DefinitionSource("toolcrib", "user", "mcp.json", 1)
WRITABLE = sorted(name for name, dialect in CLIENTS.items() if dialect.writable)

WORDS = st.text(
    st.characters(blacklist_categories=["Cs", "Cc"], blacklist_characters="${}!"), min_size=1, max_size=10
).filter(lambda t: bool(t.strip()))
KEYS = st.from_regex(r"[A-Z][A-Z_]{0,6}", fullmatch=True)
VALUES = WORDS | KEYS.map(lambda name: f"${{{name}}}")
STDIO = st.builds(
    ServerSpec,
    name=WORDS,
    type=st.just("stdio"),
    source=st.just(SOURCE),
    command=WORDS,
    args=st.lists(VALUES, max_size=3).map(tuple),
    env=st.dictionaries(KEYS, VALUES, max_size=3),
    env_pass=st.lists(st.sampled_from(["AA", "BB"]), unique=True, max_size=1).map(tuple),
    timeout_ms=st.none() | st.integers(1, 100).map(lambda seconds: seconds * 1000),
    tools=st.builds(
        ToolFilter,
        st.none() | st.lists(WORDS, min_size=1, max_size=2).map(tuple),
        st.lists(WORDS, max_size=2).map(tuple),
    ),
)
REMOTE = st.builds(
    ServerSpec,
    name=WORDS,
    type=st.sampled_from(["http", "sse"]),
    source=st.just(SOURCE),
    url=st.just("https://example.com/mcp"),
    headers=st.dictionaries(st.from_regex(r"X-[A-Z][a-z]{1,5}", fullmatch=True), VALUES, max_size=3),
)


@settings(deadline=None, max_examples=200)
@given(STDIO | REMOTE, st.sampled_from(WRITABLE))
def test_written_definition_reads_back_as_the_same_server(spec: ServerSpec, client: str) -> None:
    """Unless something is reported as not expressible."""
    written = entry_for(spec, client)
    if written.problems:
        return
    judged = judge(spec.name, written.entry, CLIENTS[client], DefinitionSource(client, "user", "f", 1))
    back = judged.spec
    assert back is not None, judged.problems
    assert identity(back) == identity(spec)
    assert (back.type, back.enabled, back.timeout_ms, back.tools) == (
        spec.type,
        spec.enabled,
        spec.timeout_ms,
        spec.tools,
    )
    text, _ = snippet({spec.name: spec}, client)
    suffix = {"json": "json", "toml": "toml", "yaml": "yaml"}[CLIENTS[client].family]
    place = ConfigFile(client, "user", Path(f"x.{suffix}"))
    entries = read_content(place, FileText(text, False, ""), ReadingContext(place.file)).entries
    assert [(entry.name, entry.spec and identity(entry.spec)) for entry in entries] == [(spec.name, identity(spec))]


@settings(deadline=None)
@given(STDIO | REMOTE, st.booleans(), st.sampled_from(["shared", "session"]))
def test_own_format_expresses_every_definition(spec: ServerSpec, enabled: bool, share: Any) -> None:
    from dataclasses import replace

    full = replace(spec, enabled=enabled, share=share, env_pass=(), auth=Auth(credential_id="c") if spec.url else None)
    written = entry_for(full, "toolcrib")
    assert written.problems == ()
    assert judge(full.name, written.entry, CLIENTS["toolcrib"], SOURCE).spec == full


def test_disabled_server_is_left_out_for_clients_without_a_switch() -> None:
    """Export must not enable a disabled server."""
    spec = ServerSpec("s", "stdio", SOURCE, command="x", enabled=False)
    assert entry_for(spec, "claude-code").entry == {}
    assert entry_for(spec, "codex").entry == {"command": "x", "enabled": False}


@pytest.mark.parametrize(("client", "key"), [("gemini", "a text in args"), ("claude-code", "a text in args")])
def test_literal_that_a_client_would_read_as_a_variable_is_reported(client: str, key: str) -> None:
    """A client without variables reads `${HOME}` as plain text."""
    spec = ServerSpec(
        "s", "stdio", DefinitionSource("codex", "user", "f"), command="x", args=("${HOME}",), variables="none"
    )
    assert any(key in problem.message for problem in entry_for(spec, client).problems)


def test_text_that_would_run_as_a_command_is_not_exported() -> None:
    """In another app's file `!text` is text; in the crib's own file it would be a command."""
    spec = ServerSpec(
        "s",
        "stdio",
        DefinitionSource("cursor", "user", "f"),
        command="x",
        env={"K": "!touch pwned"},
        variables="vscode",
    )
    written = entry_for(spec, "toolcrib")
    assert "env" not in written.entry
    assert [problem.code for problem in written.problems] == ["server.not_exportable"]


def test_format_that_only_describes_servers_cannot_be_written() -> None:
    """The error lists the known clients."""
    for client in ("mcpb", "registry", "unknown"):
        with pytest.raises(InvalidRequest) as caught:
            entry_for(ServerSpec("s", "stdio", SOURCE, command="x"), client)
        assert caught.value.code == "config.unsupported"
        assert "cursor" in caught.value.message


def test_report_names_the_variable_and_not_its_default() -> None:
    """The default may be the secret itself."""
    args, headers = ("${API_TOKEN:-hunter2}",), {"X": "${KEY:-hunter2}"}
    local = ServerSpec("s", "stdio", SOURCE, command="x", args=args)
    remote = ServerSpec("s", "http", SOURCE, url="https://x", headers=headers, header_env={"Y": "${Z:-hunter2}"})
    for spec in (local, remote):
        for client in WRITABLE:
            problems = entry_for(spec, client).problems
            assert "hunter2" not in repr(problems)
    assert "${API_TOKEN:-…} in args" in entry_for(local, "claude-desktop").problems[0].message
