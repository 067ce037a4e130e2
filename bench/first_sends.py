"""``python -m bench firsts``: a producer and one message on each of many topics that are not there, by Geminga and by
Apache's broker in turns, on one disk. Who is not asked is stopped. CPU is the server's, a topic.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
from contextlib import ExitStack
from typing import Final

from tools.standalone_process import StandaloneProcess

from bench.measure import Row
from bench.peers.rows import PULSAR
from bench.peers.servers import GEMINGA, find_kinds
from bench.servers import Bench, BenchError, load

START_LIMIT_S: Final = 180.0
#: Topics made before, unmeasured: Java compiles by then.
WARM: Final = 1_500


def first_sends(bench: Bench, count: int, turns: int, *, is_alone: bool) -> list[Row]:
    """One row a server: medians of the turns, and the median of the ratios to its neighbour's."""
    servers: dict[str, StandaloneProcess] = {}
    numbers = itertools.count()
    with ExitStack() as stack:
        for name in (GEMINGA,) if is_alone else (GEMINGA, PULSAR):
            kind = find_kinds()[name]
            if kind.missing:
                raise BenchError(f"{kind.title} is not here: {kind.missing}; --alone measures Geminga")
            server = servers[name] = stack.enter_context(kind.started(bench, limit_s=START_LIMIT_S))
            _turn(server, WARM, next(numbers))
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
        for turn in range(turns):
            for name in sorted(servers, reverse=bool(turn % 2)):
                for other, server in servers.items():
                    os.kill(server.pid, signal.SIGCONT if other == name else signal.SIGSTOP)
                found[name].append(_turn(servers[name], count, next(numbers)))
        for server in servers.values():
            os.kill(server.pid, signal.SIGCONT)
    return [_row(name, count, found) for name in servers]


def _turn(server: StandaloneProcess, count: int, number: int) -> tuple[float, float]:
    """Topics a second, and us of the server a topic."""
    before = server.cpu_seconds()
    prefix = f"persistent://public/default/first-{number}-"
    answer = load("first", module="bench.cluster_load", port=server.broker_port, prefix=prefix, count=count)
    return answer["rate"], (server.cpu_seconds() - before) / count * 1e6


def _row(name: str, count: int, found: dict[str, list[tuple[float, float]]]) -> Row:
    row: Row = {
        "server": name,
        "topics": count,
        "topics/s": round(statistics.median(rate for rate, _ in found[name])),
        "CPU us a topic": round(statistics.median(cpu for _, cpu in found[name])),
    }
    if len(found) > 1:
        (other,) = (each for each in found if each != name)
        pairs = list(zip(found[name], found[other], strict=True))
        row["rate, times the other's"] = statistics.median(mine[0] / its[0] for mine, its in pairs)
        row["CPU, times the other's"] = statistics.median(mine[1] / its[1] for mine, its in pairs)
    return row
