"""Which bookie a process is that is started in a directory of a standalone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from geminga.app.storage.former_standalone import BookieDirectory, bookie_directory
from geminga.model.errors import DataDirectoryError
from geminga.runtime import ThreadedDisk

MOVED = {"format": 1, "moved": {"to": "zk:there:2181", "copyId": "7", "isDone": True}}
UNFINISHED = {"format": 1, "moved": {"to": "zk:there:2181", "copyId": "7", "isDone": False}}


def place(path: Path, *, has_metadata: bool = True) -> BookieDirectory:
    async def main() -> BookieDirectory:
        disk = ThreadedDisk()
        try:
            return await bookie_directory(disk, str(path), has_metadata=has_metadata)
        finally:
            await disk.close()

    return asyncio.run(main())


def standalone(path: Path, document: object, bookies: int) -> None:
    for number in range(1, bookies + 1):
        (path / ("bookie" if number == 1 else f"bookie-{number}")).mkdir(parents=True)
    (path / "geminga.json").write_text(json.dumps(document))


def test_other_directories_are_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("new", "bookie", "bookie-2"):
        assert place(tmp_path / name) == BookieDirectory(str(tmp_path / name))


def test_only_bookie_of_a_standalone_that_was_moved_is_found_under_its_id(tmp_path: Path) -> None:
    standalone(tmp_path, MOVED, 1)
    assert place(tmp_path) == BookieDirectory(str(tmp_path / "bookie"), "127.0.0.1:3181")
    assert place(tmp_path / "bookie") == BookieDirectory(str(tmp_path / "bookie"), "127.0.0.1:3181")
    assert place(tmp_path / "other") == BookieDirectory(str(tmp_path / "other"))
    for path in (tmp_path, tmp_path / "bookie"):
        with pytest.raises(DataDirectoryError, match="add --metadata zk:there:2181"):
            place(path, has_metadata=False)


def test_several_bookies_are_told_apart(tmp_path: Path) -> None:
    standalone(tmp_path, MOVED, 3)
    with pytest.raises(DataDirectoryError, match=f"--data {tmp_path}/bookie and .*/bookie-2 and .*/bookie-3.*a port"):
        place(tmp_path)
    assert place(tmp_path / "bookie-3").bookie_id == "127.0.0.1:3183"


@pytest.mark.parametrize("document", [{"format": 1}, UNFINISHED])
def test_standalone_that_was_not_moved_is_refused(document: object, tmp_path: Path) -> None:
    standalone(tmp_path, document, 1)
    for path in (tmp_path, tmp_path / "bookie"):
        with pytest.raises(DataDirectoryError, match=f"geminga metadata copy {tmp_path} zk:"):
            place(path)
