"""The client against the official one: same broker, same messages, each client in a process of its own, in turns.

Each ratio is the median of the ratios of neighbouring turns: what else the machine does then meets both sides alike.
Settings are the same on both sides: batches of 1,000 messages, 256 KiB or 10 ms; acknowledgments grouped for 100 ms
(both clients' default); unbatched rows send and receive entries of one message; round trips unbatched, one message
under way, the same payload. CPU is what the client's process takes a message: other load changes it little.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from itertools import count as counter
from pathlib import Path
from typing import Any

from tools.standalone_process import ROOT, StandaloneProcess

from bench.measure import TOPIC, Row
from bench.servers import Bench, BenchError, environment, finish_load

#: Messages of one run: ours, official. Enough for some seconds each.
SENDS = {"send_nowait": 1_000_000, "send": 200_000, "send_async": 100_000}
WARMUP = {"send_nowait": 100_000, "send": 20_000, "send_async": 10_000}
RECEIVES = 400_000
#: Unbatched.
SENDS_UNBATCHED = 60_000
WARMUP_UNBATCHED = 5_000
RECEIVES_UNBATCHED = 100_000
#: Round trips: turns of each side, and round trips of one turn.
ROUND_TRIP_TURNS = 30
ROUND_TRIPS = 250
NEGATIVE_ACKS = 1_000_000
PREFETCH = 10_000

_numbers = counter(1)


@dataclass(frozen=True)
class Turn:
    """Messages a second, and CPU microseconds of the client a message."""

    rate: float
    cpu_us: float

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Turn:
        """As a client told it."""
        return cls(float(answer["rate"]), float(answer["cpu_us"]))


def run_client(
    broker: StandaloneProcess | None, side: str, mode: str, *, source: Path = ROOT / "src", **options: Any
) -> dict[str, Any]:
    """One run in a fresh process; raises BenchError."""
    return finish_load(start_client(broker, side, mode, source=source, **options))


def start_client(
    broker: StandaloneProcess | None, side: str, mode: str, *, source: Path = ROOT / "src", **options: Any
) -> subprocess.Popen[str]:
    """A fresh process whose product is that of ``source``."""
    given = {"side": side, "mode": mode, "url": broker.service_url if broker else "", **options}
    command = [sys.executable, "-m", "bench.client_load", json.dumps(given)]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(source),
    )


def next_turn(process: subprocess.Popen[str], line: str = "") -> dict[str, Any]:
    """Let a process that takes turns take one, told by a line; raises BenchError."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline() or '{"error": "the process ended"}')
    if "error" in answer:
        raise BenchError(str(answer["error"]))
    return answer


def client(bench: Bench, size: int) -> list[Row]:
    """All claims about the client in one run."""
    with bench.product() as broker:
        rows = [*_sends(bench, broker, size), *_receives(bench, broker, size)]
        rows += [_sends_unbatched(bench, broker, size), *_receives_unbatched(bench, broker, size)]
        rows.append(_round_trips(bench, broker, size))
    return [*rows, _negative_acks()]


def _fresh_topic() -> str:
    return f"{TOPIC}-client-{next(_numbers)}"


def _send_rate(bench: Bench, broker: StandaloneProcess, side: str, mode: str, size: int, **options: Any) -> Turn:
    given = {"count": SENDS[mode], "warmup": WARMUP[mode], **options}
    return Turn.of(run_client(broker, side, mode, topic=_fresh_topic(), size=size, loop=bench.loop, **given))


def _sends(bench: Bench, broker: StandaloneProcess, size: int) -> list[Row]:
    rates: dict[str, list[Turn]] = {"send_nowait": [], "send": [], "send_async": []}
    for _ in range(bench.rounds):
        for mode, found in rates.items():
            side = "official" if mode == "send_async" else "ours"
            found.append(_send_rate(bench, broker, side, mode, size))
    official = rates["send_async"]
    return [
        _row("send_nowait", "send_async", rates["send_nowait"], official, 10.0),
        _row("send, 1,000 awaited at a time", "send_async", rates["send"], official, 2.0),
    ]


def _sends_unbatched(bench: Bench, broker: StandaloneProcess, size: int) -> Row:
    options = {"count": SENDS_UNBATCHED, "warmup": WARMUP_UNBATCHED, "unbatched": True}
    rates: dict[str, list[Turn]] = {"ours": [], "official": []}
    for _ in range(bench.rounds):
        for side, mode in (("ours", "send_nowait"), ("official", "send_async")):
            rates[side].append(_send_rate(bench, broker, side, mode, size, **options))
    return _row("unbatched: send_nowait", "send_async", rates["ours"], rates["official"], 1.0)


#: A side and how it receives.
Way = tuple[str, str]


def _receives(bench: Bench, broker: StandaloneProcess, size: int) -> list[Row]:
    topic = _fresh_topic()
    run_client(broker, "ours", "fill", topic=topic, size=size, count=RECEIVES, loop=bench.loop)
    ways = [
        ("official", "receive"),
        ("official", "batch_receive"),
        ("ours", "receive"),
        ("ours", "batch_receive"),
        ("ours", "async_for"),
    ]
    rates = _receive_rates(bench, broker, topic, size, RECEIVES, ways)
    receive, batch = rates["official", "receive"], rates["official", "batch_receive"]
    return [
        _row("receive", "receive", rates["ours", "receive"], receive, 1.0),
        _row("batch_receive", "receive", rates["ours", "batch_receive"], receive, 2.0),
        _row("batch_receive", "batch_receive", rates["ours", "batch_receive"], batch, 2.0),
        _row("async for", "receive", rates["ours", "async_for"], receive, 2.0),
    ]


def _receives_unbatched(bench: Bench, broker: StandaloneProcess, size: int) -> list[Row]:
    topic = _fresh_topic()
    count = RECEIVES_UNBATCHED
    run_client(broker, "ours", "fill", topic=topic, size=size, count=count, loop=bench.loop, unbatched=True)
    ways = [(side, way) for way in ("receive", "batch_receive", "listener") for side in ("ours", "official")]
    rates = _receive_rates(bench, broker, topic, size, count, [*ways, ("ours", "async_for")])
    pairs = [("receive", "receive"), ("batch_receive", "batch_receive"), ("async_for", "receive")]
    pairs.append(("listener", "listener"))
    return [
        _row(f"unbatched: {way.replace('_for', ' for')}", other, rates["ours", way], rates["official", other], 1.0)
        for way, other in pairs
    ]


def _receive_rates(
    bench: Bench, broker: StandaloneProcess, topic: str, size: int, count: int, ways: list[Way]
) -> dict[Way, list[Turn]]:
    rates: dict[Way, list[Turn]] = {way: [] for way in ways}
    for _ in range(bench.rounds):
        for (side, mode), found in rates.items():
            answer = run_client(
                broker,
                side,
                mode,
                topic=topic,
                subscription=f"bench-{next(_numbers)}",
                size=size,
                count=count,
                prefetch=PREFETCH,
                loop=bench.loop,
            )
            found.append(Turn.of(answer))
    return rates


def _round_trips(bench: Bench, broker: StandaloneProcess, size: int) -> Row:
    """Both clients stay connected and take turns of less than a tenth of a second."""
    rates: dict[str, list[Turn]] = {"ours": [], "official": []}
    clients = {
        side: start_client(
            broker, side, "round_trip", topic=_fresh_topic(), size=size, count=ROUND_TRIPS, loop=bench.loop
        )
        for side in rates
    }
    try:
        for turn in range(ROUND_TRIP_TURNS + 1):
            for side in sorted(rates, reverse=turn % 2 == 0):
                answer = next_turn(clients[side])
                if turn:  # the first one warms up
                    rates[side].append(Turn(1000 / float(answer["median_ms"]), float(answer["cpu_us"])))
        for process in clients.values():
            finish_load(process)
    finally:
        for process in clients.values():
            process.kill()
    return _row("unbatched send + receive, one at a time", "the same", rates["ours"], rates["official"], 1.0)


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
        "CPU us": 1e6 / answer["rate"],
        "official CPU us": "-",
    }


def _row(ours: str, official: str, our_turns: list[Turn], official_turns: list[Turn], goal: float) -> Row:
    pairs = list(zip(our_turns, official_turns, strict=True))
    ratio = statistics.median(ours.rate / official.rate for ours, official in pairs)
    return {
        "ours": ours,
        "official": official,
        "ours/s": round(statistics.median(turn.rate for turn in our_turns)),
        "official/s": round(statistics.median(turn.rate for turn in official_turns)),
        "ratio": ratio,
        "goal": goal,
        "met": "yes" if ratio >= goal else "NO",
        "CPU us": statistics.median(turn.cpu_us for turn in our_turns),
        "official CPU us": statistics.median(turn.cpu_us for turn in official_turns),
    }
