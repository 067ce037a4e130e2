"""Samples the processor time of the program that finds this on its path, if ``BENCH_SAMPLES`` names a file.

Python imports a module of this name at every start. Every 2 ms of processor time of all threads the stack of the main
thread, which has the loop, is counted; what the loop itself and threads of the disk do falls on where that one is. The
file is written when the program ends.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_S = 0.002
SHOWN = 30


def _name(frame: FrameType) -> str:
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-3:])}:{frame.f_code.co_name}"


def _sample(file: Path) -> None:
    own: Counter[str] = Counter()
    with_callees: Counter[str] = Counter()

    def tick(_: int, frame: FrameType | None) -> None:
        if frame is not None:
            own[_name(frame)] += 1
        seen = set()
        while frame is not None:
            seen.add(_name(frame))
            frame = frame.f_back
        with_callees.update(seen)

    def write() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        total = max(1, sum(own.values()))
        lines = [f"{total} samples of {EVERY_S * 1000:g} ms processor time"]
        for title, counts in (("itself", own), ("with what it calls", with_callees)):
            lines.append(title)
            lines += [f"{count / total:6.1%}  {name}" for name, count in counts.most_common(SHOWN)]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    signal.signal(signal.SIGPROF, tick)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)
    atexit.register(write)


if "BENCH_SAMPLES" in os.environ and "standalone" in sys.orig_argv:
    _sample(Path(os.environ["BENCH_SAMPLES"]))
