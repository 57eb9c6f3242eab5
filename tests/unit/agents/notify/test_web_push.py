"""Push messages are encrypted and signed as RFC 8291 and RFC 8292 describe."""

import base64

import orjson
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from toolcrib.agents.notify.web_push import BrowserKeys, PushKey, decode64, encode64, encrypt
from toolcrib.model.errors import InvalidRequest

POINT = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
AUTH = "BTBZMqHH6r4Tts7J_aSIgg"


def test_encrypted_message_matches_appendix_a_of_rfc_8291() -> None:
    sender = PushKey.of_text("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw").private
    salt = decode64("DGv6ra1nlYgDCS1FRnbzlw")
    body = encrypt(b"When I grow up, I want to be a watermelon", BrowserKeys.of_text(POINT, AUTH), salt, sender)
    assert encode64(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
        "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_vapid_token_names_the_service_and_verifies_with_the_public_key() -> None:
    key = PushKey.of_text(PushKey.new().text)
    scheme, _, parameters = key.authorization("https://push.example", "mailto:a@example.com", 1_000.0).partition(" ")
    token, public = parameters.removeprefix("t=").split(", k=")
    head, claims, signature = token.split(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    known = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode64(public))
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    known.verify(der, f"{head}.{claims}".encode(), ec.ECDSA(hashes.SHA256()))
    assert (scheme, public, len(raw)) == ("vapid", key.public, 64)
    assert orjson.loads(decode64(head)) == {"typ": "JWT", "alg": "ES256"}
    expected = {"aud": "https://push.example", "exp": 1_000 + 12 * 3_600, "sub": "mailto:a@example.com"}
    assert orjson.loads(decode64(claims)) == expected


@pytest.mark.parametrize(
    ("point", "auth"),
    [
        ("", AUTH),
        (POINT, ""),
        (POINT[:-4], AUTH),
        (POINT.replace("B", "C", 1), AUTH),
        (POINT, AUTH + "AAAA"),
        ("ü", AUTH),
    ],
)
def test_invalid_browser_keys_are_rejected(point: str, auth: str) -> None:
    with pytest.raises(InvalidRequest, match="not valid"):
        BrowserKeys.of_text(point, auth)
