"""Producers of a topic: names, access modes and their epochs, who waits, who is told to go."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from types import FunctionType

import pytest

from geminga.broker.core.dedup_source import is_replicator
from geminga.broker.core.producer_access import AccessMode
from geminga.broker.publishing.life import TopicLife
from geminga.broker.publishing.producers import TOLD_A_TURN, TopicProducers
from geminga.broker.subscription.limits import host_of
from geminga.model.errors import (
    GemingaError,
    NotAllowedError,
    ProducerBusyError,
    ProducerFencedError,
    StorageError,
    TopicClosingError,
    TopicTerminatedError,
)
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, spawn
from geminga.runtime.clock import SystemClock
from support.house.python_calls import counted_calls

NAME = TopicName.parse("persistent://public/default/topic")


class StillClock(SystemClock):
    """However long a turn takes, none is over before its steps are."""

    def monotonic(self) -> float:
        return 0.0


class Link:
    """A connection: when it is asked whether it lives, a dead one takes its producer along."""

    def __init__(self, peer: str = "/127.0.0.1:4711") -> None:
        self.peer = peer
        self.dies: Callable[[], None] | None = None

    async def check_liveness(self) -> bool:
        if self.dies is not None:
            self.dies()
        return self.dies is None


class Told:
    """A producer that keeps what it is told."""

    def __init__(
        self, name: str, mode: AccessMode = AccessMode.SHARED, link: Link | None = None, *, epoch: int = 0
    ) -> None:
        self.name = name
        self.is_closed = False
        self.topic_epoch: int | None = None
        self.producer_id = 1
        self.epoch = epoch
        self.access_mode = mode
        self.connection = link or Link()
        self.told: list[str | GemingaError] = []
        self.is_stopped = False
        self.leaves: Callable[[], None] = lambda: None

    def stop(self) -> None:
        self.is_stopped = True

    def disconnect(self) -> None:
        self.told.append("disconnect")
        self.leaves()

    def fence(self, error: GemingaError) -> None:
        self.told.append(error)
        self.leaves()

    def granted(self) -> None:
        self.told.append("granted")


class Log:
    """What is kept, and a watch that may keep producers out."""

    def __init__(self) -> None:
        self.is_terminated = False
        self.epoch: int | None = None
        self.error: GemingaError | None = None
        self.unwanted: GemingaError | None = None
        self.heard: list[str] = []

    async def store_epoch(self, epoch: int) -> None:
        if self.error is not None:
            raise self.error
        self.epoch = epoch

    async def admit_producer(self, producer: Told) -> None:
        if self.unwanted is not None:
            raise self.unwanted

    async def producer_joined(self, producer: Told) -> None:
        self.heard.append(f"+{producer.name}")

    def producer_left(self, producer: Told) -> None:
        self.heard.append(f"-{producer.name}")


class Room:
    """The producers of a topic, with what they stand on."""

    def __init__(self) -> None:
        self.life = TopicLife(NAME, StillClock())
        self.log = Log()
        self.producers: TopicProducers[Told] = TopicProducers(NAME, self.life, self, kept=self.log, watch=self.log)
        self.broken: list[str] = []

    def broke(self, what: str, error: BaseException) -> None:
        self.broken.append(what)

    async def add(self, *args: object, **keywords: object) -> tuple[Told, bool]:
        producer = Told(*args, **keywords)  # type: ignore[arg-type]
        producer.leaves = lambda: self.producers.remove(producer)
        return producer, await self.producers.add(producer)


def in_room(scenario: Callable[[Room], Coroutine[object, object, None]]) -> None:
    async def main() -> None:
        room = Room()
        await scenario(room)
        room.producers.check_invariants()
        assert room.broken == []

    asyncio.run(main())


def test_a_name_is_there_once_and_its_watch_hears_of_it() -> None:
    async def scenario(room: Room) -> None:
        first, is_ready = await room.add("p")
        assert is_ready
        with pytest.raises(ProducerBusyError, match="'p' is already connected"):
            await room.add("p")
        assert room.producers.by_name == {"p": first}
        room.producers.remove(first)
        assert (room.producers.by_name, room.log.heard) == ({}, ["+p", "-p"])

    in_room(scenario)


def test_the_same_producer_of_the_same_connection_takes_its_own_place() -> None:
    async def scenario(room: Room) -> None:
        link = Link()
        first, _ = await room.add("p", link=link)
        second, _ = await room.add("p", link=link, epoch=1)
        assert first.is_closed
        assert room.producers.by_name == {"p": second}
        room.producers.remove(first)
        assert room.producers.by_name == {"p": second}, "one that was replaced takes nobody along"

    in_room(scenario)


def test_a_producer_whose_connection_is_dead_makes_room() -> None:
    async def scenario(room: Room) -> None:
        first, _ = await room.add("p")
        first.connection.dies = lambda: room.producers.remove(first)
        second, is_ready = await room.add("p")
        assert is_ready
        assert room.producers.by_name == {"p": second}

    in_room(scenario)


def test_replicators_are_neither_kept_out_by_limits_nor_do_they_use_them_up() -> None:
    async def scenario(room: Room) -> None:
        room.producers.most = 1
        await room.add("pulsar.repl.west-->east")
        await room.add("p")
        with pytest.raises(ProducerBusyError, match="max producers limit"):
            await room.add("q")
        await room.add("pulsar.repl.north-->east")
        assert len(room.producers.by_name) == 3

    in_room(scenario)


def test_limits_the_end_of_a_topic_and_its_watch_keep_producers_out() -> None:
    async def scenario(room: Room) -> None:
        room.producers.most = 1
        await room.add("p")
        with pytest.raises(ProducerBusyError, match="max producers limit"):
            await room.add("q")
        room.producers.most = 0
        room.log.unwanted = NotAllowedError("the quota is used up")
        with pytest.raises(NotAllowedError):
            await room.add("q")
        room.log.unwanted = None
        room.log.is_terminated = True
        with pytest.raises(TopicTerminatedError):
            await room.add("q")
        room.life.close()
        with pytest.raises(TopicClosingError):
            await room.add("q")
        assert list(room.producers.by_name) == ["p"]

    in_room(scenario)


def test_who_waits_for_exclusive_access_is_one_of_those_that_there_may_be() -> None:
    async def scenario(room: Room) -> None:
        room.producers.most = 2
        await room.add("p", AccessMode.EXCLUSIVE)
        await room.add("q", AccessMode.WAIT_FOR_EXCLUSIVE)
        with pytest.raises(ProducerBusyError, match="max producers limit"):
            await room.add("r", AccessMode.WAIT_FOR_EXCLUSIVE)

    in_room(scenario)


def test_who_waits_for_exclusive_access_gets_it_with_an_epoch_that_is_stored() -> None:
    async def scenario(room: Room) -> None:
        first, _ = await room.add("p", AccessMode.EXCLUSIVE)
        assert (first.topic_epoch, room.log.epoch) == (0, 0)
        second, is_ready = await room.add("q", AccessMode.WAIT_FOR_EXCLUSIVE)
        assert not is_ready
        room.producers.remove(first)
        await next_turn()
        assert (second.told, second.topic_epoch, room.log.epoch) == (["granted"], 1, 1)

    in_room(scenario)


def test_who_waits_may_have_the_name_of_who_has_access_or_waits_before() -> None:
    """Instances of one service have one name as a rule."""

    async def scenario(room: Room) -> None:
        first, _ = await room.add("p", AccessMode.WAIT_FOR_EXCLUSIVE)
        waiting = [(await room.add("p", AccessMode.WAIT_FOR_EXCLUSIVE))[0] for _ in range(3)]
        assert room.producers.by_name == {"p": first}
        assert list(room.producers.waiting) == waiting
        assert room.log.heard == ["+p"]
        room.producers.remove(waiting[1])
        for leaves, follows in ((first, waiting[0]), (waiting[0], waiting[2])):
            room.producers.remove(leaves)
            await next_turn()
            assert follows.told == ["granted"]
            assert room.producers.by_name == {"p": follows}
            assert room.log.heard[-2:] == ["-p", "+p"]
        with pytest.raises(ProducerBusyError):
            await room.add("p")
        room.producers.check_invariants()

    in_room(scenario)


@pytest.mark.parametrize("mode", [AccessMode.SHARED, AccessMode.EXCLUSIVE])
def test_who_takes_access_may_have_the_name_of_who_had_it(mode: AccessMode) -> None:
    """A leader that starts again while the connection of its former life, or another instance, is there."""

    async def scenario(room: Room) -> None:
        first, _ = await room.add("p", mode)
        second, is_ready = await room.add("p", AccessMode.EXCLUSIVE_WITH_FENCING)
        assert is_ready
        (error,) = first.told
        assert isinstance(error, ProducerFencedError)
        assert room.producers.by_name == {"p": second}
        third, _ = await room.add("p", AccessMode.WAIT_FOR_EXCLUSIVE)
        fourth, is_ready = await room.add("p", AccessMode.EXCLUSIVE_WITH_FENCING)
        assert is_ready
        assert [type(each.told[0]) for each in (second, third)] == [ProducerFencedError] * 2
        assert (room.producers.by_name, room.producers.waiting) == ({"p": fourth}, {})

    in_room(scenario)


def test_who_waits_is_told_when_its_epoch_can_not_be_stored() -> None:
    async def scenario(room: Room) -> None:
        first, _ = await room.add("p", AccessMode.EXCLUSIVE)
        second, _ = await room.add("q", AccessMode.WAIT_FOR_EXCLUSIVE)
        room.log.error = StorageError("no bookies")
        room.producers.remove(first)
        await next_turn()
        assert second.told == [room.log.error]
        with pytest.raises(StorageError):
            await room.add("r", AccessMode.EXCLUSIVE)
        assert room.producers.by_name == {}

    in_room(scenario)


def test_exclusive_access_that_is_taken_fences_who_had_it() -> None:
    async def scenario(room: Room) -> None:
        first, _ = await room.add("p", AccessMode.EXCLUSIVE)
        second, _ = await room.add("q", AccessMode.EXCLUSIVE_WITH_FENCING)
        (error,) = first.told
        assert isinstance(error, ProducerFencedError)
        assert room.producers.by_name == {"q": second}

    in_room(scenario)


@pytest.mark.parametrize("end", ["disconnect", "terminated", "cut_off"])
def test_nobody_is_given_access_on_the_way_when_all_are_sent_away(end: str) -> None:
    """Who had it came back after an unload, and was fenced for good: the epoch had moved by one for each who waited."""

    async def scenario(room: Room) -> None:
        first, _ = await room.add("p", AccessMode.EXCLUSIVE)
        waiting = [(await room.add(name, AccessMode.WAIT_FOR_EXCLUSIVE))[0] for name in "qr"]
        if end == "cut_off":
            room.producers.cut_off(room)
        else:
            await getattr(room.producers, end)()
        await next_turn()
        assert room.log.epoch == 0
        assert [len(each.told) for each in (first, *waiting)] == [1, 1, 1]
        if end != "terminated":
            again = Told("p", AccessMode.EXCLUSIVE)
            again.topic_epoch = first.topic_epoch
            assert await room.producers.add(again)

    in_room(scenario)


MANY = 2 * TOLD_A_TURN + 5


async def told_in_turns(room: Room, those: Sequence[Told], work: Coroutine[object, object, object]) -> list[int]:
    """How many of them are told in each turn of the loop; from the first on nothing is taken of any."""
    told: list[int] = []
    doing = spawn(work, name="sent away")
    while not told or (told[-1] < len(those) and not doing.done()):
        await next_turn()
        told.append(sum(bool(each.told) for each in those))
        assert all(each.is_stopped for each in those)
    await doing
    return [after - before for before, after in pairwise([0, *told]) if after > before]


@pytest.mark.parametrize("way", ["disconnect", "terminated", "fencing"])
def test_many_are_told_to_go_in_several_turns_and_nothing_is_taken_of_those_that_hear_it_last(way: str) -> None:
    async def scenario(room: Room) -> None:
        many = [(await room.add(f"p{number}"))[0] for number in range(MANY)]
        work = room.add("x", AccessMode.EXCLUSIVE_WITH_FENCING) if way == "fencing" else getattr(room.producers, way)()
        assert await told_in_turns(room, many, work) == [TOLD_A_TURN, TOLD_A_TURN, 5]
        assert [len(each.told) for each in many] == [1] * MANY
        assert [each.name for each in room.producers.all()] == (["x"] if way == "fencing" else [])

    in_room(scenario)


def test_who_fences_many_and_is_fenced_while_they_are_told_neither_has_access_nor_takes_the_epoch_back() -> None:
    async def scenario(room: Room) -> None:
        many = [(await room.add(f"p{number}"))[0] for number in range(MANY)]
        first = Told("x", AccessMode.EXCLUSIVE_WITH_FENCING)
        first.leaves = lambda: room.producers.remove(first)
        fencing = spawn(room.producers.add(first), name="the first")
        await next_turn()
        assert 0 < sum(bool(each.told) for each in many) < MANY
        second, _ = await room.add("y", AccessMode.EXCLUSIVE_WITH_FENCING)
        assert all(each.is_stopped for each in many), "the second has no company"
        await fencing
        assert [type(error) for error in first.told] == [ProducerFencedError]
        assert [*room.producers.by_name.values()] == [second]
        assert room.log.epoch == second.topic_epoch == 1
        assert room.log.heard.count("+x") == 0

    in_room(scenario)


def test_nobody_is_given_access_by_one_that_leaves_while_all_are_told_and_one_that_left_is_not_told() -> None:
    async def scenario(room: Room) -> None:
        first, _ = await room.add("p", AccessMode.EXCLUSIVE)
        waiting = [(await room.add(f"w{number}", AccessMode.WAIT_FOR_EXCLUSIVE))[0] for number in range(MANY)]
        going = spawn(room.producers.disconnect(), name="unload")
        await next_turn()
        assert 0 < sum(bool(each.told) for each in waiting) < MANY
        room.producers.remove(first)
        room.producers.check_invariants()
        await going
        assert (first.told, room.log.epoch) == ([], 0)
        assert [each.told for each in waiting] == [["disconnect"]] * MANY

    in_room(scenario)


def test_all_are_told_when_the_topic_ends_goes_or_breaks() -> None:
    async def scenario(room: Room) -> None:
        producers = [(await room.add(name))[0] for name in "abc"]
        await room.producers.terminated()
        assert all(isinstance(each.told[0], TopicTerminatedError) for each in producers)
        producers = [(await room.add(name))[0] for name in "abc"]
        await room.producers.disconnect()
        assert [each.told for each in producers] == [["disconnect"]] * 3

        def fail() -> None:
            raise KeyError("a producer in no known state")

        producers = [(await room.add(name))[0] for name in "abc"]
        producers[0].leaves = fail
        room.producers.cut_off(room)
        assert [each.told for each in producers] == [["disconnect"]] * 3
        assert room.broken == ["cutting a producer off"]
        room.producers.remove(producers[0])
        room.broken.clear()

    in_room(scenario)


@pytest.mark.parametrize(("limit", "look"), [("most", is_replicator), ("most_from_one", host_of)])
def test_who_comes_under_a_limit_looks_at_no_other_producer(limit: str, look: FunctionType) -> None:
    async def scenario(room: Room) -> None:
        setattr(room.producers, limit, 40)
        looks = []
        for number in range(50):
            refused = pytest.raises(ProducerBusyError, match="max") if number >= 40 else contextlib.nullcontext()
            with counted_calls(look) as calls, refused:
                await room.add(f"p{number}")
            looks.append(calls())
        assert max(looks) <= 2, "asked, and counted"

    in_room(scenario)


def test_producers_of_an_address_are_counted_whatever_becomes_of_them() -> None:
    async def scenario(room: Room) -> None:
        producers = room.producers
        producers.most = producers.most_from_one = 3

        async def add(name: str, *args: object, **keywords: object) -> Told:
            producer, _ = await room.add(name, *args, **keywords)
            producers.check_invariants()
            return producer

        here, there = Link(), Link("/10.0.0.1:1")
        copier = await add("pulsar.repl.west-->here")
        first = await add("p", link=here)
        await add("p", link=here, epoch=1)
        producers.remove(first)
        await add("q", link=there)
        with pytest.raises(ProducerBusyError, match="already connected"):
            await add("q", link=there)
        await add("r", link=here)
        with pytest.raises(ProducerBusyError, match="max producers"):
            await add("s", link=there)
        producers.most = 0
        with pytest.raises(ProducerBusyError, match="same address"):
            await add("s", link=here)
        last = await add("q", AccessMode.EXCLUSIVE_WITH_FENCING, there)
        assert [*producers.by_name.values()] == [last]
        waiting = [await add("q", AccessMode.WAIT_FOR_EXCLUSIVE, there) for _ in range(2)]
        with pytest.raises(ProducerBusyError, match="same address"):
            await add("t", AccessMode.WAIT_FOR_EXCLUSIVE, there)
        producers.remove(last)
        await next_turn()
        producers.check_invariants()
        for each in (*waiting, copier):
            producers.remove(each)
        producers.check_invariants()
        assert producers.all() == []

    in_room(scenario)
