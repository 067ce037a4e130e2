"""The client against the official one: same broker, same messages, each client in a process of its own, in turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from itertools import count as counter
from typing import Any

from tools.standalone_process import ROOT, StandaloneProcess

from bench.measure import TOPIC, Row
from bench.servers import Bench, environment, finish_load

#: Messages of one run: ours, official. Enough for some seconds each.
SENDS = {"send_nowait": 1_000_000, "send": 200_000, "send_async": 100_000}
WARMUP = {"send_nowait": 100_000, "send": 20_000, "send_async": 10_000}
RECEIVES = 400_000
ROUND_TRIPS = 2_000
NEGATIVE_ACKS = 1_000_000
PREFETCH = 10_000

_numbers = counter(1)


def run_client(broker: StandaloneProcess | None, side: str, mode: str, **options: Any) -> dict[str, Any]:
    """One run in a fresh process; raises BenchError."""
    given = {"side": side, "mode": mode, "url": broker.service_url if broker else "", **options}
    command = [sys.executable, "-m", "bench.client_load", json.dumps(given)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()
    )
    return finish_load(process)


def client(bench: Bench, size: int) -> list[Row]:
    """All claims about the client in one run."""
    with bench.product() as broker:
        rows = [*_sends(bench, broker, size), *_receives(bench, broker, size), _round_trips(bench, broker, size)]
    return [*rows, _negative_acks()]


def _fresh_topic() -> str:
    return f"{TOPIC}-client-{next(_numbers)}"


def _send_rate(bench: Bench, broker: StandaloneProcess, side: str, mode: str, size: int) -> float:
    answer = run_client(
        broker,
        side,
        mode,
        topic=_fresh_topic(),
        size=size,
        count=SENDS[mode],
        warmup=WARMUP[mode],
        loop=bench.loop,
    )
    return float(answer["rate"])


def _sends(bench: Bench, broker: StandaloneProcess, size: int) -> list[Row]:
    rates: dict[str, list[float]] = {"send_nowait": [], "send": [], "send_async": []}
    for _ in range(bench.rounds):
        for mode, found in rates.items():
            side = "official" if mode == "send_async" else "ours"
            found.append(_send_rate(bench, broker, side, mode, size))
    medians = {mode: statistics.median(found) for mode, found in rates.items()}
    official = medians["send_async"]
    return [
        _row("send_nowait", "send_async", medians["send_nowait"], official, 10.0),
        _row("send, 1,000 awaited at a time", "send_async", medians["send"], official, 2.0),
    ]


def _receives(bench: Bench, broker: StandaloneProcess, size: int) -> list[Row]:
    topic = _fresh_topic()
    run_client(broker, "ours", "fill", topic=topic, size=size, count=RECEIVES, loop=bench.loop)
    runs = [
        ("official", "receive"),
        ("official", "batch_receive"),
        ("ours", "receive"),
        ("ours", "batch_receive"),
        ("ours", "async_for"),
    ]
    rates: dict[tuple[str, str], list[float]] = {run: [] for run in runs}
    for _ in range(bench.rounds):
        for (side, mode), found in rates.items():
            answer = run_client(
                broker,
                side,
                mode,
                topic=topic,
                subscription=f"bench-{next(_numbers)}",
                size=size,
                count=RECEIVES,
                prefetch=PREFETCH,
                loop=bench.loop,
            )
            found.append(float(answer["rate"]))
    medians = {run: statistics.median(found) for run, found in rates.items()}
    receive, batch = medians["official", "receive"], medians["official", "batch_receive"]
    return [
        _row("receive", "receive", medians["ours", "receive"], receive, 1.0),
        _row("batch_receive", "receive", medians["ours", "batch_receive"], receive, 2.0),
        _row("batch_receive", "batch_receive", medians["ours", "batch_receive"], batch, 2.0),
        _row("async for", "receive", medians["ours", "async_for"], receive, 2.0),
    ]


def _round_trips(bench: Bench, broker: StandaloneProcess, size: int) -> Row:
    found: dict[str, list[float]] = {"ours": [], "official": []}
    for _ in range(bench.rounds):
        for side, medians in found.items():
            options = {"topic": _fresh_topic(), "size": size, "count": ROUND_TRIPS, "loop": bench.loop}
            medians.append(float(run_client(broker, side, "round_trip", **options)["median_ms"]))
    ours, official = (1000 / statistics.median(found[side]) for side in ("ours", "official"))
    return _row("unbatched send + receive, one at a time", "the same", ours, official, 1.0)


def _negative_acks() -> Row:
    answer = run_client(None, "ours", "negative_acks", count=NEGATIVE_ACKS)
    megabytes = answer["bytes"] / 1e6
    return {
        "ours": "1,000,000 negative acks pending, MB",
        "official": "-",
        "ours/s": round(megabytes, 1),
        "official/s": "-",
        "ratio": "-",
        "goal": 40.0,
        "met": "yes" if megabytes <= 40 else "NO",
    }


def _row(ours: str, official: str, our_rate: float, official_rate: float, goal: float) -> Row:
    ratio = our_rate / official_rate
    return {
        "ours": ours,
        "official": official,
        "ours/s": round(our_rate),
        "official/s": round(official_rate),
        "ratio": ratio,
        "goal": goal,
        "met": "yes" if ratio >= goal else "NO",
    }
