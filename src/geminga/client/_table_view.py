"""``TableView``: the newest value of each key of a topic, kept up to date."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from dataclasses import replace
from typing import Any, Final, Generic, NamedTuple, TypeVar

from geminga.client._api.errors import AlreadyClosed, PulsarException
from geminga.client._api.message_id import MessageId
from geminga.client._api.opening import ClosedAtEnd, close_unopened
from geminga.client._api.options import check_argument, options_from
from geminga.client._consuming.factory import ConsumerFactory
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.consumer_options import ConsumerOptions, ConsumerType, InitialPosition, ReaderArguments
from geminga.client._messages.message import Message
from geminga.client._transport.cluster import Cluster
from geminga.client.rules.option_kinds import TEXT, Function
from geminga.client.schema._protocol import TopicSchema
from geminga.runtime import again, get_logger, spawn

_log = get_logger(__name__)

T = TypeVar("T")

#: Called with each key and its new value, None when the key was removed; may be a coroutine function.
TableListener = Callable[[str, Any], Any]

_CALLBACK: Final = Function("a function of a key and its value")


class _Joining(NamedTuple):
    """A listener that is told what is there: it hears of changes behind that, the newest of each key."""

    callback: TableListener
    #: What was there and it was not told.
    present: dict[str, Any]
    #: What changed since.
    changed: dict[str, Any]


class TableView(ClosedAtEnd, Generic[T]):
    """Reads the (compacted) topic from its beginning and follows it; made by :meth:`Client.create_table_view`.

    Messages without key are passed over; a message without value, or with an empty payload, removes its key.
    """

    __slots__ = (
        "_applied",
        "_cluster",
        "_consumer",
        "_error",
        "_is_applying",
        "_joining",
        "_joins",
        "_listeners",
        "_task",
        "_telling",
        "_values",
        "_waiters",
    )

    def __init__(self, consumer: Consumer[T], cluster: Cluster) -> None:
        """Use :meth:`Client.create_table_view`."""
        self._consumer = consumer
        self._cluster = cluster
        self._values: dict[str, T] = {}
        self._listeners: list[TableListener] = []
        #: Those that become listeners once they were told all that was there.
        self._joining: list[_Joining] = []
        self._task: asyncio.Task[None] | None = None
        #: Why the topic is not followed any more.
        self._error: BaseException | None = None
        #: Messages read so far and listeners that joined, and who waits for one more.
        self._applied = 0
        #: Whether one was received whose listeners were not all told.
        self._is_applying = False
        #: Listeners that are told the last changes before they are listeners like others.
        self._joins = 0
        #: Listeners that are being told.
        self._telling: set[asyncio.Task[None]] = set()
        self._waiters: list[asyncio.Future[None]] = []

    def get(self, key: str) -> T | None:
        """The newest value, None if there is none.

        Raises AlreadyClosed, why the view can not follow the topic, or InvalidConfiguration for a key that is no text.
        """
        self._check()
        check_argument("key", key, TEXT)
        return self._values.get(key)

    def __getitem__(self, key: str) -> T:
        self._check()
        check_argument("key", key, TEXT)
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def keys(self) -> KeysView[str]:
        """All keys."""
        return self._values.keys()

    def values(self) -> ValuesView[T]:
        """All values."""
        return self._values.values()

    def items(self) -> ItemsView[str, T]:
        """All keys with their values."""
        return self._values.items()

    async def for_each(self, callback: TableListener) -> None:
        """Call ``callback`` for each key and value there is now; raises InvalidConfiguration if that can not be."""
        self._check()
        check_argument("callback", callback, _CALLBACK)
        for key, value in list(self._values.items()):
            await _call(callback, key, value)

    async def for_each_and_listen(self, callback: TableListener) -> None:
        """Call ``callback`` for each key and value there is now, and for each change from now on.

        What changes while it is told of those there are now comes behind them, the newest value of each key. What it
        raises for one of those there are now reaches the caller; what it raises later is logged, and the view goes on.
        Cancelled, it is told of nothing more. Raises InvalidConfiguration if it can not be called.
        """
        self._check()
        check_argument("callback", callback, _CALLBACK)
        joining = _Joining(callback, dict(self._values), {})
        self._joining.append(joining)
        present = joining.present
        try:
            while present:
                key = next(iter(present))
                await _call(callback, key, present.pop(key))
        except Exception:
            self._join_soon(joining)
            raise
        except BaseException:
            self._forget(joining)
            raise
        joined = self._join_soon(joining)
        try:
            await asyncio.wait({joined})
        finally:
            joined.cancel()  # who was cut off here wants no more of it either

    def _join_soon(self, joining: _Joining) -> asyncio.Task[None]:
        self._joins += 1
        return spawn(self._join(joining), name=f"listener joins the table view of {self._consumer.topic()}")

    async def _join(self, joining: _Joining) -> None:
        try:
            joining.present.clear()
            changed = joining.changed
            while changed:
                key = next(iter(changed))
                await self._tell(joining.callback, key, changed.pop(key))
            self._listeners.append(joining.callback)
        finally:
            self._forget(joining)
            self._joins -= 1
            self._is_told()

    def _forget(self, joining: _Joining) -> None:
        self._joining = [other for other in self._joining if other is not joining]

    async def refresh(self) -> None:
        """Wait until everything that is in the topic now is in the view and its listeners were told; raises why it can
        not be read. A listener that calls it does not wait for itself."""
        while True:
            self._check()
            before = self._applied
            if not await self._consumer.has_message_available() and (
                not (self._is_applying or self._joins) or asyncio.current_task() in self._telling
            ):
                return
            while self._applied == before:
                self._check()
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiters.append(waiter)
                try:
                    await waiter
                finally:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)

    async def close(self) -> None:
        """Stop following; harmless twice."""
        self._cluster.place.check()
        if self._task is not None:
            self._task.cancel()
            self._task = None
        await self._consumer.close()
        self._wake()

    # ---- for the client's own parts

    async def fill(self, *, is_stored: bool = True) -> None:
        """Read what is there, if the topic stores anything, then go on in the background; raises Timeout if it does not
        come."""
        while is_stored and await self._consumer.has_message_available():
            await self._apply(await self._consumer.receive(self._cluster.options.operation_timeout_ms))
        self._task = spawn(self._follow(), name=f"table view of {self._consumer.topic()}")
        self._task.add_done_callback(self._ended)

    async def _follow(self) -> None:
        try:
            async for message in self._consumer:
                await self._apply(message)
        except PulsarException as error:
            _log.warning("table view of %s: %s", self._consumer.topic(), error)
            self._error = error

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The topic is not followed any more; whoever reads the view next is told why."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _apply(self, message: Message[T]) -> None:
        # First the value, with nothing awaited: the consumer counts the message as received already, so that a
        # refresh would not wait for it.
        self._is_applying = True
        change = self._take_over(message)
        await self._consumer.acknowledge_cumulative(message)
        if change is not None:
            key, value = change
            for joining in self._joining:
                joining.present.pop(key, None)
                joining.changed.pop(key, None)
                joining.changed[key] = value
            for listener in list(self._listeners):
                await self._tell(listener, key, value)
        self._is_applying = False
        self._is_told()

    def _is_told(self) -> None:
        self._applied += 1
        self._wake()

    async def _tell(self, listener: TableListener, key: str, value: T | None) -> None:
        # A failure of the listener ends its own task, which is where it is reported.
        name = f"listener of the table view of {self._consumer.topic()}"
        telling = spawn(_call(listener, key, value), name=name)
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        await asyncio.wait({telling})

    def _take_over(self, message: Message[T]) -> tuple[str, T | None] | None:
        """Put the message into the view: its key and the key's new value, None if it has no key."""
        if not message.has_key():
            _log.debug("table view of %s: a message without key", self._consumer.topic())
            return None
        key = message.partition_key()
        value = None if message.has_null_value() or not message.data() else message.value()
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
        return key, value

    def _check(self) -> None:
        self._cluster.place.check()
        if self._consumer.is_closed:
            raise AlreadyClosed("the table view is closed")
        if self._error is not None:
            raise again(self._error)


async def _call(callback: TableListener, key: str, value: object) -> None:
    result = callback(key, value)
    if inspect.isawaitable(result):
        await result


async def create_table_view(
    consumers: ConsumerFactory,
    topic: str,
    subscription_name: str,
    schema: TopicSchema[T] | None,
    arguments: ReaderArguments,
) -> TableView[T]:
    """See :meth:`Client.create_table_view`."""
    consumers.lifetime.check_usable()
    # As Java's; of a topic that stores nothing, nothing is compacted.
    is_stored = not (isinstance(topic, str) and topic.startswith("non-persistent:"))
    options = options_from(ConsumerOptions, {"is_read_compacted": is_stored, **arguments})
    check_argument("subscription_name", subscription_name, TEXT)
    name = subscription_name or f"reader-{consumers.cluster.runtime.rng.token(5)}"
    consumer = await consumers.subscribe(
        topic,
        name,
        schema,
        replace(
            options,
            consumer_type=ConsumerType.Exclusive,
            is_durable=False,
            ack_receipt_enabled=False,
            start_message_id=MessageId.earliest,
            initial_position=InitialPosition.Earliest,
        ),
    )
    view = TableView(consumer, consumers.cluster)
    try:
        await view.fill(is_stored=is_stored)
    except BaseException as error:
        await close_unopened(view.close(), error, name=f"close the unfilled table view of {topic}")
        raise
    return view
