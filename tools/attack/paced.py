"""``python -m tools.attack.paced PORT SECONDS SEED``: 500 damaged frames and 200 connections a second at a port."""

from __future__ import annotations

import sys
import threading
import time

from tools.attack import strangers
from tools.attack.__main__ import CONNECTIONS_PER_S, FRAMES_PER_S


def main() -> int:
    """Attack for so long."""
    port, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    beside = threading.Thread(target=strangers.connections, args=(port, seconds), kwargs={"per_s": CONNECTIONS_PER_S})
    beside.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        strangers.frames(port, int(FRAMES_PER_S), seed, per_s=FRAMES_PER_S)
        seed += 1
    beside.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
