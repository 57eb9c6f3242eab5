"""Handles and questions over nodes: opened on one, answered and fetched on others, also after the first was killed."""

import threading

import httpx2

from cluster.mcp_clients import call_tool
from cluster.nodes import WAIT_SECONDS, Cluster, ClusterNode, wait_for
from cluster.test_approvals import pending
from deadlines import stretched
from long_tests import takes_long
from toolcrib.model.json import JsonObject
from toolcrib.model.protocol import APPROVAL_KEY


def fetch(node: ClusterNode, secret: str, handle: str = "handle", **arguments: bool) -> JsonObject:
    """What a client with a handle gets."""
    return call_tool(
        node,
        "toolcrib_get_server_info",
        {"include_uptime": False, **arguments},
        token=secret,
        meta={APPROVAL_KEY: handle},
    )


def create_token(node: ClusterNode, **how: str) -> str:
    """The secret of a new token whose calls need approval."""
    made = node.request("POST", "/api/tokens", {"name": "asker", "mode": "default", **how})
    assert made.status_code == 201, made.text
    return made.json()["secret"]


def answer(node: ClusterNode, id: str) -> None:
    """Approve a call."""
    response = node.request("POST", f"/api/approvals/{id}", {"decision": "approve"})
    assert response.status_code == 200, response.text


@takes_long
def test_handle_is_fetched_once_on_any_node_also_when_its_own_was_killed(cluster: Cluster) -> None:
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
    # The node that opened it learns of the answer by a signal, and reports it as pending until then.
    wait_for(lambda: "already used" in fetch(first, secret, id)["content"][0]["text"])

    id = fetch(first, secret)["structuredContent"]["approvalId"]
    first.kill()
    answer(second, id)
    assert fetch(third, secret, id)["structuredContent"]["product"] == "Toolcrib"
    assert "already used" in fetch(second, secret, id)["content"][0]["text"]


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
