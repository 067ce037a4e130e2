"""A producer with interceptors around it; one without has nothing of this in its way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar, Unpack, cast

from geminga.client._api.errors import AlreadyClosed, InvalidMessage, PulsarException, as_client_error
from geminga.client._api.interceptors import ProducerInterceptor
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import Closable
from geminga.client._api.options import OutgoingMessage
from geminga.client._api.place import Place
from geminga.client._api.producer import MessageFields, Producer, SendCallback
from geminga.client._producing.messages import check_callback, message_fields, outgoing_message
from geminga.client._producing.topic_producer import warn_of_unheard
from geminga.runtime import get_logger, next_turn, settle, tell, value_of

T = TypeVar("T")
_log = get_logger(__name__)


class InterceptingProducer(Producer[T]):
    """Passes each message through the interceptors in order, and the results back through them."""

    __slots__ = ("_hand_over", "_inner", "_interceptors", "_is_closed", "_on_closed", "_place", "_unheard")

    def __init__(
        self,
        inner: Producer[T],
        hand_over: Callable[[T | None, SendCallback, MessageFields], Awaitable[None]],
        interceptors: Sequence[ProducerInterceptor],
        place: Place,
        *,
        on_closed: Callable[[Closable], None],
    ) -> None:
        """``hand_over``: the inner one's, which waits for room, not for the receipt; ``on_closed`` hears of the end."""
        self._inner = inner
        self._hand_over = hand_over
        self._place = place
        self._interceptors = interceptors
        self._on_closed = on_closed
        self._is_closed = False
        #: The first error of a message without callback; raised by the next flush.
        self._unheard: PulsarException | None = None

    def _before(self, content: T | None, fields: MessageFields) -> OutgoingMessage:
        message = outgoing_message(content, fields)
        for interceptor in self._interceptors:
            message = interceptor.before_send(cast("Producer[object]", self), message)
            if not isinstance(message, OutgoingMessage):
                name = type(interceptor).__name__
                raise InvalidMessage(f"{name}.before_send gave {type(message).__name__}: expected the message to send")
        return message

    def _after(self, message: OutgoingMessage, message_id: MessageId | None, error: PulsarException | None) -> None:
        for interceptor in self._interceptors:
            # What became of the message is settled: it reaches the application whatever an interceptor makes of it.
            hear = interceptor.on_send_acknowledgement
            tell(_log, "interceptor", hear, cast("Producer[object]", self), message, message_id, error)

    def send_nowait(
        self, content: T | None, callback: SendCallback | None = None, **fields: Unpack[MessageFields]
    ) -> None:
        """See :meth:`Producer.send_nowait`."""
        check_callback(callback)
        message = self._before(content, fields)

        def done(error: PulsarException | None, message_id: MessageId | None) -> None:
            self._after(message, message_id, error)
            if callback is not None:
                callback(error, message_id)
            elif self._unheard is None:
                self._unheard = error

        try:
            self._inner.send_nowait(cast("T | None", message.content), done, **message_fields(message))
        except Exception as error:
            self._after(message, None, as_client_error(error, "sending"))
            raise

    async def send(self, content: T | None, **fields: Unpack[MessageFields]) -> MessageId:
        """See :meth:`Producer.send`."""
        self._place.check()
        message = self._before(content, fields)
        receipt: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        # Not the receipt itself: who gives up waiting ends that, and the message goes on to an end that is heard of.
        done = partial(self._settled, message, receipt)
        try:
            await self._hand_over(cast("T | None", message.content), done, message_fields(message))
        except Exception as error:
            self._after(message, None, as_client_error(error, "sending"))
            raise
        except BaseException:
            self._after(message, None, AlreadyClosed("sending it was given up before there was room: it is not stored"))
            raise
        try:
            return await receipt
        finally:
            del receipt, done  # see runtime's value_of

    def _settled(
        self,
        message: OutgoingMessage,
        receipt: asyncio.Future[MessageId],
        error: PulsarException | None,
        message_id: MessageId | None,
    ) -> None:
        self._after(message, message_id, error)
        settle(receipt, cast("MessageId", message_id), error)

    async def flush(self) -> None:
        """See :meth:`Producer.flush`."""
        await self._inner.flush()
        await next_turn()  # what could not become a frame is told in the turn that follows
        value_of(self._take_unheard())

    def _take_unheard(self) -> PulsarException | None:
        error, self._unheard = self._unheard, None
        return error

    async def drain(self) -> None:
        """See :meth:`Producer.drain`."""
        await self._inner.drain()

    async def close(self) -> None:
        """See :meth:`Producer.close`."""
        try:
            await self._inner.close()
        finally:
            # Once, also where the closing was cut off, which goes on, or the client closes it.
            is_first, self._is_closed = not self._is_closed, True
            if is_first:
                self._on_closed(self)
                warn_of_unheard(self._inner.topic(), self._unheard)
                for interceptor in self._interceptors:
                    tell(_log, "interceptor", interceptor.close)

    def topic(self) -> str:
        """See :meth:`Producer.topic`."""
        return self._inner.topic()

    def producer_name(self) -> str:
        """See :meth:`Producer.producer_name`."""
        return self._inner.producer_name()

    def last_sequence_id(self) -> int:
        """See :meth:`Producer.last_sequence_id`."""
        return self._inner.last_sequence_id()

    def is_connected(self) -> bool:
        """See :meth:`Producer.is_connected`."""
        return self._inner.is_connected()

    @property
    def pending_messages(self) -> int:
        """See :attr:`Producer.pending_messages`."""
        return self._inner.pending_messages
