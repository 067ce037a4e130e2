"""Transactions for which something is held though nobody will say how they ended: found, and aborted.

What comes for a transaction is taken only where its coordinator says that it is open and will tell. What is read again
from storage was taken at another time, maybe by another broker, whose coordinators may not be there any more: it is
asked about at once, and what is held for longer now and again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from geminga.model.errors import GemingaError, NotAllowedError
from geminga.model.txn_id import Standing, TxnId, TxnSubscription
from geminga.runtime import Part, get_logger, next_turn, spawn, wait_ms
from geminga.transaction.ports import Registrations

_log = get_logger(__name__)

#: Milliseconds between two rounds of questions: doubled from the first to the last.
AGAIN_FIRST_MS: Final = 1_000
AGAIN_MAX_MS: Final = 10_000
#: Transactions asked about in one turn of the loop.
ASKED_PER_TURN: Final = 500


def check_is_taking(standing: Standing, txn_id: TxnId, participant: str | TxnSubscription) -> None:
    """Raise NotAllowedError if something that comes for the transaction would be held with nobody to end it."""
    if standing is Standing.UNTOLD:
        where = participant if isinstance(participant, str) else f"{participant.subscription} of {participant.topic}"
        raise NotAllowedError(
            f"Transaction [{txn_id}] does not know of {where}: it must be added to the transaction first"
        )
    if standing is not Standing.TAKING:
        raise NotAllowedError(f"Transaction [{txn_id}] has been ended. Please use a new transaction.")


async def settle_strays(
    held: Callable[[], Iterable[TxnId]],
    participant: str | TxnSubscription,
    registrations: Registrations,
    abort: Callable[[TxnId], Awaitable[None]],
    *,
    first_ms: int = 0,
) -> None:
    """Ask about every transaction for which something is held, after ``first_ms`` and then now and again, and abort
    those that are over: the participant was not told, or another broker was that had the topic for a moment.

    Ends when nothing is held. ``abort`` may raise GemingaError.
    """
    delay_ms = first_ms
    while True:
        if delay_ms:
            await wait_ms(delay_ms)
        delay_ms = min(2 * delay_ms, AGAIN_MAX_MS) if delay_ms else AGAIN_FIRST_MS
        there = list(held())
        if not there:
            return
        for number, txn_id in enumerate(there):
            if number % ASKED_PER_TURN == ASKED_PER_TURN - 1:
                await next_turn()
            # Nothing is awaited for one of which its coordinator knows.
            if registrations.standing(txn_id, participant) in (None, Standing.OVER):
                await _settle(txn_id, participant, registrations, abort)


async def _settle(
    txn_id: TxnId,
    participant: str | TxnSubscription,
    registrations: Registrations,
    abort: Callable[[TxnId], Awaitable[None]],
) -> None:
    try:
        if await registrations.ask_standing(txn_id, participant) is Standing.OVER:
            _log.warning("%s holds something for transaction %s, which is over: aborted", participant, txn_id)
            await abort(txn_id)
    except GemingaError as error:
        _log.info("%s: what becomes of transaction %s is not known yet: %s", participant, txn_id, error)


class StrayWatch:
    """Sees that nothing is held for a transaction that is over, by one task while anything is held."""

    __slots__ = ("_abort", "_held", "_name", "_part", "_participant", "_registrations", "_task", "is_stopped")

    def __init__(
        self,
        held: Callable[[], Iterable[TxnId]],
        participant: str | TxnSubscription,
        registrations: Registrations,
        abort: Callable[[TxnId], Awaitable[None]],
        *,
        name: str,
        part: Part,
    ) -> None:
        """As :func:`settle_strays`. ``name``: whose strays. ``part``: whose failure it is."""
        self._held = held
        self._participant = participant
        self._registrations = registrations
        self._abort = abort
        self._name = name
        self._part = part
        self._task: asyncio.Task[None] | None = None
        self.is_stopped = False

    def watch(self, first_ms: int) -> None:
        """Something is held: ask about it after ``first_ms``, unless questions are asked already."""
        if self._task is None and not self.is_stopped:
            self._task = spawn(self._settle(first_ms), name=f"strays of {self._name}", part=self._part)

    async def _settle(self, first_ms: int) -> None:
        await settle_strays(self._held, self._participant, self._registrations, self._abort, first_ms=first_ms)
        self._task = None

    def stop(self) -> None:
        """Nobody asks any more."""
        self.is_stopped = True
        if self._task is not None:
            self._task.cancel()
            self._task = None
