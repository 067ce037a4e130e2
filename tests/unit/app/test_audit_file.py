"""The audit log on disk: lines in order, files of their size, nothing lost silently, for its user alone."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from geminga import Standalone
from geminga.app.servers import audit_file
from geminga.app.servers.audit_file import AuditFile
from geminga.model.errors import GemingaError


class Lane:
    """Calls when told to, or fails."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.error: OSError | None = None

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        assert lane == "audit"
        self.calls.append((function, done))

    def run(self) -> None:
        while self.calls:
            function, done = self.calls.pop(0)
            error = self.error
            if error is None:
                try:
                    function()
                except OSError as failed:
                    error = failed
            done(error)


def log(tmp_path: Path, lane: Lane, *, bytes_max: int = 4096, files: int = 3) -> AuditFile:
    return AuditFile(lane, lambda: 0.0, str(tmp_path / "audit.log"), bytes_max=bytes_max, files=files)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_lines_that_come_while_others_are_written_follow_in_one_call(tmp_path: Path) -> None:
    lane = Lane()
    file = log(tmp_path, lane)
    for number in range(5):
        file.add(f"line {number}")
    assert len(lane.calls) == 1
    lane.run()
    assert lines(tmp_path / "audit.log") == [f"line {number}" for number in range(5)]
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600


def test_files_are_rotated_and_the_oldest_goes(tmp_path: Path) -> None:
    lane = Lane()
    file = log(tmp_path, lane, bytes_max=30, files=3)
    for number in range(8):
        file.add(f"line number {number:08}")
        lane.run()
    names = ["audit.log", "audit.log.1", "audit.log.2"]
    assert sorted(path.name for path in tmp_path.glob("audit.log*")) == [*names, "audit.log.lock"]
    assert [lines(tmp_path / name) for name in names] == [[f"line number {number:08}"] for number in (7, 6, 5)]


def test_one_file_is_begun_anew(tmp_path: Path) -> None:
    lane = Lane()
    file = log(tmp_path, lane, bytes_max=30, files=1)
    for number in range(3):
        file.add(f"line number {number:08}")
        lane.run()
    assert lines(tmp_path / "audit.log") == ["line number 00000002"]


def test_line_larger_than_a_file_is_kept(tmp_path: Path) -> None:
    lane = Lane()
    log(tmp_path, lane, bytes_max=10).add("x" * 100)
    lane.run()
    assert lines(tmp_path / "audit.log") == ["x" * 100]


def test_lines_that_the_disk_does_not_take_are_counted_and_told(tmp_path: Path, caplog) -> None:
    lane = Lane()
    file = log(tmp_path, lane)
    lane.error = OSError(28, "No space left on device")
    file.add("first")
    file.add("second")
    lane.run()
    lane.error = None
    file.add("third")
    lane.run()
    assert [json.loads(lines(tmp_path / "audit.log")[0]), *lines(tmp_path / "audit.log")[1:]] == [{"lost": 2}, "third"]
    assert "1 lines could not be written: [Errno 28] No space left on device" in caplog.text


def test_a_line_that_the_disk_took_half_of_ends_before_the_next_one(tmp_path: Path) -> None:
    """What was written next, and how much is missing, stood on the same line, which no program can read."""
    lane = Lane()
    file = log(tmp_path, lane, bytes_max=1 << 20)
    file.add(json.dumps({"number": 1}))
    lane.run()
    size = (tmp_path / "audit.log").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    file.add(json.dumps({"number": 2, "text": "x" * 200_000}))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100_000, hard))
    try:
        lane.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    file.add(json.dumps({"number": 3}))
    lane.run()
    found = [json.loads(line) for line in lines(tmp_path / "audit.log")]
    assert found == [{"number": 1}, {"lost": 1}, {"number": 3}]


def test_a_line_that_a_kill_left_half_of_ends_before_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_text('{"number": 1}\n{"num')
    lane = Lane()
    file = log(tmp_path, lane)
    for number in (2, 3):
        file.add(json.dumps({"number": number}))
        lane.run()
    assert lines(tmp_path / "audit.log") == ['{"number": 1}', '{"num', '{"number": 2}', '{"number": 3}']


def test_lines_that_wait_have_a_bound(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(audit_file, "LINES_WAITING_MAX", 2)
    lane = Lane()
    file = log(tmp_path, lane)
    for number in range(6):
        file.add(str(number))
    lane.run()
    # One was under way, two waited.
    assert lines(tmp_path / "audit.log") == ["0", '{"lost": 3}', "1", "2"]


def test_close_waits_until_all_is_written(tmp_path: Path) -> None:
    async def main() -> None:
        lane = Lane()
        file = log(tmp_path, lane)
        await file.close()
        file.add("first")
        file.add("second")
        closing = asyncio.ensure_future(file.close())
        asyncio.get_running_loop().call_soon(lane.run)
        await closing
        assert lines(tmp_path / "audit.log") == ["first", "second"]

    asyncio.run(main())


def test_place_that_can_not_be_written_refuses_the_start(tmp_path: Path) -> None:
    with pytest.raises(GemingaError, match=r"gemingaAuditLogFile=.*/nowhere/audit\.log: No such file"):
        Standalone(config={"gemingaAuditLogFile": str(tmp_path / "nowhere" / "audit.log")}).__enter__()
