"""Publishing to a log: what a turn brought is one append, what failed holds back what came behind it."""

from __future__ import annotations

from geminga.broker.publishing.life import TopicLife
from geminga.broker.topic.log_publishing import LogPublishing
from geminga.broker.topic.publish import PublishBatch, Refusal
from geminga.managed_ledger import AppendResult
from geminga.model.errors import DiskFullError, LedgerFencedError, NotAllowedError
from geminga.model.histogram import Latencies
from support.worlds.subscriptions import RecordedTopic, settle, with_topic


class Publisher:
    """A producer that keeps its answers."""

    def __init__(self, publishing: LogPublishing) -> None:
        self.publishing = publishing
        self.name = "p"
        self.producer_id = 1
        self.is_closed = False
        self.messages_in = self.bytes_in = 0
        self.is_refusing = False
        self.refused: list[Refusal] = []
        self.answered_batches = 0

    def begin(self, batch: PublishBatch, size_bytes: int) -> None:
        batch.size_bytes = size_bytes

    def refuse(self, batch: PublishBatch, refusal: Refusal) -> None:
        self.refused.append(refusal)

    def answered(self) -> None:
        self.answered_batches += 1

    def disconnect(self) -> None:
        self.is_closed = True

    def batch(self, *entries: bytes) -> PublishBatch:
        return PublishBatch(self, list(entries), [(at, at) for at in range(len(entries))], len(entries))


class Hooks:
    """The parts of a topic, as publishing asks them."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.admit = ()
        self.stored = (lambda batch, result: self.heard.append(f"stored {result.count}"),)
        self.failed = (lambda batch, error: self.heard.append(type(error).__name__),)
        self.settled = (lambda: self.heard.append("settled"),)

    def find(self, kind: type) -> None:
        """None of them."""


class Log:
    """A topic's log with its publishing."""

    def __init__(self, topic: RecordedTopic) -> None:
        self.unloaded: list[str] = []
        topic.services.publish_latency = Latencies()
        topic.services.unload_fenced = self.unload
        topic.services.whole = topic
        self.hooks = Hooks()
        self.life = TopicLife(topic.name, topic.services.runtime.clock)
        self.publishing = LogPublishing(topic.name, topic.services, topic.ledger, self.hooks, self.life, {}, topic)
        self.publisher = Publisher(self.publishing)

    async def unload(self, name: object) -> None:
        self.unloaded.append(str(name))


def test_batches_of_a_turn_are_one_append_and_are_counted_once_stored() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        log, calls = Log(topic), topic.bookie.add_calls
        log.publishing.publish(log.publisher.batch(b"a", b"bc"))
        log.publishing.publish(log.publisher.batch(b"def"))
        assert (log.publishing.pending_batches, log.publishing.messages_in) == (2, 0)
        await settle()
        assert topic.bookie.add_calls == calls + 1
        assert log.hooks.heard == ["stored 2", "stored 1", "settled"]
        assert (log.publishing.pending_batches, log.publishing.totals()) == (0, (3, 6))
        assert (log.publisher.messages_in, log.publisher.bytes_in, log.publisher.answered_batches) == (3, 6, 2)

    with_topic(scenario)


def test_what_is_refused_is_not_stored() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        log = Log(topic)

        def refuse(batch: PublishBatch) -> list[PublishBatch]:
            batch.refusal = Refusal(NotAllowedError("too large"))
            return [batch]

        log.hooks.admit = (refuse,)
        log.publishing.publish(log.publisher.batch(b"a"))
        await settle()
        assert len(log.publisher.refused) == 1
        assert (log.hooks.heard, topic.ledger.ledgers.entry_count) == ([], 0)

    with_topic(scenario)


def test_what_came_in_the_turn_of_a_failure_is_not_stored_either() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        log = Log(topic)
        failing = log.publisher.batch(b"a")
        log.publishing.pending_batches += 1
        log.publishing.publish(log.publisher.batch(b"b"))
        failing.appended(AppendResult(-1, -1, 0, 1, DiskFullError("full")))
        await settle()
        assert log.publisher.is_closed
        assert log.hooks.heard == ["DiskFullError", "DiskFullError", "settled"]
        assert (topic.ledger.ledgers.entry_count, log.unloaded) == (0, [])

    with_topic(scenario)


def test_entries_of_the_broker_lie_behind_what_was_published_before() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        log = Log(topic)
        log.publishing.publish(log.publisher.batch(b"a"))
        log.publishing.append_own([b"marker"], lambda result: None)
        await settle()
        entries = await topic.ledger.reader.read_range(topic.ledger.ledgers.first_position, 10, 1000)
        assert [bytes(entry.data) for entry in entries] == [b"a", b"marker"]

    with_topic(scenario)


def test_a_topic_that_another_broker_has_is_unloaded_unless_it_goes_already() -> None:
    async def scenario(topic: RecordedTopic) -> None:
        log = Log(topic)
        batch = log.publisher.batch(b"a")
        log.publishing.pending_batches += 1
        batch.appended(AppendResult(-1, -1, 0, 1, LedgerFencedError("opened by another")))
        await settle()
        assert log.unloaded == [str(topic.name)]
        log.life.close()
        log.publishing.fenced()
        await settle()
        assert log.unloaded == [str(topic.name)]

    with_topic(scenario)
