"""Schemas in ledgers, located by a metadata node."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper.installation import META_INSTALLATION
from geminga.broker.schema.core.storage_format import IndexEntry, StoredSchema
from geminga.broker.schema.store import CACHE_ENTRY_BYTES, UNKNOWN_ATTEMPTS_MAX, Located, SchemaLedger, path_of
from geminga.metadata.core.faults import WriteFault
from geminga.metadata.ports import MUST_NOT_EXIST
from geminga.model.errors import CorruptionError, UnknownOutcomeError
from geminga.model.position import Position
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.house.orphans import collect_now
from support.worlds.schema_world import ID, SchemaWorld, run_with_schemas


def stored(version: int, definition: bytes = b'"int"') -> StoredSchema:
    return StoredSchema(version, SchemaInfo(ID, SchemaType.AVRO, definition, {"p": "q"}), 5)


async def add(world: SchemaWorld, *definitions: bytes) -> Located:
    """Versions from 0 on; the locator after them."""
    for version, definition in enumerate(definitions):
        assert await world.store.append(ID, stored(version, definition), await world.store.locate(ID))
    return await world.store.locate(ID)


def test_versions_are_found_by_a_new_process() -> None:
    async def scenario(world: SchemaWorld) -> None:
        await add(world, b'"int"', b'"long"')
        world.new_process()
        found = await world.store.locate(ID)
        assert found.locator is not None
        assert [await world.store.read(entry) for entry in found.locator.index] == [
            stored(0, b'"int"'),
            stored(1, b'"long"'),
        ]

    run_with_schemas(scenario)


def test_each_version_has_a_closed_ledger_of_its_own_with_pulsars_metadata() -> None:
    async def scenario(world: SchemaWorld) -> None:
        await add(world, b'"int"', b'"long"')
        ledgers = await world.store.ledgers(ID)
        assert {ledger.ledger_id for ledger in ledgers} == await world.live_ledgers()
        assert [ledger.entries for ledger in ledgers] == [1, 1]
        assert all(isinstance(ledger, SchemaLedger) and ledger.size_bytes > 0 for ledger in ledgers)
        bookkeeper = world.store._bookkeeper
        handle = await bookkeeper.open_ledger(ledgers[0].ledger_id, recover=False)
        assert handle.is_closed
        # Pulsar's own brokers open it with no other.
        assert handle.metadata.password == b""
        assert handle.metadata.custom_metadata == {
            "application": b"pulsar",
            "component": b"schema",
            "pulsar/schemaId": ID.encode(),
            META_INSTALLATION: await bookkeeper.installation.id(),
        }

    run_with_schemas(scenario)


def test_a_topic_without_schemas_has_no_locator() -> None:
    async def scenario(world: SchemaWorld) -> None:
        assert await world.store.locate(ID) == Located(None, MUST_NOT_EXIST)
        assert await world.store.ledgers(ID) == []
        assert not await world.store.delete(ID)
        await world.metadata.put(path_of(ID), b"", expected_version=None)
        found = await world.store.locate(ID)
        assert found == Located(None, 0)
        assert await world.store.append(ID, stored(0), found)

    run_with_schemas(scenario)


def test_a_lost_race_leaves_no_ledger() -> None:
    async def scenario(world: SchemaWorld) -> None:
        old = await add(world, b'"int"')
        assert await world.store.append(ID, stored(1, b'"long"'), old)
        assert not await world.store.append(ID, stored(1, b'"float"'), old)
        assert len(await world.live_ledgers()) == 2
        locator = (await world.store.locate(ID)).locator
        assert locator is not None
        assert [entry.version for entry in locator.index] == [0, 1]

    run_with_schemas(scenario)


@pytest.mark.parametrize("fault", [WriteFault.UNKNOWN_BEFORE, WriteFault.UNKNOWN_AFTER])
def test_an_unanswered_write_of_the_locator_is_settled(fault: WriteFault) -> None:
    async def scenario(world: SchemaWorld) -> None:
        known = await add(world, b'"int"')
        # The ledger is created and closed before.
        world.faults.next_writes.extend([WriteFault.NONE, WriteFault.NONE, fault])
        assert await world.store.append(ID, stored(1, b'"long"'), known)
        locator = (await world.store.locate(ID)).locator
        assert locator is not None
        assert len(locator.index) == 2
        assert len(await world.live_ledgers()) == 2

    run_with_schemas(scenario)


def test_a_write_that_is_never_answered_keeps_its_ledger() -> None:
    async def scenario(world: SchemaWorld) -> None:
        known = await add(world, b'"int"')
        unanswered = [WriteFault.UNKNOWN_BEFORE] * UNKNOWN_ATTEMPTS_MAX
        # The ledger's id is taken, its node is made, the ledger is closed.
        before = [WriteFault.NONE] * 3
        world.faults.next_writes.extend([*before, *unanswered])
        with pytest.raises(UnknownOutcomeError):
            await world.store.append(ID, stored(1, b'"long"'), known)
        assert len(await world.live_ledgers()) == 2

    run_with_schemas(scenario)


def test_deletion_leaves_nothing() -> None:
    async def scenario(world: SchemaWorld) -> None:
        await add(world, b'"int"', b'"long"')
        assert await world.store.delete(ID)
        assert not await world.live_ledgers()
        assert await world.store.locate(ID) == Located(None, MUST_NOT_EXIST)
        await add(world, b'"float"')

    run_with_schemas(scenario)


def test_orphans_are_collected() -> None:
    async def scenario(world: SchemaWorld) -> None:
        await add(world, b'"int"')
        await world.store._write_entry(ID, b"orphan")
        await world.store._write_entry("public/default/other", b"orphan")
        assert len(await collect_now(world.runtime, world.metadata, world.bookkeeper)) == 2
        assert len(await world.live_ledgers()) == 1
        assert len(await world.store.ledgers(ID)) == 1

    run_with_schemas(scenario)


def test_another_schema_than_the_locator_names_is_never_served() -> None:
    async def scenario(world: SchemaWorld) -> None:
        found = await add(world, b'"int"')
        assert found.locator is not None
        world.new_process()
        with pytest.raises(CorruptionError, match="another hash"):
            await world.store.read(found.locator.newest._replace(hash=b"other"))
        position = await world.store._write_entry(ID, b"\xff")
        with pytest.raises(CorruptionError, match="holds no schema"):
            await world.store.read(IndexEntry(0, position, b"h"))

    run_with_schemas(scenario)


def test_the_cache_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: SchemaWorld) -> None:
        monkeypatch.setattr("geminga.broker.schema.store.CACHE_BYTES_MAX", 2 * CACHE_ENTRY_BYTES + 20)
        found = await add(world, b'"int"', b'"long"', b'"float"')
        assert found.locator is not None
        store = world.store
        assert len(store._cache) == 2
        first, second, third = found.locator.index
        await store.read(second)
        await store.read(first)
        assert list(store._cache) == [second.position, first.position]
        assert (await store.read(third)).version == 2
        assert store._cache_bytes == sum(CACHE_ENTRY_BYTES + len(s.info.schema) for s in store._cache.values())
        assert Position(-1, -1) not in store._cache
        # A large one takes the place of several.
        large = b'"%s"' % (b"x" * (CACHE_ENTRY_BYTES + 10))
        found = await add(world, large)
        assert found.locator is not None
        assert list(store._cache) == [found.locator.index[-1].position]

    run_with_schemas(scenario)


def test_a_version_that_many_read_at_once_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: SchemaWorld) -> None:
        large = b'"' + b"x" * 1000 + b'"'
        cost = len(large) + CACHE_ENTRY_BYTES
        monkeypatch.setattr("geminga.broker.schema.store.CACHE_BYTES_MAX", 2 * cost)
        found = await add(world, large, large)
        assert found.locator is not None
        world.new_process()
        for entry in found.locator.index:
            many = [world.store.read(entry) for _ in range(5)]
            assert await asyncio.gather(*many) == [stored(entry.version, large)] * 5
        assert world.store._cache_bytes == 2 * cost
        assert list(world.store._cache) == [entry.position for entry in found.locator.index]

    run_with_schemas(scenario)


def test_version_that_is_added_while_all_are_deleted_goes_with_its_ledger() -> None:
    async def scenario(world: SchemaWorld) -> None:
        await add(world, b'"int"')
        metadata = world.store._metadata
        overtaken = False

        class Overtaken:
            get = staticmethod(metadata.get)

            async def delete(self, path: str, *, expected_version: int | None = None) -> None:
                nonlocal overtaken
                if not overtaken:
                    overtaken = True
                    world.store._metadata = metadata
                    assert await world.store.append(ID, stored(1, b'"long"'), await world.store.locate(ID))
                    world.store._metadata = self
                await metadata.delete(path, expected_version=expected_version)

        world.store._metadata = Overtaken()
        assert await world.store.delete(ID)
        assert overtaken
        assert not await metadata.exists(path_of(ID))
        assert not await world.live_ledgers()

    run_with_schemas(scenario)
