"""What each feature does while something that it depends on is away: topics made by one broker, probed by the next.

docs/what-still-works.md has it as a table, which ``tests/unit/broker/test_what_still_works.py`` holds against this.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from geminga.broker.topic.offload import Offload
from geminga.broker.topic.persistent import PersistentTopic
from geminga.lake.parquet import LedgerFileReader
from geminga.managed_ledger import ManagedLedgerConfig
from geminga.managed_ledger.shared.metadata_io import ledger_path
from geminga.metadata import cas
from geminga.model.errors import GemingaError, StorageError
from geminga.model.position import EARLIEST, LATEST, Position
from geminga.model.topic_name import TopicName
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.clusters.transacting import Transacting
from support.worlds.broker_world import Client, Type, send_frame
from support.worlds.hole_world import Ground, HoleBroker, run_lives
from support.worlds.policy_levels import seconds
from support.worlds.rest_world import ask

WORKS: Final = "works"
PARTLY: Final = "partly"
WAITS: Final = "waits"

#: Every entry on two of three bookies; ledgers of three entries, which go to the lake when the test says so.
LEDGERS = ManagedLedgerConfig(
    ensemble_size=2,
    write_quorum=2,
    ack_quorum=2,
    max_entries_per_ledger=3,
    min_rollover_minutes=0,
    offload_driver="filesystem",
    offload_directory="/lake",
    offload_deletion_lag_ms=0,
    # Cursors of more than a position have a ledger of their own.
    max_ranges_in_metadata=0,
)
SETTINGS: Final = {"transaction_coordinator_enabled": True}
#: Virtual seconds until a delayed message is due, and until a probe gives up.
DELAY_S: Final = 100.0
PATIENCE_S: Final = 30.0
SCHEMA = pb.Schema(name="s", type=pb.Schema.String, schema_data=b"")


class Unanswered(Exception):
    """The broker did not do what the probe waits for; why."""


def topic_name(feature: str) -> str:
    """The topic of a feature."""
    return "persistent://public/default/" + feature.replace(" ", "-")


async def loaded(world: HoleBroker, feature: str) -> PersistentTopic:
    """It, loaded."""
    topic = await world.broker.registry.get(TopicName.parse(topic_name(feature)), create=True)
    assert isinstance(topic, PersistentTopic)
    return topic


async def rest(world: HoleBroker, method: str, feature: str, what: str = "", body: object = None) -> Any:
    """The answer's document. Raises Unanswered."""
    path = f"/admin/v2/persistent/public/default/{feature.replace(' ', '-')}{what}"
    answer = await ask(world.rest, method, path, json.dumps(body).encode())
    if answer.status >= 300:
        raise Unanswered(f"{answer.status} {answer.body!r}")
    return json.loads(answer.body) if answer.body else None


async def answer(client: Client, kind: int) -> tuple[pb.BaseCommand, bytes]:
    """The next command of a kind. Raises Unanswered after an error, or when none comes."""
    for _ in range(int(PATIENCE_S * 10)):
        while client.received:
            command, payload = client.received.popleft()
            if command.type == kind:
                return command, payload
            if command.type == Type.ERROR:
                raise Unanswered(f"{command.error.error} {command.error.message}")
            if command.type == Type.SEND_ERROR:
                raise Unanswered(command.send_error.message)
        await seconds(0.1)
    raise Unanswered("nothing came")


async def produce(client: Client, feature: str, name: str = "", **fields) -> pb.CommandProducerSuccess:
    """A producer with id 1. Raises Unanswered."""
    named = {"producer_name": name, "user_provided_producer_name": True} if name else {}
    client.request_producer(topic_name(feature), 1, **named, **fields)
    return (await answer(client, Type.PRODUCER_SUCCESS))[0].producer_success


async def send(client: Client, sequence_id: int, name: str = "x", **fields) -> None:
    """Publish. Raises Unanswered."""
    client.send_bytes(send_frame(sequence_id, b"%d" % sequence_id, producer_name=name, **fields))
    await answer(client, Type.SEND_RECEIPT)


async def subscribe(client: Client, feature: str, subscription: str, sub_type=pb.CommandSubscribe.Shared) -> None:
    """With many permits. Raises Unanswered."""
    request = pb.CommandSubscribe(
        topic=topic_name(feature),
        subscription=subscription,
        subType=sub_type,
        consumer_id=1,
        request_id=client.next_request_id(),
        initialPosition=pb.CommandSubscribe.Earliest,
    )
    client.send(pb.BaseCommand(type=Type.SUBSCRIBE, subscribe=request))
    await answer(client, Type.SUCCESS)
    client.send(pb.BaseCommand(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=1, messagePermits=100)))


async def messages(client: Client, count: int) -> list[pb.MessageIdData]:
    """The next messages, as many of them as come."""
    found: list[pb.MessageIdData] = []
    while len(found) < count:
        try:
            found.append((await answer(client, Type.MESSAGE))[0].message.message_id)
        except Unanswered:
            break
    return found


#: Where the topic says it; all others are when the second broker comes, which has it on.
DEDUPLICATED: Final = {"deduplication": True, "retention without deduplication": False}


# ---- what the first broker makes of each topic


async def prepare(world: HoleBroker, feature: str) -> None:
    """Ledgers "p p p", "q p q", "p p p" and an open one with "p"; a subscription that has read nothing, "all", and one
    that stands behind the second ledger and has a hole, "ahead"."""
    topic = await loaded(world, feature)
    await topic.create_subscription("all", EARLIEST)
    if feature in DEDUPLICATED:
        await rest(world, "POST", feature, "/deduplicationEnabled", DEDUPLICATED[feature])
    if feature == "transactions: publish":
        # So that whoever loads it reads the log from here on.
        await in_transaction(world, feature, lambda transacting, txn_id: transacting.publish(b"t", txn_id))
    client = await world.client()
    schema = {"schema": SCHEMA} if feature == "schemas" else {}
    await produce(client, feature, "p", **schema)
    other = await world.client()
    await produce(other, feature, "q", **schema)
    for number, name in enumerate("pppqpqpppp"):
        delay = {}
        if feature == "delayed delivery" and number == 7:
            delay = {"metadata": {"deliver_at_time": world.runtime.clock.wall_ms() + int(DELAY_S * 1000)}}
        await send(other if name == "q" else client, number, name, **delay)
    ids = [info.ledger_id for info in topic.ledger.ledgers.infos]
    ahead = await topic.create_subscription("ahead", Position(ids[2], 0))
    ahead.cursor.acknowledge([Position(ids[2], 2)])
    await ahead.cursor.flush()
    await acknowledge_in_transaction(world, feature)
    if feature == "topic policies":
        await rest(world, "POST", feature, "/maxProducers", 7)


async def in_transaction(world: HoleBroker, feature: str, do: Callable[[Transacting, Any], Awaitable[Any]]) -> None:
    """A transaction that publishes to the feature's topic, committed. Raises Unanswered."""
    client = await world.client()
    await produce(client, feature)
    transacting = Transacting(client)
    await transacting.connect()
    txn_id = await transacting.begin()
    added = await transacting.add_partition(txn_id, topic_name(feature))
    if added.HasField("error"):
        raise Unanswered(added.message)
    await do(transacting, txn_id)
    ended = await transacting.end(txn_id, commit=True)
    if ended.HasField("error"):
        raise Unanswered(ended.message)


async def acknowledge_in_transaction(world: HoleBroker, feature: str) -> None:
    """The next message of subscription "acking", committed. Raises Unanswered."""
    client = await world.client()
    await subscribe(client, feature, "acking")
    found = await messages(client, 1)
    if not found:
        raise Unanswered("nothing came")
    transacting = Transacting(client)
    await transacting.connect()
    txn_id = await transacting.begin()
    await transacting.add_subscription(txn_id, topic_name(feature), "acking")
    acked = await transacting.acknowledge(found, txn_id)
    if acked.HasField("error"):
        raise Unanswered(acked.message)
    ended = await transacting.end(txn_id, commit=True)
    if ended.HasField("error"):
        raise Unanswered(ended.message)


# ---- probes: what the next broker does; Unanswered and errors of storage mean that it waits


async def publish(world: HoleBroker, feature: str) -> str:
    client = await world.client()
    success = await produce(client, feature)
    await send(client, 0, success.producer_name)
    return WORKS


async def read_subscription(world: HoleBroker, feature: str) -> str:
    client = await world.client()
    await subscribe(client, feature, "ahead")
    found = await messages(client, 3)
    return WORKS if len(found) == 3 else WAITS


async def read_all(world: HoleBroker, feature: str) -> str:
    client = await world.client()
    await subscribe(client, feature, "all")
    found = await messages(client, 10)
    if len(found) == 10:
        return WORKS
    # Whoever waits is told why.
    stats = await rest(world, "GET", feature, "/stats")
    assert stats["subscriptions"]["all"]["readError"]["error"]
    return PARTLY if len(found) == 3 else WAITS


async def deduplication(world: HoleBroker, feature: str) -> str:
    client = await world.client()
    # All of its ids are above its own of the second ledger, or in a snapshot.
    assert (await produce(client, feature, "p")).last_sequence_id == 9
    client.send_bytes(send_frame(9, producer_name="p"))
    receipt = (await answer(client, Type.SEND_RECEIPT))[0].send_receipt
    assert receipt.message_id.ledgerId == (1 << 64) - 1
    try:
        assert (await produce(await world.client(), feature, "q")).last_sequence_id == 5
    except Unanswered:
        return PARTLY
    return WORKS


async def transaction_publish(world: HoleBroker, feature: str) -> str:
    await (await loaded(world, feature)).create_subscription("tail", LATEST)
    await in_transaction(world, feature, lambda transacting, txn_id: transacting.publish(b"t", txn_id))
    # And it can be read.
    reader = await world.client()
    await subscribe(reader, feature, "tail")
    return WORKS if len(await messages(reader, 1)) == 1 else PARTLY


async def transaction_ack(world: HoleBroker, feature: str) -> str:
    await acknowledge_in_transaction(world, feature)
    return WORKS


async def delayed(world: HoleBroker, feature: str) -> str:
    client = await world.client()
    await subscribe(client, feature, "ahead")
    # What it had acknowledged comes again where that is lost.
    found = {(each.ledgerId, each.entryId) for each in await messages(client, 4)}
    if not found:
        return WAITS
    late = (min(found)[0], 1)
    assert late not in found
    await seconds(DELAY_S)
    return WORKS if late in {(each.ledgerId, each.entryId) for each in await messages(client, 1)} else WAITS


async def schemas(world: HoleBroker, feature: str) -> str:
    client = await world.client()
    success = await produce(client, feature, schema=SCHEMA)
    assert success.schema_version
    await send(client, 0, success.producer_name)
    return WORKS


async def topic_policies(world: HoleBroker, feature: str) -> str:
    assert await rest(world, "GET", feature, "/maxProducers") == 7
    assert (await loaded(world, feature)).limits.producers == 7
    return WORKS


async def trim(world: HoleBroker, feature: str) -> str:
    topic = await loaded(world, feature)
    oldest = topic.ledger.ledgers.first_position.ledger_id
    for name in ("all", "ahead", "acking"):
        await rest(world, "POST", feature, f"/subscription/{name}/skip_all")
    topic.ledger.trimmer.set_retention(retention_ms=0, retention_bytes=0)
    if topic.dedup is not None:
        await topic.dedup.snapshot()
    await topic.ledger.trimmer.trim()
    first = topic.ledger.ledgers.first_position.ledger_id
    if first == oldest:
        return WAITS
    return WORKS if topic.ledger.ledgers.entry_count <= 3 else PARTLY


async def lookup(world: HoleBroker, feature: str) -> str:
    client = await world.client()
    request = pb.CommandLookupTopic(topic=topic_name(feature), request_id=client.next_request_id())
    client.send(pb.BaseCommand(type=Type.LOOKUP, lookupTopic=request))
    found = (await answer(client, Type.LOOKUP_RESPONSE))[0].lookupTopicResponse
    return WORKS if found.response == pb.CommandLookupTopicResponse.Connect else WAITS


async def statistics(world: HoleBroker, feature: str) -> str:
    stats = await rest(world, "GET", feature, "/stats?getEarliestTimeInBacklog=true")
    internal = await rest(world, "GET", feature, "/internalStats")
    assert stats["subscriptions"]["all"]["msgBacklog"] == 10
    assert len(internal["ledgers"]) >= 4
    return WORKS


async def deletion(world: HoleBroker, feature: str) -> str:
    await rest(world, "DELETE", feature, "?force=true")
    assert await world.ledgers.info(TopicName.parse(topic_name(feature)).managed_ledger_name) is None
    return WORKS


async def read_lake(world: HoleBroker, feature: str) -> str:
    """As Spark does: what the manifest names, without the broker."""
    lake, directory = world.ground.lake, f"public/default/persistent/{feature.replace(' ', '-')}"
    newest = max(path for path in lake.files if path.startswith(f"{directory}/_manifest/"))
    named = json.loads(lake.files[newest])["ledgers"]
    assert len(named) == 3
    read = 0
    for one in named:
        try:
            reader = LedgerFileReader(lake, f"{directory}/{one['file']}")
            read += sum(len(reader.read_group(group)) for group in range(reader.group_count))
        except StorageError:
            return WAITS
    return WORKS if read == 9 else PARTLY


FEATURES: Final[dict[str, Callable[[HoleBroker, str], Awaitable[str]]]] = {
    "publish": publish,
    "read a subscription": read_subscription,
    "read from the beginning": read_all,
    "deduplication": deduplication,
    "deduplication switched on now": deduplication,
    "transactions: publish": transaction_publish,
    "transactions: acknowledge": transaction_ack,
    "delayed delivery": delayed,
    "schemas": schemas,
    "topic policies": topic_policies,
    "retention": trim,
    "retention without deduplication": trim,
    "lookup": lookup,
    "statistics": statistics,
    "deletion of the topic": deletion,
    "reading the lake": read_lake,
}


# ---- dependencies


async def stored_as(world: HoleBroker) -> dict[int, tuple[str, str]]:
    """What each ledger on bookies is of: ("topic", its managed ledger), ("cursor", the same), ("schema", ...), ..."""
    found: dict[int, tuple[str, str]] = {}
    for ledger_id in sorted({each for bookie in world.ground.bookies.values() for each in bookie._ledgers}):
        try:
            custom = (await world.ledgers.bookkeeper.read_ledger(ledger_id)).metadata.custom_metadata
        except StorageError:
            continue
        name = custom.get("pulsar/managed-ledger", b"").decode()
        kind = "cursor" if "pulsar/cursor" in custom else custom.get("component", b"").decode()
        found[ledger_id] = (kind, name)
    return found


async def lake_file(world: HoleBroker) -> None:
    """Of each topic the second ledger's file; the bookies have no copy."""
    for feature in FEATURES:
        topic = await loaded(world, feature)
        await offload(world, topic)
        second = topic.ledger.ledgers.infos[1]
        world.ground.take_file(second.ledger_id)


async def lake(world: HoleBroker) -> None:
    """All of it: nothing there can be read now. The bookies have no copy of what is there."""
    for feature in FEATURES:
        await offload(world, await loaded(world, feature))
    world.ground.take_lake()


async def ledger(world: HoleBroker) -> None:
    """Of each topic the second ledger: every bookie has lost it."""
    for feature in FEATURES:
        world.ground.lose_ledger((await loaded(world, feature)).ledger.ledgers.infos[1].ledger_id)


async def snapshot(world: HoleBroker) -> None:
    """What spares reading: the ledgers of cursors, of delayed messages, and the snapshots of transactions."""
    for ledger_id, (kind, name) in (await stored_as(world)).items():
        if kind in ("cursor", "delayed-index") or "__transaction_buffer_snapshot" in name:
            world.ground.lose_ledger(ledger_id)


async def bookie(world: HoleBroker) -> None:
    """One of three."""
    away = world.ground.bookies["bookie-2"]
    error = StorageError("bookie-2 is out of reach")
    away.add_error = away.read_error = away.fence_error = error
    away.is_writable = False


async def policies_topic(world: HoleBroker) -> None:
    """That of the topics' policies: what says which ledgers it has is damaged."""
    await damage(world, "__change_events")


async def snapshots_topic(world: HoleBroker) -> None:
    """That of the snapshots of transactions, likewise."""
    await damage(world, "__transaction_buffer_snapshot")


async def ack_logs(world: HoleBroker) -> None:
    """Those of what transactions acknowledged, of subscription "acking" of every topic, likewise."""
    for feature in FEATURES:
        log = TopicName.parse(topic_name(feature)).pending_ack_log("acking")
        await cas.update(world.metadata, ledger_path(log.managed_ledger_name), lambda _: b"\xff damaged")


async def damage(world: HoleBroker, name: str) -> None:
    """The ledger list of a system topic can not be read."""
    await cas.update(world.metadata, ledger_path(f"public/default/persistent/{name}"), lambda _: b"\xff damaged")


async def schema_ledger(world: HoleBroker) -> None:
    """Those of schemas."""
    for ledger_id, (kind, _) in (await stored_as(world)).items():
        if kind == "schema":
            world.ground.lose_ledger(ledger_id)


DEPENDENCIES: Final[dict[str, Callable[[HoleBroker], Awaitable[None]]]] = {
    "a lake file": lake_file,
    "the lake": lake,
    "a ledger": ledger,
    "snapshots": snapshot,
    "a bookie of two": bookie,
    "the topic of policies": policies_topic,
    "the topic of transaction snapshots": snapshots_topic,
    "logs of acknowledgments": ack_logs,
    "a schema's ledger": schema_ledger,
}


async def offload(world: HoleBroker, topic: PersistentTopic) -> None:
    """Closed ledgers go to the lake, and leave the bookies."""
    part = topic.parts.find(Offload)
    assert part is not None
    await part.offloading.offload_before(topic.ledger.ledgers.infos[-1].ledger_id)
    await part.offloading.look()


def outcomes(dependency: str) -> dict[str, str]:
    """What each feature does without it; the reasons of those that wait are kept beside, for who looks into it."""
    found: dict[str, str] = {}

    async def first(world: HoleBroker) -> None:
        for feature in FEATURES:
            await prepare(world, feature)
        await offload(world, await loaded(world, "reading the lake"))
        await seconds(3)
        await DEPENDENCIES[dependency](world)

    async def second(world: HoleBroker) -> None:
        for feature, probe in FEATURES.items():
            try:
                found[feature] = await probe(world, feature)
            except (Unanswered, GemingaError) as error:
                found[feature] = WAITS
                reasons[dependency, feature] = str(error)

    run_lives(first, (second, {"deduplication": True}), ground=Ground(bookies=3), ledger_config=LEDGERS, **SETTINGS)
    return found


#: Why a feature waits.
reasons: dict[tuple[str, str], str] = {}
