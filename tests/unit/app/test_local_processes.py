"""Processes that are known by pid and start: who is told, who is not, and who never runs."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from geminga.app.local.core.local_cluster import LocalMember, MemberKind
from geminga.app.local.local_processes import Launched, end, is_there, last_paragraph, launch, started_at, tell


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Launched]:
    made = launch(["sh", "-c", "echo up; exec sleep 60"], log=tmp_path / "log", ready=tmp_path / "ready")
    yield made
    made.process.kill()
    made.process.wait()
    if made.process.stdin is not None:
        made.process.stdin.close()


def member_of(launched: Launched) -> LocalMember:
    return LocalMember("bookie-1", MemberKind.BOOKIE, launched.process.pid, launched.started)


def test_a_process_that_was_not_told_to_go_runs_nothing(launched: Launched, tmp_path: Path) -> None:
    assert launched.process.stdin is not None
    launched.process.stdin.close()  # as when its starter is killed
    assert launched.process.wait(10) != 0
    assert (tmp_path / "ready").read_text() == ""


def test_its_program_has_the_pid_and_the_start_that_were_written_down(launched: Launched) -> None:
    before = member_of(launched)
    launched.go()
    assert is_there(before)
    assert end([before], within_s=10) == []
    launched.process.wait(10)
    assert started_at(before.pid) is None


def test_a_process_that_has_its_pid_by_now_is_left_alone(launched: Launched) -> None:
    launched.go()
    stranger = replace(member_of(launched), started="another boot:1")
    assert not is_there(stranger)
    tell(stranger, signal.SIGKILL)
    assert end([stranger], within_s=0) == []
    assert launched.process.poll() is None


def test_who_does_not_stop_in_time_is_killed_and_named(tmp_path: Path) -> None:
    deaf = launch(["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 60; done"], log=tmp_path / "l", ready=None)
    deaf.go()
    member = member_of(deaf)
    while "deaf" not in (tmp_path / "l").read_text():
        assert deaf.process.poll() is None
    # Its child goes with it: it is a session of its own.
    assert end([member], within_s=0.1) == [member]
    assert deaf.process.wait(10) == -signal.SIGKILL
    os.killpg(deaf.process.pid, signal.SIGKILL)


def test_what_a_process_makes_is_the_users_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = launch(["touch", str(tmp_path / "made")], log=tmp_path / "log", ready=tmp_path / "ready")
    finally:
        os.umask(before)
    made.go()
    assert made.process.wait(10) == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"made": 0o600, "log": 0o600, "ready": 0o600}


def test_who_waits_to_be_reaped_is_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert started_at(process.pid) is None


def test_the_reason_of_an_end_is_what_the_process_said_last_and_not_what_one_before_did(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("geminga: of before\n")
    since = log.stat().st_size
    assert last_paragraph(log, since) == ""
    with log.open("a") as file:
        file.write("2026 INFO something\ngeminga: the port is taken\n  at the end\n\n")
    assert last_paragraph(log, since) == "the port is taken"
    log.write_text("java.net.BindException: no\n\n")
    assert last_paragraph(log, 0) == "java.net.BindException: no"
    assert last_paragraph(tmp_path / "none", 0) == ""
