"""Ack sets that are longer than their batch."""

from __future__ import annotations

import pytest

from geminga.broker.core.ack_set import WORDS_MAX, WORDS_SHORT
from geminga.broker.subscription import seek
from geminga.broker.subscription.ack_sets import fitting
from geminga.model import Position
from geminga.model.errors import DiskIOError, NotAllowedError
from support.worlds.subscriptions import settle, with_topic

LONG = [-1] * (WORDS_SHORT + 1)


def test_long_sets_are_cut_to_the_batch_of_their_entry():
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        [batch] = await topic.publish("abc", batch=3)
        [single] = await topic.publish("d")
        assert await fitting(subscription, batch, LONG) == (True, (7,))
        assert await fitting(subscription, single, LONG) == (True, (1,))
        assert await fitting(subscription, batch, LONG[:-1]) == (True, tuple(LONG[:-1]))
        assert await fitting(subscription, batch, None) == (True, None)
        assert await fitting(subscription, Position(99, 9), LONG) == (False, None)
        with pytest.raises(NotAllowedError):
            await fitting(subscription, batch, [1] * (WORDS_MAX + 1))
        topic.bookie.read_error = DiskIOError("broken")
        with pytest.raises(DiskIOError):
            await fitting(subscription, batch, LONG)

    with_topic(scenario, cache_size_mb=0)


def test_seek_keeps_no_more_of_an_ack_set_than_the_batch_has():
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        [batch] = await topic.publish("abc", batch=3)
        await topic.publish("d")
        await seek.seek(subscription, batch, [4, *LONG])
        assert list(subscription.cursor.state.ack_set(batch)) == [4]
        await settle()

    with_topic(scenario)
