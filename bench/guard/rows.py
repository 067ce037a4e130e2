"""The rows: how many messages are counted, what is judged, and where a slowdown is planted; :mod:`bench.guard.loads`
has what they do."""

from __future__ import annotations

from typing import Final, NamedTuple

from bench.guard.verdict import JUDGED, JUDGED_CLUSTER

#: Messages of a batch, and those that a catching-up consumer asks for at once.
BATCH: Final = 50
WINDOW: Final = 50
#: Networks of a cluster.
CLUSTER_SEEDS: Final = 5


class Row(NamedTuple):
    """One line of the table."""

    #: Messages (calls) that are counted, and that come before.
    count: int
    warm: int
    judged: tuple[str, ...] = JUDGED
    #: The file below ``geminga`` and the function that every message runs through.
    hot: tuple[str, str] = ("wire/pulsar/frame.py", "FrameDecoder.feed")
    #: Simulated networks whose median is taken.
    seeds: int = 1


_REST_HOT = ("broker/rest/calls/routing.py", "SegmentRouter.app")

ROWS: Final[dict[str, Row]] = {
    "publish small": Row(300, 100),
    "publish batched": Row(60 * BATCH, 20 * BATCH),
    "fan-out 10": Row(50, 30),
    "Shared": Row(200, 100),
    "Key_Shared": Row(200, 100),
    "catch-up": Row(8 * WINDOW, 4 * WINDOW),
    "client publishing": Row(200, 100),
    "client consuming": Row(200, 100),
    "transaction": Row(40, 40),
    "REST statistics": Row(100, 50, hot=_REST_HOT),
    "policy POST": Row(60, 50, hot=_REST_HOT),
    "--brokers 2": Row(100, 60, JUDGED_CLUSTER, seeds=CLUSTER_SEEDS),
    "cluster 3/2/2": Row(100, 60, JUDGED_CLUSTER, seeds=CLUSTER_SEEDS),
}
