"""The rows: what the load does, and which of its numbers are compared. Data; ``load/main.go`` says what keys mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.peers.verdict import Figure

PULSAR: Final = "pulsar"
REDIS: Final = "redis"
NATS: Final = "nats"

RATE: Final = Figure("msgs/s", "rate", is_more_better=True)
MEGABYTES: Final = Figure("MB/s", "mb", is_more_better=True)
P50: Final = Figure("send p50 ms", "p50", is_more_better=False)
P99: Final = Figure("send p99 ms", "p99", is_more_better=False)
E2E_P50: Final = Figure("end to end p50 ms", "e2e_p50", is_more_better=False)
E2E_P99: Final = Figure("end to end p99 ms", "e2e_p99", is_more_better=False)
DELIVERED: Final = Figure("% delivered", "delivered", is_more_better=True)
START: Final = Figure("s", "seconds", is_more_better=False)
RSS: Final = Figure("resident MB", "rss_mb", is_more_better=False)
IDLE_CPU: Final = Figure("CPU, % of a core", "cpu_percent", is_more_better=False)


@dataclass(frozen=True, slots=True)
class PeerRow:
    """One row of the table; ``load`` goes to the load's program as it is."""

    name: str
    load: Mapping[str, Any]
    figures: tuple[Figure, ...] = (RATE,)
    peers: tuple[str, ...] = (PULSAR,)
    #: Whether every turn uses the same topics: those whose making takes longer than what is measured.
    keeps_topics: bool = False


def _publish(name: str, **load: Any) -> PeerRow:
    return PeerRow(f"publish {name}", {"mode": "publish", **load})


def _paced(name: str, rate: int, *figures: Figure, **load: Any) -> PeerRow:
    return PeerRow(name, {"mode": "paced", "rate": rate, **load}, figures or (P50, P99))


ALL_PEERS: Final = (PULSAR, REDIS, NATS)
END_TO_END: Final = (E2E_P50, E2E_P99)
#: Sends in flight of what is batched: some batches' worth.
BATCHED: Final = {"batched": True, "window": 20_000}

ROWS: Final = (
    PeerRow("start: exec to first receipt", {"mode": "start"}, (START,)),
    PeerRow("serial send, 100 B", {"mode": "serial", "window": 1}, (P50, P99), ALL_PEERS),
    *(
        PeerRow(
            f"publish unbatched, {title}, {connections} conns",
            {"mode": "publish", "size": size, "connections": connections},
            peers=ALL_PEERS if (size, connections) == (1024, 16) else (PULSAR,),
        )
        for size, title in ((100, "100 B"), (1024, "1 KiB"))
        for connections in (1, 16, 100)
    ),
    _publish("batched, 100 B, 1 conn", **BATCHED),
    _publish("batched, 1 KiB, 4 conns", **BATCHED, size=1024, connections=4),
    _publish("batched LZ4, compressible 1 KiB", **BATCHED, size=1024, lz4=True),
    _publish("unbatched, 8 B to 16 KiB at random", size=8, size_max=16384, connections=4),
    PeerRow("paced unbatched, 2,000/s", {"mode": "paced", "rate": 2_000}, (P50, P99), ALL_PEERS),
    _paced("paced unbatched, 10,000/s", 10_000),
    _paced("paced batched, 10,000/s", 10_000, P50, P99, batched=True),
    _paced("2,000/s into Shared x 10", 2_000, *END_TO_END, type="shared", consumers=10),
    _paced("tailing, Exclusive, 2,000/s", 2_000, *END_TO_END, consumers=1),
    _paced("tailing, Failover x 2, 2,000/s", 2_000, *END_TO_END, type="failover", consumers=2),
    # Nothing is acknowledged: all messages there have one id, and a client that groups acknowledgments drops the next.
    _paced(
        "non-persistent, 10,000/s",
        10_000,
        *END_TO_END,
        DELIVERED,
        consumers=1,
        volatile=True,
        lossy=True,
        acks="none",
    ),
    PeerRow(
        "1,000 topics, 2/s each",
        {"mode": "paced", "rate": 2_000, "topics": 1_000, "window": 100_000},
        (P50, P99),
        keeps_topics=True,
    ),
    _paced("delayed by 0 to 1 s, 2,000/s", 2_000, *END_TO_END, type="shared", consumers=2, delay_max=1.0),
    _paced("consumers come and go, 2,000/s", 2_000, *END_TO_END, type="shared", consumers=4, churn=True),
    _paced("a slow consumer beside 3, 2,000/s", 2_000, *END_TO_END, type="shared", consumers=3, slow=True),
    PeerRow(
        "batched fan-out to 10", {"mode": "stream", "count": 100_000, "subscriptions": 10, "consumers": 1, **BATCHED}
    ),
    PeerRow("unbatched fan-out to 10", {"mode": "stream", "count": 10_000, "subscriptions": 10, "consumers": 1}),
    PeerRow(
        "Key_Shared x 4, new keys",
        {"mode": "stream", "count": 40_000, "type": "key_shared", "consumers": 4, "keys": "new"},
    ),
    PeerRow(
        "Key_Shared x 4, one hot key",
        {"mode": "stream", "count": 40_000, "type": "key_shared", "consumers": 4, "keys": "hot"},
    ),
    PeerRow(
        "4 partitions, unbatched",
        {"mode": "stream", "count": 40_000, "type": "shared", "consumers": 2, "partitions": 4},
    ),
    PeerRow(
        "1 MiB messages, through",
        {"mode": "stream", "count": 100, "size": 1 << 20, "window": 8, "consumers": 1},
        (MEGABYTES,),
    ),
    PeerRow("catch-up, batched", {"mode": "drain", "count": 400_000, "consumers": 1, **BATCHED}),
    PeerRow("catch-up, unbatched", {"mode": "drain", "count": 60_000, "consumers": 1, "connections": 4}),
    PeerRow(
        "acknowledged out of order",
        {"mode": "drain", "count": 40_000, "type": "shared", "consumers": 1, "connections": 4, "acks": "shuffled"},
    ),
    PeerRow(
        "acknowledged with receipts, one by one",
        {"mode": "drain", "count": 1_500, "type": "shared", "consumers": 1, "acks": "receipt"},
    ),
    PeerRow(
        "each negatively acknowledged once",
        {"mode": "drain", "count": 10_000, "type": "shared", "consumers": 2, "acks": "nack"},
    ),
    PeerRow("idle", {"mode": "idle"}, (RSS, IDLE_CPU)),
)


def selected(text: str) -> list[PeerRow]:
    """The rows whose name contains ``text``, whatever its case; several are joined by " or "."""
    parts = [part.strip().casefold() for part in text.split(" or ")]
    return [row for row in ROWS if any(part in row.name.casefold() for part in parts)]
