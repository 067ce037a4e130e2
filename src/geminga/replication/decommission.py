"""A bookie that leaves for good: everything it has is copied elsewhere, and then no ledger names it."""

from __future__ import annotations

from typing import Final

from geminga.bookkeeper import BookKeeper
from geminga.model.errors import NoSuchLedgerError, StorageError
from geminga.replication.core.fragments import bookies_of
from geminga.replication.marks import UnderReplicatedLedgers
from geminga.replication.registry import BookieRegistry
from geminga.runtime import get_logger, wait_ms

#: Between two looks at what is left.
LOOK_MS: Final = 5_000

_log = get_logger(__name__)


async def decommission_bookie(
    bookie_id: str, bookkeeper: BookKeeper, marks: UnderReplicatedLedgers, registry: BookieRegistry
) -> int:
    """Mark every ledger that names the bookie, and wait until none does; how many did at first.

    The workers of the cluster do the work: there must be one, and bookies that take the copies; a ledger that is being
    written has its writer's time first. The bookie must be stopped, since a running one takes new entries. May be
    called off at any time and begun again. Raises StorageError if the bookie is registered, or ledgers name it while
    auto-recovery is switched off; MetadataError; CorruptionError of a ledger that can not be read: it may name it.
    """
    at_first: int | None = None
    while True:
        if bookie_id in (await registry.registered()).all:
            raise StorageError(f"bookie {bookie_id} is registered: stop it first")
        left = 0
        for ledger_id in await bookkeeper.ledger_ids():
            try:
                stored = await bookkeeper.read_ledger(ledger_id)
            except NoSuchLedgerError:
                continue
            if bookie_id in bookies_of(stored.metadata):
                left += 1
                await marks.mark(ledger_id, [bookie_id], None)
        at_first = left if at_first is None else at_first
        if not left:
            return at_first
        if not await marks.is_enabled():
            raise StorageError(f"auto-recovery is switched off in the cluster: {left} ledgers name bookie {bookie_id}")
        _log.info("bookie %s: %d of %d ledgers name it still", bookie_id, left, at_first)
        await wait_ms(LOOK_MS)
