"""The client of the service, from its start to its end: one producer for all requests, one worker in the background.

The service starts whether the broker is there or not, and says in its health what it waits for. Once opened, producer
and consumer come back by themselves whatever happens to connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from geminga.client import (
    AuthenticationToken,
    Client,
    Consumer,
    ConsumerDeadLetterPolicy,
    ConsumerType,
    InitialPosition,
    Message,
    Producer,
    PulsarException,
    connect,
)
from geminga.client.schema import JsonSchema

from .settings import Order, Settings

#: Seconds until opening is tried again after it failed.
RETRY_S: Final = 1.0
#: Milliseconds after which a request hears that it is not known whether its order was stored.
SEND_TIMEOUT_MS: Final = 5_000
#: Orders without receipt, of all requests together; further requests are told to come later.
ORDERS_IN_FLIGHT_MAX: Final = 1_000
#: How often an order is tried; then it is a dead letter.
ATTEMPTS_MAX: Final = 5
#: Milliseconds until it is tried again.
AGAIN_MS: Final = 5_000
#: Seconds that the order at hand has when the service stops. What is not acknowledged by then comes again.
STOP_S: Final = 5.0
#: Orders that are remembered, newest last: the place of a database.
ORDERS_KEPT_MAX: Final = 10_000

_log = logging.getLogger(__name__)

Handler = Callable[[Order], Awaitable[None]]


class NotReadyError(Exception):
    """The producer could not be opened yet; the text says why."""


class OrderBook:
    """Orders that were worked off, by id; an order that comes twice counts once."""

    def __init__(self) -> None:
        self._settled: OrderedDict[str, Order] = OrderedDict()

    async def settle(self, order: Order) -> None:
        """Remember it; where a database would be asked."""
        self._settled[order.order_id] = order
        if len(self._settled) > ORDERS_KEPT_MAX:
            self._settled.popitem(last=False)

    def find(self, order_id: str) -> Order | None:
        """The order, if it was worked off."""
        return self._settled.get(order_id)


class Messaging:
    """Entered by the lifespan of the application: ``async with Messaging(settings, handler) as messaging``."""

    def __init__(self, settings: Settings, handler: Handler) -> None:
        self.settings = settings
        self._handler = handler
        self._client: Client | None = None
        self._producer: Producer[Order] | None = None
        self._consumer: Consumer[Order] | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: What is waited for, by part; told by the health.
        self._trouble: dict[str, str] = {}
        self._is_stopping = False
        #: Whether the worker waits for a message: then it may be cancelled, and loses nothing.
        self._is_waiting = False

    @property
    def client(self) -> Client:
        """The one client of the service."""
        assert self._client is not None, "the lifespan of the application has not begun"
        return self._client

    def producer(self) -> Producer[Order]:
        """The one producer of the service; raises NotReadyError until the broker was reached for the first time."""
        if self._producer is None:
            raise NotReadyError(self._trouble.get("producer", "connecting"))
        return self._producer

    def health(self) -> dict[str, object]:
        """What is connected, what waits for its receipt, and why what is not there is not there."""
        return {
            "service_url": self.settings.service_url,
            "producer": self._producer is not None and self._producer.is_connected(),
            "consumer": self._consumer is not None and self._consumer.is_connected(),
            "orders_in_flight": self._producer.pending_messages if self._producer is not None else 0,
            "trouble": dict(self._trouble),
        }

    @property
    def is_ready(self) -> bool:
        """Whether orders can be published and are worked off."""
        health = self.health()
        return bool(health["producer"]) and bool(health["consumer"])

    # ---- life

    async def __aenter__(self) -> Self:
        token = self.settings.token
        # What is wrong with the environment is said at the start, not by the first request.
        self._client = connect(
            self.settings.service_url,
            authentication=AuthenticationToken(token) if token else None,
            description="orders",
        )
        for name, part in (("producer", self._open_producer()), ("worker", self._work())):
            self._tasks[name] = asyncio.create_task(part, name=f"orders {name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """No request is under way any more. The order at hand is finished, receipts are waited for, all is closed."""
        self._is_stopping = True
        self._tasks["producer"].cancel()
        if self._is_waiting:
            self._tasks["worker"].cancel()
        _, slow = await asyncio.wait(self._tasks.values(), timeout=STOP_S)
        for task in slow:
            task.cancel()
        ended = await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for name, result in zip(self._tasks, ended, strict=True):
            if isinstance(result, Exception):
                _log.error("%s ended: %s", name, result, exc_info=result)
        await self.client.close()

    async def _open_producer(self) -> None:
        async def opened() -> None:
            self._producer = await self.client.create_producer(
                self.settings.topic,
                schema=JsonSchema(Order),
                send_timeout_millis=SEND_TIMEOUT_MS,
                max_pending_messages=ORDERS_IN_FLIGHT_MAX,
                # A request that can not be taken now is told so; those that wait would only become more.
                block_if_queue_full=False,
            )

        await self._until_done("producer", opened)

    async def _work(self) -> None:
        while not self._is_stopping:
            self._is_waiting = True
            await self._until_done("consumer", self._subscribe)
            assert self._consumer is not None
            try:
                await self._work_off(self._consumer)
            except PulsarException as error:  # a subscription that was deleted, say: no connection mends that
                self._trouble["consumer"] = f"{type(error).__name__}: {error}"
                _log.error("worker: %s", self._trouble["consumer"])
                await self._consumer.close()

    async def _subscribe(self) -> None:
        self._consumer = await self.client.subscribe(
            self.settings.topic,
            self.settings.subscription,
            schema=JsonSchema(Order),
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=AGAIN_MS,
            dead_letter_policy=ConsumerDeadLetterPolicy(ATTEMPTS_MAX - 1),
        )

    async def _work_off(self, consumer: Consumer[Order]) -> None:
        while not self._is_stopping:
            self._is_waiting = True
            message = await consumer.receive()
            self._is_waiting = False
            await self._handle(consumer, message)

    async def _handle(self, consumer: Consumer[Order], message: Message[Order]) -> None:
        """Acknowledged once it is done, and never before: what is cut short comes again."""
        try:
            order = message.value()
            if order is None:
                raise ValueError("a null value is no order")
            await self._handler(order)
        except Exception:  # the handler may raise anything, and bytes that are no order are no reason to stop
            _log.exception("order of %s failed", message.message_id())
            await consumer.negative_acknowledge(message)
        else:
            await consumer.acknowledge(message)

    async def _until_done(self, what: str, opening: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await opening()
            except PulsarException as error:
                text = f"{type(error).__name__}: {error}"
                if self._trouble.get(what) != text:
                    _log.warning("%s: %s; trying again", what, text)
                self._trouble[what] = text
                await asyncio.sleep(RETRY_S)
            else:
                self._trouble.pop(what, None)
                return
