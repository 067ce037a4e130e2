"""Options of consumers and readers, under the official client's names; times in milliseconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypedDict

from geminga.client._api.errors import InvalidConfiguration, InvalidTopicName
from geminga.client._api.message_id import MessageId
from geminga.client._api.options import check_kinds
from geminga.client._api.topic_names import parse_topic
from geminga.client.consumer_rules import ack_grouping, chunk_assembly, negative_acks
from geminga.client.consumer_rules.redelivery_backoff import RedeliveryBackoff, growing_delay_ms
from geminga.client.rules.option_kinds import (
    COUNT,
    COUNT_POSITIVE,
    FLAG,
    INT64_MAX,
    NOTHING,
    TEXT,
    TEXTS,
    TIME_MS,
    TIME_MS_MAX,
    TIME_MS_POSITIVE,
    Either,
    Function,
    Instance,
    Kind,
    Many,
    Member,
    Number,
    Pair,
    With,
)

if TYPE_CHECKING:
    from geminga.client._api.crypto import CryptoKeyReader
    from geminga.client._messages.consumer import Consumer
    from geminga.client._messages.consumer_interceptors import ConsumerInterceptor
    from geminga.client._messages.message import Message


class ConsumerType(IntEnum):
    """How the consumers of a subscription share its messages; the numbers are the protocol's."""

    #: One consumer.
    Exclusive = 0
    #: One after the other to whoever is free; no order.
    Shared = 1
    #: One is active, the others wait for its end.
    Failover = 2
    #: By key: messages of one key go to one consumer, in order.
    KeyShared = 3


class InitialPosition(IntEnum):
    """Where a subscription that does not exist yet begins; the numbers are the protocol's."""

    Latest = 0
    Earliest = 1


class RegexSubscriptionMode(IntEnum):
    """Which topics a pattern looks at; the numbers are the protocol's."""

    PersistentOnly = 0
    NonPersistentOnly = 1
    AllTopics = 2


class KeySharedMode(IntEnum):
    """Who gets which keys of a Key_Shared subscription; the numbers are the protocol's."""

    AutoSplit = 0
    Sticky = 1


class ConsumerCryptoFailureAction(Enum):
    """What to do with a message that can not be decrypted."""

    #: It is not delivered; it times out or comes again after a reconnect.
    FAIL = 0
    #: It is acknowledged and never delivered.
    DISCARD = 1
    #: It is delivered as it came, with its encryption context; a batch as one message.
    CONSUME = 2


#: Keys hash to 0 ... 65535.
KEY_HASH_RANGE: Final = 65536
#: Smallest ack timeout: a shorter one redelivers what is being worked on.
ACK_TIMEOUT_MS_MIN: Final = 1000
ACK_TIMEOUT_TICK_MS_MIN: Final = 100


@dataclass(frozen=True, slots=True)
class ConsumerKeySharedPolicy:
    """Which key hashes a Key_Shared consumer takes."""

    key_shared_mode: KeySharedMode = KeySharedMode.AutoSplit
    #: Another consumer may get messages of a key before this one acknowledged the earlier ones.
    allow_out_of_order_delivery: bool = False
    #: With Sticky: inclusive ranges of key hashes, 0 ... 65535.
    sticky_ranges: Sequence[tuple[int, int]] = ()

    def check(self) -> None:
        """Raise InvalidConfiguration for ranges that can not be."""
        check_kinds(self, _KEY_SHARED_KINDS)
        if (self.key_shared_mode is KeySharedMode.Sticky) != bool(self.sticky_ranges):
            raise InvalidConfiguration("sticky_ranges: go with KeySharedMode.Sticky, and only so")
        last = -1
        for start, end in sorted(self.sticky_ranges):
            if not last < start <= end < KEY_HASH_RANGE:
                raise InvalidConfiguration(
                    f"sticky_ranges: {list(self.sticky_ranges)}: expected ranges in 0 ... 65535 that do not overlap"
                )
            last = end


@dataclass(frozen=True, slots=True)
class BatchReceivePolicy:
    """The first limit that is reached ends the wait; a limit of 0 or less does not count, but one must.

    A batch is never empty because of a limit: one message larger than ``max_num_bytes`` comes alone. Raises
    InvalidConfiguration for limits that can not be.
    """

    max_num_message: int = -1
    max_num_bytes: int = 10 * 1024 * 1024
    timeout_ms: int = 100

    def __post_init__(self) -> None:
        check_kinds(self, _BATCH_RECEIVE_KINDS)
        if self.max_num_message <= 0 and self.max_num_bytes <= 0 and self.timeout_ms <= 0:
            raise InvalidConfiguration("batch receive policy: at least one of the limits must be above 0")

    def is_enough(self, message_count: int, size_bytes: int, count_max: int) -> bool:
        """Whether what waits is a batch; ``count_max`` is what the prefetch queue can hold."""
        wanted = min(self.max_num_message, count_max) if self.max_num_message > 0 else count_max
        return message_count >= wanted or 0 < self.max_num_bytes <= size_bytes


@dataclass(frozen=True, slots=True)
class MultiplierRedeliveryBackoff:
    """``min_delay_ms * multiplier ** redelivery_count``, at most ``max_delay_ms`` (Pulsar's defaults).

    Raises InvalidConfiguration for delays and a multiplier that can not be.
    """

    min_delay_ms: int = 1000
    max_delay_ms: int = 60_000
    multiplier: float = 2.0

    def __post_init__(self) -> None:
        check_kinds(self, _DELAY_KINDS)
        multiplier = self.multiplier
        if isinstance(multiplier, bool) or not isinstance(multiplier, int | float) or not 1 <= multiplier < inf:
            raise InvalidConfiguration(f"multiplier={multiplier!r:.100}: expected a number of 1 or more")
        if self.min_delay_ms > self.max_delay_ms:
            raise InvalidConfiguration(
                f"redelivery backoff from {self.min_delay_ms} to {self.max_delay_ms} ms: "
                "expected min_delay_ms <= max_delay_ms"
            )

    def next(self, redelivery_count: int) -> int:
        """Milliseconds to wait."""
        return growing_delay_ms(redelivery_count, self.min_delay_ms, self.max_delay_ms, self.multiplier)


@dataclass(frozen=True, slots=True)
class ConsumerDeadLetterPolicy:
    """When messages go to the dead-letter topic, and how it is called."""

    #: A message that was redelivered so often goes to the dead-letter topic instead of being redelivered again.
    max_redeliver_count: int
    #: Default: ``{topic}-{subscription}-DLQ``.
    dead_letter_topic: str | None = None
    #: A subscription that is created with the dead-letter topic, so that nothing is dropped there.
    initial_subscription_name: str | None = None
    #: Default: ``{topic}-{subscription}-RETRY``.
    retry_letter_topic: str | None = None

    def check(self) -> None:
        """Raise InvalidConfiguration for a count that can not be, InvalidTopicName."""
        check_kinds(self, _DEAD_LETTER_KINDS)
        for name in ("dead_letter_topic", "retry_letter_topic"):
            topic = getattr(self, name)
            if topic:
                try:
                    parse_topic(topic)
                except InvalidTopicName as error:
                    raise InvalidTopicName(f"{name}: {error}") from None


#: Called for each message; may be a coroutine function, which is awaited before the next message.
MessageListener = Callable[["Consumer[Any]", "Message[Any]"], Any]


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """What :meth:`Client.subscribe` takes beside topic and subscription name."""

    consumer_type: ConsumerType = ConsumerType.Exclusive
    message_listener: MessageListener | None = None
    #: Messages prefetched, per partition; 0: none, a message is asked for when ``receive`` waits.
    receiver_queue_size: int = 1000
    #: Of each partition no more messages are prefetched than have so many bytes, by the size of the last ones, but
    #: always one; 0: any.
    receiver_queue_bytes: int = 0
    #: Messages prefetched, of all partitions together.
    max_total_receiver_queue_size_across_partitions: int = 50_000
    consumer_name: str = ""
    #: A message not acknowledged for so long is delivered again; 0: never.
    unacked_messages_timeout_ms: int = 0
    unacked_messages_tick_ms: int = 1000
    negative_ack_redelivery_delay_ms: int = negative_acks.DELAY_MS_DEFAULT
    #: Instead of the fixed delay, by how often the message was redelivered.
    negative_ack_redelivery_backoff: RedeliveryBackoff | None = None
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None = None
    #: Acknowledgments wait so long for others to go with them; 0: each goes at once.
    ack_group_time_ms: int = ack_grouping.GROUP_MS_DEFAULT
    ack_group_size_max: int = ack_grouping.PENDING_MAX_DEFAULT
    #: ``acknowledge`` waits until the broker said that it is done.
    ack_receipt_enabled: bool = False
    #: The broker hears of single messages of a batch; one that has ``acknowledgmentAtBatchIndexLevelEnabled`` off
    #: waits for the last of them, as all brokers do with False here.
    batch_index_ack_enabled: bool = True
    is_read_compacted: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    subscription_properties: Mapping[str, str] = field(default_factory=dict)
    initial_position: InitialPosition = InitialPosition.Latest
    #: Nothing is prefetched, and no listener called, before ``resume``.
    start_paused: bool = False
    #: False: the subscription lives in the broker's memory and ends with its consumer.
    is_durable: bool = True
    #: Where a subscription that is not durable starts; durable ones start at ``initial_position`` or where they are.
    start_message_id: MessageId | None = None
    #: ``start_message_id`` and ``seek`` include the message they name.
    start_message_id_inclusive: bool = False
    #: With a subscription that is new: start so many seconds back.
    start_message_rollback_duration_s: int = 0
    #: 0 is served first, on Shared and Failover.
    priority_level: int = 0
    key_shared_policy: ConsumerKeySharedPolicy | None = None
    replicate_subscription_state_enabled: bool = False
    #: The topic is created if it does not exist and policies allow it.
    force_topic_creation: bool = True
    batch_receive_policy: BatchReceivePolicy = field(default_factory=BatchReceivePolicy)
    dead_letter_policy: ConsumerDeadLetterPolicy | None = None
    #: ``reconsume_later`` may be used, and the retry-letter topic is consumed, too.
    retry_enabled: bool = False
    max_pending_chunked_message: int = chunk_assembly.PENDING_MAX_DEFAULT
    #: Bytes of a chunked message, and of what it inflates to; a larger one stays in its topic, and the log says so. All
    #: chunks that wait for others, of all topics, may have four times as many; 0: any.
    chunked_message_bytes_max: int = chunk_assembly.BYTES_MAX_DEFAULT
    expire_time_of_incomplete_chunked_message_ms: int = chunk_assembly.EXPIRE_MS_DEFAULT
    #: A chunked message that gives way is acknowledged (lost); else it is delivered again.
    auto_ack_oldest_chunked_message_on_queue_full: bool = False
    crypto_key_reader: CryptoKeyReader | None = None
    crypto_failure_action: ConsumerCryptoFailureAction = ConsumerCryptoFailureAction.FAIL
    #: How often a pattern looks for topics (a tenth as often while the broker tells of them), and a partitioned topic
    #: for new partitions; 0: only when subscribing.
    pattern_auto_discovery_period_ms: int = 60_000
    auto_update_partitions_interval_ms: int = 60_000
    regex_subscription_mode: RegexSubscriptionMode = RegexSubscriptionMode.PersistentOnly
    interceptors: Sequence[ConsumerInterceptor] = ()
    #: Rates are computed over so long; 0: never.
    stats_interval_ms: int = 60_000

    def check(self) -> None:
        """Raise InvalidConfiguration for values that can not be, InvalidTopicName."""
        check_kinds(self, _CONSUMER_KINDS)
        timeout_ms = self.unacked_messages_timeout_ms
        if timeout_ms and timeout_ms < ACK_TIMEOUT_MS_MIN:
            raise InvalidConfiguration(
                f"unacked_messages_timeout_ms={timeout_ms}: expected 0 or at least {ACK_TIMEOUT_MS_MIN}"
            )
        tick_ms = self.unacked_messages_tick_ms
        if timeout_ms and tick_ms > timeout_ms:
            raise InvalidConfiguration(
                f"unacked_messages_tick_ms={tick_ms}: expected at most unacked_messages_timeout_ms ({timeout_ms})"
            )
        if self.key_shared_policy is not None:
            if self.consumer_type is not ConsumerType.KeyShared:
                raise InvalidConfiguration("key_shared_policy: only with ConsumerType.KeyShared")
            self.key_shared_policy.check()
        if self.is_read_compacted and self.shares_messages:
            raise InvalidConfiguration("is_read_compacted: only with ConsumerType.Exclusive or Failover")
        if self.start_message_id is not None and self.is_durable:
            raise InvalidConfiguration("start_message_id: only with is_durable=False; seek moves a durable one")
        if self.dead_letter_policy is not None:
            self.dead_letter_policy.check()
            if not self.shares_messages and not self.retry_enabled:
                raise InvalidConfiguration("dead_letter_policy: only with ConsumerType.Shared or KeyShared")

    @property
    def shares_messages(self) -> bool:
        """Whether messages of the subscription are spread over its consumers."""
        return self.consumer_type in (ConsumerType.Shared, ConsumerType.KeyShared)


class ConsumerArguments(TypedDict, total=False):
    """The options of ``subscribe``: the fields of :class:`ConsumerOptions`."""

    consumer_type: ConsumerType
    message_listener: MessageListener | None
    receiver_queue_size: int
    receiver_queue_bytes: int
    max_total_receiver_queue_size_across_partitions: int
    consumer_name: str
    unacked_messages_timeout_ms: int
    unacked_messages_tick_ms: int
    negative_ack_redelivery_delay_ms: int
    negative_ack_redelivery_backoff: RedeliveryBackoff | None
    ack_timeout_redelivery_backoff: RedeliveryBackoff | None
    ack_group_time_ms: int
    ack_group_size_max: int
    ack_receipt_enabled: bool
    batch_index_ack_enabled: bool
    is_read_compacted: bool
    properties: Mapping[str, str]
    subscription_properties: Mapping[str, str]
    initial_position: InitialPosition
    start_paused: bool
    is_durable: bool
    start_message_id: MessageId | None
    start_message_id_inclusive: bool
    start_message_rollback_duration_s: int
    priority_level: int
    key_shared_policy: ConsumerKeySharedPolicy | None
    replicate_subscription_state_enabled: bool
    force_topic_creation: bool
    batch_receive_policy: BatchReceivePolicy
    dead_letter_policy: ConsumerDeadLetterPolicy | None
    retry_enabled: bool
    max_pending_chunked_message: int
    chunked_message_bytes_max: int
    expire_time_of_incomplete_chunked_message_ms: int
    auto_ack_oldest_chunked_message_on_queue_full: bool
    crypto_key_reader: CryptoKeyReader | None
    crypto_failure_action: ConsumerCryptoFailureAction
    pattern_auto_discovery_period_ms: int
    auto_update_partitions_interval_ms: int
    regex_subscription_mode: RegexSubscriptionMode
    interceptors: Sequence[ConsumerInterceptor]
    stats_interval_ms: int


class ReaderArguments(TypedDict, total=False):
    """The options of ``create_reader`` and ``create_table_view``; see :class:`ConsumerOptions`."""

    receiver_queue_size: int
    receiver_queue_bytes: int
    max_total_receiver_queue_size_across_partitions: int
    consumer_name: str
    ack_group_time_ms: int
    ack_group_size_max: int
    is_read_compacted: bool
    properties: Mapping[str, str]
    start_message_id_inclusive: bool
    force_topic_creation: bool
    max_pending_chunked_message: int
    chunked_message_bytes_max: int
    expire_time_of_incomplete_chunked_message_ms: int
    auto_ack_oldest_chunked_message_on_queue_full: bool
    crypto_key_reader: CryptoKeyReader | None
    crypto_failure_action: ConsumerCryptoFailureAction
    auto_update_partitions_interval_ms: int
    interceptors: Sequence[ConsumerInterceptor]
    stats_interval_ms: int


_KEY_SHARED_KINDS: Final[Mapping[str, Kind]] = {
    "key_shared_mode": Member(KeySharedMode),
    "allow_out_of_order_delivery": FLAG,
    "sticky_ranges": Many(Pair(Number(0, KEY_HASH_RANGE - 1))),
}

_DEAD_LETTER_KINDS: Final[Mapping[str, Kind]] = {
    "max_redeliver_count": COUNT_POSITIVE,
    "dead_letter_topic": Either(NOTHING, TEXT),
    "initial_subscription_name": Either(NOTHING, TEXT),
    "retry_letter_topic": Either(NOTHING, TEXT),
}

_BATCH_RECEIVE_KINDS: Final[Mapping[str, Kind]] = {
    "max_num_message": Number(-INT64_MAX, INT64_MAX),
    "max_num_bytes": Number(-INT64_MAX, INT64_MAX),
    "timeout_ms": Number(-TIME_MS_MAX, TIME_MS_MAX),
}

_DELAY_KINDS: Final[Mapping[str, Kind]] = {"min_delay_ms": TIME_MS_POSITIVE, "max_delay_ms": TIME_MS_POSITIVE}

_BACKOFF: Final = Either(NOTHING, With("a RedeliveryBackoff", "next", are_plain=True))

_CONSUMER_KINDS: Final[Mapping[str, Kind]] = {
    "consumer_type": Member(ConsumerType),
    "message_listener": Either(NOTHING, Function("a function of a consumer and a message")),
    "receiver_queue_size": COUNT,
    "receiver_queue_bytes": COUNT,
    "max_total_receiver_queue_size_across_partitions": COUNT,
    "consumer_name": TEXT,
    "unacked_messages_timeout_ms": TIME_MS,
    "unacked_messages_tick_ms": Number(ACK_TIMEOUT_TICK_MS_MIN, TIME_MS_MAX),
    "negative_ack_redelivery_delay_ms": TIME_MS,
    "negative_ack_redelivery_backoff": _BACKOFF,
    "ack_timeout_redelivery_backoff": _BACKOFF,
    "ack_group_time_ms": TIME_MS,
    "ack_group_size_max": COUNT_POSITIVE,
    "ack_receipt_enabled": FLAG,
    "batch_index_ack_enabled": FLAG,
    "is_read_compacted": FLAG,
    "properties": TEXTS,
    "subscription_properties": TEXTS,
    "initial_position": Member(InitialPosition),
    "start_paused": FLAG,
    "is_durable": FLAG,
    "start_message_id": Either(NOTHING, Instance(MessageId, "a MessageId that can be", holds="is_possible")),
    "start_message_id_inclusive": FLAG,
    "start_message_rollback_duration_s": Number(0, TIME_MS_MAX // 1000),
    "priority_level": COUNT,
    "key_shared_policy": Either(NOTHING, Instance(ConsumerKeySharedPolicy)),
    "replicate_subscription_state_enabled": FLAG,
    "force_topic_creation": FLAG,
    "batch_receive_policy": Instance(BatchReceivePolicy),
    "dead_letter_policy": Either(NOTHING, Instance(ConsumerDeadLetterPolicy)),
    "retry_enabled": FLAG,
    "max_pending_chunked_message": COUNT,
    "chunked_message_bytes_max": COUNT,
    "expire_time_of_incomplete_chunked_message_ms": TIME_MS,
    "auto_ack_oldest_chunked_message_on_queue_full": FLAG,
    "crypto_key_reader": Either(NOTHING, With("a CryptoKeyReader", "get_private_key")),
    "crypto_failure_action": Member(ConsumerCryptoFailureAction),
    "pattern_auto_discovery_period_ms": TIME_MS,
    "auto_update_partitions_interval_ms": TIME_MS,
    "regex_subscription_mode": Member(RegexSubscriptionMode),
    "interceptors": Many(
        With(
            "a ConsumerInterceptor",
            "before_consume",
            "on_acknowledge",
            "on_acknowledge_cumulative",
            "on_negative_acks_send",
            "on_ack_timeout_send",
            "on_partitions_change",
            "close",
            are_plain=True,
        )
    ),
    "stats_interval_ms": TIME_MS,
}
