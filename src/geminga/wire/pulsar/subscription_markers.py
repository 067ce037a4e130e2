"""Entries that brokers write into a topic to keep its replicated subscriptions alike in several clusters.

Their form is Pulsar's: ``marker_type`` of the metadata says what the payload is (``proto/subscription_markers.proto``).
Where one goes is said by ``replicate_to``: everywhere, to the cluster that asked alone, or nowhere (it names its own).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from geminga.model.position import Position
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire._generated import subscription_markers_pb2 as markers_pb
from geminga.wire.pulsar.metadata import encode_entry, text_of

#: ``MarkerType`` of Pulsar.
SNAPSHOT_REQUEST: Final = 10
SNAPSHOT_RESPONSE: Final = 11
SNAPSHOT: Final = 12
UPDATE: Final = 13
MARKER_TYPES: Final = frozenset({SNAPSHOT_REQUEST, SNAPSHOT_RESPONSE, SNAPSHOT, UPDATE})
#: Those that mean something to the cluster that they come to.
TRAVELLING: Final = frozenset({SNAPSHOT_REQUEST, SNAPSHOT_RESPONSE, UPDATE})
#: Name of the producer in their metadata.
PRODUCER_NAME: Final = "pulsar.marker"
#: A longer payload is no marker's. Whoever may publish can write one, and each subscription remembers some snapshots.
PAYLOAD_BYTES_MAX: Final = 64 * 1024
_HALF_MAX: Final = (1 << 63) - 1

M = TypeVar("M", bound=Message)


class InCluster(NamedTuple):
    """A position, and the cluster in which it is one."""

    cluster: str
    position: Position


class Request(NamedTuple):
    """Where are you?"""

    snapshot_id: str
    #: Who asks.
    source: str


class Response(NamedTuple):
    """Here: this was the last entry of the topic when the request was seen."""

    snapshot_id: str
    at: InCluster


class Snapshot(NamedTuple):
    """What is at or before the positions of the others is at or before ``local`` here."""

    snapshot_id: str
    local: Position
    others: tuple[InCluster, ...]


class Update(NamedTuple):
    """A subscription has acknowledged all that is at or before these positions."""

    subscription: str
    positions: tuple[InCluster, ...]


Marker = Request | Response | Snapshot | Update


def encode_request(request: Request, now_ms: int) -> bytes:
    """The entry; ``now_ms``: wall clock. It goes to all clusters."""
    payload = markers_pb.SnapshotRequest(snapshot_id=request.snapshot_id, source_cluster=request.source)
    return _entry(SNAPSHOT_REQUEST, payload, now_ms)


def encode_response(response: Response, to_cluster: str, now_ms: int) -> bytes:
    """The entry; it goes to ``to_cluster``."""
    payload = markers_pb.SnapshotResponse(snapshot_id=response.snapshot_id, cluster=_encoded(response.at))
    return _entry(SNAPSHOT_RESPONSE, payload, now_ms, to_cluster)


def encode_local_snapshot(snapshot: Snapshot, local_cluster: str, now_ms: int) -> bytes:
    """The entry; it goes nowhere."""
    payload = markers_pb.Snapshot(
        snapshot_id=snapshot.snapshot_id,
        local_message_id=_id_of(snapshot.local),
        clusters=map(_encoded, snapshot.others),
    )
    return _entry(SNAPSHOT, payload, now_ms, local_cluster)


def encode_update(update: Update, now_ms: int) -> bytes:
    """The entry; it goes to all clusters."""
    payload = markers_pb.SubscriptionUpdate(
        subscription_name=update.subscription, clusters=map(_encoded, update.positions)
    )
    return _entry(UPDATE, payload, now_ms)


def decode_marker(marker_type: int, payload: bytes) -> Marker | None:
    """What an entry's payload says; None for another type, and for what is damaged, too long, or lacks something."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        return None
    try:
        if marker_type == SNAPSHOT_REQUEST:
            request = _parsed(markers_pb.SnapshotRequest(), payload)
            source = text_of(request.source_cluster)
            return Request(text_of(request.snapshot_id), source) if source else None
        if marker_type == SNAPSHOT_RESPONSE:
            response = _parsed(markers_pb.SnapshotResponse(), payload)
            found = _decoded([response.cluster] if response.HasField("cluster") else [])
            return Response(text_of(response.snapshot_id), found[0]) if found else None
        if marker_type == SNAPSHOT:
            snapshot = _parsed(markers_pb.Snapshot(), payload)
            local = _position(snapshot.local_message_id) if snapshot.HasField("local_message_id") else None
            return (
                None if local is None else Snapshot(text_of(snapshot.snapshot_id), local, _decoded(snapshot.clusters))
            )
        if marker_type == UPDATE:
            update = _parsed(markers_pb.SubscriptionUpdate(), payload)
            name = text_of(update.subscription_name)
            return Update(name, _decoded(update.clusters)) if name else None
    except DecodeError:
        return None
    return None


def _entry(marker_type: int, payload: Message, now_ms: int, only_to: str | None = None) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name=PRODUCER_NAME, sequence_id=0, publish_time=now_ms, marker_type=marker_type
    )
    if only_to is not None:
        metadata.replicate_to.append(only_to)
    return encode_entry(metadata, payload.SerializeToString())


def _parsed(message: M, payload: bytes) -> M:
    message.ParseFromString(payload)
    return message


def _id_of(position: Position) -> markers_pb.EntryId:
    # The position before the first entry of a ledger is -1 in Pulsar's, as an unsigned number.
    return markers_pb.EntryId(ledger_id=position.ledger_id & _WORD, entry_id=position.entry_id & _WORD)


def _encoded(found: InCluster) -> markers_pb.ClusterMessageId:
    return markers_pb.ClusterMessageId(cluster=found.cluster, message_id=_id_of(found.position))


def _decoded(clusters: Iterable[markers_pb.ClusterMessageId]) -> tuple[InCluster, ...]:
    return tuple(InCluster(text_of(each.cluster), _position(each.message_id)) for each in clusters)


def _position(message_id: markers_pb.EntryId) -> Position:
    return Position(_signed(message_id.ledger_id), _signed(message_id.entry_id))


def _signed(number: int) -> int:
    return number if number <= _HALF_MAX else number - (1 << 64)


_WORD: Final = (1 << 64) - 1
