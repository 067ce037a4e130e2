"""Listeners of the blocking client: each has a thread of its own, which may block; the loop waits for it meanwhile."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from geminga.client._api.errors import InvalidConfiguration
from geminga.client._api.options import check_argument
from geminga.client.rules.option_kinds import NOTHING, Either, Function
from geminga.runtime.loop_thread import CallbackThread, LoopThread

if TYPE_CHECKING:
    from geminga.client._messages.consumer import Consumer as AsyncConsumer
    from geminga.client._messages.message import Message
    from geminga.client._reader import Reader as AsyncReader
    from geminga.client.blocking._reader import Reader

_CONSUMER_LISTENER: Final = Either(NOTHING, Function("a function of a consumer and a message", is_plain=True))
_READER_LISTENER: Final = Either(NOTHING, Function("a function of a reader and a message", is_plain=True))
_TABLE_LISTENER: Final = Function("a function of a key and its value", is_plain=True)


def with_listener(options: Mapping[str, Any], thread: LoopThread) -> dict[str, Any]:
    """A consumer's options for the asynchronous client; raises InvalidConfiguration."""
    listener = options.get("message_listener")
    check_argument("message_listener", listener, _CONSUMER_LISTENER)
    if listener is None:
        return dict(options)
    calls = CallbackThread("geminga-listener")

    async def heard(consumer: AsyncConsumer[Any], message: Message[Any]) -> None:
        from geminga.client.blocking._consumer import Consumer

        await calls.call(lambda: _is_over(listener(Consumer(consumer, thread), message)))

    return {**options, "message_listener": heard}


def for_reader(
    listener: Callable[[Reader[Any], Message[Any]], object] | None, thread: LoopThread
) -> Callable[[AsyncReader[Any], Message[Any]], Awaitable[None]] | None:
    """A reader's listener for the asynchronous client; raises InvalidConfiguration."""
    check_argument("reader_listener", listener, _READER_LISTENER)
    if listener is None:
        return None
    calls = CallbackThread("geminga-listener")

    async def heard(reader: AsyncReader[Any], message: Message[Any]) -> None:
        from geminga.client.blocking._reader import Reader

        await calls.call(lambda: _is_over(listener(Reader(reader, thread), message)))

    return heard


def for_table(listener: Callable[[str, Any], object]) -> Callable[[str, Any], Awaitable[None]]:
    """A table view's listener for the asynchronous client; raises InvalidConfiguration."""
    check_argument("callback", listener, _TABLE_LISTENER)
    calls = CallbackThread("geminga-listener")

    async def heard(key: str, value: object) -> None:
        await calls.call(lambda: _is_over(listener(key, value)))

    return heard


def _is_over(result: object) -> None:
    """A listener came back; raises InvalidConfiguration if there is something left to do, which nobody would."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InvalidConfiguration(
            f"the listener gave a {type(result).__name__}: expected a plain function, which may block"
        )
