"""What the replicated subscriptions of a topic remember, follow, and pass over."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.geo import followers
from geminga.broker.subscription.seek import is_replicated
from geminga.managed_ledger.rules.cursor import REPLICATED, REPLICATED_PROPERTY
from geminga.managed_ledger.shared.metadata_io import cursor_path
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.managed_ledger import decode_cursor_info
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.subscription_markers import (
    SNAPSHOT_REQUEST,
    SNAPSHOT_RESPONSE,
    UPDATE,
    InCluster,
    Update,
    encode_update,
)
from support.worlds.broker_world import Type, send_frame
from support.worlds.cluster_mesh import ClusterMesh, run_mesh
from support.worlds.policy_levels import seconds
from unit.broker.geo.test_subscriptions import (
    SHARED,
    acknowledge,
    brought,
    entries,
    loaded,
    part_of,
    publish,
    receive,
    replicated,
    sub_of,
)


def test_what_is_deleted_stays_deleted_though_updates_are_on_their_way() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        await publish(client, *range(3))
        first = await receive(consumer, 3)
        acknowledge(consumer, *first)
        await seconds(5)
        await publish(client, 3)
        last = await receive(consumer, 1)
        await seconds(5)
        mesh.cut.add(("east", "west"))
        acknowledge(consumer, *last)
        await seconds(5)
        assert [kind for kind, where in await entries(mesh, "east") if not where].count(UPDATE) == 2
        assert "sub" in mesh.topic("west").subscriptions
        consumer.lose()
        for name in mesh.worlds:
            await mesh.topic(name).delete_subscription("sub", force=True)
        mesh.mend()
        await seconds(120)
        assert [[*mesh.topic(name).subscriptions] for name in mesh.worlds] == [[], []]

    run_mesh(scenario, "east", "west")


def test_markers_are_no_backlog_of_who_has_no_consumer_nor_the_last_message() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        for name in mesh.worlds:
            await mesh.topic(name).create_subscription("idle", LATEST)
            await mesh.topic(name).create_subscription("behind", EARLIEST)
        await publish(client, 0)
        acknowledge(consumer, *await receive(consumer, 1))
        for name in mesh.worlds:
            topic = mesh.topic(name)
            await seconds(1)
            await topic.subscriptions["idle"].cursor.clear_backlog()
        await seconds(10)
        for name in mesh.worlds:
            topic = mesh.topic(name)
            assert topic.subscriptions["idle"].cursor.backlog_count == 0, name
            # Behind a message that is not acknowledged nothing is, and there are no holes.
            assert topic.subscriptions["behind"].cursor.mark_delete_position.entry_id == -1
        request = pb.CommandGetLastMessageId(consumer_id=1, request_id=99)
        consumer.send(pb.BaseCommand(type=Type.GET_LAST_MESSAGE_ID, getLastMessageId=request))
        answer = (await consumer.expect(Type.GET_LAST_MESSAGE_ID_RESPONSE)).getLastMessageIdResponse
        assert answer.last_message_id.entryId == 0

    run_mesh(scenario, "east", "west")


def test_who_left_before_a_snapshot_is_told_of_though_nothing_new_comes() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        # The second time a snapshot of what was acknowledged before is told by then.
        for start in (0, 10):
            await publish(client, *range(start, start + 5))
            acknowledge(consumer, *await receive(consumer, 5))
            await seconds(0.7)
        await publish(client, *range(20, 25))
        acknowledge(consumer, *await receive(consumer, 5))
        consumer.lose()
        await seconds(20)
        assert {sub_of(mesh, name).cursor.backlog_count for name in mesh.worlds} == {0}
        # One that follows tells nothing: the positions would go to and fro.
        assert (await entries(mesh, "west")).count((UPDATE, "")) == 0

    run_mesh(scenario, "east", "west")


def test_what_comes_while_an_answer_is_on_its_way_has_a_snapshot_of_its_own() -> None:
    """The answer says nothing of it, though it is before the answer here."""

    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        mesh.cut.add(("west", "east"))
        await publish(client, 0)
        await seconds(31)
        assert [kind for kind, _ in await entries(mesh, "west")] == [0, SNAPSHOT_REQUEST, SNAPSHOT_RESPONSE]
        # It is not seen before the answer is there.
        await publish(client, 1)
        acknowledge(consumer, *await receive(consumer, 2))
        mesh.mend()
        await seconds(300)
        assert {sub_of(mesh, name).cursor.backlog_count for name in mesh.worlds} == {0}

    run_mesh(
        scenario, "east", "west", replicated_subscriptions_snapshot_ms=30_000, replicated_subscriptions_timeout_s=300
    )


def test_who_follows_does_not_say_it_back_though_it_had_consumers_before() -> None:
    """What it says would undo a seek of the one whom it follows."""

    async def scenario(mesh: ClusterMesh) -> None:
        client = (await loaded(mesh))["east"]
        before = await mesh.client("west")
        await before.subscribe(subType=SHARED, replicate_subscription_state=True)
        await publish(client, *range(5))
        acknowledge(before, *await receive(before, 5))
        await seconds(5)
        before.lose()
        await seconds(5)
        told = (await entries(mesh, "west")).count((UPDATE, ""))
        assert told >= 1
        consumer = await mesh.client("east")
        await consumer.subscribe(subType=SHARED)
        await publish(client, *range(5, 10))
        acknowledge(consumer, *await receive(consumer, 5))
        await seconds(20)
        assert {sub_of(mesh, name).cursor.backlog_count for name in mesh.worlds} == {0}
        assert (await entries(mesh, "west")).count((UPDATE, "")) == told

    run_mesh(scenario, "east", "west")


def test_a_subscription_before_what_is_lost_keeps_no_other_from_being_told_of() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client = (await loaded(mesh))["east"]
        await mesh.topic("east").create_subscription("idle", EARLIEST)
        await publish(client, *range(5))
        await seconds(2)
        # A ledger of its own, which nobody has any more; what was published is over there.
        world = mesh.worlds["east"]
        ledger_id = mesh.topic("east").ledger.extent.last_confirmed_position.ledger_id
        await world.broker.registry.unload(mesh.topic("east").name)
        assert isinstance(world.bookie, MemoryBookie)
        for entry_id in world.bookie.entry_ids(ledger_id):
            world.bookie.forget_entry(ledger_id, entry_id)
        client = await mesh.client("east")
        await client.create_producer(producer_name="again")
        consumer = await mesh.client("east")
        await mesh.topic("east").create_subscription("sub", LATEST)
        await consumer.subscribe(subType=SHARED, replicate_subscription_state=True)
        await publish(client, *range(5, 10))
        acknowledge(consumer, *await receive(consumer, 5))
        await seconds(20)
        assert part_of(mesh, "east").reason == ""
        assert sub_of(mesh, "west").cursor.backlog_count == 0

    run_mesh(scenario, "east", "west")


def test_a_subscription_that_storage_did_not_let_be_made_is_made_later_though_nothing_new_comes() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        await publish(client, *range(10))
        ids = await receive(consumer, 10)
        await seconds(5)
        # Nothing can be written over there when it is told.
        west = mesh.worlds["west"].metadata.faults.next_writes
        west.extend([WriteFault.UNKNOWN_BEFORE] * 100)
        acknowledge(consumer, *ids)
        await seconds(5)
        assert len(west) < 100
        west.clear()
        assert "sub" not in mesh.topic("west").subscriptions
        await seconds(20)
        assert sub_of(mesh, "west").cursor.backlog_count == 0

    run_mesh(scenario, "east", "west")


def test_one_that_is_made_is_replicated_from_its_first_moment() -> None:
    """Its broker dies when the cursor's node is there: who goes on with it would be told of nowhere else."""

    async def scenario(mesh: ClusterMesh) -> None:
        await loaded(mesh)
        topic, metadata = mesh.topic("west"), mesh.worlds["west"].metadata
        metadata.faults.next_writes.extend([WriteFault.NONE] + [WriteFault.UNKNOWN_BEFORE] * 100)
        with contextlib.suppress(StorageError):
            await topic.create_subscription("sub", EARLIEST, is_replicated=True)
        stored = decode_cursor_info((await metadata.get(cursor_path(topic.ledger.name, "sub"))).value)
        assert stored.properties == {REPLICATED_PROPERTY: REPLICATED}
        metadata.faults.next_writes.clear()

    run_mesh(scenario, "east", "west")


def test_updates_of_many_subscriptions_make_one_at_a_time_and_not_any_number_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may publish over there can write any number of them, each for another name."""
    monkeypatch.setattr(followers, "WAITING_MAX", 20)

    async def scenario(mesh: ClusterMesh) -> None:
        await loaded(mesh)
        position = Position(0, 0)
        updates = [encode_update(Update(f"{number}", (InCluster("west", position),)), 1) for number in range(50)]
        mesh.worlds["west"].metadata.faults.delay_ms_max = 100
        for _ in range(2):
            await brought(mesh, "east", *(send_frame(0, entry=update) for update in updates))
            making = 0
            for _ in range(100):
                await seconds(0.1)
                tasks = [task.get_name() for task in asyncio.all_tasks()]
                making = max(making, sum(name.startswith("make ") for name in tasks))
            assert making == 1
            await seconds(60)
            made = mesh.topic("west").subscriptions
            assert len(made) < len(updates)
        assert len(made) >= 40
        assert all(map(is_replicated, made.values()))
        # Once until there is room again, not for each that had none.
        assert 0 < sum("20 replicated subscriptions wait" in record.message for record in caplog.records) < 10

    run_mesh(scenario, "east", "west")

    run_mesh(scenario, "east", "west")


def test_who_acknowledges_slowly_is_followed_at_a_distance_of_snapshots() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        clients = await loaded(mesh)
        client = clients["east"]
        consumer = await mesh.client("east")
        await consumer.subscribe(subType=SHARED, replicate_subscription_state=True, permits=100_000)
        unacked: list[pb.MessageIdData] = []
        per_second = 5
        for second in range(100):
            await publish(client, *range(second * per_second, (second + 1) * per_second))
            unacked += await receive(consumer, per_second)
            await seconds(1)
        assert "sub" not in mesh.topic("west").subscriptions
        # 100 snapshots, 30 of which are remembered: at most 4 * 100 / 29 apart.
        distance = 14 * per_second
        for done in range(100, 501, 100):
            acknowledge(consumer, *unacked[done - 100 : done])
            await seconds(3)
            cursor = sub_of(mesh, "west").cursor
            ledger = mesh.topic("west").ledger
            found = await ledger.reader.read_range(ledger.ledgers.first_position, 10_000, 1 << 24)
            passed = sum(
                1
                for entry in found
                if entry.position <= cursor.mark_delete_position
                and (metadata := peek_metadata(entry.data)) is not None
                and not metadata.marker_type
            )
            assert done - distance <= passed <= done
        assert passed == 500

    run_mesh(scenario, "east", "west")
