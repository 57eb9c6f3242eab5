"""A public address is refused without protection and named tokens, and never serves the owner's token."""

import json
from pathlib import Path

import httpx2
import pytest

from cluster.nodes import wait_for
from e2e.shell import Shell
from http_clients import PLAIN
from toolcrib.model.protocol import MODERN_VERSION, VERSION_KEY

EVERYWHERE = ("serve", "--json", "--port", "0", "--host", "0.0.0.0")


def refusal(shell: Shell, *flags: str) -> str:
    done = shell.run(*EVERYWHERE, *flags)
    assert done.returncode != 0
    error = json.loads(done.stdout)["error"]
    assert error["code"] in ("bind.refused", "node.secret", "settings.invalid")
    return f"{error['message']} {error['hint']}"


def test_public_address_is_refused_with_the_reason_and_a_hint(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    assert "--behind-proxy" in refusal(shell)
    assert "tokens create" in refusal(shell, "--behind-proxy", "10.0.0.1")
    assert "certificate" in refusal(shell, "--tls-cert", "missing.pem")
    assert "network" in refusal(shell, "--behind-proxy", "a proxy")
    assert "cannot be read" in refusal(shell, "--behind-proxy", "10.0.0.1", "--node-secret-file", "missing")


def ask(port: str, token: str, forwarded: str) -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}", "x-forwarded-for": forwarded, "host": "crib.example.com"}
    return httpx2.get(f"http://127.0.0.1:{port}/api/tools", headers=headers, verify=PLAIN)


def test_proxy_passes_named_tokens_and_the_owner_signs_in_only_locally(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    laptop = shell.json("tokens", "create", "laptop", "--source", "api")["secret"]
    with shell.serving("--port", "0", "--host", "0.0.0.0", "--behind-proxy", "127.0.0.1") as serving:
        port = str(serving.port)
        owner = (shell.home / "token").read_text(encoding="ascii").strip()
        assert ask(port, laptop, "203.0.113.9").status_code == 200
        refused = ask(port, owner, "203.0.113.9")
        assert (refused.status_code, refused.json()["code"]) == (403, "auth.owner_local")
        assert ask(port, owner, "198.51.100.1, 127.0.0.1").status_code == 403
        link = str(shell.json("open", "--print")["url"]).partition("/login")[2]
        headers = {"x-forwarded-for": "203.0.113.9", "host": "crib.example.com"}
        refused = httpx2.get(f"http://127.0.0.1:{port}/login{link}", headers=headers, verify=PLAIN)
        assert (refused.status_code, refused.json()["code"]) == (403, "auth.owner_local")
        assert shell.run("tokens", "list").returncode == 0  # commands use the loopback address


def test_stopping_node_behind_a_proxy_serves_until_its_health_check_fails(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    laptop = shell.json("tokens", "create", "laptop", "--source", "api")["secret"]
    with shell.serving("--port", "0", "--host", "0.0.0.0", "--behind-proxy", "127.0.0.1") as serving:
        port = str(serving.port)
        health = f"http://127.0.0.1:{port}/healthz"
        assert httpx2.get(health, verify=PLAIN).status_code == 200
        serving.process.terminate()
        wait_for(lambda: httpx2.get(health, verify=PLAIN).status_code == 503)
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {VERSION_KEY: MODERN_VERSION}}}
        headers = {"authorization": f"Bearer {laptop}", "x-forwarded-for": "203.0.113.9", "host": "crib.example.com"}
        headers |= {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/list"}
        served = httpx2.post(f"http://127.0.0.1:{port}/mcp", json=body, headers=headers, verify=PLAIN, timeout=30)
        assert served.status_code != 503, served.text
        assert serving.process.wait(30) == 143


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_node_secret_that_other_users_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    shell = Shell.at(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("x" * 64, encoding="ascii")
    secret.chmod(mode)
    done = shell.run("serve", "--json", "--node-secret-file", str(secret))
    assert json.loads(done.stdout)["error"]["code"] == "node.secret"
