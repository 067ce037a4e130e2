"""What a stream does in the driver: where its topics end, which batch comes next, which tasks read it, what is done.

It lives as long as the query, on the client's loop. Between batches it keeps one probe per topic for questions and,
while there is nothing to read, one watch per topic: a reader that is allowed one message from the place the query has
come to. As long as no watch rings nobody is asked anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from geminga.client import Client, EntryStream, TopicNotFound
from geminga.client.consumer_rules.look_back import FIRST_STEP_ENTRIES
from geminga.runtime import get_logger
from geminga.spark.source.batch_plan import check_given, starts_at_time, warn_beyond
from geminga.spark.source.compacted import is_held_compacted
from geminga.spark.source.positions import (
    Probe,
    divisions_of,
    ends_of,
    find_topics,
    first_position,
    in_parallel,
    lost_text,
)
from geminga.spark.source.scout import EntryHead, Scouts, begin_of_unfinished, open_watch, window_of
from geminga.spark.source.subscriptions import Cursors
from geminga.spark.source.task_read import TaskPlan
from geminga.spark.source_rules.admission import Limits
from geminga.spark.source_rules.errors import DataLossError
from geminga.spark.source_rules.lag import Lag
from geminga.spark.source_rules.offsets import BEGINNING, EARLIEST, LATEST, ReadPosition, StreamOffset
from geminga.spark.source_rules.options import SourceOptions
from geminga.spark.source_rules.planner import TopicRange, entries_before, plan, ranges_of

_log = get_logger(__name__)

#: At the topics for one batch, each because one was deleted since the last.
_LOOKS_MAX: Final = 3


@dataclass(slots=True)
class _Watch:
    stream: EntryStream[EntryHead]
    at: ReadPosition


class StreamDriver:
    """See the module. Not for use by several threads."""

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        self._clock = client.runtime.clock
        self._topics: list[str] = []
        self._discovered_at = float("-inf")
        #: Whether the topics were held against the offsets since they were looked for.
        self._has_checked = False
        self._probes: dict[str, Probe] = {}
        self._watches: dict[str, _Watch] = {}
        self._cursors = Cursors(client, options.subscription) if options.subscription else None
        #: With Trigger.AvailableNow: where the run ends.
        self._target: dict[str, ReadPosition] | None = None
        #: The ends as they were found last.
        self.known_ends: dict[str, ReadPosition] = {}
        #: The end of the batch that was planned last.
        self._planned: Mapping[str, ReadPosition] = {}
        self._lag = Lag()
        self._has_warned = False
        self._has_planned = False
        #: Topics whose first start was compared with their end.
        self._compared: set[str] = set()
        #: Topics that the offsets have and that are gone.
        self._deleted: set[str] = set()
        #: Topics that the offsets have and the options leave out.
        self._left: set[str] = set()
        #: Deleted ones that are there again, to be read from their beginning, and where the query was in the old ones.
        self._renewed: dict[str, ReadPosition] = {}
        #: By topic: messages in pieces that had no beginning when the topic was read first.
        self._unbegun: dict[str, set[str | bytes]] = {}
        self._scouts = Scouts(client, options.reader)
        #: Since when there are too few messages for a batch; None: there are none, or were enough.
        self._waiting_since: float | None = None

    # ---- the next batch

    async def latest(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        """The end of the batch that begins at ``start``; ``start`` itself if there is nothing to read.

        Waits ``longPollMs`` for something. Raises TopicError, and what the client raises.
        """
        await self._discover(start)
        for looks_left in reversed(range(_LOOKS_MAX)):
            try:
                found = await self._latest(start, limits)
                break
            except TopicNotFound:
                # Deleted between two looks at the topics: a look says what that means.
                if not looks_left:
                    raise
                self._discovered_at = float("-inf")
                await self._discover(start)
        if found.init is None:
            self._planned = found.topics
        return found

    def report(self) -> dict[str, object] | None:
        """The topics' ends as they were found last, and how far the last batch stays behind them; None: not yet."""
        if not self.known_ends:
            return None
        ends = StreamOffset(topics=self.known_ends, tasks_max=self._options.tasks_max).to_dict()
        return {"lag": self._lag.behind(self._planned, self._clock.monotonic() * 1000), **ends}

    async def _latest(self, start: StreamOffset, limits: Limits) -> StreamOffset:
        if self._waiting_since is None:
            found = await self._available(start, limits)
            if found is not None or self._target is not None:
                return found or start
        if self._waiting_since is not None:
            await self._scouts.wait(self._options.long_poll_ms / 1000)
        elif not await self._wait(start):
            return start
        return await self._available(start, limits) or start

    async def _available(self, start: StreamOffset, limits: Limits) -> StreamOffset | None:
        if self._is_quiet(start):
            return None
        # "latest" is behind what the cursors that were just made hold, so later than where the run was said to end.
        is_fixed = self._target is not None and start.init != LATEST
        ends = dict(self._target if self._target is not None and is_fixed else await self._ask())
        starts = await self._starts(start, ends)
        begins = {topic: starts.get(topic, start.topics.get(topic, BEGINNING)) for topic in ends}
        self._warn_beyond(begins, ends)
        # A topic whose messages were all deleted ends before it began.
        ends = {topic: max(end, begins[topic]) for topic, end in ends.items()}
        cuts: dict[str, tuple[ReadPosition, ...]] = {}
        if ends == begins:
            self._waiting_since = None  # what was waited with is gone
        if limits.are_any and start.init != LATEST and ends != begins:
            filled = await self._fill(begins, ends, limits)
            if filled is None:
                return None
            ends, cuts, unbegun = filled
            starts |= {topic: begins[topic] for topic in self._amid(start, starts, unbegun)}
        topics = {**start.topics, **ends}
        if start.init is None and topics == dict(start.topics):
            return None
        tasks_max = start.tasks_max or self._options.tasks_max
        time_from_ms = start.init if isinstance(start.init, int) else start.time_from_ms
        found = StreamOffset(topics, tasks_max, cuts, starts, time_from_ms=time_from_ms)
        if cuts or start.init == LATEST:
            return found
        return replace(found, divisions=await divisions_of(self._probes, ranges_of(start, found), tasks_max))

    def _amid(
        self, start: StreamOffset, starts: Mapping[str, ReadPosition], unbegun: Mapping[str, set[str | bytes]]
    ) -> list[str]:
        """Topics of which the batch goes on within messages that had no beginning when they were read first.

        So it is no loss that they have none: it is as of the first batch, which a limit cut. Where this query was
        stopped in between nobody knows it any more.
        """
        found = []
        for topic, uuids in unbegun.items():
            if start.init is not None or topic in starts or start.topics.get(topic, BEGINNING) == BEGINNING:
                self._unbegun[topic] = uuids
            elif uuids <= self._unbegun.get(topic, set()):
                found.append(topic)
        return found

    def _warn_beyond(self, begins: Mapping[str, ReadPosition], ends: Mapping[str, ReadPosition]) -> None:
        fresh = {topic: end for topic, end in ends.items() if topic not in self._compared}
        self._compared.update(topic for topic, end in fresh.items() if end > BEGINNING)
        warn_beyond("the query's offset", begins, fresh)

    async def _starts(self, start: StreamOffset, ends: Mapping[str, ReadPosition]) -> dict[str, ReadPosition]:
        """Where a batch begins if not where the last one ended; goes into its offset, so that a replay means the same.

        It is what a symbolic start means now, and the beginning of topics that are read for the first time, or were
        deleted and made anew.
        """
        if start.init == LATEST:
            return {}
        if start.init == EARLIEST:
            found = {topic: self._probes[topic].first for topic in ends if topic in self._probes}
        elif isinstance(start.init, int):
            found = await starts_at_time(self._client, ends, start.init, self._options.reader)
        else:
            read = start.topics
            anew = {topic for topic, was in self._renewed.items() if read.get(topic) == was and topic in ends}
            new = [topic for topic, end in ends.items() if read.get(topic, BEGINNING) == BEGINNING < end]
            found = {**dict.fromkeys(anew, BEGINNING), **await self._beginnings({*anew, *new})}
        return {topic: min(position, ends[topic]) for topic, position in found.items()}

    async def _beginnings(self, topics: set[str]) -> dict[str, ReadPosition]:
        """Where the topics begin now, as far as brokers say: "its beginning" would be wherever it is at a replay."""
        reader = self._options.reader
        found: dict[str, ReadPosition] = {}
        if reader.is_read_compacted:  # such a topic begins before its first ledger
            return found

        async def ask(topic: str) -> None:
            first = await first_position(self._client, topic, reader.name)
            if first is not None:
                found[topic] = first

        await in_parallel(topics, ask)
        return found

    async def _fill(
        self, begins: Mapping[str, ReadPosition], ends: Mapping[str, ReadPosition], limits: Limits
    ) -> tuple[dict[str, ReadPosition], dict[str, tuple[ReadPosition, ...]], dict[str, set[str | bytes]]] | None:
        """A batch within the limits, its cuts, and messages that do not begin in it; None: too little for now."""
        least = limits.messages_min if self._target is None else 0
        only_least = least and not (limits.bytes_max or limits.messages_max or limits.bytes_per_task)
        # To know whether there are enough, no more than enough must be counted.
        asked = replace(limits, messages_max=least) if only_least else limits
        budget, is_all = await self._scouts.fill(begins, ends, asked)
        now = self._clock.monotonic() * 1000
        if self._waiting_since is None:
            self._waiting_since = now
        if budget.messages < least and is_all and now - self._waiting_since < self._options.max_trigger_delay_ms:
            return None
        self._waiting_since = None
        if is_all or only_least:
            # Behind the last entry there may be some that readers never get: they are done with, too.
            found = dict(ends)
        else:
            found = {topic: budget.ends.get(topic, begins[topic]) for topic in ends}
        return found, {topic: tuple(cuts) for topic, cuts in budget.cuts.items()}, budget.unbegun

    async def _ask(self) -> dict[str, ReadPosition]:
        self.known_ends = await ends_of([self._probes[topic] for topic in self._topics])
        self._lag.saw(self.known_ends, self._clock.monotonic() * 1000)
        return self.known_ends

    async def prepare_available_now(self) -> None:
        """Fix the end of this run: what is there now."""
        await self._discover(None)
        self._target = dict(await self._ask())

    # ---- topics

    async def _discover(self, start: StreamOffset | None) -> None:
        """Look for topics when it is time to, and hold them against the offset that a batch begins at.

        One way for every trigger. None: there is no offset yet, that is made up for as soon as there is one. With
        AvailableNow topics are looked for once, and again if one is missed; what came meanwhile is for the next run.
        """
        now = self._clock.monotonic() * 1000
        interval_ms = self._options.topics.discovery_interval_ms if self._target is None else float("inf")
        if now - self._discovered_at >= interval_ms:
            topics = await find_topics(self._client, self._options.topics)
            self._discovered_at = now
            self._topics = [topic for topic in topics if self._target is None or topic in self._target]
            self._has_checked = False
            gone = {topic for topic, probe in self._probes.items() if probe.is_gone}
            if gone and start is not None:  # also what is there again by now
                await self._forget_deleted(start, set(self._topics) - gone)
            for topic in self._topics:
                self._probe(topic)
        if start is None:
            return
        if not self._has_checked:
            given = self._options.start
            if given.init is None and start.init is None and dict(start.topics) == dict(given.topics):
                check_given("startingOffsets", given.topics, self._topics)  # later ones are the query's own
            await self._forget_deleted(start, set(self._topics))
            self._has_checked = True
        await self._subscribe(start)

    def _probe(self, topic: str) -> Probe:
        found = self._probes.get(topic)
        if found is None:
            reader = self._options.reader
            found = Probe(self._client, topic, reader.name, is_read_compacted=reader.is_read_compacted)
            self._probes[topic] = found
        return found

    async def _forget_deleted(self, start: StreamOffset, topics: set[str]) -> None:
        """Topics that were read and are gone: loss, unless this run saw that they were read to their end.

        Those that the options do not name any more are left by whoever changed the options.
        """
        read = start.topics
        for topic in sorted((set(self._probes) | set(read)) - topics - self._deleted - self._left):
            if not self._options.topics.includes(topic):
                self._left.add(topic)
                _log.warning(
                    "%s is none of the topics that the options name any more: it is left at %s, where the query goes "
                    "on if it is named again%s",
                    topic,
                    read.get(topic, BEGINNING),
                    f"; subscription {self._options.subscription} stays and holds its messages"
                    if self._cursors
                    else "",
                )
                continue
            is_known = topic in self.known_ends and self.known_ends[topic] <= read.get(topic, BEGINNING)
            text = f"{topic} was deleted, and perhaps not everything behind {read.get(topic, BEGINNING)} was read"
            if is_known:
                _log.info("%s was deleted; everything in it was read", topic)
            elif self._options.reader.fail_on_data_loss:
                raise DataLossError(f"{text}. Set failOnDataLoss=false to go on without it")
            else:
                _log.warning("%s (failOnDataLoss=false)", text)
            self._deleted.add(topic)
            self._compared.discard(topic)
            self._unbegun.pop(topic, None)
            self.known_ends.pop(topic, None)
            if self._target is not None:
                self._target.pop(topic, None)
            for gone in (self._probes.pop(topic, None), self._watches.pop(topic, None)):
                if gone is not None:
                    await (gone.close() if isinstance(gone, Probe) else gone.stream.close())
            await self._scouts.forget(topic)
            if self._cursors is not None:
                await self._cursors.forget(topic)
        self._renewed.update((topic, read[topic]) for topic in self._deleted & topics & set(read))
        self._deleted -= topics

    async def _subscribe(self, start: StreamOffset) -> None:
        if self._cursors is None:
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "a stream without the option subscription: nothing holds its messages but the topics' retention. "
                    "On a topic without retention they can be deleted before they are read, which fails the query "
                    "(failOnDataLoss)"
                )
            return
        # A new topic is read from its beginning, be the stream's start the latest message.
        await self._cursors.create(self._topics, from_earliest=start.init != LATEST)

    # ---- waiting

    def _is_quiet(self, start: StreamOffset) -> bool:
        """Whether watches stand at ``start`` and none rang."""
        if start.init is not None or self._target is not None or not self._topics:
            return False
        for topic in self._topics:
            watch = self._watches.get(topic)
            if watch is None or watch.at != start.topics.get(topic) or watch.stream.on_arrival().done():
                return False
        return True

    async def _wait(self, start: StreamOffset) -> bool:
        """Whether something came within ``longPollMs``."""
        if start.init is not None or self._options.long_poll_ms <= 0:
            return False
        await in_parallel(self._topics, lambda topic: self._watch(topic, start.topics.get(topic, BEGINNING)))
        waiting = [watch.stream.on_arrival() for watch in self._watches.values()]
        if not waiting:
            return False
        done, _ = await asyncio.wait(
            waiting, timeout=self._options.long_poll_ms / 1000, return_when=asyncio.FIRST_COMPLETED
        )
        return bool(done)

    async def _watch(self, topic: str, at: ReadPosition) -> None:
        watch = self._watches.get(topic)
        if watch is not None:
            if watch.at == at and not watch.stream.on_arrival().done():
                return
            del self._watches[topic]
            await watch.stream.close()
        reader = self._options.reader
        self._watches[topic] = _Watch(
            await open_watch(self._client, topic, at, reader.name, is_read_compacted=reader.is_read_compacted), at
        )

    # ---- planned, done, over

    async def plan(self, start: StreamOffset, end: StreamOffset) -> list[TaskPlan]:
        """The tasks of a batch, new or replayed. Raises DataLossError if messages of it are gone."""
        if self._cursors is not None and not self._has_checked:
            # A replayed batch comes before anybody asks for the next one: the cursors are its proof, too. The next one
            # is what the topics are held against, and what is new by then is read from its beginning.
            await self._discover(None)
            await self._cursors.create(self._topics, from_earliest=True)
        tasks = plan(start, end)
        firsts = [one for task in tasks for one in task if one.is_first and one.start.ledger_id >= 0]
        checked: set[str] = set()

        async def check(one: TopicRange) -> None:
            if await self._is_start_there(one):
                checked.add(one.topic)

        await in_parallel(firsts, check)
        self._has_planned = True
        return [
            TaskPlan(
                task,
                frozenset(one.topic for one in task if one.topic in checked),
                end.time_from_ms,
                frozenset(one.topic for one in task if start.is_first_of(one.topic, end)),
            )
            for task in tasks
        ]

    async def _is_start_there(self, one: TopicRange) -> bool:
        """Whether nothing from the start on can be missing, nor go before it is read; False: the task has to look."""
        if self._has_planned and one.start.ledger_id == one.end.ledger_id:
            return False  # the task looks only if what it gets first is of another ledger
        watch = self._watches.get(one.topic)
        is_kept = watch is not None and watch.stream.is_attached and watch.stream.attached_count == 1
        if watch is not None and watch.at == one.start and is_kept:
            # Its next message was pushed to us as it came. It may go yet: if it lies in the ledger of the start, the
            # task finds that missing.
            first_seen = watch.stream.first_seen
            return first_seen is None or first_seen[0] != one.start.ledger_id
        if self._cursors is not None and await self._cursors.holds(one.topic, one.start, self._probe(one.topic)):
            return True
        try:
            first = await first_position(self._client, one.topic, self._options.reader.name)
        except TopicNotFound:
            return False  # deleted: the task says what that means
        if await self._is_held_though_left(one):
            return True
        if first is None or first.ledger_id <= one.start.ledger_id:
            return False  # it is there now, and may be gone when the task comes
        if await is_held_compacted(self._client, one.topic, first, self._options.reader):
            return True
        text = lost_text(one.topic, one.start, first)
        if self._options.reader.fail_on_data_loss:
            raise DataLossError(text)
        _log.warning("%s (failOnDataLoss=false)", text)
        return True

    async def _is_held_though_left(self, one: TopicRange) -> bool:
        """Of a topic in a replayed batch that the options leave out since: its cursor is as good a proof."""
        if self._cursors is None or one.topic in self._topics:
            return False
        try:
            await self._cursors.create([one.topic], from_earliest=True)
            return await self._cursors.holds(one.topic, one.start, self._probe(one.topic))
        finally:
            await self._cursors.forget(one.topic)

    async def commit(self, end: StreamOffset) -> None:
        """Spark has finished everything before ``end``: the durable cursor may move."""
        if self._cursors is not None:
            if not self._has_checked:
                await self._discover(end)
            ends = {topic: end.topics[topic] for topic in self._topics if topic in end.topics}
            await self._cursors.commit(ends, self._whole_before)

    async def _whole_before(self, topic: str, at: tuple[int, int] | None, end: ReadPosition) -> ReadPosition:
        """``end``, or before that where the first chunked message begins that is not whole there.

        The task that reads it to its end needs its first pieces, which may lie in a ledger that goes with the cursor.
        """
        is_in_its_ledger = at is not None and at[0] == end.ledger_id
        planned = self._planned.get(topic, BEGINNING)
        if is_in_its_ledger and planned.ledger_id == end.ledger_id and end < planned:
            return end  # the ledger has more, and stays
        lengths = await self._probe(topic).ledger_lengths(max(0, at[0] if at is not None else end.ledger_id))
        if is_in_its_ledger and any(one == end.ledger_id and end.entry_id < entries for one, entries in lengths):
            return end
        start = entries_before(end, lengths, FIRST_STEP_ENTRIES)
        window = window_of(len(self._topics))
        begin = await begin_of_unfinished(self._client, topic, start, end, self._options.reader, window)
        if begin == BEGINNING:
            return BEGINNING if at is None else ReadPosition(*at)
        return begin or end

    async def close(self) -> None:
        """Leave the broker."""
        watches, self._watches = self._watches, {}
        await in_parallel([watch.stream for watch in watches.values()], EntryStream.close)
        await self._scouts.close()
        probes, self._probes = self._probes, {}
        await in_parallel(probes.values(), Probe.close)
        if self._cursors is not None:
            await self._cursors.close()
