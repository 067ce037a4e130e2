"""``Questions``: what is asked of the metadata store about a bundle is asked once at a time, whoever wants to know."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from geminga.broker.ownership.core.bundles import Bundle
from geminga.broker.ownership.ports import Owner, Unknown
from geminga.model.errors import GemingaError
from geminga.runtime import Part, again, spawn

#: Bundles of which owners are read, or that are acquired, at the same time.
QUESTIONS_MAX: Final = 1_000

_BUSY: Final = Unknown("this broker is asked for too many bundles at once")

Ask = Callable[[], Coroutine[Any, Any, Owner | None]]


class Questions:
    """See the module."""

    __slots__ = ("_part", "_tasks")

    def __init__(self, part: Part | None) -> None:
        """``part`` hears of what was not expected."""
        self._part = part
        self._tasks: dict[tuple[str, Bundle], asyncio.Task[Owner | GemingaError | None]] = {}

    async def once(self, kind: str, bundle: Bundle, ask: Ask) -> Owner | None:
        """The answer to ``ask``, or to the same kind of question about the bundle that is under way. Raises what it
        does; ``Unknown`` where too much is asked."""
        key = (kind, bundle)
        task = self._tasks.get(key)
        if task is None:
            if len(self._tasks) >= QUESTIONS_MAX:
                return _BUSY
            task = self._tasks[key] = spawn(self._ask(key, ask), name=f"{kind} of {bundle}", part=self._part)
        # A task of its own: the first to ask may go away, the others still want to know.
        answer = await asyncio.shield(task)
        if isinstance(answer, GemingaError):
            # All who ask are told of it.
            raise again(answer)
        return answer

    async def settled(self, kind: str, bundle: Bundle) -> None:
        """Return when no such question is under way."""
        while (task := self._tasks.get((kind, bundle))) is not None:
            await asyncio.wait([task])

    async def _ask(self, key: tuple[str, Bundle], ask: Ask) -> Owner | GemingaError | None:
        try:
            return await ask()
        except GemingaError as error:
            return again(error)
        finally:
            del self._tasks[key]
