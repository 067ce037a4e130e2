"""Processes that are forked from one that has its imports behind it are processes like others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.process_tree import is_alive
from tools.warm_process import WarmProcess, WarmStarts

GEMINGA = [sys.executable, "-m", "geminga"]


@pytest.fixture(scope="module")
def warm_starts() -> Iterator[WarmStarts]:
    starts = WarmStarts()
    yield starts
    starts.close()


def begin(starts: WarmStarts, log: Path, *arguments: str, **environment: str) -> WarmProcess:
    with log.open("a", encoding="utf-8") as errors:
        process = starts.start([*GEMINGA, *arguments], stderr=errors, env={**os.environ, **environment})
    assert process is not None
    return process


def test_output_errors_and_exit_codes_are_those_of_the_command(warm_starts, tmp_path) -> None:
    log = tmp_path / "log"
    with begin(warm_starts, log, "--version") as version:
        assert version.communicate(timeout=60)[0].startswith("geminga ")
        assert version.returncode == 0
    with begin(warm_starts, log, "no-such-command") as wrong:
        assert wrong.wait(60) == 2
    assert "no-such-command" in log.read_text()
    with begin(warm_starts, log, "inspect", "cursor", str(tmp_path / "nothing"), "t", "s") as failed:
        assert failed.wait(60) == 1
    assert "Traceback" not in log.read_text()


def test_a_server_is_told_to_stop_or_killed_and_says_how_it_ended(warm_starts, tmp_path) -> None:
    ports = ("--broker-port", "0", "--web-port", "0", "--json")
    codes = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        data = ("--data", str(tmp_path / number.name))
        with begin(warm_starts, tmp_path / "log", "standalone", *data, *ports) as server:
            assert server.stdout.readline().startswith("{")
            assert server.poll() is None
            with pytest.raises(subprocess.TimeoutExpired):
                server.wait(0.0)
            os.kill(server.pid, number)
            codes[number] = server.wait(60)
            assert not is_alive(server.pid)
            server.kill()
    assert codes == {signal.SIGTERM: 0, signal.SIGKILL: -signal.SIGKILL}


def test_two_at_a_time_hold_nothing_of_each_other(warm_starts, tmp_path) -> None:
    ports = ("--broker-port", "0", "--web-port", "0", "--json")
    first, second = (
        begin(warm_starts, tmp_path / "log", "standalone", "--data", str(tmp_path / name), *ports) for name in "ab"
    )
    with first, second:
        assert first.stdout.readline()
        assert second.stdout.readline()
        first.kill()
        assert first.wait(60) == -signal.SIGKILL
        # The second one has no copy of its pipe: it is at its end.
        assert first.stdout.read() == ""
        assert second.poll() is None
        second.kill()


def test_who_wants_another_interpreter_gets_none_of_these(warm_starts, tmp_path) -> None:
    with (tmp_path / "log").open("w") as log:
        assert warm_starts.start([sys.executable, "-c", "pass"], stderr=log, env=os.environ) is None
        other = {**os.environ, "PYTHONTRACEMALLOC": "1"}
        assert warm_starts.start([*GEMINGA, "--version"], stderr=log, env=other) is None
