"""The loop thread: calls from outside, callbacks that may block, items handed over in order."""

from __future__ import annotations

import asyncio
import signal
import threading  # noqa: TID251  (threads are what is tested)
from collections import deque
from functools import partial

import pytest

from geminga.model.errors import LocalError
from geminga.runtime import loop_thread as loop_threads
from geminga.runtime import next_turn, spawn
from geminga.runtime.loop_thread import CallbackThread, HandOver, LoopThread, loop_thread
from support.house.uncollected import uncollected


@pytest.fixture
def thread():
    """A loop thread of the test's own."""
    made = LoopThread()
    yield made
    made.stop()
    assert not made.is_alive


def test_coroutine_is_carried_out_and_its_result_returned(thread) -> None:
    async def work() -> int:
        assert threading.current_thread() is not threading.main_thread()
        return 7

    assert thread.run(work) == 7


def test_error_of_a_coroutine_is_raised_by_the_caller(thread) -> None:
    async def work() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        thread.run(work)


@pytest.mark.parametrize("call", ["run", "call"])
def test_error_that_was_raised_waits_for_no_collector(thread, call) -> None:
    """What the frames of the call hold would wait with it: a Spark task held two gigabytes of entries it had passed."""

    def fail() -> None:
        raise LocalError("x")

    async def work() -> None:
        fail()

    def once() -> None:
        with pytest.raises(LocalError):
            getattr(thread, call)(work if call == "run" else fail)
        # The loop is past the call, too.
        thread.call(lambda: None)

    once()
    with uncollected() as found:
        once()
    assert found == []


def test_plain_function_is_called_on_the_loop(thread) -> None:
    assert thread.call(asyncio.get_running_loop) is thread.loop


def test_blocking_call_on_the_loop_itself_is_refused(thread) -> None:
    async def nothing() -> None:
        pass

    def nested() -> None:
        thread.run(nothing)

    with pytest.raises(LocalError, match="own thread"):
        thread.call(nested)


def test_stop_ends_what_still_waits(thread) -> None:
    begun = threading.Event()
    errors: list[BaseException] = []

    async def for_ever() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            thread.run(for_ever)
        except LocalError as error:
            errors.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    begun.wait(5)
    thread.stop()
    caller.join(5)
    assert not caller.is_alive()
    assert len(errors) == 1


class Interrupted(Exception):
    """What a handler of a signal raises."""


@pytest.mark.parametrize("error", [Interrupted, SystemExit, KeyboardInterrupt])
def test_call_that_a_signal_interrupts_is_given_up_on_the_loop_too(thread, error) -> None:
    ends: list[str] = []

    def interrupt(number: int, frame: object) -> None:
        raise error

    async def take() -> None:
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cut off")

    async def until_it_ended() -> None:
        for _ in range(3):
            await next_turn()

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(error):
            thread.run(take)
    finally:
        signal.signal(signal.SIGUSR1, before)
    thread.run(until_it_ended)
    assert ends == ["cut off"]


def test_callback_may_use_the_loop_it_was_called_from(thread) -> None:
    found: list[int] = []
    done = threading.Event()

    async def work() -> int:
        return 3

    def callback() -> None:
        found.append(thread.run(work))
        done.set()

    thread.call(lambda: thread.call_back(callback))
    assert done.wait(5)
    assert found == [3]


def test_callback_thread_passes_errors_on(thread) -> None:
    calls = CallbackThread("test")

    def fail() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        thread.run(lambda: calls.call(fail))


def test_callback_thread_holds_nothing_of_what_it_called() -> None:
    """A listener's call knows its consumer, and by it the thread itself: none ever ended."""
    calls = [CallbackThread("held by its call")]
    (there,) = [one for one in threading.enumerate() if one.name == "held by its call"]
    called = threading.Event()

    def call(calls: CallbackThread) -> None:
        called.set()

    calls[0].put(partial(call, calls.pop()))
    assert called.wait(5)
    there.join(5)
    assert not there.is_alive()


def test_items_of_one_thread_arrive_in_order_whatever_the_limit(thread) -> None:
    taken: list[int] = []

    async def take(items: deque[int]) -> None:
        while items:
            taken.append(items.popleft())

    hand_over = HandOver(thread, take, limit=10)
    for index in range(1000):
        hand_over.put(index)
    thread.run(hand_over.empty)
    assert taken == list(range(1000))


def test_who_hands_over_much_waits_though_it_is_few_items(thread) -> None:
    """What a broker that hangs does not take stays with who has it, whatever the number."""
    let_take, put, taken = asyncio.Event(), [], []

    async def take(items: deque[int]) -> None:
        await let_take.wait()
        while items:
            taken.append(items.popleft())
            hand_over.took(600 if taken[-1] < 100 else 5000 if taken[-1] == 200 else 0)

    hand_over = HandOver(thread, take, limit=1000, bytes_max=2000)
    is_put = threading.Semaphore(0)

    def put_all() -> None:
        for index in range(20):
            hand_over.put(index, 600)
            put.append(index)
            is_put.release()

    threading.Thread(target=put_all, daemon=True).start()
    for _ in range(3):
        assert is_put.acquire(timeout=10)
    assert not is_put.acquire(timeout=0.05)
    assert put == [0, 1, 2]
    hand_over.put(100)  # a small one goes in
    thread.loop.call_soon_threadsafe(let_take.set)
    for _ in range(17):
        assert is_put.acquire(timeout=10)
    thread.run(hand_over.empty)
    assert taken == [0, 1, 2, 100, *range(3, 20)]
    hand_over.put(200, 5000)  # one that is larger than all the room, by itself
    thread.run(hand_over.empty)
    assert taken[-1] == 200


def test_who_waits_for_what_he_put_does_not_wait_for_what_others_put_behind_it(thread) -> None:
    taken: list[int] = []

    async def take(items: deque[int]) -> None:
        taken.append(items.popleft())
        hand_over.count_taken(1)
        if len(taken) < 1000:
            hand_over.put(0)  # another one always has more
        await next_turn()

    async def until_mine_is_taken() -> int:
        before = len(taken)
        await hand_over.empty()
        return len(taken) - before

    hand_over = HandOver(thread, take, limit=10)
    for item in (0, 1):
        hand_over.put(item)
    assert thread.run(until_mine_is_taken) <= 10
    assert 1 in taken
    thread.call(lambda: taken.extend(range(1000)))
    thread.run(hand_over.empty)


def test_items_of_several_threads_all_arrive(thread) -> None:
    taken: list[tuple[int, int]] = []

    async def take(items: deque[tuple[int, int]]) -> None:
        taken.append(items.popleft())

    hand_over = HandOver(thread, take, limit=10)

    def put(number: int) -> None:
        for index in range(200):
            hand_over.put((number, index))

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    thread.run(hand_over.empty)
    for number in range(4):
        assert [index for who, index in taken if who == number] == list(range(200))


def test_process_has_one_loop_thread() -> None:
    assert loop_thread() is loop_thread()


def test_one_that_is_stopped_again_while_it_ends_closes_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where it takes longer than the first stop waits: an open loop, and its sockets, would be the collector's."""
    monkeypatch.setattr(loop_threads, "EXIT_SECONDS_MAX", 0.2)
    thread, goes_on = LoopThread(), threading.Event()

    async def slow() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            goes_on.wait()
            raise

    async def begin() -> None:
        spawn(slow(), name="slow")
        await next_turn()

    thread.run(begin)
    thread.stop()
    assert thread.is_alive
    thread.stop()
    goes_on.set()
    thread._thread.join()
    assert thread.loop.is_closed()
