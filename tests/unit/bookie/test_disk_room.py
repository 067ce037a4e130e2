"""Whether a bookie takes entries, as far as its disks decide that."""

from __future__ import annotations

from geminga.bookie.disk_room import DiskRoom
from geminga.bookie.stats import BookieStats
from geminga.model.bookie_port import Availability
from geminga.model.errors import DiskFullError, DiskIOError
from support.clusters.bookie_node import BookieNode, run_bookie


async def a_room(case: BookieNode, threshold: float = 0.9) -> tuple[DiskRoom, list[str]]:
    await case.node.runtime.disk.make_dirs("/b")
    told: list[str] = []
    room = DiskRoom(
        case.node.runtime, "/b", ("/b",), threshold, BookieStats(), lambda error: told.append(f"refused: {error}")
    )
    room.availability.watch(lambda now: told.append(now.name))
    return room, told


async def never() -> bool:
    raise AssertionError("asked although there is nothing to make good")


async def done() -> bool:
    return True


def test_room_that_is_full_comes_back_only_when_what_failed_succeeds() -> None:
    async def main(case: BookieNode) -> None:
        room, told = await a_room(case)
        await room.look(never)
        assert (room.is_writable, room.refusal(), told) == (True, None, [])
        assert room.disk_usage is not None
        room.became_full(DiskFullError("no space"))
        room.became_full(DiskFullError("no space still"))
        assert told == ["READ_ONLY", "refused: no space", "refused: no space still"]
        assert str(room.refusal()) == "the disk of /b is full"

        async def not_yet() -> bool:
            return False

        await room.look(not_yet)
        assert not room.is_writable
        await room.look(done)
        assert (room.is_writable, room.refusal(), told[-1]) == (True, None, "WRITABLE")

    run_bookie(main, is_open=False)


def test_disk_above_the_threshold_takes_nothing_and_says_how_full_it_is() -> None:
    async def main(case: BookieNode) -> None:
        room, told = await a_room(case, threshold=-1.0)
        # What failed is made good all the same: a fence needs less than an entry.
        await room.look(done)
        assert isinstance(room.refusal(), DiskFullError)
        assert "WRITABLE" not in told
        assert told[0] == "READ_ONLY"
        assert "of the disk of /b is used" in told[1]

    run_bookie(main, is_open=False)


def test_room_that_was_started_read_only_stays_so_whatever_a_look_finds() -> None:
    async def main(case: BookieNode) -> None:
        room, _ = await a_room(case)
        room.stay_read_only()
        await room.look(done)
        assert not room.is_writable
        assert str(room.refusal()) == "the bookie was started read-only"

    run_bookie(main, is_open=False)


def test_failed_sync_is_for_good_and_tells_the_process() -> None:
    async def main(case: BookieNode) -> None:
        room, told = await a_room(case)
        room.fail("bookie journal", OSError(5, "Input/output error"))
        assert case.fatal == ["bookie journal"]
        assert told[0] == "DOWN"
        await room.look(never)
        assert isinstance(room.refusal(), DiskIOError)
        assert room.availability.current is Availability.DOWN

    run_bookie(main, is_open=False)
