"""What the generated blocking classes stand on: a call goes to the loop's thread, its result comes back.

Nothing of the client's is repeated here. Each object holds the asynchronous one and the loop thread it lives on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, cast

from geminga.client._api.errors import (
    AlreadyClosed,
    ForkedProcess,
    MemoryBufferIsFull,
    ProducerQueueIsFull,
    PulsarException,
    WrongLoop,
    as_client_error,
)
from geminga.client._api.message_id import MessageId
from geminga.client._api.producer import MessageFields, SendCallback
from geminga.client._api.producer import Producer as AsyncProducer
from geminga.client._api.transaction import Transaction as AsyncTransaction
from geminga.client._producing.messages import check_callback
from geminga.client._producing.topic_producer import warn_of_unheard
from geminga.model.errors import LocalError
from geminga.runtime import Raised, attempt, value_of
from geminga.runtime.loop_thread import ForkedError, HandOver, LoopThread, OwnThreadError, loop_thread

if TYPE_CHECKING:
    from geminga.client._api.lifetime import Lifetime
    from geminga.client._client import Client as AsyncClient

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

#: Messages of ``send_nowait`` that wait for the loop; more make the caller wait.
HAND_OVER_MESSAGES_MAX: Final = 10_000
#: Payload bytes of those of a producer; they come before what counts against the client's memory limit.
HAND_OVER_BYTES_MAX: Final = 4 * 1024 * 1024
#: Smaller ones are bounded by their number.
HAND_OVER_COUNTED_BYTES: Final = 1024
#: Messages that the loop takes at a time, before it looks after its connections again.
HAND_OVER_TURN: Final = 500


class Facade(Generic[A]):
    """One object of the asynchronous client, seen from threads that may block."""

    __slots__ = ("_target", "_thread")

    def __init__(self, target: A, thread: LoopThread) -> None:
        self._target = target
        self._thread = thread

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Await on the loop what ``make`` gives."""
        try:
            return self._thread.run(make)
        except (ForkedError, LocalError) as error:
            raise _as_client_error(error) from None

    def _call(self, function: Callable[[], R]) -> R:
        """Call on the loop: nothing of the client is for two threads at once."""
        try:
            return self._thread.call(function)
        except (ForkedError, LocalError) as error:
            raise _as_client_error(error) from None

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"


def _as_client_error(error: LocalError) -> PulsarException:
    if isinstance(error, ForkedError):
        return ForkedProcess(
            "this object was made before the process forked: its connections belong to the parent; "
            "make another client in the child"
        )
    if isinstance(error, OwnThreadError):
        return WrongLoop(f"{error}: interceptors, routers and schemas are called there, and use no blocking client")
    return AlreadyClosed(str(error))


def on_loop(function: Callable[[], R]) -> tuple[R, LoopThread]:
    """Call ``function`` on the process's loop thread; its result, and the thread."""
    thread = loop_thread()
    return thread.call(function), thread


def _counted_bytes(content: object) -> int:
    """Of a payload on its way to the loop; 0: of none, or a small one."""
    size = len(content) if isinstance(content, bytes | bytearray | str) else 0
    return size if size >= HAND_OVER_COUNTED_BYTES else 0


class TransactionFacade(Facade[AsyncTransaction]):
    """A transaction: it ends behind the messages that producers were given for it and the loop has not taken yet."""

    __slots__ = ("_hand_overs",)

    def __init__(self, target: AsyncTransaction, thread: LoopThread) -> None:
        super().__init__(target, thread)
        #: Of the producers that were given messages; any thread adds.
        self._hand_overs: dict[_Emptied, None] = {}

    def used_by(self, hand_over: _Emptied) -> None:
        """A message of it is in there."""
        self._hand_overs[hand_over] = None

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        async def behind() -> R:
            for hand_over in list(self._hand_overs):
                await hand_over.empty()
            return await make()

        return super()._run(behind)


class _Emptied(Protocol):
    """Messages on their way to the loop."""

    async def empty(self) -> None:
        """Until the loop has all of them."""
        ...


def asynchronous(txn: TransactionFacade | None) -> AsyncTransaction | None:
    """The transaction of the asynchronous client; what is none stays what it is, to be refused there."""
    return txn._target if isinstance(txn, TransactionFacade) else cast("AsyncTransaction | None", txn)


def with_transaction(fields: Mapping[str, Any]) -> MessageFields:
    """A message's fields for the asynchronous client."""
    if "txn" not in fields:
        return cast("MessageFields", fields)
    return cast("MessageFields", {**fields, "txn": asynchronous(fields["txn"])})


class _Handing:
    """Messages on their way to the loop, as what a client closes before its producers: it would refuse them else."""

    __slots__ = ("_emptied", "_lifetime", "_timeout_s")

    def __init__(self, emptied: _Emptied, lifetime: Lifetime, timeout_s: float) -> None:
        self._emptied = emptied
        self._lifetime = lifetime
        self._timeout_s = timeout_s

    async def close(self) -> None:
        """Until the loop has all that were given before; what a producer has no room for in time is given up."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._emptied.empty()
        except TimeoutError:
            pass
        finally:
            self._lifetime.forget(self)


class ProducerFacade(Facade[AsyncProducer[T]], Generic[T]):
    """A producer: messages of ``send_nowait`` reach the loop in groups, and everything else goes behind them."""

    __slots__ = ("_hand_over", "_handing", "_unheard")

    def __init__(self, target: AsyncProducer[T], thread: LoopThread) -> None:
        super().__init__(target, thread)
        self._hand_over = HandOver[tuple[T | None, SendCallback | None, MessageFields]](
            thread, self._take, HAND_OVER_MESSAGES_MAX, HAND_OVER_BYTES_MAX
        )
        #: The first error of a message without callback; raised by the next flush.
        self._unheard: PulsarException | None = None
        self._handing: _Handing | None = None

    def _joined(self, client: AsyncClient) -> Self:
        """Of ``client``; raises AlreadyClosed if that was closed meanwhile."""
        self._handing = handing = _Handing(self._hand_over, client.lifetime, client.cluster.timeout_s)
        self._call(lambda: client.lifetime.remember(handing))
        return self

    def _close(self) -> None:
        async def close() -> None:
            if self._handing is not None:
                await self._handing.close()
            await self._target.close()

        super()._run(close)

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        async def behind() -> R:
            await self._hand_over.empty()
            return await make()

        return super()._run(behind)

    def _post(self, content: T | None, callback: SendCallback | None, fields: Mapping[str, object]) -> None:
        if callback is not None:
            check_callback(callback)
            callback = self._on_callback_thread(callback)
        txn = fields.get("txn")
        if isinstance(txn, TransactionFacade):
            txn.used_by(self._hand_over)
        try:
            self._hand_over.put((content, callback, with_transaction(fields)), _counted_bytes(content))
        except (ForkedError, LocalError) as error:
            raise _as_client_error(error) from None

    def _flush(self) -> None:
        self._run(self._target.flush)
        value_of(self._take_unheard())

    def _take_unheard(self) -> PulsarException | None:
        error, self._unheard = self._unheard, None
        return error

    def _on_callback_thread(self, callback: SendCallback) -> SendCallback:
        def heard(error: PulsarException | None, message_id: MessageId | None) -> None:
            self._thread.call_back(lambda: callback(error, message_id))

        return heard

    async def _take(self, items: deque[tuple[T | None, SendCallback | None, MessageFields]]) -> None:
        before = min(len(items), HAND_OVER_TURN)
        self._hand_over.count_taken(before - self._send_of(items, before))
        await self._target.drain()

    def _send_of(self, items: deque[tuple[T | None, SendCallback | None, MessageFields]], count: int) -> int:
        """Up to ``count`` of them; how many of these there is no room for now."""
        send = self._target.send_nowait
        for left in range(count, 0, -1):
            content, callback, fields = items[0]
            sent = attempt(send, content, callback, **fields)
            if isinstance(sent, Raised):
                if isinstance(sent.error, ProducerQueueIsFull | MemoryBufferIsFull):
                    del sent  # its traceback has this frame, which has the content: see runtime's value_of
                    return left
                # Also what an interceptor, a router or a schema raises: those behind it must not wait for ever.
                error = as_client_error(sent.error, "sending")
                txn = fields.get("txn")
                if isinstance(txn, AsyncTransaction):
                    txn.core.fail(error)  # it was taken, and will not be stored
                if callback is not None:
                    callback(error, None)
                elif self._unheard is None:
                    self._unheard = error
                    if isinstance(error, AlreadyClosed):
                        warn_of_unheard(self._target.topic(), error)
                del error
            del sent
            items.popleft()
            size_bytes = _counted_bytes(content)
            if size_bytes:
                self._hand_over.took(size_bytes)
        return 0
