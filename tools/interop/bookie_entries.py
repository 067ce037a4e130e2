"""Entries as Apache's bookie has them, over version 2 of BookKeeper's protocol: it asks for nothing but a ledger's id.

Those of topics, of cursors, and of logs that no client may read are told by Pulsar's internal statistics.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Final

from geminga.model.errors import CorruptionError
from geminga.wire.bookkeeper.digest import Crc32cDigest

_READ_ENTRY: Final = 2
#: Version and operation, as they begin a packet.
_HEAD: Final = (2 << 24) | (_READ_ENTRY << 16)
#: Length of what follows, head, ledger id, entry id.
_REQUEST: Final = struct.Struct(">IIqq")
#: Head, code, ledger id, entry id; then the entry.
_ANSWER: Final = struct.Struct(">IIqq")
_OK: Final = 0
#: No such ledger, no such entry.
_ABSENT: Final = (1, 2)
_LIMIT_S: Final = 20.0


def bookie_entries(port: int, ledger_id: int) -> Iterator[bytes]:
    """The payloads of a ledger, from its first entry to the last that is stored, with their digests checked."""
    digest = Crc32cDigest()
    with socket.create_connection(("127.0.0.1", port), _LIMIT_S) as connection, connection.makefile("rb") as answers:
        entry_id = 0
        while True:
            connection.sendall(_REQUEST.pack(_REQUEST.size - 4, _HEAD, ledger_id, entry_id))
            packet = answers.read(int.from_bytes(answers.read(4), "big"))
            _, code, *_ = _ANSWER.unpack_from(packet)
            if code in _ABSENT:
                return
            assert code == _OK, f"ledger {ledger_id} entry {entry_id}: the bookie answers {code}"
            payload = digest.payload(ledger_id, entry_id, packet[_ANSWER.size :])
            if isinstance(payload, CorruptionError):
                raise payload
            yield payload
            entry_id += 1
