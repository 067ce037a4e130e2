"""Which process fails when, how, and for how long: drawn from a seed. Pure.

One fault at a time: that is what the promise covers where an entry has two copies. What is away comes back before the
next fault, and everybody gets a moment to notice. Of several ZooKeeper servers now and then the leader is meant, or so
many that those left are no quorum.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

Kind = Literal["kill", "pause"]
BROKER: Final = "broker"
ZOOKEEPER: Final = "zookeeper"
#: Whoever of the ZooKeeper servers leads when the fault comes; and it with as many others as make up a majority.
ZOOKEEPER_LEADER: Final = "zookeeper-leader"
ZOOKEEPER_QUORUM: Final = "zookeeper-quorum"
#: Seconds of load before a fault.
BEFORE_S: Final = (0.3, 2.0)
#: Seconds that a process is away: half of the time shorter than anybody's patience, else longer than a session.
SHORT_S: Final = (0.1, 2.0)


class Fault(NamedTuple):
    """One round."""

    kind: Kind
    who: str
    #: Seconds of load before it.
    before_s: float
    #: Seconds until it is started again, or goes on.
    away_s: float


def plan(
    seed: int, rounds: int, bookies: int, session_s: float, *, brokers: int = 1, zookeepers: int = 1
) -> list[Fault]:
    """``rounds`` faults of a cluster with so many processes of each kind, whose sessions last ``session_s``."""
    rng = random.Random(seed)
    # Bookies are many; each other process has a good share all the same.
    who: Sequence[str] = [*map(bookie_name, range(bookies)), *(*map(broker_name, range(brokers)),) * (bookies // 2)]
    who = [*who, *zookeeper_faults(zookeepers, bookies // 2)]
    faults = []
    for _ in range(rounds):
        long_s = (session_s + 0.5, session_s * 1.5)
        away = SHORT_S if rng.random() < 0.5 else long_s
        kind: Kind = "kill" if rng.random() < 0.6 else "pause"
        faults.append(Fault(kind, rng.choice(who), rng.uniform(*BEFORE_S), rng.uniform(*away)))
    return faults


def zookeeper_faults(zookeepers: int, share: int) -> list[str]:
    """Who of ZooKeeper may fail, as often as it shall be drawn: ``share`` of one that is alone."""
    if zookeepers == 1:
        return [ZOOKEEPER] * share
    return [*map(zookeeper_name, range(zookeepers)), ZOOKEEPER_LEADER, ZOOKEEPER_LEADER, ZOOKEEPER_QUORUM]


def broker_name(number: int) -> str:
    """Of the broker with this number, from 0 on."""
    return f"{BROKER}-{number}" if number else BROKER


def bookie_name(number: int) -> str:
    """Of the bookie with this number, from 0 on."""
    return f"bookie-{number}"


def zookeeper_name(number: int) -> str:
    """Of the ZooKeeper server with this number, from 0 on."""
    return f"{ZOOKEEPER}-{number}" if number else ZOOKEEPER


def kind_of(who: str) -> str:
    """Whom a fault met, without its number."""
    return who.rstrip("0123456789").rstrip("-")
