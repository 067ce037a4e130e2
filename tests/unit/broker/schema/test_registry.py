"""The registry: versions, races, deletion."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from geminga.broker.schema.core.strategy import Strategy
from geminga.broker.schema.registry import COMPARED_HERE_BYTES_MAX, READ_HERE_BYTES_MAX, SchemaRegistry, schema_id_of
from geminga.model.errors import CorruptionError, IncompatibleSchemaError, InvalidSchemaError, StorageError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, spawn
from geminga.sim.threads import SimThreads
from geminga.wire.pulsar.schema_info import SchemaInfo, SchemaType
from support.house.python_calls import counted_calls
from support.worlds.schema_world import ID, SchemaWorld, run_with_schemas
from support.worlds.schemas import B_OPTIONAL, C_OPTIONAL, A, B, record_info

FIRST, SECOND, UNFIT = record_info(A), record_info(A, B_OPTIONAL), record_info(A, B)
STRING = SchemaInfo("", SchemaType.STRING)
FULL = Strategy.FULL


def test_schema_ids_name_topics_without_domain_and_partition() -> None:
    assert schema_id_of(TopicName.parse("persistent://t/n/a b-partition-3")) == "t/n/a+b"
    assert schema_id_of(TopicName.parse("non-persistent://t/n/x")) == "t/n/x"


def test_versions_count_from_zero_and_known_schemas_keep_theirs() -> None:
    async def scenario(world: SchemaWorld) -> None:
        registry = world.registry
        assert await registry.put_if_absent(ID, FIRST, FULL) == 0
        assert await registry.put_if_absent(ID, SECOND, FULL) == 1
        assert await registry.put_if_absent(ID, FIRST, FULL) == 0
        reformatted = SchemaInfo("", SchemaType.AVRO, FIRST.schema.replace(b" ", b"\n"))
        assert await registry.put_if_absent(ID, reformatted, Strategy.ALWAYS_INCOMPATIBLE) == 0
        latest = await registry.latest(ID)
        assert latest is not None
        assert (latest.version, latest.info.schema, latest.info.name) == (1, SECOND.schema, ID)
        assert [schema.version for schema in await registry.live(ID)] == [0, 1]
        assert await registry.find_version(ID, SECOND) == 1
        assert await registry.find_version(ID, UNFIT) is None
        assert await registry.get(ID, 7) is None
        assert await world.new_process().find_version(ID, SECOND) == 1

    run_with_schemas(scenario)


def test_a_new_version_does_not_have_all_before_it_parsed_again() -> None:
    """With 1,000 versions a producer with one more held the loop for a quarter of a second."""

    async def scenario(world: SchemaWorld) -> None:
        registry = world.registry

        def version(number: int) -> SchemaInfo:
            return record_info(*({"name": f"f{one}", "type": "int", "default": 0} for one in (number, number + 1)))

        async def calls_of(number: int) -> int:
            with counted_calls() as calls:
                assert await registry.put_if_absent(ID, version(number), Strategy.ALWAYS_COMPATIBLE) == number
                return calls()

        for number in range(10):
            few = await calls_of(number)
        for number in range(10, 100):
            many = await calls_of(number)
        # What is left is a look at each of them, and one at its place.
        assert many < few + 90 * 16
        spaced = SchemaInfo("", SchemaType.AVRO, version(50).schema + b" ")
        assert await registry.find_version(ID, spaced) == 50

    run_with_schemas(scenario)


def test_others_are_served_while_a_schema_is_compared_with_very_many() -> None:
    """2,000 versions of 2.5 kB held the broker for four seconds, for each consumer with a schema."""

    async def scenario(world: SchemaWorld) -> None:
        registry = world.registry
        field = {"name": "f", "type": "int"}
        versions = [record_info({**field, "default": number}) for number in range(100)]
        for info in versions:
            await registry.put_if_absent(ID, info, Strategy.ALWAYS_COMPATIBLE)
        new = record_info({**field, "default": -1})

        async def turns_of(work: Coroutine[Any, Any, object]) -> int:
            task, turns = spawn(work, name="work"), 0
            while not task.done():
                await next_turn()
                turns += 1
            await task
            return turns

        assert await turns_of(registry.check(ID, new, Strategy.FULL)) < 5
        assert await turns_of(registry.check(ID, new, Strategy.FULL_TRANSITIVE)) >= 10
        assert await turns_of(registry.check_consumer(ID, new, Strategy.FULL_TRANSITIVE)) >= 10
        assert await turns_of(world.new_process().find_version(ID, new)) >= 10 + len(versions)
        assert await turns_of(world.registry.find_version(ID, new)) >= 10
        assert await registry.put_if_absent(ID, new, Strategy.FULL_TRANSITIVE) == len(versions)
        # Only the oldest is not fit for it.
        await registry.put_if_absent("t/n/old", record_info({"name": "g", "type": "int"}), FULL)
        for info in versions:
            await registry.put_if_absent("t/n/old", info, Strategy.ALWAYS_COMPATIBLE)
        with pytest.raises(IncompatibleSchemaError, match="field g"):
            await registry.put_if_absent("t/n/old", new, Strategy.FULL_TRANSITIVE)

    run_with_schemas(scenario)


def _wide(count: int, *, name: str = "wide") -> SchemaInfo:
    fields = [{"name": f"f{number}", "type": ["null", "int"]} for number in range(count)]
    return SchemaInfo("", SchemaType.AVRO, json.dumps({"type": "record", "name": name, "fields": fields}).encode())


def _doubling(levels: int, *, reads: bool) -> SchemaInfo:
    """At each level the first branch that reads it fails at its last field, and the next begins anew."""
    level: object = "int"
    for number in range(levels):
        fields: list[object] = [{"name": "f", "type": level}]
        late = {"type": "record", "name": f"a{number}", "fields": [*fields, {"name": "m", "type": "int"}]}
        again = {"type": "record", "name": f"b{number}", "fields": [{"name": "f", "type": f"r{number - 1}"}]}
        inner = [late, again] if reads and number else {"type": "record", "name": f"w{number}", "fields": fields}
        level = {"type": "record", "name": f"r{number}", "fields": [{"name": "f", "type": inner}]}
    return SchemaInfo("", SchemaType.AVRO, json.dumps(level).encode())


class _HeldThreads(SimThreads):
    """Functions run when the test says so."""

    def __init__(self) -> None:
        super().__init__(inline=True)
        self.held: list[tuple[str, Callable[[], None], Callable[[BaseException | None], None]]] = []

    def submit(self, lane: str, function: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        self.held.append((lane, function, done))

    def go_on(self) -> None:
        super().submit(*self.held.pop(0))

    async def go_on_until(self, task: asyncio.Future[Any]) -> None:
        """Each function that is held, one after another."""
        while not task.done():
            if self.held:
                self.go_on()
            await next_turn()


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await next_turn()


def test_a_long_definition_is_read_on_a_thread_and_keeps_nobody_waiting() -> None:
    """One of 5 MB held the broker for two and a half seconds, for each producer that brought it."""

    async def scenario(world: SchemaWorld) -> None:
        threads = _HeldThreads()
        registry = SchemaRegistry(world.runtime.clock, threads, world.store)
        wide = _wide(500)
        assert len(wide.schema) > READ_HERE_BYTES_MAX
        await registry.put_if_absent("t/n/other", FIRST, FULL)
        producers = [spawn(registry.put_if_absent(f"t/n/{number}", wide, FULL), name="producer") for number in range(3)]
        await _turns()
        # One at a time: what waits can be called off, and holds no place on the thread.
        assert len(threads.held) == 1
        assert await registry.put_if_absent("t/n/other", FIRST, FULL) == 0
        # Who is called off while it is read keeps the thread busy until then; who waits is simply gone.
        for producer in producers[:2]:
            producer.cancel()
        await _turns()
        assert len(threads.held) == 1
        threads.go_on()
        await _turns()
        assert len(threads.held) == 1
        await threads.go_on_until(producers[2])
        assert await producers[2] == 0
        assert not threads.held
        assert await registry.live("t/n/0") == []

    run_with_schemas(scenario)


def test_a_long_definition_that_is_none_is_refused_and_the_thread_is_free_again() -> None:
    async def scenario(world: SchemaWorld) -> None:
        registry = SchemaRegistry(world.runtime.clock, SimThreads(inline=True), world.store)
        broken = SchemaInfo("", SchemaType.AVRO, b'{"type": ' + b" " * READ_HERE_BYTES_MAX)
        for _ in range(2):
            with pytest.raises(InvalidSchemaError, match="not JSON"):
                await registry.put_if_absent(ID, broken, FULL)
        wide, wider = _wide(500), _wide(501)
        assert await registry.put_if_absent(ID, wide, FULL) == 0
        with pytest.raises(IncompatibleSchemaError, match="field f500 is missing"):
            await registry.put_if_absent(ID, wider, FULL)
        assert await registry.find_version(ID, SchemaInfo("", SchemaType.AVRO, wide.schema + b" ")) == 0

    run_with_schemas(scenario)


def test_short_definitions_that_take_long_to_compare_are_compared_on_the_thread() -> None:
    async def scenario(world: SchemaWorld) -> None:
        threads = _HeldThreads()
        registry = SchemaRegistry(world.runtime.clock, threads, world.store)
        reader, writer = _doubling(16, reads=True), _doubling(16, reads=False)
        assert COMPARED_HERE_BYTES_MAX < len(reader.schema + writer.schema) < READ_HERE_BYTES_MAX
        assert await registry.put_if_absent(ID, writer, FULL) == 0

        async def refused() -> None:
            with pytest.raises(IncompatibleSchemaError, match="is not in the union"):
                await registry.check(ID, reader, FULL)

        checked = spawn(refused(), name="check")
        await _turns()
        assert len(threads.held) == 1
        await threads.go_on_until(checked)
        await checked

    run_with_schemas(scenario)


def test_no_thread_to_be_had_is_an_error_to_try_again() -> None:
    async def scenario(world: SchemaWorld) -> None:
        threads = _HeldThreads()
        registry = SchemaRegistry(world.runtime.clock, threads, world.store)

        async def refused() -> None:
            with pytest.raises(StorageError, match="can not be looked at now"):
                await registry.put_if_absent(ID, _wide(500), FULL)

        producer = spawn(refused(), name="producer")
        await _turns()
        _, _, done = threads.held.pop()
        done(OSError(errno.EAGAIN, "no thread"))
        await producer
        again = spawn(registry.put_if_absent(ID, _wide(500), FULL), name="again")
        await _turns()
        await threads.go_on_until(again)
        assert await again == 0

    run_with_schemas(scenario)


def test_what_does_not_fit_is_refused_and_not_stored() -> None:
    async def scenario(world: SchemaWorld) -> None:
        registry = world.registry
        await registry.put_if_absent(ID, FIRST, FULL)
        with pytest.raises(IncompatibleSchemaError, match="field b"):
            await registry.put_if_absent(ID, UNFIT, FULL)
        with pytest.raises(IncompatibleSchemaError, match="auto updating is disabled"):
            await registry.put_if_absent(ID, SECOND, FULL, may_add=False)
        with pytest.raises(InvalidSchemaError):
            await registry.put_if_absent(ID, SchemaInfo("", SchemaType.AVRO, b"{"), FULL)
        assert await registry.put_if_absent(ID, FIRST, FULL, may_add=False) == 0
        assert len(await world.live_ledgers()) == 1
        await registry.check(ID, SECOND, FULL)
        with pytest.raises(IncompatibleSchemaError):
            await registry.check(ID, UNFIT, FULL)
        with pytest.raises(IncompatibleSchemaError, match="Do not have existing"):
            await registry.check("public/default/other", FIRST, FULL)
        await registry.check("public/default/other", FIRST, Strategy.ALWAYS_COMPATIBLE)

    run_with_schemas(scenario)


def test_consumers_are_checked_against_what_is_there() -> None:
    async def scenario(world: SchemaWorld) -> None:
        registry = world.registry
        with pytest.raises(IncompatibleSchemaError, match="does not have schema"):
            await registry.check_consumer(ID, FIRST, FULL)
        await registry.check_consumer(ID, FIRST, Strategy.ALWAYS_COMPATIBLE)
        await registry.put_if_absent(ID, FIRST, FULL)
        await registry.check_consumer(ID, SECOND, FULL)
        for other in (UNFIT, STRING):
            with pytest.raises(IncompatibleSchemaError):
                await registry.check_consumer(ID, other, FULL)
        assert await registry.find_version(ID, SECOND) is None

    run_with_schemas(scenario)


def test_a_deletion_is_a_version_and_hides_what_was_before() -> None:
    async def scenario(world: SchemaWorld) -> None:
        registry = world.registry
        assert await registry.mark_deleted(ID) is None
        await registry.put_if_absent(ID, FIRST, FULL)
        assert await registry.has_schema(ID)
        assert await registry.mark_deleted(ID, user="admin") == 1
        assert not await registry.has_schema(ID)
        assert await registry.latest(ID) is None
        assert not await registry.live(ID)
        mark = await world.new_process().get(ID, 1)
        assert mark is not None
        assert mark.is_deleted
        assert mark.user == "admin"
        # Whatever comes now starts anew, and the same schema gets another version.
        assert await registry.put_if_absent(ID, STRING, FULL) == 2
        assert [schema.version for schema in await registry.live(ID)] == [2]
        old = await registry.get(ID, 0)
        assert old is not None
        assert old.info.schema == FIRST.schema

    run_with_schemas(scenario)


def test_deletion_for_good_starts_again_at_zero() -> None:
    async def scenario(world: SchemaWorld) -> None:
        registry = world.registry
        await registry.put_if_absent(ID, FIRST, FULL)
        await registry.put_if_absent(ID, SECOND, FULL)
        assert await registry.delete(ID)
        assert not await registry.delete(ID)
        assert not await world.live_ledgers()
        assert await registry.put_if_absent(ID, STRING, FULL) == 0

    run_with_schemas(scenario)


def test_concurrent_producers_agree_on_versions() -> None:
    async def scenario(world: SchemaWorld) -> None:
        """Two processes and many producers: no schema is stored twice, none is lost."""
        other_process = world.registry
        registry = world.new_process()
        infos = [FIRST, SECOND, record_info(A, C_OPTIONAL), record_info(A, B_OPTIONAL, C_OPTIONAL)]
        everyone = [each.put_if_absent(ID, info, FULL) for info in infos * 3 for each in (registry, other_process)]
        versions = await asyncio.gather(*everyone)
        assert sorted(set(versions)) == [0, 1, 2, 3]
        for index, info in enumerate(infos * 3):
            found = await registry.get(ID, versions[2 * index])
            assert found is not None
            assert found.info.schema == info.schema
            assert versions[2 * index] == versions[2 * index + 1]
        assert len(await world.live_ledgers()) == 4
        assert not registry._turns
        assert not other_process._turns

    run_with_schemas(scenario)


def test_who_loses_the_race_for_a_version_gets_the_next_one() -> None:
    async def scenario(world: SchemaWorld) -> None:
        """Two brokers at once, each with another schema."""
        registries, infos = (world.registry, world.new_process()), (FIRST, SECOND)
        versions = await asyncio.gather(
            *(registry.put_if_absent(ID, info, FULL) for registry, info in zip(registries, infos, strict=True))
        )
        assert sorted(versions) == [0, 1]
        found = [await world.registry.get(ID, version) for version in versions]
        assert [one and one.info.schema for one in found] == [info.schema for info in infos]

    run_with_schemas(scenario)


def test_a_version_that_can_not_be_read_holds_up_only_who_needs_it() -> None:
    async def scenario(world: SchemaWorld) -> None:
        for info in (FIRST, SECOND):
            await world.registry.put_if_absent(ID, info, FULL)
        located = (await world.store.locate(ID)).locator
        assert located is not None
        registry = world.new_process()
        del world.bookie._ledgers[located.index[0].position.ledger_id]
        # One that is there needs no other.
        assert await registry.put_if_absent(ID, SECOND, FULL) == 1
        # A new one may be that one, or not fit it.
        for info in (FIRST, record_info(A, C_OPTIONAL)):
            with pytest.raises(StorageError):
                await registry.put_if_absent(ID, info, FULL)
        # Who writes with it knows it without its ledger, and with no other one.
        assert await registry.version_by_hash(ID, FIRST.schema) == 0
        assert await registry.version_by_hash(ID, UNFIT.schema) is None
        assert await registry.definition(ID, 0, FIRST.schema) == FIRST.schema
        assert await registry.definition(ID, 1, FIRST.schema) == SECOND.schema
        with pytest.raises(StorageError):
            await registry.definition(ID, 0, SECOND.schema)
        with pytest.raises(CorruptionError, match="version 7 is not in the registry"):
            await registry.definition(ID, 7, FIRST.schema)

    run_with_schemas(scenario)
