"""Collecting orphan ledgers at once, for tests of what crashes leave behind: two looks, and no hour between them."""

from __future__ import annotations

from collections.abc import Sequence

from geminga.bookkeeper import BookKeeper
from geminga.broker.upkeep.orphan_ledgers import OrphanLedgers
from geminga.metadata.ports import MetadataStore
from geminga.runtime import Runtime


async def collect_now(runtime: Runtime, metadata: MetadataStore, bookkeeper: BookKeeper) -> Sequence[int]:
    """Ids of the ledgers deleted."""
    orphans = OrphanLedgers(runtime, metadata, bookkeeper, at_once_max=1_000_000, age_ms=0, apart_s=0.0)
    assert not await orphans.look()
    return await orphans.look()
