"""Handles and questions across nodes: created on one, answered and fetched on others, even if the first was killed."""

import re
import threading

import httpx2

from cluster.mcp_clients import call_tool
from cluster.nodes import WAIT_SECONDS, Cluster, ClusterNode, wait_for
from cluster.test_approvals import pending
from deadlines import stretched
from integration.store.databases import fetch_rows
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import APPROVAL_KEY, CAPABILITIES_KEY, MODERN_VERSION, VERSION_KEY


def fetch(node: ClusterNode, secret: str, handle: str = "handle", **arguments: bool) -> JsonObject:
    """Return the result for a client with a handle."""
    return call_tool(
        node,
        "toolcrib_get_server_info",
        {"include_uptime": False, **arguments},
        token=secret,
        meta={APPROVAL_KEY: handle},
    )


def create_token(node: ClusterNode, **how: str) -> str:
    """Create a token whose calls need approval, and return its secret."""
    made = node.request("POST", "/api/tokens", {"name": "asker", "mode": "default", **how})
    assert made.status_code == 201, made.text
    return made.json()["secret"]


def answer(node: ClusterNode, id: str) -> None:
    """Approve a call."""
    response = node.request("POST", f"/api/approvals/{id}", {"decision": "approve"})
    assert response.status_code == 200, response.text


@takes_long
def test_handle_is_fetched_once_on_any_node_even_after_its_node_was_killed(cluster: Cluster) -> None:
    (first,) = cluster.start(1)
    secret = create_token(first)
    second, third = cluster.start(2)
    id = fetch(first, secret)["structuredContent"]["approvalId"]
    assert [each["id"] for each in wait_for(lambda: pending(second))] == [id]
    assert fetch(second, secret)["structuredContent"]["approvalId"] == id, "the same call reuses the approval"
    assert fetch(second, secret, id)["structuredContent"]["status"] == "waiting"
    other_call = fetch(second, secret, id, include_uptime=True)
    assert "does not belong to this call" in other_call["content"][0]["text"]
    answer(third, id)
    assert fetch(second, secret, id)["structuredContent"]["product"] == "Toolcrib"
    for node in (second, third):
        assert "already used" in fetch(node, secret, id)["content"][0]["text"]
    # The node that opened it receives the answer by a signal, and reports it as pending until then.
    wait_for(lambda: "already used" in fetch(first, secret, id)["content"][0]["text"])

    id = fetch(first, secret)["structuredContent"]["approvalId"]
    first.kill()
    answer(second, id)
    assert fetch(third, secret, id)["structuredContent"]["product"] == "Toolcrib"
    assert "already used" in fetch(second, secret, id)["content"][0]["text"]


def read_on(node: ClusterNode, secret: str, handle: str, **how: str | int) -> str:
    """Return the text of `read_result`."""
    result = call_tool(node, "read_result", {"handle": handle, **how}, token=secret)
    return result["content"][0]["text"]


@takes_long
def test_shortened_result_is_read_on_any_node_by_its_caller_only(cluster: Cluster) -> None:
    (first,) = cluster.start(1)
    secret = create_token(first, mode="acceptEdits")
    other = create_token(first, name="other", mode="acceptEdits")
    (second,) = cluster.start(1)
    name = "\n".join(f"line {number}" for number in range(2_000))
    shortened = call_tool(first, "lab_greet", {"name": name}, token=secret, path="/mcp?result_tokens=500")
    handle = re.search(r"res_[\w-]+", shortened["content"][0]["text"])
    assert handle is not None
    assert "line 1234" in read_on(second, secret, handle[0], grep="line 1234")
    wait_for(lambda: "read_result" in listed(second, secret))
    assert "read_result" not in listed(second, other)
    assert "no such result" in read_on(second, other, handle[0])
    (body,) = fetch_rows(cluster.database, "SELECT body FROM kept_results")[0]
    assert b"line 1234" not in bytes(body), "it is stored encrypted"
    first.kill()
    (third,) = cluster.start(1)
    assert "line 1999" in read_on(third, secret, handle[0], lines="1990-")


def listed(node: ClusterNode, secret: str) -> str:
    """Return the tools that a client may list, as text."""
    headers = {"mcp-protocol-version": MODERN_VERSION, "mcp-method": "tools/list"}
    headers["accept"] = "application/json, text/event-stream"
    params: JsonObject = {"_meta": {VERSION_KEY: MODERN_VERSION, CAPABILITIES_KEY: {}}}
    body: JsonObject = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
    return node.request("POST", "/mcp", body, token=secret, headers=headers).text


@takes_long
def test_question_of_an_agent_is_listed_and_answered_on_another_node(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    results: list[httpx2.Response] = []
    asking = threading.Thread(
        target=lambda: results.append(first.call("crew/crib_ask_owner", {"question": "Ready?"})), daemon=True
    )
    asking.start()
    (question,) = wait_for(lambda: [each for each in pending(second) if each["kind"] == "question"])
    text = question["questions"][0]["question"]
    answered = second.request("POST", f"/api/approvals/{question['id']}/answers", {"answers": {text: "Aye."}})
    assert answered.status_code == 200, answered.text
    asking.join(stretched(WAIT_SECONDS))
    assert results[0].json()["structuredContent"] == {"answer": "Aye."}
    for node in (first, second):
        assert pending(node) == []
        late = node.request("POST", f"/api/approvals/{question['id']}/answers", {"answers": {text: "No."}})
        assert (late.status_code, late.json()["code"]) == (409, "question.answered")
