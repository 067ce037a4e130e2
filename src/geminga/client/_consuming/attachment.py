"""``Attachment``: where a consumer is subscribed now. It comes and goes with connections; what reads over it stays.

Consumers and entry streams have one each: it subscribes over a connection that their link found, tells who waits for a
connection, asks the broker, and leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from geminga.client._api.errors import NotConnected, PulsarException, ReadError, Timeout
from geminga.client._consuming import requests
from geminga.client._transport.cluster import Cluster
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ConsumerHandler
from geminga.runtime import again, get_logger
from geminga.wire._generated import pulsar_api_pb2 as pb

_log = get_logger(__name__)


class Attachment:
    """See the module. Runs on the client's loop."""

    __slots__ = (
        "_failure",
        "_handler",
        "_is_lost",
        "_name",
        "_timeout_s",
        "_waiting",
        "connection",
        "consumer_id",
        "is_subscribing",
        "times",
    )

    def __init__(self, cluster: Cluster, handler: ConsumerHandler, name: str) -> None:
        """``handler`` hears of what the broker says; ``name`` is for errors and the log: what is read."""
        #: None once there will be no connection any more.
        self._handler: ConsumerHandler | None = handler
        self._name = name
        self._timeout_s = cluster.timeout_s
        self.consumer_id = next(cluster.consumer_ids)
        #: What it is subscribed over; None: it is not, now.
        self.connection: ClientConnection | None = None
        #: How often it was.
        self.times = 0
        #: The broker was asked and has not answered yet.
        self.is_subscribing = False
        #: It was lost while it was being subscribed.
        self._is_lost = False
        #: Why there will be no connection any more; None: there may be.
        self._failure: PulsarException | None = None
        #: Who waits for a connection.
        self._waiting: list[asyncio.Future[None]] = []

    async def subscribe(self, connection: ClientConnection, make: Callable[[int], pb.BaseCommand]) -> None:
        """Subscribe with ``make(request id)``; raises the broker's error, NotConnected or Timeout."""
        handler = self._handler
        if handler is None:
            raise again(self._failure or NotConnected(f"{self._name} is not connected any more"))
        self.is_subscribing = True
        self._is_lost = False
        connection.listeners.register_consumer(self.consumer_id, handler)
        request_id = connection.next_request_id()
        try:
            await connection.request(make(request_id), request_id, self._timeout_s)
        except (PulsarException, asyncio.CancelledError) as error:
            if isinstance(error, Timeout | asyncio.CancelledError):
                self.abandon(connection)  # the broker may have made it, or be about to
            else:
                connection.listeners.unregister_consumer(self.consumer_id)
            raise
        finally:
            self.is_subscribing = False
        if connection.is_closed or self._is_lost:
            raise NotConnected(f"{self._name}: the connection or the broker's consumer was lost at once")
        self.connection = connection
        self.times += 1
        for future in self._no_longer_waiting():
            future.set_result(None)

    def detach(self) -> ClientConnection | None:
        """The connection is gone, or not wanted any more; what it was subscribed over."""
        self._is_lost = True
        connection, self.connection = self.connection, None
        return connection

    def fail(self, error: PulsarException) -> None:
        """There will be no connection any more: whoever waits for one gets ``error``."""
        self._failure = error
        self._handler = None
        for future in self._no_longer_waiting():
            future.set_exception(again(error))

    def _no_longer_waiting(self) -> list[asyncio.Future[None]]:
        waiting, self._waiting = self._waiting, []
        return [future for future in waiting if not future.done()]

    async def connected(self) -> ClientConnection:
        """The connection, once there is one; raises Timeout after the operation timeout, NotConnected, or why there
        will be none."""
        if self.connection is None:
            if self._failure is not None:
                raise again(self._failure)
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await future
            except TimeoutError:
                raise Timeout(f"{self._name} is not connected") from None
            finally:
                if future in self._waiting:  # who gave up, while it is away for long and others ask on and on
                    self._waiting.remove(future)
                del future  # see runtime's value_of
        if self.connection is None:
            raise NotConnected(f"{self._name} is not connected")
        return self.connection

    async def request(self, make: requests.Make) -> pb.BaseCommand:
        """Ask the broker; raises its error, NotConnected or Timeout."""
        connection = await self.connected()
        request_id = connection.next_request_id()
        return await connection.request(make(self.consumer_id, request_id), request_id, self._timeout_s)

    def write(self, frame: bytes) -> None:
        """To the broker; without a connection nothing is said: there is a fresh start later."""
        if self.connection is not None:
            self.connection.write(frame)

    def read_again(self, error: ReadError) -> None:
        """What came over this connection can not be read: everything comes again over a fresh one."""
        if self.connection is not None:
            self.connection.abort(error)

    def abandon(self, connection: ClientConnection) -> None:
        """Close the consumer on the broker without waiting for the answer."""
        connection.listeners.unregister_consumer(self.consumer_id)
        connection.write(requests.close_frame(self.consumer_id, connection.next_request_id()))

    async def leave(self, connection: ClientConnection | None) -> None:
        """Close the consumer on the broker; its answer is awaited for the operation timeout at most."""
        if connection is None or connection.is_closed:
            return
        request_id = connection.next_request_id()
        try:
            await connection.request(requests.close(self.consumer_id, request_id), request_id, self._timeout_s)
        except PulsarException as error:
            _log.info("closing the consumer of %s: %s", self._name, error)
        finally:
            connection.listeners.unregister_consumer(self.consumer_id)
