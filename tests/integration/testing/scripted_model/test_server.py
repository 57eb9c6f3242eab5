"""The scripted model over HTTP: replies, streams, errors, hung and aborted requests, and its shutdown."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from deadlines import stretched
from http_clients import PLAIN
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import Json, JsonObject
from toolcrib.testing.scripted_model.server import ScriptedModel

LONG = "a sentence of several words"


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def body(script: str, **more: Json) -> JsonObject:
    return {"model": "m", "messages": [{"role": "user", "content": f"[[script:{script}]]"}], **more}


def post(model: ScriptedModel, given: JsonObject, path: str = "/v1/messages?beta=true") -> httpx2.Response:
    return httpx2.post(model.url + path, json=given, timeout=stretched(10), trust_env=False, verify=PLAIN)


def wait_for_request(model: ScriptedModel) -> None:
    """Wait until the model has received a request."""
    deadline = time.monotonic() + stretched(10)
    while not model.requests:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def events(response: httpx2.Response) -> list[JsonObject]:
    blocks = response.text.strip().split("\n\n")
    return [json.loads(block.split("data: ", 1)[1]) for block in blocks]


def test_reply_is_sent_whole_or_streamed(scripted_model: ScriptedModel) -> None:
    scripted_model.scripts["s"] = [{"blocks": [{"text": LONG}], "chunk": 5}]
    whole = post(scripted_model, body("s"))
    assert (whole.status_code, whole.json()["content"]) == (200, [{"type": "text", "text": LONG}])
    streamed = post(scripted_model, body("s", stream=True))
    assert streamed.headers["content-type"] == "text/event-stream"
    streamed_events = events(streamed)
    assert [streamed_events[0]["type"], streamed_events[-1]["type"]] == ["message_start", "message_stop"]
    assert "".join(event["delta"].get("text", "") for event in streamed_events if "delta" in event) == LONG


def test_every_request_is_recorded_with_its_kind_script_and_tools(scripted_model: ScriptedModel) -> None:
    scripted_model.scripts["s"] = [{"blocks": [{"text": "a"}]}]
    given = body("s", tools=[{"name": "a"}, {"name": "b", "defer_loading": True}])
    post(scripted_model, given)
    post(scripted_model, {"messages": [{"role": "user", "content": "A title, please."}]})
    main_request, title_request = scripted_model.requests
    assert (main_request.method, main_request.path, main_request.kind) == ("POST", "/v1/messages?beta=true", "main")
    assert (main_request.script, main_request.step, main_request.model) == ("s", 0, "m")
    assert (main_request.tools, main_request.deferred) == (("a", "b"), ("b",))
    assert scripted_model.background == [title_request]
    assert scripted_model.bodies[0] == given


def test_other_routes_of_the_api_are_answered(scripted_model: ScriptedModel) -> None:
    assert post(scripted_model, body("s"), "/v1/messages/count_tokens").json()["input_tokens"] > 0
    assert httpx2.get(f"{scripted_model.url}/v1/models", trust_env=False, verify=PLAIN).json() == {
        "data": [],
        "has_more": False,
    }
    assert httpx2.head(scripted_model.url, trust_env=False, verify=PLAIN).status_code == 200
    missing = post(scripted_model, {}, "/v1/batches")
    assert (missing.status_code, missing.json()["error"]["type"]) == (404, "not_found_error")
    assert len(scripted_model.background) == 4
    assert scripted_model.bodies == []


def test_scripted_status_and_unknown_script_are_api_errors(scripted_model: ScriptedModel) -> None:
    scripted_model.scripts["s"] = [{"status": 529, "error": "overloaded_error", "message": "Later."}]
    refused = post(scripted_model, body("s", stream=True))
    assert refused.status_code == 529
    assert refused.json() == {"type": "error", "error": {"type": "overloaded_error", "message": "Later."}}
    unknown = post(scripted_model, body("typo"))
    assert unknown.status_code == 400
    assert "`typo`" in unknown.json()["error"]["message"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_malformed_request_is_refused_and_the_server_continues(scripted_model: ScriptedModel, content: bytes) -> None:
    refused = httpx2.post(f"{scripted_model.url}/v1/messages", content=content, trust_env=False, verify=PLAIN)
    assert (refused.status_code, refused.json()["error"]["type"]) == (400, "invalid_request_error")
    assert post(scripted_model, {"messages": 3}).json()["content"] == [{"type": "text", "text": "ok"}]


def test_request_without_a_length_is_refused(scripted_model: ScriptedModel) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"{}"

    refused = httpx2.post(f"{scripted_model.url}/v1/messages", content=pieces(), trust_env=False, verify=PLAIN)
    assert refused.status_code == 400


def test_cut_reply_ends_in_its_first_block(scripted_model: ScriptedModel) -> None:
    scripted_model.scripts["s"] = [{"blocks": [{"text": LONG}, {"text": "never"}], "cut": True}]
    received = b""
    with (
        pytest.raises(httpx2.RemoteProtocolError),
        httpx2.stream("POST", f"{scripted_model.url}/v1/messages", json=body("s", stream=True)) as response,
    ):
        for piece in response.iter_bytes():
            received += piece
    assert b"rds" in received
    assert b"content_block_stop" not in received
    with pytest.raises(httpx2.RemoteProtocolError):
        post(scripted_model, body("s"))


def test_reply_takes_the_scripted_delays(scripted_model: ScriptedModel) -> None:
    scripted_model.scripts["s"] = [{"blocks": [{"text": "abc"}], "delay_ms": 60, "chunk": 1, "chunk_delay_ms": 30}]
    started = time.monotonic()
    post(scripted_model, body("s", stream=True))
    assert time.monotonic() - started >= 0.15


def test_connection_is_closed_after_a_scripted_hang(scripted_model: ScriptedModel) -> None:
    scripted_model.scripts["s"] = [{"hang_s": 0.05}]
    with pytest.raises(httpx2.RemoteProtocolError):
        post(scripted_model, body("s"))


@pytest.mark.parametrize(
    "step",
    [
        {"hang_s": 3600},
        {"blocks": [{"text": "a"}], "delay_ms": 3_600_000},
        {"blocks": [{"text": LONG}], "chunk": 1, "chunk_delay_ms": 3_600_000},
    ],
)
def test_closing_does_not_wait_for_running_scripts(step: JsonObject) -> None:
    with ThreadPoolExecutor(1) as executor:
        with ScriptedModel({"s": [step]}) as model:
            main_request = executor.submit(post, model, body("s", stream=True))
            wait_for_request(model)
            started = time.monotonic()
        assert time.monotonic() - started < stretched(5)
        assert isinstance(main_request.exception(timeout=stretched(5)), httpx2.TransportError)


def test_closing_ends_idle_connections() -> None:
    with ScriptedModel() as model:
        address = model.url
        idle = socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])), timeout=10)
        idle.sendall(b"GET / HTTP/1.1\r\nhost: model\r\n\r\n")
        answer = b""
        while not answer.endswith(b"{}"):
            answer += idle.recv(1000)
    with idle:
        assert idle.recv(1) == b""
    with pytest.raises(httpx2.TransportError):
        httpx2.get(address, trust_env=False, verify=PLAIN)
    with pytest.raises(RuntimeError, match="not open"):
        _ = model.url


def test_aborted_client_leaves_no_error_and_others_are_served(
    scripted_model: ScriptedModel, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    scripted_model.scripts["s"] = [{"blocks": [{"text": "x" * 3_000_000}], "chunk": 1000}]
    for received in (0, 10, 5000):
        with httpx2.stream("POST", f"{scripted_model.url}/v1/messages", json=body("s", stream=True)) as response:
            next(response.iter_bytes(max(1, received)))
    port = int(scripted_model.url.rsplit(":", 1)[1])
    for sent in (b"", b"POST /v1/messages HTTP/1.1\r\ncontent-length: 99\r\n\r\n{", b"nonsense\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", port)) as raw:
            raw.sendall(sent)
    assert post(scripted_model, {"messages": []}).status_code == 200
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_concurrent_requests_receive_their_own_replies(scripted_model: ScriptedModel) -> None:
    names = [f"s{number}" for number in range(64)]
    for name in names:
        scripted_model.scripts[name] = [{"blocks": [{"text": name}], "delay_ms": 20}]

    with (
        httpx2.Client(base_url=scripted_model.url, trust_env=False, verify=PLAIN) as client,
        ThreadPoolExecutor(32) as executor,
    ):

        def ask(name: str) -> str:
            return client.post("/v1/messages", json=body(name)).json()["content"][0]["text"]

        assert list(executor.map(ask, names)) == names
    assert len(scripted_model.requests) == 64


def test_invalid_script_is_refused_before_the_server_starts() -> None:
    with pytest.raises(ConfigError) as caught:
        ScriptedModel({"s": [{"bloks": []}]})
    assert caught.value.code == "script.invalid"
