"""The blocking ``Reader``.

Generated from ``client/_reader.py`` by ``tools/generate_blocking.py``: do not edit.
"""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Self

from geminga.client._api.message_id import MessageId
from geminga.client._messages.message import Message
from geminga.client._reader import Reader as AsyncReader
from geminga.client._reader import T
from geminga.client.blocking._facade import Facade


class Reader(Facade[AsyncReader[T]], Generic[T]):
    """Reads from a start message on; made by :meth:`Client.create_reader`. ``for`` ends when it is closed."""

    __slots__ = ()

    def read_next(self, timeout_millis: int | None = None) -> Message[T]:
        """The next message. Raises Timeout after ``timeout_millis`` (None: never), AlreadyClosed, or why it failed."""
        return self._run(lambda: self._target.read_next(timeout_millis))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message[T]:
        try:
            return self._run(self._target.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def has_message_available(self) -> bool:
        """Whether a message can be read without waiting for somebody to publish one.

        Raises what :meth:`Consumer.has_message_available` raises.
        """
        return self._run(lambda: self._target.has_message_available())

    def seek(self, target: MessageId | int) -> None:
        """Go on at a message id, or at a time in milliseconds since the epoch.

        Raises what :meth:`Consumer.seek` raises.
        """
        self._run(lambda: self._target.seek(target))

    def get_last_message_id(self) -> MessageId:
        """Id of the topic's last message (entry id -1: it is empty).

        Raises what :meth:`Consumer.get_last_message_id` raises.
        """
        return self._run(lambda: self._target.get_last_message_id())

    def get_last_message_ids(self) -> list[MessageId]:
        """Ids of the last messages, one for each partition.

        Raises what :meth:`Consumer.get_last_message_ids` raises.
        """
        return self._run(lambda: self._target.get_last_message_ids())

    def topic(self) -> str:
        """What is read."""
        return self._call(lambda: self._target.topic())

    def is_connected(self) -> bool:
        """Whether it is connected to all its topics now."""
        return self._call(lambda: self._target.is_connected())

    def close(self) -> None:
        """Leave the broker; harmless twice."""
        self._run(lambda: self._target.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
