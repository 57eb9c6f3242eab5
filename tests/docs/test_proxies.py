"""The proxies of docs/deploy.md, with the page's own files and addresses, before two nodes.

Each machine of the page is a network namespace.

"""

import json
import queue
import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from cluster.certificates import write_certificate
from cluster.failures import PlayedCluster
from cluster.namespaces import Namespace, NamespacedNode, local_network
from cluster.nodes import WAIT_SECONDS, wait_for
from cluster.postgres_servers import OwnDatabase, needs_root
from cluster.test_approvals import pending
from deadlines import stretched
from docs.pages import page
from e2e.shell import Shell
from long_tests import takes_long
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.protocol import CAPABILITIES_KEY, HANDSHAKE_VERSION, MODERN_VERSION, VERSION_KEY

pytestmark = [needs_root, pytest.mark.skipif(shutil.which("ip") is None, reason="needs the program ip of iproute2")]

NAME = "crib.example.com"
STREAM = "application/json, text/event-stream"
AT_ONCE = 4.0
"""Seconds in which a change is announced. A proxy that holds the stream back would wait for the next ping."""


def block(kind: str) -> str:
    """Return the only file of one language on the page."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", page("deploy"), re.MULTILINE | re.DOTALL)
    return found


@dataclass
class Lan:
    """The machines of the page with their nodes, and the proxy's certificate."""

    played: PlayedCluster
    proxy: Namespace
    client: Namespace
    nodes: list[NamespacedNode]
    token: str
    mcp_token: str
    certificate: Path

    def start(self, number: int) -> NamespacedNode:
        """Start the first or second node like the page, and return it when it is ready."""
        space, shell = self.nodes[number].space, self.nodes[number].shell
        node = _launch(self.played, space, shell)
        self.played.await_ready(node)
        self.nodes[number] = node
        return node


def _launch(played: PlayedCluster, space: Namespace, shell: Shell) -> NamespacedNode:
    flags = ("--no-open", "--host", space.far, "--port", "4242", "--behind-proxy", "10.0.0.1")
    secret = ("--node-secret-file", str(played.secret_file))
    node = space.run(lambda: played.launch(shell, *flags, *secret, kind=NamespacedNode))
    assert isinstance(node, NamespacedNode)
    node.space = space
    return node


def create_token(shell: Shell, source: str) -> str:
    """Create a token with the page's command in a new process, and return its secret."""
    created = shell.run("tokens", "create", source, "--source", source, "--json", preexec=("env",))
    assert created.returncode == 0, created.stdout + created.stderr
    return str(json.loads(created.stdout)["secret"])


@pytest.fixture(scope="module")
def lan(tmp_path_factory: pytest.TempPathFactory) -> Generator[Lan]:
    """Run two nodes and their database, with a machine for the proxy and one for clients."""
    folder = tmp_path_factory.mktemp("lan")
    machines = {"proxy": "10.0.0.1", "database": "10.0.0.2", "one": "10.0.0.5", "two": "10.0.0.6", "client": "10.0.0.9"}
    with local_network(**machines) as (proxy, far, one, two, client):
        database = far.run(lambda: OwnDatabase(address="10.0.0.2").create().start())
        played = PlayedCluster(folder, database.url)
        try:
            shells = [played.shell(number) for number in range(2)]
            setting = shells[0].having(TOOLCRIB_DATABASE_URL=database.url)
            secrets = [one.run(lambda source=source: create_token(setting, source)) for source in ("api", "ide")]
            nodes = [_launch(played, space, shell) for space, shell in zip((one, two), shells, strict=True)]
            for node in nodes:
                played.await_ready(node)
            certificate = write_certificate(folder / "proxy.pem", NAME)
            yield Lan(played, proxy, client, nodes, secrets[0], secrets[1], certificate)
        finally:
            played.close()
            database.close()


def nginx(lan: Lan, folder: Path) -> tuple[list[str], Path]:
    """Return the command of nginx with the page's file, and its certificate authority."""
    text = block("nginx").replace(f"/etc/ssl/{NAME}.pem", str(lan.certificate))
    site = folder / "site.conf"
    site.write_text(text.replace(f"/etc/ssl/{NAME}.key", str(lan.certificate)), encoding="utf-8")
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off; user root; pid {folder}/pid; error_log stderr; events {{}}"
        f" http {{ access_log off; {temporary} include {site}; }}",
        encoding="utf-8",
    )
    return ["nginx", "-c", str(main), "-p", str(folder)], lan.certificate


def haproxy(lan: Lan, folder: Path) -> tuple[list[str], Path]:
    """Return the command of HAProxy with the page's file, and its certificate authority."""
    file = folder / "haproxy.cfg"
    file.write_text(block("haproxy").replace(f"/etc/haproxy/{NAME}.pem", str(lan.certificate)), encoding="utf-8")
    return ["haproxy", "-db", "-f", str(file)], lan.certificate


def caddy(lan: Lan, folder: Path) -> tuple[list[str], Path]:
    """Return the command of Caddy with the page's file, and its own certificate authority."""
    file = folder / "Caddyfile"
    settings = "{\n    local_certs\n    skip_install_trust\n    admin off\n    auto_https disable_redirects\n}\n"
    file.write_text(settings + block("caddy"), encoding="utf-8")
    return ["caddy", "run", "--config", str(file)], folder / "data/caddy/pki/authorities/local/root.crt"


MOST_REFUSED = {"nginx": 3, "haproxy": 3, "caddy": 3}
"""The most calls that a proxy may refuse while a node restarts."""
PROXIES = {"nginx": nginx, "haproxy": haproxy, "caddy": caddy}


class Client:
    """A client on another machine, which connects to the proxy by its name."""

    def __init__(self, lan: Lan, authority: Path) -> None:
        self._lan = lan
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._tls.check_hostname = False  # it connects by address; the certificate itself is verified

    def open(self) -> httpx2.Client:
        """Return a client whose connections are opened in the calling thread."""
        headers = {"authorization": f"Bearer {self._lan.token}", "host": NAME}
        return httpx2.Client(
            base_url="https://10.0.0.1", verify=self._tls, headers=headers, timeout=stretched(WAIT_SECONDS),
            trust_env=False,
        )  # fmt: skip

    def run(self, work: Callable[[httpx2.Client], "httpx2.Response"]) -> httpx2.Response:
        """Send a request from the client's machine."""

        def send() -> httpx2.Response:
            with self.open() as client:
                return work(client)

        return self._lan.client.run(send)

    def request(self, method: str, path: str, body: Json = None, **headers: str) -> httpx2.Response:
        """Send one request."""
        passed = {name.replace("_", "-"): value for name, value in headers.items()}
        extensions = {"sni_hostname": NAME}
        return self.run(lambda client: client.request(method, path, json=body, headers=passed, extensions=extensions))

    def post(self, body: JsonObject, **headers: str) -> httpx2.Response:
        """Send one MCP message."""
        passed = {"accept": STREAM, "authorization": f"Bearer {self._lan.mcp_token}", **headers}
        return self.request("POST", "/mcp", {"jsonrpc": "2.0", **body}, **passed)

    def call(self, marker: str, seconds: float = 0.0) -> httpx2.Response:
        """Call the tool that records its marker."""
        name, arguments = "counter_slow", {"marker": marker, "seconds": seconds}
        envelope: JsonObject = {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: {}}
        params: JsonObject = {"name": name, "arguments": arguments, "_meta": envelope}
        headers = {"mcp_protocol_version": MODERN_VERSION, "mcp_method": "tools/call", "mcp_name": name}
        return self.post({"id": 1, "method": "tools/call", "params": params}, **headers)


@contextmanager
def proxied(lan: Lan, name: str, folder: Path) -> Generator[Client]:
    """Run a proxy on its machine."""
    command, authority = PROXIES[name](lan, folder)
    variables = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": str(folder), "XDG_DATA_HOME": str(folder / "data")}
    log = (folder / "log").open("wb")
    process = lan.proxy.run(lambda: subprocess.Popen(command, env=variables, stdout=log, stderr=log, cwd=folder))

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text(encoding="utf-8", errors="replace")
        with suppress(httpx2.TransportError, OSError):
            return Client(lan, authority).request("GET", "/healthz").status_code == 200
        return False

    try:
        wait_for(answers, 60)
        yield Client(lan, authority)
    finally:
        process.terminate()
        process.wait(stretched(30))
        log.close()


def skip_if_missing(name: str) -> None:
    """Skip the test if the proxy is not installed."""
    if shutil.which(name, path="/usr/sbin:/usr/bin:/bin") is None:
        pytest.skip(f"needs the program {name}")


@takes_long
@pytest.mark.parametrize("name", PROXIES)
def test_proxy_does_not_repeat_a_call_on_a_killed_node(lan: Lan, name: str, tmp_path: Path) -> None:
    skip_if_missing(name)
    with proxied(lan, name, tmp_path) as client:
        marker = f"killed behind {name}"
        answers: list[int] = []

        def call() -> None:
            with suppress(httpx2.TransportError):
                answers.append(client.call(marker, 30.0).status_code)

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        wait_for(lambda: marker in lan.played.calls)
        busy = wait_for(lambda: busy_nodes(lan))[0]
        lan.nodes[busy].kill()
        calling.join(stretched(60))
        assert not calling.is_alive()
        assert 200 not in answers
        assert lan.played.calls.count(marker) == 1
        for number in range(6):  # the other node answers in the meantime
            wait_for(lambda number=number: client.call(f"{name} without {number}").status_code == 200)
        lan.start(busy)


@takes_long
@pytest.mark.parametrize("name", PROXIES)
def test_legacy_session_works_on_every_node_behind_the_proxy(lan: Lan, name: str, tmp_path: Path) -> None:
    skip_if_missing(name)
    with proxied(lan, name, tmp_path) as client:
        session = open_session(client)
        for number in range(2, 8):  # the proxy alternates between the nodes
            listed = client.post({"id": number, "method": "tools/list"}, **session)
            assert "counter_slow" in listed.text, listed.text


def busy_nodes(lan: Lan) -> list[int]:
    """Return the nodes that have a call in flight."""
    listed = lan.nodes[0].request("GET", "/api/nodes").json()
    addresses = [each["address"] for each in listed if each["load"] and each["state"] == "alive"]
    return [at for at, node in enumerate(lan.nodes) if f"http://{node.space.far}:4242" in addresses]


def open_session(client: Client) -> dict[str, str]:
    """Open a legacy session and return the headers of its further requests."""
    hello: JsonObject = {
        "protocolVersion": HANDSHAKE_VERSION,
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    opened = client.post({"id": 1, "method": "initialize", "params": hello})
    assert opened.status_code == 200, opened.text
    session = {"mcp_session_id": opened.headers["mcp-session-id"], "mcp_protocol_version": HANDSHAKE_VERSION}
    assert client.post({"method": "notifications/initialized"}, **session).status_code == 202
    return session


@takes_long
@pytest.mark.parametrize("name", PROXIES)
def test_rest_call_waits_behind_the_proxy_until_it_is_approved_on_any_node(lan: Lan, name: str, tmp_path: Path) -> None:
    skip_if_missing(name)
    with proxied(lan, name, tmp_path) as client:
        listed = client.request("GET", "/api/tools")
        assert "counter/slow" in [tool["ref"] for tool in listed.json()]
        marker = f"approved behind {name}"
        body: JsonObject = {"arguments": {"marker": marker, "seconds": 0}}
        answers: list[httpx2.Response] = []

        def call() -> None:
            answers.append(client.request("POST", "/api/tools/counter/slow/call", body))

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        (approval,) = wait_for(lambda: pending(lan.nodes[0]))
        answered = lan.nodes[1].request("POST", f"/api/approvals/{approval['id']}", {"decision": "approve"})
        assert answered.status_code == 200, answered.text
        calling.join(stretched(WAIT_SECONDS))
        assert answers[0].json()["content"][0]["text"] == marker
        assert lan.played.calls.count(marker) == 1


@takes_long
@pytest.mark.parametrize("name", PROXIES)
def test_large_bodies_pass_the_proxy_up_to_the_limit_of_the_crib(lan: Lan, name: str, tmp_path: Path) -> None:
    skip_if_missing(name)
    with proxied(lan, name, tmp_path) as client:
        session = open_session(client)
        for size, status in ((4_000_000, 200), (5_000_000, 413)):
            params: JsonObject = {"name": "toolcrib_ping", "arguments": {"pad": "x" * size}}
            answer = client.post({"id": 2, "method": "tools/call", "params": params}, **session)
            assert answer.status_code == status, answer.text[:500]


@takes_long
@pytest.mark.parametrize("name", PROXIES)
def test_stream_behind_the_proxy_announces_changes_of_every_node_at_once(lan: Lan, name: str, tmp_path: Path) -> None:
    skip_if_missing(name)
    with proxied(lan, name, tmp_path) as client:
        session = open_session(client)
        announced: queue.Queue[str] = queue.Queue()

        def follow(http: httpx2.Client) -> httpx2.Response:
            headers = {"accept": "text/event-stream", "authorization": f"Bearer {lan.mcp_token}"}
            headers |= {key.replace("_", "-"): value for key, value in session.items()}
            with http.stream("GET", "/mcp", headers=headers, extensions={"sni_hostname": NAME}) as response:
                announced.put("opened")
                for line in response.iter_lines():
                    if "notifications/tools/list_changed" in line:
                        announced.put(line)
            return response

        def await_announcement() -> None:
            try:
                announced.get(timeout=stretched(AT_ONCE))
            except queue.Empty:
                pytest.fail("the proxy holds the stream back, or the nodes announce no change")
            while not announced.empty():
                announced.get()

        def close() -> None:
            authorization = f"Bearer {lan.mcp_token}"
            client.request("DELETE", "/mcp", authorization=authorization, **session)
            following.join(stretched(WAIT_SECONDS))
            assert not following.is_alive(), "the end of the session ends its stream"

        following = threading.Thread(target=lambda: client.run(follow), daemon=True)
        following.start()
        await_announcement()  # the stream is open
        for node in lan.nodes:
            body: JsonObject = {"effect": "deny", "pattern": "counter/slow"}
            rule = node.request("POST", "/api/policy/rules", body).json()["id"]
            try:
                await_announcement()
                assert "counter_slow" not in client.post({"id": 2, "method": "tools/list"}, **session).text
            finally:
                assert node.request("DELETE", f"/api/policy/rules/{rule}").status_code == 200
            await_announcement()
            assert "counter_slow" in client.post({"id": 2, "method": "tools/list"}, **session).text
        close()


@takes_long
@pytest.mark.parametrize("name", PROXIES)
def test_proxy_does_not_serve_the_owners_routes_and_token(lan: Lan, name: str, tmp_path: Path) -> None:
    skip_if_missing(name)
    with proxied(lan, name, tmp_path) as client:
        owner = f"Bearer {lan.nodes[0].token}"
        for path in ("/api/events", "/api/sessions", "/api/tools", "/"):
            refused = client.request("GET", path, authorization=owner)
            assert (refused.status_code, refused.json()["code"]) == (403, "auth.owner_local")
            for forged in ("127.0.0.1", "10.0.0.1, 127.0.0.1", "10.0.0.5"):
                again = client.request("GET", path, authorization=owner, x_forwarded_for=forged, x_real_ip=forged)
                assert again.status_code == 403, again.text
        for path in ("/api/events", "/api/sessions", "/api/settings"):
            assert client.request("GET", path).status_code == 404
        link = lan.nodes[0].request("POST", "/api/login").json()["url"].partition("/login")[2]
        refused = client.request("GET", f"/login{link}", authorization="")
        assert (refused.status_code, refused.json()["code"]) == (403, "auth.owner_local")


@takes_long
@pytest.mark.parametrize("name", PROXIES)
def test_restarting_node_behind_the_proxy_loses_and_repeats_no_call(lan: Lan, name: str, tmp_path: Path) -> None:
    skip_if_missing(name)
    with proxied(lan, name, tmp_path) as client:
        ended = threading.Event()
        statuses: dict[str, int] = {}

        def call() -> None:
            while not ended.wait(0.02):
                marker = f"{name} restart {len(statuses)}."
                try:
                    statuses[marker] = client.call(marker).status_code
                except httpx2.TransportError:
                    statuses[marker] = 0

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        wait_for(lambda: len(statuses) > 5)
        lan.nodes[0].stop()
        before = len(statuses)
        wait_for(lambda: len(statuses) > before + 5)
        lan.start(0)
        before = len(statuses)
        wait_for(lambda: len(statuses) > before + 5)
        ended.set()
        calling.join(stretched(30))
        calls = lan.played.calls
        assert all(calls.count(marker) <= 1 for marker in statuses)
        assert all(calls.count(marker) == 1 for marker, status in statuses.items() if status == 200)
        assert not any(calls.count(marker) for marker, status in statuses.items() if status == 502), (
            "it may be repeated"
        )
        assert list(statuses.values())[-3:] == [200] * 3
        refused = [status for status in statuses.values() if status != 200]
        assert len(refused) <= MOST_REFUSED[name], statuses


@takes_long
def test_node_accepts_no_connection_past_its_proxy(lan: Lan) -> None:
    def ask(**headers: str) -> int:
        passed = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx2.get("http://10.0.0.5:4242/api/tools", headers=passed, trust_env=False, timeout=30).status_code

    bearer = f"Bearer {lan.token}"
    assert lan.proxy.run(lambda: ask(authorization=bearer)) == 200
    for spoofed in ("127.0.0.1", "10.0.0.1", ""):
        forwarded = {"x_forwarded_for": spoofed, "x_real_ip": spoofed, "forwarded": f"for={spoofed}"} if spoofed else {}
        assert lan.client.run(lambda passed=forwarded: ask(authorization=bearer, **passed)) == 403
    assert lan.client.run(lambda: ask(toolcrib_node="forged", authorization=bearer)) == 403
