"""What a bookie asks the metadata store of ledgers, and waits for as long as the store does, until it is closed.

A store that is away is waited for as long as a session lives. Who closes has less time than that before he is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from geminga.bookie.ports import LiveLedgers
from geminga.model.errors import MetadataError, MetadataUnavailableError
from geminga.runtime import get_logger

#: Seconds that each answer may take once the bookie is being closed.
CLOSE_ASK_S: Final = 2.0

T = TypeVar("T")

_log = get_logger(__name__)


class LedgerQuestions:
    """Implements ``LiveLedgers``, by another one. See the module."""

    __slots__ = ("_asking", "_ledgers", "_within_s")

    def __init__(self, ledgers: LiveLedgers) -> None:
        self._ledgers = ledgers
        #: None: however long it takes.
        self._within_s: float | None = None
        #: Questions under way.
        self._asking: set[asyncio.Timeout] = set()

    def hurry(self) -> None:
        """From now on nothing is waited for any longer than :data:`CLOSE_ASK_S`, also what was asked before."""
        self._within_s = CLOSE_ASK_S
        due_s = asyncio.get_running_loop().time() + CLOSE_ASK_S
        for asking in self._asking:
            asking.reschedule(due_s)

    async def live_ledger_ids(self) -> AbstractSet[int] | None:
        """See ``LiveLedgers``."""
        try:
            return await self._ask(self._ledgers.live_ledger_ids())
        except MetadataError as error:
            _log.warning("the list of ledgers can not be read now: %s", error)
            return None

    async def next_ledger_id(self) -> int | None:
        """See ``LiveLedgers``."""
        return await self._ask(self._ledgers.next_ledger_id())

    async def read_mark(self, instance: str) -> int | None:
        """See ``LiveLedgers``."""
        return await self._ask(self._ledgers.read_mark(instance))

    async def write_mark(self, instance: str, mark: int) -> None:
        """See ``LiveLedgers``."""
        await self._ask(self._ledgers.write_mark(instance, mark))

    async def existing(self, ledger_ids: Sequence[int]) -> AbstractSet[int] | None:
        """See ``LiveLedgers``."""
        return await self._ask(self._ledgers.existing(ledger_ids))

    async def _ask(self, question: Awaitable[T]) -> T:
        limit = asyncio.timeout(self._within_s)
        try:
            async with limit:
                self._asking.add(limit)
                return await question
        except TimeoutError as error:
            raise MetadataUnavailableError("no answer of the metadata store while the bookie is closed") from error
        finally:
            self._asking.discard(limit)
