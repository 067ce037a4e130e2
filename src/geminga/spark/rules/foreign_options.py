"""Options of other connectors (Kafka's, pulsar-spark, pulsar-flink) and what they are called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_KAFKA_CLIENT: Final = "kafka."
_POSITIONS: Final = "startingOffsets, JSON of topics and positions ledger:entry:batchIndex"

#: Name in lower case -> what to use, for reading.
_OF_SOURCES: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "service.url, as in pulsar://host:6650",
    "kafka.group.id": "subscription, a durable cursor",
    "groupidprefix": "pulsar.reader.subscriptionRolePrefix",
    "subscribe": "topic or topics",
    "subscribepattern": "topicsPattern, as in tenant/namespace/regex",
    "topicpattern": "topicsPattern, as in tenant/namespace/regex",
    "assign": "topic=NAME-partition-N",
    "startingtimestamp": "startingTime",
    "endingtimestamp": "endingTime",
    "startingoffsetsbytimestamp": "startingTime, one for all topics",
    "endingoffsetsbytimestamp": "endingTime, one for all topics",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
    "maxentriespertrigger": "maxMessagesPerTrigger",
    "kafkaconsumer.polltimeoutms": "pollTimeoutMs",
    "includeheaders": "metadataColumns, with __messageProperties among them",
    "serviceurl": "service.url",
    "service-url": "service.url",
    "adminurl": "nothing: the binary protocol is enough",
    "admin-url": "nothing: the binary protocol is enough",
    "subscriptionname": "subscription",
    "subscriptionprefix": "pulsar.reader.subscriptionRolePrefix, or subscription for a durable cursor",
    "startingmessageid": _POSITIONS,
    "scan.startup.mode": "startingOffsets or startingTime",
    "partitiondiscoveryintervalmillis": "topicDiscoveryIntervalMs",
    "partition.discovery.interval-millis": "topicDiscoveryIntervalMs",
    "waitingfornonexistedtopic": "nothing: a topic must be there, unless the broker makes it by itself",
    "allowdifferenttopicschemas": "schemaMode=raw, in which topics of any schemas mix",
}
#: The same, for writing.
_OF_SINKS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "service.url, as in pulsar://host:6650",
    "serviceurl": "service.url",
    "service-url": "service.url",
    "adminurl": "admin.url",
    "admin-url": "admin.url",
    "topics": "topic, or a column __topic",
    "includeheaders": "nothing: a column __properties, a map<string,string>, is written",
    "kafka.acks": "nothing: every row has its receipt from stable storage before a task ends",
    "kafka.compression.type": "pulsar.producer.compressionType",
    "kafka.transactional.id": "txnAppId with guarantee=effectively-once",
    "kafka.enable.idempotence": "guarantee=effectively-once",
}


def foreign_source_option(name: str) -> str:
    """What to use here instead of another connector's option for reading; empty: nobody's name that is known."""
    return _advice(name, _OF_SOURCES)


def foreign_sink_option(name: str) -> str:
    """What to use here instead of another connector's option for writing; empty: nobody's name that is known."""
    return _advice(name, _OF_SINKS)


def _advice(name: str, table: Mapping[str, str]) -> str:
    lowered = name.lower()
    found = table.get(lowered)
    if found is None and lowered.startswith(_KAFKA_CLIENT):
        found = "pulsar.client.* for what concerns the connection"
    return "" if found is None else f"use {found}"
