"""A bookie behind a network that is lost, silent, full or not there: one answer a call, and none is an absence."""

from __future__ import annotations

import asyncio
import random  # noqa: TID251  (seeded)
from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any

import pytest

from geminga import sim
from geminga.bookie.serving import BookieServer
from geminga.bookkeeper import MemoryBookie
from geminga.bookkeeper.remote import RemoteBookie, frame_bytes_for, kept_connection, reads, remote_bookie
from geminga.bookkeeper.remote.add_channel import AddChannel
from geminga.bookkeeper.remote.channel import Channel
from geminga.bookkeeper.remote.kept_connection import KeptConnection
from geminga.model.bookie_port import Availability, LacResult
from geminga.model.errors import DiskFullError, NoSuchEntryError, StorageError
from geminga.runtime.log import RequestTrace, trace_id
from geminga.sim import SimNode, SimWorld
from geminga.wire.bookkeeper.codes import FRAME_BYTES_MAX
from support.house.weekly_sample import sampled
from support.processes.old_bookie import OldBookieServer
from support.worlds.bookies import KEY, Calls, InNode, entries_of, sized_entries

PORT = 3181


class Place:
    """A bookie in memory on one node, its client on another."""

    def __init__(self, world: SimWorld) -> None:
        self.world = world
        self.bookie = MemoryBookie()
        self.server, self.client = world.node("bookie"), world.node("client")
        self.client.start()
        self.seen: list[Availability] = []
        self.remote: RemoteBookie
        self.calls: Calls

    async def serve_old(self, _: SimNode) -> OldBookieServer:
        return await OldBookieServer.listen(self.server.runtime, self.bookie, "0.0.0.0", PORT)

    async def serve(self, _: SimNode) -> BookieServer:
        return await BookieServer.listen(self.server.runtime, self.bookie, "0.0.0.0", PORT)

    async def connect(self) -> None:
        async def make(node: SimNode) -> RemoteBookie:
            return RemoteBookie(node.runtime, "b", "bookie", PORT)

        self.remote = await self.client.run(make)
        self.remote.watch(self.seen.append)
        self.calls = InNode(self.remote, self.client)


def run(main: Callable[[Place], Awaitable[None]], *, serving: bool = True) -> None:
    async def scenario(world: SimWorld) -> None:
        place = Place(world)
        if serving:
            await place.server.run(place.serve)
        else:
            place.server.start()
        await place.connect()
        await main(place)

    sim.run(scenario, seed=11)


def test_broker_of_small_messages_reads_several_at_once_and_larger_ones_from_before():
    async def main(place: Place) -> None:
        sizes = [900_000, 1_000_000, 1_000_000, 3_000_000]
        assert await place.calls.add(3, 0, sized_entries(3, sizes)) is None

        async def make(node: SimNode) -> RemoteBookie:
            return RemoteBookie(node.runtime, "b", "bookie", PORT, frame_bytes_max=frame_bytes_for(1024 * 1024))

        other = await place.client.run(make)
        found = await InNode(other, place.client).read(3, 0, 1, 2, 3)
        assert [len(entry) for entry in found] == [len(entry) for entry in sized_entries(3, sizes)]
        assert not other._batch_reads.are_refused

    run(main)
    assert frame_bytes_for(20 * 1024 * 1024) > 20 * 1024 * 1024


def is_no_absence(error: Any) -> bool:
    return type(error) is StorageError


def test_nobody_listens():
    async def main(place: Place) -> None:
        assert is_no_absence(await place.calls.add(3, 0, entries_of(3, 0, 1)))
        assert is_no_absence((await place.calls.read(3, 0))[0])
        assert is_no_absence(await place.calls.fence(3))
        assert is_no_absence(await place.calls.lac(3))
        assert place.remote.availability is Availability.DOWN
        await place.server.run(place.serve)
        # It looks again by itself.
        await place.world.sleep(kept_connection.RECONNECT_S_MAX + 1)
        assert place.seen == [Availability.DOWN, Availability.WRITABLE]
        assert await place.calls.add(3, 0, entries_of(3, 0, 1)) is None

    run(main, serving=False)


def test_bookie_that_takes_no_connection_in_time_is_told_of_with_the_time():
    async def main(place: Place) -> None:
        place.world.network.partition(place.server, place.client)
        assert "did not answer within 5 s" in str(await place.calls.fence(3))
        await place.world.sleep(1)
        assert str(await place.calls.fence(3)).endswith("not reachable at bookie:3181: no connection within 10 s")

    run(main)


def test_bookie_that_dies_with_requests_under_way():
    async def main(place: Place) -> None:
        await place.calls.add(3, 0, entries_of(3, 0, 1))
        place.bookie.holds_replies = True
        pending = asyncio.gather(
            place.calls.add_each(3, range(1, 4), entries_of(3, 1, 3)), place.calls.read(3, 0, 1), place.calls.lac(3)
        )
        while len(place.bookie.entry_ids(3)) < 4:
            await place.world.sleep(0.01)
        place.world.crash(place.server)
        added, read, lac = await pending
        assert [is_no_absence(error) for error in added.values()] == [True] * 3
        assert [is_no_absence(error) for error in read] == [True] * 2
        assert is_no_absence(lac)
        assert place.seen == [Availability.DOWN]
        place.bookie.holds_replies = False
        await place.world.restart(place.server, place.serve)
        await place.world.sleep(kept_connection.RECONNECT_S_MAX + 1)
        assert place.seen == [Availability.DOWN, Availability.WRITABLE]
        assert isinstance(await place.calls.lac(3), LacResult)

    run(main)


def test_answer_that_comes_too_late_is_passed_over():
    async def main(place: Place) -> None:
        loop = asyncio.get_running_loop()
        place.bookie.holds_replies = True
        start = loop.time()
        error = await place.calls.add(3, 0, entries_of(3, 0, 1))
        assert is_no_absence(error)
        assert "did not answer" in str(error)
        assert kept_connection.ANSWER_TIMEOUT_S <= loop.time() - start < kept_connection.ANSWER_TIMEOUT_S + 1
        place.bookie.release()
        assert await place.calls.add(3, 1, entries_of(3, 1, 1)) is None
        assert place.seen == []

    run(main)


@pytest.mark.parametrize("has_batches", [True, False])
def test_a_read_of_many_entries_from_a_bookie_that_hangs_ends_in_the_time_of_one(has_batches: bool):
    """Whoever reads goes on with another copy, and counts the call until then."""

    async def main(place: Place) -> None:
        await place.calls.add(3, 0, entries_of(3, 0, 1))
        place.remote._batch_reads.are_refused = not has_batches
        place.bookie.holds_replies = True
        start = asyncio.get_running_loop().time()
        found = await place.calls.read(3, *range(200))
        assert len(found) == 200
        assert all(is_no_absence(one) for one in found)
        assert asyncio.get_running_loop().time() - start < 2 * kept_connection.ANSWER_TIMEOUT_S
        # What it answers again, it is asked for.
        place.bookie.release()
        found = await place.calls.read(3, *range(3))
        assert [isinstance(one, StorageError) for one in found] == [False, True, True]
        assert isinstance(found[1], NoSuchEntryError)

    run(main)


def test_bookie_that_pauses_answers_some_of_a_call():
    async def main(place: Place) -> None:
        entries = entries_of(3, 0, 4)
        place.bookie.answers_in_groups_of = 1
        assert await place.calls.add_each(3, range(2), entries[:2]) == {0: None, 1: None}
        place.bookie.holds_replies = True
        adding = asyncio.ensure_future(place.calls.add_each(3, range(4), entries))
        while len(place.bookie.entry_ids(3)) < 4:
            await place.world.sleep(0.01)
        for reply in place.bookie._held[:2]:
            reply()
        del place.bookie._held[:2]
        answers = await adding
        assert [answers[i] for i in (0, 1)] == [None, None]
        assert is_no_absence(answers[2])
        assert is_no_absence(answers[3])

    run(main)


def test_read_only_bookie_is_left_alone_for_a_while():
    async def main(place: Place) -> None:
        place.bookie.add_error = DiskFullError("full")
        assert isinstance(await place.calls.add(3, 0, entries_of(3, 0, 1)), DiskFullError)
        assert not place.remote.is_writable
        assert place.seen == [Availability.READ_ONLY]
        await place.world.sleep(remote_bookie.READ_ONLY_S + 1)
        assert place.seen == [Availability.READ_ONLY, Availability.WRITABLE]

    run(main)


@pytest.mark.parametrize("key", [KEY, b"a key that version 2 has no room for"])
def test_too_much_without_an_answer_is_refused(monkeypatch, key: bytes):
    monkeypatch.setattr(kept_connection, "OUTSTANDING_BYTES_MAX", 10_000)

    async def main(place: Place) -> None:
        place.bookie.holds_replies = True
        entries = entries_of(3, 0, 400)
        adding = [
            asyncio.ensure_future(place.calls.add(3, first, entries[first : first + 10], key=key))
            for first in range(0, 400, 10)
        ]
        while not place.bookie.entry_ids(3):
            await place.world.sleep(0.01)
        place.bookie.release()
        answers = await asyncio.gather(*adding)
        refused = [number for number, error in enumerate(answers) if error is not None]
        assert 0 < len(refused) < 40
        assert refused == list(range(refused[0], 40))
        assert is_no_absence(answers[39])
        assert await place.calls.add(3, 0, entries[:1], key=key) is None

    run(main)


def test_entry_that_is_sent_again_while_it_is_under_way_has_an_answer_of_its_own():
    async def main(place: Place) -> None:
        place.bookie.holds_replies = True
        entries = entries_of(3, 0, 4)
        first = asyncio.ensure_future(place.calls.add_each(3, range(4), entries))
        while len(place.bookie.entry_ids(3)) < 4:
            await place.world.sleep(0.01)
        again = asyncio.ensure_future(place.calls.add_each(3, range(1, 3), entries[1:3]))
        recovery = asyncio.ensure_future(place.calls.add_each(3, range(4), entries, recovery=True))
        while len(place.bookie._held) < 3:
            await place.world.sleep(0.01)
        # The later ones are answered first, and the first one is not.
        for reply in place.bookie._held[:0:-1]:
            reply()
        del place.bookie._held[1:]
        assert await again == dict.fromkeys(range(1, 3))
        assert await recovery == dict.fromkeys(range(4))
        assert not first.done()
        place.bookie.release()
        assert await first == dict.fromkeys(range(4))

    run(main)


def test_late_answer_is_nobodys_and_the_entry_can_be_sent_again():
    async def main(place: Place) -> None:
        place.bookie.holds_replies = True
        entries = entries_of(3, 0, 3)
        assert all(map(is_no_absence, (await place.calls.add_each(3, range(3), entries)).values()))
        again = asyncio.ensure_future(place.calls.add_each(3, range(4), entries_of(3, 0, 4)))
        while len(place.bookie._held) < 2:
            await place.world.sleep(0.01)
        place.bookie._held.pop(0)()
        await place.world.sleep(0.1)
        assert not again.done()  # entry 3 has no answer
        place.bookie.release()
        assert await again == dict.fromkeys(range(4))
        assert place.seen == []

    run(main)


@pytest.mark.parametrize("kind", [AddChannel, Channel])
def test_connection_that_is_lost_by_itself_is_seen_and_made_again(kind: type[KeptConnection]):
    async def main(place: Place) -> None:
        assert await place.calls.add(3, 0, entries_of(3, 0, 1)) is None
        assert await place.calls.read(3, 0) == entries_of(3, 0, 1)
        place.bookie.holds_replies = True
        adding = asyncio.ensure_future(place.calls.add(3, 1, entries_of(3, 1, 1)))
        fencing = asyncio.ensure_future(place.calls.fence(4))
        while len(place.bookie._held) < 2:
            await place.world.sleep(0.01)
        lost = next(each for each in (place.remote._adds, place.remote._channel) if type(each) is kind)
        assert lost._link is not None
        lost._link._transport.abort()
        # What was asked on the other one is answered.
        failed, other = (adding, fencing) if kind is AddChannel else (fencing, adding)
        assert is_no_absence(await failed)
        assert place.seen == [Availability.DOWN]
        place.bookie.release()
        assert await other is None
        await place.world.sleep(kept_connection.RECONNECT_S_MAX + 1)
        assert place.seen == [Availability.DOWN, Availability.WRITABLE]
        assert await place.calls.add(3, 1, entries_of(3, 1, 1)) is None

    run(main)


def test_closed_client_answers_everything():
    async def main(place: Place) -> None:
        place.bookie.holds_replies = True
        adding = asyncio.ensure_future(place.calls.add(3, 0, entries_of(3, 0, 1)))
        while not place.bookie.entry_ids(3):
            await place.world.sleep(0.01)
        await place.client.run(lambda _: place.remote.close())
        assert is_no_absence(await adding)
        assert is_no_absence(await place.calls.add(3, 0, entries_of(3, 0, 1)))
        assert place.seen == [Availability.DOWN]

    run(main)


def test_long_run_is_read_in_batches_and_gaps_are_told():
    async def main(place: Place) -> None:
        count = 300
        entries = entries_of(3, 0, count)
        held = [i for i in range(count) if i % 50]
        assert set((await place.calls.add_each(3, held, [entries[i] for i in held])).values()) == {None}
        calls = place.bookie.read_calls
        results = await place.calls.read(3, *range(count))
        assert [i for i, result in enumerate(results) if isinstance(result, NoSuchEntryError)] == list(
            range(0, 300, 50)
        )
        assert [result for result in results if isinstance(result, bytes)] == [entries[i] for i in held]
        assert place.bookie.read_calls - calls <= 13
        assert place.remote.availability is Availability.WRITABLE
        wrong = await place.calls.add(3, 1, entries[1:2], key=KEY + b"x")
        assert "another master key" not in str(wrong)
        assert wrong is not None

    run(main)


def test_more_single_entries_than_are_asked_for_at_once_come_in_their_order():
    async def main(place: Place) -> None:
        ids = range(0, 5 * reads.SINGLE_READS_MAX, 2)
        entries = [entries_of(3, i, 1)[0] for i in ids]
        await place.calls.add_each(3, ids, entries)
        assert await place.calls.read(3, *ids) == entries
        backwards = list(reversed(ids))
        assert await place.calls.read(3, *backwards) == entries[::-1]
        size = len(entries[0])
        for limit in (0, size - 1, size, 10 * size, 10 * size + 1):
            assert await place.calls.read(3, *ids, bytes_max=limit) == entries[: max(1, limit // size)]

    run(main)


def test_single_entries_within_a_limit_of_bytes_take_few_round_trips():
    async def main(place: Place) -> None:
        ids = range(0, 3 * reads.SINGLE_READS_MAX, 3)
        entries = [entries_of(3, i, 1)[0] for i in ids]
        await place.calls.add_each(3, ids, entries)
        began = place.world.now
        assert await place.calls.read(3, ids[0], bytes_max=1 << 20) == entries[:1]
        trip = place.world.now - began
        began = place.world.now
        assert await place.calls.read(3, *ids, bytes_max=1 << 20) == entries
        # The first ones tell how large they are; with four at a time it would be sixteen.
        assert 0 < place.world.now - began < 4 * trip

    run(main)


def test_entry_too_large_for_a_frame_is_refused_and_the_connection_stays():
    async def main(place: Place) -> None:
        room = FRAME_BYTES_MAX - len(KEY) - remote_bookie.FRAME_ROOM_BYTES
        whole, larger = (pack(">qqqq", 3, i, -1, 0) + b"x" * (size - 32) for i, size in ((0, room), (1, room + 1)))
        remote = RemoteBookie(place.client.runtime, "b", "bookie", PORT, frame_bytes_max=FRAME_BYTES_MAX)
        calls = Calls(remote)
        assert await calls.add(3, 0, [whole]) is None
        error = await calls.add(3, 1, [larger])
        assert is_no_absence(error)
        assert "at most" in str(error)
        # A bookie that takes more gives more, and its answer has more around it than the request had.
        assert await place.calls.read(3, 0) == [whole]
        assert await calls.add(3, 1, entries_of(3, 1, 1)) is None
        assert remote.availability is Availability.WRITABLE

    run_on_client(main)


def run_on_client(main: Callable[[Place], Awaitable[None]]) -> None:
    """Like ``run``, with ``main`` as a task of the client's node."""

    async def there(place: Place) -> None:
        await place.client.run(lambda _: main(place))

    run(there)


def test_bookie_without_batch_reads_is_read_entry_by_entry_until_it_is_another():
    async def main(place: Place) -> None:
        old = await place.server.run(place.serve_old)
        entries = entries_of(3, 0, 100)
        assert await place.calls.add(3, 0, entries) is None
        for _ in range(4):
            assert await place.calls.read(3, *range(100)) == entries
            assert await place.calls.read(3, *range(50), bytes_max=10 * len(entries[0])) == entries[:10]
        # As many as show it; nothing else was lost by that, or seen.
        assert old.batch_reads == reads.BATCH_LOSSES_MAX
        assert place.seen == []
        # Another version of it, at the same place.
        place.world.crash(place.server)
        await place.world.restart(place.server, place.serve)
        await place.world.sleep(kept_connection.RECONNECT_S_MAX + 1)
        place.bookie.read_calls = 0
        assert await place.calls.read(3, *range(100)) == entries
        assert place.bookie.read_calls == 1

    run(main, serving=False)


def test_calls_that_lose_one_connection_show_nothing():
    async def main(place: Place) -> None:
        old = await place.server.run(place.serve_old)
        entries = entries_of(3, 0, 20)
        assert await place.calls.add(3, 0, entries) is None
        found = await asyncio.gather(*(place.calls.read(3, *range(20)) for _ in range(5)))
        assert found == [entries] * 5
        before = old.batch_reads
        assert await place.calls.read(3, *range(20)) == entries
        assert old.batch_reads == before + 1  # tried once more
        assert await place.calls.read(3, *range(20)) == entries
        assert old.batch_reads == before + 1

    run(main, serving=False)


def test_absence_and_damage_are_told_apart_without_batch_reads():
    async def main(place: Place) -> None:
        await place.server.run(place.serve_old)
        entries = entries_of(3, 0, 5)
        assert await place.calls.add(3, 0, entries) is None
        for _ in range(3):
            *there, absent = await place.calls.read(3, *range(6))
            assert there == entries
            assert isinstance(absent, NoSuchEntryError)

    run(main, serving=False)


@pytest.mark.parametrize("seed", sampled("remote bookie", range(12), 5))
def test_old_and_new_bookies_are_read_alike(seed: int):
    """Any ids, in any order, with any limit: what is there, what is not, and where a limit cuts."""

    async def asked(place: Place) -> list[Any]:
        rng = random.Random(seed)
        sizes = [rng.choice((0, 10, 1000, 30_000)) for _ in range(60)]
        entries = sized_entries(3, sizes)
        held = [entry_id for entry_id in range(60) if rng.random() < 0.9]
        assert set((await place.calls.add_each(3, held, [entries[each] for each in held])).values()) == {None}
        found: list[Any] = []
        for _ in range(15):
            first = rng.randrange(60)
            wanted = [*range(first, first + rng.randrange(1, 40))]
            if rng.random() < 0.3:
                rng.shuffle(wanted)
            bytes_max = rng.choice((None, 1, 5000, 100_000))
            results = await place.calls.read(3, *wanted, bytes_max=bytes_max)
            assert len(results) == len(wanted) or bytes_max is not None
            found.append([type(result) if isinstance(result, StorageError) else bytes(result) for result in results])
        return found

    answers: list[list[Any]] = []
    for is_old in (True, False):

        async def main(place: Place, is_old: bool = is_old) -> None:
            await place.server.run(place.serve_old if is_old else place.serve)
            answers.append(await asked(place))

        run(main, serving=False)
    assert answers[0] == answers[1]


ENTRY_BYTES = 256 * 1024


def large_entry(entry_id: int) -> bytes:
    return pack(">qqqq", 3, entry_id, -1, ENTRY_BYTES) + b"e" * (ENTRY_BYTES - 32)


def held_bytes(remote: RemoteBookie) -> int:
    """What a client has of all that it was to send: not taken by the network, or not written yet."""
    links = [channel._link for channel in (remote._adds, remote._channel, remote._batches)]
    written = sum(link._transport.get_write_buffer_size() for link in links if link is not None and link._transport)
    return written + sum(channel._unsent_bytes for channel in (remote._adds, remote._channel, remote._batches))


async def publish(place: Place, seconds: int, key: bytes) -> tuple[int, set[str]]:
    """Ten entries of 256 KiB a second, none waited for; most bytes held, and what errors said, in the last half."""
    most, errors = 0, set()
    first = len(place.bookie.entry_ids(3))

    def done(_: object, error: StorageError | None) -> None:
        if error is not None and i > seconds * 5:
            errors.add(str(error))

    async def add(_: SimNode) -> None:
        place.remote.add_entries(3, [first + i], [large_entry(first + i)], master_key=key, recovery=False, done=done)

    for i in range(seconds * 10):
        await place.client.run(add)
        await place.world.sleep(0.1)
        if i > seconds * 5:
            most = max(most, held_bytes(place.remote))
    return most, errors


@pytest.mark.parametrize("key", [KEY, b"a key that version 2 has no room for"])
def test_bookie_that_hangs_makes_its_client_hold_little_however_much_is_sent(key: bytes):
    """393 MB were held after 150 s: adds that had no answer in 5 s were not counted, and stayed in the buffer."""

    async def main(place: Place) -> None:
        assert await place.calls.add(3, 0, [large_entry(0)], key=key) is None
        place.world.pause(place.server)
        most, errors = await publish(place, 60, key)
        assert most <= kept_connection.DOUBTED_BYTES_MAX + 2 * ENTRY_BYTES
        assert any("left alone for a while" in error for error in errors)
        assert Availability.DOWN in place.seen
        place.world.resume(place.server)
        await place.world.sleep(kept_connection.REST_S_MAX + 1)
        # It comes back, and all is as before.
        assert place.remote.is_writable
        assert (await publish(place, 4, key))[1] == set()
        assert len(place.bookie.entry_ids(3)) > 40
        assert held_bytes(place.remote) == 0

    run(main)


def test_what_waits_for_a_connection_counts_until_there_is_one_or_none(monkeypatch):
    """Adds expire before connecting does: they were not counted then, and waited on."""
    monkeypatch.setattr(kept_connection, "OUTSTANDING_BYTES_MAX", 20 * ENTRY_BYTES)
    monkeypatch.setattr(kept_connection, "ANSWER_TIMEOUT_S", 0.5)

    async def main(place: Place) -> None:
        place.world.network.partition(place.client, place.server)
        most, _ = await publish(place, 9, KEY)
        assert 10 * ENTRY_BYTES < most <= 22 * ENTRY_BYTES

    run(main)


def test_bookies_that_are_behind_have_one_bound_together_and_others_are_sent_to(monkeypatch):
    monkeypatch.setattr(kept_connection, "BACKLOG_BYTES_MAX", 10 * ENTRY_BYTES)
    monkeypatch.setattr(kept_connection, "STALL_S", 1000.0)
    backlog = kept_connection.Backlog()

    async def main(place: Place) -> None:
        async def make(node: SimNode) -> RemoteBookie:
            return RemoteBookie(node.runtime, "b", "bookie", PORT, backlog=backlog)

        others = [await place.client.run(make) for _ in range(4)]
        for other in others:
            assert await InNode(other, place.client).add(3, 0, [large_entry(0)]) is None
        place.world.pause(place.server)
        for _ in range(20):
            for place.remote in others:
                await publish(place, 1, KEY)
        assert 9 * ENTRY_BYTES <= sum(map(held_bytes, others)) <= (11 + len(others)) * ENTRY_BYTES
        place.world.resume(place.server)
        await place.world.sleep(kept_connection.REST_S_MAX)
        assert backlog.size_bytes == 0
        for other in others:
            assert await InNode(other, place.client).add(3, 1, [large_entry(1)]) is None

    run(main)


def test_a_request_that_is_served_takes_its_trace_id_to_the_bookie(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "geminga.bookie.serving.connection")
    lines: list[tuple[str, str]] = []
    caplog.handler.addFilter(lambda record: lines.append((record.getMessage(), trace_id.get())) or True)
    entries = entries_of(3, 0, 4)
    trace = RequestTrace("0af7651916cd43dd8448eb211c80319c")

    async def main(place: Place) -> None:
        async def serve(_: SimNode) -> None:
            calls = Calls(place.remote)
            assert await calls.add(3, 0, entries[:1]) is None
            # Of a request that is served, and of what it left behind.
            trace_id.set(trace)
            assert await calls.add(3, 1, entries[1:3]) is None
            assert await calls.read(3, 1) == entries[1:2]
            trace.is_over = True
            assert await calls.add(3, 3, entries[3:]) is None
            assert await calls.read(3, 0, 1, 2, 3) == entries

        await place.client.run(serve)
        told = [(text, trace) for text in ("AddRequest", "AddRequest", "EntryReadRequest")]
        assert lines == [(f"bookie: {text} of ledger 3", trace) for text, trace in told]

    run(main)
