"""Ledgers that are being made are counted while they are, of each managed ledger."""

from __future__ import annotations

import asyncio

import pytest

from geminga.bookkeeper import BookKeeper
from geminga.managed_ledger import ManagedLedgerFactory
from geminga.metadata import MetadataFaults
from geminga.model.errors import NotEnoughBookiesError
from support.worlds.ledgers import Cluster, run_cluster, turn

NAME = "public/default/persistent/t"


def test_a_ledger_is_counted_from_its_making_to_its_end_or_failure() -> None:
    async def main(cluster: Cluster) -> None:
        slow = cluster.store(MetadataFaults(delay_ms_max=20))
        factory = ManagedLedgerFactory(
            cluster.runtime, cluster.store(), BookKeeper(cluster.runtime, slow, cluster.pool, None)
        )
        await factory.open(NAME)
        services = factory._services
        for cursor, counted in ((None, (1, 0)), ("sub", (0, 1))):
            making = asyncio.ensure_future(services.create_ledger(NAME, services.persistence, cursor_name=cursor))
            await turn(2)
            assert factory.ledgers_being_made(NAME) == counted
            assert factory.ledgers_being_made("another") == (0, 0)
            await making
            assert factory.ledgers_being_made(NAME) == (0, 0)
        cluster.pool.unavailable.update(cluster.bookies)
        with pytest.raises(NotEnoughBookiesError):
            await services.create_ledger(NAME, services.persistence)
        assert not factory._being_made, "names of topics that are gone would stay"
        await factory.close()

    run_cluster(main)
