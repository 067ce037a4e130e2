"""Replicated subscriptions: their positions go to the other clusters, forward only, and markers count for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from geminga.app.handles.core.causes import Cause, Severity
from geminga.app.handles.doctor import examine
from geminga.bookie import LocalBookie
from geminga.bookkeeper.memory import MemoryBookie
from geminga.broker.geo.subscriptions import COUNTS, ReplicatedSubscriptions
from geminga.broker.subscription.seek import is_replicated, set_replicated
from geminga.broker.subscription.subscription import Subscription
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST, Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import peek_metadata
from geminga.wire.pulsar.subscription_markers import (
    SNAPSHOT,
    UPDATE,
    InCluster,
    Snapshot,
    Update,
    encode_local_snapshot,
    encode_update,
)
from support.worlds.broker_world import TOPIC, Client, Type, send_frame
from support.worlds.cluster_mesh import ClusterMesh, run_mesh
from support.worlds.handles_world import SimAdmin
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import rest_application

SHARED = pb.CommandSubscribe.Shared


def part_of(mesh: ClusterMesh, name: str) -> ReplicatedSubscriptions:
    part = mesh.topic(name).parts.find(ReplicatedSubscriptions)
    assert part is not None
    return part


def sub_of(mesh: ClusterMesh, name: str) -> Subscription:
    return mesh.topic(name).subscriptions["sub"]


async def loaded(mesh: ClusterMesh) -> dict[str, Client]:
    """A client of each cluster, with a producer."""
    clients = {}
    for name in mesh.worlds:
        clients[name] = await mesh.client(name)
        await clients[name].create_producer(producer_name=f"producer of {name}")
    await seconds(1)
    return clients


async def replicated(mesh: ClusterMesh) -> tuple[Client, Client]:
    """A producer's client in the east, and a consumer's there, whose subscription is in all clusters."""
    client = (await loaded(mesh))["east"]
    consumer = await mesh.client("east")
    await consumer.subscribe(subType=SHARED, replicate_subscription_state=True)
    return client, consumer


async def brought(mesh: ClusterMesh, name: str, *frames: bytes) -> None:
    """Stored in a cluster as a replicator's of yet another one that says what it likes."""
    client = await mesh.client(name)
    await client.create_producer(producer_name=f"pulsar.repl.north-->{name}")
    client.send_bytes(b"".join(frames))
    for _ in frames:
        await client.receipt()
    await client.close_producer()


async def publish(client: Client, *numbers: int) -> None:
    for number in numbers:
        await client.publish(number, b"%d" % number)


def acknowledge(client: Client, *ids: pb.MessageIdData, is_cumulative: bool = False) -> None:
    kind = pb.CommandAck.Cumulative if is_cumulative else pb.CommandAck.Individual
    client.send(pb.BaseCommand(type=Type.ACK, ack=pb.CommandAck(consumer_id=1, ack_type=kind, message_id=ids)))


async def receive(client: Client, count: int) -> list[pb.MessageIdData]:
    return [(await client.expect(Type.MESSAGE)).message.message_id for _ in range(count)]


async def entries(mesh: ClusterMesh, name: str) -> list[tuple[int, str]]:
    """(marker type, where from) of all that is stored."""
    ledger = mesh.topic(name).ledger
    found = await ledger.reader.read_range(ledger.ledgers.first_position, 10_000, 1 << 24)
    metadata = [peek_metadata(entry.data) for entry in found]
    return [(each.marker_type, str(each.replicated_from)) for each in metadata if each is not None]


def test_a_position_is_told_and_the_subscription_made_from_the_beginning() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        await publish(client, *range(10))
        ids = await receive(consumer, 10)
        acknowledge(consumer, *ids[:5])
        # A snapshot is behind all ten: nothing is told yet.
        await seconds(5)
        assert "sub" not in mesh.topic("west").subscriptions
        acknowledge(consumer, *ids[5:])
        await seconds(5)
        there = sub_of(mesh, "west")
        assert (is_replicated(there), there.cursor.backlog_count) == (True, 0)
        assert sub_of(mesh, "east").cursor.backlog_count == 0
        # One snapshot of each that has it, and an update: nothing more as long as nothing is published.
        for _ in range(2):
            stored = await entries(mesh, "east")
            assert sorted(kind for kind, where in stored if not where) == [0] * 10 + [10, 11, 12, 13]
            assert sorted(kind for kind, where in stored if where) == [10, 11]
            # A snapshot stays where it was made.
            assert [where for kind, where in await entries(mesh, "west") if kind == SNAPSHOT] == [""]
            await seconds(600)
        document = part_of(mesh, "east").stats()
        assert (document["reason"], document["pendingSnapshots"], document["timedOutSnapshots"]) == ("", 0, 0)
        assert document["lastCompletedSnapshotId"]

    run_mesh(scenario, "east", "west")


@pytest.mark.parametrize("kind", [SNAPSHOT, UPDATE])
def test_a_marker_that_is_not_stored_is_written_again_though_nothing_new_comes(kind: int) -> None:
    """A snapshot counts when its marker is stored, what was acknowledged is told when the update is."""

    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        refused = refuse(mesh.worlds["east"].bookie, kind, 2)
        await publish(client, *range(10))
        acknowledge(consumer, *await receive(consumer, 10))
        await seconds(20)
        assert refused() == 2
        assert sub_of(mesh, "west").cursor.backlog_count == 0
        assert part_of(mesh, "east").stats()["reason"] == ""

    run_mesh(scenario, "east", "west")


def refuse(bookie: MemoryBookie | LocalBookie, kind: int, times: int) -> Callable[[], int]:
    """The first adds of markers of this kind fail; how many did."""
    assert isinstance(bookie, MemoryBookie)
    add, mark = bookie.add_entries, pb.MessageMetadata(marker_type=kind).SerializePartialToString()
    count = 0

    def add_entries(ledger_id: int, entry_ids: Sequence[int], entries: Sequence[bytes], **more: Any) -> None:
        nonlocal count
        is_refused = count < times and any(mark in entry for entry in entries)
        count += is_refused
        bookie.add_error = StorageError("no room") if is_refused else None
        add(ledger_id, entry_ids, entries, **more)

    bookie.add_entries = add_entries  # type: ignore[method-assign]
    return lambda: count


def test_three_clusters_follow_and_a_position_never_goes_back() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        clients = await loaded(mesh)
        west = clients["west"]
        east = await mesh.client("east")
        await east.subscribe(subType=SHARED, replicate_subscription_state=True)
        for number in range(5):
            for client in clients.values():
                await publish(client, number)
        acknowledge(east, *await receive(east, 15))
        await seconds(10)
        assert {sub_of(mesh, name).cursor.backlog_count for name in mesh.worlds} == {0}
        kinds = [kind for kind, where in await entries(mesh, "east") if not where]
        assert (kinds.count(10), kinds.count(12)) == (2, 1)
        # Who is ahead stays ahead.
        east.lose()
        consumer = await mesh.client("west")
        await consumer.subscribe(subType=SHARED, replicate_subscription_state=True)
        await publish(west, *range(5, 10))
        acknowledge(consumer, *await receive(consumer, 5))
        await seconds(10)
        ahead = sub_of(mesh, "west").cursor.mark_delete_position
        again = await mesh.client("east")
        await again.subscribe(subType=SHARED)
        await seconds(10)
        assert [command for command, _ in again.received if command.type == Type.MESSAGE] == []
        assert sub_of(mesh, "west").cursor.mark_delete_position >= ahead
        assert {sub_of(mesh, name).cursor.backlog_count for name in mesh.worlds} == {0}

    run_mesh(scenario, "east", "west", "north")


def test_no_snapshot_while_a_cluster_is_away_and_the_reason_says_which() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        held, completed, completed_ms = COUNTS.held, COUNTS.completed, COUNTS.completed_ms
        admin = SimAdmin(rest_application(mesh.worlds["east"].broker))
        mesh.cut_off("west")
        await publish(client, *range(3))
        acknowledge(consumer, *await receive(consumer, 3))
        await seconds(5)
        part = part_of(mesh, "east")
        assert part.reason == "cluster west can not be reached"
        assert COUNTS.held == held + 1
        (found,) = [
            each
            for findings in (await examine(admin, TOPIC, now_ms=mesh.worlds["east"].runtime.clock.wall_ms())).values()
            for each in findings
            if each.cause is Cause.SNAPSHOT
        ]
        assert (found.subscription, found.severity) == ("sub", Severity.HOLDS)
        assert "since the topic was loaded: cluster west can not be reached." in found.sentence
        assert [kind for kind, _ in await entries(mesh, "east")] == [0, 0, 0]
        mesh.mend()
        await seconds(120)
        assert (part.reason, sub_of(mesh, "west").cursor.backlog_count) == ("", 0)
        assert COUNTS.held == held
        assert COUNTS.completed > completed
        # From the first request to the last answer, which one link there and one back take.
        assert 0 < (COUNTS.completed_ms - completed_ms) / (COUNTS.completed - completed) < 30_000
        again = await examine(admin, TOPIC, now_ms=0)
        assert [each for findings in again.values() for each in findings if each.cause is Cause.SNAPSHOT] == []

    run_mesh(scenario, "east", "west")


def test_a_broker_that_makes_no_snapshots_is_told_of() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        clients = await loaded(mesh)
        consumer = await mesh.client("east")
        await consumer.subscribe(subType=SHARED)
        # It was made so before the setting was taken back.
        await set_replicated(sub_of(mesh, "east"), True)
        await publish(clients["east"], 1)
        admin = SimAdmin(rest_application(mesh.worlds["east"].broker))
        (findings,) = (await examine(admin, TOPIC, now_ms=0)).values()
        (found,) = [each for each in findings if each.cause is Cause.SNAPSHOT]
        assert "the broker makes none (enableReplicatedSubscriptions=false)" in found.sentence

    run_mesh(scenario, "east", "west", replicated_subscriptions_enabled=False)


def test_a_snapshot_without_an_answer_is_given_up_and_asked_for_again() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        # West hears what is asked, and its answer does not come back.
        mesh.cut.add(("west", "east"))
        await publish(client, *range(3))
        acknowledge(consumer, *await receive(consumer, 3))
        await seconds(100)
        part = part_of(mesh, "east")
        assert part.reason == "no answer of cluster west within 30000 ms"
        assert part.timed_out == 3
        mesh.mend()
        await seconds(120)
        assert (part.reason, sub_of(mesh, "west").cursor.backlog_count) == ("", 0)

    run_mesh(scenario, "east", "west")


def test_the_state_of_a_subscription_is_kept_through_acknowledgments_seeks_and_restarts() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        clients = await loaded(mesh)
        client = clients["east"]
        consumer = await mesh.client("east")
        await consumer.subscribe(replicate_subscription_state=True)
        await publish(client, *range(3))
        acknowledge(consumer, *(await receive(consumer, 3))[-1:], is_cumulative=True)
        await seconds(5)
        await sub_of(mesh, "east").cursor.reset(EARLIEST)
        assert is_replicated(sub_of(mesh, "east"))
        consumer.lose()
        await seconds(5)
        for name in mesh.worlds:
            await mesh.worlds[name].broker.registry.unload(mesh.topic(name).name)
            again = await mesh.client(name)
            await again.create_producer(producer_name=f"again {name}")
            assert is_replicated(sub_of(mesh, name))
        # Moved back on one side: the other stays where it was.
        await seconds(5)
        assert sub_of(mesh, "west").cursor.backlog_count == 0
        assert sub_of(mesh, "east").cursor.backlog_count > 0
        await set_replicated(sub_of(mesh, "east"), False)
        assert not is_replicated(sub_of(mesh, "east"))
        consumer = await mesh.client("east")
        await consumer.subscribe(replicate_subscription_state=True)
        assert is_replicated(sub_of(mesh, "east"))

    run_mesh(scenario, "east", "west")


@pytest.mark.parametrize("is_on", [True, False])
def test_who_may_publish_moves_no_subscription_of_another_cluster(is_on: bool) -> None:
    """Markers are for brokers to write: an update that a client makes up would skip what nobody has read over there."""

    async def scenario(mesh: ClusterMesh) -> None:
        client = (await loaded(mesh))["east"]
        there = mesh.topic("west")
        await there.create_subscription("sub", EARLIEST, is_replicated=True)
        made_up = encode_update(Update("sub", (InCluster("west", Position(1 << 62, 0)),)), 1)
        own = pb.MessageMetadata(producer_name="p", sequence_id=4, publish_time=1, marker_type=UPDATE)
        # A field's number may take more bytes than it needs.
        spread = own.SerializeToString().replace(b"\xa0\x01", b"\xa0\x81\x00")
        frames = [
            send_frame(0),
            send_frame(1, entry=made_up),
            send_frame(2, entry=encode_local_snapshot(Snapshot("", Position(0, 0), ()), "east", 0)),
            send_frame(3, metadata={"marker_type": 10, "replicated_from": "west"}),
            send_frame(4, entry=len(spread).to_bytes(4, "big") + spread + made_up[-20:]),
            # The broker's own knows better whose a transaction's end is.
            send_frame(5, metadata={"marker_type": 99}),
        ]
        client.send_bytes(b"".join(frames))
        await seconds(1)
        answers = [command for command, _ in client.received]
        assert [answer.type for answer in answers] == [Type.SEND_RECEIPT, *[Type.SEND_ERROR] * 4, Type.SEND_RECEIPT]
        assert {answer.send_error.error for answer in answers[1:5]} == {pb.NotAllowedError}
        assert "marker" in answers[1].send_error.message
        await seconds(5)
        assert there.subscriptions["sub"].cursor.mark_delete_position.entry_id == -1
        came = [kind for kind, where in await entries(mesh, "west") if where]
        assert UPDATE not in came
        assert came.count(0) == 1

    run_mesh(scenario, "east", "west", replicated_subscriptions_enabled=is_on)


def test_markers_that_are_damaged_or_lead_nowhere_change_nothing() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        await loaded(mesh)
        await mesh.topic("east").create_subscription("sub", EARLIEST, is_replicated=True)
        for number, kind in enumerate((10, 11, 12, 13, 99)):
            metadata = {"marker_type": kind, "replicated_from": "west"}
            await brought(mesh, "east", send_frame(number, b"\xff\xff", metadata=metadata))
        await seconds(5)
        assert mesh.topic("east").subscriptions.keys() == {"sub"}
        assert TOPIC in mesh.worlds["east"].broker.topics
        assert part_of(mesh, "east").stats()["pendingSnapshots"] == 0

    run_mesh(scenario, "east", "west")


@pytest.mark.parametrize("is_loaded_again", [False, True])
def test_a_snapshot_that_is_not_of_what_is_before_it_keeps_no_other_from_counting(is_loaded_again: bool) -> None:
    """Whoever may publish can write one: all that came later would be taken for older ones, and none be made."""

    async def scenario(mesh: ClusterMesh) -> None:
        client, consumer = await replicated(mesh)
        made_up = Snapshot("made up", Position(1 << 62, 0), (InCluster("west", Position(0, -1)),))
        await brought(mesh, "east", send_frame(0, entry=encode_local_snapshot(made_up, "east", 0)))
        await seconds(1)
        if is_loaded_again:
            await mesh.worlds["east"].broker.registry.unload(mesh.topic("east").name)
            client, consumer = await mesh.client("east"), await mesh.client("east")
            await client.create_producer(producer_name="again")
            await consumer.subscribe(subType=SHARED, replicate_subscription_state=True)
        await publish(client, *range(1, 6))
        acknowledge(consumer, *await receive(consumer, 5))
        await seconds(10)
        assert sub_of(mesh, "west").cursor.backlog_count == 0

    run_mesh(scenario, "east", "west")


def test_where_it_is_turned_off_nothing_is_replicated() -> None:
    async def scenario(mesh: ClusterMesh) -> None:
        clients = await loaded(mesh)
        client = clients["east"]
        consumer = await mesh.client("east")
        await consumer.subscribe(replicate_subscription_state=True)
        assert not is_replicated(sub_of(mesh, "east"))
        assert mesh.topic("east").parts.find(ReplicatedSubscriptions) is None
        await publish(client, 0)
        await seconds(5)
        assert [kind for kind, _ in await entries(mesh, "west")] == [0]

    run_mesh(scenario, "east", "west", replicated_subscriptions_enabled=False)
