"""The blocking ``Client``.

Generated from ``client/_client.py`` by ``tools/generate_blocking.py``: do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack, overload

from geminga.client._api.crypto import CryptoKeyReader
from geminga.client._api.message_id import MessageId
from geminga.client._api.producer import Producer as AsyncProducer
from geminga.client._client import Client as AsyncClient
from geminga.client._client import T
from geminga.client._consuming.factory import Topics
from geminga.client._messages.consumer import Consumer as AsyncConsumer
from geminga.client._messages.consumer_interceptors import ConsumerInterceptor
from geminga.client._messages.consumer_options import (
    BatchReceivePolicy,
    ConsumerCryptoFailureAction,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ConsumerType,
    InitialPosition,
    ReaderArguments,
    RegexSubscriptionMode,
)
from geminga.client._messages.message import Message
from geminga.client._producing.factory import ProducerArguments
from geminga.client._reader import Reader as AsyncReader
from geminga.client._table_view import TableView as AsyncTableView
from geminga.client.blocking._consumer import Consumer
from geminga.client.blocking._facade import Facade
from geminga.client.blocking._listeners import for_reader, with_listener
from geminga.client.blocking._producer import Producer
from geminga.client.blocking._reader import Reader
from geminga.client.blocking._table_view import TableView
from geminga.client.blocking._transaction import Transaction
from geminga.client.consumer_rules.redelivery_backoff import RedeliveryBackoff
from geminga.client.schema._protocol import TopicSchema, VersionedSchema
from geminga.model.txn_id import TxnId

#: Called for each message; it runs on its own thread and may block.
MessageListener = Callable[["Consumer[Any]", "Message[Any]"], Any]


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


#: Called for each message; it runs on its own thread and may block.
ReaderListener = Callable[["Reader[Any]", "Message[Any]"], Any]


class Client(Facade[AsyncClient]):
    """Connections to one cluster; made by :func:`geminga.client.blocking.connect`.

    ``with`` closes it at the end, and with it every producer and consumer.
    """

    __slots__ = ()

    @overload
    def create_producer(
        self, topic: str, *, schema: None = None, **options: Unpack[ProducerArguments]
    ) -> Producer[bytes]: ...

    @overload
    def create_producer(
        self, topic: str, *, schema: TopicSchema[T], **options: Unpack[ProducerArguments]
    ) -> Producer[T]: ...

    def create_producer(
        self, topic: str, *, schema: TopicSchema[T] | None = None, **options: Unpack[ProducerArguments]
    ) -> Producer[T] | Producer[bytes]:
        """A producer on ``topic``, connected. ``schema`` encodes the contents; without one they are bytes.

        ``with client.create_producer(...) as producer`` closes it at the end. The
        options are those of :class:`ProducerOptions`. Raises InvalidConfiguration, InvalidTopicName, the broker's
        error (TopicNotFound, ProducerBusy, ProducerFenced, ...), or Timeout after ``operation_timeout_ms``.
        """
        made: AsyncProducer[Any] = self._run(lambda: self._target.create_producer(topic, schema=schema, **options))
        return Producer[Any](made, self._thread)._joined(self._target)

    @overload
    def subscribe(
        self, topic: Topics, subscription_name: str, *, schema: None = None, **options: Unpack[ConsumerArguments]
    ) -> Consumer[bytes]: ...

    @overload
    def subscribe(
        self, topic: Topics, subscription_name: str, *, schema: TopicSchema[T], **options: Unpack[ConsumerArguments]
    ) -> Consumer[T]: ...

    def subscribe(
        self,
        topic: Topics,
        subscription_name: str,
        *,
        schema: TopicSchema[T] | None = None,
        **options: Unpack[ConsumerArguments],
    ) -> Consumer[T] | Consumer[bytes]:
        """A consumer of one topic, a list of topics, or all topics of a namespace that match a compiled pattern.

        ``schema`` decodes what ``Message.value()`` gives; the options are those of :class:`ConsumerOptions`. Raises
        InvalidConfiguration, InvalidTopicName, the broker's error (ConsumerBusy, TopicNotFound, SubscriptionNotFound,
        IncompatibleSchema, ...), or Timeout after ``operation_timeout_ms``.
        """
        made: AsyncConsumer[Any] = self._run(
            lambda: self._target.subscribe(
                topic, subscription_name, schema=schema, **with_listener(options, self._thread)
            )
        )
        return Consumer[Any](made, self._thread)

    @overload
    def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: None = None,
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Reader[bytes]: ...

    @overload
    def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: TopicSchema[T],
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Reader[T]: ...

    def create_reader(
        self,
        topic: str | list[str],
        start_message_id: MessageId,
        *,
        schema: TopicSchema[T] | None = None,
        reader_listener: ReaderListener | None = None,
        reader_name: str = "",
        subscription_role_prefix: str = "",
        **options: Unpack[ReaderArguments],
    ) -> Reader[T] | Reader[bytes]:
        """A reader that starts behind ``start_message_id``, or at it with ``start_message_id_inclusive``.

        ``MessageId.earliest`` and ``MessageId.latest`` are the two ends, with which alone a reader of several topics or
        partitions may start. The options are those of :class:`ConsumerOptions`; raises what :meth:`subscribe` raises.
        """
        made: AsyncReader[Any] = self._run(
            lambda: self._target.create_reader(
                topic,
                start_message_id,
                schema=schema,
                reader_listener=for_reader(reader_listener, self._thread),
                reader_name=reader_name,
                subscription_role_prefix=subscription_role_prefix,
                **options,
            )
        )
        return Reader[Any](made, self._thread)

    @overload
    def create_table_view(
        self, topic: str, subscription_name: str = "", *, schema: None = None, **options: Unpack[ReaderArguments]
    ) -> TableView[bytes]: ...

    @overload
    def create_table_view(
        self, topic: str, subscription_name: str = "", *, schema: TopicSchema[T], **options: Unpack[ReaderArguments]
    ) -> TableView[T]: ...

    def create_table_view(
        self,
        topic: str,
        subscription_name: str = "",
        *,
        schema: TopicSchema[T] | None = None,
        **options: Unpack[ReaderArguments],
    ) -> TableView[T] | TableView[bytes]:
        """A view of the newest value of each key, which already has everything that is in the topic now.

        It reads what was compacted, and what lies behind, unless ``is_read_compacted=False``.

        Raises what :meth:`subscribe` raises.
        """
        made: AsyncTableView[Any] = self._run(
            lambda: self._target.create_table_view(topic, subscription_name, schema=schema, **options)
        )
        return TableView[Any](made, self._thread)

    def transaction(self, timeout: timedelta | float = 60.0) -> Transaction:
        """A transaction: messages sent and acknowledged with ``txn=`` that count all together, or not at all.

        ``with client.transaction() as txn`` commits it at the end, and aborts it if an
        exception comes out of the block. ``timeout``: seconds, or a timedelta, after which the broker aborts it if it
        is open still; until then it holds back readers of its topics. Raises InvalidConfiguration, NotAllowedError
        where the cluster has no transactions, the broker's error, or Timeout after ``operation_timeout_ms``.
        """
        return Transaction(self._run(lambda: self._target.transaction(timeout)), self._thread)

    def end_transaction(self, txn_id: TxnId, *, commit: bool) -> None:
        """Commit or abort a transaction by its id: one that was detached, or whose client is gone.

        Any client of the role that began it may. Fine if it has ended that way already and its coordinator knows.
        Raises InvalidTxnStatusError if it is ending, or has ended, the other way; TransactionNotFound if its
        coordinator does not know it (any more); the broker's error, or Timeout after ``operation_timeout_ms``: then it
        may be asked again. Raises InvalidConfiguration for what is no id.
        """
        self._run(lambda: self._target.end_transaction(txn_id, commit=commit))

    def get_topic_partitions(self, topic: str) -> list[str]:
        """The names of the topic's partitions, or the topic itself if it has none.

        Raises InvalidTopicName, the broker's error, or Timeout after ``operation_timeout_ms``.
        """
        return self._run(lambda: self._target.get_topic_partitions(topic))

    def get_schema(self, topic: str, version: bytes | None = None) -> VersionedSchema | None:
        """The topic's schema of ``version``, or the newest; None if it has none.

        Raises InvalidTopicName, InvalidConfiguration for a version that is no bytes, the broker's error, or Timeout
        after ``operation_timeout_ms``.
        """
        return self._run(lambda: self._target.get_schema(topic, version))

    def close(self) -> None:
        """Close producers (what they sent gets its receipts first), consumers and connections; harmless twice.

        Goes on to its end also when the caller is cancelled.
        """
        self._run(lambda: self._target.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
