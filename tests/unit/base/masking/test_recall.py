"""How many kinds of secrets are masked in each place, and how many ordinary values are masked by mistake."""

import hashlib
import json
import random
import shlex
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest

from toolcrib.base.masking.text import mask_text
from toolcrib.base.masking.urls import mask_url
from toolcrib.base.masking.values import KnownSecrets, ValueMasker, shown
from toolcrib.model.json import canonical
from toolcrib.servers.masking import mask_definition
from toolcrib.servers.paste import recognise
from toolcrib.servers.trust import trust_question
from unit.base.masking.synthetic import kinds

SEEDS = range(3)


def paste_preview(text: str) -> str:
    """Return the preview of the server in a pasted text."""
    (server,) = recognise(text).servers
    return f"{server.name} {json.dumps(trust_question(server, {}).to_json())}"


def audit_text(arguments: Any) -> str:
    return shown(arguments, canonical(arguments)).decode()


def masked_definition(raw: dict[str, Any]) -> str:
    return json.dumps(mask_definition(raw))


PLACES: dict[str, Callable[[str], str]] = {
    "url path": lambda secret: mask_url(f"https://mcp.example.org/{quote(secret, safe='')}/mcp"),
    "url query": lambda secret: mask_url(f"https://mcp.example.org/mcp?x={quote(secret, safe='')}"),
    "url fragment": lambda secret: mask_url(f"https://mcp.example.org/mcp#{quote(secret, safe='')}"),
    "definition url path": lambda secret: masked_definition({"url": f"https://h.example/{quote(secret, safe='')}/mcp"}),
    "definition bare argument": lambda secret: masked_definition({"command": "server", "args": ["run", secret]}),
    "definition neutral assignment": lambda secret: masked_definition(
        {"command": "server", "args": [f"--option={secret}"]}
    ),
    "definition after a flag": lambda secret: masked_definition({"command": "server", "args": ["--token", secret]}),
    "pasted url path": lambda secret: paste_preview(f"https://h.example/{quote(secret, safe='')}/mcp"),
    "pasted bare argument": lambda secret: paste_preview(shlex.join(["docker", "run", "acme/server:1.0", secret])),
    "pasted snippet": lambda secret: paste_preview(
        json.dumps({"mcpServers": {"a": {"command": "x", "args": [secret]}}})
    ),
    "definition variable": lambda secret: masked_definition({"command": "server", "env": {"OPTION": secret}}),
    "audit neutral": lambda secret: audit_text({"note": secret}),
    "audit nested": lambda secret: audit_text({"outer": {"items": [{"v": secret, "n": 1}]}}),
    "audit list": lambda secret: audit_text({"args": ["run", secret]}),
    "audit named": lambda secret: audit_text({"options": {"api_key": secret}}),
    "audit pair": lambda secret: audit_text({"env": [{"name": "API_KEY", "value": secret}]}),
    "audit after a flag": lambda secret: audit_text({"args": ["--token", secret, "run"]}),
    "audit command line": lambda secret: audit_text({"command": f"server --token {secret} run"}),
    "audit json in a text": lambda secret: audit_text({"body": json.dumps({"password": secret})}),
    "text with an assignment": lambda secret: mask_text(f"export API_KEY={secret}"),
    "text with code": lambda secret: mask_text(f'client = connect(url, token="{secret}")'),
    "text with a header": lambda secret: mask_text(f"sent Authorization: Bearer {secret} to it"),
}


def leaks(secret: str, shown: str) -> bool:
    forms = (secret, quote(secret, safe=""), json.dumps(secret)[1:-1])
    return any(form in shown for form in forms)


@pytest.mark.parametrize("place", PLACES)
def test_95_percent_of_kinds_are_masked(place: str) -> None:
    """Over some 200 kinds; the others look like numbers, Git revisions and ids, which are ordinary."""
    secrets = [(kind, secret) for seed in SEEDS for kind, secret in kinds(seed).items()]
    leaked = [kind for kind, secret in secrets if leaks(secret, PLACES[place](secret))]
    assert len(leaked) <= 0.05 * len(secrets), sorted(leaked)


def test_synthetic_secrets_have_at_least_200_kinds() -> None:
    assert len(kinds(0)) >= 200


def test_known_secret_is_masked_in_every_encoding() -> None:
    """Literally, and as encoded in a URL, in JSON, in base64, or over several lines."""
    known = KnownSecrets(["open sesame", "pass/word+1é", "line one of it\nline two of it"])
    masker = ValueMasker(known)
    for text in (
        "it was open sesame",
        "?q=open%20sesame&x=open+sesame",
        "YWRtaW46b3BlbiBzZXNhbWU=",  # admin:open sesame
        "b3BlbiBzZXNhbWU6YWRtaW4=",  # open sesame:admin
        'said {"a": "pass/word+1é"}',
        'said {\\"a\\": \\"pass/word+1\\u00e9\\"}',
        "only line two of it",
    ):
        assert known.mask(text) != text, text
        assert masker.json({"note": text}) != {"note": text}
        assert known.occurs_in(json.dumps({"x": text}, ensure_ascii=False).encode()), text
    assert known.mask("sesame opens; line one") == "sesame opens; line one"


def test_short_and_common_values_are_not_known_secrets() -> None:
    """Masking them would hide ordinary words everywhere."""
    known = KnownSecrets(["", "abc", "true", "production", "12345", "aaaaaaaaaaaa", "/usr/local/bin", "password"])
    text = "true production in /usr/local/bin with the password abc 12345 aaaaaaaaaaaa"
    assert known.mask(text) == text


def test_hundreds_of_known_secrets_are_masked() -> None:
    values = [secret for seed in range(5) for secret in kinds(seed).values()]
    known = KnownSecrets(values)
    text = " ".join(values[:50])
    masked = known.mask(text)
    assert not any(value in masked for value in values[:50] if len(value) > 20)


ORDINARY: tuple[Callable[[random.Random], Any], ...] = (
    lambda drawn: {"id": str(uuid.UUID(int=drawn.getrandbits(128), version=4))},
    lambda drawn: {"note": str(uuid.UUID(int=drawn.getrandbits(128), version=4))},
    lambda drawn: {"session_id": str(uuid.UUID(int=drawn.getrandbits(128), version=7 % 5 + 1))},
    lambda drawn: {"page_id": digest(drawn, 32)},
    lambda drawn: {"text": digest(drawn, 40)},
    lambda drawn: {"message": f"Revert {digest(drawn, 40)}, which broke {digest(drawn, 7)}"},
    lambda drawn: {"digest": f"sha256:{digest(drawn, 64)}"},
    lambda drawn: {"note": f"sha256:{digest(drawn, 64)}"},
    lambda drawn: {"args": ["install", f"--hash=sha256:{digest(drawn, 64)}"]},
    lambda drawn: {"from": f"nginx@sha256:{digest(drawn, 64)}"},
    lambda drawn: {"image": f"ghcr.io/acme/tool@sha256:{digest(drawn, 64)}"},
    lambda drawn: {"url": f"https://github.com/acme/repo/commit/{digest(drawn, 40)}"},
    lambda drawn: {
        "url": f"https://api.example.com/v1/users/{uuid.UUID(int=drawn.getrandbits(128), version=4)}?page=2"
    },
    lambda drawn: {"colour": f"#{digest(drawn, 6)}", "size": drawn.randrange(1000)},
    lambda drawn: {"query": f"SELECT * FROM orders WHERE id = {drawn.randrange(10**6)} AND state = 'paid' LIMIT 20"},
    lambda drawn: {"path": f"/home/user/src/{drawn.choice(WORDS)}/{drawn.choice(WORDS)}_test.py"},
    lambda drawn: {"content": " ".join(drawn.choices(WORDS, k=30))},
    lambda drawn: {"branch": f"feature/JIRA-{drawn.randrange(9999)}-{drawn.choice(WORDS)}-support"},
    lambda drawn: {"when": f"2026-0{drawn.randint(1, 9)}-1{drawn.randint(0, 9)}T12:34:56.789Z"},
    lambda drawn: {"instance": f"i-0{digest(drawn, 16)}", "bucket": "my-bucket-prod-eu-west-1"},
    lambda drawn: {"command": "docker run -p 8080:80 -u 1000:1000 nginx:1.25.3 && mkdir -p build/output"},
    lambda drawn: {"key": "folder/file.txt", "sort_key": "created_at", "issue_key": f"PROJ-{drawn.randrange(999)}"},
    lambda drawn: {"max_tokens": drawn.randrange(9999), "token_count": str(drawn.randrange(99))},
    lambda drawn: {
        "package": "@modelcontextprotocol/server-filesystem@2026.1.14",
        "model": "claude-3-5-sonnet-20241022",
    },
    lambda drawn: {"args": ["-y", "figma-mcp", "--figma-api-key", "${FIGMA_KEY}", "--token", "{env:TOKEN}"]},
    lambda drawn: {"spreadsheetId": "1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms", "videoId": "dQw4w9WgXcQ"},
    lambda drawn: {"title": "Fix: key error in the auth module when tokens have expired"},
    lambda drawn: {"data": f"iVBORw0KGgoAAAANSUhEUgAAAAUA{digest(drawn, 60)}"},
    lambda drawn: {"code": "def load(token: str) -> None:\n    self.token = token\n    return self._tokens.get(key)"},
    lambda drawn: {
        "code": "def sign(secrets: Mapping[str, str], auth: tuple[bytes, ...]) -> None: password = entry[1]"
    },
    lambda drawn: {"version": f"v0.0.0-20240101120000-{digest(drawn, 12)}", "pod": "web-7d9f8b6c5d-x2k4z"},
)
WORDS = [
    "configuration",
    "handler",
    "session",
    "manager",
    "request",
    "response",
    "payload",
    "index",
    "component",
    "useEffect",
    "getElementById",
    "snake_case",
    "parseDateTime",
    "README",
    "ConnectionRefusedError",
    "internationalization",
    "x86_64",
    "utf8",
    "ISO8859",
    "OAuth2",
    "kubernetes-dashboard",
    "HTTPServer",
    "test_handles_large_input_gracefully",
    "getUserProfileSettings",
    "Elektrizitätswerk",
    "iphone15promax",
    "RTX4090",
]


def digest(drawn: random.Random, length: int) -> str:
    return hashlib.sha512(drawn.randbytes(16)).hexdigest()[:length]


def ordinary_arguments() -> Iterator[Any]:
    drawn = random.Random(1)
    for make in ORDINARY:
        for _ in range(40):
            yield make(drawn)


def test_at_most_1_percent_of_ordinary_arguments_is_masked() -> None:
    """Ids, revisions, digests, paths, sentences, SQL, versions, code."""
    everything = list(ordinary_arguments())
    masked = [arguments for arguments in everything if "***" in audit_text(arguments)]
    assert len(masked) <= 0.01 * len(everything), masked[:20]


CODE = """
self.token_list = from_clause
"input_token": "next_token", "limit_key": "max_results",
CONTEXT_KEY = "ApplyTypeAnnotationsVisitor"
state_credentials: StateCredentials, credentials=credentials, next_token=next_token, auth: AuthSettings | None = None
password = getpass.getpass('Password: ')
self.password = read_password
data["password"] = options.password
console.log('token:', token);
if (opts.tokens === true && encryptedKey === void 0) { this.tokens = new Map(); }
exports.bearerAuth = bearerAuth; const tokenRegexp = new RegExp(`^${TOKEN_STRINGS}$`);
this.revokeToken = async (client, request) => { return { refresh_token: refreshToken, ...tokens }; }
"cookie": "^0.7.1", "@octokit/auth-action": "^6.0.2", "author": "crouchcd", UNAUTHORIZED: 401,
# Basic ProxyAgent, and a bearer = self._requests.bearer
{"key": "@pipelineState", "stringValue": self.status}
""".strip().splitlines()


@pytest.mark.parametrize("line", CODE)
def test_source_code_about_secrets_is_not_masked(line: str) -> None:
    assert mask_text(line) == line


@pytest.mark.parametrize(
    "text",
    [
        "password = hunter",
        "DB_PASSWORD=correcthorse",
        "password: sekrit",
        'password = "open sesame"',
        "client_secret: mypassword",
        'password = b"hunter2"',
        "token = hunter22",
        "API_KEY=Tr0ub4dor",
        "cookie: 'sid=31d4d96e407aad42; Path=/'",
        "Authorization: Bearer abc123",
    ],
)
def test_simple_secrets_in_assignments_are_masked(text: str) -> None:
    assert "***" in mask_text(text)


SHAPES: list[Any] = [
    {"name": "API_KEY", "value": "hunter22"},
    {"env": [["DB_PASSWORD", "hunter22"]]},
    {"encryption_key": "hunter22"},
    {"signingKey": "hunter22"},
    {"text": "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=hunter22;EndpointSuffix=x"},
    {"text": "Server=tcp:db;User ID=me;Password=hunter22;Encrypt=true"},
    {"url": "https://maps.example.com/api?address=x&key=hunter22"},
    {"url": "https://me.blob.core.windows.net/c?sv=2024&sig=hunter22%3D"},
    {"command": "curl -u admin:hunter22 https://example.org"},
    {"command": "mysql -uroot -phunter22 db"},
    {"args": ["curl", "-u", "admin:hunter22"]},
    {"args": ["mysql", "-phunter22", "db"]},
    {"url": "https://hunter22hunter22@example.org/"},
    {"text": "postgres://me:hunter22@db/x"},
    {"text": "Authorization: Basic aHVudGVyMjI6aHVudGVyMjI="},
    {"headers": ["X-Api-Key: hunter22"]},
    {"url": "https://hooks.slack.com/services/hunter22/B/x"},
    {"url": "https://discord.com/api/webhooks/123/hunter22"},
    {"body": '{"client_secret": "hunter22 with blanks"}'},
    {"body": json.dumps(json.dumps({"password": "hunter22"}))},
]


@pytest.mark.parametrize("shape", SHAPES)
def test_secret_is_masked_in_the_audit_in_every_shape(shape: Any) -> None:
    """Next to its name, as a parameter, a login or a flag, or in a URL."""
    masked = audit_text(shape)
    assert "hunter22" not in masked
    assert "***" in masked


def test_secret_of_a_known_form_is_masked_under_the_name_of_an_id() -> None:
    """An id may only look random."""
    assert audit_text({"id": kinds(0)["github"], "page_id": kinds(0)["stripe"]}) == '{"id":"***","page_id":"***"}'


def test_deeply_nested_arguments_are_shown_in_approvals() -> None:
    """A pending approval must not hide nested values; an audit record may cut them."""
    deep: Any = "rm -rf ~"
    for _ in range(100):
        deep = [deep]
    assert "rm -rf ~" in json.dumps(ValueMasker(KnownSecrets(), certain=True).json({"x": deep}))
    assert "rm -rf ~" not in json.dumps(ValueMasker(KnownSecrets()).json({"x": deep}))


def test_quick_check_is_suspicious_of_everything_that_is_masked() -> None:
    """Small arguments are checked quickly; the same ones next to a large value are masked in full."""
    masker = ValueMasker(KnownSecrets())
    for shape in SHAPES:
        assert masker.is_suspect(canonical(shape)), shape
    for arguments in ordinary_arguments():
        if not masker.is_suspect(canonical(arguments)):
            assert masker.json(arguments) == arguments
