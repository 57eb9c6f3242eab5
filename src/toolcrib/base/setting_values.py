"""Parsers of the values of settings. Each returns the parsed value, or raises `ValueError`."""

import base64
import ipaddress
import re
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from toolcrib.model.json import Json, is_array

_DEFAULT_PORTS = {"https": 443, "http": 80}


def refuse() -> NoReturn:
    """Raise `ValueError`: the table of settings has the message."""
    raise ValueError


def path(value: Json) -> Path:
    """Parse a path."""
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        refuse()
    return Path(value).expanduser().absolute()


def absolute_path(value: Json) -> Path:
    """Parse an absolute path."""
    if not isinstance(value, (str, Path)) or not Path(value).expanduser().is_absolute():
        refuse()
    return path(value)


def host(value: Json) -> str:
    """Parse a host name or address."""
    if not isinstance(value, str) or not re.fullmatch(r"\[?[\w.:%-]+\]?", value):
        refuse()
    return value.removeprefix("[").removesuffix("]")


def database(value: Json) -> str:
    """Parse the URL of a database."""
    if not isinstance(value, str) or not re.match(r"(sqlite|postgres(ql)?(\+psycopg)?):", value):
        refuse()
    return value


def whole(low: int, high: int) -> Callable[[Json], int]:
    """Return a parser of whole numbers in a range."""

    def parse(value: Json) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            refuse()
        return value

    return parse


def seconds(value: Json) -> float:
    """Parse a number of seconds up to a day."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        refuse()
    number = float(value)
    return number if 0 < number <= 86_400 else refuse()


def one_of(*choices: str) -> Callable[[Json], str]:
    """Return a parser of one of these words."""

    def parse(value: Json) -> str:
        return value.lower() if isinstance(value, str) and value.lower() in choices else refuse()

    return parse


def switch(value: Json) -> bool:
    """Parse true or false."""
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    return value if isinstance(value, bool) else refuse()


def token(value: Json) -> str:
    """Parse a token of printable characters."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]{1,1000}", value):
        refuse()
    return value


def anchor(value: Json) -> str:
    """Parse an absolute path, a web address, or `git:` and an absolute path."""
    if not isinstance(value, str) or "\0" in value:
        refuse()
    if re.fullmatch(r"https?://\S+", value):
        return value
    place = Path(value.removeprefix("git:")).expanduser()
    if not place.is_absolute():
        refuse()
    return f"git:{place}" if value.startswith("git:") else str(place)


def web_address(value: Json) -> str:
    """Parse the URL of a service."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", value):
        refuse()
    return value.rstrip("/")


def registry(value: Json) -> str:
    """Parse a web address, or an absolute path."""
    return web_address(value) if isinstance(value, str) and "://" in value else str(absolute_path(value))


def document_url(value: Json) -> str:
    """Parse an OAuth client metadata URL: https, a path, no query, fragment or user."""
    if not isinstance(value, str) or not re.fullmatch(r"https://[^\s/@?#]+/[^\s@?#]+", value):
        refuse()
    return value


def owners(value: Json) -> tuple[str, ...]:
    """Parse a list of users and organisations."""
    given = value.split(",") if isinstance(value, str) else value
    if not is_array(given):
        refuse()
    names = [each.strip() if isinstance(each, str) else "" for each in given]
    return tuple(names) if all(re.fullmatch(r"[\w-]{1,100}", name) for name in names) else refuse()


def tool_patterns(value: Json) -> tuple[str, ...]:
    """Parse a list of `server/tool` patterns."""
    given = value.split(",") if isinstance(value, str) else value
    if not is_array(given):
        refuse()
    names = [each.strip() if isinstance(each, str) else "" for each in given]
    return tuple(names) if all(re.fullmatch(r"[^/\s]{1,200}/\S{1,200}", name) for name in names) else refuse()


def networks(value: Json) -> tuple[str, ...]:
    """Parse a list of addresses or networks."""
    given = value.split(",") if isinstance(value, str) else value
    if not is_array(given) or not given:
        refuse()
    return tuple(str(ipaddress.ip_network(str(each).strip(), strict=False)) for each in given)


def label(value: Json) -> str:
    """Parse a label."""
    return value if isinstance(value, str) and re.fullmatch(r"[^\n\r,]{0,50}", value) else refuse()


def origin(value: Json) -> str:
    """Parse an origin that is safe for credentials: https, or http on this machine. Default ports are removed."""
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/@?#]+/?", value):
        refuse()
    parts = urlsplit(value.lower())
    name, port = parts.hostname, parts.port
    if not name or (parts.scheme == "http" and not _is_loopback(name)):
        refuse()
    shown = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{shown}" + ("" if port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{port}")


def _is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def signing_secret(value: Json) -> str:
    """Parse a secret of at least 16 printable characters; what follows `whsec_` must be base64."""
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]{16,1000}", value):
        refuse()
    if value.startswith("whsec_"):
        base64.b64decode(value.removeprefix("whsec_"), validate=True)
    return value
