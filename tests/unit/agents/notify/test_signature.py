"""Signatures of webhooks, against the example of the Standard Webhooks specification."""

from toolcrib.agents.notify.delivery import sign


def test_signature_matches_the_example_of_the_specification() -> None:
    headers = sign(
        b'{"test": 2432232314}',
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=1614265330,
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_each_signature_has_its_own_id_for_a_plain_text_secret() -> None:
    one, other = sign(b"x", "plain secret of text"), sign(b"x", "plain secret of text")
    assert one["webhook-id"] != other["webhook-id"]
    assert one["webhook-signature"] != other["webhook-signature"]
