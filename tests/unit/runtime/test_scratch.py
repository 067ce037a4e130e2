"""Runs of bytes in a file without a name."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from geminga.model.errors import StorageError
from geminga.runtime import SystemRng, scratch
from geminga.runtime.scratch import ScratchRuns


def test_each_run_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "BLOCK_BYTES", 50)
    rng = SystemRng(1)
    runs, wanted = ScratchRuns(4, str(tmp_path)), [b""] * 4
    for _ in range(500):
        run, record = rng.below(4), bytes(rng.below(256) for _ in range(rng.below(30)))
        runs.write(run, record)
        wanted[run] += record
    blocks = [list(runs.read(run)) for run in range(4)]
    assert [b"".join(found) for found in blocks] == wanted
    assert max(map(len, blocks[0])) < 50 + 30
    assert list(tmp_path.iterdir()) == []
    runs.close()


def test_a_directory_that_is_not_there_is_told() -> None:
    with pytest.raises(StorageError, match="no temporary file can be made in /nowhere/at/all"):
        ScratchRuns(1, "/nowhere/at/all")


@pytest.mark.parametrize("is_short", [False, True])
def test_a_full_file_system_is_told(is_short: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = ScratchRuns(1)
    runs._file.close()

    class Full:
        def seek(self, _offset: int) -> None:
            pass

        def write(self, data: bytes) -> int:
            if is_short:
                return len(data) // 2
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(runs, "_file", Full())
    with pytest.raises(StorageError, match="file system full" if is_short else "No space left"):
        runs.write(0, bytes(scratch.BLOCK_BYTES))
