"""Which partition a message goes to."""

from __future__ import annotations

from geminga.wire.pulsar.keys import java_string_hash, murmur3_32


def partition_of_key(key: str, partitions: int, *, murmur3: bool) -> int:
    """Where messages with this key go; the same in every client that uses the same hash.

    Keys that are bytes are hashed as their base64 text, which is what the wire carries.
    """
    value = murmur3_32(key.encode()) if murmur3 else java_string_hash(key)
    return value % partitions


class RoundRobin:
    """One partition after the other, from a start that differs from producer to producer."""

    __slots__ = ("_next",)

    def __init__(self, start: int) -> None:
        self._next = start

    def advance(self, partitions: int) -> int:
        """The next partition."""
        chosen = self._next % partitions
        self._next = chosen + 1
        return chosen
