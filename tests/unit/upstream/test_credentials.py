"""Stored sign-ins: complete, private, and returned only for their own server and resource."""

import importlib.util
import math
import os
import shutil
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from long_tests import takes_long
from toolcrib.base import secret_store
from toolcrib.base.secret_store import FileSecretStore, KeyringSecretStore, SecretStore, open_secret_store, process_lock
from toolcrib.model.errors import ConfigError
from toolcrib.model.servers import Auth
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential, Registration, lifetime_of

CLIENT = Registration("https://issuer.example", "crib", "client-secret", "client_secret_basic", "http://127.0.0.1:1/x")
CREDENTIAL = OAuthCredential(
    server="lab",
    resource="https://a.example/mcp",
    client=CLIENT,
    token_endpoint="https://issuer.example/token",
    access_token="access-secret",
    refresh_token="refresh-secret",
    scopes=("read",),
    asked=("read", "write"),
    obtained_at=1000.0,
    lifetime=3600.0,
    local=True,
)
URL = "https://a.example/mcp"


@pytest.mark.anyio
async def test_replaced_client_secret_is_used_by_the_stored_sign_in(tmp_path: Path) -> None:
    credentials = CredentialStore(tmp_path)
    await credentials.keep(CREDENTIAL)
    await credentials.renew_client("lab", URL, Auth(client_id="another", client_secret="not-mine"))
    assert await credentials.credential("lab", URL) == CREDENTIAL
    await credentials.renew_client("lab", URL, Auth(client_id="crib", client_secret="rotated"))
    renewed = await credentials.credential("lab", URL)
    assert renewed == replace(CREDENTIAL, client=replace(CLIENT, client_secret="rotated"))


class MemoryKeyring:
    """A keyring in memory that can be locked."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}
        self.is_locked = False

    def get_password(self, service_name: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        self._check()
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        self._check()
        del self.kept[service_name, username]

    def _check(self) -> None:
        if self.is_locked:
            raise RuntimeError("locked; refused access-secret")


@pytest.fixture(params=["file", "keyring"])
def secrets(request: pytest.FixtureRequest, tmp_path: Path) -> SecretStore:
    return (
        FileSecretStore(tmp_path / "credentials.json")
        if request.param == "file"
        else KeyringSecretStore(MemoryKeyring(), "test")
    )


@pytest.fixture
def credentials(secrets: SecretStore, tmp_path: Path) -> CredentialStore:
    return CredentialStore(tmp_path, store=secrets)


@pytest.mark.anyio
async def test_stored_sign_in_is_read_back_unchanged(credentials: CredentialStore) -> None:
    assert await credentials.credential("lab", URL) is None
    await credentials.keep(CREDENTIAL)
    assert await credentials.credential("lab", URL) == CREDENTIAL
    plain = replace(CREDENTIAL, refresh_token=None, lifetime=None, scopes=(), client=Registration("i", "c"))
    await credentials.keep(plain)
    assert await credentials.credential("lab", URL) == plain
    await credentials.forget("lab")
    assert await credentials.credential("lab", URL) is None


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("other", URL),
        ("lab", "https://b.example/mcp"),
        ("lab", "https://a.example/mcp2"),
        ("lab", "http://a.example/mcp"),
    ],
)
async def test_sign_in_is_returned_only_for_its_server_and_resource(
    credentials: CredentialStore, server: str, url: str
) -> None:
    await credentials.keep(CREDENTIAL)
    assert await credentials.credential(server, url) is None


@pytest.mark.anyio
async def test_registration_belongs_to_its_issuer(credentials: CredentialStore) -> None:
    await credentials.keep_registration(CLIENT)
    assert await credentials.registration(CLIENT.issuer) == CLIENT
    assert await credentials.registration(f"{CLIENT.issuer}/") is None
    await credentials.forget_registration(CLIENT.issuer)
    assert await credentials.registration(CLIENT.issuer) is None


@pytest.mark.anyio
async def test_issuer_of_a_client_secret_is_remembered(credentials: CredentialStore) -> None:
    await credentials.bind_issuer("lab", "crib", "https://issuer.example")
    assert await credentials.bound_issuer("lab", "crib") == "https://issuer.example"
    assert await credentials.bound_issuer("lab", "another") is None
    await credentials.forget("lab")
    assert await credentials.bound_issuer("lab", "crib") is None


@pytest.mark.anyio
@pytest.mark.parametrize("row", [{}, {"server": "lab"}, {"server": 1}, {"client": []}, {"client": {"method": "x"}}])
async def test_invalid_entry_is_ignored(
    secrets: SecretStore, credentials: CredentialStore, row: dict[str, object]
) -> None:
    secrets.put("server lab", row)
    secrets.put("client https://issuer.example", row)
    assert await credentials.credential("lab", URL) is None
    assert await credentials.registration("https://issuer.example") is None


def test_repr_shows_no_secret() -> None:
    for text in (repr(CREDENTIAL), str(CREDENTIAL), repr(CLIENT)):
        assert "secret" not in text.replace("client_secret_basic", "")


@given(st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(), st.lists(st.integers())))
def test_lifetime_is_a_positive_number_or_unknown(sent: object) -> None:
    life = lifetime_of(sent)
    assert life is None or (0 < life < math.inf)


@pytest.mark.parametrize(
    ("sent", "life"),
    [(3600, 3600.0), ("3600", 3600.0), (1.5, 1.5), (0, None), (-1, None), ("", None), (None, None), (True, None)],
)
def test_lifetime_is_read_in_the_forms_that_issuers_use(sent: object, life: float | None) -> None:
    assert lifetime_of(sent) == life


@given(st.floats(min_value=-1e9, max_value=1e9))
def test_clock_change_never_extends_the_life_of_a_token(shift: float) -> None:
    left = CREDENTIAL.remaining(CREDENTIAL.obtained_at + shift)
    assert left is not None
    assert left <= 3600


def test_file_is_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FileSecretStore(tmp_path / "credentials.json").put("a", {"b": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "credentials.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["credentials.json"]


def test_leftover_of_an_interrupted_write_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".credentials.json.0123.toolcrib.tmp"
    left.write_text("access-secret")
    FileSecretStore(tmp_path / "credentials.json").put("a", {"b": 1})
    assert not left.exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"entries": []}'])
def test_damaged_file_is_reported_and_not_overwritten(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credentials.json"
    file.write_text(content)
    for attempt in (lambda: FileSecretStore(file).get("a"), lambda: FileSecretStore(file).put("a", {"b": 1})):
        with pytest.raises(ConfigError) as failure:
            attempt()
        assert failure.value.code == "oauth.storage"
    assert file.read_text() == content


def test_failed_write_leaves_the_old_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FileSecretStore(tmp_path / "credentials.json")
    file.put("a", {"token": "old"})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError):
        file.put("a", {"token": "new"})
    monkeypatch.undo()
    assert file.get("a") == {"token": "old"}


def test_error_of_a_locked_keyring_does_not_contain_the_secret() -> None:
    keyring = MemoryKeyring()
    secrets = KeyringSecretStore(keyring, "test")
    assert secrets.works()
    assert not keyring.kept
    keyring.is_locked = True
    assert not secrets.works()
    with pytest.raises(ConfigError) as failure:
        secrets.put("a", {"token": "access-secret"})
    assert "access-secret" not in failure.value.message


@pytest.mark.anyio
async def test_keyring_is_used_if_it_works_and_a_file_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = MemoryKeyring()
    monkeypatch.setitem(sys.modules, "test_ring", keyring)
    assert isinstance(await open_secret_store(tmp_path / "a", "test_ring"), KeyringSecretStore)
    keyring.is_locked = True
    assert isinstance(await open_secret_store(tmp_path / "a", "test_ring"), FileSecretStore)
    assert isinstance(await open_secret_store(tmp_path / "a", "no_such_package"), FileSecretStore)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


@pytest.mark.anyio
@pytest.mark.parametrize(("priority", "store"), [(5, KeyringSecretStore), (0.5, FileSecretStore)])
async def test_keyring_that_writes_plain_text_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, priority: float, store: type
) -> None:
    class ChainedKeyring(MemoryKeyring):
        def get_keyring(self) -> object:
            return SimpleNamespace(backends=[SimpleNamespace(priority=priority), SimpleNamespace(priority=0)])

    monkeypatch.setitem(sys.modules, "test_ring", ChainedKeyring())
    assert isinstance(await open_secret_store(tmp_path / "a", "test_ring"), store)


@takes_long
def test_secrets_are_stored_in_a_real_secret_service(tmp_path: Path) -> None:
    programs = [shutil.which(name) for name in ("dbus-run-session", "gnome-keyring-daemon")]
    if None in programs or importlib.util.find_spec("secretstorage") is None:
        pytest.skip("needs dbus-run-session, gnome-keyring and the package secretstorage")
    script = tmp_path / "keep.sh"
    script.write_text(
        "printf word | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1\n"
        f"exec {sys.executable} - <<'END'\n"
        "import anyio, pathlib\n"
        "from toolcrib.base.secret_store import KeyringSecretStore, open_secret_store\n"
        f"store = anyio.run(open_secret_store, pathlib.Path({str(tmp_path / 'home')!r}))\n"
        "assert isinstance(store, KeyringSecretStore), store\n"
        "store.put('a', {'token': 'access-secret'})\n"
        "assert store.get('a') == {'token': 'access-secret'}\n"
        "store.put('a', None)\n"
        "assert store.get('a') is None\n"
        "END\n"
    )
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    environment = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(directory), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        ["dbus-run-session", "--", "sh", str(script)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    kept = [file for file in tmp_path.rglob("*") if file.is_file() and b"access-secret" in file.read_bytes()]
    assert kept == [script]


@pytest.mark.anyio
async def test_keyring_that_prompts_does_not_delay_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    class PromptingKeyring(MemoryKeyring):
        def set_password(self, service_name: str, username: str, password: str) -> None:
            release.wait(10)

    monkeypatch.setitem(sys.modules, "test_ring", PromptingKeyring())
    monkeypatch.setattr(secret_store, "KEYRING_SECONDS", 0.05)
    with anyio.fail_after(5):
        assert isinstance(await open_secret_store(tmp_path, "test_ring"), FileSecretStore)
    release.set()


@pytest.mark.anyio
async def test_only_one_process_renews_at_a_time(tmp_path: Path) -> None:
    credentials = CredentialStore(tmp_path / "oauth")
    async with credentials.renewing("lab", 1) as is_mine:
        assert is_mine
        async with credentials.renewing("lab", 0.05) as is_mine_too:
            assert not is_mine_too
        async with credentials.renewing("other", 0.05) as is_another:
            assert is_another
    async with credentials.renewing("lab", 0.05) as is_free:
        assert is_free


@pytest.mark.anyio
async def test_lock_of_a_killed_process_is_released(tmp_path: Path) -> None:
    file = tmp_path / "x.lock"
    holder = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(file)!r}, os.O_RDWR | os.O_CREAT, 0o600)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "os.write(1, b'held')\n"
        "sys.stdin.read()\n"
    )
    async with await anyio.open_process([sys.executable, "-c", holder], stderr=None) as process:
        assert process.stdout is not None
        assert await process.stdout.receive() == b"held"
        async with process_lock(file, 0.05) as held:
            assert not held
        process.kill()
        async with process_lock(file, 5) as held:
            assert held


@pytest.mark.anyio
async def test_sign_in_of_an_earlier_version_is_moved_to_its_new_name(tmp_path: Path) -> None:
    """Only for the URL of the sign-in."""
    credentials = CredentialStore(tmp_path)
    await credentials.keep(CREDENTIAL)
    await credentials.adopt("personal 1", "lab", "https://b.example/mcp")
    assert await credentials.credential("personal 1", "https://b.example/mcp") is None
    await credentials.adopt("personal 1", "lab", URL)
    await credentials.adopt("personal 1", "lab", URL)
    assert await credentials.credential("personal 1", URL) == replace(CREDENTIAL, server="personal 1")
    assert await credentials.credential("lab", URL) is None
