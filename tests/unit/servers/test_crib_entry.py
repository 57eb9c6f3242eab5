"""Entries of the crib in app files are recognised by their content, and other servers are not."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.servers import DefinitionSource, ServerSpec
from toolcrib.servers.crib_entry import crib_entry, http_spec, own_command, stdio_spec
from toolcrib.servers.export import STYLES, entry_for
from toolcrib.servers.readers.apps import CLIENTS
from toolcrib.servers.readers.fields import judge

SOURCE = DefinitionSource("cursor", "user", "mcp.json")
SECRET = "tcb_" + "a1B2" * 10
AGENTS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)


def test_entry_of_a_command_has_the_name_of_its_token() -> None:
    spec = stdio_spec("toolcrib", ("/opt/bin/toolcrib",), home=None, agent=None, token="connect-cursor")
    found = crib_entry(spec)
    assert found is not None
    assert (found.token, spec.args) == ("connect-cursor", ("stdio", "--as", "connect-cursor"))


def remote(url: str, authorization: str = f"Bearer {SECRET}") -> ServerSpec:
    return ServerSpec("s", "http", SOURCE, url=url, headers={"authorization": authorization})


@pytest.mark.parametrize("client", [name for name, row in CLIENTS.items() if row.writable])
@given(agent=st.none() | AGENTS)
def test_entry_written_for_any_client_is_recognised_when_read(client: str, agent: str | None) -> None:
    path = "/mcp" if agent is None else f"/mcp/agents/{agent}"
    specs = [stdio_spec("toolcrib", ("/opt/bin/toolcrib",), home="/a b", agent=agent)]
    if client not in STYLES or "http" in STYLES[client].types:
        specs.append(http_spec("toolcrib", f"http://127.0.0.1:4242{path}", SECRET))
    for spec in specs:
        written = entry_for(spec, client)
        assert written.problems == ()
        read = judge("toolcrib", written.entry, CLIENTS[client], SOURCE).spec
        assert read is not None
        found = crib_entry(read)
        assert found is not None
        assert (found.agent, found.home or found.secret) == (agent, "/a b" if spec.type == "stdio" else SECRET)


@pytest.mark.parametrize(
    "spec",
    [
        remote("https://example.com/mcp"),
        remote("http://127.0.0.1:4242/mcp", "Bearer ghp_something_else"),
        remote("http://127.0.0.1:4242/mcp", f"Basic {SECRET}"),
        remote("http://127.0.0.1:4242/other"),
        remote("http://127.0.0.1.example.com/mcp"),
        remote("http://[broken/mcp"),
        ServerSpec("s", "stdio", SOURCE, command="toolcrib", args=("serve",)),
        ServerSpec("s", "stdio", SOURCE, command="my-toolcrib", args=("stdio",)),
    ],
)
def test_server_of_another_program_is_not_recognised_as_a_crib(spec: ServerSpec) -> None:
    assert crib_entry(spec) is None


def test_crib_is_recognised_at_any_loopback_address_and_behind_any_launcher() -> None:
    assert all(crib_entry(remote(f"http://{host}:1/mcp")) for host in ("localhost", "127.0.0.1", "127.1.2.3", "[::1]"))
    spec = ServerSpec("s", "stdio", SOURCE, command="uvx", args=("toolcrib", "stdio", "--agent=reviewer"))
    found = crib_entry(spec)
    assert found is not None
    assert found.agent == "reviewer"


def test_own_command_has_a_full_path() -> None:
    assert Path(own_command()[0]).is_absolute()
