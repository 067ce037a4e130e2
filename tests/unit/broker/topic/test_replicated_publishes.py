"""Another cluster's replicator publishes here, where deduplication is on: its entries count by where they come from."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.core.dedup import SOURCES_MAX
from geminga.broker.core.dedup_source import (
    FORGOTTEN_MAX,
    FORGOTTEN_PROPERTY,
    as_properties,
    forgotten_in,
    forgotten_text,
    number_of,
    of_properties,
    shown,
    source_of,
    with_forgotten,
)
from geminga.broker.geo.core.copying import copy_of
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import CorruptionError, PreconditionFailedError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import DEDUP_CURSOR
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import SOURCE_POSITION, encode_entry
from geminga.wire.pulsar.texts import LISTS_MAX
from support.house.waiting import turns
from support.worlds.broker_world import ENDPOINTS, BrokerWorld, Client, Type, run_with_broker, send_frame
from support.worlds.policy_levels import seconds, set_topic
from support.worlds.rest_world import ask, rest_application
from unit.broker.topic.test_deduplication import NO_ID

REPLICATOR = "pulsar.repl.east-->standalone"
AT_3_0 = pb.KeyValue(key=SOURCE_POSITION, value="3:0")
#: Within a ``long``, and beyond what two of them hold together.
HALVES = st.integers(0, (1 << 63) - 1)


def frame(position: str | None, producer: str, sequence_id: int, payload: bytes = b"payload") -> bytes:
    """As Apache's replicator sends it: the message's own producer and sequence id, and where it was stored."""
    metadata: dict[str, object] = {"replicated_from": "east"}
    if position is not None:
        metadata["properties"] = [pb.KeyValue(key="k", value="v"), pb.KeyValue(key=SOURCE_POSITION, value=position)]
    return send_frame(sequence_id, payload, producer_name=producer, metadata=metadata)


async def replicator(world: BrokerWorld, epoch: int = 0) -> Client:
    client = await world.client()
    success = await client.create_producer(producer_name=REPLICATOR, epoch=epoch)
    assert success.last_sequence_id == -1
    return client


async def is_stored(client: Client) -> bool:
    return (await client.receipt()).message_id.ledgerId != NO_ID


def count(world: BrokerWorld) -> int:
    return world.topic.ledger.ledgers.entry_count


#: What two producers of the other cluster published, one of which began anew there.
STORY = [("3:0", "a", 7), ("3:1", "b", 0), ("3:2", "a", 8), ("4:0", "a", 0), ("4:3", "b", 1)]


@pytest.mark.parametrize("snapshot_entries", [1000, 2])
def test_messages_of_many_producers_are_stored_once_through_resends_and_restarts(snapshot_entries: int) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        for entry in STORY:
            client.send_bytes(frame(*entry))
            assert await is_stored(client)
        for epoch in (1, 2):
            client.send_bytes(b"".join(frame(*entry) for entry in STORY[2:]) + frame(f"5:{epoch}", "b", 2))
            assert [await is_stored(client) for _ in range(4)] == [False, False, False, True]
            client.send_bytes(frame(f"5:{epoch}", "b", 2))
            assert not await is_stored(client)
            await seconds(2)
            await world.restart()
            client = await replicator(world, epoch)
        assert count(world) == 7

    run_with_broker(scenario, deduplication=True, deduplication_snapshot_entries=snapshot_entries)


def test_what_is_being_written_when_deduplication_is_switched_on_is_there_once() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        client.send_bytes(frame(*STORY[0]))
        assert await is_stored(client)
        world.bookie.holds_replies = True
        client.send_bytes(frame(*STORY[1]))
        await turns()
        # The answer to that one is kept; those to what comes next are not.
        world.bookie.holds_replies = False
        await world.resources.namespaces.set_policy("public/default", "deduplicationEnabled", True)
        await world.broker.policies_changed("public/default")
        assert world.topic.dedup is not None
        world.bookie.release()
        assert await is_stored(client)
        client.send_bytes(b"".join(frame(*entry) for entry in STORY[:3]))
        assert [await is_stored(client) for _ in range(3)] == [False, False, True]
        assert count(world) == 3

    run_with_broker(scenario)


@pytest.mark.parametrize("is_on", [True, False])
@pytest.mark.parametrize("form", ["short", "long", "no checksum"])
def test_only_a_replicator_says_where_a_message_was_stored_elsewhere(form: str, is_on: bool) -> None:
    """A replay believes whoever said so: all that came from there afterwards would be taken for repetitions."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(producer_name="a client that is no replicator, whose name is a long one")
        forged = pb.MessageMetadata(producer_name="a", sequence_id=1, publish_time=1, replicated_from="east")
        forged.properties.add(key=SOURCE_POSITION, value=f"{(1 << 63) - 1}:0")
        if form == "long":
            forged.properties.add(key="k", value="v" * 300)
        entry = encode_entry(forged, b"payload")
        client.send_bytes(
            send_frame(0, producer_name="a")
            + send_frame(1, entry=entry if form != "no checksum" else entry[6:])
            + send_frame(2, producer_name="a", metadata={"properties": [AT_3_0]})
            + send_frame(3, producer_name="a", metadata={"replicated_from": "east"})
        )
        assert await is_stored(client)
        error = (await client.expect(Type.SEND_ERROR)).send_error
        assert (error.sequence_id, error.error) == (1, pb.NotAllowedError)
        assert "east" in error.message
        assert "pulsar.repl." in error.message
        # Half of it says nothing.
        assert [await is_stored(client) for _ in range(2)] == [True, True]
        await world.resources.namespaces.set_policy("public/default", "deduplicationEnabled", True)
        await world.broker.policies_changed("public/default")
        for epoch in range(2):
            client = await replicator(world, epoch)
            client.send_bytes(frame(f"3:{epoch}", "b", epoch))
            assert await is_stored(client)
            await world.restart()

    run_with_broker(scenario, deduplication=is_on)


def test_without_a_source_position_nothing_is_taken_for_a_repetition() -> None:
    """An older replicator's: the second session of ``a`` begins at 0 again, where nobody deduplicated."""

    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        local = await world.publisher(producer_name="a")
        local.send_message(5, producer_name="a")
        assert await is_stored(local)
        for position, producer, sequence_id in [(None, "a", 7), (None, "a", 0), (None, "b", 0), ("4", "a", 1)]:
            client.send_bytes(frame(position, producer, sequence_id))
            assert await is_stored(client)
        # All of it is read again when deduplication is switched on anew.
        for is_on in (False, True):
            await world.resources.namespaces.set_policy("public/default", "deduplicationEnabled", is_on)
            await world.broker.policies_changed("public/default")
        # Another cluster's producer of the same name is another producer.
        assert dict(world.topic.dedup.state.persisted) == {"a": 5}

    run_with_broker(scenario, deduplication=True)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_is_refused_is_not_overtaken(is_damaged: bool) -> None:
    """By a limit of the topic, or before the topic is asked."""

    async def scenario(world: BrokerWorld) -> None:
        await set_topic(world, "maxMessageSize", 1000)
        client = await replicator(world)
        refused = frame("3:1", "a", 1, b"x" * 2000)
        if is_damaged:
            refused = refused[:-1] + b"y"
        for epoch, first in enumerate([frame("3:0", "a", 0), b""], 1):
            client.send_bytes(first + refused + frame("3:2", "a", 2))
            await client.expect(Type.SEND_ERROR)
            # What is on its way comes before the client has heard of the end.
            client.send_bytes(frame("3:3", "a", 3))
            await client.expect(Type.CLOSE_PRODUCER)
            await turns(20)
            assert count(world) == 1
            await client.create_producer(producer_name=REPLICATOR, epoch=epoch)
        client.send_bytes(b"".join(frame(f"3:{number}", "a", number) for number in (1, 2, 3)))
        assert [await is_stored(client) for _ in range(3)] == [True] * 3

    run_with_broker(scenario, deduplication=True)


def test_what_a_replicator_adds_does_not_make_a_message_too_large() -> None:
    """With the same limit in both clusters one that just fits there would end the copying of its topic for ever."""

    async def scenario(world: BrokerWorld) -> None:
        limit = 1000
        await set_topic(world, "maxMessageSize", limit)
        client = await replicator(world)
        metadata = pb.MessageMetadata(producer_name="a", sequence_id=1, publish_time=1)
        for size, padding, is_taken in ((limit, 0, True), (limit + 1, 0, False), (limit, 1000, False)):
            room = size - len(encode_entry(metadata, b""))
            copy = copy_of(encode_entry(metadata, b"x" * room), Position(123456, 7890), "east", "standalone")
            assert copy is not None
            sent = pb.MessageMetadata.FromString(copy.metadata)
            sent.replicated_from += "x" * padding  # whoever says that it is a replicator
            client.send_bytes(send_frame(1, entry=encode_entry(sent, copy.payload)))
            if is_taken:
                assert await is_stored(client)
            else:
                refused = (await client.expect(Type.SEND_ERROR)).send_error
                assert refused.error == pb.NotAllowedError
                await client.expect(Type.CLOSE_PRODUCER)
                client = await replicator(world)

    run_with_broker(scenario)


def test_what_a_replicator_adds_does_not_make_properties_too_many() -> None:
    """One that just fits here would end the copying of its topic."""

    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        properties = [pb.KeyValue(key="k", value="")] * LISTS_MAX["properties"]
        metadata = {"replicated_from": "east", "properties": [*properties, AT_3_0]}
        client.send_bytes(send_frame(0, metadata=metadata))
        assert await is_stored(client)
        metadata["properties"] = [*properties, AT_3_0, AT_3_0]
        client.send_bytes(send_frame(1, metadata=metadata))
        assert "properties has" in (await client.expect(Type.SEND_ERROR)).send_error.message

    run_with_broker(scenario)


def test_another_producer_s_messages_are_taken_behind_one_that_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await set_topic(world, "maxMessageSize", 1000)
        client = await world.publisher(producer_name="a")
        client.send_bytes(send_frame(0, b"x" * 2000, producer_name="a") + send_frame(1, producer_name="a"))
        await client.expect(Type.SEND_ERROR)
        assert await is_stored(client)

    run_with_broker(scenario, deduplication=True)


def test_a_resend_of_what_is_being_written_ends_the_judging() -> None:
    """The second connection sends one that is under way, and one behind it that is not."""

    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        world.bookie.holds_replies = True
        client.send_bytes(frame("3:1", "a", 1) + frame("3:2", "b", 0))
        client.lose()
        await turns()
        # It is let in when that took too long.
        client = await replicator(world, 1)
        client.send_bytes(frame("3:2", "b", 0) + frame("3:3", "a", 2))
        assert "Cannot determine" in (await client.expect(Type.SEND_ERROR)).send_error.message
        await client.expect(Type.CLOSE_PRODUCER)
        world.bookie.holds_replies = False
        world.bookie.release()
        await client.create_producer(producer_name=REPLICATOR, epoch=2)
        client.send_bytes(frame("3:2", "b", 0) + frame("3:3", "a", 2))
        assert [await is_stored(client) for _ in range(2)] == [False, True]
        assert count(world) == 3

    run_with_broker(scenario, deduplication=True)


def test_a_cluster_is_not_copied_to_itself() -> None:
    """The address of another cluster leads back here, by mistake: each message would be there twice."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.client()
        client.request_producer(producer_name="pulsar.repl.standalone-->west")
        await client.check_error(pb.NotAllowedError, "leads back here")

    run_with_broker(scenario)


def test_clusters_that_somebody_makes_up_are_remembered_up_to_a_limit() -> None:
    """Each is kept for good, in memory and in each snapshot: who may publish could fill both."""

    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        client.send_bytes(frame("3:0", "a", 0))
        assert await is_stored(client)
        made_up = [
            send_frame(0, producer_name="a", metadata={"replicated_from": f"cluster {number}", "properties": [AT_3_0]})
            for number in range(SOURCES_MAX + 200)
        ]
        client.send_bytes(b"".join(made_up))
        assert all([await is_stored(client) for _ in made_up])
        for epoch in (1, 2):
            assert len(world.topic.dedup.state.persisted) == SOURCES_MAX
            # Those that came before are told apart as ever; what is beyond is stored whatever it is.
            client.send_bytes(frame("3:0", "a", 0) + made_up[0] + made_up[-1])
            assert [await is_stored(client) for _ in range(3)] == [False, False, True]
            await seconds(2)
            await world.restart()
            client = await replicator(world, epoch)

    run_with_broker(scenario, deduplication=True, deduplication_snapshot_entries=500)


def test_where_a_replicator_is_is_never_forgotten() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        client.send_bytes(frame("9223372036854775807:5", "a", 0))
        assert await is_stored(client)
        await client.close_producer(1)
        await seconds(7 * 3600)
        assert set(world.topic.dedup.state.persisted) == {REPLICATOR}
        cursor = world.topic.ledger.cursors[DEDUP_CURSOR]
        # Pulsar's names: an Apache broker that takes the topic over goes on there.
        assert cursor.properties == {f"{REPLICATOR}_LID": (1 << 63) - 1, f"{REPLICATOR}_EID": 5}
        await world.restart()
        await seconds(7 * 3600)
        client = await replicator(world, 1)
        client.send_bytes(frame("9223372036854775807:5", "a", 0))
        assert not await is_stored(client)
        stats = world.topic.parts.stats()["deduplication"]
        assert stats["highestSequenceIds"] == {REPLICATOR: "9223372036854775807:5"}

    run_with_broker(
        scenario,
        deduplication=True,
        deduplication_snapshot_s=60,
        deduplication_inactivity_minutes=10,
        delete_inactive_topics=False,
        keep_alive_interval_s=1_000_000,
    )


@given(st.tuples(HALVES, HALVES), st.tuples(HALVES, HALVES))
def test_source_positions_are_ordered_as_the_log_is(one: tuple[int, int], other: tuple[int, int]) -> None:
    numbers = [number_of("{}:{}".format(*position)) for position in (one, other)]
    assert None not in numbers
    assert (numbers[0] < numbers[1]) == (one < other)  # type: ignore[operator]
    assert (numbers[0] == numbers[1]) == (one == other)
    assert shown("pulsar.repl.x", numbers[0] or 0) == "{}:{}".format(*one)


@example({"pulsar.repl.x": ((1 << 63) - 1, (1 << 63) - 2)})
@given(
    st.dictionaries(st.sampled_from(["a", "a_LID", "pulsar.repl.x", "pulsar.repl.y_LID"]), st.tuples(HALVES, HALVES))
)
def test_numbers_are_kept_in_properties_of_63_bits(found: dict[str, tuple[int, int]]) -> None:
    numbers = {
        name: number_of("{}:{}".format(*pair)) or 0 if name.startswith("pulsar.repl.") else pair[0]
        for name, pair in found.items()
    }
    kept = as_properties(numbers)
    assert all(0 <= value < 1 << 63 for value in kept.values())
    assert dict(of_properties(kept)) == numbers


def test_half_a_position_or_an_older_number_is_none() -> None:
    older = {"pulsar.repl.x": 7, "pulsar.repl.y_LID": 3, "pulsar.repl.z_EID": 3, "a": 1}
    assert dict(of_properties(older)) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", ":", "1", "1:", ":1", "1:2:3", "-1:2", "1:-2", "1:x", "٣:1", "9223372036854775808:0", "1" * 20 + ":1"]
)
def test_what_is_no_position_is_none(text: str) -> None:
    assert number_of(text) is None
    metadata = pb.MessageMetadata(replicated_from="east")
    metadata.properties.add(key=SOURCE_POSITION, value=text)
    assert source_of(metadata, "west") is None
    assert source_of(pb.MessageMetadata(properties=[pb.KeyValue(key=SOURCE_POSITION, value="1:2")]), "west") is None


# ---- a source position that is not true is taken away

PATH = "/admin/v2/persistent/public/default/topic/sourcePositions"
FAR = "9000000000000000000:0"
SNAPSHOTS = [1000, 1]


async def poisoned(world: BrokerWorld) -> None:
    """Somebody said that ``east`` is far: what it sends gets a receipt, and is not stored."""
    forger = await replicator(world)
    # Nothing is trimmed.
    await world.topic.create_subscription("sub", EARLIEST)
    forger.send_bytes(frame(FAR, "x", 0))
    assert await is_stored(forger)
    forger.lose()
    await turns()
    client = await replicator(world, 1)
    client.send_bytes(frame("3:0", "a", 0))
    assert not await is_stored(client)
    client.lose()
    await turns()


async def told(world: BrokerWorld, method: str = "GET", path: str = PATH, status: int = 200) -> Any:
    answer = await ask(rest_application(world.broker), method, path)
    assert answer.status == status, answer
    return json.loads(answer.body)


async def comes(world: BrokerWorld, epoch: int, position: str) -> bool:
    client = await replicator(world, epoch)
    client.send_bytes(frame(position, "a", 0))
    is_new = await is_stored(client)
    client.lose()
    await turns()
    return is_new


@pytest.mark.parametrize("snapshot_entries", SNAPSHOTS)
@pytest.mark.parametrize("is_saved", [True, False])
def test_a_source_position_that_is_not_true_is_taken_away_for_good(snapshot_entries: int, is_saved: bool) -> None:
    """Through a stop and a crash, with and without a later snapshot, and where all of the log is read again."""

    async def scenario(world: BrokerWorld) -> None:
        await poisoned(world)
        found = await told(world)
        assert found == {"sources": [{"cluster": "east", "position": FAR, "isConnected": False}], "forgotten": []}
        assert await told(world, "DELETE", f"{PATH}/east") == {"cluster": "east", "position": FAR}
        await told(world, "DELETE", f"{PATH}/east", 404)
        if is_saved:
            assert await comes(world, 2, "3:0")
            assert not await comes(world, 3, "3:0")
        for epoch in (4, 6):
            if epoch == 4:
                await world.restart()
            else:
                # As after a crash: the old broker writes nothing at its end.
                topic, world.broker = world.topic, world._new_broker()
                await topic.ledger.close()
                await world.broker.start(ENDPOINTS)
            if is_saved:
                assert not await comes(world, epoch, "3:0")
            assert await comes(world, epoch + 1, f"3:{epoch}")
        forgotten = (await told(world))["forgotten"]
        assert [each["cluster"] for each in forgotten] == ["east"]
        # A replay of everything finds what was forged before that.
        for is_on in (False, True):
            await world.resources.namespaces.set_policy("public/default", "deduplicationEnabled", is_on)
            await world.broker.policies_changed("public/default")
        assert (await told(world))["sources"] == [{"cluster": "east", "position": "3:6", "isConnected": False}]
        assert await comes(world, 8, "3:7")

    run_with_broker(scenario, deduplication=True, deduplication_snapshot_entries=snapshot_entries)


@pytest.mark.parametrize("name", ["east-->standalone", "a/b", "é c%2F", "east?x=1"])
def test_a_position_of_a_cluster_that_was_made_up_is_taken_away_by_its_name(name: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await replicator(world)
        for cluster in ("east", name):
            metadata = {"replicated_from": cluster, "properties": [AT_3_0]}
            client.send_bytes(send_frame(0, producer_name="a", metadata=metadata))
            assert await is_stored(client)
        found = await told(world)
        assert {each["cluster"]: each["position"] for each in found["sources"]} == {"east": "3:0", name: "3:0"}
        path = f"{PATH}/{quote(name, safe='')}"
        assert await told(world, "DELETE", path) == {"cluster": name, "position": "3:0"}
        await world.restart()
        assert [each["cluster"] for each in (await told(world))["sources"]] == ["east"]

    run_with_broker(scenario, deduplication=True)


def test_what_is_being_written_when_a_position_is_taken_away_is_waited_for() -> None:
    """Its replicator connects again; what it had sent before does not bring the position back."""

    async def scenario(world: BrokerWorld) -> None:
        await poisoned(world)
        forger = await replicator(world, 3)
        assert isinstance(world.bookie, MemoryBookie)
        world.bookie.holds_replies = True
        forger.send_bytes(frame("9000000000000000000:1", "x", 1))
        await turns()
        taking = asyncio.ensure_future(told(world, "DELETE", f"{PATH}/east"))
        await turns()
        assert not taking.done()
        world.bookie.release()
        assert (await taking)["position"] == "9000000000000000000:1"
        assert await comes(world, 4, "3:0")
        await world.restart()
        assert await comes(world, 5, "3:1")

    run_with_broker(scenario, deduplication=True)


def test_a_position_whose_removal_is_not_stored_is_there_still() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await poisoned(world)
        world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * 1_000)
        await told(world, "DELETE", f"{PATH}/east", 500)
        world.metadata.faults.next_writes.clear()
        assert await told(world) == {
            "sources": [{"cluster": "east", "position": FAR, "isConnected": False}],
            "forgotten": [],
        }
        assert not await comes(world, 3, "3:0")
        await told(world, "DELETE", f"{PATH}/east")
        assert await comes(world, 4, "3:0")

    run_with_broker(scenario, deduplication=True)


def test_positions_of_topics_that_know_none_are_refused_with_what_is_so() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await poisoned(world)
        assert "of east, not of west" in (await told(world, "DELETE", f"{PATH}/west", 404))["reason"]
        await world.resources.namespaces.set_policy("public/default", "deduplicationEnabled", False)
        await world.broker.policies_changed("public/default")
        assert "is not deduplicated" in (await told(world, status=412))["reason"]

    run_with_broker(scenario, deduplication=True)


def test_only_so_many_clusters_are_remembered_as_forgotten() -> None:
    """Until their ledgers are trimmed: then no replay reads them."""
    forgotten: dict[str, Position] = {}
    for number in range(FORGOTTEN_MAX):
        forgotten = with_forgotten(forgotten, f"c{number}", Position(number, 1), 0)
    assert forgotten_in({FORGOTTEN_PROPERTY: forgotten_text(forgotten)}) == forgotten
    with pytest.raises(PreconditionFailedError, match=r"100 clusters .* ledger 0 is the next one"):
        with_forgotten(forgotten, "more", Position(200, 0), 0)
    assert "c0" not in with_forgotten(forgotten, "more", Position(200, 0), 1)
    assert with_forgotten(forgotten, "c7", Position(200, 0), 0)["c7"] == Position(200, 0)
    assert forgotten_in({}) == {}
    for text in ("[]", '{"east": 3}', '{"east": "3"}', "{"):
        with pytest.raises(CorruptionError, match=FORGOTTEN_PROPERTY):
            forgotten_in({FORGOTTEN_PROPERTY: text})


def test_a_topic_is_made_without_properties_that_are_the_broker_s_own() -> None:
    """Who makes it would have it never load, or take no message of another cluster for a repetition."""

    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        topic = "/admin/v2/persistent/public/default/topic"
        given = {FORGOTTEN_PROPERTY: "{", "geminga.skipped-ledgers": "[", "own": "kept"}
        assert (await ask(application, "PUT", topic, json.dumps(given).encode())).status == 204
        assert await told(world, path=f"{topic}/properties") == {"own": "kept"}
        assert set(world.topic.ledger.stored.properties) == {"own"}
        assert await comes(world, 0, "3:0")

    run_with_broker(scenario, deduplication=True)
