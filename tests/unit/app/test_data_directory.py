"""The claim on a data directory, on real disks and in memory."""

from __future__ import annotations

import asyncio
import json

import pytest

from geminga import sim
from geminga.app.storage.data_directory import (
    DIRECTORY_FORMAT,
    FORMAT_FILE,
    PROCESS_FILE,
    MetadataMove,
    claim_directory,
    read_move,
    write_move,
)
from geminga.model.errors import DataDirectoryError
from geminga.runtime import ThreadedDisk
from geminga.sim import SimNode, SimWorld


def claim(path, pid: int = 1) -> bool:
    async def main() -> bool:
        disk = ThreadedDisk()
        try:
            return await claim_directory(disk, str(path), pid=pid, program="geminga test")
        finally:
            await disk.close()

    return asyncio.run(main())


def test_new_directory_is_made_and_marked(tmp_path) -> None:
    path = tmp_path / "a" / "b"
    assert claim(path, pid=7)
    assert json.loads((path / FORMAT_FILE).read_bytes()) == {"format": DIRECTORY_FORMAT, "createdBy": "geminga test"}
    assert json.loads((path / PROCESS_FILE).read_bytes()) == {"pid": 7}


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_file_in_the_place_of_the_directory_is_told(tmp_path, below: str) -> None:
    """It was "File exists"."""
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(DataDirectoryError, match=f"{file} is a file; expected a directory"):
        claim(file / below)


def test_own_directory_is_taken_again_and_its_mark_is_kept(tmp_path) -> None:
    claim(tmp_path / "d", pid=7)
    before = (tmp_path / "d" / FORMAT_FILE).read_bytes()
    assert not claim(tmp_path / "d", pid=8)
    assert (tmp_path / "d" / FORMAT_FILE).read_bytes() == before
    assert json.loads((tmp_path / "d" / PROCESS_FILE).read_bytes()) == {"pid": 8}


def test_directory_in_use_is_refused_with_the_holders_pid(tmp_path) -> None:
    async def main() -> None:
        disk = ThreadedDisk()
        other = ThreadedDisk()
        await claim_directory(disk, str(tmp_path / "d"), pid=4711, program="p")
        with pytest.raises(DataDirectoryError, match=r"in use by process 4711"):
            await claim_directory(other, str(tmp_path / "d"), pid=1, program="p")
        await other.close()
        await disk.close()

    asyncio.run(main())


def test_directory_on_a_disk_without_a_free_byte_is_taken_and_names_no_process_that_has_it_not() -> None:
    async def on_node(node: SimNode) -> None:
        first = node.disk.mount()
        assert await claim_directory(first, "/d", pid=4711, program="p")
        node.disk.lose_process()
        node.disk.capacity_bytes = node.disk.used_bytes()
        disk = node.disk.mount()
        assert not await claim_directory(disk, "/d", pid=4712, program="p")
        with pytest.raises(DataDirectoryError, match="in use by another process"):
            await claim_directory(node.disk.mount(), "/d", pid=4713, program="p")
        with pytest.raises(DataDirectoryError, match="no space left"):
            await claim_directory(disk, "/new", pid=4712, program="p")

    async def scenario(world: SimWorld) -> None:
        await world.node("a").run(on_node)

    sim.run(scenario)


def test_newer_format_is_refused_and_left_alone(tmp_path) -> None:
    (tmp_path / FORMAT_FILE).write_text(json.dumps({"format": DIRECTORY_FORMAT + 1, "createdBy": "geminga 9.9"}))
    with pytest.raises(DataDirectoryError, match=r"format 2, written by geminga 9\.9"):
        claim(tmp_path)
    assert not (tmp_path / PROCESS_FILE).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format":0}', '{"format":"1"}', '{"format":true}'])
def test_damaged_mark_is_refused(tmp_path, text: str) -> None:
    (tmp_path / FORMAT_FILE).write_text(text)
    with pytest.raises(DataDirectoryError, match="damaged"):
        claim(tmp_path)


def test_foreign_directory_is_refused_with_what_was_found(tmp_path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataDirectoryError, match=r"belongs to something else.*thesis\.txt"):
        claim(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt"]


def test_leftovers_of_a_first_start_that_was_cut_short_do_not_count(tmp_path) -> None:
    (tmp_path / f"{FORMAT_FILE}.tmp").write_text("{")
    (tmp_path / "lost+found").mkdir()
    assert claim(tmp_path)


def test_path_that_is_a_file_is_a_sentence(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    with pytest.raises(DataDirectoryError, match="data directory"):
        claim(path)


def test_directory_that_was_moved_is_refused_from_the_end_of_the_copy_on(tmp_path) -> None:
    path = str(tmp_path / "d")

    async def main() -> None:
        disk = ThreadedDisk()
        await claim_directory(disk, path, pid=1, program="p")
        assert await read_move(disk, path) is None
        move = MetadataMove("zk:there:2181/c", "77", is_done=False)
        await write_move(disk, path, move)
        assert await read_move(disk, path) == move
        await disk.close()
        disk = ThreadedDisk()
        assert not await claim_directory(disk, path, pid=1, program="p")
        await write_move(disk, path, move._replace(is_done=True))
        await disk.close()
        disk = ThreadedDisk()
        with pytest.raises(DataDirectoryError, match="was moved to a cluster: its metadata are in zk:there:2181/c"):
            await claim_directory(disk, path, pid=1, program="p")
        await disk.close()
        disk = ThreadedDisk()
        assert not await claim_directory(disk, path, pid=1, program="p", may_be_moved=True)
        await disk.close()

    asyncio.run(main())
    assert json.loads((tmp_path / "d" / FORMAT_FILE).read_bytes()) == {
        "format": DIRECTORY_FORMAT,
        "createdBy": "p",
        "moved": {"to": "zk:there:2181/c", "copyId": "77", "isDone": True},
    }


@pytest.mark.parametrize("moved", [[], "zk:x", {"to": 1, "copyId": "", "isDone": True}, {"to": "zk:x", "isDone": True}])
def test_damaged_note_of_a_move_is_refused(moved: object, tmp_path) -> None:
    claim(tmp_path / "d")
    (tmp_path / "d" / FORMAT_FILE).write_text(json.dumps({"format": 1, "moved": moved}))
    with pytest.raises(DataDirectoryError, match="is damaged: moved is"):
        claim(tmp_path / "d")
