"""Deleting ledgers that nobody needs: cursors durable first, then the list, then the ledgers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from geminga.managed_ledger import crash_points as points
from geminga.managed_ledger.core.trim import ledgers_to_trim
from geminga.model.errors import StorageError
from geminga.runtime import crash_point, get_logger

if TYPE_CHECKING:
    from geminga.managed_ledger.managed_ledger import ManagedLedger

_log = get_logger(__name__)


async def trim_quietly(ml: ManagedLedger) -> None:
    """In the background: an error is logged, and a later call goes on."""
    try:
        await ml.trim()
    except StorageError as error:
        _log.warning("%s: not trimmed: %s", ml.name, error)


async def trim_list(ml: ManagedLedger, retention: Callable[[], tuple[int, int]]) -> None:
    """Trim what ``core.trim`` lets go; the list lock is held. Raises StorageError; then a later call goes on.

    ``retention``: milliseconds and bytes that hold at the moment of the call.
    """
    going = _trimmable(ml, *retention())
    if not going:
        return
    if ml.factory.defects.trim_before_metadata:
        await ml.stored.delete_ledgers(going)
        crash_point(points.TRIM_DELETED)
    for name, cursor in tuple(ml.cursors.items()):
        if ml.cursors.get(name) is cursor and not cursor.is_closed:
            await cursor.flush()
    crash_point(points.TRIM_FLUSHED)
    # A cursor may have been reset meanwhile, or the policy changed: what counts is what is so when the list is written.
    going = [ledger_id for ledger_id in _trimmable(ml, *retention()) if ledger_id in going]
    if not going:
        return
    await ml.stored.put([info for info in ml.ledgers.infos if info.ledger_id not in going])
    crash_point(points.TRIM_LISTED)
    ml.on_trimmed(going)
    await ml.stored.delete_ledgers(going)
    crash_point(points.TRIM_DELETED)


def _trimmable(ml: ManagedLedger, retention_ms: int, retention_bytes: int) -> list[int]:
    needed = [cursor.mark_delete_position for cursor in ml.cursors.values()]
    if ml.is_limited:
        # What nobody could read yet is not consumed, even where nobody has a cursor.
        needed.append(ml.readable_position)
    slowest = min(needed, default=None)
    return ledgers_to_trim(
        ml.ledgers.infos,
        slowest,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        now_ms=ml.runtime.clock.wall_ms(),
    )
