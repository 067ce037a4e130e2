"""The measurements: each gives rows of plain values; ``report`` prints them.

Sizes of runs: a rate is taken over ``seconds`` behind ``warmup_s``, or until the frames encoded beforehand are used up.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from typing import Any

from tools.standalone_process import StandaloneProcess

from bench.frames import send_frame
from bench.load import expect, open_producer
from bench.servers import Bench, BenchError, finish_load, load, start_load
from geminga.wire._generated import pulsar_api_pb2 as pb

Row = dict[str, Any]

TOPIC = "persistent://public/default/bench"
CONNECTIONS = (1, 16, 100)
SIZES = (100, 1024, 128 * 1024)
#: Sends in flight over all connections, by payload size: enough to fill groups, within the broker's limits.
IN_FLIGHT = {100: 1000, 1024: 1000, 128 * 1024: 64}
#: Frames encoded beforehand for one connection, by payload size.
FRAMES = {100: 400_000, 1024: 200_000, 128 * 1024: 5_000}
DURABLE = "fdatasync before each receipt"
#: Below this a floor is none (sends/s at 100 B, 1,000 in flight, one connection).
FLOOR_MIN = 60_000
#: Goals: product / floor.
GOALS = {100: 0.4, 1024: 0.5}


def in_flight(size: int) -> int:
    """See ``IN_FLIGHT``."""
    return IN_FLIGHT.get(size, 1000 if size <= 4096 else 64)


def frame_count(size: int) -> int:
    """See ``FRAMES``."""
    return FRAMES.get(size, max(2_000, min(400_000, 400_000_000 // (size + 60))))


def raw_fdatasync(bench: Bench) -> list[Row]:
    """The disk itself: write at the end of a preallocated file, fdatasync, again."""
    rows = []
    for size in (128, 4096, 131072):
        path = bench.scratch / "raw"
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            room = 512 << 20
            os.posix_fallocate(file, 0, room)
            data = os.urandom(size)
            times = []
            offset = 0
            end = time.perf_counter() + bench.seconds / 2
            while (now := time.perf_counter()) < end and offset + size <= room:
                os.pwrite(file, data, offset)
                os.fdatasync(file)
                times.append(time.perf_counter() - now)
                offset += size
        finally:
            os.close(file)
            path.unlink()
        times.sort()
        rows.append(
            {
                "write": size,
                "syncs/s": round(len(times) / sum(times)),
                "p50 ms": times[len(times) // 2] * 1000,
                "p99 ms": times[int(len(times) * 0.99)] * 1000,
            }
        )
    return rows


def publish_once(bench: Bench, port: int, size: int, connections: int, *, topics: int = 1) -> float:
    """Receipts per second."""
    answer = load(
        "publish",
        port=port,
        topics=[f"{TOPIC}-{size}-{connections}-{i}" for i in range(topics)],
        connections=connections,
        in_flight=in_flight(size),
        frames=bench.frames(size, frame_count(size)),
        seconds=bench.seconds,
        warmup_s=bench.warmup_s,
    )
    return float(answer["rate"])


def turns(bench: Bench, size: int, connections: int, loops: tuple[str, ...], topics: int = 1) -> dict[str, list[float]]:
    """Receipts/s of both floors and the product, each on each loop, taking turns ``rounds`` times on the same disk."""
    rates: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        for loop in loops:
            turn = dataclasses.replace(bench, loop=loop)
            for codec in ("fixed", "generated"):
                with turn.floor(codec=codec) as port:
                    rates.setdefault(f"{codec} {loop}", []).append(publish_once(turn, port, size, connections))
            with turn.product() as broker:
                rate = publish_once(turn, broker.broker_port, size, connections, topics=min(topics, connections))
                rates.setdefault(f"product {loop}", []).append(rate)
    return rates


def publish(
    bench: Bench, sizes: tuple[int, ...] = SIZES, connections: tuple[int, ...] = CONNECTIONS, topics: int = 1
) -> list[Row]:
    """Unbatched durable publish: floors and product, medians over their turns."""
    rows = []
    for size in sizes:
        for count in connections:
            rates = turns(bench, size, count, (bench.loop,), topics)
            fixed, floor, rate = (
                statistics.median(rates[f"{n} {bench.loop}"]) for n in ("fixed", "generated", "product")
            )
            goal = GOALS.get(size)
            pairs = zip(rates[f"product {bench.loop}"], rates[f"generated {bench.loop}"], strict=True)
            rows.append(
                {
                    "payload B": size,
                    "conns": count,
                    "in flight": in_flight(size),
                    "bare/s": round(fixed),
                    "floor/s": round(floor),
                    "product/s": round(rate),
                    "MB/s": rate * size / 1e6,
                    "to bare": rate / fixed,
                    "to floor": rate / floor,
                    "each turn": " ".join(f"{p / f:.2f}" for p, f in pairs),
                    "goal": goal if goal is not None else "-",
                    "met": "-" if goal is None else ("yes" if rate / floor >= goal else "NO"),
                }
            )
            if size == 100 and count == 1 and floor < FLOOR_MIN:
                raise BenchError(f"the floor did {floor:,.0f} sends/s: below {FLOOR_MIN:,} it is not a floor")
    return rows


def loops(bench: Bench, size: int = 100) -> list[Row]:
    """asyncio against uvloop, floors and product."""
    rows = []
    for count in CONNECTIONS:
        rates = turns(bench, size, count, ("asyncio", "uvloop"))
        for loop in ("asyncio", "uvloop"):
            fixed, floor, rate = (statistics.median(rates[f"{n} {loop}"]) for n in ("fixed", "generated", "product"))
            rows.append(
                {
                    "payload B": size,
                    "conns": count,
                    "loop": loop,
                    "bare/s": round(fixed),
                    "floor/s": round(floor),
                    "product/s": round(rate),
                    "each turn": " ".join(f"{r / 1000:.0f}k" for r in rates[f"product {loop}"]),
                }
            )
    return rows


def latency(bench: Bench, rate: int = 2_000, size: int = 100) -> list[Row]:
    """Publish latency at a fixed rate, from when a send was due to its receipt."""
    rows = []
    options: dict[str, Any] = {
        "topics": [f"{TOPIC}-latency"],
        "frames": bench.frames(size, frame_count(size)),
        "rate": rate,
        "seconds": max(bench.seconds, 5.0),
        "warmup_s": bench.warmup_s,
    }
    with bench.floor() as port:
        rows.append({"server": "floor", **load("paced", port=port, **options)})
    with bench.product() as broker:
        rows.append({"server": "product", **load("paced", port=broker.broker_port, **options)})
    return [
        {
            "server": row["server"],
            "rate/s": row["rate"],
            "sends": row["count"],
            **{f"{name} ms": row[name] for name in ("p50", "p99", "p99.9", "max")},
        }
        for row in rows
    ]


def dispatch(bench: Bench, size: int = 100, count: int = 200_000) -> list[Row]:
    """Catch-up: everything is stored, the broker restarts (cold caches), one consumer reads it all."""
    rows = []
    topic = f"{TOPIC}-dispatch"
    count = min(count, frame_count(size))
    for acks in ("cumulative", "individual"):
        with bench.product() as broker:
            fill(bench, broker, topic, size, count)
            broker.stop()
            broker.start()
            answer = consume(broker, topic, count, acks)
        rows.append(
            {"case": f"catch-up after restart, {acks} acks", "payload B": size, "messages/s": round(answer["rate"])}
        )
    return rows


def together(bench: Bench, size: int = 100, count: int = 200_000) -> list[Row]:
    """Publish and dispatch at once: a consumer at the tail while the publisher keeps its window full."""
    topic = f"{TOPIC}-together"
    count = min(count, frame_count(size))
    rows = []
    for acks in ("cumulative", "individual"):
        with bench.product() as broker:
            reader = start_load("consume", **consume_options(broker, topic, count, acks), announce=True)
            assert reader.stdout is not None
            if "subscribed" not in (line := reader.stdout.readline()):
                raise BenchError(line)
            published = fill(bench, broker, topic, size, count)
            answer = finish_load(reader)
        rows.append(
            {
                "case": f"tail, {acks} acks",
                "payload B": size,
                "published/s": round(published["whole_rate"]),
                "dispatched/s": round(answer["rate"]),
            }
        )
    return rows


def fill(bench: Bench, broker: StandaloneProcess, topic: str, size: int, count: int) -> dict[str, Any]:
    """Publish exactly ``count`` over one connection."""
    return load(
        "publish",
        port=broker.broker_port,
        topics=[topic],
        connections=1,
        in_flight=in_flight(size),
        frames=bench.frames(size, frame_count(size)),
        count=count,
    )


def consume_options(broker: StandaloneProcess, topic: str, count: int, acks: str) -> dict[str, Any]:
    """Of one consumer."""
    return {
        "port": broker.broker_port,
        "topics": [topic],
        "subscription": "bench",
        "count": count,
        "permits": 2_000,
        "acks": acks,
        "in_order": True,
        "from_first": True,
    }


def consume(broker: StandaloneProcess, topic: str, count: int, acks: str) -> dict[str, Any]:
    """Receive everything."""
    return load("consume", **consume_options(broker, topic, count, acks))


def start(bench: Bench, rounds: int = 5) -> list[Row]:
    """From the exec of the command to the first receipt, on a fresh directory and after a clean stop."""
    rows = []
    for case in ("fresh directory", "existing directory"):
        ready, first = [], []
        for _ in range(rounds):
            with bench.product() as broker:
                if case == "existing directory":
                    first_receipt(broker)
                    broker.stop()
                    broker.start()
                first.append(first_receipt(broker))
                ready.append(broker.start_seconds[-1])
        middle = statistics.median(first)
        rows.append(
            {
                "case": case,
                "runs": rounds,
                "ready s": statistics.median(ready),
                "first receipt s": middle,
                "worst s": max(first),
                "goal s": 1.0,
                "met": "yes" if middle <= 1.0 else "NO",
            }
        )
    return rows


def first_receipt(broker: StandaloneProcess) -> float:
    """Seconds from exec to the receipt of one durable message."""
    connection = open_producer(broker.broker_port, f"{TOPIC}-start")
    connection.sendall(send_frame(0, b"x" * 100))
    expect(connection, pb.BaseCommand.SEND_RECEIPT)
    seconds = time.perf_counter() - broker.started_at
    connection.close()
    return seconds


def idle(bench: Bench) -> list[Row]:
    """Memory and CPU of a broker that has served one admin call, one scrape and 1,000 messages."""
    with bench.product() as broker:
        broker.request("GET", "/admin/v2/clusters")
        broker.request("GET", "/metrics")
        fill(bench, broker, f"{TOPIC}-idle", 100, 1_000)
        time.sleep(3.0)
        before, started = broker.cpu_seconds(), time.perf_counter()
        time.sleep(10.0)
        cpu = (broker.cpu_seconds() - before) / (time.perf_counter() - started) * 100
        rss = broker.rss_bytes() / 1e6
    return [
        {"what": "resident memory, MB", "measured": rss, "goal": 80, "met": "yes" if rss <= 80 else "NO"},
        {"what": "CPU over 10 s, % of a core", "measured": cpu, "goal": 1, "met": "yes" if cpu <= 1 else "NO"},
    ]


def topics(bench: Bench, count: int = 10_000) -> list[Row]:
    """Memory per idle loaded topic with one durable subscription: difference of RSS."""
    warm = 500
    with bench.product() as broker:
        load("subscribe", port=broker.broker_port, topics=[f"{TOPIC}-many"], first=0, count=warm)
        time.sleep(2.0)
        before = broker.rss_bytes()
        began = time.perf_counter()
        load("subscribe", port=broker.broker_port, topics=[f"{TOPIC}-many"], first=warm, count=count)
        seconds = time.perf_counter() - began
        time.sleep(3.0)
        each = (broker.rss_bytes() - before) / count
        loaded = broker.request("GET", "/metrics").count(b"\npulsar_subscriptions_count{")
        if loaded < count:
            raise BenchError(f"only {loaded} of {count} topics are loaded")
    return [
        {
            "topics": count,
            "created/s": round(count / seconds),
            "bytes each": round(each),
            "goal": 10_240,
            "met": "yes" if each <= 10_240 else "NO",
        }
    ]
