"""Topics that are being loaded, and those that wait for their turn.

One load at a time for a topic: whoever asks while it is under way, or waits, waits for the same result. Some run at a
time (``core/load_queue.py`` says which); one that nobody wants any more, and that has not begun, never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.failures import BrokenPart, Failures
from geminga.model.errors import GemingaError, TooManyRequestsError, TopicNotFoundError, UnavailableError
from geminga.model.histogram import Latencies, Quantiles
from geminga.model.topic_name import TopicName
from geminga.runtime import Clock, again, spawn

if TYPE_CHECKING:
    from geminga.broker.core.load_queue import LoadQueue
    from geminga.broker.topic.base import Topic

#: Loads that run before any has to wait, and that are quick: beyond them each takes longer, and none is done sooner.
AT_ONCE_MAX: Final = 128
#: As Pulsar has them for ``pulsar_topic_load_times``.
QUANTILES: Final = (0.5, 0.75, 0.95, 0.99, 0.999, 0.9999)


class Load:
    """One of them."""

    __slots__ = ("create", "done", "is_for_deletion", "is_taken", "name", "wanted")

    def __init__(self, name: TopicName, *, create: bool, is_for_deletion: bool) -> None:
        self.name = name
        #: Whether the topic is made if it is not there.
        self.create = create
        self.is_for_deletion = is_for_deletion
        self.done: asyncio.Future[Topic | GemingaError] = asyncio.get_running_loop().create_future()
        #: The topic went to another broker meanwhile: it is let go of, not registered.
        self.is_taken = False
        #: How many wait for the result.
        self.wanted = 0

    def end(self, result: Topic | GemingaError) -> None:
        """Tell all who wait."""
        if not self.done.done():
            self.done.set_result(result)


class TopicLoads:
    """See the module."""

    __slots__ = (
        "_clock",
        "_config",
        "_failures",
        "_latency",
        "_loads",
        "_queue",
        "_run",
        "_running",
        "_timer",
        "failed_count",
    )

    def __init__(
        self,
        run: Callable[[Load], Awaitable[Topic]],
        clock: Clock,
        failures: Failures,
        config: BrokerConfig,
    ) -> None:
        """``run``: loads and registers a topic; raises GemingaError."""
        self._run = run
        self._clock = clock
        self._failures = failures
        self._config = config
        #: By full name of the topic.
        self._loads: dict[str, Load] = {}
        #: Of these, those that have begun, and when.
        self._running: dict[str, float] = {}
        #: While there is something in it.
        self._queue: LoadQueue | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: Of loads that made a topic, from the moment they began; and how many made none.
        self._latency = Latencies()
        self.failed_count = 0

    def find(self, key: str) -> Load | None:
        """That of a topic; None: it is not being loaded, and does not wait to be."""
        return self._loads.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._loads

    def __iter__(self) -> Iterator[Load]:
        """Those that have begun."""
        return iter([self._loads[key] for key in self._running])

    def metrics(self) -> Mapping[str, float | Quantiles]:
        """How many run, how long they took (ms) and how many failed, under Pulsar's names, and how many wait."""
        return {
            "pulsar_broker_topic_load_pending_requests": len(self._running),
            "pulsar_topic_load_times": self._latency.quantiles(self._clock.monotonic(), QUANTILES),
            # Without a prefix, as Pulsar has it.
            "topic_load_failed_total": self.failed_count,
            "geminga_topic_loads_waiting": 0 if self._queue is None else len(self._queue),
        }

    def ask(self, load: Load, *, is_for_client: bool) -> None:
        """Load it, now or in its turn. Raises TooManyRequestsError."""
        key = str(load.name)
        running_max = self._config.concurrent_topic_loads_max
        # Others wait for system topics in the middle of their own loads: if these waited for a turn nothing would end.
        is_urgent = load.name.is_system and len(self._running) < 2 * running_max
        if is_urgent or (self._queue is None and len(self._running) < min(AT_ONCE_MAX, running_max)):
            self._loads[key] = load
            self._begin(load)
            return
        if self._queue is None:
            self._queue = self._new_queue()
        self._loads[key] = load
        refused = self._queue.wait(key, load.name.namespace, is_for_client=is_for_client)
        if refused == key:
            del self._loads[key]
            raise _too_many()
        if refused is not None:
            self._loads.pop(refused).end(_too_many())
        self._begin_next()

    async def result(self, load: Load, *, is_for_client: bool) -> Topic:
        """Wait for it. Raises what it came to, and UnavailableError after the time-out."""
        key = str(load.name)
        if is_for_client and self._queue is not None:
            self._queue.client_waits(key)
        load.wanted += 1
        timeout_s = self._config.topic_load_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                result = await asyncio.shield(load.done)
        except TimeoutError:
            raise UnavailableError(f"loading {load.name} takes longer than {timeout_s} s") from None
        finally:
            load.wanted -= 1
            if not load.wanted and not load.done.done():
                self._give_up(load, UnavailableError(f"nobody waits for {load.name} any more"))
        if isinstance(result, GemingaError):
            # All who wait are told of it, and it stays with the load.
            raise again(result)
        return result

    async def make(self, load: Load, *, is_for_client: bool) -> bool:
        """Somebody may create the topic. False: the load had begun to look whether there is one, and there is none.

        Raises as :meth:`result`.
        """
        if load.create or str(load.name) not in self._running:
            load.create = True
            return True
        try:
            await self.result(load, is_for_client=is_for_client)
        except TopicNotFoundError:
            return False
        return True

    def refuse(self, topics: Callable[[TopicName], bool], error: Callable[[TopicName], GemingaError]) -> None:
        """What waits of these topics is never loaded."""
        for key, load in list(self._loads.items()):
            if key not in self._running and topics(load.name):
                self._give_up(load, error(load.name))

    # ---- inside

    def _new_queue(self) -> LoadQueue:
        # Loaded by the first that has to wait.
        from geminga.broker.core.load_queue import LoadQueue

        queue = LoadQueue(AT_ONCE_MAX)
        for key, began_s in self._running.items():
            queue.begin(key, began_s)
        return queue

    def _give_up(self, load: Load, error: GemingaError) -> None:
        """Nothing, if it has begun."""
        key = str(load.name)
        if key not in self._running and self._loads.get(key) is load:
            del self._loads[key]
            if self._queue is not None:
                self._queue.leave(key)
            load.end(error)

    def _begin(self, load: Load) -> None:
        key = str(load.name)
        now_s = self._clock.monotonic()
        self._running[key] = now_s
        if self._queue is not None:
            self._queue.begin(key, now_s)
        self._spawn(load)

    def _begin_next(self) -> None:
        """Whatever may begin now; without anything that waits there is no queue."""
        queue = self._queue
        if queue is None:
            return
        now_s, running_max = self._clock.monotonic(), self._config.concurrent_topic_loads_max
        while (key := queue.next(now_s, running_max)) is not None:
            self._running[key] = now_s
            self._spawn(self._loads[key])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not len(queue):
            self._queue = None
        elif (due_s := queue.due_s(running_max)) is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(due_s - now_s, 0.0), self._begin_next)

    def _spawn(self, load: Load) -> None:
        # A task of its own: the first to ask may go away, the others still want the topic.
        spawn(self._load(load), name=f"load {load.name}", part=_BreakingLoad(self._failures, str(load.name)))

    async def _load(self, load: Load) -> None:
        result: Topic | GemingaError = UnavailableError(f"loading {load.name} was cut short")
        try:
            result = await self._run(load)
        except GemingaError as error:
            # A copy: the error's frames have the load, which keeps it.
            result = again(error)
        finally:
            key = str(load.name)
            del self._loads[key]
            began_s = self._running.pop(key)
            if isinstance(result, GemingaError):
                self.failed_count += 1
            else:
                self._latency.add((self._clock.monotonic() - began_s) * 1000)
            if self._queue is not None:
                self._queue.ended(key)
            load.end(result)
            self._begin_next()


class _BreakingLoad:
    """A topic being loaded, which can break too."""

    __slots__ = ("_failures", "_key")

    def __init__(self, failures: Failures, key: str) -> None:
        self._failures = failures
        self._key = key

    def broke(self, what: str, error: BaseException) -> None:
        """Whoever waits for it was told; it may be tried again after a while."""
        self._failures.note(BrokenPart.TOPIC, self._key, what, error, is_held=True)


def _too_many() -> TooManyRequestsError:
    return TooManyRequestsError("too many topics are being loaded")
