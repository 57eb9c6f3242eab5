"""Permissions across nodes: a change on one node binds at the next call on every other node."""

from cluster.nodes import Cluster, ClusterNode, wait_for
from e2e.shell import Shell
from long_tests import takes_long
from toolcrib.store.audit_lanes import LANE_SIZE

LIMITS = """
[[limits]]
pattern = "lab/greet"
calls = 3
seconds = 600
"""
GREETING = {"name": "Ada"}
ROUNDS = 5


def deny(node: ClusterNode) -> str:
    added = node.request("POST", "/api/policy/rules", {"effect": "deny", "pattern": "lab/greet"})
    assert added.status_code == 201, added.text
    return added.json()["id"]


def new_token(node: ClusterNode, name: str) -> str:
    made = node.request("POST", "/api/tokens", {"name": name, "source": "api", "mode": "acceptEdits"})
    assert made.status_code == 201, made.text
    return made.json()["secret"]


def test_deny_rule_and_token_revocation_bind_at_the_next_call_on_every_node(cluster: Cluster) -> None:
    first, second = cluster.start(2)
    for number in range(ROUNDS):
        rule = deny(first)
        refused = second.decided_call("lab/greet", GREETING)
        assert (refused.status_code, refused.json()["code"]) == (403, "policy.denied")
        assert first.request("DELETE", f"/api/policy/rules/{rule}").status_code == 200
        assert second.decided_call("lab/greet", GREETING).status_code == 200, "what is allowed counts at once, too"
        token = new_token(first, f"robot{number}")
        assert second.decided_call("lab/greet", GREETING, token=token).status_code == 200, (
            "a new token is known at once"
        )
        assert first.request("DELETE", f"/api/tokens/robot{number}").status_code == 200
        assert second.decided_call("lab/greet", GREETING, token=token).status_code in (401, 403)
    restricted = first.request("POST", "/api/agents", {"id": "r", "name": "R", "toolPermissions": []})
    assert restricted.status_code == 201, restricted.text
    for number in range(ROUNDS):
        allowed = ["lab/greet"] if number % 2 else []
        assert first.request("PATCH", "/api/agents/r", {"toolPermissions": allowed}).status_code == 200
        called = second.request("POST", "/api/tools/lab/greet/call?agent=r&mode=acceptEdits", {"arguments": GREETING})
        assert called.status_code == (200 if allowed else 403), called.text
    lanes = {record["id"] // LANE_SIZE for record in first.request("GET", "/api/audit?limit=100").json()}
    assert len(lanes) == 2, "each node writes its own lane"
    newest = wait_for(lambda: first.shell.json("audit", "--phase", "checkpoint"))[0]
    assert {head["lane"] for head in newest["heads"]} <= lanes
    for node in (first, second):
        verified = node.request("GET", "/api/audit/verify").json()
        assert verified["ok"], verified


@takes_long
def test_limits_and_failed_sign_ins_count_across_nodes(cluster: Cluster) -> None:
    shells = [cluster.shell(number) for number in range(2)]
    for shell in shells:
        limit(shell)
    first, second = nodes = [cluster.launch(shell) for shell in shells]
    for node in nodes:
        cluster.await_ready(node)
    token = new_token(first, "robot")
    answers = [node.decided_call("lab/greet", GREETING, token=token) for node in (first, second, first, second, first)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[-1].json()["code"] == "limit.reached"
    wrong = [node.decided_call("lab/greet", GREETING, token="wrong").status_code for node in (first, second) * 12]
    assert wrong[:20] == [401] * 20
    assert wrong[-1] == 429


def limit(shell: Shell) -> None:
    (shell.home / "toolcrib.toml").write_text(LIMITS, encoding="utf-8")
