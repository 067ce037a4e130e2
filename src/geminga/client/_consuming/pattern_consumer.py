"""Topics by pattern: looked up at the start, added and removed as they come and go.

Where the broker has watches (and the mode is persistent topics, the only ones it watches), it tells of topics at once;
else the list is asked for from time to time. A watch ends with its connection: it is opened again, and the list is
asked for if its hash is not the one we know. The broker says with each update which list it comes to, too, so that
nothing is missed for long; and as its own notifications may be lost, the list is asked for now and then all the same.

A topic that was deleted is left, never created again by subscribing.
"""

from __future__ import annotations

import asyncio
from typing import Final, cast

from geminga.client._api.errors import NotAllowedError, OperationNotSupported, TopicNotFound
from geminga.client._consuming.multi_consumer import TopicSet
from geminga.client._consuming.topic_list_watch import TopicListWatch
from geminga.client._messages.consumer_options import ConsumerOptions, RegexSubscriptionMode
from geminga.client._transport.cluster import Cluster
from geminga.client.consumer_rules.topic_pattern import TopicPattern, changes
from geminga.client.rules.backoff import Backoff
from geminga.model import TopicName
from geminga.runtime import Raised, attempt_await, get_logger, set_within, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import topics_hash

_log = get_logger(__name__)

#: While a watch stands, the list is asked for so many times rarer.
WATCHED_PERIODS: Final = 10


class PatternTopics:
    """Keeps the topics of a consumer those that match."""

    __slots__ = (
        "_about",
        "_backoff",
        "_cluster",
        "_found",
        "_gone",
        "_hash",
        "_is_missed",
        "_is_stale",
        "_names",
        "_options",
        "_pattern",
        "_refused",
        "_task",
        "_topics",
        "_watch",
        "_woken",
    )

    def __init__(self, cluster: Cluster, options: ConsumerOptions, topics: TopicSet, pattern: TopicPattern) -> None:
        self._cluster = cluster
        self._options = options
        #: For the log.
        self._about = pattern.expression
        self._topics = topics
        topics.is_by_pattern = True
        self._pattern = pattern
        #: The broker's hash of the whole namespace's list; empty unless what we have came from that very list.
        self._hash = ""
        #: Matching topics and partitions, as the broker names them.
        self._names: set[str] = set()
        #: Those of the consumer's topics that came by the pattern.
        self._found: set[str] = set()
        #: Matching ones that could not be had when they were tried last.
        self._refused: set[str] = set()
        #: Topics whose consumers were told that they do not exist, or partitions of theirs.
        self._gone: list[TopicName] = []
        #: What is known here may not be what is: ask for the list.
        self._is_stale = False
        #: A topic of the last list was not there any more.
        self._is_missed = False
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(cluster.options.initial_backoff_ms, cluster.options.maximum_backoff_ms)
        self._watch: TopicListWatch | None = None
        if options.regex_subscription_mode is RegexSubscriptionMode.PersistentOnly:
            self._watch = TopicListWatch(cluster, pattern.namespace, pattern.text_for_brokers, self._woken.set)

    @property
    def is_watching(self) -> bool:
        """Whether the broker tells of changes by itself now."""
        return self._watch is not None and self._watch.is_open

    async def discover(self) -> None:
        """Look now, and subscribe to what matches and leave what is gone; raises what goes wrong."""
        mode: int = self._options.regex_subscription_mode
        self._is_stale = True
        found = await self._cluster.lookup.topics_of_namespace(
            self._pattern.namespace, cast("pb.CommandGetTopicsOfNamespace.Mode", mode), topics_hash=self._hash
        )
        self._is_missed = False
        if found.is_changed or not self._hash:
            self._hash = ""
            self._names = self._pattern.matching(found.topics)
            await self._follow()
            # What was deleted meanwhile may be there again the next time, when its list is this very one.
            self._hash = "" if self._is_missed else found.topics_hash
        self._is_stale = self._is_missed

    def start(self) -> None:
        """Have oneself told, or look from time to time."""
        if self._options.pattern_auto_discovery_period_ms:
            self._woken.set()
            self._task = spawn(self._repeat(), name=f"topics of {self._about}")

    def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._watch is not None:
            self._watch.close()

    def on_topic_gone(self, topic: TopicName) -> None:
        """The broker does not know the topic any more."""
        self._gone.append(topic)
        self._woken.set()

    # ---- the task

    async def _repeat(self) -> None:
        clock, rng = self._cluster.runtime.clock, self._cluster.runtime.rng
        period_ms: float = self._options.pattern_auto_discovery_period_ms
        delay_ms = period_ms
        while True:
            if not await set_within(self._woken, delay_ms / 1000):
                self._is_stale = True
            self._woken.clear()
            if await self._is_caught_up():
                self._backoff.reset()
                delay_ms = period_ms * WATCHED_PERIODS if self.is_watching else period_ms
            else:
                delay_ms = min(period_ms, self._backoff.next_ms(clock.monotonic() * 1000, rng.random()))

    async def _is_caught_up(self) -> bool:
        outcome = await attempt_await(self._catch_up())
        if isinstance(outcome, Raised):
            _log.info("topics of %s: %s", self._about, outcome)
            return False
        return True

    async def _catch_up(self) -> None:
        gone, self._gone = self._gone, []
        for topic in gone:
            name = str(topic.partitioned_topic)
            _log.info("%s is gone from %s", name, self._about)
            await self._topics.remove(name)
            self._found.discard(name)
            # Whatever the hash says: it may be there again.
            self._is_stale, self._hash = True, ""
        watch = self._watch
        if watch is not None:
            if watch.has_missed:
                self._is_stale = True
            if not watch.is_open:
                await self._open(watch)
            for update in watch.take():
                await self._apply(update)
        if self._is_stale:
            await self.discover()

    async def _open(self, watch: TopicListWatch) -> None:
        try:
            is_known = await watch.open(topics_hash(sorted(self._names)))
        except OperationNotSupported as error:
            _log.debug("topics of %s: %s", self._about, error)
        except NotAllowedError as error:
            _log.info("topics of %s are asked for from time to time: %s", self._about, error)
            self._watch = None
        else:
            self._is_stale = self._is_stale or not is_known

    async def _apply(self, update: pb.CommandWatchTopicUpdate) -> None:
        self._hash = ""
        came = self._pattern.matching(update.new_topics)
        self._names = (self._names - set(update.deleted_topics)) | came
        if topics_hash(sorted(self._names)) != update.topics_hash:
            self._is_stale = True
        await self._follow()

    # ---- topics

    async def _follow(self) -> None:
        """The consumer's topics become those of the names."""
        partitions = sum(TopicName.parse(name).is_partition for name in self._names)
        wanted = self._pattern.topics(self._names)
        came, went = changes(self._found, wanted)
        self._refused &= wanted
        for topic in went:
            await self._topics.remove(topic)
            self._found.discard(topic)
        failure = await self._add([topic for topic in came if topic not in self._refused])
        # Apart from the others, which are closed again where one fails.
        refused = [topic for topic in came if topic in self._refused]
        failure = await self._add_one_by_one(refused) or failure
        if partitions > self._topics.partition_count:
            await self._topics.update_partitions()
        self._topics.start_updates()
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # see runtime's value_of

    async def _add(self, topics: list[str]) -> Exception | None:
        """Subscribe to topics, in which one that can not be had (others hold the subscription, the schema takes it
        not) keeps no other away; what went wrong first."""
        if not topics:
            return None
        added = await attempt_await(self._topics.add(map(TopicName.parse, topics)))
        if not isinstance(added, Raised):
            self._found.update(topics)
            return None
        # Who begins gets all of them, or is told; but for one that was deleted since it was listed.
        if self._task is None and not isinstance(added.error, TopicNotFound):
            return added.error
        return await self._add_one_by_one(topics)

    async def _add_one_by_one(self, topics: list[str]) -> Exception | None:
        failure: Exception | None = None
        for topic in topics:
            self._refused.discard(topic)
            added = await attempt_await(self._topics.add([TopicName.parse(topic)]))
            if not isinstance(added, Raised):
                self._found.add(topic)
            elif isinstance(added.error, TopicNotFound):
                self._is_stale = self._is_missed = True
            else:
                self._refused.add(topic)
                failure = failure or added.error
        return failure
