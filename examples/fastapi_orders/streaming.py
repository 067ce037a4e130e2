"""Server-sent events: each browser reads the topic by a reader of its own, which goes when the browser does.

The id of an event is the message's: a browser that connects again says which it saw last, and goes on behind that one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import time
from collections.abc import AsyncIterator
from typing import Final

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from geminga.client import Client, MessageId, Reader, Timeout
from geminga.client.schema import JsonSchema

from .settings import Order

#: Browsers at a time; each costs a reader, a connection and a queue.
STREAMS_MAX: Final = 200
#: Messages that wait for a browser; the broker keeps the others.
QUEUE_MESSAGES: Final = 100
#: Milliseconds without an order after which something is sent all the same, for proxies between.
SILENCE_MS: Final = 15_000
#: Seconds; then the browser connects again, at whatever replica, and goes on where it was.
STREAM_S_MAX: Final = 900.0
#: Seconds beyond that for a browser which takes nothing.
GRACE_S: Final = 30.0


class TooManyStreamsError(Exception):
    """``STREAMS_MAX`` browsers are being served."""


class BadEventIdError(ValueError):
    """``Last-Event-ID`` is none of ours."""


def event_id(message_id: MessageId) -> str:
    """As a line of text."""
    return base64.urlsafe_b64encode(message_id.serialize()).decode("ascii")


def message_id_of(text: str) -> MessageId:
    """What :func:`event_id` wrote; raises BadEventIdError."""
    try:
        return MessageId.deserialize(base64.b64decode(text, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error) as error:
        raise BadEventIdError(f"Last-Event-ID {text!r:.60}: expected the id of an event of this stream") from error


class OrderStreams:
    """All browsers that listen."""

    def __init__(self) -> None:
        self.open = 0

    async def response(self, client: Client, topic: str, last_event_id: str | None) -> EventStream:
        """Orders from now on, or behind ``last_event_id``. Raises before anything is sent: what the client raises,
        TooManyStreamsError and BadEventIdError."""
        start = MessageId.latest if last_event_id is None else message_id_of(last_event_id)
        if self.open >= STREAMS_MAX:
            raise TooManyStreamsError(f"{STREAMS_MAX} streams are open, come again later")
        self.open += 1
        try:
            reader = await client.create_reader(
                topic, start, schema=JsonSchema(Order), receiver_queue_size=QUEUE_MESSAGES
            )
        except BaseException:
            self.open -= 1
            raise
        return EventStream(self, reader)


class EventStream(StreamingResponse):
    """One browser. Whatever ends it (the browser, its silence, the service), the reader is closed."""

    def __init__(self, streams: OrderStreams, reader: Reader[Order]) -> None:
        super().__init__(_events(reader), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._streams = streams
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(STREAM_S_MAX + GRACE_S):
                await super().__call__(scope, receive, send)
        finally:
            # Not in the generator: one that was never begun would not get there.
            self._streams.open -= 1
            await self._reader.close()


async def _events(reader: Reader[Order]) -> AsyncIterator[str]:
    end = time.monotonic() + STREAM_S_MAX
    # Headers leave with the first line: the browser knows that it is connected.
    yield "retry: 1000\n\n"
    while (left_ms := int((end - time.monotonic()) * 1000)) > 0:
        try:
            message = await reader.read_next(timeout_millis=min(SILENCE_MS, left_ms))
        except Timeout:
            yield ": nothing new\n\n"
            continue
        order = message.value()
        if order is not None:  # a null value: somebody else's
            yield f"id: {event_id(message.message_id())}\nevent: order\ndata: {order.model_dump_json()}\n\n"
