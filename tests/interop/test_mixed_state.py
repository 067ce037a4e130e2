"""All that a topic keeps goes with it between a broker of Apache's and one of Geminga's, unloaded in both directions.

One cluster for all tests here, told to compress what is kept in metadata (Apache's), to number messages, and to begin
a ledger after a few thousand entries. Beyond the limits that Pulsar sets itself what comes again is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String
from tools.zookeeper_server import running_zookeeper

import geminga.client as gc
from geminga.runtime.clock import SystemClock
from support.processes.mixed_cluster import BUNDLES, CALM, MAKES, Make, MixedCluster, eventually, mixed_cluster
from support.worlds.acknowledging_client import QUIET_MS, RECEIVE_MS, Client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SHARED: Final = pulsar.ConsumerType.Shared
HOLES: Final = 9_000
#: So few that Apache's broker keeps them in the cursor's node.
FEW_HOLES: Final = 400
BATCHES: Final = 400
BATCH_SIZE: Final = 10
#: More than Pulsar keeps (managedLedgerMaxUnackedRangesToPersist, 10,000).
MANY_HOLES: Final = 12_000
LEDGER_ENTRIES: Final = 5_000
DELAY_S: Final = 12
_INTERCEPTORS: Final = "org.apache.pulsar.common.intercept.Append{}MetadataInterceptor"
SETTINGS: Final = {
    **CALM,
    "managedLedgerMaxEntriesPerLedger": LEDGER_ENTRIES,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "brokerEntryMetadataInterceptors": ",".join(_INTERCEPTORS.format(name) for name in ("BrokerTimestamp", "Index")),
    "exposingBrokerEntryMetadataToClientEnabled": "true",
    # Larger messages are cut into chunks.
    "maxMessageSize": 1024 * 1024,
    "managedLedgerDigestType": "CRC32",
    "managedLedgerPassword": "of-both",
}
COMPRESSED: Final = {
    "managedLedgerInfoCompressionType": "ZSTD",
    "managedLedgerInfoCompressionThresholdInBytes": 1,
    "managedCursorInfoCompressionType": "SNAPPY",
    "managedCursorInfoCompressionThresholdInBytes": 1,
}
NAMESPACE: Final = "public/state"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(judge_is_apache: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    if not judge_is_apache:
        pytest.skip("Apache's broker beside ours")
    directory = tmp_path_factory.mktemp("mixed-state")
    with (
        running_zookeeper() as zookeeper,
        mixed_cluster(zookeeper, directory, SETTINGS, apaches_own=COMPRESSED) as mixed,
    ):
        assert mixed.rest("geminga").put(f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": BUNDLES}}).status == 204
        yield mixed


@pytest.fixture
def client(cluster: MixedCluster, tmp_path: Path) -> Iterator[Client]:
    official = Client(cluster.service_url, tmp_path)
    yield official
    official.close()


def now_s() -> float:
    return SystemClock().wall_ms() / 1000


class Moving:
    """A topic and where it is."""

    def __init__(self, cluster: MixedCluster, name: str, first: Make) -> None:
        self.cluster = cluster
        local = f"{name}-{next(_numbers)}"
        self.name = f"persistent://{NAMESPACE}/{local}"
        #: As it stands in paths.
        self.path = f"{NAMESPACE}/{quote(local, safe='')}"
        self.at = first
        cluster.owner(self.path)
        self.to(first)

    def to(self, make: Make) -> None:
        self.cluster.move(self.path, make)
        assert [self.cluster.owner(self.path, asked) for asked in MAKES] == [make, make]
        self.at = make

    def over(self) -> Make:
        """To the other one; which that is."""
        self.to(MAKES[self.at == MAKES[0]])
        return self.at

    def get(self, path: str) -> Any:
        answer = self.cluster.rest(self.at).get(f"persistent/{self.path}/{path}")
        assert answer.status == 200, answer
        return answer.json


@pytest.mark.parametrize("first", MAKES)
@pytest.mark.parametrize("holes", [FEW_HOLES, HOLES])
def test_single_holes_are_exactly_as_they_were_left(
    holes: int, first: Make, cluster: MixedCluster, client: Client
) -> None:
    topic = Moving(cluster, "holes", first)
    count = 2 * holes + 2
    client.subscribe(topic.name, SHARED).close()
    client.publish(topic.name, count, batching_enabled=False)
    # The first stays, so that mark-delete does.
    left = client.acknowledge(topic.name, SHARED, set(range(count)), set(range(1, 2 * holes, 2)))
    for more in ({2, 2 * holes}, {4, 6}, {0, 8}):
        topic.over()
        assert client.received(topic.name, SHARED, len(left)) == Counter(left)
        left = client.acknowledge(topic.name, SHARED, left, more)


@pytest.mark.parametrize("first", MAKES)
def test_acknowledged_parts_of_batches_are_exactly_as_they_were_left(
    first: Make, cluster: MixedCluster, client: Client
) -> None:
    topic = Moving(cluster, "batches", first)
    count = BATCHES * BATCH_SIZE
    client.subscribe(topic.name, SHARED).close()
    batched = {"batching_enabled": True, "batching_max_messages": BATCH_SIZE, "batching_max_publish_delay_ms": 1000}
    client.publish(topic.name, count, **batched)
    left = set(range(count))
    for places in ((1, 4, 5), (7,), (8, 9), (0,)):
        done = {number for number in left if number % BATCH_SIZE in places}
        left = client.acknowledge(topic.name, SHARED, left, done)
        topic.over()
        assert client.received(topic.name, SHARED, len(left)) == Counter(left)


@pytest.mark.parametrize("first", MAKES)
def test_beyond_pulsars_limit_the_youngest_come_again(first: Make, cluster: MixedCluster, client: Client) -> None:
    topic = Moving(cluster, "many", first)
    count = 2 * MANY_HOLES + 2
    client.subscribe(topic.name, SHARED).close()
    client.publish(topic.name, count, batching_enabled=False)
    left = client.acknowledge(topic.name, SHARED, set(range(count)), set(range(1, 2 * MANY_HOLES, 2)))
    topic.over()
    found = client.received(topic.name, SHARED, len(left))
    assert left <= found.keys()
    assert set(found.values()) == {1}
    again = sorted(found.keys() - left)
    print(f"\n{first} to {topic.at}: of {MANY_HOLES} holes {len(again)} came again, from {again[:1]} on")
    # Apache's keeps those of whole ledgers, 2,500 each, and of the fifth too, which begins within the first 10,000.
    assert again == {"apache": [], "geminga": [*range(2 * 10_000 + 1, 2 * MANY_HOLES, 2)]}[first]
    if first == "geminga":
        # Nobody acknowledged at Apache's: what Geminga kept for itself is there again.
        topic.over()
        found = client.received(topic.name, SHARED, len(left))
        assert left <= found.keys()
        print(f"back at geminga: {len(found.keys() - left)} came again")


@pytest.mark.parametrize("first", MAKES)
def test_delayed_messages_come_when_they_are_due_and_not_before(
    first: Make, cluster: MixedCluster, client: Client
) -> None:
    topic = Moving(cluster, "delayed", first)
    client.subscribe(topic.name, SHARED).close()
    producer = client.client.create_producer(topic.name)
    due_s = now_s() + DELAY_S
    for number in range(20):
        producer.send(b"%d" % number, deliver_at=int(due_s * 1000) if number % 2 else None)
    topic.over()
    consumer = client.subscribe(topic.name, SHARED)
    at_once = [int(consumer.receive(RECEIVE_MS).data()) for _ in range(10)]
    assert sorted(at_once) == [*range(0, 20, 2)]
    topic.over()
    found = set()
    while len(found) < 10:
        message = consumer.receive(RECEIVE_MS)
        number = int(message.data())
        consumer.acknowledge(message)
        if number % 2:
            # Pulsar's clock ticks once a second (delayedDeliveryTickTimeMillis), and is early by no more than that.
            assert now_s() >= due_s - 1.1
            found.add(number)
    assert found == {*range(1, 20, 2)}


@pytest.mark.parametrize("first", MAKES)
def test_ended_topic_stays_ended(first: Make, cluster: MixedCluster, client: Client) -> None:
    topic = Moving(cluster, "ended", first)
    client.subscribe(topic.name, SHARED).close()
    client.publish(topic.name, 10)
    last = cluster.rest(first).post(f"persistent/{topic.path}/terminate")
    assert last.status == 200, last
    for _ in range(3):
        topic.over()
        with pytest.raises(pulsar.TopicTerminated):
            client.client.create_producer(topic.name)
        assert client.received(topic.name, SHARED, 10) == Counter(range(10))
        stats = topic.get("internalStats")
        assert stats["state"] == "Terminated"
        again = cluster.rest(topic.at).post(f"persistent/{topic.path}/terminate")
        assert again.json == last.json


@pytest.mark.parametrize("first", MAKES)
def test_names_and_properties_of_subscriptions_and_topics_stay(
    first: Make, cluster: MixedCluster, client: Client
) -> None:
    topic = Moving(cluster, "odd ü+%41", first)
    # Apache's REST decodes names of subscriptions twice: one with % or + is found by clients alone.
    names = {"a/b ü": {"k": "v", "ü": "é"}, "%2F+": {}}
    for name in names:
        earliest = pulsar.InitialPosition.Earliest
        client.client.subscribe(topic.name, name, SHARED, initial_position=earliest).close()
    rest = cluster.rest(first)
    assert rest.put(f"persistent/{topic.path}/properties", {"owner": "x", "index-of": "ü"}).status == 204
    client.publish(topic.name, 10)
    path = f"persistent/{topic.path}/subscription/{quote('a/b ü', safe='')}/properties"
    assert rest.put(path, names["a/b ü"]).status == 204
    for number in range(3):
        for make in MAKES:
            found = cluster.rest(make).get(f"persistent/{topic.path}/subscriptions").json
            assert sorted(found) == sorted([*names, *(["s"] if number else [])])
            found = cluster.rest(make).get(f"persistent/{topic.path}/properties").json
            assert {"owner": "x", "index-of": "ü"}.items() <= found.items()
            assert cluster.rest(make).get(path).json == names["a/b ü"]
        names["a/b ü"] = {"round": str(number)}
        assert cluster.rest(topic.at).put(path, names["a/b ü"]).status == 204
        topic.over()
        assert client.received(topic.name, SHARED, 10) == Counter(range(10))


class Fact(Record):
    name = String(required=True)


class LongFact(Record):
    name = String(required=True)
    size = Integer(required_default=True)


@pytest.mark.parametrize("first", MAKES)
def test_schemas_are_read_whatever_password_ledgers_have(first: Make, cluster: MixedCluster, client: Client) -> None:
    """Those of schemas have none with Pulsar, those of topics have the one that is configured."""
    topic = Moving(cluster, "typed", first)
    official = client.client
    official.create_producer(topic.name, schema=AvroSchema(Fact)).send(Fact(name="a"))
    topic.over()
    official.create_producer(topic.name, schema=AvroSchema(LongFact)).send(LongFact(name="b", size=1))
    topic.over()
    official.create_producer(topic.name, schema=AvroSchema(Fact)).send(Fact(name="c"))
    topic.over()
    earliest = pulsar.InitialPosition.Earliest
    consumer = official.subscribe(topic.name, "s", schema=AvroSchema(LongFact), initial_position=earliest)
    values = [consumer.receive(RECEIVE_MS).value() for _ in range(3)]
    assert [(one.name, one.size) for one in values] == [("a", None), ("b", 1), ("c", None)]


def test_flag_of_replicated_subscriptions_survives_geminga(cluster: MixedCluster, client: Client) -> None:
    topic = Moving(cluster, "replicated", "apache")
    client.subscribe(topic.name, SHARED).close()
    client.publish(topic.name, 10)
    path = f"persistent/{topic.path}/subscription/s/replicatedSubscriptionStatus"
    assert cluster.rest("apache").post(path, True).status == 204
    topic.over()
    left = client.acknowledge(topic.name, SHARED, set(range(10)), {0, 1, 5})
    topic.over()
    assert client.received(topic.name, SHARED, len(left)) == Counter(left)
    assert cluster.rest("apache").get(path).json == {topic.name: True}


@pytest.mark.parametrize("first", ["apache"])
def test_chunked_messages_come_whole(first: Make, cluster: MixedCluster, client: Client) -> None:
    topic = Moving(cluster, "chunked", first)
    client.subscribe(topic.name, SHARED).close()
    producer = client.client.create_producer(topic.name, chunking_enabled=True, send_timeout_millis=0)
    texts = [bytes([number]) * (3 * 1024 * 1024 * (number % 2) + 10) for number in range(4)]
    for text in texts[:2]:
        producer.send(text)
    topic.over()
    for text in texts[2:]:
        producer.send(text)
    # A chunked message goes to one consumer, all of it.
    consumer = client.client.subscribe(topic.name, "s", SHARED)
    messages = [consumer.receive(RECEIVE_MS) for _ in texts]
    assert sorted(one.data() for one in messages) == texts
    for message in messages[:3]:
        consumer.acknowledge(message)
    consumer.close()
    topic.over()
    consumer = client.client.subscribe(topic.name, "s", SHARED)
    assert consumer.receive(RECEIVE_MS).data() == messages[3].data()
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)


@pytest.mark.parametrize("first", MAKES)
def test_encrypted_messages_stay_readable(first: Make, cluster: MixedCluster, client: Client, tmp_path: Path) -> None:
    topic = Moving(cluster, "encrypted", first)
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    subprocess.run(["openssl", "genrsa", "-out", str(private), "2048"], check=True, capture_output=True)
    words = ["openssl", "rsa", "-in", str(private), "-pubout", "-out", str(public)]
    subprocess.run(words, check=True, capture_output=True)
    keys = pulsar.CryptoKeyReader(str(public), str(private))
    producer = client.client.create_producer(topic.name, encryption_key="k", crypto_key_reader=keys)
    consumer = client.client.subscribe(topic.name, "s", SHARED, crypto_key_reader=keys)
    sent = []
    for number in range(3):
        for each in range(5):
            sent.append(b"%d-%d" % (number, each))
            producer.send(sent[-1])
        topic.over()
    found = set()
    while found < set(sent):
        message = consumer.receive(RECEIVE_MS)
        found.add(message.data())
        consumer.acknowledge(message)
    assert found == set(sent)


@pytest.mark.parametrize("first", MAKES)
def test_producer_that_was_fenced_stays_so(first: Make, cluster: MixedCluster, client: Client) -> None:
    topic = Moving(cluster, "fenced", first)
    mode = pulsar.ProducerAccessMode

    def producer(access: Any) -> pulsar.Producer:
        return client.client.create_producer(topic.name, access_mode=access, send_timeout_millis=20_000)

    old = producer(mode.Exclusive)
    old.send(b"old")
    topic.over()
    old.send(b"old")
    new = producer(mode.ExclusiveWithFencing)
    new.send(b"new")
    with pytest.raises(pulsar.PulsarException):
        old.send(b"too late")
    for _ in range(3):
        topic.over()
        # It comes again with its epoch, which is still the newest.
        new.send(b"new")
        with pytest.raises(pulsar.ProducerFenced):
            producer(mode.Exclusive)
    new.close()
    topic.over()
    # Which was stored: nobody begins again with a smaller one.
    producer(mode.Exclusive).close()
    assert int(topic.get("internalStats")["properties"]["pulsar.topic.epoch"]) >= 2
    assert [text for text, _ in asyncio.run(_indexes(cluster, topic.name))] == [b"old"] * 2 + [b"new"] * 4


async def _indexes(cluster: MixedCluster, topic: str) -> list[tuple[bytes, int | None]]:
    found = []
    async with (
        gc.connect(cluster.service_url, operation_timeout_ms=20_000) as ours,
        ours.create_reader(topic, gc.MessageId.earliest) as reader,
    ):
        while await reader.has_message_available():
            message = await reader.read_next(RECEIVE_MS)
            found.append((message.data(), message.index()))
    return found


@pytest.mark.parametrize("first", MAKES)
def test_numbers_of_messages_go_on_also_where_all_before_is_deleted(
    first: Make, cluster: MixedCluster, client: Client
) -> None:
    topic = Moving(cluster, "numbered", first)
    total = 0
    for _ in range(4):
        client.publish(topic.name, 7, batching_enabled=True, batching_max_messages=3)
        total += 7
        found = asyncio.run(_indexes(cluster, topic.name))
        assert [index for _, index in found] == [*range(total)][-len(found) :]
        topic.over()
    for _ in range(2):
        # Geminga's REST does not truncate.
        topic.to("apache")
        assert cluster.rest("apache").delete(f"persistent/{topic.path}/truncate").status == 204
        eventually(lambda: topic.get("internalStats")["numberOfEntries"], 0)
        topic.over()
        client.publish(topic.name, 1)
        total += 1
        assert [index for _, index in asyncio.run(_indexes(cluster, topic.name))] == [total - 1]


@pytest.mark.parametrize("first", MAKES)
def test_keys_of_key_shared_stay_in_order(first: Make, cluster: MixedCluster, client: Client) -> None:
    topic = Moving(cluster, "keyed", first)
    kind = pulsar.ConsumerType.KeyShared
    consumers = [client.client.subscribe(topic.name, "s", kind, consumer_name=f"c{n}") for n in range(2)]
    producer = client.client.create_producer(topic.name, batching_enabled=False, send_timeout_millis=0)
    found: dict[str, list[int]] = {}
    sent = 0
    for _ in range(4):
        for _ in range(200):
            producer.send_async(b"%d" % sent, lambda *_: None, partition_key=str(sent % 16))
            sent += 1
        producer.flush()
        # Some of it, so that there is some in flight when it goes.
        receive(consumers, found, 150)
        topic.over()
    receive(consumers, found, sent - sum(map(len, found.values())))
    assert found == {str(key): [*range(key, sent, 16)] for key in range(16)}


def receive(consumers: list[pulsar.Consumer], found: dict[str, list[int]], count: int) -> None:
    """So many new ones; each is acknowledged, and comes in order but for what comes again."""
    new = 0
    for consumer in itertools.cycle(consumers):
        if new >= count:
            return
        try:
            message = consumer.receive(200)
        except pulsar.Timeout:
            continue
        number, numbers = int(message.data()), found.setdefault(message.partition_key(), [])
        if number not in numbers:
            numbers.append(number)
            new += 1
        consumer.acknowledge(message)
