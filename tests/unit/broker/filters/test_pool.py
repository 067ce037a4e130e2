"""Processes of entry filters: few, started when they are needed, and ended when they take too long."""

from __future__ import annotations

import pytest

from geminga import sim
from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.filters import pool as pools
from geminga.broker.filters.pool import FilterPool
from geminga.entry_filters import ACCEPT, FilterTarget
from geminga.entry_filters.pipe import AskedEntry, FilterBatch, framed
from geminga.model.errors import EntryFilterError
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.filter_processes import SimulatedProcesses
from support.worlds.subscriptions import settle

METADATA = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1).SerializeToString()


class Whole:
    def broke(self, what, error):
        raise error


class Asker:
    def __init__(self, pool):
        self.pool = pool
        self.answers = []

    def ask(self, name="f", size_bytes=0):
        batch = FilterBatch((name,), FilterTarget("t", "s", "Shared"), [AskedEntry(1, 1, METADATA)], size_bytes)
        return self.pool.ask(batch, self.answers.append)

    @property
    def told(self):
        return [str(each) if isinstance(each, EntryFilterError) else each for each in self.answers]


def run(scenario, **config):
    async def on_node(node):
        processes = SimulatedProcesses({"f": lambda _: ACCEPT, "g": lambda _: ACCEPT})
        pool = FilterPool(BrokerConfig(**config), processes, node.runtime.clock.monotonic, Whole())
        await scenario(Asker(pool), pool, processes)
        await pool.close()
        assert processes.running == []

    async def main(world):
        await world.node("broker").run(on_node)

    sim.run(main, 0)


def test_processes_are_started_with_the_batches_and_not_more_than_allowed():
    async def scenario(asker, pool, processes):
        assert pool.process_count == 0
        processes.delay_s = 0.1
        for _ in range(5):
            asker.ask()
        await settle(0.05)
        assert pool.process_count == len(processes.running) == 2
        assert pool.waiting_count == 3
        await settle(1)
        assert asker.answers == [b"\x00"] * 5

    run(scenario)


def test_one_batch_starts_one_process_and_the_next_uses_it():
    async def scenario(asker, pool, processes):
        for _ in range(3):
            asker.ask()
            await settle()
        assert (pool.starts, pool.batches) == (1, 3)

    run(scenario)


def test_idle_processes_are_ended():
    async def scenario(asker, pool, processes):
        asker.ask()
        await settle(pools.IDLE_S - 1)
        assert pool.process_count == 1
        await settle(2)
        assert (pool.process_count, processes.running, pool.cut_off) == (0, [], 0)
        asker.ask()
        await settle()
        assert len(asker.answers) == 2

    run(scenario)


def test_a_filter_that_stalls_is_ended_and_holds_nobody_with_other_filters():
    async def scenario(asker, pool, processes):
        processes.stalled.add("f")
        other = Asker(pool)
        asker.ask()
        other.ask("g")
        await settle(0.1)
        assert other.answers == [b"\x00"]
        await settle(1)
        assert asker.told == ["they took longer than 1000 ms for a batch"]
        assert pool.cut_off == 1
        # From then on whoever names it is told at once, and costs no process anything.
        later = Asker(pool)
        later.ask()
        await settle()
        assert len(later.answers) == 1
        assert pool.cut_off == 1

    run(scenario)


def test_all_who_wait_for_the_filters_that_stall_are_told_with_the_first():
    async def scenario(asker, pool, processes):
        processes.stalled.add("f")
        for _ in range(4):
            asker.ask()
        other = Asker(pool)
        other.ask("g")
        await settle(1.1)
        assert len(asker.answers) == 4
        assert other.answers == [b"\x00"]
        assert pool.cut_off == 1

    run(scenario, entry_filter_processes=1)


def test_the_time_to_load_is_not_the_budget():
    async def scenario(asker, pool, processes):
        processes.silent = True
        asker.ask()
        await settle(29)
        assert asker.answers == []
        await settle(2)
        assert asker.told == ["they took longer than 30 s for loading"]

    run(scenario)


def test_a_process_that_can_not_be_started_is_told():
    async def scenario(asker, pool, processes):
        processes.refusal = OSError(12, "Cannot allocate memory")
        asker.ask()
        await settle()
        assert asker.told == ["their process can not be started (Cannot allocate memory)"]
        assert pool.process_count == 0

    run(scenario)


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (framed(b"V\x00\x00\x00"), "their process wrote 4 bytes that are no answer about 1 entries"),
        (b"\xff\xff\xff\xff", "their process wrote a frame of 4294967295 bytes, at most 1048576 are taken"),
        (framed(b"R"), "their process wrote that it is ready, twice"),
    ],
)
def test_a_process_that_says_strange_things_is_ended(frame, told):
    async def scenario(asker, pool, processes):
        processes.stalled.add("f")
        asker.ask()
        await settle(0.1)
        processes.running[0].say(frame)
        await settle()
        assert asker.told == [told]

    run(scenario)


def test_nobody_hears_of_a_batch_that_was_called_off():
    async def scenario(asker, pool, processes):
        processes.delay_s = 0.1
        call_off = asker.ask()
        waits = asker.ask()
        await settle(0.05)
        waits()
        call_off()
        await settle(1)
        assert asker.answers == []
        assert pool.waiting_count == 0

    run(scenario, entry_filter_processes=1)


def test_a_line_that_is_too_long_is_refused(monkeypatch):
    monkeypatch.setattr(pools, "QUEUE_MAX", 2)

    async def scenario(asker, pool, processes):
        processes.stalled.add("f")
        asker.ask()
        await settle(0.1)
        for _ in range(3):
            asker.ask("g")
        await settle()
        assert asker.told == ["2 batches wait for entry filters"]

    run(scenario, entry_filter_processes=1)


def test_so_many_bytes_are_held(monkeypatch):
    monkeypatch.setattr(pools, "QUEUE_BYTES_MAX", 100)

    async def scenario(asker, pool, processes):
        processes.delay_s = 0.1
        asker.ask(size_bytes=500)  # more than that alone: it is asked all the same
        asker.ask(size_bytes=1)
        await settle()
        assert asker.told == ["500 bytes of entries wait for entry filters"]
        await settle(1)
        assert pool.held_bytes == 0
        call_off = asker.ask(size_bytes=60)
        asker.ask(size_bytes=60)
        call_off()
        assert pool.held_bytes == 0
        asker.ask(size_bytes=60)
        await settle(1)
        assert pool.held_bytes == 0
        assert len(asker.answers) == 4

    run(scenario)


def test_closing_tells_who_waits():
    async def scenario(asker, pool, processes):
        processes.stalled.add("f")
        asker.ask()
        asker.ask("g")
        await settle(0.1)
        await pool.close()
        asker.ask()
        await settle()
        assert asker.told == ["the broker is closing"] * 3

    run(scenario, entry_filter_processes=1)
