"""One of three brokers is killed: how long until each topic that has clients answers again, and from whom.

A topic answers when its producer, which was there before, has the receipt of a message that it sent after the kill,
and its consumer the message. Both are the official client's; it looks the topic up again by itself.

Topics without clients are looked at by an administrator from the moment of the kill, several at a time: their
statistics have to be had as well, but must not keep those with clients waiting.
"""

from __future__ import annotations

import threading
import time
import urllib.error
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pulsar

from tools.balance.administration import ask, broker_ids, topics_of
from tools.chaos.cluster import BrokerProcess, Cluster
from tools.chaos.plan import Fault

NAMESPACE: Final = "public/takeover"
CLUSTER: Final = "c"
BUNDLES: Final = 64
#: Topics of one client process's connection; several connections are as several machines.
CLIENTS: Final = 4
#: Producers that are made at the same time.
MAKERS: Final = 16
#: Topics without clients that are looked at, at the same time, and how long each waits to be asked for again: they
#: share a process with the clients.
LOOKERS: Final = 16
LOOK_AGAIN_S: Final = 0.5
POLL_S: Final = 0.05
SETTINGS: Final = {
    "managedLedgerDefaultEnsembleSize": 2,
    "managedLedgerDefaultWriteQuorum": 2,
    "managedLedgerDefaultAckQuorum": 2,
    # Those that nobody uses are to be there when they are looked at.
    "brokerDeleteInactiveTopicsEnabled": "false",
}


class Answers:
    """When each topic was heard of again."""

    def __init__(self) -> None:
        self.at_s: dict[str, float] = {}
        self.errors: Counter[str] = Counter()
        self._wanted = 0
        self._all = threading.Event()

    def expect(self, count: int) -> None:
        """So many topics are waited for."""
        self._wanted = count

    def heard(self, topic: str, result: pulsar.Result) -> None:
        """The receipt of its message, or what there was instead."""
        if result != pulsar.Result.Ok:
            self.errors[str(result)] += 1
            return
        self.at_s[topic] = time.monotonic()
        if len(self.at_s) >= self._wanted:
            self._all.set()

    def wait(self, timeout_s: float) -> bool:
        """Until all answered; False: not in time."""
        return self._all.wait(timeout_s)


def run(
    directory: Path,
    *,
    topics: int,
    used: int,
    session_ms: int,
    within_s: float,
    brokers: int = 3,
    settings: dict[str, object] | None = None,
) -> dict[str, Any]:
    """``used`` of ``topics`` have a producer and a consumer, the others nobody; what was found."""
    cluster = Cluster(
        directory,
        bookies=3,
        brokers=brokers,
        session_ms=session_ms,
        broker_settings={**SETTINGS, **(settings or {})},
    )
    clients: list[pulsar.Client] = []
    try:
        cluster.start()
        ask(cluster.broker.web_url, "PUT", f"/admin/v2/namespaces/{NAMESPACE}", {"bundles": {"numBundles": BUNDLES}})
        names = [f"persistent://{NAMESPACE}/topic-{number}" for number in range(topics)]
        logger = pulsar.FileLogger(pulsar.LoggerLevel.Info, str(directory / "client.log"))
        clients += [pulsar.Client(cluster.service_url, logger=logger) for _ in range(CLIENTS)]
        producers = _producers(clients, names, used)
        return _kill(cluster, producers, session_ms, within_s) | {"topics": topics, "used": used}
    finally:
        # Nothing is closed in good order: what is measured is over.
        cluster.close()


def _producers(clients: list[pulsar.Client], names: list[str], used: int) -> dict[str, pulsar.Producer]:
    producers: dict[str, pulsar.Producer] = {}

    def make(number: int) -> None:
        client, name = clients[number % len(clients)], names[number]
        if number < used:
            client.subscribe(name, "sub", message_listener=lambda consumer, message: consumer.acknowledge(message))
        producer = client.create_producer(name, send_timeout_millis=0, batching_enabled=False)
        producer.send(b"before")
        if number < used:
            producers[name] = producer
        else:
            producer.close()

    with ThreadPoolExecutor(MAKERS) as threads:
        list(threads.map(make, range(len(names))))
    return producers


def _kill(cluster: Cluster, producers: dict[str, pulsar.Producer], session_ms: int, within_s: float) -> dict[str, Any]:
    open_at = {name: topics_of(broker.web_url, NAMESPACE) for name, broker in cluster.brokers.items()}
    victim = max(open_at, key=lambda name: len(open_at[name] & producers.keys()))
    lost = open_at[victim] & producers.keys()
    unused = sorted(open_at[victim] - lost)
    others = {name: broker for name, broker in cluster.brokers.items() if name != victim}
    answers = Answers()
    answers.expect(len(lost))
    watched = _SessionEnd(next(iter(others.values())), len(others))
    cpu_before = {name: broker.cpu_seconds() for name, broker in others.items()}
    killed_at = time.monotonic()
    cluster.fail(Fault("kill", victim, 0, 0))
    watched.start()
    lookers = _Lookers(next(iter(others.values())).web_url, unused, killed_at + within_s)
    for topic in lost:
        producers[topic].send_async(b"after", lambda result, _, topic=topic: answers.heard(topic, result))
    is_whole = answers.wait(within_s)
    looked_at = lookers.wait()
    watched.join()
    cpu_s = {name: round(broker.cpu_seconds() - cpu_before[name], 2) for name, broker in others.items()}
    took = sorted(at - killed_at for at in answers.at_s.values())
    after = sorted(max(0.0, at - watched.ended_at) for at in answers.at_s.values())
    unused_took = sorted(at - killed_at for at in looked_at)
    held = {name: len(topics_of(broker.web_url, NAMESPACE) & lost) for name, broker in others.items()}
    return {
        "sessionMs": session_ms,
        "lost": len(lost),
        "answered": len(took),
        "isWhole": is_whole,
        "sessionEndedS": round(watched.ended_at - killed_at, 2),
        "p50S": _at(took, 0.50),
        "p99S": _at(took, 0.99),
        "lastS": _at(took, 1.0),
        "afterSessionP50S": _at(after, 0.50),
        "afterSessionP99S": _at(after, 0.99),
        "topicsPerS": round(len(after) / after[-1], 1) if after and after[-1] else 0.0,
        "unused": len(unused),
        "unusedAnswered": len(unused_took),
        "unusedP50S": _at(unused_took, 0.50),
        "unusedLastS": _at(unused_took, 1.0),
        "takenBy": held,
        "cpuS": cpu_s,
        "errors": dict(answers.errors),
    }


class _Lookers:
    """Ask for the statistics of topics that nobody uses, each until it answers."""

    def __init__(self, web_url: str, topics: Collection[str], until_s: float) -> None:
        self._web_url = web_url
        self._until_s = until_s
        self._pool = ThreadPoolExecutor(LOOKERS)
        self._asked = [self._pool.submit(self._ask, topic) for topic in topics]

    def wait(self) -> list[float]:
        """When those answered that did."""
        found = [one.result() for one in self._asked]
        self._pool.shutdown()
        return [at for at in found if at]

    def _ask(self, topic: str) -> float:
        path = topic.replace("://", "/")
        while time.monotonic() < self._until_s:
            try:
                ask(self._web_url, "GET", f"/admin/v2/{path}/stats")
                return time.monotonic()
            except (urllib.error.URLError, OSError):
                threading.Event().wait(LOOK_AGAIN_S)
        return 0.0


class _SessionEnd(threading.Thread):
    """When the killed broker left the list of the others, which is when its session ended."""

    def __init__(self, broker: BrokerProcess, left: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._left = left
        self.ended_at = 0.0

    def run(self) -> None:
        while len(broker_ids(self._broker.web_url, CLUSTER)) > self._left:
            threading.Event().wait(POLL_S)
        self.ended_at = time.monotonic()


def _at(values: list[float], part: float) -> float:
    """The value that this part of all is at or below; 0 of nothing."""
    return round(values[max(0, min(len(values) - 1, int(len(values) * part + 0.5) - 1))], 2) if values else 0.0
