"""The secrets that a crib itself is started with, in its settings and environment."""

from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from toolcrib.base.masking.names import is_secret_name
from toolcrib.base.settings import SETTINGS, Environment, Settings

_SHORTEST = 8


def own_secrets(settings: Settings, environment: Environment) -> Iterator[str]:
    """Yield the values of secret settings, and of environment variables whose names indicate a secret."""
    for setting in SETTINGS:
        value = getattr(settings, setting.name)
        if setting.secret and isinstance(value, str):
            yield from _parts(value)
    for name, value in environment.items():
        if len(value) >= _SHORTEST and is_secret_name(name):
            yield from _parts(value)


def _parts(value: str) -> Iterator[str]:
    """Yield the value itself, or the password of a URL."""
    if "://" not in value:
        yield value
        return
    try:
        password = urlsplit(value).password
    except ValueError:
        return
    if password:
        yield from (password, unquote(password))
