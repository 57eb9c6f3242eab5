"""State shared by all nodes: the kill switch, accepted definitions of tools, and sign-ins."""

import threading

import httpx2

from cluster.conftest import APPROVAL_ADDRESS
from cluster.nodes import WAIT_SECONDS, ClusterNode, wait_for
from cluster.test_approvals import Calling, pending
from cluster.test_handles import create_token
from deadlines import stretched
from http_clients import PLAIN
from toolcrib.model.json import JsonObject

Pair = tuple[ClusterNode, ClusterNode]
POINT = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
GREETING: JsonObject = {"name": "Ada"}


def changes(node: ClusterNode, kind: str) -> list[JsonObject]:
    """Return the records of one kind of change."""
    found = node.request("GET", "/api/audit?server=toolcrib&limit=500").json()
    return [each for each in found if each.get("tool") == kind]


def state(node: ClusterNode) -> str:
    """Return the state of a node's kill switch."""
    return node.request("GET", "/api/status").json()["state"]


class HeldCall:
    """A call in flight, made in a thread."""

    def __init__(self, node: ClusterNode, name: str) -> None:
        self.answer: httpx2.Response | None = None
        self._started = node.home / f"{name} started"
        arguments = {"started": str(self._started), "until": str(node.home / f"{name} never")}
        self._thread = threading.Thread(target=self._call, args=(node, arguments), daemon=True)
        self._thread.start()
        wait_for(self._started.exists)

    def _call(self, node: ClusterNode, arguments: JsonObject) -> None:
        self.answer = node.call("lab/hold", arguments)

    def code(self) -> str:
        """Return the error code of the call."""
        self._thread.join(stretched(WAIT_SECONDS))
        assert self.answer is not None
        return self.answer.json()["code"]


def test_stop_all_binds_at_the_next_call_on_every_node_until_a_node_resumes(pair: Pair) -> None:
    first, second = pair
    token = create_token(first, name="stopped", mode="acceptEdits", source="api")
    for number, (here, there) in enumerate(((first, second), (second, first))):
        holding = HeldCall(there, f"stop {number}")
        stopped = here.shell.json("stop-all", "--reason", "Something is odd.")
        assert (stopped["state"], stopped["confirmed"]) == ("stopped", True)
        refused = there.decided_call("lab/greet", GREETING)
        assert (refused.status_code, refused.json()["code"]) == (403, "crib.stopped")
        assert holding.code() == "crib.stopped"
        wait_for(lambda: state(there) == "stopped")  # noqa: B023 called within this iteration
        for node in pair:
            assert node.request("GET", "/api/tools", token=token).json()["code"] == "crib.stopped"
        assert there.shell.json("resume-all")["state"] == "running"
        for node in (here, there):
            assert node.decided_call("lab/greet", GREETING).status_code == 200
            assert node.decided_call("lab/greet", GREETING, token=token).status_code == 200
        assert not any((node.home / "stopped").exists() for node in pair)
    for kind in ("crib.stop", "crib.resume"):
        assert len([each for each in changes(first, kind) if each["phase"] == "outcome"]) == 2
    assert first.request("DELETE", "/api/tokens/stopped").status_code == 200


def become(node: ClusterNode, way: str) -> None:
    """Change the tool definition of one node's server, and have the node list it again."""
    wait_for(lambda: node.decided_call("changing_tools/become", {"way": way}).status_code == 200)
    assert node.shell.run("mcp", "test", "changing_tools").returncode == 0


def held(node: ClusterNode) -> list[str]:
    """Return the hashes of held definitions."""
    return [each["hash"] for each in node.request("GET", "/api/tools/changes").json()]


def test_judged_definitions_bind_at_the_next_call_on_every_node(pair: Pair) -> None:
    first, second = pair
    for node in pair:
        become(node, "plain")
        wait_for(lambda: node.decided_call("changing_tools/tool", {}).status_code == 200)  # noqa: B023 called within this iteration
    become(first, "reworded")
    for node in pair:
        assert node.decided_call("changing_tools/tool", {}).status_code in (403, 404), (
            "one node has seen a poisoned definition"
        )
    (poisoned,) = held(second)
    rejected = second.request("POST", "/api/tools/changing_tools/tool/reject", {"hash": poisoned})
    assert rejected.status_code == 200, rejected.text
    assert second.decided_call("changing_tools/tool", {}).status_code == 200, "its own server has the pinned definition"
    assert first.decided_call("changing_tools/tool", {}).status_code in (403, 404)
    accepted = second.request("POST", "/api/tools/changing_tools/tool/accept", {"hash": poisoned})
    assert accepted.status_code == 200, accepted.text
    assert first.decided_call("changing_tools/tool", {}).json()["content"][0]["text"] == "called reworded"
    assert second.decided_call("changing_tools/tool", {}).status_code in (403, 404), (
        "its own server has another definition"
    )
    become(second, "reworded")
    wait_for(lambda: second.decided_call("changing_tools/tool", {}).status_code == 200)
    assert first.decided_call("changing_tools/tool", {}).status_code == 200


def browse(node: ClusterNode, method: str, path: str, cookie: str | None = None, **headers: str) -> httpx2.Response:
    """Send a browser's request, without a token."""
    with httpx2.Client(base_url=node.url, verify=PLAIN, timeout=stretched(WAIT_SECONDS)) as client:
        given = {"origin": node.url, **({} if cookie is None else {"cookie": cookie}), **headers}
        return client.request(method, path, headers=given)


def test_login_link_and_cookie_work_on_every_node_until_sign_out(pair: Pair) -> None:
    first, second = pair
    link = first.request("POST", "/api/login").json()["url"].partition("/login")[2]
    signed_in = browse(second, "GET", f"/login{link}")
    assert signed_in.status_code == 303, signed_in.text
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    for node in pair:
        assert browse(node, "GET", f"/login{link}").status_code == 401, "a link works once"
        assert browse(node, "GET", "/api/status", cookie).status_code == 200
        assert browse(node, "GET", "/api/status", f"{cookie}x").status_code == 401
    assert browse(first, "POST", "/logout", cookie, origin="http://evil.example").status_code == 403
    assert browse(first, "POST", "/logout", cookie).status_code == 200
    for node in pair:
        assert browse(node, "GET", "/api/status", cookie).status_code == 401


def test_push_subscription_is_known_to_all_nodes_until_sign_out(pair: Pair) -> None:
    first, second = pair
    link = first.request("POST", "/api/login").json()["url"].partition("/login")[2]
    cookie = browse(first, "GET", f"/login{link}").headers["set-cookie"].partition(";")[0]
    keys = {"p256dh": POINT, "auth": "BTBZMqHH6r4Tts7J_aSIgg"}
    with httpx2.Client(verify=PLAIN, timeout=stretched(WAIT_SECONDS)) as client:
        headers = {"origin": first.url, "cookie": cookie}
        shape = {"endpoint": "https://push.example/a", "keys": keys}
        assert client.post(f"{first.url}/notifications", json=shape, headers=headers).status_code == 201
    sending = [browse(node, "POST", "/notifications/key", cookie).json()["key"] for node in pair]
    assert sending[0] == sending[1]
    for node in pair:
        assert len(browse(node, "GET", "/settings", cookie, accept="application/json").json()["browsers"]) == 1
    assert browse(second, "POST", "/logout", cookie).status_code == 200
    assert "push.example" not in first.request("GET", "/settings").text


def test_approval_link_of_one_node_answers_once_on_another(pair: Pair) -> None:
    first, second = pair
    secret = create_token(first, name="linked", source="api")
    calling = Calling(first, secret)
    (approval,) = wait_for(lambda: pending(first))
    url = first.request("POST", f"/api/approvals/{approval['id']}/link").json()["url"]
    path, host = url.removeprefix(APPROVAL_ADDRESS), APPROVAL_ADDRESS.partition("://")[2]

    def answer(node: ClusterNode) -> int:
        with httpx2.Client(base_url=node.url, verify=PLAIN, timeout=stretched(WAIT_SECONDS)) as client:
            headers = {"host": host, "origin": APPROVAL_ADDRESS}
            return client.post(path, data={"decision": "approve"}, headers=headers).status_code

    assert answer(second) == 200
    assert calling.status() == 200
    assert [answer(node) for node in pair] == [409, 409]
    assert first.request("DELETE", "/api/tokens/linked").status_code == 200


def test_disabled_and_untrusted_servers_bind_at_the_next_call_on_every_node(pair: Pair) -> None:
    first, second = pair
    wait_for(lambda: second.decided_call("changing_tools/become", {"way": "plain"}).status_code == 200)
    assert first.request("POST", "/api/servers/changing_tools/disable").status_code == 200
    assert second.decided_call("changing_tools/become", {"way": "plain"}).status_code != 200
    assert second.request("POST", "/api/servers/changing_tools/enable").status_code == 200
    wait_for(lambda: first.decided_call("changing_tools/become", {"way": "plain"}).status_code == 200)
