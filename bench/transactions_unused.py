"""``python -m bench unused``: what plain publishing costs where transactions are enabled and none is open.

Two brokers, alike but for ``transactionCoordinatorEnabled``, take the same plain load in turns; who begins changes. The
ratio is the median of the pairs', with their quartiles: single pairs differ by far more than what is looked for.
"""

from __future__ import annotations

import os
import signal
import statistics
from contextlib import ExitStack
from typing import Any, Final

from tools.standalone_process import StandaloneProcess

from bench.peers.servers import GEMINGA, find_kinds
from bench.peers.verdict import plain
from bench.servers import Bench
from bench.transactions import put_load

Row = dict[str, Any]
#: Pairs of windows of each load.
PAIRS: Final = 12
#: Publishing without transactions: each message an entry, and in batches.
LOADS: Final = {
    "unbatched": {"mode": "publish", "messages": 100, "lanes": 64, "batched": False, "in_transaction": False},
    "batched": {"mode": "publish", "messages": 1000, "lanes": 16, "batched": True, "in_transaction": False},
}


def unused(bench: Bench) -> list[Row]:
    """One row a load; a ratio of 1 is no cost."""
    servers: dict[str, StandaloneProcess] = {}
    number = 0
    with ExitStack() as stack:
        for name in ("true", "false"):
            also = {"transactionCoordinatorEnabled": name}
            servers[name] = stack.enter_context(find_kinds()[GEMINGA].started(bench, also=also))
        rows = []
        for title, load in LOADS.items():
            answers: dict[str, list[Row]] = {name: [] for name in servers}
            for pair in range(PAIRS + 1):
                for name in sorted(servers, reverse=bool(pair % 2)):
                    for other, server in servers.items():
                        os.kill(server.pid, signal.SIGCONT if other == name else signal.SIGSTOP)
                    number += 1
                    answer = put_load(bench, servers[name], load, topic=f"unused-{number}")
                    if pair:  # the first one warms up
                        answers[name].append(answer)
            rows.append(_row(title, answers))
        for server in servers.values():
            os.kill(server.pid, signal.SIGCONT)
    return rows


def _row(title: str, answers: dict[str, list[Row]]) -> Row:
    row: Row = {"plain publishing": title}
    for name, of in (("true", "enabled"), ("false", "disabled")):
        row[f"{of} msgs/s"] = plain(statistics.median(each["rate"] for each in answers[name]))
        row[f"{of} CPU us"] = plain(statistics.median(each["cpu_us"] for each in answers[name]))
    for key, what in (("rate", "rate"), ("cpu_us", "CPU")):
        ratios = [on[key] / off[key] for on, off in zip(answers["true"], answers["false"], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        row[f"{what}, enabled / disabled"] = f"{middle:.3f} ({low:.3f}-{high:.3f})"
    return row
