"""Every limit that is not configuration, with its name, unit and reason. Queues and loops refer to these."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

#: Largest message (metadata + payload) unless configured, bytes (Pulsar's ``maxMessageSize`` default).
MESSAGE_SIZE_BYTES_MAX_DEFAULT: Final = 5 * 1024 * 1024
#: What a frame may hold beside the message: command, checksum, lengths (Pulsar's MESSAGE_SIZE_FRAME_PADDING).
FRAME_PADDING_BYTES: Final = 10 * 1024
#: Largest value of a metadata node, bytes (ZooKeeper's ``jute.maxbuffer`` default).
METADATA_VALUE_BYTES_MAX: Final = 1024 * 1024

#: Transaction coordinators of a cluster. Each is a log of its own, which whoever starts looks for.
TRANSACTION_COORDINATORS_MAX: Final = 1 << 10
#: Partitions of one topic where ``maxNumPartitionsPerPartitionedTopic`` says nothing: each is a node, all of which a
#: ZooKeeper keeps in memory. One request for a million cost a cluster its metadata store.
PARTITIONS_MAX: Final = 100_000


def count_within(sizes: Iterable[int], bytes_max: int) -> int:
    """How many of the first sizes are no more than ``bytes_max`` together; the first one counts in any case."""
    ends = list(accumulate(sizes))
    return max(min(1, len(ends)), bisect_right(ends, bytes_max))
