"""The leader's work of keeping this cluster's configuration alike with that of others, by a topic (see DESIGN.md).

Two loops: changes of the store are told, and events are followed. Each step on a path is one at a time, begins with
what is stored of it, and may be cut off anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from geminga.broker.core.coercion import Document
from geminga.broker.synchronization.core.deciding import ThisCluster
from geminga.broker.synchronization.core.events import event_of, sender_of
from geminga.broker.synchronization.newcomers import NewClusters
from geminga.broker.synchronization.paths import is_kept_alike, problem_of_path, problem_of_value
from geminga.broker.synchronization.ports import EventTopic, Guard, Received
from geminga.broker.synchronization.standing import SyncStanding
from geminga.broker.synchronization.steps import Steps
from geminga.broker.synchronization.stored_records import StoredRecords
from geminga.broker.synchronization.walking import Walk
from geminga.broker.synchronization.watched_tree import WatchedTree
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import GemingaError
from geminga.runtime import Part, Runtime, SparseWarnings, get_logger, spawn, wait_ms

_log = get_logger(__name__)

#: Between two looks whether this broker leads.
LEAD_LOOK_MS: Final = 1_000
#: Between two walks over everything, for what no watch told.
WALK_S: Final = 600.0
#: After a failure; doubled from the first to the last.
RETRY_FIRST_MS: Final = 500
RETRY_MAX_MS: Final = 60_000


class Synchronizer:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        topic: EventTopic,
        guard: Guard,
        *,
        cluster: str,
        leads: Callable[[], bool],
        part: Part | None = None,
    ) -> None:
        """``cluster``: this one. ``leads``: whether this broker leads it. ``part`` hears of what is unexpected."""
        self._clock = runtime.clock
        self._metadata = metadata
        self._topic = topic
        self._guard = guard
        self._cluster = cluster
        self._leads = leads
        self._part = part
        self._warnings = SparseWarnings(_log, runtime.clock.monotonic)
        self._standing = SyncStanding(runtime.clock)
        self._counts = self._standing.counts
        #: Why the topic may not do what it is for, as it was found last.
        self._doubts = ""
        self._is_leading = False
        self._woken = asyncio.Event()
        self._changed = asyncio.Event()
        self._tree = WatchedTree(metadata, self._hear)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """From now on, whenever this broker leads."""
        self._task = spawn(self._run(), name="configuration kept alike", part=self._part)

    async def close(self) -> None:
        """On return nothing is under way."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        await self._topic.close()

    def metrics(self) -> Mapping[str, float]:
        """Under names of our own."""
        waiting = {"geminga_configuration_sync_waiting": self._tree.waiting}
        leading = {"geminga_configuration_sync_is_leading": float(self._is_leading)}
        differing = {"geminga_configuration_sync_differing": self._standing.differing}
        return {**self._counts.metrics(), **waiting, **differing, **leading}

    async def state(self) -> Document:
        """How it stands, as JSON (docs/doctor.md). Raises MetadataError."""
        others, told = await self._guard.others(), await StoredRecords(self._metadata).told()
        clusters: Document = {
            name: {"isHeard": name in told.heard, "isTold": name in told.clusters} for name in sorted(others)
        }
        return {
            "topic": str(self._guard.topic),
            "isLeading": self._is_leading,
            "waiting": self._tree.waiting,
            "doubts": self._doubts,
            "clusters": clusters,
            **self._standing.document(),
        }

    def _hear(self) -> None:
        self._woken.set()
        self._changed.set()

    # ---- leading

    async def _run(self) -> None:
        while True:
            if self._leads():
                await self._lead()
            await wait_ms(LEAD_LOOK_MS)

    async def _lead(self) -> None:
        """Until this broker leads no more."""
        _log.info("this broker keeps the configuration of cluster %s alike with that of others", self._cluster)
        self._is_leading, self._standing.since_ms = True, self._clock.wall_ms()
        tasks: list[asyncio.Task[None]] = []
        delay_ms = RETRY_FIRST_MS
        try:
            steps = await self._begin()
            await self._adopt_restored(steps)
            self._standing.trouble("lead", "")
            while self._leads():
                if any(task.done() for task in tasks):
                    # What ended one was told; both begin anew, each time later.
                    await self._end(tasks)
                    await wait_ms(delay_ms)
                    delay_ms = min(2 * delay_ms, RETRY_MAX_MS)
                if not tasks:
                    tasks = self._new_tasks(steps)
                await wait_ms(LEAD_LOOK_MS)
        except GemingaError as error:
            self._standing.trouble("lead", f"{error}")
            self._warnings.warn(f"the configuration is not kept alike now: {error}", "failed")
        finally:
            self._is_leading, self._standing.since_ms = False, 0
            await self._end(tasks)
            self._tree.close()

    def _new_tasks(self, steps: Steps) -> list[asyncio.Task[None]]:
        self._tree.is_walk_due = True
        walk = self._walk(steps)
        newcomers = NewClusters(steps.records, self._guard, self._clock, walk.tell_all)
        return [
            spawn(self._note(steps), name="note when the configuration changed", part=self._part),
            spawn(self._tell(walk, newcomers), name="tell changes of the configuration", part=self._part),
            spawn(self._follow(steps, newcomers), name="follow changes of the configuration", part=self._part),
        ]

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        """On return another broker may follow: what was received and not done comes again."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        tasks.clear()
        await self._topic.close()

    async def _begin(self) -> Steps:
        records = StoredRecords(self._metadata)
        joined_ms = await records.joined_ms()

        def here() -> ThisCluster:
            return ThisCluster(self._cluster, self._clock.wall_ms(), joined_ms)

        return Steps(
            self._metadata,
            records,
            self._topic,
            self._guard,
            here=here,
            changed=self._tree.add,
            standing=self._standing,
            warnings=self._warnings,
        )

    async def _adopt_restored(self, steps: Steps) -> None:
        """What a backup had is no change: everything is taken as it is, once. Raises GemingaError."""
        since_ms, told = await steps.records.joined_ms(), await steps.records.told()
        if told.made_ms == since_ms:
            return
        if told.made_ms:
            _log.warning(
                "the metadata of cluster %s were restored: its configuration is as it was then. Take it out of the "
                "namespace of the topic in the other clusters and in again, which tells it what came since",
                self._cluster,
            )
            await self._walk(steps).adopt_all()
        await steps.records.write_told(told._replace(made_ms=since_ms))

    def _walk(self, steps: Steps) -> Walk:
        return Walk(self._metadata, steps, self._tree, self._clock, self._warnings)

    # ---- changes of this cluster

    async def _note(self, steps: Steps) -> None:
        """When something was deleted: what was changed elsewhere since is not to go with it, however long the topic is
        away. Of what is deleted while no broker leads nobody knows when."""
        while True:
            path = self._tree.next_unnoted()
            if path is None:
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                await steps.note_deletion(path)
            except GemingaError as error:
                self._tree.add(path)
                self._warnings.warn(f"changes of the configuration wait to be noted: {error}", "note")
                await wait_ms(RETRY_FIRST_MS)

    async def _tell(self, walk: Walk, newcomers: NewClusters) -> None:
        delay_ms = RETRY_FIRST_MS
        next_walk_s = self._clock.monotonic()
        while True:
            path: str | None = None
            try:
                # Whoever hears of this cluster may tell it everything.
                await self._topic.listen()
                self._standing.trouble("receive", "")
                next_look_s = await newcomers.look()
                if self._tree.is_walk_due or self._clock.monotonic() >= next_walk_s:
                    # A path that fails does not keep those that changed waiting.
                    self._tree.is_walk_due, next_walk_s = False, self._clock.monotonic() + delay_ms / 1000
                    await self._doubt()
                    await walk.run()
                    next_walk_s = self._clock.monotonic() + WALK_S
                path = self._tree.next(self._clock.monotonic())
                if path is None:
                    await self._wait_until(min(next_walk_s, next_look_s))
                else:
                    await walk.visit(path)
                delay_ms = RETRY_FIRST_MS
                self._standing.trouble("tell", "")
            except GemingaError as error:
                if path is not None:
                    self._tree.add(path)
                self._counts.failed += 1
                self._standing.trouble("tell", f"{error}")
                self._warnings.warn(f"changes of the configuration wait to be told to other clusters: {error}", "tell")
                await wait_ms(delay_ms)
                delay_ms = min(2 * delay_ms, RETRY_MAX_MS)

    async def _doubt(self) -> None:
        try:
            self._doubts = await self._guard.doubts()
        except GemingaError as error:
            # It may do all the same.
            self._doubts = f"the policies of its topic can not be read: {error}"
        if self._doubts:
            self._warnings.warn(f"the configuration of clusters may not come to be alike: {self._doubts}", "doubts")

    async def _wait_until(self, monotonic_s: float) -> None:
        now_s = self._clock.monotonic()
        due_s = self._tree.due_s(now_s)
        if self._tree.is_walk_due or (due_s is not None and due_s <= now_s):
            return
        self._woken.clear()
        try:
            async with asyncio.timeout(max(0.0, min(monotonic_s, due_s or monotonic_s) - now_s)):
                await self._woken.wait()
        except TimeoutError:
            pass

    # ---- changes of others

    async def _follow(self, steps: Steps, newcomers: NewClusters) -> None:
        delay_ms = RETRY_FIRST_MS
        received: Received | None = None
        while True:
            try:
                if received is None:
                    received = await self._topic.receive()
                await self._take(steps, newcomers, received)
                # Followed once more after a failure, it is known.
                await self._topic.acknowledge(received)
                received = None
                delay_ms = RETRY_FIRST_MS
                self._standing.trouble("follow", "")
            except GemingaError as error:
                self._counts.failed += 1
                self._standing.trouble("receive" if received is None else "follow", f"{error}")
                self._warnings.warn(f"changes of other clusters' configuration wait: {error}", "follow")
                await wait_ms(delay_ms)
                delay_ms = min(2 * delay_ms, RETRY_MAX_MS)

    async def _take(self, steps: Steps, newcomers: NewClusters, received: Received) -> None:
        event = received.problem or event_of(received.fields, received.properties)
        if isinstance(event, str):
            self._skip(event)
            return
        sender = sender_of(event, received.properties)
        if sender == self._cluster:
            return  # sent for others
        problem = problem_of_path(event.path, is_kept_alike) or problem_of_value(event.path, event.value)
        if problem:
            self._skip(f"{event.path[:200]!r} of cluster {event.stamp.cluster[:80]}: {problem}")
        else:
            await steps.follow(event)
        # Behind what it may have said of itself.
        await newcomers.hear(sender)

    def _skip(self, why: str) -> None:
        self._counts.skipped += 1
        text = f"an event of the configuration is passed over: {why}"
        self._standing.given_up(text)
        self._warnings.warn(text, "skipped")
