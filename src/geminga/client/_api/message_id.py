"""``MessageId``: where a message lies, as users see it and as Pulsar's ``MessageIdData`` on the wire.

A tuple underneath, (index in the batch, what all messages of the entry share), so that making one costs what a tuple of
two costs; equality, order and hash look at the entry, the
partition and the index in the batch only. Serialized ids are exchangeable with those of the official clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Self

from google.protobuf.message import DecodeError

from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.varint import signed64

_UINT64: Final = (1 << 64) - 1
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1

if TYPE_CHECKING:
    #: Ledger, entry, partition, batch size, topic, first chunk: what all messages of an entry share.
    IdBase = tuple[int, int, int, int, str, "MessageId | None"]
    _Fields = tuple[int, IdBase]
else:
    _Fields = tuple


class MessageId(_Fields):
    """The id of one message; immutable.

    ``ledger_id`` and ``entry_id`` name the entry, ``partition`` the partition of the topic (-1: none),
    ``batch_index`` the message in its batch (-1: not batched) and ``batch_size`` the messages of that batch
    (0: not known). ``topic_name`` is known on consumers of several topics and never serialized.
    """

    __slots__ = ()

    #: Messages know their entry, ids do not; lists of both are sorted out by it.
    _entry: ClassVar[None] = None
    earliest: ClassVar[MessageId]
    latest: ClassVar[MessageId]

    def __new__(
        cls,
        partition: int = -1,
        ledger_id: int = -1,
        entry_id: int = -1,
        batch_index: int = -1,
        batch_size: int = 0,
        *,
        topic_name: str = "",
        first_chunk: MessageId | None = None,
    ) -> Self:
        """Order of the parameters as in the official client."""
        base = (ledger_id, entry_id, partition, batch_size, topic_name, first_chunk)
        return tuple.__new__(cls, (batch_index, base))

    def ledger_id(self) -> int:
        """The ledger, -1 for ``earliest``."""
        return self[1][0]

    def entry_id(self) -> int:
        """The entry in the ledger."""
        return self[1][1]

    def partition(self) -> int:
        """Index of the topic's partition, -1 for none."""
        return self[1][2]

    def batch_index(self) -> int:
        """Index in the batch, -1 if it was not batched."""
        return self[0]

    def batch_size(self) -> int:
        """Messages of the batch, 0 if it was not batched or the size is not known."""
        return self[1][3]

    def topic_name(self) -> str:
        """The topic it was received from (the partition's own name), empty if not known."""
        return self[1][4]

    def first_chunk_message_id(self) -> MessageId | None:
        """Where a chunked message begins; its own id is that of its last chunk. None for others."""
        return self[1][5]

    def serialize(self) -> bytes:
        """``MessageIdData`` as bytes, readable by every Pulsar client."""
        data: bytes = self.to_data().SerializeToString()
        return data

    @classmethod
    def deserialize(cls, message_id_bytes: bytes, topic: str | None = None) -> MessageId:
        """The id that :meth:`serialize` of any client wrote; ValueError for anything else."""
        if not isinstance(message_id_bytes, bytes):
            raise ValueError(f"{message_id_bytes!r:.100}: expected the bytes of a message id")
        try:
            data = pb.MessageIdData.FromString(message_id_bytes)
        except DecodeError as error:
            raise ValueError(f"{len(message_id_bytes)} bytes that are no message id") from error
        if not data.IsInitialized():
            raise ValueError("a message id without ledger or entry")
        return cls.from_data(data, topic or "")

    @classmethod
    def from_data(cls, data: pb.MessageIdData, topic_name: str = "") -> MessageId:
        """From the wire's form."""
        first = data.first_chunk_message_id if data.HasField("first_chunk_message_id") else None
        return cls(
            data.partition,
            signed64(data.ledgerId),
            signed64(data.entryId),
            data.batch_index,
            data.batch_size,
            topic_name=topic_name,
            first_chunk=None if first is None else cls.from_data(first, topic_name),
        )

    def to_data(self) -> pb.MessageIdData:
        """The wire's form."""
        batch_index, (ledger_id, entry_id, partition, batch_size, _, first) = self
        data = pb.MessageIdData(ledgerId=ledger_id & _UINT64, entryId=entry_id & _UINT64)
        if partition >= 0:
            data.partition = partition
        if batch_index >= 0:
            data.batch_index = batch_index
        if batch_size > 0:
            data.batch_size = batch_size
        if first is not None:
            data.first_chunk_message_id.CopyFrom(first.to_data())
        return data

    @property
    def is_possible(self) -> bool:
        """Whether its numbers can be on the wire: an id is made of whatever is given, and checked where it is used."""
        batch_index, (ledger_id, entry_id, partition, batch_size, topic_name, _) = self
        is_entry = all(isinstance(number, int) and -1 <= number <= _INT64_MAX for number in (ledger_id, entry_id))
        rest = (batch_index, partition, batch_size)
        is_message = all(isinstance(number, int) and -1 <= number <= _INT32_MAX for number in rest)
        return is_entry and is_message and isinstance(topic_name, str)

    def with_topic(self, topic_name: str) -> MessageId:
        """The same id, known to be of ``topic_name``."""
        return tuple.__new__(MessageId, (self[0], (*self[1][:4], topic_name, self[1][5])))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageId) and self[0] == other[0] and self[1][:3] == other[1][:3]

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __hash__(self) -> int:
        return hash((self[0], self[1][:3]))

    def _key(self) -> tuple[int, int, int, int]:
        # An entry as a whole (-1) is behind each message of its batch, as the last of them is.
        index, (ledger_id, entry_id, partition, *_) = self
        return ledger_id, entry_id, index if index >= 0 else _INT64_MAX, partition

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self._key() < other._key() if isinstance(other, MessageId) else NotImplemented

    def __le__(self, other: tuple[object, ...]) -> bool:
        return self._key() <= other._key() if isinstance(other, MessageId) else NotImplemented

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return self._key() > other._key() if isinstance(other, MessageId) else NotImplemented

    def __ge__(self, other: tuple[object, ...]) -> bool:
        return self._key() >= other._key() if isinstance(other, MessageId) else NotImplemented

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, tuple(self)

    def __str__(self) -> str:
        return "({},{},{},{})".format(*self[1][:3], self[0])

    def __repr__(self) -> str:
        return f"MessageId{self}"


def _restore(*fields: object) -> MessageId:
    return tuple.__new__(MessageId, fields)


#: Before every message; behind every message. A subscription may start, and ``seek`` go, there.
MessageId.earliest = MessageId(-1, -1, -1)
MessageId.latest = MessageId(-1, _INT64_MAX, _INT64_MAX)
