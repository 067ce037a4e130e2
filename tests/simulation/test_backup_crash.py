"""A backup beside an older one, cut off at each step of the disk: one of the two is whole, and a bookie opens on it."""

from __future__ import annotations

from collections.abc import Sequence

from geminga import sim
from geminga.app.storage.backup_reading import check_file
from geminga.app.storage.backup_writing import BackupWriter, Copying, Cut, Progress, copy_file, read_manifest
from geminga.app.storage.core.backup_format import FILES_DIRECTORY, BackupManifest
from geminga.bookie import LocalBookie
from geminga.bookie.cut import CutFile, cut_of, hold, release, small_files
from geminga.sim import NodeCrashedError, SimNode, SimWorld
from support.clusters.bookie_node import SMALL, BookieNode, entries_of

#: Steps of the disk in one backup are fewer.
STEPS_MAX = 200
TARGET = "/backups"


class OneBookie:
    """A source of one bookie; its metadata are a number of bytes."""

    directory_format = 1
    program = "geminga test"
    origin = ""

    def __init__(self, node: SimNode, bookie: LocalBookie, value: bytes) -> None:
        self._node = node
        self._bookie = bookie
        self._value = value
        self.bookies = {"bookie": bookie.instance_id}

    def preview(self) -> Sequence[CutFile]:
        return [file for file in cut_of(self._bookie).files if file.is_final]

    async def cut(self) -> Cut:
        values = await small_files(self._bookie)
        made = cut_of(self._bookie)
        return Cut(0, made.files, {**values, **made.values}, self._write)

    async def _write(self, path: str) -> None:
        await self._node.runtime.disk.write_file(path, self._value)


class Backups:
    """One world: entries, a backup, more entries, and a second one."""

    def __init__(self, world: SimWorld) -> None:
        self.case = BookieNode(world, world.node("bookie"))
        self.acknowledged = 0
        self.serials: list[int] = []

    async def back_up(self, value: bytes) -> BackupManifest:
        bookie = self.case.bookie
        hold(bookie)
        source = OneBookie(self.case.node, bookie, value)
        manifest = await BackupWriter(self.case.node.runtime.disk, TARGET, source, Copying(Progress())).write()
        await release(bookie)
        return manifest

    async def add(self, count: int) -> None:
        assert await self.case.add(1, self.acknowledged, entries_of(1, self.acknowledged, count, size=300)) is None
        self.acknowledged += count

    async def first_life(self, node: SimNode) -> None:
        await node.runtime.disk.make_dirs(TARGET)
        await self.case.open()
        await self.add(20)
        await self.case.bookie.flush()
        await self.add(5)
        await self.back_up(b"first")
        await self.add(20)
        await self.case.bookie.flush()
        await self.add(5)

    async def check(self, node: SimNode) -> bytes:
        """Which of the two is there; every file of it is whole, and its entries are there."""
        disk = node.runtime.disk
        manifest = await read_manifest(disk, TARGET)
        assert manifest is not None
        place = f"/restored-{len(self.serials)}"
        for part in ("journal", "ledgers"):
            await disk.make_dirs(f"{place}/{part}")
        for file in manifest.files:
            path = f"{TARGET}/{FILES_DIRECTORY}/{file.stored}"
            await check_file(node.runtime, path, file)
            await copy_file(disk, path, f"{place}/{file.name}", file.size_bytes)
        value = await disk.read_file(f"{place}/metadata.sqlite")
        bookie = await LocalBookie.open(node.runtime, place, SMALL, ledgers=self.case.ledgers)
        self.case._bookie, before = bookie, self.case._bookie
        there = 25 if value == b"first" else 50
        assert await self.case.read(1, *range(there)) == entries_of(1, 0, there, size=300)
        await bookie.close()
        self.case._bookie = before
        self.serials.append(manifest.serial)
        return value


async def cut_off_story(world: SimWorld, step: int) -> bytes | None:
    """What is there after a power cut before ``step`` of the second backup; None: it has fewer steps."""
    story = Backups(world)
    node = story.case.node
    await node.run(story.first_life)
    world.crash_at_disk_step(node, step)
    is_done = True

    async def second(_: SimNode) -> None:
        await story.back_up(b"second")

    try:
        await node.run(second)
    except NodeCrashedError:
        is_done = False
    node.disk.on_step = None
    found = await world.restart(node, story.check)
    if is_done:
        return None

    async def again(_: SimNode) -> None:
        await story.case.open()
        manifest = await story.back_up(b"second")
        names = await node.runtime.disk.list_dir(f"{TARGET}/{FILES_DIRECTORY}")
        assert sorted(names) == sorted({file.stored for file in manifest.files}), "leftovers"

    await node.run(again)
    assert await node.run(story.check) == b"second"
    return found


def test_power_cut_at_each_step_leaves_the_old_backup_or_the_new_one_whole() -> None:
    found: list[bytes] = []
    for step in range(1, STEPS_MAX):
        value = sim.run(lambda world, step=step: cut_off_story(world, step))
        if value is None:
            break
        found.append(value)
    assert 10 < len(found) < STEPS_MAX - 1
    # The old one up to a step, the new one from there on.
    assert found == sorted(found)
    assert set(found) == {b"first", b"second"}
