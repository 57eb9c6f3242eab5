"""The owner's settings, and where each value comes from.

Precedence: flags, environment variables, `toolcrib.toml` in the home, defaults. The result is a frozen `Settings`, and
a frozen `Environment` for code that expands variables or starts processes.

This is the only module that reads the environment. Must never write to it or show a password.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast, get_args

import platformdirs

from toolcrib.base import setting_values as values
from toolcrib.model import toml
from toolcrib.model.errors import ConfigError
from toolcrib.model.json import Json, JsonObject
from toolcrib.model.problems import Problem

Durability = Literal["process", "power"]
LogLevel = Literal["debug", "info", "warning", "error"]

VARIABLE_PREFIX = "TOOLCRIB_"
FILE_LIMIT = 1_048_576
"""Maximum size of a settings file, in bytes."""
GITHUB_URL = "https://api.github.com"


TABLES = frozenset({"rules", "limits", "runners"})
"""Tables of the settings file that are not settings; `gate.policy` and `agents.sessions` read them directly."""


class Environment(Mapping[str, str]):
    """The environment variables of one process at one moment. `repr` shows names only."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        self._variables = MappingProxyType(dict(variables or {}))

    @classmethod
    def current(cls) -> "Environment":
        """Return the current variables of this process."""
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
    """All settings. `origins` maps each setting that is not at its default to its origin."""

    home: Path
    host: str = "127.0.0.1"
    port: int = 4242
    default_cwd: Path | None = None
    database_url: str | None = field(default=None, repr=False)
    node_secret_file: Path | None = None
    behind_proxy: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    durability: Durability = "process"
    tool_timeout: float = 300.0
    max_body_bytes: int = 4 * 1_048_576
    result_tokens: int = 25_000
    whole_results: tuple[str, ...] = ()
    search_above: int = 10_000
    search_model: Path | None = None
    max_sessions: int = 8
    session_idle: float = 600.0
    stop_grace: float = 10.0
    log_level: LogLevel = "info"
    audit_keep_days: int | None = None
    audit_anchor: str | None = None
    approval_address: str | None = None
    approval_reminder: int = 300
    webhook_secret: str | None = field(default=None, repr=False)
    github_token: str | None = field(default=None, repr=False)
    github_url: str = GITHUB_URL
    github_organisations: tuple[str, ...] | None = None
    github_label: str = "toolcrib"
    client_metadata_url: str | None = None
    registry_url: str = "https://registry.modelcontextprotocol.io"
    record_sessions: bool = False
    otel: bool = False
    otel_content: bool = False
    origins: Mapping[str, str] = field(default_factory=dict[str, str], compare=False, repr=False)

    @property
    def database(self) -> str:
        """The database URL: the configured one, else the SQLite file in the home."""
        return self.database_url or f"sqlite:///{self.home / 'toolcrib.db'}"

    def origin(self, name: str) -> str:
        """Return a description of where the value of this setting comes from."""
        untouched = _DEFAULTS.get(name, MISSING) == getattr(self, name)
        return self.origins.get(name) or ("default" if untouched else "code")

    def describe(self) -> list[JsonObject]:
        """Return the public shape: name, value, origin and meaning of each setting, with passwords masked."""
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
    """Return a URL without its password and without secrets in its query."""
    bare = re.sub(r"^([\w+.-]+://[^:/@]*):.*@", r"\1:***@", url, flags=re.DOTALL)
    return re.sub(r"(?i)([?&][^=&]*(?:pass|secret|token|key)[^=&]*)=[^&]*", r"\1=***", bare)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: how a value is parsed, the expected form, and its meaning.

    `by_tool`: an agent that may change settings may change this one. False for settings that control where secrets are
    sent or what agents may do.
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
        """The environment variable for this setting."""
        return VARIABLE_PREFIX + self.name.upper()

    def show(self, value: Json) -> Json:
        """Return the value for display: as JSON, without passwords."""
        if value is None:
            return None
        if self.secret:
            return mask_url(str(value)) if "://" in str(value) else "***"
        if isinstance(value, tuple):
            return list(cast("tuple[Json, ...]", value))
        return str(value) if isinstance(value, Path) else value

    def wrong(self, value: Json) -> str:
        """Return the error message for this value; a secret is not repeated."""
        return f"must be {self.expected}" + ("." if self.secret else f", not {value!r}.")


SETTINGS: tuple[Setting, ...] = (
    Setting("home", values.path, "a path", "The directory that holds all data of the crib.", "--home", in_file=False),
    Setting(
        "host", values.host, "a host name or address",
        "The address to listen on. One that other machines can reach needs TLS or a proxy.", "--host",
    ),
    Setting(
        "port", values.whole(0, 65_535), "a whole number from 0 to 65535",
        "The port to listen on. 0 picks a free port.", "--port",
    ),
    Setting(
        "default_cwd", values.absolute_path, "an absolute path, or a path that starts with ~",
        "The working directory for requests that do not specify one.",
    ),
    Setting(
        "database_url", values.database, "a URL that starts with sqlite:// or postgresql://",
        "The database URL. If unset, the SQLite file `toolcrib.db` in the home.", "--database", secret=True,
    ),
    Setting(
        "node_secret_file", values.path, "a path",
        "The secret that all nodes of a cluster share: a file of at least 32 bytes with mode 0600.",
        "--node-secret-file", by_tool=False,
    ),
    Setting(
        "behind_proxy", values.networks, "a list of addresses or networks, such as 10.0.0.1 or 10.0.0.0/24",
        "The proxies that end TLS in front of this crib. Only they can connect from other machines.",
        "--behind-proxy", by_tool=False,
    ),
    Setting(
        "tls_cert", values.path, "a path",
        "The certificate chain (PEM) for connections from other machines.", "--tls-cert", by_tool=False,
    ),
    Setting(
        "tls_key", values.path, "a path",
        "The private key (PEM) of the certificate.", "--tls-key", by_tool=False,
    ),
    Setting(
        "durability", values.one_of(*get_args(Durability)), '"process" or "power"',
        "What stored data survives before a call continues: `process` a crash of the crib, `power` also a power cut.",
    ),
    Setting(
        "tool_timeout", values.seconds, "a number of seconds above 0, at most 86400",
        "The default timeout of a tool call, in seconds.",
    ),
    Setting(
        "max_body_bytes", values.whole(1024, 1_073_741_824), "a whole number from 1024 to 1073741824",
        "The maximum size of a request body, in bytes.",
    ),
    Setting(
        "result_tokens", values.whole(0, 10_000_000), "a whole number from 0 to 10000000",
        "The largest result an MCP client or a session receives whole, in estimated tokens. 0 means no limit.",
    ),
    Setting(
        "whole_results", values.tool_patterns, "a list of tools, such as github/get_*",
        "Tools whose results are never shortened, as `server/tool` with `*` as a wildcard.",
    ),
    Setting(
        "search_above", values.whole(0, 10_000_000), "a whole number from 0 to 10000000",
        "Estimated tokens of tools above which `connect` uses search mode for apps that load all definitions.",
    ),
    Setting(
        "search_model", values.path, "a path",
        "The directory of a model2vec model with which the search also ranks by meaning (extra `search`). "
        "Nothing is downloaded.", by_tool=False,
    ),
    Setting(
        "max_sessions", values.whole(1, 1_000), "a whole number from 1 to 1000",
        "The maximum number of sessions with a running process. Each uses about 100 MB.",
    ),
    Setting(
        "session_idle", values.seconds, "a number of seconds above 0, at most 86400",
        "Seconds until the process of an idle session is stopped. The next message starts a new one.",
    ),
    Setting(
        "stop_grace", values.seconds, "a number of seconds above 0, at most 86400",
        "Seconds that calls in flight get to finish at shutdown. A second signal ends them at once.",
    ),
    Setting(
        "log_level", values.one_of(*get_args(LogLevel)), '"debug", "info", "warning" or "error"',
        "The log level. `debug` also shows the traceback of unexpected errors.",
    ),
    Setting(
        "audit_keep_days", values.whole(1, 36_500), "a whole number from 1 to 36500",
        "Days after which audit records move from the database to sealed files. If unset, they stay in the database.",
    ),
    Setting(
        "audit_anchor", values.anchor, "an absolute path, a URL, or `git:` and an absolute path",
        "Where the head of the audit chain is written every hour: a place that users of the home cannot change.",
        by_tool=False,
    ),
    Setting(
        "approval_address", values.origin, "https:// and a host, or http:// and a loopback address, without a path",
        "The address at which approval links work, and nothing else does. If unset, there are no approval links.",
        by_tool=False,
    ),
    Setting(
        "approval_reminder", values.whole(0, 14_400), "a whole number from 0 to 14400",
        "Seconds until the second notice about a pending approval. 0 means no second notice.", by_tool=False,
    ),
    Setting(
        "webhook_secret", values.signing_secret, "at least 16 printable characters",
        "The secret that signs webhook notices, as `whsec_` and base64 or as text.", secret=True, by_tool=False,
    ),
    Setting(
        "github_token", values.token, "a token of printable characters",
        "The GitHub token for the crew tools. If unset, the GitHub tools are not registered.", secret=True,
    ),
    Setting(
        "github_url", values.web_address, "a URL that starts with https://",
        "The URL of the GitHub REST API. For GitHub Enterprise it ends with `/api/v3`.", by_tool=False,
    ),
    Setting(
        "github_organisations", values.owners, "a list of users and organisations",
        "Users and organisations whose repositories agents can change. If unset, all that the token can change.",
        by_tool=False,
    ),
    Setting(
        "github_label", values.label, "up to 50 characters without a comma",
        "The label for issues and pull requests that agents open. If empty, no label.",
    ),
    Setting(
        "client_metadata_url", values.document_url, "an https:// URL with a path",
        "The URL of the OAuth client metadata document, for authorization servers that support it.", by_tool=False,
    ),
    Setting(
        "registry_url", values.registry, "a URL, or an absolute path",
        "The MCP registry that `mcp search` and `mcp add registry:NAME` use: its URL, or a snapshot file.",
        by_tool=False,
    ),
    Setting(
        "record_sessions", values.switch, "true or false",
        "Whether every session is recorded, to be replayed. Otherwise, those that ask for it are.", by_tool=False,
    ),
    Setting(
        "otel", values.switch, "true or false",
        "Whether traces, metrics and logs are sent by OTLP, as the `OTEL_*` variables say. Needs `toolcrib[otel]`.",
        by_tool=False,
    ),
    Setting(
        "otel_content", values.switch, "true or false",
        "Whether traces contain the arguments and results of calls, with detected secrets masked.", by_tool=False,
    ),
)  # fmt: skip
_BY_NAME = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings as read. `problems` are not fatal; `errors` are invalid flags and variables, which are."""

    settings: Settings
    problems: tuple[Problem, ...] = ()
    errors: tuple[Problem, ...] = ()


def load_settings(environment: Environment, flags: Mapping[str, Json] | None = None) -> LoadedSettings:
    """Return the settings for a start. Raises `settings.invalid` for an invalid flag or variable."""
    loaded = read_settings(environment, flags)
    if loaded.errors:
        raise ConfigError(loaded.errors[0].code, loaded.errors[0].message)
    return loaded


def read_settings(environment: Environment, flags: Mapping[str, Json] | None = None) -> LoadedSettings:
    """Return the settings for display: like `load_settings`, with errors as data. Flags that are None are ignored."""
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
    reading.refuse_around_home()
    settings = Settings(**reading.values, origins=MappingProxyType(reading.origins))
    return LoadedSettings(settings, tuple(reading.problems), tuple(reading.errors))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a value is set: a description, and the file and line if any."""

    origin: str
    file: str | None = None
    line: int | None = None


def contains_home(directory: Path, home: Path) -> bool:
    """Return whether a directory is the home or contains it, under any name.

    Such a working directory would make the home part of every session's project.
    """
    real, inner = directory.expanduser().resolve(), home.resolve()
    if inner.is_relative_to(real):
        return True
    return any(_is_same(real, each) for each in (inner, *inner.parents))


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


AROUND_HOME = "cannot be a directory that contains the crib's home"
AROUND_HOME_HINT = "Use a project directory, or leave `default_cwd` unset."


class _Reading:
    """Values read so far; the first source that sets a name wins."""

    def __init__(self) -> None:
        self.values: dict[str, Json] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.errors: list[Problem] = []

    def take(self, setting: Setting, raw: Json, place: _Place, wrong: list[Problem]) -> None:
        """Take a value unless a source with higher precedence set it; an invalid value is always reported."""
        try:
            value = setting.parse(raw)
        except (ValueError, RuntimeError):  # expanduser raises RuntimeError for an unknown user
            subject = f"`{setting.name}`" if place.file else place.origin[:1].upper() + place.origin[1:]
            message = f"{subject} {setting.wrong(raw)}"
            wrong.append(Problem("settings.invalid", message, file=place.file, line=place.line))
            return
        if setting.name not in self.values:
            self.values[setting.name] = value
            self.origins[setting.name] = place.origin

    def refuse_around_home(self) -> None:
        """Drop a `default_cwd` that contains the home: a problem if it is set in the file, an error otherwise."""
        place = self.values.get("default_cwd")
        if not isinstance(place, Path) or not contains_home(place, self.values["home"]):
            return
        del self.values["default_cwd"]
        origin = self.origins.pop("default_cwd")
        message = f"`default_cwd` {AROUND_HOME}: {place} ({origin})."
        is_file = origin.startswith(str(self.values["home"] / "toolcrib.toml"))
        found = self.problems if is_file else self.errors
        found.append(Problem("settings.invalid", message, AROUND_HOME_HINT))

    def misspelt(self, environment: Environment) -> None:
        """Report variables that look like misspelt settings."""
        known = {setting.variable for setting in SETTINGS}
        for name in sorted(environment):
            if name.startswith(VARIABLE_PREFIX) and name not in known:
                for close in get_close_matches(name, known, n=1, cutoff=0.85):
                    message = f"The environment variable {name} is not a setting."
                    self.problems.append(Problem("settings.unknown", message, f"Did you mean {close}?"))

    def file(self, path: Path) -> None:
        """Read `toolcrib.toml`, if it exists."""
        text, problem = _read_text(path)
        if problem:
            self.problems.append(problem)
        if not text:
            return
        try:
            table = toml.loads(text)
        except ValueError as error:
            message = f"The settings file is not valid TOML: {error}. All settings in it are ignored."
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
    """Return the text of a settings file, empty if it is missing. Does not block on pipes or read huge files."""
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
    message = f"The settings file cannot be read: {reason}. All settings in it are ignored."
    return Problem("settings.invalid", message, file=str(path))


def _line_of(key: str, text: str) -> int:
    """Return the line where a top-level key or table first appears; `tomllib` does not report it."""
    name = re.escape(key)
    found = re.search(rf"""(?m)^[ \t]*\[*[ \t]*["']?{name}["']?[ \t]*[=.\]]""", text)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _error_line(message: str) -> int | None:
    found = re.search(r"at line (\d+)", message)
    return int(found[1]) if found else None
