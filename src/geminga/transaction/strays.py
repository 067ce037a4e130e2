"""Transactions for which something is held though nobody will say how they ended: found, and aborted.

What comes for a transaction is taken only where its coordinator says that it is open and will tell. What is read again
from storage was taken at another time, maybe by another broker, whose coordinators may not be there any more: it is
asked about once, until the answer is for certain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from geminga.model.errors import GemingaError, NotAllowedError
from geminga.model.txn_id import Standing, TxnId, TxnSubscription
from geminga.runtime import get_logger, wait_ms
from geminga.transaction.ports import Registrations

_log = get_logger(__name__)

#: Milliseconds between two rounds of questions: doubled from the first to the last.
AGAIN_FIRST_MS: Final = 1_000
AGAIN_MAX_MS: Final = 60_000


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
) -> None:
    """Ask about every transaction that is held now, and abort those of which the participant will not hear.

    One that is open and does not know of the participant is waited for: it times out. ``abort`` may raise GemingaError.
    """
    unsettled = list(held())
    delay_ms = AGAIN_FIRST_MS
    while unsettled:
        unsettled = [each for each in unsettled if not await _is_settled(each, participant, registrations, abort)]
        if unsettled:
            await wait_ms(delay_ms)
            delay_ms = min(2 * delay_ms, AGAIN_MAX_MS)
            unsettled = [each for each in unsettled if each in set(held())]


async def _is_settled(
    txn_id: TxnId,
    participant: str | TxnSubscription,
    registrations: Registrations,
    abort: Callable[[TxnId], Awaitable[None]],
) -> bool:
    try:
        standing = await registrations.find_standing(txn_id, participant)
        if standing is Standing.OVER:
            _log.warning("%s holds something for transaction %s, which is over: aborted", participant, txn_id)
            await abort(txn_id)
    except GemingaError as error:
        _log.info("%s: what becomes of transaction %s is not known yet: %s", participant, txn_id, error)
        return False
    return standing is not Standing.UNTOLD
