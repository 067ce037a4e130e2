"""An Apache Pulsar broker and a Geminga broker serve one cluster: what one stores the other goes on with.

One cluster for all tests here, each of which has a namespace of 16 bundles of its own; topics go from one broker to the
other by ``pulsar-admin namespaces unload --bundle --destinationBroker`` at either. Then the same in one where every
link has TLS (clients, brokers, bookies, ZooKeeper), brokers ask for tokens and rights, and Apache's bookies for a
certificate with a role.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pulsar
import pytest
from pulsar.schema import AvroSchema
from tools.chaos.secured import LOAD, TOKEN_S, Security, token_of
from tools.zookeeper_server import running_zookeeper

import geminga.client as gc
from support.processes.apache_secured import UNIT
from support.processes.fact_records import Fact, LongFact, OtherFact
from support.processes.mixed_cluster import BUNDLES, COORDINATORS, MAKES, Make, MixedCluster, eventually, mixed_cluster
from support.processes.official import official_client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

RECEIVE_MS: Final = 30_000
#: That nothing comes any more.
QUIET_MS: Final = 1_500
_numbers = itertools.count()


@pytest.fixture(scope="module", params=["plain", "secured"])
def cluster(
    judge_is_apache: bool, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[MixedCluster]:
    if not judge_is_apache:
        pytest.skip("Apache's broker beside ours")
    directory = tmp_path_factory.mktemp("mixed")
    security = Security(directory / "keys", unit=UNIT) if request.param == "secured" else None
    with (
        running_zookeeper(tls=None if security is None else security.zookeeper) as zookeeper,
        mixed_cluster(zookeeper, directory, bookie_processes=3, security=security) as mixed,
    ):
        if security is not None:
            # Where a client asks for the coordinators of transactions.
            mixed.grant("pulsar/system")
        yield mixed


@pytest.fixture
def namespace(cluster: MixedCluster) -> str:
    name = f"public/mixed-{next(_numbers)}"
    rest = cluster.rest("geminga")
    assert rest.put(f"namespaces/{name}", {"bundles": {"numBundles": BUNDLES}}).status == 204
    if cluster.security is not None:
        cluster.grant(name)
    # What everybody has acknowledged is looked at, too.
    forever = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert rest.post(f"namespaces/{name}/retention", forever).status == 204
    return name


@pytest.fixture
def client(cluster: MixedCluster, tmp_path: Path) -> Iterator[pulsar.Client]:
    with official_client(cluster.service_url, tmp_path, **cluster.client_options) as client:
        yield client


def placed(cluster: MixedCluster, namespace: str, make: Make, name: str = "at") -> str:
    """A topic (``tenant/namespace/name``) that a broker of this make serves."""
    topic = f"{namespace}/{name}-{make}"
    cluster.owner(topic)
    cluster.move(topic, make)
    assert [cluster.owner(topic, asked) for asked in MAKES] == [make, make]
    return topic


def test_topic_goes_to_and_fro_under_its_clients(cluster: MixedCluster, namespace: str, client: pulsar.Client) -> None:
    topic = placed(cluster, namespace, "apache")
    consumer = client.subscribe(f"persistent://{topic}", "s", initial_position=pulsar.InitialPosition.Earliest)
    producer = client.create_producer(f"persistent://{topic}", send_timeout_millis=0)
    sent: list[bytes] = []
    for number, (make, asked) in enumerate(itertools.product(("geminga", "apache", "geminga"), MAKES)):
        cluster.move(topic, make, asked=asked)
        assert [cluster.owner(topic, each) for each in MAKES] == [make, make]
        for each in range(20):
            sent.append(b"%d-%d" % (number, each))
            producer.send(sent[-1])
    received: list[bytes] = []
    while len(received) < len(sent):
        message = consumer.receive(RECEIVE_MS)
        if message.data() not in received:
            received.append(message.data())
        consumer.acknowledge(message)
    assert received == sent
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)


def test_both_brokers_answer_the_same(cluster: MixedCluster, namespace: str, client: pulsar.Client) -> None:
    topics = [placed(cluster, namespace, make) for make in MAKES]
    for topic in topics:
        client.subscribe(f"persistent://{topic}", "s").close()
        client.create_producer(f"persistent://{topic}").send(b"one")
    rest = cluster.rest("apache")
    assert rest.put(f"persistent/{namespace}/whole/partitions", 4).status == 204
    assert rest.post(f"namespaces/{namespace}/messageTTL", 3600).status == 204
    paths = [
        "brokers",
        "brokers/leaderBroker",
        "brokers/mixed",
        *(f"brokers/mixed/{cluster.id(make)}/ownedNamespaces" for make in MAKES),
        "clusters",
        "tenants",
        "namespaces/public",
        f"namespaces/{namespace}",
        f"namespaces/{namespace}/bundles",
        f"namespaces/{namespace}/messageTTL",
        f"namespaces/{namespace}/topics",
        f"persistent/{namespace}",
        f"persistent/{namespace}/partitioned",
        f"persistent/{namespace}/whole/partitions",
    ]
    for topic in topics:
        paths += [
            f"/lookup/v2/topic/persistent/{topic}",
            f"/lookup/v2/topic/persistent/{topic}/bundle",
            f"persistent/{topic}/subscriptions",
            f"persistent/{topic}/lastMessageId",
            f"persistent/{topic}/retention",
        ]
    for path in paths:
        answers = [cluster.rest(make).get(path) for make in MAKES]
        assert [answer.status for answer in answers] == [200, 200] or path.endswith("retention"), (path, answers)
        found = [_read(answer.body) for answer in answers]
        assert found[0] == found[1], path
    for topic in topics:
        found = [cluster.rest(make).get(f"persistent/{topic}/stats").json for make in MAKES]
        assert [one["subscriptions"]["s"]["msgBacklog"] for one in found] == [1, 1]
        assert [one["msgInCounter"] for one in found] == [1, 1]


def _read(body: bytes) -> Any:
    """JSON without the order of lists, or text; of a lookup's URLs those that there are (docs/compatibility.md)."""
    try:
        value = json.loads(body) if body else None
    except ValueError:
        return body
    if isinstance(value, dict) and "brokerUrlSsl" in value:
        return {key: url for key, url in value.items() if url}
    return sorted(value, key=str) if isinstance(value, list) else value


@pytest.mark.parametrize("events", MAKES)
def test_policies_of_topics_are_set_and_read_at_either_whoever_has_the_events(
    events: Make, cluster: MixedCluster, namespace: str
) -> None:
    placed_events = f"{namespace}/__change_events"
    cluster.owner(placed_events)
    cluster.move(placed_events, events)
    topics = [placed(cluster, namespace, make) for make in MAKES]
    for topic in topics:
        assert cluster.rest("apache").put(f"persistent/{topic}").status == 204
        for value, (make, policy) in enumerate(itertools.product(MAKES, ("maxProducers", "maxConsumers")), start=7):
            assert cluster.rest(make).post(f"persistent/{topic}/{policy}", value).status == 204
            for asked in MAKES:

                def read(asked: Make = asked, path: str = f"persistent/{topic}/{policy}") -> object:
                    return cluster.rest(asked).get(path).json

                eventually(read, value)
    assert cluster.owner(placed_events) == events
    # All of it is in what the other make goes on with.
    other = MAKES[events == MAKES[0]]
    cluster.move(placed_events, other)
    for topic, asked in itertools.product(topics, MAKES):
        found = [
            cluster.rest(asked).get(f"persistent/{topic}/{policy}").json for policy in ("maxProducers", "maxConsumers")
        ]
        assert found == [9, 10]


def test_policy_set_at_one_make_holds_at_the_topic_of_the_other(
    cluster: MixedCluster, namespace: str, client: pulsar.Client
) -> None:
    for make, asked in itertools.product(MAKES, MAKES):
        topic = placed(cluster, namespace, make, f"one-producer-{asked}")
        producer = client.create_producer(f"persistent://{topic}")
        assert cluster.rest(asked).post(f"persistent/{topic}/maxProducers", 1).status == 204

        def is_refused(topic: str = topic) -> bool:
            try:
                client.create_producer(f"persistent://{topic}").close()
            except pulsar.ProducerBusy:
                return True
            return False

        eventually(is_refused, True)
        producer.close()


def test_policies_that_apaches_broker_compacted_and_trimmed_are_known_here(
    cluster: MixedCluster, namespace: str
) -> None:
    events, rest = f"{namespace}/__change_events", cluster.rest("apache")
    assert rest.delete(f"namespaces/{namespace}/retention").status == 204
    topics = [f"{namespace}/compacted-{number}" for number in range(3)]
    # All of it at Apache's broker, so that nobody here holds the events back.
    for topic in (events, *topics):
        cluster.owner(topic)
        cluster.move(topic, "apache")
        assert cluster.owner(topic) == "apache"
    for number, topic in enumerate(topics):
        assert rest.put(f"persistent/{topic}").status == 204
        for value in (3, 5 + number):
            assert rest.post(f"persistent/{topic}/maxProducers", value).status == 204
    assert rest.put(f"persistent/{events}/compaction").status == 204
    eventually(lambda: rest.get(f"persistent/{events}/compaction").json["status"], "SUCCESS")
    oldest = rest.get(f"persistent/{events}/internalStats").json["ledgers"][0]["ledgerId"]
    # Its ledger is closed, another one begins, and what is compacted goes.
    cluster.move(events, "apache")
    assert rest.post(f"persistent/{topics[0]}/maxConsumers", 9).status == 204

    def is_trimmed() -> bool:
        rest.post(f"persistent/{events}/trim")
        ledgers = [one["ledgerId"] for one in rest.get(f"persistent/{events}/internalStats").json["ledgers"]]
        return oldest not in ledgers

    eventually(is_trimmed, True)
    cluster.move(events, "geminga")
    for make in MAKES:
        found = [cluster.rest(make).get(f"persistent/{topic}/maxProducers").json for topic in topics]
        assert found == [5, 6, 7]
        assert cluster.rest(make).get(f"persistent/{topics[0]}/maxConsumers").json == 9
    cluster.move(topics[1], "geminga")
    assert cluster.owner(topics[1]) == "geminga"
    assert cluster.rest("geminga").get(f"persistent/{topics[1]}/maxProducers").json == 6


@pytest.mark.parametrize("first", MAKES)
def test_schemas_of_one_make_are_kept_to_and_added_to_by_the_other(
    first: Make, cluster: MixedCluster, namespace: str, client: pulsar.Client
) -> None:
    topic = placed(cluster, namespace, first)
    name, second = f"persistent://{topic}", MAKES[first == MAKES[0]]
    client.create_producer(name, schema=AvroSchema(Fact)).send(Fact(name="a"))
    cluster.move(topic, second)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(name, schema=AvroSchema(OtherFact))
    # Known already: no version more.
    client.create_producer(name, schema=AvroSchema(Fact)).send(Fact(name="b"))
    client.create_producer(name, schema=AvroSchema(LongFact)).send(LongFact(name="c", size=3))
    cluster.move(topic, first)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(name, schema=AvroSchema(OtherFact))
    consumer = client.subscribe(
        name, "s", schema=AvroSchema(LongFact), initial_position=pulsar.InitialPosition.Earliest
    )
    found = [consumer.receive(RECEIVE_MS).value() for _ in range(3)]
    assert [(one.name, one.size) for one in found] == [("a", None), ("b", None), ("c", 3)]
    for asked in MAKES:
        versions = cluster.rest(asked).get(f"schemas/{topic}/schemas").json["getSchemaResponses"]
        assert [one["version"] for one in versions] == [0, 1]


@pytest.mark.parametrize("first", MAKES)
def test_what_one_make_stored_is_a_duplicate_at_the_other(
    first: Make, cluster: MixedCluster, namespace: str, client: pulsar.Client
) -> None:
    assert cluster.rest(first).post(f"namespaces/{namespace}/deduplication", True).status == 204
    topic = placed(cluster, namespace, first)
    name = f"persistent://{topic}"

    def publish(numbers: range, **options: Any) -> None:
        producer = client.create_producer(name, producer_name="p", send_timeout_millis=0, **options)
        for number in numbers:
            producer.send_async(b"%d" % number, lambda _result, _id: None, sequence_id=number)
        producer.flush()
        producer.close()

    consumer = client.subscribe(name, "s", initial_position=pulsar.InitialPosition.Earliest)
    publish(range(1, 51), batching_enabled=False)
    for round_number, make in enumerate((MAKES[first == MAKES[0]], first, MAKES[first == MAKES[0]]), start=1):
        cluster.move(topic, make)
        # All of before once more, and ten new ones.
        publish(range(1, 51 + 10 * round_number), batching_enabled=round_number == 2)
    found = [int(consumer.receive(RECEIVE_MS).data()) for _ in range(80)]
    assert found == list(range(1, 81))
    with pytest.raises(pulsar.Timeout):
        consumer.receive(QUIET_MS)


@pytest.mark.parametrize("batched", [False, True])
def test_what_one_make_compacted_the_other_reads_and_compacts_on(
    cluster: MixedCluster, namespace: str, client: pulsar.Client, batched: bool
) -> None:
    topic = placed(cluster, namespace, "geminga", f"compacted-{batched}")
    name = f"persistent://{topic}"
    producer = client.create_producer(name, batching_enabled=batched, batching_max_publish_delay_ms=50)

    def publish(numbers: range, *deleted: str) -> None:
        for number in numbers:
            producer.send_async(b"%d" % number, lambda *_: None, partition_key=str(number % 3))
        producer.flush()
        for key in deleted:
            producer.send(b"", partition_key=key)

    def compact(make: Make) -> None:
        rest = cluster.rest(make)
        assert rest.put(f"persistent/{topic}/compaction").status == 204
        eventually(lambda: rest.get(f"persistent/{topic}/compaction").json["status"], "SUCCESS")

    def compacted() -> list[bytes]:
        consumer = client.subscribe(
            name,
            f"r{next(_numbers)}",
            is_read_compacted=True,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        found = []
        try:
            while True:
                found.append(consumer.receive(QUIET_MS).data())
        except pulsar.Timeout:
            consumer.unsubscribe()
        # The official client passes on what Apache's broker left out of a batch, empty.
        return [one for one in found if one]

    publish(range(30))
    compact("geminga")
    assert compacted() == [b"27", b"28", b"29"]
    cluster.move(topic, "apache")
    assert compacted() == [b"27", b"28", b"29"]
    publish(range(30, 31), "2")
    compact("apache")
    assert compacted() == [b"28", b"30"]
    cluster.move(topic, "geminga")
    assert compacted() == [b"28", b"30"]
    publish(range(31, 33))
    assert compacted() == [b"28", b"30", b"31", b"32"]
    compact("geminga")
    assert compacted() == [b"30", b"31", b"32"]


# ---- transactions


def our_options(cluster: MixedCluster) -> gc.ClientArguments:
    """The same as of official clients."""
    if cluster.security is None:
        return {}
    told = cluster.client_options
    return {
        "tls_trust_certs_file_path": told["tls_trust_certs_file_path"],
        "authentication": gc.AuthenticationToken(lambda: token_of(LOAD, TOKEN_S)),
    }


def run(cluster: MixedCluster, story: Callable[[gc.Client], Awaitable[None]]) -> None:
    async def main() -> None:
        ours = gc.connect(cluster.service_url, operation_timeout_ms=20_000, **our_options(cluster))
        async with asyncio.timeout(200), ours:
            await story(ours)

    asyncio.run(main())


async def moved(cluster: MixedCluster, topic: str, make: Make) -> None:
    await asyncio.to_thread(cluster.move, topic, make)
    assert await asyncio.to_thread(cluster.owner, topic) == make


async def everything(client: gc.Client, topic: str) -> list[bytes]:
    found = []
    async with client.create_reader(f"persistent://{topic}", gc.MessageId.earliest) as reader:
        while await reader.has_message_available():
            found.append((await reader.read_next(RECEIVE_MS)).data())
    return found


@pytest.mark.parametrize("snapshots", MAKES)
def test_transactions_span_topics_of_both_makes_whoever_has_the_snapshots(
    snapshots: Make, cluster: MixedCluster, namespace: str
) -> None:
    cluster.owner(f"{namespace}/__transaction_buffer_snapshot")
    cluster.move(f"{namespace}/__transaction_buffer_snapshot", snapshots)
    topics = [placed(cluster, namespace, make) for make in MAKES]

    async def story(client: gc.Client) -> None:
        producers = [await client.create_producer(f"persistent://{topic}") for topic in topics]
        # More than one for each coordinator, each of which is at one of the brokers.
        for number in range(4 * COORDINATORS):
            txn = await client.transaction()
            for producer in producers:
                await producer.send(b"%d" % number, txn=txn)
            await (txn.commit() if number % 2 else txn.abort())
        expected = [b"%d" % number for number in range(1, 4 * COORDINATORS, 2)]
        for topic in topics:
            assert await everything(client, topic) == expected
        # What is aborted stays so where the other make goes on.
        for topic, make in zip(topics, reversed(MAKES), strict=True):
            await moved(cluster, topic, make)
            assert await everything(client, topic) == expected
        await moved(cluster, f"{namespace}/__transaction_buffer_snapshot", MAKES[snapshots == MAKES[0]])
        for topic, make in zip(topics, MAKES, strict=True):
            await moved(cluster, topic, make)
            assert await everything(client, topic) == expected

    run(cluster, story)


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("first", MAKES)
def test_open_transaction_is_held_back_and_ended_where_the_topic_has_gone(
    first: Make, is_committed: bool, cluster: MixedCluster, namespace: str
) -> None:
    topic, second = placed(cluster, namespace, first), MAKES[first == MAKES[0]]
    name = f"persistent://{topic}"

    async def story(client: gc.Client) -> None:
        producer = await client.create_producer(name)
        consumer = await client.subscribe(
            name, "s", consumer_type=gc.ConsumerType.Shared, initial_position=gc.InitialPosition.Earliest
        )
        for each in (b"zero", b"one"):
            await producer.send(each)
        zero = await consumer.receive(RECEIVE_MS)
        assert zero.data() == b"zero"
        txn = await client.transaction(120.0)
        await producer.send(b"two", txn=txn)
        await producer.send(b"three")
        await consumer.acknowledge(zero, txn=txn)
        await consumer.close()
        await moved(cluster, topic, second)
        # Neither what is open, nor what lies behind it, nor what is acknowledged in it.
        assert await everything(client, topic) == [b"zero", b"one"]
        consumer = await client.subscribe(name, "s", consumer_type=gc.ConsumerType.Shared)
        assert await received(consumer, 1) == [b"one"]
        await (txn.commit() if is_committed else txn.abort())
        ended = [b"two", b"three"] if is_committed else [b"three"]
        expected = ended if is_committed else [b"zero", *ended]
        assert await received(consumer, len(expected)) == expected
        await consumer.close()
        await moved(cluster, topic, first)
        assert await everything(client, topic) == [b"zero", b"one", *ended]

    run(cluster, story)


async def received(consumer: gc.Consumer[bytes], count: int) -> list[bytes]:
    """All that comes, in any order, of which so many are waited for; all of it is acknowledged."""
    found: list[bytes] = []
    while True:
        try:
            message = await consumer.receive(RECEIVE_MS if len(found) < count else QUIET_MS)
        except gc.Timeout:
            return sorted(found, key=[b"zero", b"one", b"two", b"three"].index)
        found.append(message.data())
        await consumer.acknowledge(message)


@pytest.mark.parametrize("first", MAKES)
def test_coordinators_of_one_make_end_what_began_at_the_other(
    first: Make, cluster: MixedCluster, namespace: str
) -> None:
    topics = [placed(cluster, namespace, make) for make in MAKES]
    coordinators = [f"pulsar/system/transaction_coordinator_assign-partition-{n}" for n in range(COORDINATORS)]

    async def story(client: gc.Client) -> None:
        for one in coordinators:
            await moved(cluster, one, first)
        producers = [await client.create_producer(f"persistent://{topic}") for topic in topics]
        open_ones = []
        for number in range(2 * COORDINATORS):
            txn = await client.transaction(120.0)
            for producer in producers:
                await producer.send(b"%d" % number, txn=txn)
            open_ones.append(txn)
        for one in coordinators:
            await moved(cluster, one, MAKES[first == MAKES[0]])
        for number, txn in enumerate(open_ones):
            await (txn.commit() if number % 2 else txn.abort())
        for topic in topics:
            assert await everything(client, topic) == [b"%d" % number for number in range(1, 2 * COORDINATORS, 2)]

    run(cluster, story)


def test_bundle_goes_where_it_is_sent_also_while_geminga_leads(cluster: MixedCluster, namespace: str) -> None:
    """The last of all, for the broker that led is another one afterwards."""
    apache = cluster.brokers["apache"]
    apache.kill()

    def leader() -> object:
        found = cluster.rest("geminga").get("brokers/leaderBroker").json
        return found["brokerId"] if found else None

    eventually(leader, cluster.id("geminga"))
    apache.start()
    assert leader() == cluster.id("geminga")
    topic = f"{namespace}/sent"
    cluster.owner(topic)
    # Nobody else asks for it: it goes there at once.
    for make, asked in itertools.product((*MAKES, *MAKES), MAKES):
        assert cluster.ask_move(topic, make, asked=asked).status == 204
        assert [cluster.owner(topic, each) for each in MAKES] == [make, make]


def test_settings_that_are_changed_at_either_broker_are_followed_by_both(cluster: MixedCluster) -> None:
    key, path = "maxTopicsPerNamespace", "brokers/configuration"

    def runtime() -> list[str]:
        return [cluster.rest(make).get(f"{path}/runtime").json[key] for make in MAKES]

    before = runtime()
    for asked, value in zip(MAKES, ("4711", "4712"), strict=True):
        assert cluster.rest(asked).post(f"{path}/{key}/{value}").status in (200, 204)
        eventually(runtime, [value, value])
        assert [cluster.rest(make).get(f"{path}/values").json[key] for make in MAKES] == [value, value]
    # What is Apache's alone stays, and what is no good here holds up nothing.
    assert cluster.rest("apache").post(f"{path}/maxTenants/4711").status in (200, 204)
    assert cluster.rest("apache").post(f"{path}/dispatcherMaxReadBatchSize/0").status in (200, 204)
    assert cluster.rest("geminga").post(f"{path}/{key}/4713").status == 200
    eventually(runtime, ["4713", "4713"])
    assert cluster.rest("apache").get(f"{path}/runtime").json["maxTenants"] == "4711"
    assert cluster.rest("geminga").get(f"{path}/runtime").json["dispatcherMaxReadBatchSize"] == "100"
    for asked, gone in (("geminga", key), ("geminga", "maxTenants"), ("apache", "dispatcherMaxReadBatchSize")):
        assert cluster.rest(asked).delete(f"{path}/{gone}").status in (200, 204)  # type: ignore[arg-type]
    eventually(runtime, before)
    assert [cluster.rest(make).get(f"{path}/values").json for make in MAKES] == [{}, {}]


def test_subscriptions_of_a_namespace_are_cleared_and_deleted_at_brokers_of_both_makes(
    cluster: MixedCluster, namespace: str, client: pulsar.Client
) -> None:
    topics = [placed(cluster, namespace, make) for make in MAKES]
    for topic in topics:
        for subscription in ("s/1", "kept"):
            client.subscribe(f"persistent://{topic}", subscription).close()
        client.create_producer(f"persistent://{topic}").send(b"one")

    def backlogs(subscription: str) -> list[int | None]:
        every = [cluster.rest("geminga").get(f"persistent/{topic}/stats").json["subscriptions"] for topic in topics]
        return [stats[subscription]["msgBacklog"] if subscription in stats else None for stats in every]

    rest = cluster.rest("geminga")
    assert rest.post(f"namespaces/{namespace}/clearBacklog/s%2F1").status == 204
    assert (backlogs("s/1"), backlogs("kept")) == ([0, 0], [1, 1])
    assert rest.post(f"namespaces/{namespace}/unsubscribe/s%2F1").status == 204
    assert (backlogs("s/1"), backlogs("kept")) == ([None, None], [1, 1])
    assert rest.post(f"namespaces/{namespace}/clearBacklog").status == 204
    assert backlogs("kept") == [0, 0]
