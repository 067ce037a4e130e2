"""What happens to topics, told to any broker by the official client, and its statistics after each step.

Topics have the same names on every broker, so that what they answer can be laid side by side.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pulsar
from pulsar import ConsumerType, InitialPosition

from support.house.json_differences import names
from support.worlds.rest import Rest

NAMESPACE: Final = "public/statistics"
#: Names of statistics as Apache's broker has them, by place.
RECORD: Final = Path(__file__).resolve().parents[2] / "samples" / "statistics-names-4.2.4.json"
#: Objects whose names are what users called things.
KEYED_BY_USERS: Final = frozenset(
    (
        "subscriptions",
        "cursors",
        "partitions",
        "properties",
        "metadata",
        "subscriptionProperties",
        "consumersAfterMarkDeletePosition",
        "replication",
    )
)
MESSAGES: Final = 10
RECEIVE_MS: Final = 10_000
#: Until something that the broker does in the background has happened.
SETTLE_S: Final = 10.0

#: (what was asked) -> the answer.
Told = dict[str, Any]
EARLIEST = InitialPosition.Earliest


class Teller:
    """One broker: tells it a story, and asks for the statistics of the story's topic."""

    def __init__(self, client: pulsar.Client, rest: Rest, namespace: str = NAMESPACE) -> None:
        self.client = client
        self.rest = rest
        self.namespace = namespace
        #: By story, step and kind of statistics.
        self.told: Told = {}

    def prepare(self) -> None:
        """The namespace of the stories."""
        assert self.rest.put(f"namespaces/{self.namespace}").status == 204

    def topic(self, name: str, domain: str = "persistent") -> str:
        """Its full name."""
        return f"{domain}://{self.namespace}/{name}"

    def ask(self, name: str, step: str, domain: str = "persistent", *, is_partitioned: bool = False) -> None:
        """Everything the broker tells of the topic."""
        path = f"{domain}/{self.namespace}/{name}"
        if is_partitioned:
            kinds = ["partitioned-stats", "partitioned-internalStats", "internal-info"]
        else:
            kinds = ["stats", "internalStats", "internal-info"]
        for kind in kinds if domain == "persistent" else kinds[:-1]:
            query = "?getEarliestTimeInBacklog=true&subscriptionBacklogSize=true" if kind.endswith("stats") else ""
            answer = self.rest.get(f"{path}/{kind}{query}")
            assert answer.status == 200, (kind, answer)
            self.told[f"{name}, {step}: {kind}"] = answer.json

    def produce(self, name: str, domain: str = "persistent", **options: Any) -> pulsar.Producer:
        """A producer ``p`` that has sent :data:`MESSAGES` messages under three keys, one by one unless batched."""
        options = {"batching_enabled": False, "producer_name": "p", **options}
        producer = self.client.create_producer(self.topic(name, domain), **options)
        for index in range(MESSAGES):
            producer.send_async(b"x" * 100, None, partition_key=f"k{index % 3}")
        producer.flush()
        return producer

    def subscribe(
        self, name: str, kind: ConsumerType = ConsumerType.Shared, domain: str = "persistent"
    ) -> pulsar.Consumer:
        """A consumer ``c`` of the subscription ``s``, from the beginning."""
        topic = self.topic(name, domain)
        return self.client.subscribe(topic, "s", kind, initial_position=EARLIEST, consumer_name="c")

    def until(self, path: str, holds: Callable[[Any], bool]) -> None:
        """Ask until the answer is as wanted: acknowledgments and receipts are told of a little later."""
        deadline = time.monotonic() + SETTLE_S
        while not holds(answer := self.rest.get(path).json):
            assert time.monotonic() < deadline, (path, answer)
            time.sleep(0.05)

    def until_stats(self, name: str, holds: Callable[[Any], bool], domain: str = "persistent") -> None:
        """As :meth:`until`, of the topic's statistics."""
        self.until(f"{domain}/{self.namespace}/{name}/stats", holds)

    def until_sent(
        self, name: str, count: int = MESSAGES, domain: str = "persistent", *, is_partitioned: bool = False
    ) -> None:
        """As :meth:`until`: ``count`` messages are counted as sent, each time one was sent.

        Apache's broker counts a message once it is written to the connection: whoever received it may ask before that.
        """
        kind = "partitioned-stats" if is_partitioned else "stats"
        self.until(f"{domain}/{self.namespace}/{name}/{kind}", lambda stats: stats["msgOutCounter"] >= count)

    def until_permitted(self, name: str, domain: str = "persistent") -> None:
        """As :meth:`until`: the consumer's first permits have come; it is subscribed before it sends them."""
        self.until_stats(name, lambda stats: stats["subscriptions"]["s"]["consumers"][0]["availablePermits"], domain)


def _receive(consumer: pulsar.Consumer, count: int = MESSAGES) -> list[pulsar.Message]:
    return [consumer.receive(RECEIVE_MS) for _ in range(count)]


def _place(message: pulsar.Message) -> tuple[int, int]:
    return message.message_id().partition(), message.message_id().entry_id()


def fresh(teller: Teller) -> None:
    """A topic that nobody used, then with a producer that sent nothing."""
    assert teller.rest.put(f"persistent/{teller.namespace}/fresh").status == 204
    teller.ask("fresh", "created")
    teller.client.create_producer(teller.topic("fresh"), producer_name="p")
    teller.ask("fresh", "with a producer")


def exclusive(teller: Teller) -> None:
    """Published, read, acknowledged in part, left alone."""
    producer = teller.produce("exclusive", properties={"key": "value"})
    teller.ask("exclusive", "produced")
    consumer = teller.subscribe("exclusive", ConsumerType.Exclusive)
    messages = _receive(consumer)
    teller.until_sent("exclusive")
    teller.ask("exclusive", "received")
    for message in messages[:4]:
        consumer.acknowledge(message)
    teller.until_stats("exclusive", lambda stats: stats["subscriptions"]["s"]["msgBacklog"] == 6)
    teller.ask("exclusive", "acknowledged in part")
    consumer.close()
    producer.close()
    path = f"persistent/{teller.namespace}/exclusive/stats"
    teller.until(path, lambda stats: not (stats["publishers"] or stats["subscriptions"]["s"]["consumers"]))
    teller.ask("exclusive", "left alone")


def _individual(teller: Teller, name: str, kind: ConsumerType) -> None:
    consumer = teller.subscribe(name, kind)
    teller.until_permitted(name)
    teller.ask(name, "before the first message")
    producer = teller.produce(name)
    messages = _receive(consumer)
    teller.until_sent(name)
    teller.ask(name, "received")
    for index in (0, 4, 5):
        consumer.acknowledge(messages[index])
    teller.until_stats(name, lambda stats: stats["subscriptions"]["s"]["msgBacklog"] == 7)
    teller.ask(name, "acknowledged with holes")
    consumer.redeliver_unacknowledged_messages()
    _receive(consumer, 7)
    teller.until_sent(name, MESSAGES + 7)
    teller.ask(name, "redelivered")
    assert teller.rest.put(f"persistent/{teller.namespace}/{name}/unload").status == 204
    connected: Callable[[Any], bool] = lambda stats: bool(  # noqa: E731
        stats.get("publishers") and stats["subscriptions"]["s"]["consumers"]
    )
    teller.until_stats(name, connected)
    _receive(consumer, 7)
    teller.ask(name, "connected again")
    producer.close()
    consumer.close()


def shared(teller: Teller) -> None:
    """Acknowledged one by one, redelivered, unloaded."""
    _individual(teller, "shared", ConsumerType.Shared)


def key_shared(teller: Teller) -> None:
    """The same, by key."""
    _individual(teller, "key-shared", ConsumerType.KeyShared)


def failover(teller: Teller) -> None:
    """The same, one consumer at a time."""
    _individual(teller, "failover", ConsumerType.Failover)


def batches(teller: Teller) -> None:
    """One entry of many messages, acknowledged in part."""
    consumer = teller.subscribe("batches")
    teller.produce("batches", batching_enabled=True, batching_max_publish_delay_ms=1000)
    messages = _receive(consumer)
    teller.until_sent("batches")
    teller.ask("batches", "received")
    for message in messages:
        consumer.acknowledge(message)
    teller.until_stats("batches", lambda stats: stats["subscriptions"]["s"]["msgBacklog"] == 0)
    teller.ask("batches", "acknowledged")


def delayed(teller: Teller) -> None:
    """Messages that wait for their time."""
    teller.subscribe("delayed")
    producer = teller.client.create_producer(teller.topic("delayed"), producer_name="p", batching_enabled=False)
    for _ in range(MESSAGES):
        producer.send(b"x", deliver_after=timedelta(hours=1))
    teller.until_stats("delayed", lambda stats: stats["subscriptions"]["s"]["msgDelayed"] == MESSAGES)
    teller.ask("delayed", "waiting")


def partitioned(teller: Teller) -> None:
    """Three partitions, unused and used."""
    assert teller.rest.put(f"persistent/{teller.namespace}/partitioned/partitions", 3).status == 204
    teller.ask("partitioned", "created", is_partitioned=True)
    consumer = teller.subscribe("partitioned")
    teller.produce("partitioned")
    for message in sorted(_receive(consumer), key=_place)[:4]:
        consumer.acknowledge(message)
    path = f"persistent/{teller.namespace}/partitioned/partitioned-stats"
    teller.until(path, lambda stats: stats["subscriptions"]["s"]["msgBacklog"] == MESSAGES - 4)
    teller.until_sent("partitioned", is_partitioned=True)
    teller.ask("partitioned", "used", is_partitioned=True)


def not_stored(teller: Teller) -> None:
    """A non-persistent topic."""
    consumer = teller.subscribe("lost", domain="non-persistent")
    teller.until_permitted("lost", "non-persistent")
    teller.ask("lost", "before the first message", "non-persistent")
    teller.produce("lost", "non-persistent")
    _receive(consumer)
    teller.until_sent("lost", domain="non-persistent")
    teller.ask("lost", "received", "non-persistent")


def not_stored_partitions(teller: Teller) -> None:
    """Its partitions."""
    assert teller.rest.put(f"non-persistent/{teller.namespace}/lost-partitions/partitions", 2).status == 204
    consumer = teller.subscribe("lost-partitions", domain="non-persistent")
    teller.produce("lost-partitions", "non-persistent")
    _receive(consumer)
    teller.until_sent("lost-partitions", domain="non-persistent", is_partitioned=True)
    teller.ask("lost-partitions", "received", "non-persistent", is_partitioned=True)


def terminated(teller: Teller) -> None:
    """Ended."""
    teller.produce("terminated").close()
    assert teller.rest.post(f"persistent/{teller.namespace}/terminated/terminate").status == 200
    teller.ask("terminated", "ended")


def read(teller: Teller) -> None:
    """By a Reader, whose subscription has a name of its own."""
    teller.produce("read")
    reader = teller.client.create_reader(
        teller.topic("read"), pulsar.MessageId.earliest, subscription_role_prefix="r", reader_name="r"
    )
    reader.read_next(RECEIVE_MS)
    teller.until_sent("read")
    teller.ask("read", "read")


def with_schema(teller: Teller) -> None:
    """With a schema."""
    producer = teller.client.create_producer(
        teller.topic("schema"), producer_name="p", schema=pulsar.schema.StringSchema()
    )
    producer.send("x")
    teller.ask("schema", "produced")


def with_properties(teller: Teller) -> None:
    """A topic, and a subscription, with properties."""
    assert teller.rest.put(f"persistent/{teller.namespace}/properties", {"key": "value"}).status == 204
    teller.subscribe("properties").close()
    path = f"persistent/{teller.namespace}/properties/subscription/s/properties"
    assert teller.rest.put(path, {"of": "the subscription"}).status == 204
    teller.ask("properties", "set")


def deduplicated(teller: Teller) -> None:
    """With deduplication."""
    teller.produce("deduplicated").close()
    assert teller.rest.post(f"persistent/{teller.namespace}/deduplicated/deduplicationEnabled", True).status == 204
    teller.until_stats("deduplicated", lambda stats: stats["deduplicationStatus"] == "Enabled")
    teller.ask("deduplicated", "switched on")


def with_quotas(teller: Teller) -> None:
    """With backlog quotas. The last story: they are the namespace's."""
    for kind, quota in (
        ("destination_storage", {"limitSize": 100_000, "limitTime": -1, "policy": "producer_request_hold"}),
        ("message_age", {"limitSize": -1, "limitTime": 3600, "policy": "producer_request_hold"}),
    ):
        path = f"namespaces/{teller.namespace}/backlogQuota?backlogQuotaType={kind}"
        assert teller.rest.post(path, quota).status == 204
    teller.subscribe("quotas").close()
    teller.produce("quotas")
    teller.ask("quotas", "produced")
    assert teller.rest.put(f"persistent/{teller.namespace}/quota-partitions/partitions", 2).status == 204
    teller.produce("quota-partitions")
    teller.ask("quota-partitions", "produced", is_partitioned=True)


STORIES: Final = (
    fresh,
    exclusive,
    shared,
    key_shared,
    failover,
    batches,
    delayed,
    partitioned,
    not_stored,
    not_stored_partitions,
    terminated,
    read,
    with_schema,
    with_properties,
    deduplicated,
    with_quotas,
)


def tell_all(teller: Teller) -> Told:
    """Every story; the answers."""
    teller.prepare()
    for story in STORIES:
        story(teller)
    return teller.told


def names_told(told: Told) -> dict[str, set[str]]:
    """Where -> the names of all objects there, over all stories; ``lost``: of topics that store nothing."""
    found: dict[str, set[str]] = defaultdict(set)
    for question, document in told.items():
        kind = question.rpartition(": ")[2]
        place = f"lost {kind}" if question.startswith("lost") else kind
        for path, name in names(document, KEYED_BY_USERS):
            found[f"{place}.{path}" if path else place].add(name)
    return dict(found)


def recorded_names() -> dict[str, set[str]]:
    """What Apache Pulsar 4.2.4 told of the same stories; ``make interop`` holds the record to the broker."""
    recorded: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8"))
    return {place: set(text.split()) for place, text in recorded.items()}
