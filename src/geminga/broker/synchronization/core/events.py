"""The events by which clusters keep their configuration alike: Pulsar's ``MetadataEvent`` in Avro (PIP-136).

See docs/formats/configuration-sync.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.broker.policies.core.avro_types import array, enum, optional, record, written
from geminga.broker.synchronization.core.stamps import Stamp, stamp_of

_API: Final = "org.apache.pulsar.metadata.api"
_EVENT: Final = record(
    f"{_API}.MetadataEvent",
    {
        "path": optional("string"),
        "value": optional({"type": "bytes", "java-class": "[B"}),
        "options": optional(
            array(enum(f"{_API}.extended.CreateOption", "Ephemeral", "Sequential"), "java.util.HashSet")
        ),
        "expectedVersion": optional("long"),
        "lastUpdatedTimestamp": "long",
        "sourceCluster": optional("string"),
        "type": optional(enum(f"{_API}.NotificationType", "Created", "Modified", "ChildrenChanged", "Deleted")),
        "version": "int",
    },
)
#: The Avro schema of an event as JSON text, with the names and the order of Pulsar's class.
SCHEMA: Final = json.dumps(written(_EVENT), separators=(",", ":"))
#: A property of our messages: the stamp that the path had before; empty: none that others could know.
REPLACES: Final = "geminga.replaces"
#: A property of our messages: the cluster that sends them, which may tell of another one's change.
SENDER: Final = "geminga.sender"
#: ``expectedVersion`` of an event that is to be followed only where there is nothing.
FIRST: Final = -1
#: Largest number that the clock of an event may have: a 64-bit integer with room to count on.
TIME_MS_MAX: Final = 1 << 62


#: Names of clusters, as Pulsar has them.
_CLUSTER: Final = re.compile(r"[-=:.\w]{1,200}", re.ASCII)


class SyncEvent(NamedTuple):
    """That a path got a value in a cluster, or lost it."""

    path: str
    #: None: there is none any more.
    value: bytes | None
    stamp: Stamp
    #: It was there before that cluster was kept alike with others: followed where there is nothing.
    is_first: bool = False
    #: The stamp that the path had there before; None: none, or it is not told.
    replaces: Stamp | None = None
    #: Whether it is told: by Geminga.
    tells_replaced: bool = False
    #: One of Apache's brokers made the node, where it had none; also by an event of another cluster that it followed.
    is_creation: bool = False


def fields_of(event: SyncEvent) -> dict[str, object]:
    """An event as a record of :data:`SCHEMA`."""
    return {
        "path": event.path,
        "value": event.value,
        "options": [],
        "expectedVersion": FIRST if event.is_first else None,
        "lastUpdatedTimestamp": event.stamp.time_ms,
        "sourceCluster": event.stamp.cluster,
        "type": "Deleted" if event.value is None else "Modified",
        "version": 0,
    }


def properties_of(event: SyncEvent, sender: str) -> dict[str, str]:
    """Of its message, which the cluster ``sender`` sends."""
    return {REPLACES: "" if event.replaces is None else str(event.replaces), SENDER: sender}


def sender_of(event: SyncEvent, properties: Mapping[str, str]) -> str:
    """The cluster that sent an event: Apache's tell of nobody else's changes."""
    return properties.get(SENDER, event.stamp.cluster)


def event_of(fields: Mapping[str, object], properties: Mapping[str, str]) -> SyncEvent | str:
    """What a message says; a text: why that is no event to be followed."""
    path, cluster, kind = fields.get("path"), fields.get("sourceCluster"), fields.get("type")
    time_ms, value = fields.get("lastUpdatedTimestamp"), fields.get("value")
    if not isinstance(path, str) or not isinstance(cluster, str) or not _CLUSTER.fullmatch(cluster):
        return "it names no path, or no cluster that it comes from"
    if fields.get("options"):
        return "it is of a node that lives as long as a session, or is numbered"
    if kind not in ("Created", "Modified", "Deleted"):
        return f"it is of the type {str(kind)[:40]}, not Created, Modified or Deleted"
    if not isinstance(time_ms, int) or not 0 < time_ms < TIME_MS_MAX:
        return "it has no time"
    if kind == "Deleted":
        value = None
    elif not isinstance(value, bytes) or not value:
        return "it has no value"
    assert value is None or isinstance(value, bytes)
    told = properties.get(REPLACES)
    return SyncEvent(
        path,
        value,
        Stamp(time_ms, cluster),
        is_first=fields.get("expectedVersion") == FIRST and value is not None,
        replaces=stamp_of(told) if told else None,
        tells_replaced=told is not None,
        is_creation=told is None and fields.get("expectedVersion") is None and value is not None,
    )
