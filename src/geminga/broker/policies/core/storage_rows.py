"""Where and how messages are stored."""

from __future__ import annotations

from typing import Any, Final

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.core.coercion import LONG_MAX, Json, boolean_of, number_of, texts_of
from geminga.broker.policies.core.avro_types import array, enum, mapping, optional, record
from geminga.broker.policies.core.readers import (
    document_of,
    flag_of,
    long_of,
    memberwise,
    persistence_of,
    texts_value_of,
)
from geminga.broker.policies.core.row import NamespaceLevel, Nothing, PolicyRow, Rest, Settings, TopicLevel
from geminga.broker.policies.core.values import check_persistence, limit_check
from geminga.model.errors import PreconditionFailedError

_DATA: Final = "org.apache.pulsar.common.policies.data"
_TEXT: Final = optional("string")


def _check_shadows(value: Json) -> Json:
    topics = [] if value is None else texts_of(value, "the body")
    if not topics:
        raise PreconditionFailedError("Cannot specify empty shadow topics, please use remove command instead.")
    return [*topics]


def _whole(value: Json) -> Json:
    return number_of(value, "the body", LONG_MAX)


# Loaded with the first such policy.


def _checked_offload(value: Json) -> Json:
    from geminga.broker.policies.core.offload import check_offload

    return check_offload(value)


def _bound_offload(value: Json, settings: Settings) -> None:
    from geminga.broker.policies.core.offload import bound_offload

    bound_offload(value, settings)


def _offload_fields() -> dict[str, object]:
    texts = (
        *("fileSystemProfilePath", "fileSystemURI", "offloadersDirectory"),
        *(f"gcsManagedLedgerOffload{name}" for name in ("Bucket", "Region", "ServiceAccountKeyFile")),
        *(f"managedLedgerOffload{name}" for name in ("Bucket", "Driver", "Region", "ServiceEndpoint")),
        *(f"s3ManagedLedgerOffload{name}" for name in ("Bucket", "CredentialId", "CredentialSecret", "Region", "Role")),
        *(f"s3ManagedLedgerOffload{name}" for name in ("RoleSessionName", "ServiceEndpoint")),
    )
    numbers = (
        *(f"{where}OffloadMaxBlockSizeInBytes" for where in ("gcsManagedLedger", "managedLedger", "s3ManagedLedger")),
        *(f"{where}OffloadReadBufferSizeInBytes" for where in ("gcsManagedLedger", "managedLedger", "s3ManagedLedger")),
        *(f"managedLedgerOffload{name}" for name in ("MaxThreads", "PrefetchRounds", "ReadThreads")),
    )
    longs = ("DeletionLagInMillis", "ThresholdInBytes", "ThresholdInSeconds")
    return {
        **dict.fromkeys(texts, _TEXT),
        **dict.fromkeys(numbers, optional("int")),
        **{f"managedLedgerOffload{name}": optional("long") for name in longs},
        "managedLedgerExtraConfigurations": optional(mapping("string")),
        "managedLedgerOffloadedReadPriority": optional(
            enum(f"{_DATA}.OffloadedReadPriority", "BOOKKEEPER_FIRST", "TIERED_STORAGE_FIRST")
        ),
    }


def _persistence(ensemble: object, write: object, ack: object, rate: object) -> Json:
    assert isinstance(ensemble, int)
    assert isinstance(write, int)
    assert isinstance(ack, int)
    assert isinstance(rate, int | float)
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": float(rate),
    }


PERSISTENCE: Final = PolicyRow(
    name="persistence",
    policy=PolicyName.PERSISTENCE,
    read=persistence_of,
    otherwise=None,
    check=check_persistence,
    keys=(
        "managedLedgerDefaultEnsembleSize",
        "managedLedgerDefaultWriteQuorum",
        "managedLedgerDefaultAckQuorum",
        "managedLedgerDefaultMarkDeleteRateLimit",
    ),
    of_broker=_persistence,
    namespace=NamespaceLevel("persistence", Rest("persistence", nothing=Nothing.IS_CHECKED)),
    topic=TopicLevel(
        {
            "persistence": optional(
                record(
                    f"{_DATA}.PersistencePolicies",
                    {
                        "bookkeeperEnsemble": "int",
                        "bookkeeperWriteQuorum": "int",
                        "bookkeeperAckQuorum": "int",
                        "managedLedgerMaxMarkDeleteRate": "double",
                        "managedLedgerStorageClassName": _TEXT,
                    },
                )
            )
        },
        Rest("persistence", nothing=Nothing.IS_CHECKED),
    ),
    followed_by=("topic/persistence.py",),
    text="Bookies of a ledger, copies of an entry, answers waited for (E, Qw, Qa), and how often cursors are stored.",
)
COMPACTION_THRESHOLD: Final = PolicyRow(
    name="compactionThreshold",
    policy=PolicyName.COMPACTION,
    read=long_of,
    otherwise=0,
    check=limit_check("Invalid value for compactionThreshold", LONG_MAX),
    keys=("brokerServiceCompactionThresholdInBytes",),
    namespace=NamespaceLevel(
        "compaction_threshold",
        Rest(
            "compactionThreshold",
            "PUT",
            Nothing.IS_REFUSED,
            check=limit_check("compactionThreshold must be 0 or more", LONG_MAX),
        ),
    ),
    topic=TopicLevel(
        {"compactionThreshold": optional("long")}, Rest("compactionThreshold", nothing=Nothing.IS_REFUSED)
    ),
    followed_by=("compaction/part.py",),
    text="Bytes that may come between two compactions; 0: only on demand.",
)
OFFLOAD_POLICIES: Final[PolicyRow[Any]] = PolicyRow(
    name="offloadPolicies",
    policy=PolicyName.OFFLOAD,
    read=document_of,
    otherwise=None,
    check=_checked_offload,
    bound=_bound_offload,
    merge=memberwise({}),
    namespace=NamespaceLevel("offload_policies", Rest("offloadPolicies", is_by_hand=True)),
    topic=TopicLevel(
        {"offloadPolicies": optional(record(f"{_DATA}.OffloadPoliciesImpl", _offload_fields()))},
        Rest("offloadPolicies", nothing=Nothing.IS_CHECKED),
    ),
    followed_by=("topic/offload.py",),
    text="What moves to the lake, and when.",
)
OFFLOAD_THRESHOLD: Final = PolicyRow(
    name="offloadThreshold",
    policy=PolicyName.OFFLOAD,
    read=long_of,
    otherwise=-1,
    check=_whole,
    namespace=NamespaceLevel(
        "offload_threshold",
        Rest("offloadThreshold", "PUT", Nothing.IS_REFUSED, unset=-1),
        new=-1,
        removed=-1,
    ),
    followed_by=("topic/offload.py",),
    text="Bytes of a topic that stay on bookies.",
)
OFFLOAD_THRESHOLD_SECONDS: Final = PolicyRow(
    name="offloadThresholdInSeconds",
    policy=PolicyName.OFFLOAD,
    read=long_of,
    otherwise=-1,
    check=_whole,
    namespace=NamespaceLevel(
        "offload_threshold_in_seconds",
        Rest("offloadThresholdInSeconds", "PUT", Nothing.IS_REFUSED, unset=-1),
        new=-1,
        removed=-1,
    ),
    followed_by=("topic/offload.py",),
    text="Seconds that messages stay on bookies.",
)
OFFLOAD_DELETION_LAG: Final = PolicyRow(
    name="offloadDeletionLagMs",
    policy=PolicyName.OFFLOAD,
    read=long_of,
    otherwise=None,
    check=_whole,
    namespace=NamespaceLevel("offload_deletion_lag_ms", Rest("offloadDeletionLagMs", "PUT", Nothing.IS_REFUSED)),
    followed_by=("topic/offload.py",),
    text="Milliseconds that what was moved stays on bookies too.",
)
SHADOW_TOPICS: Final[PolicyRow[tuple[str, ...]]] = PolicyRow(
    name="shadowTopics",
    policy=PolicyName.SHADOW_TOPIC,
    read=texts_value_of,
    otherwise=(),
    check=_check_shadows,
    topic=TopicLevel(
        {"shadowTopics": optional(array("string"))}, Rest("shadowTopics", "PUT", nothing=Nothing.IS_CHECKED)
    ),
    followed_by=("shadow/source.py",),
    text="Topics that show this one's messages.",
)
IS_GLOBAL: Final = PolicyRow(
    name="isGlobal",
    policy=PolicyName.ALL,
    read=flag_of,
    otherwise=False,
    check=lambda value: boolean_of(value, "isGlobal"),
    topic=TopicLevel({"isGlobal": optional("boolean")}),
    followed_by=("system_topics/namespace_events.py",),
    text="Marks a topic's policies that hold in all clusters, and count less than the topic's others.",
)

ROWS: Final = (
    PERSISTENCE,
    COMPACTION_THRESHOLD,
    OFFLOAD_POLICIES,
    OFFLOAD_THRESHOLD,
    OFFLOAD_THRESHOLD_SECONDS,
    OFFLOAD_DELETION_LAG,
    SHADOW_TOPICS,
    IS_GLOBAL,
)
