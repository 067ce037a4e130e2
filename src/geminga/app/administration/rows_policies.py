"""Policies, each got, set and removed: of topics (``topics``, ``topicPolicies``) and of namespaces, as rows.

A row is ``name path; options of set``: names in each group are below it. Where the request that sets or removes is
another one than POST or DELETE of that path, the group says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from geminga.app.administration.command import Command, parsed

_RATE: Final = (
    ".dispatchThrottlingRateInMsg:int=-1 --msg-dispatch-rate -md; "
    ".dispatchThrottlingRateInByte:int=-1 --byte-dispatch-rate -bd; "
    ".ratePeriodInSecond:int=1 --dispatch-rate-period -dt"
)
_RELATIVE: Final = f"{_RATE}; .relativeToPublishRate:flag=false --relative-to-publish-rate -rp"
_ON_OFF: Final = "@:flag^ --enable -e; @:off^ --disable -d"
#: What sets a policy, by the name of its path.
_SET: Final = {
    "autoSubscriptionCreation": ".allowAutoSubscriptionCreation:flag --enable -e",
    "autoTopicCreation": (
        ".allowAutoTopicCreation:flag^ --enable -e; .allowAutoTopicCreation:off^ --disable -d; "
        ".topicType:text --type -t; .defaultNumPartitions:int --num-partitions -n"
    ),
    "backlogQuota": (
        ".limitSize:bytes=-1 -l --limit; .limitTime:seconds=-1 -lt --limitTime; .policy:text! -p --policy; "
        "?backlogQuotaType:destination_storage/message_age=destination_storage -t --type"
    ),
    "compactionThreshold": "@:bytes! --threshold -t",
    "deduplication": _ON_OFF,
    "deduplicationEnabled": _ON_OFF,
    "deduplicationSnapshotInterval": "@:int! --interval -i",
    "delayedDelivery": (
        ".active:flag^ --enable -e; .active:off^ --disable -d; .tickTime:millis=1s --time -t; "
        ".maxDeliveryDelayInMillis:millis=0 --maxDelay -md"
    ),
    "dispatchRate": _RELATIVE,
    "dispatcherPauseOnAckStatePersistent": "",
    "encryptionRequired": _ON_OFF,
    "entryFilters": ".entryFilterNames:text! --entry-filters-name -efn",
    "inactiveTopicPolicies": (
        ".deleteWhileInactive:flag^ --enable-delete-while-inactive -e; "
        ".deleteWhileInactive:off^ --disable-delete-while-inactive -d; "
        ".maxInactiveDurationSeconds:seconds! --max-inactive-duration -t; .inactiveTopicDeleteMode:text! "
        "--delete-mode -m"
    ),
    "isAllowAutoUpdateSchema": _ON_OFF,
    "maxConsumers": "@:int! --max-consumers -c",
    "maxConsumersPerSubscription": "@:int! --max-consumers-per-subscription -c",
    "maxConsumersPerTopic": "@:int! --max-consumers-per-topic -c",
    "maxMessageSize": "@:int! --max-message-size -m",
    "maxProducers": "@:int! --max-producers -p",
    "maxProducersPerTopic": "@:int! --max-producers-per-topic -p",
    "maxSubscriptionsPerTopic": "@:int! --max-subscriptions-per-topic -m",
    "maxTopicsPerNamespace": "@:int! --max-topics-per-namespace -t",
    "maxUnackedMessagesOnConsumer": "@:int! -m --maxNum",
    "maxUnackedMessagesOnSubscription": "@:int! -m --maxNum",
    "maxUnackedMessagesPerConsumer": "@:int! --max-unacked-messages-per-topic -c",
    "maxUnackedMessagesPerSubscription": "@:int! --max-unacked-messages-per-subscription -c",
    "persistence": (
        ".bookkeeperEnsemble:int=2 -e --bookkeeper-ensemble; .bookkeeperWriteQuorum:int=2 -w "
        "--bookkeeper-write-quorum; .bookkeeperAckQuorum:int=2 -a --bookkeeper-ack-quorum; "
        ".managedLedgerMaxMarkDeleteRate:float=-1 -r --ml-mark-delete-max-rate; "
        ".managedLedgerStorageClassName:text -c --ml-storage-class"
    ),
    "publishRate": (
        ".publishThrottlingRateInMsg:int=-1 --msg-publish-rate -m; .publishThrottlingRateInByte:int=-1 "
        "--byte-publish-rate -b"
    ),
    "replication": "@:list! --clusters -c",
    "replicatorDispatchRate": _RELATIVE,
    "retention": (".retentionTimeInMinutes:minutes! --time -t; .retentionSizeInMB:megabytes! --size -s"),
    "schemaValidationEnforced": _ON_OFF,
    "subscribeRate": (
        ".subscribeThrottlingRatePerConsumer:int=-1 --subscribe-rate -sr; "
        ".ratePeriodInSecond:int=30 --subscribe-rate-period -st"
    ),
    "subscriptionDispatchRate": _RELATIVE,
    "subscriptionExpirationTime": "@:int! -t --time",
    "allowedTopicPropertyKeysForMetrics": "@:list! --keys -k",
    "subscriptionTypesEnabled": "@:list! --types -t",
}
#: Of topics: names, path; ``a``: what holds may be asked for.
_TOPIC: Final = (
    ("message-ttl", "messageTTL", "a"),
    ("retention", "retention", "a"),
    ("deduplication", "deduplicationEnabled", ""),
    ("deduplication-snapshot-interval", "deduplicationSnapshotInterval", ""),
    ("delayed-delivery", "delayedDelivery", "a"),
    ("persistence", "persistence", ""),
    ("offload-policies", "offloadPolicies", "a"),
    ("dispatch-rate", "dispatchRate", "a"),
    ("replicator-dispatch-rate", "replicatorDispatchRate", "a"),
    ("compaction-threshold", "compactionThreshold", "a"),
    ("max-unacked-messages-per-consumer", "maxUnackedMessagesOnConsumer", "a"),
    ("max-unacked-messages-per-subscription", "maxUnackedMessagesOnSubscription", "a"),
    ("publish-rate", "publishRate", ""),
    ("subscription-types-enabled", "subscriptionTypesEnabled", ""),
    ("max-producers", "maxProducers", "a"),
    ("max-message-size", "maxMessageSize", ""),
    ("max-consumers-per-subscription", "maxConsumersPerSubscription", ""),
    ("inactive-topic-policies", "inactiveTopicPolicies", "a"),
    ("max-consumers", "maxConsumers", "a"),
    ("subscribe-rate", "subscribeRate", "a"),
    ("replication-clusters", "replication", "a"),
)
_ONLY_TOPICS: Final = (
    ("subscription-dispatch-rate", "subscriptionDispatchRate", "a"),
    ("max-unacked-messages-on-consumer", "maxUnackedMessagesOnConsumer", "a"),
    ("max-unacked-messages-on-subscription", "maxUnackedMessagesOnSubscription", "a"),
    ("maxProducers", "maxProducers", "a"),
    ("max-subscriptions", "maxSubscriptionsPerTopic", ""),
)
_ONLY_TOPIC_POLICIES: Final = (
    ("max-subscriptions-per-topic", "maxSubscriptionsPerTopic", ""),
    ("entry-filters-per-topic", "entryFilters", "a"),
    ("auto-subscription-creation", "autoSubscriptionCreation", "A"),
    ("dispatcher-pause-on-ack-state-persistent", "dispatcherPauseOnAckStatePersistent", "A"),
    ("subscription-expiration-time", "subscriptionExpirationTime", "a"),
)
_NAMESPACE: Final = (
    ("subscription-types-enabled", "subscriptionTypesEnabled"),
    ("persistence", "persistence"),
    ("max-subscriptions-per-topic", "maxSubscriptionsPerTopic"),
    ("subscription-expiration-time", "subscriptionExpirationTime"),
    ("deduplication", "deduplication"),
    ("auto-topic-creation", "autoTopicCreation"),
    ("auto-subscription-creation", "autoSubscriptionCreation"),
    ("retention", "retention"),
    ("dispatch-rate", "dispatchRate"),
    ("subscribe-rate", "subscribeRate"),
    ("subscription-dispatch-rate", "subscriptionDispatchRate"),
    ("publish-rate", "publishRate"),
    ("delayed-delivery", "delayedDelivery"),
    ("inactive-topic-policies", "inactiveTopicPolicies"),
    ("max-producers-per-topic", "maxProducersPerTopic"),
    ("max-consumers-per-topic", "maxConsumersPerTopic"),
    ("max-consumers-per-subscription", "maxConsumersPerSubscription"),
    ("max-unacked-messages-per-subscription", "maxUnackedMessagesPerSubscription"),
    ("max-unacked-messages-per-consumer", "maxUnackedMessagesPerConsumer"),
    ("deduplication-snapshot-interval", "deduplicationSnapshotInterval"),
    ("max-topics-per-namespace", "maxTopicsPerNamespace"),
    ("entry-filters", "entryFilters"),
    ("dispatcher-pause-on-ack-state-persistent", "dispatcherPauseOnAckStatePersistent"),
    ("allowed-topic-property-keys-for-metrics", "allowedTopicPropertyKeysForMetrics"),
)
_APPLIED: Final = {"": "", "a": "?applied:flag -ap --applied", "A": "?applied:flag --applied -a"}
_GLOBAL: Final = "?isGlobal:flag --global -g"
_OFFLOAD: Final = (
    ".managedLedgerOffloadDriver:text! -d --driver; .s3ManagedLedgerOffloadRegion:text -r --region; "
    ".s3ManagedLedgerOffloadBucket:text -b --bucket; .s3ManagedLedgerOffloadServiceEndpoint:text -e --endpoint; "
    ".s3ManagedLedgerOffloadCredentialId:text -i --aws-id; "
    ".s3ManagedLedgerOffloadCredentialSecret:text -s --aws-secret; "
    ".s3ManagedLedgerOffloadRoleSessionName:text --s3-role-session-name -rsn; "
    ".managedLedgerOffloadedReadPriority:bookkeeper-first/tiered-storage-first --offloadedReadPriority -orp; "
)
#: The same members, by other names in each group.
_TOPICS_OFFLOAD: Final = (
    ".s3ManagedLedgerOffloadRole:text --ro --s3-role; "
    ".s3ManagedLedgerOffloadMaxBlockSizeInBytes:bytes=64M -m --maxBlockSizeInBytes --maxBlockSize -mbs; "
    ".s3ManagedLedgerOffloadReadBufferSizeInBytes:bytes=1M -rb --readBufferSizeInBytes --readBufferSize -rbs; "
    ".managedLedgerOffloadThresholdInBytes:bytes -t --offloadThresholdInBytes --offloadAfterThreshold -oat; "
    ".managedLedgerOffloadThresholdInSeconds:seconds -ts --offloadThresholdInSeconds "
    "--offloadAfterThresholdInSeconds -oats; "
    ".managedLedgerOffloadDeletionLagInMillis:millis -dl --offloadDeletionLagInMillis --offloadAfterElapsed -oae"
)
_TOPIC_POLICIES_OFFLOAD: Final = (
    ".s3ManagedLedgerOffloadRole:text --ro --s3-role; "
    ".s3ManagedLedgerOffloadMaxBlockSizeInBytes:int=67108864 -m --maxBlockSizeInBytes; "
    ".s3ManagedLedgerOffloadReadBufferSizeInBytes:int=1048576 -rb --readBufferSizeInBytes; "
    ".managedLedgerOffloadThresholdInBytes:int -t --offloadThresholdInBytes; "
    ".managedLedgerOffloadThresholdInSeconds:int -ts --offloadThresholdInSeconds; "
    ".managedLedgerOffloadDeletionLagInMillis:int -dl --offloadDeletionLagInMillis"
)
NAMESPACE_OFFLOAD: Final = (
    f"{_OFFLOAD}.s3ManagedLedgerOffloadRole:text --s3-role -ro; "
    ".s3ManagedLedgerOffloadMaxBlockSizeInBytes:bytes=64M --maxBlockSize -mbs; "
    ".s3ManagedLedgerOffloadReadBufferSizeInBytes:bytes=1M --readBufferSize -rbs; "
    ".managedLedgerOffloadThresholdInBytes:bytes --offloadAfterThreshold -oat; "
    ".managedLedgerOffloadThresholdInSeconds:seconds --offloadAfterThresholdInSeconds -oats; "
    ".managedLedgerOffloadDeletionLagInMillis:millis --offloadAfterElapsed -oae"
)


def topics() -> Iterator[Command]:
    """Policies of ``topics``."""
    for name, path, applied in (*_TOPIC, *_ONLY_TOPICS):
        set_by = {"messageTTL": "?messageTTL:seconds! -t --ttl", "offloadPolicies": _OFFLOAD + _TOPICS_OFFLOAD}
        yield from _three("topics", name, "{topic}/" + path, _APPLIED[applied], set_by.get(path) or _SET[path])


def topic_policies() -> Iterator[Command]:
    """Those of ``topicPolicies``: the same, of all clusters as well."""
    own = {
        "maxSubscriptionsPerTopic": "@:int! --max-subscriptions-per-topic -s",
        "messageTTL": "?messageTTL:seconds! -t --ttl",
        "offloadPolicies": _OFFLOAD + _TOPIC_POLICIES_OFFLOAD,
        "subscriptionExpirationTime": "?subscriptionExpirationTime:int! -t --time",
    }
    for name, path, applied in (*_TOPIC, *_ONLY_TOPIC_POLICIES):
        set_by = own.get(path) or _SET[path]
        yield from _three("topicPolicies", name, "{topic}/" + path, _APPLIED[applied], set_by, more=_GLOBAL)


def namespaces() -> Iterator[Command]:
    """Those of ``namespaces``."""
    for name, path in _NAMESPACE:
        set_by = _SET[path]
        if path == "replicatorDispatchRate":
            set_by = _RATE
        yield from _three("namespaces", name, "namespaces/{namespace}/" + path, "", set_by)


def _three(group: str, name: str, path: str, applied: str, set_by: str, *, more: str = "") -> Iterator[Command]:
    yield from parsed(
        group,
        f"get-{name} GET {path}; {applied}; {more}\n"
        f"set-{name} POST {path}; {set_by}; {more}\n"
        f"remove-{name} DELETE {path}; {more}\n",
    )


def quota_row() -> str:
    """Options of what limits backlogs."""
    return _SET["backlogQuota"]


def rate_row(*, is_relative: bool = True) -> str:
    """Options of what limits dispatch."""
    return _RELATIVE if is_relative else _RATE
