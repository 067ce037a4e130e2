"""``Opening``: what ``create_producer`` and its relatives give: to be awaited, or entered at once.

::

    producer = await client.create_producer("topic")

    async with client.create_producer("topic") as producer:
        ...
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeVar

from geminga.runtime import spawn

#: To who uses what he has not awaited.
NOT_OPEN: Final = (
    "it is not open: await it first (producer = await client.create_producer(...)), or enter it by async with"
)


class Closable(Protocol):
    """A producer, consumer, reader or table view of a client."""

    async def close(self) -> None:
        """Close it; harmless twice."""
        ...


class ClosedAtEnd(ABC):
    """What ``async with`` closes at the end."""

    __slots__ = ()

    @abstractmethod
    async def close(self) -> None:
        """Close it; harmless twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


O_co = TypeVar("O_co", bound=Closable, covariant=True)


async def close_unopened(closing: Coroutine[Any, Any, None], error: BaseException, *, name: str) -> None:
    """``closing`` ends what could not be opened for ``error``. Who gave up opening it does not wait for its broker,
    which may be what he gave up for."""
    task = spawn(closing, name=name)
    if not isinstance(error, asyncio.CancelledError):
        await asyncio.shield(task)


class Opening(Coroutine[Any, Any, O_co]):
    """A coroutine that opens something, and a context manager that closes it at the end. For use once, either way.

    Nothing happens before it is awaited or entered. One that is never used warns as every coroutine does. Cancelled
    while it opens, nothing is left open.
    """

    __slots__ = ("_coroutine", "_opened")

    def __init__(self, coroutine: Coroutine[Any, Any, O_co]) -> None:
        """``coroutine`` leaves nothing behind if it raises."""
        self._coroutine = coroutine
        self._opened: Closable | None = None

    def __await__(self) -> Generator[Any, Any, O_co]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> O_co:
        opened = await self._coroutine
        self._opened = opened
        return opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.close()

    # ---- a coroutine, so that asyncio.create_task and asyncio.run take it

    def send(self, value: object, /, **fields: object) -> object:
        """See :class:`collections.abc.Coroutine`; TypeError for a message: a producer is to be awaited first."""
        if value is not None or fields:
            raise TypeError(NOT_OPEN)
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> object:  # noqa: ANN401 - as its base
        """See :class:`collections.abc.Coroutine`."""
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Give it up before it was used: it does not warn then."""
        self._coroutine.close()

    if not TYPE_CHECKING:  # a type checker knows what it has not

        def __getattr__(self, name: str) -> object:
            raise AttributeError(f"{name}: {NOT_OPEN}", name=name, obj=self)

        def __aiter__(self) -> object:
            raise TypeError(NOT_OPEN)

    def __repr__(self) -> str:
        return f"<Opening of {self._coroutine!r}: to be awaited, or entered>"
