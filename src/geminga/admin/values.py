"""What calls take and answer: JSON as Python has it, with Pulsar's names of members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, TypedDict

#: Names, or other texts, in the order of the answer.
Texts: TypeAlias = list[str]
#: Text by text.
TextMap: TypeAlias = dict[str, str]
#: An object of JSON, with Pulsar's names of members.
Document: TypeAlias = dict[str, Any]
#: Several of them.
Documents: TypeAlias = list[Document]


class StoredMessage(NamedTuple):
    """An entry as it is stored."""

    #: A batch, compressed or encrypted as its producer made it.
    payload: bytes
    #: What the broker says of it, by header in small letters: ``x-pulsar-message-id``, ``x-pulsar-property-...``.
    headers: Mapping[str, str]


class Retention(TypedDict):
    """Minutes and mebibytes that are kept of what was acknowledged; -1: no limit, 0: none."""

    retentionTimeInMinutes: int
    retentionSizeInMB: int


class DispatchRate(TypedDict, total=False):
    """Messages and bytes a period of so many seconds; -1: no limit. ``relativeToPublishRate``: beyond what comes in."""

    dispatchThrottlingRateInMsg: int
    dispatchThrottlingRateInByte: int
    ratePeriodInSecond: int
    relativeToPublishRate: bool


class PublishRate(TypedDict, total=False):
    """Messages and bytes a second; -1: no limit."""

    publishThrottlingRateInMsg: int
    publishThrottlingRateInByte: int


class SubscribeRate(TypedDict, total=False):
    """Times a period of so many seconds, for each consumer; -1: no limit."""

    subscribeThrottlingRatePerConsumer: int
    ratePeriodInSecond: int


class Persistence(TypedDict, total=False):
    """Bookies of a ledger, copies of an entry, copies that are waited for; marks of a cursor a second, 0: no limit."""

    bookkeeperEnsemble: int
    bookkeeperWriteQuorum: int
    bookkeeperAckQuorum: int
    managedLedgerMaxMarkDeleteRate: float


class DelayedDelivery(TypedDict, total=False):
    """Whether messages wait for their time, and how exactly, milliseconds."""

    active: bool
    tickTime: int


class InactiveTopics(TypedDict, total=False):
    """Whether a topic that rests is deleted, after how many seconds.

    Mode: ``delete_when_no_subscriptions`` or ``delete_when_subscriptions_caught_up``.
    """

    deleteWhileInactive: bool
    maxInactiveDurationSeconds: int
    inactiveTopicDeleteMode: str


class AutoTopicCreation(TypedDict, total=False):
    """Whether clients make topics by using them, of which type (``partitioned``, ``non-partitioned``), how large."""

    allowAutoTopicCreation: bool
    topicType: str
    defaultNumPartitions: int


class AutoSubscriptionCreation(TypedDict):
    """Whether consumers make subscriptions by using them."""

    allowAutoSubscriptionCreation: bool
