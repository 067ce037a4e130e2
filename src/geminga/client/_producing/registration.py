"""``Registration``: how a producer comes to be on its broker, again over each connection."""

from __future__ import annotations

import asyncio

from geminga.client._api.errors import NotConnected, PulsarException, Timeout
from geminga.client._api.options import ProducerOptions
from geminga.client._producing import requests
from geminga.client._transport.connection import ClientConnection
from geminga.client._transport.handlers import ProducerHandler
from geminga.wire._generated import pulsar_api_pb2 as pb


class Registration:
    """What the broker was told and granted before, which goes with the next PRODUCER."""

    __slots__ = (
        "_access",
        "_access_epoch",
        "_epoch",
        "_is_encrypted",
        "_options",
        "_producer_id",
        "_schema",
        "_timeout_s",
        "_topic",
    )

    def __init__(
        self,
        topic: str,
        producer_id: int,
        options: ProducerOptions,
        *,
        is_encrypted: bool,
        schema: pb.Schema | None,
        timeout_s: float,
    ) -> None:
        """``timeout_s``: for the first answer; exclusive access is waited for as long as it takes."""
        self._topic = topic
        self._producer_id = producer_id
        self._options = options
        self._is_encrypted = is_encrypted
        self._schema = schema
        self._timeout_s = timeout_s
        #: Of the next PRODUCER.
        self._epoch = 0
        #: Of exclusive access, as the broker granted it.
        self._access_epoch: int | None = None
        #: While it waits for exclusive access.
        self._access: asyncio.Future[pb.BaseCommand] | None = None

    async def make(
        self, connection: ClientConnection, handler: ProducerHandler, name: str
    ) -> pb.CommandProducerSuccess:
        """Say PRODUCER on ``connection``, where ``handler`` is registered from now on; raises the broker's error,
        NotConnected or Timeout, and then it is not.

        ``name``: the one given or granted before, empty: the broker picks one.
        """
        request_id = connection.next_request_id()
        command = self._command(request_id, name)
        connection.listeners.register_producer(self._producer_id, handler)
        try:
            answer = (await connection.request(command, request_id, self._timeout_s)).producer_success
            while not answer.producer_ready:
                self._check_registered(connection)  # else nobody would hear that it need not wait
                self._access = connection.expect_again(request_id)
                answer = (await self._access).producer_success
        except BaseException as error:
            connection.forget_request(request_id)
            connection.listeners.unregister_producer(self._producer_id)
            if not isinstance(error, PulsarException) or isinstance(error, Timeout):
                # The broker may make it all the same: it must not stay there without us.
                connection.send_unanswered(requests.close(self._producer_id, connection.next_request_id()))
            raise
        self._check_registered(connection)
        if answer.HasField("topic_epoch"):
            self._access_epoch = answer.topic_epoch
        return answer

    def _check_registered(self, connection: ClientConnection) -> None:
        """Raise NotConnected if the broker closed it, or the connection was lost, in the very read that brought the
        answer."""
        if not connection.listeners.has_producer(self._producer_id):
            raise NotConnected(f"producer of {self._topic} was closed as soon as it was made")

    def lost(self) -> None:
        """The connection is gone, or the broker closed it: who waits for access asks again."""
        if self._access is not None and not self._access.done():
            self._access.set_exception(NotConnected(f"producer of {self._topic} was closed while it waited for access"))

    def _command(self, request_id: int, name: str) -> pb.BaseCommand:
        epoch = self._epoch
        self._epoch += 1
        return requests.create(
            self._topic,
            self._producer_id,
            request_id,
            self._options,
            name=name,
            epoch=epoch,
            topic_epoch=self._access_epoch,
            is_encrypted=self._is_encrypted,
            schema=self._schema,
        )
