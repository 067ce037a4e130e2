"""``Reader``: reads a topic from a place of its own, without a durable subscription."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Generic, Self, TypeVar

from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import ClosedAtEnd
from geminga.client._api.options import check_argument, options_from
from geminga.client._consuming.factory import ConsumerFactory
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.consumer_options import ConsumerOptions, ConsumerType, InitialPosition, ReaderArguments
from geminga.client._messages.message import Message
from geminga.client.rules.option_kinds import NOTHING, TEXT, Either, Function, Instance
from geminga.client.schema._protocol import TopicSchema

T = TypeVar("T")

#: Random part of a reader's subscription, bytes.
_TOKEN_BYTES: Final = 5

#: Called for each message; may be a coroutine function, which is awaited before the next message.
ReaderListener = Callable[["Reader[Any]", "Message[Any]"], Any]


_MESSAGE_ID: Final = Instance(MessageId, "a MessageId that can be", holds="is_possible")
_LISTENER: Final = Either(NOTHING, Function("a function of a reader and a message"))


class Reader(ClosedAtEnd, Generic[T]):
    """Reads from a start message on; made by :meth:`Client.create_reader`. ``async for`` ends when it is closed."""

    __slots__ = ("_consumer", "_last")

    def __init__(self, consumer: Consumer[T]) -> None:
        """Use :meth:`Client.create_reader`."""
        self._consumer = consumer
        #: Entry of the message read last, that is acknowledged when the next entry is begun.
        self._last: Message[T] | None = None

    async def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        """The next message. Raises Timeout after ``timeout_millis`` (None: never), AlreadyClosed, or why it failed."""
        message = await self._consumer.receive(timeout_millis)
        await self._passed(message)
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message[T]:
        message = await self._consumer.__anext__()
        await self._passed(message)
        return message

    async def _passed(self, message: Message[T]) -> None:
        # The broker forgets what lies behind; one acknowledgment an entry is enough.
        last, self._last = self._last, message
        if last is not None and last._entry is not message._entry:
            await self._consumer.acknowledge_cumulative(last)

    async def has_message_available(self) -> bool:
        """Whether a message can be read without waiting for somebody to publish one.

        Raises what :meth:`Consumer.has_message_available` raises.
        """
        return await self._consumer.has_message_available()

    async def seek(self, target: MessageId | int) -> None:
        """Go on at a message id, or at a time in milliseconds since the epoch.

        Raises what :meth:`Consumer.seek` raises.
        """
        self._last = None
        await self._consumer.seek(target)

    async def get_last_message_id(self) -> MessageId:
        """Id of the topic's last message (entry id -1: it is empty).

        Raises what :meth:`Consumer.get_last_message_id` raises.
        """
        return await self._consumer.get_last_message_id()

    async def get_last_message_ids(self) -> list[MessageId]:
        """Ids of the last messages, one for each partition.

        Raises what :meth:`Consumer.get_last_message_ids` raises.
        """
        return await self._consumer.get_last_message_ids()

    def topic(self) -> str:
        """What is read."""
        return self._consumer.topic()

    def is_connected(self) -> bool:
        """Whether it is connected to all its topics now."""
        return self._consumer.is_connected()

    async def close(self) -> None:
        """Leave the broker; harmless twice."""
        await self._consumer.close()

    # ---- for the client's own parts

    async def mark_delete_positions(self) -> list[MessageId | None]:
        """See :meth:`Consumer.mark_delete_positions`."""
        return await self._consumer.mark_delete_positions()

    async def acknowledge_read(self) -> None:
        """The message read last is done with, though none follows it: only then can a topic be at its end."""
        last, self._last = self._last, None
        if last is not None:
            await self._consumer.acknowledge_cumulative(last)

    def watch_prefetched(self, hook: Callable[[int], None], chunked_bytes_max: int = 0) -> None:
        """See :meth:`Consumer.watch_prefetched`."""
        self._consumer.watch_prefetched(hook, chunked_bytes_max)

    def kept_bytes(self) -> int:
        """See :meth:`Consumer.kept_bytes`."""
        return self._consumer.kept_bytes()

    def prefetched_bytes(self) -> int:
        """See :meth:`Consumer.prefetched_bytes`."""
        return self._consumer.prefetched_bytes()

    def has_reached_end_of_topic(self) -> bool:
        """See :meth:`Consumer.has_reached_end_of_topic`."""
        return self._consumer.has_reached_end_of_topic()

    def subscription_name(self) -> str:
        """Of the subscription behind it, which goes with it."""
        return self._consumer.subscription_name()


async def create_reader(
    consumers: ConsumerFactory,
    topic: str | list[str],
    start_message_id: MessageId,
    schema: TopicSchema[T] | None,
    arguments: ReaderArguments,
    *,
    reader_name: str,
    subscription_role_prefix: str,
    reader_listener: ReaderListener | None,
) -> Reader[T]:
    """See :meth:`Client.create_reader`."""
    consumers.lifetime.check_usable()
    options = options_from(ConsumerOptions, arguments)
    check_argument("reader_name", reader_name, TEXT)
    if reader_name:
        options = replace(options, consumer_name=reader_name)
    check_argument("subscription_role_prefix", subscription_role_prefix, TEXT)
    check_argument("start_message_id", start_message_id, _MESSAGE_ID)
    check_argument("reader_listener", reader_listener, _LISTENER)
    prefix = f"{subscription_role_prefix}-" if subscription_role_prefix else ""
    is_earliest = start_message_id == MessageId.earliest
    reader: Reader[T] | None = None

    async def hear(consumer: Consumer[Any], message: Message[Any]) -> None:
        nonlocal reader
        if reader is None:
            reader = Reader(consumer)
        await reader._passed(message)
        result: Any = None if reader_listener is None else reader_listener(reader, message)
        if hasattr(result, "__await__"):
            await result

    consumer = await consumers.subscribe(
        topic,
        f"{prefix}reader-{consumers.cluster.runtime.rng.token(_TOKEN_BYTES)}",
        schema,
        replace(
            options,
            consumer_type=ConsumerType.Exclusive,
            is_durable=False,
            # Who reads waits for no receipt: cut off while he did, he would never see the message.
            ack_receipt_enabled=False,
            start_message_id=start_message_id,
            initial_position=InitialPosition.Earliest if is_earliest else InitialPosition.Latest,
            message_listener=hear if reader_listener is not None else None,
        ),
    )
    if reader is None:
        reader = Reader(consumer)
    return reader
