"""``geminga bookie format --delete-cookie``: what is asked for in vain. (On a real ZooKeeper: test_bookie_cluster.)"""

from __future__ import annotations

import pytest

from geminga.app.configuration.bookie_config import load_bookie_config
from geminga.app.storage.bookie_cookie_removal import check_not_named, remove_cookie
from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.model.errors import ConfigurationError, DataDirectoryError, MetadataError
from geminga.wire.bookkeeper.bookie_cookie import BookieCookie
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata
from support.worlds.ledgers import Cluster, run_cluster


def test_metadata_store_and_directory_must_be_told() -> None:
    cookie = BookieCookie("b:1", ("/j",), ("/l",))
    with pytest.raises(ConfigurationError, match="expected a metadata store"):
        remove_cookie(load_bookie_config(), cookie)
    with pytest.raises(DataDirectoryError, match="no directory tells the bookie's id"):
        remove_cookie(load_bookie_config(overrides=["metadataServiceUri=zk:127.0.0.1:1"]), None)


def test_cookie_of_a_bookie_that_ledgers_name_stays() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.client()
        store = cluster.stores[0]
        for ledger_id, names in ((3, ("b:1", "b:2")), (4, ("b:2", "b:3"))):
            metadata = LedgerMetadata(2, 2, 2, (LedgerFragment(0, names),), creation_token=1)
            await LedgerStore(store).create(ledger_id, metadata)
        with pytest.raises(DataDirectoryError, match=r"2 ledgers name bookie b:2: .*decommission b:2.*--even-if-named"):
            await check_not_named(store, "b:2")
        with pytest.raises(DataDirectoryError, match="1 ledgers name"):
            await check_not_named(store, "b:1")
        await check_not_named(store, "b")
        await store.put("/ledgers/LAYOUT", b"1\nflat:1", expected_version=None)
        with pytest.raises(MetadataError, match="can not be read now"):
            await check_not_named(store, "b")

    run_cluster(main)
