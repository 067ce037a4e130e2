"""Lines of a log, their file, and levels of packages."""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from geminga.app.commands.server_options import settings_of, with_log_options
from geminga.app.configuration.core.log_options import FILES, LogOptions, parse_levels
from geminga.app.lifecycle.log_file import RotatedFile
from geminga.app.lifecycle.log_lines import JsonLines, PackageLevels, TextLines, begin_log
from geminga.app.lifecycle.paragraphs import print_paragraph, shown_paragraph, write_paragraphs_as
from geminga.model.errors import ConfigurationError
from geminga.runtime.log import trace_id


def record(message: str, *arguments: object) -> logging.LogRecord:
    made = logging.LogRecord("geminga.broker", logging.INFO, "f.py", 1, message, arguments, None)
    made.created = 1_764_299_747.2879
    return made


def test_a_line_of_json_has_what_the_page_says() -> None:
    line = JsonLines("broker-1").format(record('a %s\n"b"', "é"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2025-11-28T03:15:47.287Z",
        "level": "INFO",
        "logger": "geminga.broker",
        "message": 'a é\n"b"',
        "process": "broker-1",
    }


def test_a_traceback_is_in_its_line() -> None:
    failed = record("failed")
    try:
        raise ValueError("bad\nvalue")
    except ValueError:
        failed.exc_info = sys.exc_info()
    line = JsonLines().format(failed)
    assert "\n" not in line
    assert json.loads(line)["error"].endswith("ValueError: bad\nvalue")


def test_lines_have_the_trace_id_of_the_request_that_is_served() -> None:
    token = trace_id.set("ab" * 16)
    try:
        assert json.loads(JsonLines().format(record("m")))["trace"] == "ab" * 16
        assert TextLines("broker-1").format(record("m")).endswith(f" INFO broker-1 geminga.broker: m [{'ab' * 16}]")
    finally:
        trace_id.reset(token)
    assert TextLines().format(record("m")).endswith(" INFO geminga.broker: m")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (LogOptions("loud"), "--log-level loud: expected one of debug, info"),
        (LogOptions(form="xml"), "--log-format xml: expected text or json"),
        (LogOptions(file_bytes=10), "--log-file-bytes 10: expected at least 4096"),
        (LogOptions(file_bytes=4095), "--log-file-bytes 4095: expected at least 4096"),
        (LogOptions(files=0), "--log-files 0: expected a number of files, 1 to 1000"),
        (LogOptions(files=1001), "--log-files 1001: expected a number of files, 1 to 1000"),
        (LogOptions(file="/dev/null/x"), "--log-file /dev/null/x: Not a directory"),
    ],
)
def test_bad_options_are_refused(options: LogOptions, why: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(why)):
        begin_log(options)


def test_the_smallest_and_the_largest_of_the_options_are_taken() -> None:
    LogOptions(file_bytes=4096, files=1).check()
    LogOptions(files=1000).check()


def test_a_child_has_a_file_of_its_own() -> None:
    assert LogOptions(file="a.log").of_child("broker-1").file == "a.log.broker-1"
    assert LogOptions().of_child("broker-1") == LogOptions()


def test_a_servers_command_has_the_options_of_its_log_and_is_given_what_they_say() -> None:
    given = []

    @with_log_options
    def command(log: LogOptions, data: str = "") -> None:
        given.append((log, data))

    options = inspect.signature(command).parameters
    assert [*options] == ["data", "log_level", "log_format", "log_file", "log_file_bytes", "log_files"]
    assert (
        LogOptions().files == FILES == int(re.findall("[0-9]+", get_args(options["log_files"].annotation)[1].help)[0])
    )
    said = {name: option.default for name, option in options.items()}
    command(**{**said, "data": "here", "log_file": "a.log"})
    assert given == [(LogOptions(file="a.log"), "here")]


def test_options_that_are_given_win_over_settings() -> None:
    assert settings_of(["a=1"], {"a": 2, "b": None, "c": 0}) == ["a=1", "a=2", "c=0"]
    assert settings_of(None, {}) == []


def test_a_full_file_gives_way_to_the_next_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "g.log"
    handler = RotatedFile(str(path), maxBytes=100, backupCount=2, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    for number in range(8):
        handler.handle(record("%s", f"{number} " + "x" * 58))
    handler.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["g.log", "g.log.1", "g.log.2"]
    assert [one.read_text()[0] for one in (path, tmp_path / "g.log.1", tmp_path / "g.log.2")] == ["7", "6", "5"]


def test_what_can_not_be_written_is_told_once_and_raises_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A file that can not be made: as on a full disk, each line fails.
    handler = RotatedFile(str(tmp_path / "none" / "g.log"), maxBytes=0, backupCount=1, encoding="utf-8", delay=True)
    handler.setFormatter(JsonLines())
    for _ in range(3):
        handler.handle(record("m"))
    handler.close()
    (told,) = capsys.readouterr().err.splitlines()
    assert "none/g.log: [Errno 2]" in json.loads(told)["message"]


@pytest.fixture
def strict_umask() -> Iterator[None]:
    """As a service may have it."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.usefixtures("strict_umask")
def test_a_log_file_is_its_users_alone_and_the_next_one_is_open_to_whom_the_one_before_was(tmp_path: Path) -> None:
    path = tmp_path / "g.log"
    handler = RotatedFile(str(path), maxBytes=10, backupCount=1, encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # As an operator opens it to who ships lines; who is not root has its own groups alone.
    group = os.getgid() if os.geteuid() else os.getgid() + 1
    os.chown(path, -1, group)
    path.chmod(0o640)
    for _ in range(3):
        handler.handle(record("a line that fills a file"))
    handler.close()
    found = [one.stat() for one in tmp_path.iterdir()]
    assert [(stat.S_IMODE(one.st_mode), one.st_gid) for one in found] == [(0o640, group)] * 2


@pytest.mark.parametrize("way", ["moved", "removed", "replaced"])
def test_a_file_that_others_took_away_is_begun_anew(tmp_path: Path, way: str) -> None:
    """As logrotate does: lines went on into a file that had no name any more."""
    path, moved = tmp_path / "g.log", tmp_path / "g.log-20261130"
    handler = RotatedFile(str(path), maxBytes=1000, backupCount=1, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    handler.handle(record("first"))
    path.chmod(0o640)
    path.unlink() if way == "removed" else path.rename(moved)
    if way == "replaced":
        path.touch(0o644)
    for text in ("second", "third"):
        handler.handle(record(text))
    handler.close()
    assert path.read_text() == "second\nthird\n"
    assert stat.S_IMODE(path.stat().st_mode) == (0o644 if way == "replaced" else 0o640)
    assert way == "removed" or moved.read_text() == "first\n"


def test_a_disk_that_is_full_again_is_told_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "folder"
    handler = RotatedFile(str(folder / "g.log"), maxBytes=0, backupCount=1, encoding="utf-8", delay=True)
    handler.handle(record("lost"))
    folder.mkdir()
    handler.handle(record("kept"))
    (folder / "g.log").unlink()
    folder.rmdir()
    for _ in range(2):
        handler.handle(record("lost"))
    handler.close()
    assert len(capsys.readouterr().err.splitlines()) == 2


@pytest.fixture
def paragraphs() -> Iterator[None]:
    """Paragraphs in their own form again."""
    yield
    write_paragraphs_as(None)


@pytest.mark.usefixtures("paragraphs")
def test_paragraphs_take_the_form_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_paragraph("it\nends") == "geminga: it ends"
    write_paragraphs_as(lambda text: json.dumps({"message": text}))
    print_paragraph("it\nends")
    assert json.loads(capsys.readouterr().err) == {"message": "it ends"}


def test_levels_of_packages_are_set_and_taken_back() -> None:
    one, other = logging.getLogger("geminga.one_package"), logging.getLogger("geminga.other_package")
    one.setLevel(logging.ERROR)
    levels = PackageLevels()
    levels.follow(parse_levels(["geminga.one_package=debug", " geminga.other_package = WARNING"]))
    assert (one.level, other.level) == (logging.DEBUG, logging.WARNING)
    levels.follow({"geminga.other_package": "info"})
    assert (one.level, other.level) == (logging.ERROR, logging.INFO)
    levels.follow({})
    assert (one.level, other.level) == (logging.ERROR, logging.NOTSET)
    one.setLevel(logging.NOTSET)


@pytest.mark.parametrize("text", ["geminga.broker", "root=debug", "geminga.broker=loud", "=info", "geminga..a=info"])
def test_levels_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"gemingaLogLevels={re.escape(text)}: expected a package"):
        parse_levels([text])
