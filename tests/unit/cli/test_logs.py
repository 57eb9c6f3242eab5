"""The log: one record a line, private, without the token, and never in the way."""

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolcrib.base.home import Home, prepare_home
from toolcrib.cli.logs import log_file, start_logging

logger = logging.getLogger("toolcrib.somewhere")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return prepare_home(tmp_path / "home")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("toolcrib")
    handlers, levels, raises = list(root.handlers), (root.level, ours.level), logging.raiseExceptions
    yield
    for handler in [each for each in root.handlers if each not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.raiseExceptions = raises


def written(home: Home) -> list[str]:
    return (home.logs / "toolcrib.log").read_text(encoding="utf-8").splitlines()


def test_a_message_of_others_cannot_pass_for_a_record(home: Home) -> None:
    start_logging(home, "info", [])
    logger.info("Refused %s", "x\n2026-01-01 00:00:00,000 INFO toolcrib.gate: all is well\x1b[2J\r")
    first, second = written(home)
    assert "INFO toolcrib.somewhere: Refused x" in first
    assert second == r"  | 2026-01-01 00:00:00,000 INFO toolcrib.gate: all is well\u{1b}[2J\u{d}"


def test_the_token_is_masked_also_in_a_trace(home: Home) -> None:
    start_logging(home, "info", ["the-secret-token"])
    try:
        raise ValueError("with the-secret-token inside")
    except ValueError:
        logger.exception("Failed with %s", "the-secret-token")
    text = "\n".join(written(home))
    assert "the-secret-token" not in text
    assert text.count("***") == 3
    assert "Traceback" in text


def test_the_file_is_private_under_any_umask_and_after_it_was_turned_over(home: Home) -> None:
    before = os.umask(0)
    try:
        start_logging(home, "info", [])
        for _ in range(60):
            logger.info("%s", "x" * 100_000)
    finally:
        os.umask(before)
    files = sorted(home.logs.iterdir())
    assert [path.name for path in files] == ["toolcrib.log", "toolcrib.log.1"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_the_level_is_that_of_the_settings_and_others_only_warn(home: Home) -> None:
    start_logging(home, "info", [])
    logger.debug("ours, too fine")
    logger.info("ours")
    logging.getLogger("httpx2").info("theirs, too fine")
    logging.getLogger("httpx2").warning("theirs")
    assert [line.rpartition(": ")[2] for line in written(home)] == ["ours", "theirs"]


def test_warnings_are_shown_only_to_whoever_wants_to_be_talked_to(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    start_logging(home, "info", [], talk=True)
    logger.info("in the file")
    logger.warning("for a person")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("WARNING toolcrib.somewhere: for a person\n")
    assert "in the file" not in said.err


def test_logging_starts_once_and_knows_its_file(home: Home) -> None:
    assert log_file() is None
    start_logging(home, "info", [])
    start_logging(home, "info", [])
    logger.info("once")
    assert log_file() == home.logs / "toolcrib.log"
    assert len(written(home)) == 1


def test_a_log_that_cannot_be_written_is_said_and_stops_nothing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    (home.logs / "toolcrib.log").mkdir()
    start_logging(home, "info", [])
    logger.info("into nowhere")
    assert "warning: Cannot write the log in" in capsys.readouterr().err


def test_a_link_in_place_of_the_log_is_not_followed(home: Home, tmp_path: Path) -> None:
    (home.logs / "toolcrib.log").symlink_to(tmp_path / "elsewhere")
    start_logging(home, "info", [])
    logger.info("into nowhere")
    assert not (tmp_path / "elsewhere").exists()
