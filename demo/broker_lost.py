"""One of several brokers is killed while events are published, and the others take over what it served.

A killed broker's topics are free once ZooKeeper ends its session. It starts again when they are taken over.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.error import URLError

from tools.chaos.cluster import BrokerProcess, Cluster

from demo.delivery import TOPIC, Publishing

#: Seconds until others serve all of it.
PATIENCE_S = 60.0
LOOK_S = 0.1


@dataclass(slots=True)
class BrokerLost:
    """What happened."""

    killed: str = ""
    #: Of the topic, that it served.
    partitions: int = 0
    #: From kill -9 on, until others serve all of them.
    taken_over_s: float = 0.0
    acknowledged_meanwhile: int = 0

    def failures(self) -> list[str]:
        """What shows nothing, as sentences."""
        return [] if self.partitions else [f"broker {self.killed} served nothing: its loss shows nothing"]


def lose_broker(cluster: Cluster, state: Publishing, partitions: int, say: Callable[[str], None]) -> BrokerLost:
    """Kill the broker that serves most partitions, and wait until others do. Raises OSError, TimeoutError."""
    owners = _owners(cluster.broker, partitions)
    victim, partitions_of_victim = _busiest(cluster, owners)
    lost = BrokerLost(victim.service_url, partitions_of_victim)
    say(f"partitions are served by {told(owners)}")
    acknowledged = len(state.acknowledged)
    started = time.monotonic()
    victim.kill()
    say(
        f"[bold red]kill -9[/] of broker {lost.killed} with {acknowledged:,} events acknowledged: "
        f"{lost.partitions} of {partitions} partitions have nobody"
    )
    survivor = next(broker for broker in cluster.brokers.values() if broker.is_running)
    owners = _taken_over(survivor, partitions, lost.killed, started + PATIENCE_S)
    lost.taken_over_s = time.monotonic() - started
    lost.acknowledged_meanwhile = len(state.acknowledged) - acknowledged
    say(
        f"partitions are served by {told(owners)}, {lost.taken_over_s:.1f} s later; "
        f"{lost.acknowledged_meanwhile:,} events were acknowledged meanwhile"
    )
    victim.start()
    say(f"broker {lost.killed} starts again, and joins")
    return lost


def told(owners: Mapping[int, str]) -> str:
    """Who serves which, in one line."""
    by_owner: dict[str, list[str]] = {}
    for partition, owner in sorted(owners.items()):
        by_owner.setdefault(owner, []).append(str(partition))
    return "; ".join(f"{owner}: {', '.join(numbers)}" for owner, numbers in sorted(by_owner.items()))


def _busiest(cluster: Cluster, owners: Mapping[int, str]) -> tuple[BrokerProcess, int]:
    served = Counter(owners.values())
    victim = max(cluster.brokers.values(), key=lambda broker: served[broker.service_url])
    return victim, served[victim.service_url]


def _owners(asked: BrokerProcess, partitions: int) -> dict[int, str]:
    """By partition, the service URL of its broker, as any broker tells it."""
    path = f"/lookup/v2/topic/{TOPIC.replace('://', '/')}-partition-"
    answers = {number: json.loads(asked.request("GET", f"{path}{number}")) for number in range(partitions)}
    return {number: str(answer["brokerUrl"]).rstrip("/") for number, answer in answers.items()}


def _taken_over(asked: BrokerProcess, partitions: int, killed: str, until: float) -> dict[int, str]:
    pause = threading.Event()
    while True:
        try:
            owners = _owners(asked, partitions)
        except (URLError, ConnectionError):
            owners = {0: killed}  # sent on to one that is gone
        if killed not in owners.values():
            return owners
        if time.monotonic() > until:
            raise TimeoutError(f"partitions of broker {killed} have nobody after {PATIENCE_S:.0f} s")
        pause.wait(LOOK_S)
