"""A topic that shows another one, both at one broker: what its clients and its administrators see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from geminga.app.handles.core.causes import Cause, DoctorFacts, findings_of
from geminga.broker.composition.service import Broker
from geminga.broker.core.source_word import UNLISTED, Abort, SourceWord
from geminga.broker.registry import new_shadows
from geminga.broker.shadow.kinds import made as made_topic
from geminga.broker.shadow.source import ShownTopic
from geminga.broker.shadow.topic import ShadowTopic
from geminga.broker.topic.non_persistent import NonPersistentTopic
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.model.errors import NotAllowedError, PreconditionFailedError, UnavailableError
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.model.topic_name import SHADOW_SOURCE, TopicName
from geminga.model.txn_id import TxnId
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import transacting
from support.worlds.broker_world import TOPIC, BrokerWorld, Type, run_with_broker
from support.worlds.policy_levels import NAME, set_namespace, set_topic, topic_of
from unit.broker.geo.test_migration import GREEN, Green, ready
from unit.broker.handlers.test_schema import get_schema

SHADOW = "persistent://public/default/shadow"
SHADOW_NAME = TopicName.parse(SHADOW)


async def made(broker: Broker, source: str = TOPIC) -> ShadowTopic:
    """A shadow of the topic, which does not name it yet."""
    topic = await new_shadows.create(
        broker.registry, broker.resources, broker.ledgers, SHADOW_NAME, {SHADOW_SOURCE: source}
    )
    assert isinstance(topic, ShadowTopic)
    return topic


async def paired(world: BrokerWorld) -> ShadowTopic:
    """The same, named by its source."""
    await topic_of(world)
    shadow = await made(world.broker)
    await set_topic(world, "shadowTopics", [SHADOW])
    assert shadow.following is not None
    await shadow.following.until_known()
    return shadow


def run(scenario, **settings):
    settings.setdefault("ledger_config", ManagedLedgerConfig(max_entries_per_ledger=3, min_rollover_minutes=0))
    return run_with_broker(scenario, **settings)


async def received(client, count: int) -> list[tuple[tuple[int, int], bytes]]:
    found = []
    for _ in range(count):
        command, payload = await client.expect_with_payload(Type.MESSAGE)
        message_id = command.message.message_id
        found.append(((message_id.ledgerId, message_id.entryId), payload[-2:]))
    return found


def test_messages_of_the_source_come_with_their_ids() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await set_namespace(world, "retention_policies", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
        client = await world.publisher()
        sent = [(await client.publish(number, f"m{number}".encode()), f"m{number}".encode()) for number in range(4)]
        await paired(world)
        await client.subscribe(SHADOW)
        assert await received(client, 4) == sent
        later = await client.publish(4, b"m4"), b"m4"
        assert await received(client, 1) == [later]

    run(scenario)


def test_whoever_moves_topics_is_told_that_a_shadow_stays(caplog: pytest.LogCaptureFixture) -> None:
    """Its consumers waited for what is published elsewhere, and nothing said so."""

    async def scenario(world: BrokerWorld) -> None:
        ready(world, Green())
        shadow = await paired(world)
        assert shadow.following is not None
        assert shadow.following.stats()["stays"] == ""
        for is_moved in (True, True, False):
            await world.resources.clusters.change_policies(
                "standalone", lambda _, now=is_moved: {"migrated": now, "migratedClusterUrl": GREEN}
            )
            await wait_ms(100)
            stays = str(shadow.following.stats()["stays"])
            assert (GREEN["brokerServiceUrl"] in stays and "a shadow does not" in stays) == is_moved
        assert sum("a shadow does not" in record.getMessage() for record in caplog.records) == 1
        told = DoctorFacts(SHADOW, 0, {}, internal={"geminga": {"shadow": {"source": TOPIC, "stays": "why"}}})
        (found,) = findings_of(told)
        assert (found.cause, "why" in found.sentence) == (Cause.MOVING, True)

    run(scenario)


def test_nothing_is_shown_before_the_source_says_so() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        shadow = await made(world.broker)
        with pytest.raises(UnavailableError, match="does not name it"):
            await shadow.create_subscription("s", EARLIEST)
        assert shadow.max_read_position == shadow.ledger.extent.readable_position
        assert shadow.max_read_position.entry_id == -1
        await set_topic(world, "shadowTopics", [SHADOW])
        subscription = await shadow.create_subscription("s", EARLIEST)
        assert subscription.cursor.backlog_count == 1

    run(scenario)


SCHEMA = pb.Schema(name="s", type=pb.Schema.Json, schema_data=b'{"type":"record","name":"secret","fields":[]}')


def test_no_schema_is_shown_before_the_source_says_so() -> None:
    """Whoever may make topics in a namespace of his own would read the schemas of everybody's."""

    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher(schema=SCHEMA)
        await made(world.broker)
        assert (await get_schema(client, SHADOW)).error_code == pb.ServiceNotReady
        # Nor is told by what a consumer's own is compared with.
        other = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")
        client.request_subscribe(SHADOW, schema=other)
        await client.check_error(pb.ServiceNotReady, "does not name it")
        await set_topic(world, "shadowTopics", [SHADOW])
        assert (await get_schema(client, SHADOW)).schema.schema_data == SCHEMA.schema_data
        client.request_subscribe(SHADOW, schema=other)
        assert (await client.error()).error == pb.IncompatibleSchema

    run(scenario)


def test_a_subscription_at_the_latest_begins_behind_what_the_source_has() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        shadow = await paired(world)
        subscription = await shadow.create_subscription("s", LATEST)
        assert subscription.cursor.backlog_count == 0
        await client.publish(1)
        await wait_ms(1)
        assert subscription.cursor.backlog_count == 1

    run(scenario)


def test_a_shadow_that_is_named_no_longer_sends_its_consumers_away() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0)
        shadow = await paired(world)
        await client.subscribe(SHADOW)
        await received(client, 1)
        await set_topic(world, "shadowTopics", None)
        await client.expect(Type.CLOSE_CONSUMER)
        assert shadow.is_closing

    run(scenario)


def test_who_publishes_to_a_shadow_is_refused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        await paired(world)
        client = await world.publisher(SHADOW)
        client.send_message(0)
        refused = (await client.expect(Type.SEND_ERROR)).send_error
        assert (refused.error, refused.message) == (pb.NotAllowedError, "Cannot send messages to a shadow topic")

    run(scenario)


def test_what_only_the_source_does_is_refused_by_name() -> None:
    async def scenario(world: BrokerWorld) -> None:
        shadow = await paired(world)
        for refused in (shadow.terminate, shadow.truncate, shadow.use_transactions):
            with pytest.raises(NotAllowedError, match=TOPIC):
                await refused()
        request = pb.CommandSubscribe(topic=SHADOW, subscription="s", read_compacted=True)
        with pytest.raises(NotAllowedError, match="compacted"):
            await shadow.subscribe(None, request)  # type: ignore[arg-type]

    run(scenario)


def test_a_shadow_goes_without_its_source_and_the_other_way() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        await client.publish(0, b"m0")
        shadow = await paired(world)
        await shadow.create_subscription("s", EARLIEST)
        await world.broker.registry.delete(SHADOW_NAME, force=True)
        await client.subscribe()
        assert len(await received(client, 1)) == 1
        shadow = await made(world.broker)
        assert shadow.following is not None
        await shadow.following.until_known()
        await shadow.create_subscription("s", EARLIEST)
        await world.broker.registry.delete(NAME, force=True)
        await shadow.ledger.look()
        assert shadow.ledger.lost == {"s": 1}
        assert not shadow.ledger.has_source

    run(scenario)


def test_a_source_with_shadows_is_not_removed_as_unused() -> None:
    async def scenario(world: BrokerWorld) -> None:
        shadow = await paired(world)
        source = await topic_of(world)
        assert source.deletion_facts().clients == 1
        assert shadow.deletion_facts().clients == 1

    run(scenario)


def test_statistics_say_what_is_shown_and_to_whom() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await world.publisher()
        ledger_id, _ = await client.publish(0)
        shadow = await paired(world)
        await wait_ms(100)
        told = {"source": TOPIC, "state": "following", "reason": "", "readable": f"{ledger_id}:0"}
        assert shadow.parts.stats()["shadow"] == {**told, "lost": {}, "stays": ""}
        source = await topic_of(world)
        part = source.parts.find(ShownTopic)
        assert part is not None
        assert part.stats() == {SHADOW: {"told": f"{ledger_id}:0", "reason": ""}}
        # Who is not named hears nothing, though others are.
        other = TopicName.parse("persistent://public/default/other")
        assert (part.word_for(SHADOW_NAME, EARLIEST).is_listed, part.word_for(other, EARLIEST)) == (True, UNLISTED)

    run(scenario)


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("persistent://public/default/nowhere", "does not exist"),
        ("non-persistent://public/default/topic", "persistent topics"),
        ("a/b", "invalid topic name"),
        (SHADOW, "can not be shown"),
        ("persistent://public/default/__change_events", "can not be shown"),
        ("persistent://public/default/whole", "has 2 partitions"),
        ("persistent://public/default/other", "is a shadow topic itself"),
    ],
)
def test_a_source_that_can_not_be_shown_is_refused_with_the_reason(source: str, why: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        broker = world.broker
        await topic_of(world)
        await broker.partitions.create(TopicName.parse("persistent://public/default/whole"), 2)
        other = TopicName.parse("persistent://public/default/other")
        await new_shadows.create(broker.registry, broker.resources, broker.ledgers, other, {SHADOW_SOURCE: TOPIC})
        with pytest.raises(PreconditionFailedError, match=why):
            await made(broker, source)

    run(scenario)


def test_a_partition_of_a_shadow_shows_the_partition_of_its_number() -> None:
    async def scenario(world: BrokerWorld) -> None:
        broker = world.broker
        whole = TopicName.parse("persistent://public/default/whole")
        await broker.partitions.create(whole, 2)
        await broker.partitions.create(SHADOW_NAME, 2, {SHADOW_SOURCE: str(whole)})
        await set_topic(world, "shadowTopics", [SHADOW], whole)
        shadow = await broker.registry.get(SHADOW_NAME.with_partition(1), create=False)
        assert isinstance(shadow, ShadowTopic)
        assert shadow.following is not None
        assert shadow.following.source == whole.with_partition(1)
        await shadow.following.until_known()

    run(scenario)


def test_aborted_messages_of_the_source_are_hidden_and_open_ones_hold_back() -> None:
    async def scenario(world: BrokerWorld) -> None:
        asked = []

        class Source:
            """Says what a broker elsewhere would."""

            async def ask(self, source: TopicName, shadow: TopicName, known: Position) -> SourceWord:
                asked.append(known)
                return SourceWord(True, Position(5, 3), 10, 0, abort.marker, (abort,)) if len(asked) > 1 else empty

            async def tell(self, shadow: TopicName, word: SourceWord) -> bool:
                return True

        world.broker.topic_services = replace(world.broker.topic_services, shadows=Source())
        empty = SourceWord(True, Position(5, 0), 10, 0)
        shadow = await paired(world)
        following = shadow.following
        assert following is not None
        abort = Abort(TxnId(0, 3), Position(5, 1), Position(5, 4))
        metadata = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
        metadata.txnid_most_bits, metadata.txnid_least_bits = 0, 3
        # Told of an abort that it does not know, it asks before it lets anybody read on.
        following.told(SourceWord(True, Position(5, 3), 10, 0, abort.marker))
        assert following.read_limit() < Position(5, 3)
        await wait_ms(100)
        assert asked == [EARLIEST, EARLIEST]
        assert following.read_limit() == Position(5, 3)
        assert following.hides(Position(5, 1), metadata)
        assert not following.hides(Position(5, 5), metadata)
        assert not following.hides(Position(5, 0), metadata)

    run(scenario)


@pytest.mark.parametrize("ends_in_an_abort", [True, False])
def test_what_was_open_when_the_source_was_terminated_is_hidden_once_it_was_aborted(ends_in_an_abort: bool) -> None:
    """No marker says so: how they ended is in a snapshot of the source's."""

    async def scenario(world: BrokerWorld) -> None:
        await paired(world)
        writer, reader = await transacting(world), await transacting(world)
        await reader.client.subscribe(SHADOW)
        await writer.connect()
        await writer.client.create_producer()
        before, *opened = [await writer.begin() for _ in range(4)]
        for txn_id in (before, *opened):
            await writer.add_partition(txn_id)
        await writer.publish(b"before", before)
        for number, txn_id in enumerate(opened):
            await writer.publish(b"no %d" % number, txn_id)
        await writer.publish(b"plain")
        if ends_in_an_abort:
            await writer.end(before, commit=False)
            await wait_ms(1_000)  # its marker, the last entry, is known to the shadow
        await world.broker.registry.terminate(NAME)
        if not ends_in_an_abort:
            opened.append(before)
        for txn_id in opened:
            writer.ask_end(txn_id, commit=False)
        await wait_ms(30_000)
        assert reader.payloads() == [b"plain"]

    run(scenario, transaction_coordinator_enabled=True)


def test_a_topic_is_of_the_kind_that_its_log_says() -> None:
    async def scenario(world: BrokerWorld) -> None:
        shadow, source = await paired(world), await topic_of(world)
        services = world.broker.topic_services
        kinds = [type(made_topic(services, NAME, ledger)) for ledger in (shadow.ledger, source.ledger, None)]
        assert kinds == [ShadowTopic, type(source), NonPersistentTopic]

    run(scenario)
