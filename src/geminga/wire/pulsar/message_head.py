"""Heads of MESSAGE frames for one consumer: what repeats from entry to entry is encoded once.

The bytes are those of :func:`.hot.encode_message_head`, which is for the rare ones with a redelivery count or an
ack set; a head of a plain entry costs a third of that.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from geminga.wire.pulsar.varint import encode_varint

_HEAD: Final = Struct(">II")
_MESSAGE_PREFIX: Final = b"\x08\x09\x4a"


class MessageHeadEncoder:
    """Encodes heads for one consumer, of entries without redelivery count and ack set."""

    __slots__ = ("_consumer", "_epoch", "_ledger_id", "_partition", "_prefixes")

    def __init__(self, consumer_id: int, partition: int, consumer_epoch: int | None) -> None:
        """``partition`` -1 and ``consumer_epoch`` None are left out of the frames."""
        self._consumer = b"\x08" + encode_varint(consumer_id) + b"\x12"
        self._partition = b"\x18" + encode_varint(partition) if partition >= 0 else b""
        self._epoch = b"\x28" + encode_varint(consumer_epoch) if consumer_epoch is not None else b""
        self._ledger_id = -1
        #: Length of the entry id's varint -> (size of the command, its bytes up to the entry id); of one ledger.
        self._prefixes: dict[int, tuple[int, bytes]] = {}

    def encode(self, ledger_id: int, entry_id: int, payload_size_bytes: int) -> bytes:
        """The frame up to its payload, of which ``payload_size_bytes`` bytes follow."""
        if ledger_id != self._ledger_id:
            self._ledger_id = ledger_id
            self._prefixes = {}
        entry = encode_varint(entry_id)
        known = self._prefixes.get(len(entry))
        if known is None:
            known = self._prefixes[len(entry)] = self._prefix(ledger_id, len(entry))
        size, prefix = known
        return _HEAD.pack(size + 4 + payload_size_bytes, size) + prefix + entry + self._partition + self._epoch

    def _prefix(self, ledger_id: int, entry_size: int) -> tuple[int, bytes]:
        ledger = b"\x08" + encode_varint(ledger_id) + b"\x10"
        ids_size = len(ledger) + entry_size + len(self._partition)
        body = self._consumer + encode_varint(ids_size) + ledger
        body_size = len(body) + entry_size + len(self._partition) + len(self._epoch)
        prefix = _MESSAGE_PREFIX + encode_varint(body_size) + body
        return len(prefix) + entry_size + len(self._partition) + len(self._epoch), prefix
