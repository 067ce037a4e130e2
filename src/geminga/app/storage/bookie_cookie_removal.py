"""The node of a stopped bookie's cookie, removed with its files: the emptied bookie may begin anew under its id.

Not while ledgers name it: who recovers one of them asks the emptied bookie, is told that there is nothing, and may take
what was acknowledged for never written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.app.configuration.bookie_config import BookieProcessConfig
from geminga.app.storage.bookie_cluster import with_store
from geminga.bookie.registration import forget_cookie
from geminga.model.errors import ConfigurationError, DataDirectoryError, MetadataError, NoSuchLedgerError
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie

if TYPE_CHECKING:
    from geminga.metadata import MetadataStore
    from geminga.runtime import Runtime


def remove_cookie(config: BookieProcessConfig, cookie: BookieCookie | None, *, even_if_named: bool = False) -> bool:
    """Remove it where ``config`` has the metadata store; False: there was none.

    Raises ConfigurationError without a metadata store, DataDirectoryError where the store holds another bookie's
    cookie under the id, or ledgers name the bookie and not ``even_if_named``; MetadataError, CorruptionError of a
    ledger that can not be read: it may name the bookie.
    """
    address = config.metadata
    if address is None:
        raise ConfigurationError("--delete-cookie: expected a metadata store (--set metadataServiceUri=zk:host:port)")
    if cookie is None:
        raise DataDirectoryError("--delete-cookie: no directory tells the bookie's id (VERSION)")

    async def removing(store: MetadataStore, _: Runtime) -> bool:
        if not even_if_named:
            await check_not_named(store, cookie.bookie_id)
        return await forget_cookie(store, cookie)

    return with_store(config, address, removing)


async def check_not_named(store: MetadataStore, bookie_id: str) -> None:
    """Raise DataDirectoryError if a ledger names the bookie; MetadataError, CorruptionError."""
    from geminga.bookkeeper.ledger_store import LedgerStore, MetadataLiveLedgers

    ledger_ids = await MetadataLiveLedgers(store).live_ledger_ids()
    if ledger_ids is None:
        raise MetadataError("the list of ledgers can not be read now: whether any names the bookie is not known")
    ledgers, named = LedgerStore(store), 0
    for ledger_id in sorted(ledger_ids):
        try:
            fragments = (await ledgers.read(ledger_id)).metadata.fragments
        except NoSuchLedgerError:
            continue
        named += any(bookie_id in fragment.ensemble for fragment in fragments)
    if named:
        raise DataDirectoryError(
            f"{named} ledgers name bookie {bookie_id}: emptied, it would say of what it had acknowledged that it never "
            f"was. Let others have copies first (geminga autorecovery decommission {bookie_id}); or, if what only "
            "this bookie has may be lost, add --even-if-named"
        )
