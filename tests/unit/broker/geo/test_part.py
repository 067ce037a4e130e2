"""Which clusters a topic is copied to, and what becomes of the cursors: by the rules of all levels alone."""

from __future__ import annotations

import pytest

from geminga.broker.geo.part import CURSOR_PREFIX, GeoReplication
from geminga.metadata.cas import CAS_ATTEMPTS_MAX
from geminga.metadata.core.faults import WriteFault
from geminga.model.errors import StorageError
from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName
from geminga.runtime import spawn, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.metadata import split_entry
from support.worlds.broker_world import BrokerWorld, Type, run_with_broker, send_frame
from support.worlds.cluster_mesh import ClusterMesh, run_mesh
from support.worlds.other_cluster import OtherCluster, join, replicate
from support.worlds.policy_levels import seconds, set_topic

WEST = CURSOR_PREFIX + "west"


def cursors(world: BrokerWorld) -> set[str]:
    return {name for name in world.topic.ledger.cursors if name.startswith(CURSOR_PREFIX)}


async def published(world: BrokerWorld, count: int = 3) -> None:
    client = await world.publisher(producer_name="producer")
    for number in range(count):
        await client.publish(number, b"%d" % number)
    client.lose()


@pytest.mark.parametrize("is_earliest", [False, True])
def test_it_begins_where_the_topic_is_or_at_its_beginning(is_earliest: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        other.starts_at_earliest = is_earliest
        await published(world, 2)
        await replicate(world, "standalone", "west")
        # What is published from the answer on is copied, whatever the other cluster does meanwhile.
        assert cursors(world) == {WEST}
        client = await world.publisher(producer_name="other")
        await client.publish(0, b"later")
        await seconds(1)
        assert other.payloads == [b"0", b"1", b"later"] if is_earliest else [b"later"]

    run_with_broker(scenario, delete_inactive_topics=False)


def test_the_topic_s_own_clusters_come_before_those_of_its_namespace() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        await published(world)
        await replicate(world, "standalone", "west", "north")
        assert cursors(world) == {WEST, CURSOR_PREFIX + "north"}
        await set_topic(world, "replicationClusters", ["standalone", "west"])
        await world.broker.policies_changed("public/default")
        await seconds(1)
        assert (cursors(world), other.linked) == ({WEST}, {"west"})
        await set_topic(world, "replicationClusters", ["standalone"])
        await world.broker.policies_changed("public/default")
        assert cursors(world) == set()
        assert world.topic.parts.find(GeoReplication) is None
        await set_topic(world, "replicationClusters", None)
        await world.broker.policies_changed("public/default")
        assert cursors(world) == {WEST, CURSOR_PREFIX + "north"}

    run_with_broker(scenario, delete_inactive_topics=False)


def test_what_is_not_copied_yet_outlives_restarts_and_is_kept_from_trimming_and_deletion() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        other.away = StorageError("away")
        await published(world, 0)
        await set_topic(world, "replicationClusters", ["standalone", "west"])
        await world.broker.policies_changed("public/default")
        await published(world)
        position = world.topic.ledger.cursors[WEST].mark_delete_position
        for _ in range(2):
            await world.restart()
            join(world, other)
            await seconds(600)
            await published(world, 0)
            assert world.topic.ledger.cursors[WEST].mark_delete_position == position
        await world.topic.ledger.trimmer.trim()
        other.away = None
        await seconds(120)
        assert other.payloads == [b"0", b"1", b"2"]

    run_with_broker(scenario, delete_inactive_topics_frequency_s=60)


@pytest.mark.parametrize("garbage", [b"x", b"\0\0\0\4abcd", b"\0\0\xff\xffab", b"\x0e\x02\xff\xff\xff\xff"])
def test_what_can_not_be_parsed_is_refused_and_keeps_nothing_behind_it_from_being_copied(garbage: bytes) -> None:
    """The copying stops before what is stored so, until an operator passes over it: a client could do that."""

    async def scenario(mesh: ClusterMesh) -> None:
        client = await mesh.client("east")
        for number, name in enumerate(["producer", "pulsar.repl.north-->east"]):
            await client.create_producer(producer_id=number, producer_name=name)
            client.send_bytes(send_frame(0, producer_id=number) + send_frame(1, producer_id=number, entry=garbage))
            assert (await client.receipt()).sequence_id == 0
            error = (await client.expect(Type.SEND_ERROR)).send_error
            assert (error.sequence_id, error.error) == (1, pb.NotAllowedError)
            assert "parsed" in error.message
        client.send_message(2, producer_id=0)
        assert (await client.receipt()).sequence_id == 2
        await wait_ms(5000)
        assert mesh.topic("west").ledger.ledgers.entry_count == 3

    run_mesh(scenario, "east", "west")


def test_metadata_without_what_they_need_are_copied_as_they_are() -> None:
    """They can be parsed: nothing that a replicator does with them may end it."""

    async def scenario(mesh: ClusterMesh) -> None:
        client = await mesh.client("east")
        await client.create_producer(producer_name="producer")
        client.send_bytes(send_frame(0, entry=b"\0\0\0\0payload") + send_frame(1))
        assert [(await client.receipt()).sequence_id for _ in range(2)] == [0, 1]
        await wait_ms(5000)
        ledger = mesh.topic("west").ledger
        found = [split_entry(entry.data) for entry in await ledger.reader.read_range(Position(0, 0), 10, 1 << 20)]
        assert [metadata.replicated_from for metadata, _ in found if metadata is not None] == ["east", "east"]

    run_mesh(scenario, "east", "west")


def test_numbers_that_the_other_cluster_would_refuse_are_refused_here() -> None:
    """A copy is encoded anew, and longer: there it is looked at more closely, and its copying would end."""

    async def scenario(mesh: ClusterMesh) -> None:
        client = await mesh.client("east")
        await client.create_producer(producer_name="producer")
        start = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()
        # None has a byte 0xFF, which is what is looked for otherwise: 2^31 as an int32, 2^63, two million.
        strange = [b"\x58\x80\x80\x80\x80\x08", b"\xc0\x01" + b"\x80" * 9 + b"\x01", b"\x58\x80\x89\x7a"]
        entries = [len(start + more).to_bytes(4, "big") + start + more for more in (b"", *strange, b"")]
        client.send_bytes(b"".join(send_frame(number, entry=entry) for number, entry in enumerate(entries)))
        await wait_ms(5000)
        told = [command for command, _ in client.received]
        assert [command.type for command in told] == [Type.SEND_RECEIPT, *[Type.SEND_ERROR] * 3, Type.SEND_RECEIPT]
        fields = [command.send_error.message.split(" ")[0] for command in told[1:4]]
        assert fields == ["num_messages_in_batch", "highest_sequence_id", "num_messages_in_batch"]
        assert mesh.topic("west").ledger.ledgers.entry_count == 2

    run_mesh(scenario, "east", "west")


def test_what_no_link_could_carry_is_refused() -> None:
    """A frame takes more than the largest message, and a copy is longer: the copying would end before it."""
    limit = 20_000

    async def scenario(mesh: ClusterMesh) -> None:
        client = await mesh.client("east")
        await client.create_producer(producer_name="producer")
        sizes = [(limit, 0), (limit + 1, 0), (limit, 9000), (limit, 9700), (100, limit + 9000), (100, limit + 9600)]
        for number, (payload, more) in enumerate(sizes):
            metadata = {"properties": [pb.KeyValue(key="k", value="v" * more)]}
            client.send_bytes(send_frame(number, b"x" * payload, metadata=metadata))
        await wait_ms(5000)
        told = [command for command, _ in client.received]
        assert [command.type == Type.SEND_RECEIPT for command in told] == [True, False, True, False, True, False]
        assert {command.send_error.message for command in told[1::2]} == {"Exceed maximum message size"}
        assert mesh.topic("west").ledger.ledgers.entry_count == 3

    run_mesh(scenario, "east", "west", message_bytes_max=limit)


def test_a_cluster_taken_out_is_copied_to_no_more_and_its_cursor_goes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        await published(world)
        await replicate(world, "standalone", "west")
        await seconds(1)
        assert other.links == 1
        await replicate(world, "standalone")
        assert (other.links, cursors(world)) == (0, set())
        await published(world)
        await seconds(1)
        assert other.payloads == []

    run_with_broker(scenario, delete_inactive_topics=False)


def test_a_cursor_that_is_left_of_a_cluster_goes_with_the_next_load() -> None:
    """Its broker was killed between the policy and the cursor's end."""

    async def scenario(world: BrokerWorld) -> None:
        join(world)
        await published(world)
        await world.topic.ledger.open_cursor(WEST, initial=EARLIEST)
        await world.topic.ledger.open_cursor(CURSOR_PREFIX + "north", initial=EARLIEST)
        await world.resources.namespaces.set_policy("public/default", "replication_clusters", ["standalone", "north"])
        await world.restart()
        join(world)
        await published(world, 0)
        assert cursors(world) == {CURSOR_PREFIX + "north"}

    run_with_broker(scenario, delete_inactive_topics=False)


def test_a_broker_that_knows_no_other_cluster_leaves_their_cursors_alone() -> None:
    async def scenario(world: BrokerWorld) -> None:
        join(world)
        await published(world)
        await replicate(world, "standalone", "west")
        await world.restart()
        assert world.broker.topic_services.remote_clusters is None
        await published(world, 0)
        assert cursors(world) == {WEST}

    run_with_broker(scenario, delete_inactive_topics=False)


def test_a_cursor_that_can_not_be_made_fails_the_change_of_the_policy_which_a_later_one_finishes() -> None:
    async def scenario(world: BrokerWorld) -> None:
        join(world)
        await published(world)
        topic = world.topic
        await world.resources.namespaces.set_policy("public/default", "replication_clusters", ["standalone", "west"])
        await seconds(0)
        world.metadata.faults.next_writes.extend([WriteFault.UNKNOWN_BEFORE] * CAS_ATTEMPTS_MAX)
        await seconds(5)
        while world.metadata.faults.next_writes:
            await world.broker.policies_changed("public/default")
        assert cursors(world) == set()
        await world.broker.policies_changed("public/default")
        assert world.topic is topic
        assert cursors(world) == {WEST}

    run_with_broker(scenario, delete_inactive_topics=False)


def test_of_the_broker_s_own_topics_that_of_policies_alone_is_copied_and_those_of_one_cluster_stay() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other: OtherCluster = join(world)
        await published(world)
        await set_topic(world, "maxConsumers", 7)
        await replicate(world, "standalone", "west")
        await seconds(1)
        events = world.broker.topics["persistent://public/default/__change_events"]
        assert [name for name in events.ledger.cursors if name.startswith(CURSOR_PREFIX)] == [WEST]  # type: ignore[attr-defined]
        assert (other.tries, other.stored) == (1, [])
        other_own = await world.broker.registry.get(
            TopicName.parse("persistent://public/default/__transaction_buffer_snapshot"), create=True
        )
        await seconds(1)
        assert not [name for name in other_own.ledger.cursors if name.startswith(CURSOR_PREFIX)]  # type: ignore[attr-defined]

    run_with_broker(scenario, delete_inactive_topics=False)


def test_a_cluster_that_had_another_name_copies_nothing_to_its_old_one() -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = join(world)
        allowed = ["standalone", "its old name"]
        await world.resources.namespaces.set_policy("public/default", "allowed_clusters", allowed)
        await replicate(world, "its old name")
        await published(world)
        await seconds(1)
        assert (cursors(world), other.tries) == (set(), 0)
        assert world.topic.parts.find(GeoReplication) is None
        # Nor to others, whose cursors stay: it is not said that this one has the topic.
        await replicate(world, "standalone", "west")
        await replicate(world, "its old name", "west")
        await published(world)
        await seconds(1)
        assert (cursors(world), other.payloads, other.linked) == ({WEST}, [], set())

    run_with_broker(scenario, delete_inactive_topics=False)


def test_clusters_that_are_named_while_others_are_followed_do_not_end_the_topic() -> None:
    async def scenario(world: BrokerWorld) -> None:
        join(world)
        await published(world)
        topic = world.topic
        for number in range(12):
            world.metadata.faults.delay_ms_max = 0
            await world.resources.namespaces.set_policy("public/default", "replication_clusters", ["standalone"])
            await set_topic(world, "replicationClusters", None)
            await seconds(1)
            assert cursors(world) == set()
            world.metadata.faults.delay_ms_max = 20
            await world.resources.namespaces.set_policy(
                "public/default", "replication_clusters", ["standalone", "west"]
            )
            following = spawn(world.broker.policies_changed("public/default"), name="follow")
            await wait_ms(5 * number)
            # The topic's own are followed by the topic alone, without waiting for its namespace.
            await set_topic(world, "replicationClusters", ["standalone", "north"])
            await following
            await seconds(1)
            assert world.topic is topic, number
            assert cursors(world) == {CURSOR_PREFIX + "north"}

    run_with_broker(scenario, delete_inactive_topics=False)


async def copied_to_two(world: BrokerWorld) -> OtherCluster:
    """The topic to two clusters, whose links take half a second to close."""
    other = join(world)
    other.close_ms = 500
    await published(world)
    await replicate(world, "standalone", "west", "north")
    await seconds(1)
    return other


@pytest.mark.parametrize("left", [["standalone"], ["standalone", "north"]])
def test_copying_to_a_cluster_that_is_taken_out_ends_before_the_answer(left: list[str]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        other = await copied_to_two(world)
        assert other.linked == {"west", "north"}
        await replicate(world, *left)
        assert other.linked == set(left) - {"standalone"}

    run_with_broker(scenario, delete_inactive_topics=False)


@pytest.mark.parametrize("left", [["standalone"], ["standalone", "north"]])
def test_a_topic_that_closes_while_copying_ends_leaves_the_cursors_to_its_next_owner(left: list[str]) -> None:
    async def scenario(world: BrokerWorld) -> None:
        await copied_to_two(world)
        topic = world.topic
        following = spawn(replicate(world, *left), name="follow")
        await wait_ms(100)
        unloading = spawn(world.broker.registry.unload(topic.name), name="unload")
        await following
        await unloading
        assert WEST in topic.ledger.cursors
        assert await world.broker.registry.load(topic.name) is not topic
        assert cursors(world) == {CURSOR_PREFIX + cluster for cluster in left[1:]}

    run_with_broker(scenario, delete_inactive_topics=False)
