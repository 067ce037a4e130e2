"""Listeners of blocking consumers: each consumer with one has a thread for it, which may block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from geminga.runtime.loop_thread import CallbackThread, LoopThread

if TYPE_CHECKING:
    from geminga.client._consumer import Consumer as AsyncConsumer
    from geminga.client._message import Message


def with_listener(options: Mapping[str, Any], thread: LoopThread) -> dict[str, Any]:
    """The options for the asynchronous client: its listener waits for the given one, which runs on its thread."""
    listener = options.get("message_listener")
    if listener is None:
        return dict(options)
    calls = CallbackThread("geminga-listener")

    async def heard(consumer: AsyncConsumer, message: Message) -> None:
        from geminga.client.blocking._consumer import Consumer

        await calls.call(lambda: listener(Consumer(consumer, thread), message))

    return {**options, "message_listener": heard}
