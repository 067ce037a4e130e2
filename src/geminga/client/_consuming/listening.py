"""Calls the ``message_listener`` of a consumer, one message after the other.

A listener that fails is logged and goes on with the next message: what it did not acknowledge comes again by negative
acknowledgment or ack timeout, as the application chose.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from geminga.client._api.errors import PulsarException
from geminga.client._consuming.receiving import Receiving
from geminga.client._messages.consumer import Consumer
from geminga.client._messages.consumer_options import MessageListener
from geminga.runtime import get_logger, spawn

_log = get_logger(__name__)


class Listening:
    """One listener's task, started when the consumer is open."""

    __slots__ = ("_listener", "_receiving", "_resumed", "_running", "_task")

    def __init__(self, receiving: Receiving[Any], listener: MessageListener) -> None:
        """``receiving``: where its messages are."""
        self._receiving = receiving
        self._listener = listener
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._task: asyncio.Task[None] | None = None
        self._running: asyncio.Task[None] | None = None

    def start(self, consumer: Consumer[Any]) -> None:
        """Begin to hand messages to the listener, which is called with ``consumer``: only the task knows it."""
        self._task = spawn(self._supervise(consumer), name=f"listener of {consumer.topic()}")

    def pause(self) -> None:
        """No more calls after the one under way."""
        self._resumed.clear()

    def resume(self) -> None:
        """Calls again."""
        self._resumed.set()

    def close(self) -> None:
        """No more calls; one that closes the consumer itself runs on to its end."""
        if self._task is not None:
            self._task.cancel()
        if self._running is not None and self._running is not asyncio.current_task():
            self._running.cancel()
        # What cut them off knows their frames, and those this.
        self._task = self._running = None

    async def _supervise(self, consumer: Consumer[Any]) -> None:
        while not consumer.is_closed:
            # A failure of the listener ends its own task, which is where it is reported.
            self._running = spawn(self._listen(consumer), name=f"messages to the listener of {consumer.topic()}")
            await asyncio.wait({self._running})

    async def _listen(self, consumer: Consumer[Any]) -> None:
        while not consumer.is_closed:
            await self._resumed.wait()
            try:
                message = await self._receiving.next()
            except PulsarException as error:
                if not consumer.is_closed:
                    _log.warning("listener of %s ends: %s", consumer.topic(), error)
                    if self._task is not None:
                        self._task.cancel()
                return
            if not self._resumed.is_set():
                await self._resumed.wait()
            result = self._listener(consumer, message)
            if inspect.isawaitable(result):
                await result
