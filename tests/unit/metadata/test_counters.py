"""Counters of sequential nodes brought up to a number."""

from __future__ import annotations

import pytest

from geminga.metadata import MetadataFaults, counters
from geminga.metadata.counters import use_up
from geminga.model.errors import MetadataError
from support.worlds.ledgers import Cluster, run_cluster


def test_the_next_child_gets_the_number_and_nothing_is_left_behind():
    async def main(cluster: Cluster):
        store = cluster.store()
        await use_up(store, "/c", 700)
        assert await store.next_sequence("/c") == 700
        await use_up(store, "/c", 12)
        assert await store.next_sequence("/c") == 700
        assert await store.children("/c") == []

    run_cluster(main)


def test_more_numbers_than_are_used_up_at_a_time_are_used_up(monkeypatch):
    monkeypatch.setattr(counters, "AT_ONCE_MAX", 3)

    async def main(cluster: Cluster):
        store = cluster.store()
        await use_up(store, "/c", 250)  # more than there are looks
        assert await store.next_sequence("/c") == 250

    run_cluster(main)


def test_lost_requests_are_made_good():
    async def main(cluster: Cluster):
        store = cluster.store(MetadataFaults(unknown_before_percent=20, unknown_after_percent=20, delay_ms_max=3))
        await use_up(store, "/c", 300)
        assert await store.next_sequence("/c") >= 300

    run_cluster(main)


def test_store_that_never_answers_is_given_up():
    async def main(cluster: Cluster):
        store = cluster.store(MetadataFaults(unknown_before_percent=100))
        with pytest.raises(MetadataError, match="could not be brought to 3"):
            await use_up(store, "/c", 3)

    run_cluster(main)
