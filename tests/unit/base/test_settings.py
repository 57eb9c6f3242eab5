"""Settings: precedence and origin of each value, and the problems of invalid ones."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.base.settings import (
    FILE_LIMIT,
    SETTINGS,
    Environment,
    LoadedSettings,
    Settings,
    load_settings,
    mask_url,
    read_settings,
)
from toolcrib.model.errors import CODES, ConfigError


def load(home: Path, toml: str = "", flags: dict[str, object] | None = None, **variables: str) -> LoadedSettings:
    (home / "toolcrib.toml").write_text(toml, encoding="utf-8")
    return read_settings(Environment({"TOOLCRIB_HOME": str(home), **variables}), flags)


def test_flag_overrides_variable_file_and_default_in_this_order(tmp_path: Path) -> None:
    toml = 'port = 1001\nlog_level = "debug"\ndurability = "power"\n'
    loaded = load(tmp_path, toml, {"port": 1003}, TOOLCRIB_PORT="1002", TOOLCRIB_LOG_LEVEL="warning")
    settings = loaded.settings
    assert (settings.port, settings.log_level, settings.durability) == (1003, "warning", "power")
    assert settings.tool_timeout == 300
    assert loaded.problems == loaded.errors == ()


def test_origin_names_the_source_of_each_value(tmp_path: Path) -> None:
    settings = load(tmp_path, "# mine\n\nport = 1\n", {"host": "localhost"}, TOOLCRIB_LOG_LEVEL="error").settings
    assert settings.origin("port") == f"{tmp_path}/toolcrib.toml:3"
    assert settings.origin("host") == "flag --host"
    assert settings.origin("log_level") == "TOOLCRIB_LOG_LEVEL"
    assert settings.origin("home") == "TOOLCRIB_HOME"
    assert settings.origin("durability") == "default"


def test_settings_made_in_code_have_defaults_and_origin_code() -> None:
    settings = Settings(home=Path("/somewhere"), port=7)
    assert (settings.host, settings.port, settings.max_body_bytes) == ("127.0.0.1", 7, 4_194_304)
    assert (settings.origin("host"), settings.origin("port"), settings.origin("home")) == ("default", "code", "code")


def test_database_defaults_to_a_file_in_the_home(tmp_path: Path) -> None:
    assert Settings(home=tmp_path).database == f"sqlite:///{tmp_path}/toolcrib.db"
    assert Settings(home=tmp_path, database_url="postgresql://h/db").database == "postgresql://h/db"


def test_unknown_key_is_a_problem_with_its_line_and_a_similar_name(tmp_path: Path) -> None:
    loaded = load(tmp_path, "port = 5\nprot = 6\n\n[server]\nname = 1\n")
    misspelt, table = loaded.problems
    assert (misspelt.code, misspelt.line, misspelt.hint) == ("settings.unknown", 2, "Did you mean `port`?")
    assert misspelt.file == f"{tmp_path}/toolcrib.toml"
    assert (table.code, table.line) == ("settings.unknown", 4)
    assert loaded.settings.port == 5


def test_tables_of_rules_and_limits_are_not_reported(tmp_path: Path) -> None:
    loaded = load(tmp_path, 'port = 5\n[[rules]]\neffect = "deny"\npattern = "a/*"\n[[limits]]\ncalls = 3\n')
    assert (loaded.settings.port, loaded.problems) == (5, ())
    (misspelt,) = load(tmp_path, "[[rule]]\nx = 1\n").problems
    assert misspelt.hint == "Did you mean `rules`?"


def test_home_cannot_be_set_in_its_own_file(tmp_path: Path) -> None:
    (problem,) = load(tmp_path, 'home = "/elsewhere"\n').problems
    assert problem.message == "`home` cannot be set in this file."
    assert problem.hint == "Use --home or TOOLCRIB_HOME."


@pytest.mark.parametrize(
    ("toml", "name"),
    [
        ('port = "80x"', "port"),
        ("port = 65536", "port"),
        ("port = true", "port"),
        ("port = 1.5", "port"),
        ("host = 5", "host"),
        ('host = "http://127.0.0.1"', "host"),
        ('default_cwd = "relative/path"', "default_cwd"),
        ('database_url = "mysql://h/d"', "database_url"),
        ('durability = "always"', "durability"),
        ("tool_timeout = 0", "tool_timeout"),
        ("tool_timeout = nan", "tool_timeout"),
        ("tool_timeout = false", "tool_timeout"),
        ("max_body_bytes = 10", "max_body_bytes"),
        ('log_level = "loud"', "log_level"),
        ("log_level = [1]", "log_level"),
    ],
)
def test_invalid_value_in_the_file_is_a_problem_and_the_default_is_used(tmp_path: Path, toml: str, name: str) -> None:
    loaded = load(tmp_path, toml)
    (problem,) = loaded.problems
    assert problem.code == "settings.invalid"
    assert problem.line == 1
    assert problem.message.startswith(f"`{name}` must be ")
    assert getattr(loaded.settings, name) == getattr(Settings(home=tmp_path), name)


def test_default_cwd_cannot_contain_the_home(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path.parent)
    for place in (tmp_path, tmp_path.parent, "/", tmp_path / "link", tmp_path / "x" / ".."):
        loaded = load(tmp_path, f'default_cwd = "{place}"')
        (problem,) = loaded.problems
        assert (problem.code, loaded.settings.default_cwd) == ("settings.invalid", None)
        assert "contains the crib's home" in problem.message
        assert problem.hint is not None
        variables = Environment({"TOOLCRIB_HOME": str(tmp_path), "TOOLCRIB_DEFAULT_CWD": str(place)})
        with pytest.raises(ConfigError, match="contains the crib's home"):
            load_settings(variables)
    sibling = tmp_path.parent / "beside"
    assert load(tmp_path, f'default_cwd = "{sibling}"').settings.default_cwd == sibling


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        (b"port = 1\nhost = \n", "is not valid TOML", 2),
        (b"port = 1\nport = 2\n", "is not valid TOML", 2),
        (b"\xff\xfe\x00", "is not UTF-8", None),
        (b"#" * (FILE_LIMIT + 1), "is larger than", None),
        (b"x = " + b"[" * 100_000, "is not valid TOML", None),
        (b"x = " + b"9" * 5_000, "is not valid TOML", None),
        (b"x = 0x" + b"f" * 5_000, "is not valid TOML", None),
        (b"port = 0x" + b"f" * 5_000, "is not valid TOML", None),
        (b"x = " + b"[" * 300 + b"]" * 300, "is not valid TOML", None),
    ],
)
def test_unreadable_file_is_one_problem_and_ignored_as_a_whole(
    tmp_path: Path, content: bytes, message: str, line: int | None
) -> None:
    (tmp_path / "toolcrib.toml").write_bytes(content)
    loaded = read_settings(Environment({"TOOLCRIB_HOME": str(tmp_path)}))
    (problem,) = loaded.problems
    assert message in problem.message
    assert problem.line == line
    assert loaded.settings.port == 4242


@pytest.mark.usefixtures("alarm")
def test_pipe_or_directory_in_place_of_the_file_is_a_problem_without_blocking(tmp_path: Path) -> None:
    for make in (os.mkfifo, os.mkdir):
        home = tmp_path / make.__name__
        home.mkdir()
        make(home / "toolcrib.toml")
        (problem,) = read_settings(Environment({"TOOLCRIB_HOME": str(home)})).problems
        assert problem.message.startswith("The settings file cannot be read: ")


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "toolcrib.toml").write_bytes(b"\xef\xbb\xbfport = 9\n")
    assert read_settings(Environment({"TOOLCRIB_HOME": str(tmp_path)})).settings.port == 9


@pytest.mark.parametrize("variable", ["TOOLCRIB_PORT", "TOOLCRIB_TOOL_TIMEOUT", "TOOLCRIB_MAX_BODY_BYTES"])
def test_invalid_variable_prevents_the_start_and_is_named(tmp_path: Path, variable: str) -> None:
    environment = Environment({"TOOLCRIB_HOME": str(tmp_path), variable: "many"})
    with pytest.raises(ConfigError) as caught:
        load_settings(environment)
    assert caught.value.code == "settings.invalid"
    assert caught.value.message.startswith(f"{variable} must be ")
    assert "'many'" in caught.value.message


def test_invalid_flag_prevents_the_start_and_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^Flag --database must be a URL"):
        load_settings(Environment({"TOOLCRIB_HOME": str(tmp_path)}), {"database_url": "oracle:x"})


def test_empty_variable_counts_as_unset(tmp_path: Path) -> None:
    loaded = load(tmp_path, "port = 3", TOOLCRIB_PORT="")
    assert (loaded.settings.port, loaded.errors) == (3, ())


def test_misspelt_variable_is_a_problem_and_an_unrelated_one_is_not(tmp_path: Path) -> None:
    (problem,) = load(tmp_path, TOOLCRIB_PROT="1", TOOLCRIB_CORPUS="/x", TOOLCRIB_LIVE="1").problems
    assert problem.message == "The environment variable TOOLCRIB_PROT is not a setting."
    assert problem.hint == "Did you mean TOOLCRIB_PORT?"


def test_relative_home_or_home_with_a_tilde_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_settings(Environment({"TOOLCRIB_HOME": "here"})).settings.home == tmp_path / "here"
    assert read_settings(Environment({"TOOLCRIB_HOME": "~/there"})).settings.home == tmp_path / "there"
    (error,) = read_settings(Environment({"TOOLCRIB_HOME": "~no-such-user/x"})).errors
    assert error.message.startswith("TOOLCRIB_HOME must be a path")


def test_default_home_is_in_the_users_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    settings = read_settings(Environment()).settings
    assert settings.home.name == "toolcrib"
    assert settings.home.is_relative_to(tmp_path)
    assert settings.origin("home") == "default"
    assert not settings.home.exists()


PASSWORD = "s3cr3t-pa:ss@word"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{PASSWORD}@db.example:5432/crib",
        f"postgresql+psycopg://:{PASSWORD}@/crib?host=/run",
        f"postgresql://db.example/crib?password={PASSWORD}&sslmode=require",
        f"postgresql://db.example/crib?sslmode=require&sslPassword={PASSWORD}",
    ],
)
def test_password_of_the_database_url_is_never_shown(tmp_path: Path, url: str) -> None:
    loaded = load(tmp_path, TOOLCRIB_DATABASE_URL=url)
    shown = f"{loaded!r} {loaded.settings.describe()} {mask_url(url)}"
    assert "s3cr3t" not in shown
    assert "***" in shown
    assert loaded.settings.database == url


def test_rejected_database_url_is_not_repeated(tmp_path: Path) -> None:
    loaded = load(tmp_path, f'database_url = "mysql://u:{PASSWORD}@h/d"', TOOLCRIB_DATABASE_URL=f"db2://{PASSWORD}")
    assert "s3cr3t" not in repr(loaded)


def test_environment_is_a_copy_whose_repr_shows_only_names() -> None:
    variables = {"KEY": "hidden-value"}
    environment = Environment(variables)
    variables["KEY"] = "changed"
    assert dict(environment) == {"KEY": "hidden-value"}
    assert "hidden-value" not in repr(environment)


def test_current_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLCRIB_TEST_MARK", "yes")
    assert Environment.current()["TOOLCRIB_TEST_MARK"] == "yes"


def test_each_setting_is_described_by_name_value_origin_and_help(tmp_path: Path) -> None:
    rows = load(tmp_path, TOOLCRIB_PORT="8").settings.describe()
    assert [row["name"] for row in rows] == [setting.name for setting in SETTINGS]
    assert all(set(row) == {"name", "value", "origin", "help"} and row["help"].endswith(".") for row in rows)
    assert next(row for row in rows if row["name"] == "port")["value"] == 8
    assert next(row for row in rows if row["name"] == "home")["value"] == str(tmp_path)


@given(st.dictionaries(st.sampled_from([setting.variable for setting in SETTINGS]), st.text(), max_size=4))
def test_any_value_of_a_variable_yields_only_known_problems(variables: dict[str, str]) -> None:
    loaded = read_settings(Environment(variables))
    assert all(problem.code in CODES for problem in (*loaded.problems, *loaded.errors))


@given(st.integers(min_value=-10, max_value=70_000))
def test_port_is_accepted_only_in_the_valid_range(port: int) -> None:
    loaded = read_settings(Environment({"TOOLCRIB_HOME": "/nowhere", "TOOLCRIB_PORT": str(port)}))
    assert (loaded.settings.port == port and not loaded.errors) == (0 <= port <= 65_535)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("https://Phone.example/", "https://phone.example"),
        ("https://phone.example:443", "https://phone.example"),
        ("http://127.0.0.1:4242", "http://127.0.0.1:4242"),
        ("http://[::1]:4242", "http://[::1]:4242"),
        ("http://phone.example", None),
        ("https://phone.example/path", None),
        ("https://user@phone.example", None),
        ("https://phone.example:99999", None),
    ],
)
def test_approval_address_is_an_encrypted_or_local_origin(tmp_path: Path, text: str, kept: str | None) -> None:
    environment = Environment({"TOOLCRIB_HOME": str(tmp_path), "TOOLCRIB_APPROVAL_ADDRESS": text})
    loaded = read_settings(environment)
    assert loaded.settings.approval_address == kept
    assert [each.code for each in loaded.errors] == ([] if kept else ["settings.invalid"])
