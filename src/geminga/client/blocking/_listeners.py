"""Listeners of the blocking client: each has a thread of its own, which may block; the loop waits for it meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from geminga.runtime.loop_thread import CallbackThread, LoopThread

if TYPE_CHECKING:
    from geminga.client._messages.consumer import Consumer as AsyncConsumer
    from geminga.client._messages.message import Message
    from geminga.client._reader import Reader as AsyncReader
    from geminga.client.blocking._reader import Reader


def with_listener(options: Mapping[str, Any], thread: LoopThread) -> dict[str, Any]:
    """A consumer's options for the asynchronous client."""
    listener = options.get("message_listener")
    if listener is None:
        return dict(options)
    calls = CallbackThread("geminga-listener")

    async def heard(consumer: AsyncConsumer[Any], message: Message[Any]) -> None:
        from geminga.client.blocking._consumer import Consumer

        await calls.call(lambda: listener(Consumer(consumer, thread), message))

    return {**options, "message_listener": heard}


def for_reader(
    listener: Callable[[Reader[Any], Message[Any]], object] | None, thread: LoopThread
) -> Callable[[AsyncReader[Any], Message[Any]], Awaitable[None]] | None:
    """A reader's listener for the asynchronous client."""
    if listener is None:
        return None
    calls = CallbackThread("geminga-listener")

    async def heard(reader: AsyncReader[Any], message: Message[Any]) -> None:
        from geminga.client.blocking._reader import Reader

        await calls.call(lambda: listener(Reader(reader, thread), message))

    return heard


def for_table(listener: Callable[[str, Any], object]) -> Callable[[str, Any], Awaitable[None]]:
    """A table view's listener for the asynchronous client."""
    calls = CallbackThread("geminga-listener")

    async def heard(key: str, value: object) -> None:
        await calls.call(lambda: listener(key, value))

    return heard
