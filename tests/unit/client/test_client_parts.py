"""The parts that the client joins, each by itself: what is open, who waits, names, what becomes of an entry."""

from __future__ import annotations

import asyncio

import pytest

import geminga.client as gc
from geminga.client._api.lifetime import Lifetime
from geminga.client._api.place import Place
from geminga.client._api.topic_names import parse_topic
from geminga.client._consuming.arrivals import Arrivals
from geminga.client._consuming.intake import Intake
from geminga.client._consuming.last_received import LastReceived
from geminga.client._consuming.subscription_consumer import SubscriptionConsumer
from geminga.client._producing.sending import Sending
from geminga.client._transport.cluster import Cluster
from geminga.client.consumer_rules.discards import Discard, Fate, fate
from geminga.client.producer_rules.producer_state import OPEN, State
from geminga.runtime import next_turn
from support.worlds.client_world import BrokerOnNode
from support.worlds.scripted_broker import run_with_broker


class Open:
    async def close(self) -> None: ...


def test_what_is_open_is_remembered_in_order_until_it_is_forgotten() -> None:
    async def scenario() -> None:
        lifetime = Lifetime(Place())
        first, second, producer = Open(), Open(), Open()
        lifetime.remember(first)
        lifetime.remember(second)
        lifetime.remember_producer(producer)
        assert (list(lifetime.others), list(lifetime.producers)) == ([first, second], [producer])
        lifetime.forget(first)
        lifetime.forget(first)
        lifetime.forget_producer(producer)
        assert (list(lifetime.others), list(lifetime.producers)) == ([second], [])
        lifetime.check_usable()
        lifetime.is_closed = True
        with pytest.raises(gc.AlreadyClosed):
            lifetime.check_usable()

    asyncio.run(scenario())


def test_topic_names_are_made_whole_or_refused_by_the_clients_errors() -> None:
    assert str(parse_topic("t")) == "persistent://public/default/t"
    with pytest.raises(gc.InvalidTopicName):
        parse_topic("a/b")
    with pytest.raises(gc.InvalidConfiguration):
        parse_topic(5)  # type: ignore[arg-type]


def test_who_waits_is_woken_in_order_and_one_that_is_cut_off_wakes_the_next() -> None:
    async def scenario() -> None:
        arrivals = Arrivals(asyncio.get_running_loop())
        waiting = [asyncio.ensure_future(arrivals.wait()) for _ in range(4)]
        watching = [asyncio.ensure_future(arrivals.watch()) for _ in range(2)]
        await next_turn()
        assert arrivals.are_awaited
        arrivals.arrived(2)
        waiting[1].cancel()  # its turn had come
        await next_turn()
        await next_turn()
        assert [one.done() for one in waiting] == [True, True, True, False]
        assert waiting[1].cancelled()
        assert all(one.done() for one in watching), "whoever watches hears of everything"
        waiting[3].cancel()  # its turn had not
        await next_turn()
        assert not arrivals.are_awaited
        arrivals.wake_all()

    asyncio.run(scenario())


def test_a_client_numbers_its_consumers_and_producers_over_all_their_topics() -> None:
    async def scenario(client: gc.Client, broker: BrokerOnNode) -> None:
        assert isinstance(client.cluster, Cluster)
        producers = [await client.create_producer(topic) for topic in ("a", "b")]
        consumers = [await client.subscribe(["a", "b"], name) for name in ("s", "t")]
        assert all(isinstance(one, Sending) for one in producers)
        assert len({one._producer_id for one in producers}) == 2
        assert all(isinstance(one, SubscriptionConsumer) for one in consumers)
        topics = [topic for one in consumers for topic in one.held.all()]
        assert len({topic.consumer_id for topic in topics}) == 4
        assert all(
            isinstance(topic._intake, Intake) and isinstance(topic.last_received, LastReceived) for topic in topics
        )

    run_with_broker(scenario)


@pytest.mark.parametrize("why", Discard)
@pytest.mark.parametrize("was_damaged", [False, True])
@pytest.mark.parametrize("drops", [False, True])
def test_nothing_is_acknowledged_that_may_still_be_read(why: Discard, was_damaged: bool, drops: bool) -> None:
    then = fate(why, was_damaged=was_damaged, drops_undecryptable=drops)
    comes_again = why in (Discard.OLD_EPOCH, Discard.CHUNK) or (why is Discard.CHECKSUM and not was_damaged)
    # Others may decrypt it, or have room for it.
    is_for_others = why is Discard.TOO_LARGE or (why is Discard.DECRYPTION and not drops)
    assert (then in (Fate.ACKNOWLEDGE, Fate.REFUSE)) == (not comes_again and not is_for_others)
    assert (then is Fate.REFUSE) == (then is not Fate.ACKNOWLEDGE and not comes_again and not is_for_others)
    assert (then is Fate.KEEP) == is_for_others
    assert (then is Fate.ACKNOWLEDGE) == (why is Discard.DECRYPTION and drops)


def test_messages_may_be_sent_until_the_end_begins() -> None:
    assert set(State) - set(OPEN) == {State.CLOSING, State.CLOSED, State.FAILED}
