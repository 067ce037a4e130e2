"""How many copies of what is stored in a cluster there are: fragments of ledgers, held against what each bookie lists.

The counting is pure; :class:`Look` asks the cluster's metadata store and its bookies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field

from geminga.app.servers.autorecovery_process import ClusterConnections, connected, load_autorecovery_config
from geminga.bookkeeper.core.distribution import Distribution
from geminga.model.errors import MetadataError, NoSuchLedgerError
from geminga.replication.core.copying import missing_entries
from geminga.replication.core.fragments import bookies_of
from geminga.replication.registry import MetadataBookieRegistry
from geminga.runtime import answer_of, wait_ms
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata

#: By bookie, the entries of one ledger that it says it has.
Listed = Mapping[str, Sequence[range]]
LOOK_MS = 200


@dataclass(slots=True)
class Copies:
    """What was found."""

    ledgers: int = 0
    fragments: int = 0
    entries: int = 0
    #: Entries of which a bookie of the write set has none, or is not there.
    lacking: int = 0
    #: Fragments in the ensemble of which a bookie is that is not registered.
    naming_lost: int = 0
    #: By bookie, the fragments that name it.
    of_bookie: Counter[str] = field(default_factory=Counter)

    def count(self, metadata: LedgerMetadata, registered: AbstractSet[str], listed: Listed) -> None:
        """One ledger. Nobody writes to it meanwhile: what any bookie has of it counts."""
        self.ledgers += 1
        distribution = Distribution.of(metadata.ensemble_size, metadata.write_quorum, metadata.ack_quorum)
        starts = [fragment.first_entry_id for fragment in metadata.fragments]
        newest = max((run.stop for runs in listed.values() for run in runs), default=0)
        end = metadata.last_entry_id + 1 if metadata.is_closed else newest
        for fragment, stop in zip(metadata.fragments, [*starts[1:], end], strict=True):
            self.fragments += 1
            self.of_bookie.update(fragment.ensemble)
            self.naming_lost += not registered >= set(fragment.ensemble)
            ids = range(fragment.first_entry_id, max(fragment.first_entry_id, min(stop, end)))
            self.entries += len(ids)
            lacking: set[int] = set()
            for index, bookie_id in enumerate(fragment.ensemble):
                has = listed.get(bookie_id, ()) if bookie_id in registered else ()
                lacking.update(missing_entries(distribution.share(index, ids), has))
            self.lacking += len(lacking)


class Look:
    """At a cluster, by its metadata store's address."""

    def __init__(self, address: str, session_ms: int) -> None:
        overrides = [f"metadataServiceUri={address}", f"zkTimeout={session_ms}"]
        self._config = load_autorecovery_config((), {}, overrides)

    async def at_copies(self) -> Copies:
        """All ledgers, and what all their bookies list."""
        async with connected(self._config) as cluster:
            return await _copies(cluster, with_lists=True)

    async def at_fragments(self) -> Copies:
        """The metadata alone: who is named by how many fragments."""
        async with connected(self._config) as cluster:
            return await _copies(cluster, with_lists=False)

    async def entries_of(self, bookie_id: str) -> int:
        """How many entries a bookie has, of ledgers that name it."""
        async with connected(self._config) as cluster:
            count = 0
            for ledger_id in await cluster.bookkeeper.ledger_ids():
                if bookie_id in bookies_of((await cluster.bookkeeper.read_ledger(ledger_id)).metadata):
                    count += sum(map(len, await _listed(cluster, bookie_id, ledger_id)))
            return count

    async def until_gone(self, bookie_id: str, patience_s: float) -> None:
        """Until a bookie is not registered any more. Raises TimeoutError."""
        async with asyncio.timeout(patience_s), connected(self._config) as cluster:
            registry = MetadataBookieRegistry(cluster.metadata)

            async def is_gone() -> bool:
                return bookie_id not in (await registry.registered()).all

            await _until(is_gone)

    async def until_unnamed(self, bookie_id: str, tell: Callable[[int], None], patience_s: float) -> None:
        """Until no fragment names this bookie; how many do is told now and then. Raises TimeoutError."""
        async with asyncio.timeout(patience_s), connected(self._config) as cluster:

            async def is_unnamed() -> bool:
                named = (await _copies(cluster, with_lists=False)).of_bookie[bookie_id]
                tell(named)
                return not named

            await _until(is_unnamed)


async def _until(look: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again; a look that the metadata store does not answer is none."""
    while True:
        with suppress(MetadataError):
            if await look():
                return
        await wait_ms(LOOK_MS)


async def _copies(cluster: ClusterConnections, *, with_lists: bool) -> Copies:
    found = Copies()
    registered = (await MetadataBookieRegistry(cluster.metadata).registered()).all
    for ledger_id in await cluster.bookkeeper.ledger_ids():
        try:
            metadata = (await cluster.bookkeeper.read_ledger(ledger_id)).metadata
        except NoSuchLedgerError:
            continue  # trimmed meanwhile
        names = bookies_of(metadata) & registered if with_lists else ()
        found.count(metadata, registered, {name: await _listed(cluster, name, ledger_id) for name in sorted(names)})
    return found


async def _listed(cluster: ClusterConnections, bookie_id: str, ledger_id: int) -> Sequence[range]:
    bookie = cluster.bookies.get(bookie_id)
    try:
        return await answer_of(lambda done: bookie.list_entries(ledger_id, done=done))
    except NoSuchLedgerError:
        return ()
