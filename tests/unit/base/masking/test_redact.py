"""Arguments as audit records show them: no secret, a bounded size, and otherwise unchanged."""

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.base.masking import MASK
from toolcrib.base.masking.values import SHOWN_BYTES, mask, shown
from toolcrib.model.json import canonical

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def show(arguments: Any) -> Any:
    return orjson.loads(shown(arguments, canonical(arguments)))


LONG = "abcdefghij" * 4
SECRETS = [
    "Bearer abc.def-123",
    "bearer x",
    "Authorization: Basic dXNlcjpwYXNz",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
    "https://user:hunter22@example.org/path",
    "https://example.org/?access_token=hunter22&x=1",
    "PASSWORD=hunter22 make",
    '{"password": "hunter22"}',
    "curl --api-key hunter22 https://example.org",
    "AKIA" + "ABCDEFGH12345678",
    f"eyJ{LONG}.{LONG}.{LONG}",
    *(
        start + LONG
        for start in ("sk-", "sk-proj-", "sk_live_", "ghp_", "github_pat_", "glpat-", "xoxb-", "AIza", "npm_", "hf_")
    ),
]


@pytest.mark.parametrize("text", SECRETS)
def test_credential_in_a_text_is_masked_and_the_text_around_it_kept(text: str) -> None:
    masked = show({"note": f"before {text} after"})["note"]
    assert masked.startswith("before ")
    assert MASK in masked
    for part in ("hunter22", "abc.def-123", "dXNlcjpwYXNz", "MIIEow", "ABCDEFGH", LONG):
        assert part not in masked


@pytest.mark.parametrize(
    "name",
    ["password", "Passwd", "pwd", "passphrase", "token", "accessToken", "access_token", "API-KEY", "apiKey", "api_key",
     "client_secret", "Authorization", "x-auth", "credentials", "Cookie", "privateKey", "aws.access.key"],
)  # fmt: skip
def test_value_under_the_name_of_a_secret_is_always_masked(name: str) -> None:
    for value in ("plain words", 12345, ["a"], {"deep": "b"}):
        assert show({"outer": [{name: value, "x": 1}]}) == {"outer": [{name: MASK, "x": 1}]}


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_tokens": 100, "tokens": 1.5},
        {"password": None, "use_token": True},
        {"author": "A. Author", "key": "value", "keyboard": "qwerty"},
        {"text": "the basic information about a task-1, a risk_2 and Asia"},
        {"url": "https://example.org:8080/path?page=2#part"},
        {"when": "12:30", "ratio": "a:b", "mail": "user@example.org"},
    ],
)
def test_ordinary_values_that_resemble_secrets_are_shown(arguments: dict[str, Any]) -> None:
    assert show(arguments) == arguments


@given(json_values)
def test_small_arguments_without_secrets_are_shown_unchanged(value: Any) -> None:
    arguments = {"value": value}
    encoded = canonical(arguments)
    if len(encoded) <= SHOWN_BYTES and b"*" not in shown(arguments, encoded):
        assert show(arguments) == orjson.loads(encoded)


@given(st.text() | st.sampled_from(SECRETS), st.sampled_from(["note", "token", "api_key", "Kelvin", "pa\u017fs"]))
def test_quick_check_never_misses_a_masked_value(text: str, name: str) -> None:
    arguments = {name: text}
    if shown(arguments, canonical(arguments)) == canonical(arguments):
        padded = {**arguments, "~": "x" * SHOWN_BYTES}
        assert show(padded)[name] == text


@given(json_values, st.integers(1, 400))
def test_size_of_shown_arguments_is_limited(value: Any, times: int) -> None:
    arguments = {"list": [value] * times, "text": str(value) * times, "more": {str(n): value for n in range(times)}}
    assert len(shown(arguments, canonical(arguments))) <= SHOWN_BYTES + 512


LARGE: list[dict[str, Any]] = [
    {"text": "x" * 1_000_000},
    {"text": "\0" * 100_000},
    {"text": "🛠" * 100_000},
    {"list": list(range(100_000))},
    {"list": [[]] * 100_000},
    {"list": [{}] * 100_000},
    {"list": ["token"] * 100_000},
    {str(number): "" for number in range(100_000)},
    {"x" * 100_000: "y"},
]


@pytest.mark.parametrize("arguments", LARGE)
def test_large_arguments_are_cut_with_an_ellipsis(arguments: dict[str, Any]) -> None:
    text = shown(arguments, canonical(arguments))
    assert len(text) <= SHOWN_BYTES + 256
    assert "…" in text.decode()


def test_deep_arguments_are_cut_with_an_ellipsis() -> None:
    deep: Any = "bottom"
    for _ in range(100):
        deep = {"token_count": 1, "in": [deep]}
    assert "…" in shown(deep, canonical(deep)).decode()


def test_secret_at_the_cut_is_not_shown_in_part() -> None:
    for shift in range(60):
        text = "x" * (SHOWN_BYTES - 40 - shift) + " ghp_abcdefghijklmnopqrstuvwxyz0123456789"
        assert "ghp_" not in shown({"t": text}, canonical({"t": text})).decode()


def encoded_secret(bits: bytes) -> str:
    """Encode random bytes as Toolcrib encodes the secrets that it generates."""
    return base64.urlsafe_b64encode(bits).rstrip(b"=").decode()


@given(
    st.binary(min_size=32, max_size=32),
    st.sampled_from(["", "tcb_"]),
    st.sampled_from(["", " ", "curl -H x:", '"', "\n", "https://example.org/?a=", "é", "\u200b"]),
    st.sampled_from(["", " ", "\n", '"}', ".", "\\", "é"]),
)
def test_secrets_generated_by_toolcrib_are_masked_in_any_context(
    bits: bytes, prefix: str, before: str, after: str
) -> None:
    secret = prefix + encoded_secret(bits)
    if not prefix and (secret.upper() == secret or secret.lower() == secret):
        return  # practically never drawn, and not recognisable
    for arguments in ({"note": f"{before}{secret}{after}"}, {"list": [f"{before}{secret}"]}, {f"{secret}{after}": 1}):
        assert secret not in orjson.dumps(show(arguments)).decode()


@pytest.mark.parametrize(
    "text",
    ["a" * 43, "5f2b" * 16, "0f" * 20, "123e4567-e89b-12d3-a456-426614174000", "Word" * 10, "Word" * 11, "tcb_ tokens"],
)
def test_hashes_ids_and_long_words_are_shown(text: str) -> None:
    assert show({"note": text}) == {"note": text}


def test_arguments_are_not_modified() -> None:
    arguments = {"token": "t", "list": [{"password": "p"}]}
    before = canonical(arguments)
    shown(arguments, before)
    assert canonical(arguments) == before


@given(st.text())
def test_mask_accepts_any_text(text: str) -> None:
    assert isinstance(mask(text), str)
