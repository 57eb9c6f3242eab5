"""MCP across nodes: any node continues what another started, in both eras."""

import json
import queue
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

import httpx2

from cluster.mcp_clients import call_tool, message
from cluster.nodes import WAIT_SECONDS, Cluster, ClusterNode, wait_for
from deadlines import stretched
from http_clients import PLAIN
from long_tests import takes_long
from toolcrib.model.json import Json, JsonObject

STREAM = "application/json, text/event-stream"
ELICITATION: JsonObject = {"elicitation": {}}


def create_token(node: ClusterNode, name: str = "ide") -> str:
    """Create a token that may approve its own calls, and return its secret."""
    made = node.request("POST", "/api/tokens", {"name": name, "mode": "default", "mayApprove": True})
    assert made.status_code == 201, made.text
    return made.json()["secret"]


class Legacy:
    """A legacy client that sends its requests to any node."""

    def __init__(self, node: ClusterNode, secret: str) -> None:
        self.secret = secret
        self.session = ""
        hello: JsonObject = {
            "protocolVersion": "2025-11-25",
            "capabilities": ELICITATION,
            "clientInfo": {"name": "test", "version": "1"},
        }
        response = self.post(node, {"id": 1, "method": "initialize", "params": hello})
        self.session = response.headers["mcp-session-id"]
        assert self.post(node, {"method": "notifications/initialized"}).status_code == 202

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        session = {"mcp-session-id": self.session} if self.session else {}
        return {"accept": STREAM, "mcp-protocol-version": "2025-11-25", **session}

    def post(self, node: ClusterNode, body: JsonObject) -> httpx2.Response:
        """Send one message."""
        return node.request("POST", "/mcp", {"jsonrpc": "2.0", **body}, token=self.secret, headers=self.headers)

    @contextmanager
    def stream(self, node: ClusterNode, method: str, body: Json = None) -> Generator["queue.Queue[JsonObject]"]:
        """Yield the messages of a stream as they arrive."""
        messages: queue.Queue[JsonObject] = queue.Queue()
        headers = {**self.headers, "authorization": f"Bearer {self.secret}"}
        with (
            httpx2.Client(base_url=node.url, verify=PLAIN, timeout=stretched(WAIT_SECONDS)) as client,
            client.stream(method, "/mcp", json=body, headers=headers) as response,
        ):
            assert response.status_code == 200, response.read()

            def read() -> None:
                with suppress(httpx2.HTTPError):  # the test closes the stream
                    for line in response.iter_lines():
                        if line.startswith("data:") and line.removeprefix("data:").strip():
                            messages.put(json.loads(line.removeprefix("data:")))

            threading.Thread(target=read, daemon=True).start()
            yield messages


@takes_long
def test_parked_call_is_resumed_on_another_node(cluster: Cluster) -> None:
    (first,) = cluster.start(1)
    secret = create_token(first)
    (second,) = cluster.start(1)
    asked = call_tool(first, "toolcrib_ping", {}, token=secret, capabilities=ELICITATION)
    assert asked["resultType"] == "input_required"
    (key,) = asked["inputRequests"]
    answers: JsonObject = {key: {"action": "accept", "content": {"decision": "approve"}}}
    more: JsonObject = {"requestState": asked["requestState"], "inputResponses": answers}
    result = call_tool(second, "toolcrib_ping", {}, token=secret, capabilities=ELICITATION, **more)
    assert result["structuredContent"]["status"] == "pong"


@takes_long
def test_legacy_session_works_on_every_node_until_its_client_ends_it(cluster: Cluster) -> None:
    (first,) = cluster.start(1)
    secret = create_token(first)
    (second,) = cluster.start(1)
    client = Legacy(first, secret)
    listed = [message(client.post(node, {"id": 2, "method": "tools/list"}))["tools"] for node in (first, second)]
    assert listed[0] == listed[1]

    call: JsonObject = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "toolcrib_ping"}}
    with client.stream(second, "POST", call) as messages:
        question = messages.get(timeout=stretched(WAIT_SECONDS))
        assert question["method"] == "elicitation/create"
        reply: JsonObject = {"action": "accept", "content": {"decision": "approve"}}
        assert client.post(first, {"id": question["id"], "result": reply}).status_code == 202
        answer = messages.get(timeout=stretched(WAIT_SECONDS))
        assert answer["result"]["structuredContent"]["status"] == "pong"

    with client.stream(second, "GET") as messages:
        first.request("POST", "/api/policy/rules", {"effect": "deny", "pattern": "toolcrib/ping"})
        changed = messages.get(timeout=stretched(WAIT_SECONDS))
        assert changed["method"] == "notifications/tools/list_changed"

    ended = second.request("DELETE", "/mcp", token=secret, headers=client.headers)
    assert ended.status_code in (200, 204), ended.text
    for node in (first, second):
        assert client.post(node, {"id": 4, "method": "tools/list"}).status_code == 404


def test_session_id_is_refused_for_another_token_and_when_altered(
    pair: tuple[ClusterNode, ClusterNode],
) -> None:
    first = pair[0]
    client = Legacy(first, create_token(first, "sealing"))
    session, own = client.session, client.secret
    other = create_token(first, "stealing")
    middle = len(session) // 2
    changed = session[:middle] + ("A" if session[middle] != "A" else "B") + session[middle + 1 :]
    for node in pair:
        for client.session, client.secret, status in ((session, own, 200), (session, other, 404), (changed, own, 404)):
            assert client.post(node, {"id": 2, "method": "tools/list"}).status_code == status


def test_forwarded_stream_ends_with_its_client(pair: tuple[ClusterNode, ClusterNode]) -> None:
    first, second = pair
    client = Legacy(first, create_token(first, "leaving"))
    with client.stream(second, "GET"):
        pass
    headers = {**client.headers, "authorization": f"Bearer {client.secret}"}

    def reopens() -> bool:
        with (
            httpx2.Client(base_url=second.url, verify=PLAIN, timeout=stretched(WAIT_SECONDS)) as http,
            http.stream("GET", "/mcp", headers=headers) as response,
        ):
            assert response.status_code in (200, 409), "409 until the first stream has ended"
            return response.status_code == 200

    wait_for(reopens)


def test_undone_change_reaches_a_client_that_listed_on_another_node(
    pair: tuple[ClusterNode, ClusterNode],
) -> None:
    first, second = pair
    client = Legacy(first, create_token(first, "listing"))
    body: JsonObject = {"effect": "deny", "pattern": "toolcrib/ping"}
    with client.stream(first, "GET") as messages:

        def await_announcement() -> None:
            while messages.get(timeout=stretched(WAIT_SECONDS))["method"] != "notifications/tools/list_changed":
                pass

        rule = second.request("POST", "/api/policy/rules", body).json()["id"]
        await_announcement()
        while not messages.empty():
            messages.get()
        # Within half a second, so that the first node compares the lists after both changes.
        assert second.request("DELETE", f"/api/policy/rules/{rule}").status_code == 200
        assert "toolcrib_ping" in client.post(second, {"id": 2, "method": "tools/list"}).text
        rule = second.request("POST", "/api/policy/rules", body).json()["id"]
        try:
            await_announcement()
        finally:
            second.request("DELETE", f"/api/policy/rules/{rule}")


def test_list_is_current_on_every_node(pair: tuple[ClusterNode, ClusterNode]) -> None:
    first, second = pair
    client = Legacy(first, create_token(first, "reading"))
    for changed, other in ((first, second), (second, first)) * 5:
        rule = changed.request("POST", "/api/policy/rules", {"effect": "deny", "pattern": "toolcrib/ping"}).json()["id"]
        assert "toolcrib_ping" not in client.post(other, {"id": 2, "method": "tools/list"}).text
        assert changed.request("DELETE", f"/api/policy/rules/{rule}").status_code == 200
        assert "toolcrib_ping" in client.post(other, {"id": 2, "method": "tools/list"}).text


@takes_long
def test_kept_result_is_read_on_another_node(cluster: Cluster) -> None:
    (first,) = cluster.start(1)
    made = first.request("POST", "/api/tokens", {"name": "ide"})
    secret = made.json()["secret"]
    (second,) = cluster.start(1)
    short = call_tool(first, "toolcrib_get_config", {}, token=secret, path="/mcp?result_tokens=50")
    handle = short["content"][0]["text"].partition("Handle: ")[2].split(". ")[0]
    assert handle.startswith("res_")
    read = call_tool(second, "read_result", {"handle": handle}, token=secret, path="/mcp?result_tokens=5000")
    assert not read.get("isError"), read
