"""Signatures of requests between nodes: valid for one request and one receiver, once, and briefly."""

import pytest

from toolcrib.model.errors import Denied
from toolcrib.nodes.forwarding import VALID_SECONDS, RequestSigner
from unit.clock import Clock

KEY = b"k" * 32
CALLER = {"source": "api"}


def sign(clock: Clock, *, key: bytes = KEY, to: str = "b", body: bytes = b"{}", epoch: int = 7) -> str:
    """Return a signature of node a."""
    signer = RequestSigner(key, "a", clock)
    return signer.sign(to=to, method="POST", target="/x?y=1", body=body, caller=CALLER, epoch=epoch)


def test_signature_is_accepted_once_and_states_the_caller() -> None:
    clock = Clock()
    receiver, header = RequestSigner(KEY, "b", clock), sign(clock)
    signed = receiver.verify(header, method="POST", target="/x?y=1")
    assert (signed.node, signed.caller) == ("a", CALLER)
    with pytest.raises(Denied, match="sent twice"):
        receiver.verify(header, method="POST", target="/x?y=1")


def test_restarted_node_refuses_earlier_signatures() -> None:
    clock = Clock()
    header = sign(clock, epoch=7)
    RequestSigner(KEY, "b", clock, since=7).verify(header, method="POST", target="/x?y=1")
    with pytest.raises(Denied, match="before this node started"):
        RequestSigner(KEY, "b", clock, since=9).verify(header, method="POST", target="/x?y=1")
    later = sign(clock, epoch=10)  # node a lost its lease and has a new one
    assert RequestSigner(KEY, "b", clock, since=9).verify(later, method="POST", target="/x?y=1").node == "a"


@pytest.mark.parametrize(("method", "target"), [("GET", "/x?y=1"), ("POST", "/x"), ("POST", "/x?y=2")])
def test_signature_of_another_request_is_refused(method: str, target: str) -> None:
    clock = Clock()
    with pytest.raises(Denied, match="another request"):
        RequestSigner(KEY, "b", clock).verify(sign(clock), method=method, target=target)


def test_signature_for_another_node_is_refused() -> None:
    clock = Clock()
    with pytest.raises(Denied, match="another request"):
        RequestSigner(KEY, "c", clock).verify(sign(clock), method="POST", target="/x?y=1")


@pytest.mark.parametrize("offset", [-VALID_SECONDS - 1, VALID_SECONDS + 1])
def test_signature_is_refused_if_too_old_or_from_the_future(offset: float) -> None:
    clock, header = Clock(), sign(Clock())
    clock.now += offset
    with pytest.raises(Denied, match="expired"):
        RequestSigner(KEY, "b", clock).verify(header, method="POST", target="/x?y=1")


@pytest.mark.parametrize("offset", [-5.0, 5.0])
def test_clocks_may_differ_by_a_few_seconds(offset: float) -> None:
    clock, header = Clock(), sign(Clock())
    clock.now += offset
    assert RequestSigner(KEY, "b", clock).verify(header, method="POST", target="/x?y=1").node == "a"


def test_signature_with_another_secret_or_changed_text_is_refused() -> None:
    clock = Clock()
    header = sign(clock)
    changed = ("A" if header[60] != "A" else "B").join((header[:60], header[61:]))
    for wrong in (sign(clock, key=b"x" * 32), changed, "", "nonsense", header + "=", "é"):
        with pytest.raises(Denied, match="not signed"):
            RequestSigner(KEY, "b", clock).verify(wrong, method="POST", target="/x?y=1")
