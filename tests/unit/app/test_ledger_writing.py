"""A ledger of a backup, written once more: what goes with it, and when its entries are there."""

from __future__ import annotations

import pytest

from geminga.app.storage.ledger_writing import append_all, custom_metadata_of
from geminga.model.errors import StorageError
from geminga.wire.bookkeeper.ledger_metadata import LedgerFragment, LedgerMetadata
from support.worlds.ledgers import Cluster, run_cluster


def test_custom_metadata_go_along_but_for_where_it_lies_and_whose_it_is() -> None:
    said = {"application": b"pulsar", "EnsemblePlacementPolicyConfig": b"{}", "geminga/installation": b"i"}
    metadata = LedgerMetadata(1, 1, 1, (LedgerFragment(0, ("a",)),), custom_metadata=said)
    assert custom_metadata_of(metadata) == {"application": b"pulsar"}


def test_appended_is_what_the_ack_quorum_has_and_an_error_is_told() -> None:
    async def main(cluster: Cluster) -> None:
        handle = await cluster.client().create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
        await append_all(handle, [b"a", b"b"])
        assert handle.last_add_confirmed == 1
        for bookie in cluster.bookies.values():
            bookie.add_error = StorageError("full")
        with pytest.raises(StorageError):
            await append_all(handle, [b"c"])

    run_cluster(main)
