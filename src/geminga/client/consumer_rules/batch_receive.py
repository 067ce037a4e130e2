"""When a ``batch_receive`` has enough: by count, by bytes, by time (Pulsar's BatchReceivePolicy)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from geminga.client.rules.option_kinds import INT64_MAX, TIME_MS_MAX, Kind, Number, first_problem
from geminga.model.errors import ConfigurationError

BYTES_MAX_DEFAULT = 10 * 1024 * 1024
TIMEOUT_MS_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class BatchReceivePolicy:
    """The first limit that is reached ends the wait; a limit of 0 or less does not count, but one must.

    A batch is never empty because of a limit: one message larger than ``max_num_bytes`` comes alone.
    """

    max_num_message: int = -1
    max_num_bytes: int = BYTES_MAX_DEFAULT
    timeout_ms: int = TIMEOUT_MS_DEFAULT

    def __post_init__(self) -> None:
        wrong = first_problem(self, _KINDS)
        if wrong is not None:
            raise ConfigurationError(wrong)
        if self.max_num_message <= 0 and self.max_num_bytes <= 0 and self.timeout_ms <= 0:
            raise ConfigurationError("batch receive policy: at least one of the limits must be above 0")

    def is_enough(self, message_count: int, size_bytes: int, count_max: int) -> bool:
        """Whether what waits is a batch; ``count_max`` is what the prefetch queue can hold."""
        wanted = min(self.max_num_message, count_max) if self.max_num_message > 0 else count_max
        return message_count >= wanted or 0 < self.max_num_bytes <= size_bytes


def fitting(sizes: Iterable[int], room: int, *, has_some: bool) -> int:
    """How many of the messages of these sizes fit into ``room`` bytes, in order; one at least unless there are some."""
    count = 0
    for size in sizes:
        room -= size
        if room < 0:
            break
        count += 1
    return count if count or has_some else 1


_KINDS: Final[Mapping[str, Kind]] = {
    "max_num_message": Number(-INT64_MAX, INT64_MAX),
    "max_num_bytes": Number(-INT64_MAX, INT64_MAX),
    "timeout_ms": Number(-TIME_MS_MAX, TIME_MS_MAX),
}
