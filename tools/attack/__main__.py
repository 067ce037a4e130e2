"""``python -m tools.attack KIND``: what nobody may do to a broker that asks who is there, and what it costs the others.

====================  ======================================================================================
``frames``            damaged frames, fed to connections in this process (1,000,000)
``sockets``           the same to a process, over its binary ports (20,000)
``http``              damaged requests of HTTP (100,000)
``halves``            handshakes of TLS that stop or are damaged (10,000)
``slow``              a byte a second on each port, until it is cut off
``paced``             500 frames and 200 connections a second, in turns at the broker and a socket that discards
====================  ======================================================================================

But for ``frames`` a standalone with tokens, passwords, rights and TLS is started, and a witness publishes and receives
meanwhile. Exit code 1 if anything was made, a complaint is in the log, or the witness waited longer than a second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tools.attack import strangers
from tools.attack.attacked import Attacked, running, running_bookie
from tools.attack.witness import PAUSE_S

COUNTS: Final = {"frames": 1_000_000, "sockets": 20_000, "http": 100_000, "halves": 10_000, "slow": 100, "paced": 3}
#: Of the paced attack, a second.
FRAMES_PER_S: Final = 500.0
CONNECTIONS_PER_S: Final = 200.0
#: Seconds of a turn of it.
TURN_S: Final = 20.0
#: Seconds that slow connections are watched, at most: longer than any patience of the ports.
SLOW_S: Final = 90.0
#: Milliseconds that the witness may wait, and bytes that a process may grow under attack after a first tenth of it.
LONGEST_MS: Final = 1000.0
GROWN_BYTES_MAX: Final = 64 << 20


class Witness:
    """The process of :mod:`tools.attack.witness`, begun when it is made."""

    def __init__(self, target: Attacked, seconds: float) -> None:
        command = [sys.executable, "-m", "tools.attack.witness", str(target.ports["binary"])]
        command += ["public/default/witness", str(seconds), target.token]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", "the witness did not come up"

    def result(self) -> dict[str, float]:
        """What it waited for, once it is done."""
        out, _ = self._process.communicate(timeout=600)
        found: dict[str, float] = json.loads(out)
        return found

    def stop(self) -> None:
        """It is not asked."""
        self._process.kill()
        self._process.communicate()


def in_process(count: int, seed: int, told: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """``frames``."""
    from tools.attack.frames import attack

    last = 0

    def at(fed: int) -> None:
        nonlocal last
        if fed - last >= 50_000:
            last = fed
            told(f"{fed:,} frames")

    found = attack(count, seed, at)
    broken = []
    if found.changed:
        broken.append(f"the metadata changed: {found.changed}")
    if found.left:
        broken.append(f"{found.left} connections are left")
    if found.grown_bytes > GROWN_BYTES_MAX:
        broken.append(f"memory grew by {found.grown_bytes} bytes")
    return found._asdict(), broken


def over_sockets(kind: str, count: int, seed: int, told: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """``sockets``, ``http``, ``halves`` and ``slow``, beside the witness."""
    with tempfile.TemporaryDirectory(prefix="geminga-attack-") as directory, running(Path(directory)) as target:
        warm = max(1, count // 10) if kind != "slow" else 0
        if warm:
            _strike(kind, target, warm, seed + 1, told)
        # Its topic is made by the witness; all else was there.
        Witness(target, 0.1).result()
        before, held, logged = target.made(), target.held(), target.log_bytes()
        done = threading.Event()
        longest: list[float] = []

        def watch() -> None:
            while not done.is_set():
                longest.append(Witness(target, 5).result()["longest_ms"])

        watching = threading.Thread(target=watch)
        watching.start()
        found = _strike(kind, target, count, seed, told)
        done.set()
        watching.join()
        after = target.held()
        found |= {
            "witness_longest_ms": max(longest),
            "rss_bytes": held.rss_bytes,
            "grown_bytes": after.rss_bytes - held.rss_bytes,
            "grown_files": after.open_files - held.open_files,
            "log_bytes": target.log_bytes() - logged,
        }
        broken = [*target.complaints()]
        if target.made() != before:
            broken.append("something was made")
        if max(longest) > LONGEST_MS:
            broken.append(f"the witness waited {max(longest):.0f} ms")
        if found["grown_bytes"] > GROWN_BYTES_MAX:
            broken.append(f"memory grew by {found['grown_bytes']} bytes")
        return found, broken


def _strike(kind: str, target: Attacked, count: int, seed: int, told: Callable[[str], None]) -> dict[str, Any]:
    ports = target.ports
    if kind == "sockets":
        half = count // 2
        found = strangers.frames(ports["binary"], half, seed)
        return {**(found + strangers.frames(ports["binary with TLS"], half, seed + 1))}
    if kind == "http":
        return {**strangers.http(ports["HTTP"], count, seed)}
    if kind == "halves":
        return {**strangers.halves([ports["binary with TLS"], ports["HTTPS"]], count, seed)}
    firsts = {
        "binary": strangers.handshakes()[0],
        "binary with TLS": strangers.hello(),
        "HTTP": strangers.requests()[0],
        "HTTPS": strangers.hello(),
    }
    found = {}
    for name, port in ports.items():
        found[name] = strangers.slow(port, firsts[name], connections=count, seconds=SLOW_S)
        told(f"{name}: {found[name]}")
    with tempfile.TemporaryDirectory(prefix="geminga-attack-") as directory, running_bookie(Path(directory)) as bookie:
        port, process = bookie
        began_bytes = process.rss_bytes()
        # Its first request, and half of what follows that.
        for name, first in (("bookie", strangers.START_TLS), ("bookie with TLS", strangers.hello())):
            before = strangers.START_TLS if first is not strangers.START_TLS else b""
            found[name] = strangers.slow(port, first, connections=count, seconds=SLOW_S, before=before)
            told(f"{name}: {found[name]}")
        found["bookie_grown_bytes"] = process.rss_bytes() - began_bytes
    return found


def paced(turns: int, seed: int, told: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
    """A witness, while the broker is attacked, and while a socket is that discards all, in turns."""
    command = [sys.executable, "-m", "tools.attack.paced"]
    found: dict[str, list[dict[str, float]]] = {"broker": [], "discarded": []}
    with (
        tempfile.TemporaryDirectory(prefix="geminga-attack-") as directory,
        running(Path(directory)) as target,
        strangers.discarding() as elsewhere,
    ):
        Witness(target, 5).result()
        before = target.made()
        for turn in range(turns):
            for name, port in (("broker", target.ports["binary"]), ("discarded", elsewhere)):
                attacking = subprocess.Popen([*command, str(port), str(TURN_S + 4), str(seed + turn)])
                used_s = target.held().cpu_s
                one = Witness(target, TURN_S).result()
                one["broker_cpu_s"] = round(target.held().cpu_s - used_s, 2)
                found[name].append(one)
                attacking.wait()
                told(f"{name}: {one}")
        broken = [*target.complaints()]
        if target.made() != before:
            broken.append("something was made")
    ratios = {
        key: round(_middle(found["broker"], key) / _middle(found["discarded"], key), 3)
        for key in ("p50_ms", "p99_ms", "cpu_ms")
    }
    return {**found, "ratios": ratios, "messages_per_s": round(1 / PAUSE_S)}, broken


def _middle(results: list[dict[str, float]], key: str) -> float:
    values = sorted(one[key] for one in results)
    return values[len(values) // 2]


def main() -> int:
    """Read the options, attack, print."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.attack", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(COUNTS)}; all, unless said")
    parser.add_argument("--count", type=int, help="frames, requests, halves, slow connections, turns")
    parser.add_argument("--seed", type=int, default=1, help="of the damage (1)")
    parser.add_argument("--json", action="store_true", help="print a JSON line for each kind")
    options = parser.parse_args()
    if unknown := [kind for kind in options.kinds if kind not in COUNTS]:
        parser.error(f"no attack {unknown[0]!r}; expected one of {', '.join(COUNTS)}")

    def told(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    failures: Counter[str] = Counter()
    for kind in options.kinds or COUNTS:
        count = options.count or COUNTS[kind]
        if kind == "frames":
            found, broken = in_process(count, options.seed, told)
        elif kind == "paced":
            found, broken = paced(count, options.seed, told)
        else:
            found, broken = over_sockets(kind, count, options.seed, told)
        if options.json:
            print(json.dumps({"kind": kind, **found, "broken": broken}), flush=True)
        else:
            print(kind, *(f"\n  {name:20} {value}" for name, value in found.items()), flush=True)
        for each in broken:
            failures[kind] += 1
            told(f"BROKEN: {kind}: {each}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
