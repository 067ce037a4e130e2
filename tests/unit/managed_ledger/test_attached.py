"""Ledgers that belong to a log beside its list: named before they are used, deleted with the log."""

from __future__ import annotations

import pytest

from geminga.managed_ledger.log import attached
from geminga.managed_ledger.named_ledgers import all_named_ledgers
from geminga.managed_ledger.rules.attached import ATTACHED_PROPERTY, attached_ids, attached_text
from geminga.model.errors import CorruptionError
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import NAME, run_quietly, topic_of


def test_ids_are_texts_and_back() -> None:
    assert attached_ids({}) == attached_ids({ATTACHED_PROPERTY: ""}) == ()
    assert attached_ids({ATTACHED_PROPERTY: attached_text({30, 4})}) == (4, 30)
    for text in ("4,", "x", "-1", "4 5", "٤"):
        with pytest.raises(CorruptionError, match="ledger ids with commas"):
            attached_ids({ATTACHED_PROPERTY: text})


def test_an_attached_ledger_is_named_until_it_is_deleted_and_goes_with_the_log() -> None:
    async def scenario(world: BrokerWorld) -> None:
        topic = await topic_of(world)
        kept = topic.ledger.attached()
        assert isinstance(kept, attached.AttachedLedgers)
        made = [await kept.create(topic.ledger.persistence, {"component": b"test"}) for _ in range(3)]
        ids = [ledger.ledger_id for ledger in made]
        assert [*kept.ids] == ids
        bookkeeper = world.ledgers.bookkeeper
        assert {*ids} <= await all_named_ledgers(world.metadata)
        # One write for all that is said; what is named no longer is deleted.
        await kept.note(ids[1:], {"more": "said"})
        assert [*kept.ids] == ids[1:]
        assert topic.ledger.stored.properties["more"] == "said"
        assert ids[0] not in {*await bookkeeper.ledger_ids()} | await all_named_ledgers(world.metadata)
        version = topic.ledger.stored.version
        await kept.note(ids[1:], {"more": "said"})
        assert topic.ledger.stored.version == version
        await world.restart()
        assert [*(await topic_of(world)).ledger.attached().ids] == ids[1:]
        await world.broker.registry.delete(NAME, force=True)
        assert not {*ids} & {*await world.ledgers.bookkeeper.ledger_ids()}

    run_quietly(scenario)
