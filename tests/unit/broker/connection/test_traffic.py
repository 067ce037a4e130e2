"""What is written, and what is published and not answered, each with its transport, its bounds and its gate alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

from geminga.broker.connection.back_pressure import WRITE_BUFFER_COUNTED_BYTES, WRITE_BUFFER_STOP_READING_BYTES
from geminga.broker.connection.core.read_gate import PauseReason, ReadGate
from geminga.broker.connection.output_budget import OutputBudget
from geminga.broker.connection.publish_buffer import PublishBuffer
from geminga.broker.connection.traffic import Output, Publishes
from geminga.runtime import next_turn


class Writing:
    """An output with a transport that keeps what is written."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.budget = OutputBudget(loop.time, 1 << 30)
        self.gate = ReadGate(lambda reasons: None)
        self.output = Output(self.budget, self.gate, loop)
        self.written: list[bytes] = []
        self.buffered_bytes = 0
        self.output.attach(self, lambda reason: None)

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.written.append(b"".join(parts))

    def get_write_buffer_size(self) -> int:
        return self.buffered_bytes

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        assert low < high


def run(scenario: Callable[[Writing], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Writing())

    asyncio.run(main())


def test_what_is_given_in_one_turn_is_one_write_and_what_must_go_now_takes_it_along() -> None:
    async def scenario(one: Writing) -> None:
        one.output.write_soon(b"1")
        one.output.write_soon(b"2")
        assert one.written == []
        await next_turn()
        assert one.written == [b"12"]
        one.output.write_soon(b"3")
        one.output.write(b"4")
        one.output.write_soon(b"5")
        one.output.write_many([b"6", b"7"])
        await next_turn()
        assert one.written == [b"12", b"34", b"567"]

    run(scenario)


def test_end_writes_what_is_held_and_nothing_more_unless_it_is_cut_off() -> None:
    async def scenario(one: Writing) -> None:
        one.output.write_soon(b"1")
        one.output.finish()
        for write in (one.output.write, one.output.write_soon, lambda data: one.output.write_many([data])):
            write(b"late")
        await next_turn()
        assert one.written == [b"1"]
        other = Writing()
        other.output.write_soon(b"1")
        other.output.detach()
        called: list[str] = []
        other.output.on_writable(lambda: called.append("to write to nobody"))
        await next_turn()
        assert (other.written, called) == ([], [])
        assert other.output.unsent_bytes == 0

    run(scenario)


def test_client_that_takes_nothing_is_counted_then_not_read_until_it_takes_it() -> None:
    async def scenario(one: Writing) -> None:
        one.buffered_bytes = WRITE_BUFFER_COUNTED_BYTES
        one.output.write(b"1")
        assert one.budget.size_bytes == 0
        one.buffered_bytes = WRITE_BUFFER_STOP_READING_BYTES
        one.output.write(b"1")
        assert (one.budget.size_bytes, one.gate.reasons) == (WRITE_BUFFER_STOP_READING_BYTES, PauseReason.NONE)
        one.buffered_bytes += 1
        one.output.write(b"1")
        assert one.gate.reasons == PauseReason.WRITE_BUFFER
        one.output.was_taken()
        assert (one.budget.size_bytes, one.gate.reasons) == (0, PauseReason.NONE)

    run(scenario)


def test_who_waits_is_told_once_when_it_is_writable_and_never_when_it_has_ended() -> None:
    async def scenario(one: Writing) -> None:
        called: list[str] = []
        one.output.on_writable(lambda: called.append("at once"))
        await next_turn()
        one.output.is_over_mark()
        one.output.on_writable(lambda: called.append("later"))
        await next_turn()
        assert called == ["at once"]
        one.output.was_taken()
        one.output.was_taken()
        assert called == ["at once", "later"]
        one.output.is_over_mark()
        one.output.on_writable(lambda: called.append("never"))
        one.output.end()
        one.output.was_taken()
        one.output.on_writable(lambda: called.append("never"))
        await next_turn()
        assert called == ["at once", "later"]

    run(scenario)


class Rate:
    """A publish rate."""

    def __init__(self, entries: int = 0) -> None:
        self.entries = entries
        self.forgotten: list[Publishes] = []

    def forget(self, publishes: Publishes) -> None:
        self.forgotten.append(publishes)

    def entries_left(self) -> int:
        return self.entries


def publishes_of(most: int, bytes_max: int) -> tuple[Publishes, ReadGate, PublishBuffer]:
    gate, buffer = ReadGate(lambda reasons: None), PublishBuffer(bytes_max)
    return Publishes(SimpleNamespace(pending_publishes_max=most), buffer, gate), gate, buffer


def test_publishes_beyond_their_number_hold_it_until_half_are_answered() -> None:
    publishes, gate, _ = publishes_of(10, 1000)
    publishes.publish_started(10, 0)
    assert gate.reasons == PauseReason.NONE
    publishes.publish_started(1, 0)
    publishes.publish_finished(5, 0)
    assert gate.reasons == PauseReason.PENDING_PUBLISHES
    publishes.publish_finished(1, 0)
    assert (gate.reasons, publishes.pending) == (PauseReason.NONE, 5)


def test_publishes_beyond_the_buffer_hold_it_and_who_is_over_is_not_told() -> None:
    publishes, gate, buffer = publishes_of(10, 1000)
    publishes.publish_started(1, 1001)
    assert gate.reasons == PauseReason.PUBLISH_BUFFER
    assert list(buffer.held) == [publishes]
    publishes.end()
    assert not buffer.held
    publishes.publish_finished(1, 1001)  # what was under way still ends
    assert (publishes.pending, buffer.size_bytes) == (0, 0)


def test_connection_is_held_until_the_last_of_its_rates_has_room() -> None:
    publishes, gate, _ = publishes_of(10, 1000)
    one, other = Rate(), Rate()
    publishes.hold_for_rate(one)
    publishes.hold_for_rate(other)
    publishes.free_of_rate(one)
    assert gate.reasons == PauseReason.PUBLISH_RATE
    publishes.free_of_rate(other)
    assert gate.reasons == PauseReason.NONE
    publishes.hold_for_rate(one)
    publishes.end()
    assert (one.forgotten, other.forgotten) == ([publishes], [])


def test_turn_is_as_long_as_the_tightest_rate_has_room_and_without_rates_they_are_not_asked_again() -> None:
    publishes, _, _ = publishes_of(10, 1000)
    producers = [
        SimpleNamespace(topic=SimpleNamespace(throttles=SimpleNamespace(publish=rates)))
        for rates in ([Rate(7), Rate(5)], [])
    ]
    publishes.publish_is_rated()
    assert publishes.entries_left(producers, 100) == 5
    assert publishes.is_rated
    assert publishes.entries_left(producers[1:], 100) == 100
    assert not publishes.is_rated
