"""Making ledgers: what is written down of each."""

from __future__ import annotations

from geminga.managed_ledger import Persistence
from geminga.managed_ledger.shared.services import StorageServices


class Ledgers:
    """Remembers what it was asked for."""

    def __init__(self):
        self.asked = []

    async def create_ledger(self, **what):
        self.asked.append(what)


def test_ledgers_say_whose_they_are(in_world):
    async def scenario(w):
        ledgers, of = Ledgers(), w.factory._services
        services = StorageServices(of.clock, of.metadata, ledgers, of.config, of.rollover, Persistence(1, 1, 1, 1.0))
        await services.create_ledger("a/b/persistent/c", Persistence(3, 2, 1, 0), newer_than=41)
        await services.create_ledger("a/b/persistent/c", services.persistence, cursor_name="s")
        entries, cursor = ledgers.asked
        assert (entries["ensemble_size"], entries["write_quorum"], entries["ack_quorum"]) == (3, 2, 1)
        assert entries["newer_than"] == 41
        base = {
            "application": b"pulsar",
            "component": b"managed-ledger",
            "pulsar/managed-ledger": b"a/b/persistent/c",
        }
        assert entries["custom_metadata"] == base
        assert cursor["custom_metadata"] == {**base, "pulsar/cursor": b"s"}
        assert (cursor["ensemble_size"], cursor["newer_than"]) == (1, -1)

    in_world(scenario)
