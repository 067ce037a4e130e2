"""Snapshots are stored some time after a change, or after many; one that fails is stored later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from geminga import sim
from geminga.model.errors import StorageError
from geminga.model.position import Position
from geminga.runtime import wait_ms
from geminga.transaction.ports import BufferSnapshot
from geminga.transaction.snapshot_keeping import SnapshotKeeping

TOPIC = "persistent://public/default/topic"


class Kept:
    """Where snapshots go."""

    def __init__(self) -> None:
        self.put_ids: list[int] = []
        self.error: StorageError | None = None
        self.gate: asyncio.Event | None = None

    async def find(self, topic: str) -> BufferSnapshot | None:
        return None

    async def put(self, topic: str, snapshot: BufferSnapshot) -> None:
        assert topic == TOPIC
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.put_ids.append(snapshot.position.entry_id)

    async def remove(self, topic: str) -> None:
        """Nothing of it is kept."""

    def broke(self, what: str, error: BaseException) -> None:
        raise error


class Story:
    """A keeping whose snapshots are numbered."""

    def __init__(self, runtime) -> None:
        self.kept = Kept()
        self.taken = 0
        self.is_known = True
        self.keeping = SnapshotKeeping(TOPIC, self.kept, runtime.clock, self.kept, self.take)

    def take(self) -> BufferSnapshot | None:
        self.taken += 1
        return BufferSnapshot(Position(1, self.taken)) if self.is_known else None

    def changed(self, changes: int = 1) -> None:
        self.keeping.changed(changes, delay_ms=1000, changes_max=3)


def told(scenario: Callable[[Story], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            await scenario(Story(node.runtime))

        await world.node("broker").run(on_node)

    sim.run(main)


def test_one_is_stored_some_time_after_the_first_change() -> None:
    async def scenario(story: Story) -> None:
        story.changed()
        await wait_ms(600)
        story.changed(2)
        assert story.kept.put_ids == []
        await wait_ms(401)
        assert story.kept.put_ids == [1]
        assert story.keeping.saved_ms > 0
        await wait_ms(5000)
        assert story.kept.put_ids == [1], "nothing changed since"

    told(scenario)


def test_many_changes_do_not_wait_and_one_is_stored_at_a_time() -> None:
    async def scenario(story: Story) -> None:
        story.kept.gate = asyncio.Event()
        story.changed(3)
        await wait_ms(1)
        story.changed(4)
        assert story.taken == 1
        story.kept.gate.set()
        await wait_ms(1001)
        assert story.kept.put_ids == [1, 2]

    told(scenario)


def test_what_changed_while_one_was_slow_to_be_stored_is_stored_after_it() -> None:
    """Though nothing changes any more: else the next load reads the log from there, however long it is by then."""

    async def scenario(story: Story) -> None:
        story.kept.gate = asyncio.Event()
        story.changed()
        await wait_ms(1100)
        story.changed()
        await wait_ms(5000)
        story.kept.gate.set()
        await wait_ms(1100)
        assert story.kept.put_ids == [1, 2]
        await wait_ms(5000)
        assert story.kept.put_ids == [1, 2], "there is nothing new"

    told(scenario)


def test_one_that_can_not_be_stored_is_tried_again() -> None:
    async def scenario(story: Story) -> None:
        story.kept.error = StorageError("no bookies")
        story.changed(3)
        await wait_ms(500)
        assert (story.taken, story.keeping.saved_ms) == (1, 0)
        story.kept.error = None
        await wait_ms(501)
        assert story.kept.put_ids == [2]

    told(scenario)


def test_nothing_is_stored_while_the_log_is_not_known_and_after_the_end() -> None:
    async def scenario(story: Story) -> None:
        story.is_known = False
        story.changed(3)
        await wait_ms(1001)
        assert story.kept.put_ids == []
        story.is_known = True
        story.changed()
        story.keeping.stop()
        story.kept.error = StorageError("no bookies")
        await story.keeping.try_to_save(BufferSnapshot(Position(1, 9)))
        story.kept.error = None
        await wait_ms(5000)
        assert story.kept.put_ids == []

    told(scenario)
