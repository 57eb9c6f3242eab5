"""The log: one record a line, private, without the token, and never a reason to fail."""

import logging
import os
import stat
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest

from toolcrib.base.home import Home, prepare_home
from toolcrib.cli.logs import log_file, start_logging

logger = logging.getLogger("toolcrib.somewhere")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return prepare_home(tmp_path / "home")


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("toolcrib")
    handlers, levels, raises = list(root.handlers), (root.level, own.level), logging.raiseExceptions
    for handler in handlers:  # an earlier test may have run a command in this process
        if isinstance(handler, RotatingFileHandler):
            root.removeHandler(handler)
    yield
    for handler in list(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
            handler.close()
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.raiseExceptions = raises


def log_lines(home: Home) -> list[str]:
    return (home.logs / "toolcrib.log").read_text(encoding="utf-8").splitlines()


def test_message_cannot_forge_a_record(home: Home) -> None:
    start_logging(home, "info", [])
    logger.info("Refused %s", "x\n2026-01-01 00:00:00,000 INFO toolcrib.gate: all is well\x1b[2J\r")
    first, second = log_lines(home)
    assert "INFO toolcrib.somewhere: Refused x" in first
    assert second == r"  | 2026-01-01 00:00:00,000 INFO toolcrib.gate: all is well\u{1b}[2J\u{d}"


def test_token_is_masked_in_messages_and_tracebacks(home: Home) -> None:
    start_logging(home, "info", ["the-secret-token"])
    try:
        raise ValueError("with the-secret-token inside")
    except ValueError:
        logger.exception("Failed with %s", "the-secret-token")
    text = "\n".join(log_lines(home))
    assert "the-secret-token" not in text
    assert text.count("***") == 3
    assert "Traceback" in text


def test_log_file_is_private_under_any_umask_and_after_rotation(home: Home) -> None:
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


def test_own_records_follow_the_log_level_and_libraries_only_warn(home: Home) -> None:
    start_logging(home, "info", [])
    logger.debug("own detail")
    logger.info("own")
    logging.getLogger("httpx2").info("detail of a library")
    logging.getLogger("httpx2").warning("of a library")
    assert [line.rpartition(": ")[2] for line in log_lines(home)] == ["own", "of a library"]


def test_warnings_are_printed_only_if_requested(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    start_logging(home, "info", [], talk=True)
    logger.info("in the file")
    logger.warning("for a person")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("WARNING toolcrib.somewhere: for a person\n")
    assert "in the file" not in printed.err


def test_logging_starts_once_and_reports_its_file(home: Home) -> None:
    assert log_file() is None
    start_logging(home, "info", [])
    start_logging(home, "info", [])
    logger.info("once")
    assert log_file() == home.logs / "toolcrib.log"
    assert len(log_lines(home)) == 1


def test_unwritable_log_prints_a_warning_and_does_not_fail(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    (home.logs / "toolcrib.log").mkdir()
    start_logging(home, "info", [])
    logger.info("into nowhere")
    assert "warning: Cannot write the log in" in capsys.readouterr().err


def test_link_in_place_of_the_log_is_not_followed(home: Home, tmp_path: Path) -> None:
    (home.logs / "toolcrib.log").symlink_to(tmp_path / "elsewhere")
    start_logging(home, "info", [])
    logger.info("into nowhere")
    assert not (tmp_path / "elsewhere").exists()
