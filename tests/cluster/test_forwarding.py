"""Requests between nodes are accepted only with a valid signature, their own body, and once."""

from cluster.nodes import SECRET, Cluster
from integration.store.databases import fetch_rows
from long_tests import takes_long
from toolcrib.nodes.cluster_secret import SIGNATURE_HEADER, ClusterSecret
from toolcrib.nodes.forwarding import KEY_PURPOSE, RequestSigner


@takes_long
def test_node_accepts_a_signed_request_with_its_own_body_once(cluster: Cluster) -> None:
    (node,) = cluster.start(1)
    ((id, epoch),) = fetch_rows(cluster.database, "SELECT id, epoch FROM nodes")
    signer = RequestSigner(ClusterSecret(SECRET.encode()).key(KEY_PURPOSE), "another")
    path, body = "/api/policy/rules", b'{"effect":"deny","pattern":"toolcrib/ping"}'

    def signed(sent: bytes) -> dict[str, str]:
        value = signer.sign(to=id, method="POST", target=path, body=sent, caller={"source": "api"}, epoch=epoch)
        return {SIGNATURE_HEADER: value, "authorization": "", "content-type": "application/json"}

    headers = signed(body)
    made = node.request("POST", path, {"effect": "deny", "pattern": "toolcrib/ping"}, headers=headers)
    assert made.status_code == 201, made.text
    again = node.request("POST", path, {"effect": "deny", "pattern": "toolcrib/ping"}, headers=headers)
    assert (again.status_code, again.json()["code"]) == (403, "node.refused")
    changed = node.request("POST", path, {"effect": "allow", "pattern": "toolcrib/ping"}, headers=signed(body))
    assert (changed.status_code, changed.json()["code"]) == (403, "node.refused")
    stranger = RequestSigner(b"x" * 32, "another")
    forged = stranger.sign(to=id, method="GET", target=path, body=b"", caller={}, epoch=epoch)
    refused = node.request("GET", path, headers={SIGNATURE_HEADER: forged})
    assert (refused.status_code, refused.json()["code"]) == (403, "node.refused")
    assert len(node.request("GET", path).json()) == 1
    node.kill()
    restarted = cluster.launch(node.shell)
    cluster.await_ready(restarted)
    replayed = restarted.request("POST", path, {"effect": "deny", "pattern": "toolcrib/ping"}, headers=headers)
    assert (replayed.status_code, replayed.json()["code"]) == (403, "node.refused")
