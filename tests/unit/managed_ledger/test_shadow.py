"""A log that shows another one's ledgers: two owners, each a process of its own, on the same bookie and metadata."""

from __future__ import annotations

import pytest

from geminga.managed_ledger import ManagedLedger, ManagedLedgerConfig
from geminga.managed_ledger.shadow import ShadowLedger
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.model.errors import CorruptionError, NotAllowedError, PreconditionFailedError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import SHADOW_SOURCE
from geminga.wire.managed_ledger import LedgerRecord, ManagedLedgerRecord, encode_managed_ledger_info
from support.worlds.ledger_world import NAME, LedgerWorld, acknowledge, append, read_all

SHADOW = "public/default/persistent/shadow"
#: Three entries a ledger.
THREE = ManagedLedgerConfig(max_entries_per_ledger=3, min_rollover_minutes=0)


class Pair:
    """A source, and a shadow of it that another process has."""

    def __init__(self, world: LedgerWorld) -> None:
        self.world = world
        self.there = world.factory
        self.here = world.new_process(THREE, is_shared=True)

    async def open(self) -> tuple[ManagedLedger, ShadowLedger]:
        source = await self.there.open(NAME)
        return source, await self.open_shadow()

    async def open_filled(self, count: int) -> tuple[ManagedLedger, ShadowLedger, list[Position]]:
        """With as many entries ``m0``, ``m1``, ..., of which the shadow was told."""
        source, shadow = await self.open()
        positions = await self.world.fill(source, count)
        tell(source, shadow)
        await self.world.let_background_persist()
        return source, shadow, positions

    async def open_shadow(self) -> ShadowLedger:
        await self.here.create(SHADOW, {SHADOW_SOURCE: "persistent://public/default/topic"})
        shadow = await self.here.open(SHADOW)
        assert isinstance(shadow, ShadowLedger)
        return shadow


def tell(source: ManagedLedger, shadow: ShadowLedger) -> None:
    """What the owner of the source says of it."""
    last = source.extent.last_confirmed_position
    info = source.ledgers.find(last.ledger_id)
    shadow.told(last, 0 if info is None else info.size_bytes, source.stored.version)


@pytest.fixture
def paired(in_world):
    def run(scenario, config=THREE):
        return in_world(lambda world: scenario(Pair(world)), config)

    return run


def test_a_shadow_has_the_entries_of_its_source_at_their_positions(paired):
    async def scenario(pair):
        _, shadow, positions = await pair.open_filled(7)
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        assert await read_all(cursor) == [f"m{i}".encode() for i in range(7)]
        assert [entry.position for entry in await shadow.reader.read(positions)] == positions
        assert cursor.backlog_count == 7

    paired(scenario)


def test_an_entry_is_read_only_when_the_source_says_that_it_is_stored(paired):
    async def scenario(pair):
        source, shadow = await pair.open()
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        await pair.world.fill(source, 2)
        await pair.world.let_background_persist()
        # The list names the open ledger and not how far it reaches.
        assert await read_all(cursor) == []
        woken = []
        shadow.tail.add_listener(lambda: woken.append(1))
        tell(source, shadow)
        await pair.world.world.sleep(0.1)
        assert await read_all(cursor) == [b"m0", b"m1"]
        assert woken

    paired(scenario)


def test_the_writer_of_a_ledger_that_is_read_goes_on(paired):
    async def scenario(pair):
        source, shadow = await pair.open()
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        for count in range(1, 6):
            await pair.world.fill(source, 1, f"n{count}-")
            tell(source, shadow)
            await pair.world.world.sleep(0.1)
            assert await read_all(cursor) == [f"n{count}-0".encode()]
        assert not source.tenure.is_fenced

    paired(scenario)


def test_what_is_told_late_takes_nothing_back(paired):
    async def scenario(pair):
        _, shadow, positions = await pair.open_filled(5)
        shadow.told(positions[1], 10, 0)
        assert shadow.extent.last_confirmed_position == positions[-1]

    paired(scenario)


def test_a_ledger_that_the_list_does_not_name_yet_is_read_when_it_does(paired):
    async def scenario(pair):
        source, shadow = await pair.open()
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        positions = await pair.world.fill(source, 4)
        # The watch comes behind, and so does an older word.
        shadow.told(positions[-1], 10, source.stored.version)
        shadow.told(positions[0], 10, 0)
        await pair.world.let_background_persist()
        assert await read_all(cursor) == [b"m0", b"m1", b"m2", b"m3"]

    paired(scenario)


def test_acknowledgments_are_the_shadows_own_and_survive_it(paired):
    async def scenario(pair):
        source, shadow, positions = await pair.open_filled(5)
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        theirs = await source.open_cursor("s", initial=EARLIEST)
        assert await acknowledge(cursor, positions[:4]) is None
        assert theirs.backlog_count == 5
        pair.here = pair.world.new_process(THREE, is_shared=True)
        again = await pair.open_shadow()
        # The end of the open ledger is not known yet: nothing is taken back for that.
        assert again.cursors["s"].mark_delete_position == positions[3]
        tell(source, again)
        await pair.world.world.sleep(0.1)
        assert await read_all(again.cursors["s"]) == [b"m4"]

    paired(scenario)


def test_a_trim_at_the_source_passes_over_what_was_not_read_and_says_so(paired):
    async def scenario(pair):
        source, shadow, positions = await pair.open_filled(7)
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        assert await acknowledge(cursor, positions[:1]) is None
        source.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await source.trimmer.trim()
        await pair.world.let_background_persist()
        assert shadow.lost == {"s": 5}
        assert await read_all(cursor) == [b"m6"]
        assert cursor.backlog_count == 1

    paired(scenario)


def test_a_shadow_is_not_written_to(paired):
    async def scenario(pair):
        source, shadow = await pair.open()
        await pair.world.fill(source, 4)
        results = await append(shadow, [b"x"])
        assert isinstance(results[0].error, NotAllowedError)
        for refused in (shadow.terminate(), shadow.trimmer.truncate()):
            with pytest.raises(NotAllowedError):
                await refused
        with pytest.raises(NotAllowedError):
            shadow.attached()
        with pytest.raises(PreconditionFailedError):
            await pair.here.skip_hole(shadow, 0, is_forced=True, is_whole=True)
        await pair.world.let_background_persist()
        shadow.trimmer.set_retention(retention_ms=0, retention_bytes=0)
        await shadow.trimmer.trim()
        assert len(source.ledgers) == len(shadow.ledgers) == 2

    paired(scenario)


def test_deleting_a_shadow_leaves_the_source_whole(paired):
    async def scenario(pair):
        source, shadow = await pair.open()
        await pair.world.fill(source, 7)
        tell(source, shadow)
        await shadow.open_cursor("s", initial=EARLIEST)
        before = await pair.world.bookkeeper.ledger_ids()
        await pair.here.delete(SHADOW)
        assert not await pair.here.exists(SHADOW)
        assert await pair.world.bookkeeper.ledger_ids() == before
        cursor = await source.open_cursor("all", initial=EARLIEST)
        assert await read_all(cursor) == [f"m{i}".encode() for i in range(7)]

    paired(scenario)


def test_a_shadow_that_another_make_of_broker_left_names_ledgers_that_stay(paired):
    async def scenario(pair):
        source = await pair.there.open(NAME)
        await pair.world.fill(source, 4)
        record = ManagedLedgerRecord(
            tuple(LedgerRecord(info.ledger_id, 3, 6, info.closed_ms or 1) for info in source.ledgers.infos),
            properties={SHADOW_SOURCE: "persistent://public/default/topic"},
        )
        await pair.world.store.put(ledger_path(SHADOW), encode_managed_ledger_info(record), expected_version=-1)
        await pair.here.delete(SHADOW)
        assert await read_all(await source.open_cursor("all", initial=EARLIEST)) == [b"m0", b"m1", b"m2", b"m3"]

    paired(scenario)


def test_deleting_the_source_leaves_the_shadow_and_its_cursors(paired):
    async def scenario(pair):
        _, shadow, positions = await pair.open_filled(4)
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        assert await acknowledge(cursor, positions[:1]) is None
        await pair.there.delete(NAME)
        await pair.world.let_background_persist()
        assert (shadow.has_source, len(shadow.ledgers), cursor.backlog_count) == (False, 0, 0)
        assert shadow.lost == {"s": 3}
        # Made anew, its node has the versions of the first.
        await pair.world.world.sleep(0.1)
        again = await pair.there.open(NAME)
        await pair.world.fill(again, 1, "new")
        tell(again, shadow)
        await pair.world.let_background_persist()
        assert await read_all(cursor) == [b"new0"]

    paired(scenario)


def test_a_source_that_was_killed_and_opened_elsewhere_is_followed(paired):
    async def scenario(pair):
        source, shadow = await pair.open()
        await pair.world.fill(source, 2)
        tell(source, shadow)
        cursor = await shadow.open_cursor("s", initial=EARLIEST)
        await pair.world.let_background_persist()
        third = pair.world.new_process(THREE, is_shared=True)
        successor = await third.open(NAME)
        await pair.world.fill(successor, 2, "next")
        tell(successor, shadow)
        await pair.world.let_background_persist()
        assert await read_all(cursor) == [b"m0", b"m1", b"next0", b"next1"]

    paired(scenario)


def test_the_end_of_the_source_is_the_end_of_the_shadow(paired):
    async def scenario(pair):
        source, shadow = await pair.open()
        positions = await pair.world.fill(source, 2)
        await source.terminate()
        await pair.world.let_background_persist()
        assert shadow.stored.terminated_position == positions[-1]
        # ... which is in no node of the shadow's.
        await shadow.stored.claim()
        pair.here = pair.world.new_process(THREE, is_shared=True)
        stored = await pair.here.info(SHADOW)
        assert (stored.record.terminated, stored.record.ledgers) == (None, ())

    paired(scenario)


def test_a_partition_shows_the_partition_of_its_number(paired):
    async def scenario(pair):
        name = "public/default/persistent/shadow-partition-3"
        await pair.here.create(name, {SHADOW_SOURCE: "topic"})
        shadow = await pair.here.open(name)
        assert shadow.source_name == f"{NAME}-partition-3"
        assert not shadow.has_source

    paired(scenario)


@pytest.mark.parametrize(
    ("source", "why"), [("non-persistent://public/default/topic", "a persistent topic"), ("a/b", "invalid topic name")]
)
def test_a_source_that_can_be_none_is_named(paired, source, why):
    async def scenario(pair):
        await pair.here.create(SHADOW, {SHADOW_SOURCE: source})
        with pytest.raises(CorruptionError, match=why):
            await pair.here.open(SHADOW)

    paired(scenario)
