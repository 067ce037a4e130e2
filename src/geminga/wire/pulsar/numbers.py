"""Numbers that a client chooses: which are refused where they enter, and what the others count as. Pure.

One table for the broker; docs/formats/client-numbers.md tells it to people. A number is *refused* where it can not be
meant and would do harm later, *clamped* where something sensible can be made of it, and taken as it is (*any*) where it
is only compared, echoed or handed on. Entries are judged again, leniently, when they are read from storage: another
broker, or an older one, may have taken what is refused here.

A SEND's metadata is not parsed on its way in, which would take 4 % of a publish. What is no longer than the metadata of
a plain message is not looked at; in all else :func:`is_suspect` looks for a byte 0xFF: every negative number has one in
its varint, and so have the largest of each type. One that is sent in no transaction and names one all the same would
be that one's for whoever reads the log again; its metadata have the first byte of the tag of ``txnid_most_bits``. Where
a message was stored in another cluster is a replicator's to say: who replays the log believes it, and takes all that
comes from there up to that position for repetitions. What is not seen (a batch of two million messages, a producer
that calls itself otherwise in its metadata) is clamped where the entry is read. Lists and texts that are longer than
they may be (:mod:`geminga.wire.pulsar.texts`) are found with metadata of more than 255 bytes, all of which are parsed.
"""

from __future__ import annotations

from typing import Final

from geminga.model.errors import ChecksumMismatchError, NotAllowedError, RemoteError
from geminga.model.topic_name import REPLICATOR_PREFIX
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.markers import MARKER_BYTES_MIN, transaction_of
from geminga.wire.pulsar.metadata import METADATA_OFFSET, SOURCE_POSITION, checksum_matches, split_entry, text_of
from geminga.wire.pulsar.texts import LOOKED_AT_BYTES, texts_refusal

#: Largest int64. Pulsar's protocol says uint64 where its brokers and clients mean a Java ``long``.
LONG_MAX: Final = (1 << 63) - 1
#: Messages in one batch. A batch of the largest frame holds fewer unless nearly all of it is compressed away.
BATCH_MESSAGES_MAX: Final = 1 << 20
#: Bytes that a message takes in a batch at least: the size of its metadata, and that with its payload's size.
BATCH_MESSAGE_BYTES_MIN: Final = 6
#: Up to so many messages a batch is believed without regard to its bytes (Pulsar's ``batchingMaxMessages``).
BATCH_MESSAGES_BELIEVED: Final = 1000
#: Permits of one FLOW: no client has a queue of so many, and counts must stay sane.
FLOW_PERMITS_MAX: Final = (1 << 31) - 1
#: Ledgers whose lengths one answer tells (docs/formats/ledger-lengths.md).
LEDGERS_TOLD_MAX: Final = 1000

#: Fields of ``MessageMetadata``: name -> (least, largest) that a SEND may have. All others: any.
METADATA_LIMITS: Final = {
    "sequence_id": (0, LONG_MAX),
    "highest_sequence_id": (0, LONG_MAX),
    "publish_time": (0, LONG_MAX),
    "num_messages_in_batch": (0, BATCH_MESSAGES_MAX),
    "num_chunks_from_msg": (0, (1 << 31) - 1),
    "chunk_id": (0, (1 << 31) - 1),
    "total_chunk_msg_size": (0, (1 << 31) - 1),
}
#: Fields of commands: (field of ``BaseCommand``, its field) -> (least, largest). All others: any.
COMMAND_LIMITS: Final = {
    ("send", "sequence_id"): (0, LONG_MAX),
    ("send", "highest_sequence_id"): (0, LONG_MAX),
    ("send", "num_messages"): (0, BATCH_MESSAGES_MAX),
    ("producer", "topic_epoch"): (0, LONG_MAX),
    ("flow", "messagePermits"): (1, FLOW_PERMITS_MAX),
}
#: First byte of the tag of ``txnid_most_bits`` in metadata.
_TXN_TAG: Final = pb.MessageMetadata(txnid_most_bits=0).SerializePartialToString()[0]
_SOURCE: Final = SOURCE_POSITION.encode()
#: Of its bytes the one that plain metadata have least, looked for first: a text takes seven times as long.
_SOURCE_SIGN: Final = ord("_")


def plain_metadata_bytes(producer_name: str) -> int:
    """Size of metadata that have the producer's name, a sequence id, a time, and no room for a negative number.

    Nor for the end of a transaction, with whatever name: that is another producer's to write.
    """
    return min(2 + len(producer_name.encode()) + 5 + 7, MARKER_BYTES_MIN - 1)


def is_suspect(entry: bytes, is_in_transaction: bool, *, is_copier: bool = False) -> bool:
    """Whether the entry of a SEND, which has a checksum and more than :func:`plain_metadata_bytes` of metadata, must
    be judged by :func:`metadata_refusal`. ``is_copier``: its producer is a replicator."""
    if entry[6] or entry[7] or entry[8]:
        return True
    metadata = entry[METADATA_OFFSET : METADATA_OFFSET + entry[9]]
    if 255 in metadata or (not is_in_transaction and _TXN_TAG in metadata):
        return True
    return not is_copier and _SOURCE_SIGN in metadata and _SOURCE in metadata


def metadata_refusal(entry: bytes, is_in_transaction: bool, *, is_copier: bool = False) -> str:
    """Why a SEND with this entry is refused; empty if it is not. What can not be parsed is nobody's number.

    ``is_copier``: its producer is a replicator.
    """
    metadata, offset = split_entry(entry)
    if metadata is None:
        return ""
    if offset > LOOKED_AT_BYTES and (text := texts_refusal(metadata, is_copier=is_copier)):
        return text
    for name, (least, largest) in METADATA_LIMITS.items():
        value = getattr(metadata, name)
        if not least <= value <= largest:
            return _text(name, value, least, largest)
    txn_id = None if is_in_transaction else transaction_of(metadata)
    if txn_id is not None:
        return f"the message's metadata name transaction {txn_id}, but the SEND command names none: it must, too"
    if not is_copier and metadata.replicated_from and any(pair.key == SOURCE_POSITION for pair in metadata.properties):
        return (
            f"the message's metadata say where it was stored in cluster {text_of(metadata.replicated_from)}: that is "
            f"for a replicator to say, a producer whose name begins with {REPLICATOR_PREFIX}"
        )
    return ""


def send_refusal(entry: bytes, is_in_transaction: bool, *, is_copier: bool = False) -> RemoteError | None:
    """Why a SEND with this entry is refused, its checksum included; None if it is not."""
    if not checksum_matches(entry):
        return ChecksumMismatchError("Checksum failed on the broker")
    text = metadata_refusal(entry, is_in_transaction, is_copier=is_copier)
    return NotAllowedError(text) if text else None


def command_refusal(kind: str, name: str, value: int) -> str:
    """Why a command with this value is refused; empty if it is not."""
    least, largest = COMMAND_LIMITS[kind, name]
    return "" if least <= value <= largest else _text(name, value, least, largest)


def batch_size(metadata: pb.MessageMetadata, entry_bytes: int) -> int:
    """How many messages an entry counts as; at least 1, whatever its metadata say.

    ``entry_bytes``: of the whole entry. More messages than its bytes can hold are not believed.
    """
    size: int = metadata.num_messages_in_batch
    if size <= 1:
        return 1
    if size > BATCH_MESSAGES_BELIEVED:
        held = max(entry_bytes, metadata.uncompressed_size if metadata.compression else 0) // BATCH_MESSAGE_BYTES_MIN
        return min(size, BATCH_MESSAGES_MAX, max(held, BATCH_MESSAGES_BELIEVED))
    return size


def as_long(number: int) -> int:
    """A uint64 as the Java ``long`` that was meant; a negative one, which no time or sequence id is, counts as 0."""
    return number if number <= LONG_MAX else 0


def _text(name: str, value: int, least: int, largest: int) -> str:
    return f"{name} {value} is not one of {least} to {largest}"
