"""A backlog analyzed: what is counted, from where, and where counting ends."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from geminga.broker.administration.backlog_analysis import BacklogAnalysis, analyze
from geminga.model.position import EARLIEST, LATEST, Position
from support.house.stepping_clock import SteppingClock
from support.worlds.subscriptions import with_topic


def counts(found: BacklogAnalysis) -> tuple[int, int, int, bool]:
    return found.entries, found.messages, found.markers, found.is_aborted


def test_entries_messages_and_markers_not_acknowledged_are_counted_and_nothing_moves():
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        assert await analyze(subscription) == BacklogAnalysis()
        positions = await topic.publish("a", "b")
        positions += await topic.publish("c", batch=5)
        positions += await topic.publish("commit", marker_type=20)
        positions += await topic.publish("d")
        positions += await topic.append([b"nobody can read this"])
        found = await analyze(subscription)
        assert counts(found) == (4, 8, 2, False)
        assert (found.first, found.last) == (positions[0], positions[-1])
        cursor = subscription.cursor
        cursor.acknowledge([positions[0], positions[4]])
        # A part of a batch leaves the whole to be read.
        cursor.acknowledge([positions[2]], [[0b10111]])
        before = cursor.mark_delete_position, cursor.read_position, cursor.backlog_count
        found = await analyze(subscription)
        assert counts(found) == (2, 6, 2, False)
        assert (found.first, found.last) == (positions[1], positions[-1])
        assert (cursor.mark_delete_position, cursor.read_position, cursor.backlog_count) == before

    with_topic(scenario, entries_per_ledger=2)


@pytest.mark.parametrize("index", range(7))
def test_it_begins_where_it_is_told_and_not_before_what_is_left_to_read(index):
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        positions = await topic.publish(*(f"m{number}" for number in range(7)))
        subscription.cursor.acknowledge_cumulative(positions[2])
        found = await analyze(subscription, positions[index])
        assert counts(found) == (7 - max(index, 3), 7 - max(index, 3), 0, False)
        assert (await analyze(subscription, EARLIEST)).entries == 4
        assert (await analyze(subscription, Position(0, 5))).entries == 4
        assert await analyze(subscription, LATEST) == BacklogAnalysis()
        assert await analyze(subscription, Position(positions[-1].ledger_id, 99)) == BacklogAnalysis()

    with_topic(scenario, entries_per_ledger=3)


@pytest.mark.parametrize(("most", "is_aborted"), [(0, True), (1, True), (6, True), (7, False), (8, False)])
def test_it_ends_after_so_many_entries_and_says_so_where_more_are_left(most, is_aborted):
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        positions = await topic.publish(*(f"m{number}" for number in range(10)))
        subscription.cursor.acknowledge([positions[1], positions[3], positions[8]])
        found = await analyze(subscription)
        assert counts(found) == (min(most, 7), min(most, 7), 0, is_aborted)

    with_topic(scenario, backlog_scan_entries_max=most, dispatcher_max_read_batch_size=2)


def test_it_ends_after_so_long_and_others_are_served_meanwhile():
    async def scenario(topic):
        subscription = await topic.create_subscription("sub")
        await topic.publish(*(f"m{number}" for number in range(100)))
        runtime = topic.services.runtime
        # A second ends with the fifth look after the first one.
        topic.services.runtime = dataclasses.replace(runtime, clock=SteppingClock(runtime.clock, 0.22))
        turns = 0

        def take_a_turn():
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(take_a_turn)

        take_a_turn()
        found = await analyze(subscription)
        assert counts(found) == (40, 40, 0, True)
        assert turns > 4
        topic.services.runtime = runtime
        assert counts(await analyze(subscription)) == (100, 100, 0, False)

    with_topic(scenario, backlog_scan_ms_max=1000, dispatcher_max_read_batch_size=10)
