"""Names of tenants, namespaces and topics (Pulsar's ``TopicName`` and ``NamespaceName``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from geminga.model.errors import InvalidTopicNameError

PARTITION_SUFFIX: Final = "-partition-"
_INDEX_MAX: Final = (1 << 31) - 1
_INDEX_DIGITS_MAX: Final = 10
DEFAULT_NAMESPACE: Final = "public/default"
SYSTEM_NAMESPACE: Final = "pulsar/system"

#: Local name of the topic that holds the policies of a namespace's topics.
CHANGE_EVENTS: Final = "__change_events"
#: ... which of their topics' transactions were aborted (Pulsar's names; the last two where it is kept in segments).
TRANSACTION_SNAPSHOTS: Final = "__transaction_buffer_snapshot"
TRANSACTION_SNAPSHOT_SEGMENTS: Final = "__transaction_buffer_snapshot_segments"
TRANSACTION_SNAPSHOT_INDEXES: Final = "__transaction_buffer_snapshot_indexes"
_SYSTEM_LOCAL_NAMES: Final = frozenset(
    (
        CHANGE_EVENTS,
        TRANSACTION_SNAPSHOTS,
        TRANSACTION_SNAPSHOT_SEGMENTS,
        TRANSACTION_SNAPSHOT_INDEXES,
    )
)
#: Ends the name of the log of a subscription's acknowledgments in transactions.
PENDING_ACK_SUFFIX: Final = "__transaction_pending_ack"
#: Local name of the topic in the system namespace whose partitions are the coordinators of transactions.
TRANSACTION_COORDINATORS: Final = "transaction_coordinator_assign"
#: Begins the names of the coordinators' logs in the system namespace; a number follows.
TRANSACTION_LOG_PREFIX: Final = "__transaction_log_"
#: ... and the cursor of such a log.
TRANSACTION_LOG_CURSOR: Final = "transaction.subscription"
#: Cursors of the broker's own on topics: sequence ids of deduplication (Pulsar's name), policies as events of a
#: namespace, snapshots of transactions. Apache's brokers have others, one for each cluster that they copy to.
DEDUP_CURSOR: Final = "pulsar.dedup"
EVENTS_CURSOR: Final = "pulsar.topic-policies"
SNAPSHOTS_CURSOR: Final = "pulsar.transaction-snapshots"
#: ... and of whoever compacts a topic, whose properties say where the compacted messages are (Pulsar's name).
COMPACTION_CURSOR: Final = "__compaction"
_INTERNAL_CURSORS: Final = frozenset((DEDUP_CURSOR, EVENTS_CURSOR, SNAPSHOTS_CURSOR, COMPACTION_CURSOR))
#: Property of a topic, and of its managed ledger: it shows the messages of the topic that this names (Pulsar's name).
SHADOW_SOURCE: Final = "PULSAR.SHADOW_SOURCE"
#: Begins the names of replicators: of their cursors here, of their producers over there. A cluster's name follows.
REPLICATOR_PREFIX: Final = "pulsar.repl."


#: What stands for itself there.
_NEEDS_NO_CODE: Final = re.compile(r"[A-Za-z0-9_.*-]*\Z")


def encode_name(name: str) -> str:
    """The name of a topic, or a subscription, as one path element of the metadata, as Pulsar's ``Codec`` has it.

    That is Java's ``URLEncoder``: a blank is ``+``, and ``~`` is encoded, unlike in URLs.
    """
    if _NEEDS_NO_CODE.match(name) is not None:
        return name
    return quote_plus(name, safe="*").replace("~", "%7E")


def decode_name(encoded: str) -> str:
    """The inverse of :func:`encode_name`."""
    return unquote_plus(encoded)


def encode_again(encoded: str) -> str:
    """What was encoded as in URLs, as :func:`encode_name` does; what was encoded by that is as it was.

    Geminga did so with names of topics before metadata format 3 (docs/formats/metadata-sqlite.md).
    """
    return encoded.replace("%20", "+").replace("~", "%7E")


def is_internal_cursor(name: str) -> bool:
    """Whether a cursor belongs to the broker itself, and is no subscription whoever asks for it."""
    return name in _INTERNAL_CURSORS or name.startswith(REPLICATOR_PREFIX)


def is_hidden(local_name: str) -> bool:
    """Whether a topic of that local name is the broker's own in every namespace: clients are not told of it."""
    return local_name in _SYSTEM_LOCAL_NAMES or local_name.endswith(PENDING_ACK_SUFFIX)


def is_of_transactions(namespace: str, local_name: str) -> bool:
    """Whether transactions keep something of their own under that name, which is no topic for anybody, as in Pulsar."""
    if local_name.endswith(PENDING_ACK_SUFFIX):
        return True
    return namespace == SYSTEM_NAMESPACE and local_name.startswith((TRANSACTION_COORDINATORS, TRANSACTION_LOG_PREFIX))


#: What is said of names of Pulsar 1, which Pulsar 4 does not serve either.
_OF_PULSAR_1: Final = "; a name with a cluster in it (tenant/cluster/namespace/topic, Pulsar 1) is not served"

#: Names that were parsed and are kept, unless they are longer: half a MiB.
NAMES_KEPT_MAX: Final = 1024
KEPT_CHARACTERS_MAX: Final = 128

# Pulsar's NamedEntity: the characters allowed in the names of tenants and namespaces.
_NAMED_ENTITY: Final = re.compile(r"^[-=:.\w]+\Z")


def is_valid_named_entity(name: str) -> bool:
    """Whether ``name`` may name a tenant, cluster or namespace."""
    return _NAMED_ENTITY.match(name) is not None


@dataclass(frozen=True, slots=True)
class TopicName:
    """A full topic name, ``{domain}://{tenant}/{namespace}/{local_name}``; ``partition`` is -1 for none."""

    domain: str
    tenant: str
    namespace_name: str
    local_name: str
    partition: int = -1

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Parse a full or short name; raises :class:`InvalidTopicNameError` saying what is expected.

        ``name`` is ``persistent://public/default/name`` and ``t/ns/name`` is ``persistent://t/ns/name``.
        """
        return _parse_kept(text) if len(text) <= KEPT_CHARACTERS_MAX else _parse(text)

    @property
    def missing_hint(self) -> str:
        """What to say further where its namespace is not there: the name may be one of Pulsar 1; empty: it is none."""
        return _OF_PULSAR_1 if "/" in self.local_name else ""

    @property
    def namespace(self) -> str:
        """``tenant/namespace``."""
        return f"{self.tenant}/{self.namespace_name}"

    @property
    def is_persistent(self) -> bool:
        """Whether messages are stored."""
        return self.domain == "persistent"

    @property
    def is_partition(self) -> bool:
        """Whether this is one partition of a partitioned topic."""
        return self.partition >= 0

    @property
    def partitioned_topic(self) -> TopicName:
        """The partitioned topic this is a partition of, or itself."""
        if self.partition < 0:
            return self
        local = self.local_name[: self.local_name.rindex(PARTITION_SUFFIX)]
        return TopicName(self.domain, self.tenant, self.namespace_name, local)

    @property
    def is_system(self) -> bool:
        """Whether the broker keeps its own matters there: neither listed for clients nor deleted when unused."""
        local = self.partitioned_topic.local_name
        return local in _SYSTEM_LOCAL_NAMES or local.endswith(PENDING_ACK_SUFFIX) or self.namespace == SYSTEM_NAMESPACE

    @property
    def is_table(self) -> bool:
        """Whether brokers keep a table in it: the newest message of each key counts."""
        return self.is_persistent and self.local_name in _SYSTEM_LOCAL_NAMES

    @property
    def is_of_transactions(self) -> bool:
        """See :func:`is_of_transactions`."""
        return is_of_transactions(self.namespace, self.local_name)

    def pending_ack_log(self, subscription: str) -> TopicName:
        """Where a subscription of it keeps what it acknowledges in transactions."""
        local = f"{self.local_name}-{subscription}{PENDING_ACK_SUFFIX}"
        return TopicName(self.domain, self.tenant, self.namespace_name, local)

    def with_partition(self, index: int) -> TopicName:
        """The name of partition ``index``."""
        return TopicName(
            self.domain,
            self.tenant,
            self.namespace_name,
            f"{self.local_name}{PARTITION_SUFFIX}{index}",
            index,
        )

    @property
    def encoded_local_name(self) -> str:
        """The local name as one path element of the metadata."""
        return encode_name(self.local_name)

    @property
    def managed_ledger_name(self) -> str:
        """``tenant/namespace/persistent/encoded-name``: its place below ``/managed-ledgers``."""
        return f"{self.tenant}/{self.namespace_name}/{self.domain}/{self.encoded_local_name}"

    @classmethod
    def from_managed_ledger_name(cls, name: str) -> TopicName:
        """The inverse of :attr:`managed_ledger_name`."""
        tenant, namespace, domain, encoded = name.split("/", 3)
        return cls.parse(f"{domain}://{tenant}/{namespace}/{decode_name(encoded)}")

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace_name}/{self.local_name}"


def _parse(text: str) -> TopicName:
    domain, separator, rest = text.partition("://")
    if not separator:
        parts = text.split("/")
        if len(parts) == 1:
            domain, rest = "persistent", f"{DEFAULT_NAMESPACE}/{text}"
        elif len(parts) == 3:
            domain, rest = "persistent", text
        else:
            raise InvalidTopicNameError(
                f"invalid topic name {text!r}: expected 'topic', 'tenant/namespace/topic' or "
                f"'persistent://tenant/namespace/topic'{_OF_PULSAR_1 if len(parts) == 4 else ''}"
            )
    if domain not in ("persistent", "non-persistent"):
        raise InvalidTopicNameError(
            f"invalid topic name {text!r}: the domain must be 'persistent' or 'non-persistent', not {domain!r}"
        )
    parts = rest.split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise InvalidTopicNameError(f"invalid topic name {text!r}: expected '{domain}://tenant/namespace/topic'")
    tenant, namespace, local = parts
    if not (is_valid_named_entity(tenant) and is_valid_named_entity(namespace)):
        raise InvalidTopicNameError(
            f"invalid topic name {text!r}: tenant and namespace may hold letters, digits and any of -=:._"
        )
    return TopicName(domain, tenant, namespace, local, _partition_index(local))


#: A command's topic is asked for two or three times, and by whoever else is there: 2 us each.
_parse_kept: Final = lru_cache(maxsize=NAMES_KEPT_MAX)(_parse)


def _partition_index(local_name: str) -> int:
    _, separator, digits = local_name.rpartition(PARTITION_SUFFIX)
    # As Pulsar: "-partition-01" or "-partition-+1" is an ordinary name, not a partition; nor is beyond Java's int.
    if separator and digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0"):
        index = int(digits) if len(digits) <= _INDEX_DIGITS_MAX else _INDEX_MAX + 1
        return index if index <= _INDEX_MAX else -1
    return -1
