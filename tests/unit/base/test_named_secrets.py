"""Named secrets are stored only in a keyring that its package recommends."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from toolcrib.base.named_secrets import NamedSecrets

PACKAGE = "keyring_of_this_test"


class KeyringPackage(ModuleType):
    """A `keyring` package whose backend has this priority."""

    def __init__(self, priority: float) -> None:
        super().__init__(PACKAGE)
        self.kept: dict[tuple[str, str], str] = {}
        self.backend = SimpleNamespace(priority=priority)

    def get_keyring(self) -> object:
        """Return the backend."""
        return self.backend

    def get_password(self, service_name: str, username: str) -> str | None:
        """Return a stored value."""
        return self.kept.get((service_name, username))

    def set_password(self, service_name: str, username: str, password: str) -> None:
        """Store a value."""
        self.kept[service_name, username] = password

    def delete_password(self, service_name: str, username: str) -> None:
        """Delete a value."""
        del self.kept[service_name, username]


@pytest.mark.parametrize(("priority", "place"), [(0.5, "file"), (1, "keyring"), (5, "keyring")])
def test_keyring_that_is_not_recommended_gets_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, priority: float, place: str
) -> None:
    keyring = KeyringPackage(priority)
    monkeypatch.setitem(sys.modules, PACKAGE, keyring)
    secrets = NamedSecrets(tmp_path, keyring_package=PACKAGE)
    assert secrets.put("NAME", "a value of it").place == place
    secrets.sealer()
    assert bool(keyring.kept) == (place == "keyring")


def test_secret_in_a_keyring_that_is_no_longer_recommended_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring = KeyringPackage(5)
    monkeypatch.setitem(sys.modules, PACKAGE, keyring)
    NamedSecrets(tmp_path, keyring_package=PACKAGE).put("NAME", "a value of it")
    keyring.backend.priority = 0.5
    assert NamedSecrets(tmp_path, keyring_package=PACKAGE).get("NAME") == "a value of it"
