"""What the owner has set, and where each value comes from.

Flags win over variables of the environment, these over `toolcrib.toml` in the home, that over the defaults. The result
is one frozen `Settings`, and a frozen `Environment` for those who expand variables or start processes.

Above: `cli` loads, `host` and everything under it are handed the values. Below: `model`, `errors`. This is the only
module that reads the environment; it must never write to it, and never show a password.
"""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NoReturn, cast, get_args

import platformdirs

from toolcrib.errors import ConfigError
from toolcrib.model.json import Json, JsonObject, is_array
from toolcrib.model.problems import Problem

Durability = Literal["process", "power"]
LogLevel = Literal["debug", "info", "warning", "error"]

VARIABLE_PREFIX = "TOOLCRIB_"
FILE_LIMIT = 1_048_576
"""No settings file is larger, so nothing larger is read."""
GITHUB_URL = "https://api.github.com"


TABLES = frozenset({"rules", "limits", "runners"})
"""Tables of the settings file that are no settings: `policy` and `sessions` read them themselves, as they are now."""


class Environment(Mapping[str, str]):
    """The variables of one process as they were at one moment. Its text form shows names only."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = MappingProxyType(dict(variables or {}))

    @classmethod
    def current(cls) -> "Environment":
        """The variables of this process, now."""
        return cls(os.environ)

    def __getitem__(self, name: str) -> str:
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __repr__(self) -> str:
        return f"Environment({', '.join(sorted(self._variables))})"


@dataclass(frozen=True, slots=True)
class Settings:
    """Every setting with its value. `origins` says where each one not left at its default comes from."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 4242
    default_cwd: Path | None = None
    database_url: str | None = field(default=None, repr=False)
    durability: Durability = "process"
    tool_timeout: float = 300.0
    max_body_bytes: int = 4 * 1_048_576
    max_sessions: int = 8
    session_idle: float = 600.0
    log_level: LogLevel = "info"
    audit_keep_days: int | None = None
    github_token: str | None = field(default=None, repr=False)
    github_url: str = GITHUB_URL
    github_organisations: tuple[str, ...] | None = None
    github_label: str = "toolcrib"
    origins: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)

    @property
    def database(self) -> str:
        """The database in effect: the address set, else the SQLite file in the home."""
        return self.database_url or f"sqlite:///{self.home / 'toolcrib.db'}"

    def origin(self, name: str) -> str:
        """Where the value of this setting comes from, in words."""
        untouched = _DEFAULTS.get(name, MISSING) == getattr(self, name)
        return self.origins.get(name) or ("default" if untouched else "code")

    def describe(self) -> list[JsonObject]:
        """The public shape: name, value, origin and meaning of each setting, passwords masked."""
        return [
            {
                "name": setting.name,
                "value": setting.show(getattr(self, setting.name)),
                "origin": self.origin(setting.name),
                "help": setting.help,
            }
            for setting in SETTINGS
        ]


_DEFAULTS = {each.name: each.default for each in fields(Settings) if each.default is not MISSING}


def mask_url(url: str) -> str:
    """An address without its password, and without what looks like one in its query."""
    bare = re.sub(r"^([\w+.-]+://[^:/@]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*)=[^&]*", r"\1=***", bare)


def _refuse() -> NoReturn:
    raise ValueError  # the row of the table has the words


def _path(value: Json) -> Path:
    if not isinstance(value, (str, Path)) or not str(value) or "\0" in str(value):
        _refuse()
    return Path(value).expanduser().absolute()


def _absolute_path(value: Json) -> Path:
    if not isinstance(value, (str, Path)) or not Path(value).expanduser().is_absolute():
        _refuse()
    return _path(value)


def _host(value: Json) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\[?[\w.:%-]+\]?", value):
        _refuse()
    return value.removeprefix("[").removesuffix("]")


def _database(value: Json) -> str:
    if not isinstance(value, str) or not re.match(r"(sqlite|postgres(ql)?(\+psycopg)?):", value):
        _refuse()
    return value


def _whole(low: int, high: int) -> Callable[[Json], int]:
    def parse(value: Json) -> int:
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value):
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            _refuse()
        return value

    return parse


def _seconds(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        _refuse()
    number = float(value)
    return number if 0 < number <= 86_400 else _refuse()


def _one_of(*choices: str) -> Callable[[Json], str]:
    def parse(value: Json) -> str:
        return value.lower() if isinstance(value, str) and value.lower() in choices else _refuse()

    return parse


def _token(value: Json) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[!-~]{1,1000}", value):
        _refuse()
    return value


def _web_address(value: Json) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"https?://[^\s/@?#]+(/[^\s@?#]*)?", value):
        _refuse()
    return value.rstrip("/")


def _owners(value: Json) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not is_array(given):
        _refuse()
    names = [each.strip() if isinstance(each, str) else "" for each in given]
    return tuple(names) if all(re.fullmatch(r"[\w-]{1,100}", name) for name in names) else _refuse()


def _label(value: Json) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[^\n\r,]{0,50}", value) else _refuse()


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: how a value is read, what it has to be, and what it is for.

    `by_tool` says whether an agent that may change settings may change this one: not what says where secrets go, nor
    how far agents may go themselves.
    """

    name: str
    parse: Callable[[Json], Json]
    expected: str
    help: str
    flag: str | None = None
    in_file: bool = True
    secret: bool = False
    by_tool: bool = True

    @property
    def variable(self) -> str:
        """The variable of the environment that sets it."""
        return VARIABLE_PREFIX + self.name.upper()

    def show(self, value: Json) -> Json:
        """The value as it may be shown: JSON, and no password."""
        if value is None:
            return None
        if self.secret:
            return mask_url(str(value)) if "://" in str(value) else "***"
        if isinstance(value, tuple):
            return list(cast("tuple[Json, ...]", value))
        return str(value) if isinstance(value, Path) else value

    def wrong(self, value: Json) -> str:
        """What is wrong with this value, in words; a secret one is not repeated."""
        return f"must be {self.expected}" + ("." if self.secret else f", not {value!r}.")


SETTINGS: tuple[Setting, ...] = (
    Setting("home", _path, "a path", "The directory with everything that is kept.", "--home", in_file=False),
    Setting("host", _host, "a host name or address", "The address to listen on; only loopback is allowed.", "--host"),
    Setting(
        "port", _whole(0, 65_535), "a whole number from 0 to 65535",
        "The port to listen on; 0 takes any free one.", "--port",
    ),
    Setting(
        "default_cwd", _absolute_path, "an absolute path or one that begins with ~",
        "The working directory of requests that name none.",
    ),
    Setting(
        "database_url", _database, "an address that begins with sqlite:// or postgresql://",
        "The database; unset is the SQLite file `toolcrib.db` in the home.", "--database", secret=True,
    ),
    Setting(
        "durability", _one_of(*get_args(Durability)), '"process" or "power"',
        "What every record survives before a call goes on: `process` a crash of the crib, `power` also a power cut.",
    ),
    Setting(
        "tool_timeout", _seconds, "a number of seconds above 0, at most 86400",
        "How long a tool may take that sets no time-out of its own, in seconds.",
    ),
    Setting(
        "max_body_bytes", _whole(1024, 1_073_741_824), "a whole number from 1024 to 1073741824",
        "The largest request that is read, in bytes.",
    ),
    Setting(
        "max_sessions", _whole(1, 1_000), "a whole number from 1 to 1000",
        "How many agent sessions may have a process at once; each takes some 100 MB.",
    ),
    Setting(
        "session_idle", _seconds, "a number of seconds above 0, at most 86400",
        "How long the process of a session without work is kept, in seconds; the next message starts another one.",
    ),
    Setting(
        "log_level", _one_of(*get_args(LogLevel)), '"debug", "info", "warning" or "error"',
        "How much is logged; `debug` also shows the trace of an unexpected failure.",
    ),
    Setting(
        "audit_keep_days", _whole(1, 36_500), "a whole number from 1 to 36500",
        "Audit records older than so many days leave the database for sealed files; unset keeps all of them there.",
    ),
    Setting(
        "github_token", _token, "a token of printable characters",
        "The token that crew tools use on GitHub; without one these tools are not offered.", secret=True,
    ),
    Setting(
        "github_url", _web_address, "an address that begins with https://",
        "The address of GitHub's REST API; of GitHub Enterprise it ends with `/api/v3`.", by_tool=False,
    ),
    Setting(
        "github_organisations", _owners, "a list of users and organisations",
        "Whose repositories agents may change; unset is anybody's that the token can.", by_tool=False,
    ),
    Setting(
        "github_label", _label, "up to 50 characters without a comma",
        "The label on issues and pull requests that agents open; empty is none.",
    ),
)  # fmt: skip
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings as read. `problems` did not stop anything; `errors` are wrong flags and variables, which do."""

    settings: Settings
    problems: tuple[Problem, ...] = ()
    errors: tuple[Problem, ...] = ()


def load_settings(environment: Environment, flags: Mapping[str, Json] | None = None) -> LoadedSettings:
    """Settings to start with. Raises `settings.invalid` for a flag or variable that cannot be used."""
    loaded = read_settings(environment, flags)
    if loaded.errors:
        raise ConfigError(loaded.errors[0].code, loaded.errors[0].message)
    return loaded


def read_settings(environment: Environment, flags: Mapping[str, Json] | None = None) -> LoadedSettings:
    """Settings to look at: like `load_settings`, with everything wrong as data. A flag that is None was not given."""
    reading = _Reading()
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    for setting in SETTINGS:
        if setting.name in given:
            reading.take(setting, given[setting.name], _Place(f"flag {setting.flag or setting.name}"), reading.errors)
        elif environment.get(setting.variable):
            reading.take(setting, environment[setting.variable], _Place(setting.variable), reading.errors)
    reading.misspelt(environment)
    if "home" not in reading.values:
        reading.take(_BY_NAME["home"], platformdirs.user_data_path("toolcrib", appauthor=False), _Place("default"), [])
    reading.file(reading.values["home"] / "toolcrib.toml")
    settings = Settings(**reading.values, origins=MappingProxyType(reading.origins))
    return LoadedSettings(settings, tuple(reading.problems), tuple(reading.errors))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value stands: the origin in words, and the file and line if it has them."""

    origin: str
    file: str | None = None
    line: int | None = None


class _Reading:
    """Values gathered so far; the first source to set a name wins."""

    def __init__(self) -> None:
        self.values: dict[str, Json] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.errors: list[Problem] = []

    def take(self, setting: Setting, raw: Json, place: _Place, wrong: list[Problem]) -> None:
        """Take the value of one source, unless a stronger one set it; a wrong value is told either way."""
        try:
            value = setting.parse(raw)
        except (ValueError, RuntimeError):  # expanduser raises RuntimeError for a user it does not know
            subject = f"`{setting.name}`" if place.file else place.origin[:1].upper() + place.origin[1:]
            message = f"{subject} {setting.wrong(raw)}"
            wrong.append(Problem("settings.invalid", message, file=place.file, line=place.line))
            return
        if setting.name not in self.values:
            self.values[setting.name] = value
            self.origins[setting.name] = place.origin

    def misspelt(self, environment: Environment) -> None:
        """Tell of variables that look like a setting and are none."""
        known = {setting.variable for setting in SETTINGS}
        for name in sorted(environment):
            if name.startswith(VARIABLE_PREFIX) and name not in known:
                for close in get_close_matches(name, known, n=1, cutoff=0.85):
                    message = f"The variable {name} is not a setting."
                    self.problems.append(Problem("settings.unknown", message, f"Did you mean {close}?"))

    def file(self, path: Path) -> None:
        """Take what `toolcrib.toml` sets, if there is one."""
        text, problem = _read_text(path)
        if problem:
            self.problems.append(problem)
        if not text:
            return
        try:
            table = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            message = f"The settings file is not TOML: {error}. No setting in it is used."
            self.problems.append(Problem("settings.invalid", message, file=str(path), line=_error_line(str(error))))
            return
        for key, raw in table.items():
            if key in TABLES:
                continue
            line = _line_of(key, text)
            setting = _BY_NAME.get(key)
            if setting is None or not setting.in_file:
                self.problems.append(_unknown_key(key, path, line))
            else:
                self.take(setting, raw, _Place(f"{path}:{line}", str(path), line), self.problems)


def _unknown_key(key: str, path: Path, line: int) -> Problem:
    if key in _BY_NAME:
        message = f"`{key}` cannot be set in this file."
        hint = f"Use {_BY_NAME[key].flag} or {_BY_NAME[key].variable}."
        return Problem("settings.unknown", message, hint, str(path), line)
    near = get_close_matches(key, [*(setting.name for setting in SETTINGS if setting.in_file), *TABLES], n=1)
    hint = f"Did you mean `{near[0]}`?" if near else "Run `toolcrib settings` to see all settings."
    return Problem("settings.unknown", f"`{key}` is not a setting.", hint, str(path), line)


def _read_text(path: Path) -> tuple[str, Problem | None]:
    """The text of a settings file, nothing if there is none; never waits for a pipe, never reads a huge file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (FileNotFoundError, NotADirectoryError):
        return "", None
    except OSError as error:
        return "", _unreadable(path, error.strerror or "it cannot be opened")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return "", _unreadable(path, "it is not a file")
    with os.fdopen(descriptor, "rb") as stream:
        raw = stream.read(FILE_LIMIT + 1)
    if len(raw) > FILE_LIMIT:
        return "", _unreadable(path, f"it is larger than {FILE_LIMIT} bytes")
    try:
        return raw.decode("utf-8-sig"), None
    except UnicodeDecodeError:
        return "", _unreadable(path, "it is not UTF-8")


def _unreadable(path: Path, reason: str) -> Problem:
    message = f"The settings file cannot be read: {reason}. No setting in it is used."
    return Problem("settings.invalid", message, file=str(path))


def _line_of(key: str, text: str) -> int:
    """The line on which a top-level key or table first stands; the TOML reader does not tell."""
    name = re.escape(key)
    found = re.search(rf"""(?m)^[ \t]*\[*[ \t]*["']?{name}["']?[ \t]*[=.\]]""", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _error_line(message: str) -> int | None:
    found = re.search(r"at line (\d+)", message)
    return int(found[1]) if found else None
