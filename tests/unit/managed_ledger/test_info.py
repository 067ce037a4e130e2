"""What the metadata store has of a managed ledger, open or not."""

from __future__ import annotations

from geminga.managed_ledger.info import read_info
from geminga.model.position import EARLIEST
from support.worlds.ledger_world import NAME


def test_info_is_what_is_stored(in_world):
    async def scenario(w):
        assert await read_info(w.factory.metadata, NAME) is None
        ml = await w.open()
        await ml.open_cursor("s", initial=EARLIEST)
        await w.fill(ml, 12)
        for is_open in (True, False):
            info = await read_info(w.factory.metadata, NAME)
            assert info is not None
            assert [ledger.ledger_id for ledger in info.record.ledgers] == [each.ledger_id for each in ml.ledgers.infos]
            assert [ledger.closed_ms > 0 for ledger in info.record.ledgers] == [True, not is_open]
            assert info.stat.created_ms == ml.stored.created_ms
            assert list(info.cursors) == ["s"]
            await ml.close()

    in_world(scenario)
