"""64 bundles under uneven load on one broker, then two more join: how evenly they share it, round by round.

Load is what the official client was acknowledged and delivered in the last seconds of a round, of each topic, added up
by the broker that has it. What the bookies stored is set against what was published: moves copy nothing.
"""

from __future__ import annotations

import random
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pulsar

from geminga.broker.ownership.core.bundles import equal_bundles, topic_hash
from tools.balance.administration import ask, topics_of
from tools.chaos.cluster import Cluster

NAMESPACE: Final = "public/shedding"
BUNDLES: Final = 64
#: Messages a second, of all topics together.
MESSAGES_PER_S: Final = 600
COPIES: Final = 2
#: Of the rates that brokers report: a window of 30 s, and the report behind it.
WARM_S: Final = 45.0
ROUND_S: Final = 60.0
#: The end of a round in which its load is counted.
COUNTED_S: Final = 15.0
GOAL: Final = 1.2
#: docs/load-balancing.md says why these.
BALANCED: Final[Mapping[str, object]] = {
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder",
    "loadBalancerMsgRateDifferenceShedderThreshold": 10,
    "loadBalancerMsgThroughputMultiplierDifferenceShedderThreshold": 1.1,
    "maxUnloadPercentage": 0.5,
    "minUnloadMessage": 1,
    "minUnloadMessageThroughput": 1,
    "loadBalancerDistributeBundlesEvenlyEnabled": "false",
    "loadBalancerSheddingIntervalMinutes": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 1000,
}
SETTINGS: Final[Mapping[str, object]] = {
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": COPIES,
    "managedLedgerDefaultAckQuorum": COPIES,
    **BALANCED,
}

#: How much each bundle carries, in parts of nothing in particular.
PATTERNS: Final[Mapping[str, Callable[[random.Random], list[float]]]] = {
    "one to ten": lambda rng: [rng.uniform(1, 10) for _ in range(BUNDLES)],
    "exponential": lambda rng: [rng.expovariate(1) for _ in range(BUNDLES)],
    "zipf": lambda rng: [1 / (rank + 1) for rank in rng.sample(range(BUNDLES), BUNDLES)],
}


class Count(NamedTuple):
    """Messages and bytes."""

    messages: int = 0
    bytes: int = 0


class Topic:
    """One bundle's topic: what is published to it, and what of it came back."""

    def __init__(self, name: str, messages_per_s: float, size_bytes: int) -> None:
        self.name = name
        self.every_s = 1 / messages_per_s
        self.payload = bytes(size_bytes)
        self.next_s = 0.0
        self.producer: pulsar.Producer | None = None
        #: Acknowledged by the broker, and delivered to the consumer.
        self.published = 0
        self.delivered = 0

    @property
    def count(self) -> Count:
        """In and out together."""
        messages = self.published + self.delivered
        return Count(messages, messages * len(self.payload))

    def answered(self, result: pulsar.Result, _: pulsar.MessageId) -> None:
        """A receipt."""
        if result == pulsar.Result.Ok:
            self.published += 1

    def got(self, consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        """A message."""
        self.delivered += 1
        consumer.acknowledge(message)


class Traffic(threading.Thread):
    """Publishes to all topics, each at its rate."""

    def __init__(self, client: pulsar.Client, topics: list[Topic]) -> None:
        super().__init__(daemon=True)
        self._topics = topics
        self._stop_asked = threading.Event()
        for topic in topics:
            client.subscribe(topic.name, "sub", message_listener=topic.got)
            topic.producer = client.create_producer(topic.name, send_timeout_millis=0, batching_enabled=False)

    def run(self) -> None:
        start = time.monotonic()
        for topic in self._topics:
            topic.next_s = start
        while not self._stop_asked.is_set():
            now = time.monotonic()
            for topic in self._topics:
                while topic.next_s <= now:
                    topic.next_s += topic.every_s
                    assert topic.producer is not None
                    topic.producer.send_async(topic.payload, topic.answered)
            self._stop_asked.wait(0.01)

    def stop(self) -> None:
        """Publish no more, and wait for what is under way."""
        self._stop_asked.set()
        self.join()
        for topic in self._topics:
            assert topic.producer is not None
            topic.producer.flush()


def topics_of_load(pattern: str, seed: int) -> list[Topic]:
    """One for each bundle."""
    rng = random.Random(seed)
    weights = PATTERNS[pattern](rng)
    total = sum(weights)
    found = []
    for number, (bundle, weight) in enumerate(zip(equal_bundles(NAMESPACE, BUNDLES).all(), weights, strict=True)):
        names = (f"persistent://{NAMESPACE}/load-{number}-{attempt}" for attempt in range(100_000))
        name = next(name for name in names if bundle.has_hash(topic_hash(name)))
        found.append(Topic(name, max(0.05, MESSAGES_PER_S * weight / total / 2), rng.randrange(500, 1500)))
    return found


def run(directory: Path, *, seed: int, pattern: str, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """All of it; what was found. ``say`` gets a line for each round."""
    cluster = Cluster(
        directory,
        bookies=3,
        brokers=3,
        session_ms=6000,
        broker_settings=SETTINGS,
        bookie_settings={"httpServerEnabled": "true", "httpServerPort": 0},
    )
    log = directory / "client.log"
    try:
        cluster.start(is_whole=False)
        ask(cluster.broker.web_url, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {"bundles": {"numBundles": BUNDLES}})
        topics = topics_of_load(pattern, seed)
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(log))
        client = pulsar.Client(cluster.broker.service_url, logger=logger)
        traffic = Traffic(client, topics)
        traffic.start()
        alone = _Stored(cluster, topics)
        threading.Event().wait(WARM_S)
        before = alone.per_copy()
        watch = _Watch(cluster, topics, log)
        cluster.start_rest()
        told = [watch.round(number, say) for number in range(rounds)]
        traffic.stop()
        return {"seed": seed, "pattern": pattern, **watch.found(told), "storedPerCopyBefore": before, **BALANCED}
    finally:
        cluster.close()


class _Watch:
    """What happens from the moment at which two brokers join."""

    def __init__(self, cluster: Cluster, topics: list[Topic], log: Path) -> None:
        self._cluster = cluster
        self._topics = topics
        self._log = log
        self._owners = self._owners_now()
        self._reconnections = self._lines("Schedule reconnection")
        self._stored = _Stored(cluster, topics)
        self._rounds: list[dict[str, Any]] = []

    def round(self, number: int, say: Callable[[str], None]) -> float:
        """Wait for its end; the largest load of a broker, in parts of the mean."""
        threading.Event().wait(ROUND_S - COUNTED_S)
        before = {topic.name: topic.count for topic in self._topics}
        threading.Event().wait(COUNTED_S)
        owners = self._owners_now()
        loads = dict.fromkeys(self._cluster.brokers, Count())
        for topic in self._topics:
            then, now = before[topic.name], topic.count
            owner = owners.get(topic.name)
            if owner is not None:
                had = loads[owner]
                loads[owner] = Count(had.messages + now.messages - then.messages, had.bytes + now.bytes - then.bytes)
        moved = sum(owners.get(name) != owner for name, owner in self._owners.items())
        reconnections = self._lines("Schedule reconnection")
        worst = max(_worst([one.messages for one in loads.values()]), _worst([one.bytes for one in loads.values()]))
        shares = "; ".join(
            f"{name} {load.messages / COUNTED_S:.0f} messages/s {load.bytes / COUNTED_S / 1000:.0f} kB/s"
            for name, load in loads.items()
        )
        say(
            f"round {number + 1}: {moved} bundles moved, {reconnections - self._reconnections} reconnections; "
            f"{shares}; {worst:.2f} x the mean"
        )
        self._rounds.append({"moved": moved, "reconnections": reconnections - self._reconnections, "worst": worst})
        self._owners, self._reconnections = owners, reconnections
        return worst

    def found(self, worst: list[float]) -> dict[str, Any]:
        """Of all rounds."""
        moved = sum(one["moved"] for one in self._rounds)
        reconnections = sum(one["reconnections"] for one in self._rounds)
        return {
            "rounds": len(worst),
            "evenFromRound": next((n + 1 for n in range(len(worst)) if max(worst[n:]) <= GOAL), 0),
            "worstAtEnd": round(worst[-1], 3),
            "moves": moved,
            # Each topic has a producer and a consumer, and each of them reconnects by itself.
            "reconnectionsPerMove": round(reconnections / 2 / moved, 3) if moved else 0.0,
            "storedPerCopy": self._stored.per_copy(),
            # Acknowledgments that were under way as a topic moved are lost, as in Pulsar.
            "deliveredAgain": sum(topic.delivered - topic.published for topic in self._topics),
        }

    def _owners_now(self) -> dict[str, str]:
        return {
            topic: name
            for name, broker in self._cluster.brokers.items()
            if broker.is_running
            for topic in topics_of(broker.web_url, NAMESPACE)
        }

    def _lines(self, text: str) -> int:
        return self._log.read_text(encoding="utf-8", errors="replace").count(text)


class _Stored:
    """What bookies wrote from now on, for whatever reason, in parts of what was published."""

    def __init__(self, cluster: Cluster, topics: list[Topic]) -> None:
        self._cluster = cluster
        self._topics = topics
        self._stored = self._stored_bytes()
        self._published = self._published_bytes()

    def per_copy(self) -> float:
        """Entries are larger than payloads, and cursors are stored as well: somewhat above 1."""
        stored, published = self._stored_bytes() - self._stored, self._published_bytes() - self._published
        return round(stored / published / COPIES, 3)

    def _published_bytes(self) -> int:
        return sum(topic.published * len(topic.payload) for topic in self._topics)

    def _stored_bytes(self) -> int:
        found = 0
        for bookie in self._cluster.bookies.values():
            url = f"http://127.0.0.1:{bookie.ready['httpPort']}/metrics"
            with urllib.request.urlopen(url, timeout=10) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(("bookie_WRITE_BYTES", "bookie_compacted_bytes")):
                        found += int(float(line.rpartition(" ")[2]))
        return found


def _worst(loads: list[int]) -> float:
    """The largest, in parts of the mean."""
    return max(loads) * len(loads) / (sum(loads) or 1)
