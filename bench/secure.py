"""``python -m bench secure``: what TLS and tokens cost, on both brokers: publishing, consuming, connecting.

The loads are those of ``bench peers``, by the official Go client. First two brokers that take everybody are asked over
their plain port and over TLS, then two that ask for a token: no row has a check in it that it does not name.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.interop.apache_standalone import free_ports
from tools.peers.security import Security, prepare
from tools.standalone_process import StandaloneProcess

from bench.peers.rows import BATCHED, RATE, PeerRow
from bench.peers.run import Contest
from bench.peers.servers import Kind, machine
from bench.peers.verdict import FAILED
from bench.servers import Bench

#: Title -> whether TLS is spoken, and whether the broker asks for a token.
WAYS: Final[Mapping[str, tuple[bool, bool]]] = {
    "plain": (False, False),
    "TLS": (True, False),
    "token": (False, True),
    "TLS and token": (True, True),
}
#: Messages, or connections, for which the server's time is taken.
LOADS: Final[Mapping[str, Mapping[str, Any]]] = {
    "publish unbatched, 100 B, 16 conns": {"mode": "publish", "connections": 16},
    "publish batched, 1 KiB, 4 conns": {"mode": "publish", "size": 1024, "connections": 4, **BATCHED},
    "consume, batched": {"mode": "drain", "count": 400_000, "consumers": 1, **BATCHED},
    "consume, unbatched": {"mode": "drain", "count": 60_000, "consumers": 1, "connections": 4},
    "connect, 8 at a time": {"mode": "connect", "connections": 8},
}
#: What is wanted: this share of all figures ahead of Apache's, and none below the other.
AHEAD_SHARE: Final = 0.9
LEAST: Final = 0.9
#: Keys of the settings that are about TLS, beside those of who is asked for what.
_OF_TLS: Final = ("brokerServicePortTls", "webServicePortTls", "tls")


def rows(*, is_asking: bool, text: str = "") -> list[PeerRow]:
    """Of one of the two halves; ``text`` as of ``bench peers``."""
    made = [
        PeerRow(f"{load}: {way}", {**LOADS[load], "way": way}, (RATE,), keeps_topics=LOADS[load]["mode"] == "connect")
        for load in LOADS
        for way, (_, asks) in WAYS.items()
        if asks == is_asking
    ]
    parts = [part.strip().casefold() for part in text.split(" or ")]
    return [row for row in made if any(part in row.name.casefold() for part in parts)]


class Half(Contest):
    """Both brokers, which take everybody or ask for a token; each has a plain port and one of TLS."""

    def __init__(self, bench: Bench, options: argparse.Namespace, chosen: list[PeerRow], *, is_asking: bool) -> None:
        super().__init__(bench, options, chosen)
        self.is_asking = is_asking
        self.security: dict[Path, Security] = {}

    def made(self, kind: Kind, directory: Path, environment: Mapping[str, str] | None = None) -> StandaloneProcess:
        """A server with a certificate of its own authority."""
        keys = Path(tempfile.mkdtemp(prefix="keys-", dir=self.bench.scratch))
        security = prepare("tls", keys, free_ports(2))
        settings = {key: value for key, value in security.settings.items() if self.is_asking or key.startswith(_OF_TLS)}
        server = kind.make(self.bench, directory, environment, also=settings)
        if self.is_asking:
            server.headers["Authorization"] = f"Bearer {security.operator}"
        self.security[server.data] = security
        return server

    def prepare(self, kind: Kind, server: StandaloneProcess) -> None:
        """Give the clients' role its rights."""
        if self.is_asking:
            self.security[server.data].provision(server.web_url)

    def way(self, row: PeerRow, server: StandaloneProcess) -> dict[str, Any]:
        """The port of the row, and the token."""
        security = self.security[server.data]
        is_tls, asks = WAYS[row.load["way"]]
        token = {"token": security.token} if asks else {}
        if not is_tls:
            return {"url": server.service_url, "web": server.web_url, **token}
        url, web = security.urls(server.service_url, server.web_url)
        return {"url": url, "web": web, "trust": str(security.trust), **token}


def beside_plain(table: list[dict[str, Any]]) -> None:
    """Add to each line what is left of the same load's plain rate, on either broker, in percent."""
    turns = {line["row"]: line["turns"] for line in table if line["verdict"] != FAILED}
    for line in table:
        base = turns.get(f"{line['row'].rpartition(': ')[0]}: plain")
        for column, side in (("% of plain", "ours"), ("the peer's %", "theirs")):
            line[column] = ""
            if base and side in line["turns"]:
                line[column] = f"{statistics.median(line['turns'][side]) / statistics.median(base[side]):.0%}"


def figures(table: Sequence[Mapping[str, Any]]) -> list[float]:
    """How many times as good as Apache's each figure is: rate, and CPU time beside it."""
    told = [(line["times"], line["times "]) for line in table]
    return [float(value) if value != "" else 0.0 for pair in told for value in pair]


def secure(bench: Bench, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The table; what is wanted of it is said below."""
    started = time.monotonic()
    table: list[dict[str, Any]] = []
    say = None
    for is_asking in (False, True):
        if chosen := rows(is_asking=is_asking, text=options.k):
            half = Half(bench, options, chosen, is_asking=is_asking)
            say = say or half.say
            say(f"{machine()}; brokers that {'ask for a token' if is_asking else 'take everybody'}")
            table += half.run()
    order = list(LOADS)
    table.sort(key=lambda line: order.index(line["row"].rpartition(": ")[0]))
    beside_plain(table)
    all_figures = figures(table)
    ahead = sum(value > 1 for value in all_figures)
    is_met = all_figures and ahead >= AHEAD_SHARE * len(all_figures) and min(all_figures) >= LEAST
    if say and all_figures:
        say(
            f"{ahead} of {len(all_figures)} are ahead, the least {min(all_figures):.2f}; wanted: {AHEAD_SHARE:.0%}, "
            f"none below {LEAST}: {'met' if is_met else 'NOT met'}; {time.monotonic() - started:.0f} s"
        )
    return table
