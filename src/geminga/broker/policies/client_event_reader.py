"""Events of other brokers' namespaces, read by our own client as any client would: by lookup, from the beginning on.

Imported by who composes brokers that share a cluster; a broker that owns everything never needs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from geminga.broker.topic.table import TableMessage
from geminga.client import Client, Message, MessageId, PulsarException, Reader
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import Part, spawn


class ClientEventReader:
    """One client for all namespaces; it comes back by itself when the topic moves."""

    __slots__ = ("_client", "_part")

    def __init__(self, client: Callable[[], Client], *, part: Part | None = None) -> None:
        """``client``: when there is something to follow; it is closed by whoever made it. ``part`` hears of what is
        unexpected."""
        self._client = client
        self._part = part

    async def follow(self, name: TopicName, heard: Callable[[TableMessage], Awaitable[None]]) -> Callable[[], None]:
        """See ``EventReader.follow``."""
        try:
            reader = await self._client().create_reader(str(name), MessageId.earliest)
        except PulsarException as error:
            raise UnavailableError(f"the events of {name} can not be read now: {error}") from error
        try:
            while await reader.has_message_available():
                await heard(_event(await reader.read_next()))
        except PulsarException as error:
            await reader.close()
            raise UnavailableError(f"the events of {name} can not be read now: {error}") from error
        except BaseException:
            await reader.close()
            raise
        task = spawn(_go_on(reader, heard), name=f"follow {name}", part=self._part)

        def end() -> None:
            task.cancel()

        return end


async def _go_on(reader: Reader[Any], heard: Callable[[TableMessage], Awaitable[None]]) -> None:
    try:
        while True:
            await heard(_event(await reader.read_next()))
    except (PulsarException, asyncio.CancelledError):
        # The client is closed, or nobody wants to hear any more.
        return
    finally:
        await reader.close()


def _event(message: Message[Any]) -> TableMessage:
    is_null = message.has_null_value()
    data = b"" if is_null else message.data()
    return TableMessage(
        message.partition_key(), is_null, data, message.schema_version(), f"message {message.message_id()}"
    )
