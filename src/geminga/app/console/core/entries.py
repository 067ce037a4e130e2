"""The messages of an entry as the administration hands it out: its payload, and headers that say the rest.

Headers are those of Pulsar's ``generateResponseWithEntry``; docs/rest.md.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.app.console.core.moments import iso_time
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.batch import decode_batch
from geminga.wire.pulsar.metadata import text_of, texts_of
from geminga.wire.pulsar.schema_info import decode_version

#: Messages of a batch, and bytes of what is said of them, above which it is not taken apart.
BATCH_MESSAGES_MAX: Final = 10_000
BATCH_HEADS_BYTES_MAX: Final = 4 << 20
_PREFIX: Final = "x-pulsar-"
#: What a marker says, by its number in Pulsar's ``MarkerType``.
_MARKERS: Final = {
    10: "a request for a snapshot of replicated subscriptions",
    11: "an answer to a request for a snapshot of replicated subscriptions",
    12: "a snapshot of replicated subscriptions",
    13: "an update of a replicated subscription",
    21: "the commit of a transaction",
    22: "the abort of a transaction",
}


class ViewedMessage(NamedTuple):
    """One message."""

    #: ``ledger:entry``, or ``ledger:entry:index`` in a batch.
    id: str
    #: None: a null value.
    payload: bytes | None
    #: None: no key. Bytes where it was given as such.
    key: str | bytes | None = None
    ordering_key: bytes = b""
    properties: Mapping[str, str] = {}
    producer: str = ""
    sequence_id: str = ""
    #: ISO 8601, UTC; empty: there is none.
    publish_time: str = ""
    event_time: str = ""
    deliver_at: str = ""
    #: Of the topic's schemas; None: none is said.
    schema_version: int | None = None
    #: Empty: none.
    compression: str = ""
    #: Empty: it is not encrypted.
    encryption: str = ""
    replicated_from: str = ""
    #: ``(most,least)``.
    transaction: str = ""
    #: Of a piece of a large message: ``2 of 5``.
    chunk: str = ""
    batch_size: int = 0
    batch_index: int = -1
    #: Not a message of a producer, but of the broker: what it says.
    marker: str = ""
    #: Why the entry could not be taken apart.
    problem: str = ""

    @property
    def key_text(self) -> str | None:
        """The key as it reads: keys of pairs are bytes that mostly are a text; None where only its bytes say it."""
        if not isinstance(self.key, bytes):
            return self.key
        try:
            text = self.key.decode()
        except UnicodeDecodeError:
            return None
        return text if text.isprintable() else None


def messages_of(payload: bytes, headers: Mapping[str, str]) -> list[ViewedMessage]:
    """All of an entry, those that compaction took out of a batch left out; a batch that is damaged is one message."""
    told = {name.removeprefix(_PREFIX): value for name, value in headers.items() if name.startswith(_PREFIX)}
    whole = _whole(payload, told)
    count = _number(told.get("num-batch-message"))
    if count is None or whole.marker:
        return [whole]
    whole = whole._replace(batch_size=count)
    if whole.encryption:
        return [whole._replace(problem=f"a batch of {count} messages, encrypted as one")]
    if not 0 < count <= BATCH_MESSAGES_MAX:
        return [whole._replace(problem=f"a batch of {count} messages is not taken apart")]
    try:
        batch = decode_batch(payload, count, heads_bytes_max=BATCH_HEADS_BYTES_MAX)
    except ValueError as error:
        return [whole._replace(problem=f"{error}")]
    return [_single(whole, index, *one) for index, one in enumerate(batch) if not one[0].compacted_out]


def _whole(payload: bytes, told: Mapping[str, str]) -> ViewedMessage:
    is_encrypted = told.get("is-encrypted") == "true"
    marker = _number(told.get("marker-type")) or 0
    chunks = _number(told.get("property-total-chunks"))
    most, least = told.get("txnid-most-bits"), told.get("txnid-least-bits")
    return ViewedMessage(
        told.get("message-id", ""),
        None if told.get("null-value") == "true" else payload,
        _key(told),
        _base64(told.get("base64-ordering-key", "")),
        _properties(told.get("property", "")),
        told.get("producer-name", ""),
        told.get("sequence-id", ""),
        told.get("publish-time", ""),
        event_time=told.get("event-time", ""),
        deliver_at=told.get("deliver-at-time", ""),
        schema_version=_version(told.get("base64-schema-version", "")),
        compression=told.get("compression", ""),
        encryption=told.get("encryption-algo", "") or "yes" if is_encrypted else "",
        replicated_from=told.get("replicated-from", ""),
        transaction=f"({most},{least})" if most is not None and least is not None else "",
        chunk=f"{(_number(told.get('property-chunk-id')) or 0) + 1} of {chunks}" if chunks and chunks > 1 else "",
        marker=_MARKERS.get(marker, f"a marker of type {marker}") if marker else "",
    )


def _single(whole: ViewedMessage, index: int, single: pb.SingleMessageMetadata, payload: bytes) -> ViewedMessage:
    key: str | bytes | None = None
    if single.HasField("partition_key"):
        key = text_of(single.partition_key)
        if single.partition_key_b64_encoded:
            key = _base64(key)
    return whole._replace(
        id=f"{whole.id}:{index}",
        payload=None if single.null_value else payload,
        key=key,
        ordering_key=single.ordering_key if single.HasField("ordering_key") else b"",
        properties=texts_of(single.properties),
        sequence_id=str(single.sequence_id) if single.HasField("sequence_id") else "",
        event_time=iso_time(single.event_time) if single.event_time else "",
        batch_index=index,
    )


def _key(told: Mapping[str, str]) -> str | bytes | None:
    key = told.get("partition-key")
    if key is None:
        # Geminga's own, of a key that no header can carry.
        carried = told.get("base64-partition-key")
        return None if carried is None else _base64(carried).decode("utf-8", "replace")
    return _base64(key) if told.get("partition-key-b64-encoded") == "true" else key


def _properties(text: str) -> dict[str, str]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _version(text: str) -> int | None:
    try:
        return decode_version(_base64(text)) if text else None
    except ValueError:
        return None


def _base64(text: str) -> bytes:
    """What is not base64 is shown as it came."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) <= 18 else None
