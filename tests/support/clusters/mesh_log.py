"""What the bookies of a simulated cluster hold of messages, read from their entries and from nothing of the broker's.

Ledgers have one copy, and nobody collects what the metadata do not list any more: what was ever stored is here, also
behind a trim. So is what a broker wrote to a ledger before it listed it, and was cut off: nobody was told that this is
stored, and nobody reads it (:meth:`StoreLog.listed`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from geminga.bookkeeper.memory import MemoryBookie
from geminga.metadata.core.tree import MetadataTree
from geminga.model.position import Position
from geminga.wire.bookkeeper.digest import Crc32cDigest
from geminga.wire.bookkeeper.ledger_metadata import LedgerState, decode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import ledger_path
from geminga.wire.managed_ledger import decode_managed_ledger_info
from geminga.wire.pulsar.metadata import split_entry, text_of
from support.worlds.client_world import _messages_of

#: How the payload of each message of the stories begins.
MARK: Final = b"mesh "
#: Below it the lists, at TENANT/NAMESPACE/DOMAIN/TOPIC.
_LISTS: Final = "/managed-ledgers"
_LIST_DEPTH: Final = 4
_PRODUCER: Final = re.compile(r"[a-z]\.[-a-z0-9]+\.[-a-z]+$")


class Said(NamedTuple):
    """What a message says of itself; no two say the same."""

    topic: str
    producer: str
    number: int

    @property
    def origin(self) -> str:
        """The cluster where it was published."""
        return self.producer.partition(".")[0]

    def encode(self, size: int = 0) -> bytes:
        return (MARK + f"{self.topic} {self.producer} {self.number} ".encode()).ljust(size, b".")


def said(payload: bytes) -> Said:
    _, topic, producer, number, _ = payload.decode().split(" ")
    return Said(topic, producer, int(number))


class Stored(NamedTuple):
    """A message of a log; of one in parts, the last of them."""

    position: Position
    said: Said
    #: The cluster that it was copied from; empty: it was published here.
    copied_from: str


class StoreLog:
    """All messages that a cluster holds, topic by topic in the order of its log; reads on where it was before."""

    def __init__(self, bookies: Iterable[MemoryBookie], tree: MetadataTree) -> None:
        self._bookies = tuple(bookies)
        self._tree = tree
        #: Ledger -> how many of its entries were read.
        self._read: dict[int, int] = {}
        #: Of ledgers, parts of messages whose last one has not been read.
        self._chunks: dict[str, list[bytes]] = {}
        self.messages: dict[str, list[Stored]] = {}
        self.there: set[Said] = set()
        #: In the order in which they were read here, since somebody took them out.
        self.news: list[Stored] = []

    def listed(self) -> dict[str, list[Stored]]:
        """:attr:`messages` but for those of ledgers that are open and that no list names."""
        in_vain = {ledger_id for ledger_id in self._read if self._is_open(ledger_id)} - set(self._ledgers_of_lists())
        return {
            topic: [one for one in messages if one.position.ledger_id not in in_vain]
            for topic, messages in self.messages.items()
        }

    def _is_open(self, ledger_id: int) -> bool:
        node = self._tree.get(ledger_path(ledger_id), session=0)
        return node is not None and decode_ledger_metadata(node.value, ledger_id).state is LedgerState.OPEN

    def _ledgers_of_lists(self) -> Iterator[int]:
        paths = [_LISTS]
        for _ in range(_LIST_DEPTH):
            paths = [f"{path}/{name}" for path in paths for name in self._tree.children(path)]
        for path in paths:
            node = self._tree.get(path, session=0)
            if node is not None and node.value:
                yield from (record.ledger_id for record in decode_managed_ledger_info(node.value).ledgers)

    def read(self) -> None:
        """What was stored since."""
        for ledger_id in sorted({one for bookie in self._bookies for one in bookie.ledger_ids()}):
            holders = [bookie for bookie in self._bookies if bookie.entry_ids(ledger_id)]
            ids = sorted({entry_id for bookie in holders for entry_id in bookie.entry_ids(ledger_id)})
            for entry_id in ids[self._read.get(ledger_id, 0) :]:
                whole = next(found for bookie in holders if (found := bookie.entry(ledger_id, entry_id)) is not None)
                data = Crc32cDigest().payload(ledger_id, entry_id, whole)
                if isinstance(data, bytes):
                    self._entry(data, Position(ledger_id, entry_id))
            self._read[ledger_id] = len(ids)

    def _entry(self, data: bytes, position: Position) -> None:
        metadata, _ = split_entry(data)
        if metadata is None or metadata.HasField("marker_type") or not _PRODUCER.match(metadata.producer_name):
            return
        origin = text_of(metadata.replicated_from)
        chunks: dict[str, list[bytes]] = self._chunks
        for one in _messages_of(data, *position, chunks):
            if one.payload.startswith(MARK):
                found = said(one.payload)
                self.news.append(Stored(position, found, origin))
                self.messages.setdefault(found.topic, []).append(self.news[-1])
                self.there.add(found)
