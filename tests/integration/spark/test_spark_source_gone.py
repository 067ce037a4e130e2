"""Topics and subscriptions that somebody deletes under a query, or while it is stopped: an error, or nothing is lost.

Without a JVM.
"""

from __future__ import annotations

import json
from itertools import count

import pytest

import geminga
from geminga.client import TopicNotFound
from geminga.client.blocking import Client
from geminga.spark.source_rules.errors import DataLossError, TopicError
from pyspark_geminga import DefaultSource
from support.connector.rolled_topics import LEDGER_ENTRIES, backlog, publish, subscriptions, trim
from support.connector.spark_source import Stream, read_batch, rows_of, values
from support.house.waiting import until
from support.processes.raw_protocol import publish_entry
from support.worlds.rest import Rest

_names = count(1)


@pytest.fixture
def options(options) -> dict[str, str]:
    return {**options, "subscription": "mine"}


def delete(broker: geminga.Standalone, topic: str, what: str = "") -> None:
    name = topic.removeprefix("persistent://")
    assert Rest(broker.web_service_url).call("DELETE", f"persistent/{name}{what}?force=true").status == 204


@pytest.mark.parametrize("is_stopped", [True, False])
def test_subscription_that_was_deleted_with_unread_messages_is_loss(broker, client, topic, options, is_stopped) -> None:
    """What is made in its place begins behind what is gone, and is no proof that all of that was read."""
    publish(client, topic, 5)
    stream = Stream(options)
    assert len(stream.batch()) == 5
    stream.commit()
    if is_stopped:
        stream.reader.stop()
    publish(client, topic, 5, first=5)
    delete(broker, topic, "/subscription/mine")
    publish(client, topic, 2 * LEDGER_ENTRIES, first=100)
    trim(broker, topic)
    if is_stopped:
        stream.restart()
    with pytest.raises(DataLossError, match=r"are gone.*the topic or its subscription was deleted"):
        stream.batch()
    stream.restart(failOnDataLoss="false")
    assert values(stream.read())[-1] == b"%d" % (99 + 2 * LEDGER_ENTRIES)
    stream.stop()


def test_subscription_whose_ledger_went_when_all_was_read_is_proof(broker, client, topic, options) -> None:
    """Also of a query that starts anew, when nobody remembers the ledger, and of a topic that was unloaded."""
    publish(client, topic, LEDGER_ENTRIES)
    stream = Stream(options)
    assert len(stream.batch()) == LEDGER_ENTRIES
    stream.commit()
    stream.reader.stop()
    sent = publish(client, topic, 3, first=100)
    trim(broker, topic)
    assert Rest(broker.web_service_url).put(f"persistent/{topic.removeprefix('persistent://')}/unload").status == 204
    stream.restart()
    assert values(stream.batch()) == sent
    stream.stop()


@pytest.mark.parametrize("is_available_now", [False, True])
def test_replayed_batch_behind_a_ledger_that_went_when_all_was_read_has_its_proof_too(
    broker, client, topic, options, is_available_now
) -> None:
    """A batch that was planned and not committed comes before anybody asked for the next one."""
    publish(client, topic, LEDGER_ENTRIES)
    stream = Stream(options, is_available_now=is_available_now)
    assert len(stream.batch()) == LEDGER_ENTRIES
    sent = publish(client, topic, 3, first=100)
    stream.restart()
    assert stream.plan()
    stream.commit(-2)
    trim(broker, topic)
    for _ in range(2):
        stream.restart()
        assert values(stream.read()) == sent
    stream.stop()


@pytest.mark.parametrize("is_available_now", [False, True])
def test_replayed_batch_of_a_subscription_that_was_deleted_with_it_is_loss(
    broker, client, topic, options, is_available_now
) -> None:
    publish(client, topic, 5)
    stream = Stream(options, is_available_now=is_available_now)
    assert len(stream.batch()) == 5
    publish(client, topic, 5, first=5)
    stream.restart()
    assert stream.plan()
    stream.commit(-2)
    stream.reader.stop()
    delete(broker, topic, "/subscription/mine")
    publish(client, topic, 2 * LEDGER_ENTRIES, first=100)
    trim(broker, topic)
    stream.restart()
    with pytest.raises(DataLossError, match=r"are gone.*the topic or its subscription was deleted"):
        stream.read()
    stream.stop()


def test_topic_that_is_new_at_a_replay_of_the_first_batch_is_held_from_its_beginning(
    broker, client, topic, options
) -> None:
    """It is read from its beginning, though the stream began at the latest message."""
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 3)
    stream = Stream({**options, "topic": "", "topics": f"{topic}-a", "startingOffsets": "latest"})
    assert stream.plan()
    stream.restart(topics=f"{topic}-a,{topic}-b")
    assert stream.read() == []
    assert backlog(broker, f"{topic}-b", "mine") == 3
    assert len(stream.batch()) == 3
    stream.stop()


@pytest.mark.parametrize("is_available_now", [False, True])
def test_topic_that_was_deleted_before_a_replay_that_has_nothing_of_it_is_loss(
    broker, client, topic, options, is_available_now
) -> None:
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 3)
    given = {**options, "topic": "", "topicsPattern": f"{topic}-.", "startingOffsets": "latest"}
    stream = Stream(given, is_available_now=is_available_now)
    assert stream.plan()
    publish(client, f"{topic}-b", 5)
    stream.reader.stop()
    delete(broker, f"{topic}-b")
    stream.restart()
    assert stream.read() == []
    with pytest.raises(DataLossError, match=f"{topic}-b was deleted"):
        stream.plan()
    stream.stop()


@pytest.mark.parametrize("is_gone_when_planned", [True, False])
def test_replayed_batch_of_a_topic_that_the_options_leave_out_since_has_its_proof_too(
    broker, client, topic, options, is_gone_when_planned
) -> None:
    for letter in "ab":
        publish(client, f"{topic}-{letter}", LEDGER_ENTRIES)
    stream = Stream({**options, "topic": "", "topics": f"{topic}-a,{topic}-b"})
    assert len(stream.batch()) == 2 * LEDGER_ENTRIES
    sent = publish(client, f"{topic}-b", 3, first=100)
    stream.restart()
    assert stream.plan()
    stream.commit(-2)
    if is_gone_when_planned:
        trim(broker, f"{topic}-b")
    stream.restart(topics=f"{topic}-a")
    parts = stream.reader.partitions(stream.start_of(1), json.loads(stream.log[1]))
    trim(broker, f"{topic}-b")
    assert values(rows_of(stream.reader, list(parts))) == sent
    assert not stream.plan()
    stream.stop()


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_planned_batch_of_a_new_topic_whose_ledger_is_deleted_before_it_is_read_fails(
    broker, client, topic, options, is_restarted, is_held
) -> None:
    """Where such a topic begins is in the offset: "its beginning" would be what is left of it."""
    given = options if is_held else {name: value for name, value in options.items() if name != "subscription"}
    given = {**given, "topic": "", "topicsPattern": f"{topic}-.", "topicDiscoveryIntervalMs": "0", "numPartitions": "1"}
    publish(client, f"{topic}-a", 3)
    stream = Stream(given)
    assert stream.plan()
    with client.subscribe(f"{topic}-b", "keep") as keep:
        publish(client, f"{topic}-b", LEDGER_ENTRIES - 3)
        assert stream.plan()
        publish(client, f"{topic}-b", LEDGER_ENTRIES, first=100)
        keep.unsubscribe()
    if is_held:
        delete(broker, f"{topic}-b", "/subscription/mine")
    trim(broker, f"{topic}-b")
    if is_restarted:
        stream.restart()
    with pytest.raises(DataLossError, match="are gone"):
        stream.read()
    stream.stop()


def publish_chunked(client: Client, topic: str, size: int) -> bytes:
    value = b"x" * size
    options = {"batching_enabled": False, "chunking_enabled": True, "chunk_max_message_size": 4096}
    with client.create_producer(topic, **options) as producer:
        producer.send(value)
    return value


@pytest.mark.parametrize("more", [1, LEDGER_ENTRIES])
@pytest.mark.parametrize("limit", [4000, 9000, 13_000])
def test_cursor_holds_the_beginning_of_a_chunked_message_that_is_not_read_yet(
    broker, client, topic, options, limit, more
) -> None:
    """Batches end anywhere, also between chunks: their ledger must stay until the last one is read."""
    publish(client, topic, 1)
    stream = Stream({**options, "maxBytesPerTrigger": str(limit)})
    assert len(stream.batch()) == 1
    publish(client, topic, LEDGER_ENTRIES - 4)
    sent = publish_chunked(client, topic, 30_000)
    behind = publish(client, topic, more, first=100)
    found: list[bytes] = []
    for rows in stream.batches():
        found += values(rows)
        trim(broker, topic)
    assert found[LEDGER_ENTRIES - 4 :] == [sent, *behind]
    publish(client, topic, 1)
    assert stream.batch()
    assert backlog(broker, topic, "mine") == 1
    stream.stop()


def test_cursor_of_a_topic_that_pauses_in_the_middle_of_a_chunked_message_holds_it(
    broker, client, topic, options
) -> None:
    """At the very end of a ledger, while other topics go on: nobody knows yet what comes."""
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        publish(client, name, 1)
    stream = Stream({**options, "topic": "", "topics": ",".join(names)})
    assert len(stream.batch()) == 2
    publish(client, names[0], LEDGER_ENTRIES - 4)
    chunk = {"uuid": "u", "num_chunks_from_msg": 6, "total_chunk_msg_size": 6}
    for number in range(3):
        publish_entry(broker, names[0], b"x", chunk_id=number, **chunk)
    assert len(stream.batch()) == LEDGER_ENTRIES - 4
    publish(client, names[1], 1)
    assert len(stream.batch()) == 1
    for number in range(3, 6):
        publish_entry(broker, names[0], b"x", chunk_id=number, **chunk)
    trim(broker, names[0])
    assert values(stream.batch()) == [b"xxxxxx"]
    stream.stop()


@pytest.mark.parametrize("tasks", ["1", "4"])
def test_chunked_message_whose_beginning_went_before_a_query_began_is_none_of_its(
    broker, client, topic, options, tasks
) -> None:
    publish(client, topic, LEDGER_ENTRIES - 3)
    publish_chunked(client, topic, 30_000)
    sent = publish(client, topic, 2)
    trim(broker, topic)
    stream = Stream({**options, "numPartitions": tasks})
    assert values(stream.batch()) == sent
    stream.restart()
    assert values(stream.read()) == sent
    stream.stop()
    batch = {name: value for name, value in options.items() if name not in ("longPollMs", "subscription")}
    assert values(read_batch(batch)) == sent
    given = json.dumps({topic: f"{stream.offset().topics[topic].ledger_id}:2:0"})
    with pytest.raises(DataLossError, match="has no beginning any more"):
        read_batch({**batch, "startingOffsets": given})


@pytest.mark.parametrize("limit", [1000, 6000, 13_000])
def test_a_limit_within_a_chunked_message_whose_beginning_went_before_a_query_began_is_no_loss(
    broker, client, topic, options, limit
) -> None:
    """The second batch began within it, and took it for a loss."""
    publish(client, topic, LEDGER_ENTRIES - 3)
    publish_chunked(client, topic, 60_000)
    sent = publish(client, topic, 2)
    trim(broker, topic)
    stream = Stream({**options, "maxBytesPerTrigger": str(limit)})
    batches = [values(rows) for rows in stream.batches()]
    assert [value for batch in batches for value in batch] == sent
    assert len(batches) > 1
    # A query that starts anew and has one of them still to do gives the same.
    stream.restart()
    assert [values(stream.read(number)) for number in range(len(batches))] == batches
    stream.stop()


@pytest.mark.parametrize("limit", [{}, {"maxMessagesPerTrigger": "5"}])
@pytest.mark.parametrize("is_held", [True, False])
def test_topic_made_anew_before_it_was_read_to_its_end_is_loss(broker, client, topic, options, limit, is_held) -> None:
    publish(client, topic, 10 if limit else 5)
    given = options if is_held else {name: value for name, value in options.items() if name != "subscription"}
    stream = Stream({**given, **limit})
    assert len(stream.batch()) == 5
    if not limit:
        publish(client, topic, 5, first=5)
    delete(broker, topic)
    publish(client, topic, 3, first=100)
    with pytest.raises(DataLossError, match="are gone"):
        stream.batch()
    stream.stop()


@pytest.mark.parametrize("is_held", [True, False])
def test_topic_of_a_pattern_made_anew_after_it_was_read_is_read_from_its_beginning(
    broker, client, topic, options, is_held
) -> None:
    given = options if is_held else {name: value for name, value in options.items() if name != "subscription"}
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 3)
    stream = Stream({**given, "topic": "", "topicsPattern": f"{topic}-.", "topicDiscoveryIntervalMs": "0"})
    assert len(stream.batch()) == 6
    assert not stream.plan()
    for round_ in range(2):
        delete(broker, f"{topic}-a")
        publish(client, f"{topic}-b", 1, first=round_)
        assert values(stream.batch()) == [b"%d" % round_]
        sent = publish(client, f"{topic}-a", 2, first=50 + round_)
        rows = stream.batch()
        assert values(rows) == sent
        stream.restart()
        assert stream.read() == rows  # the offset says where the batch began, not what this run remembers
        assert not stream.plan()
    if is_held:
        assert "mine" in subscriptions(broker, f"{topic}-a")
    stream.stop()


def test_partitions_that_are_added_under_a_query_are_read_from_their_beginning_and_held(
    broker, client, topic, options
) -> None:
    rest, path = Rest(broker.web_service_url), f"persistent/{topic.removeprefix('persistent://')}/partitions"
    assert rest.put(path, 1).status in (200, 204)
    stream = Stream({**options, "topicDiscoveryIntervalMs": "0"})
    assert stream.plan()
    sent = publish(client, topic, 5)
    assert values(stream.batch()) == sent
    assert rest.call("POST", path, 3).status in (200, 204)
    publish(client, f"{topic}-partition-2", 1, first=9)
    assert values(stream.batch()) == [b"9"]
    assert "mine" in subscriptions(broker, f"{topic}-partition-2")
    stream.stop()


@pytest.mark.parametrize("number", [2 * LEDGER_ENTRIES + 10, 3 * LEDGER_ENTRIES])
def test_ledgers_that_go_while_a_task_reads_through_them_are_loss(broker, client, topic, options, number) -> None:
    """Retention takes what lies before the end of the range: what comes next, if anything, is from behind the gap."""
    keep = client.subscribe(topic, "keep")
    sent = publish(client, topic, number)
    given = {name: value for name, value in options.items() if name not in ("subscription", "longPollMs")}
    given |= {"numPartitions": "1", "arrowBatchBytes": "1", "pulsar.reader.receiverQueueSize": "2"}
    source = DefaultSource(options=given)
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    rows = reader.read(part)
    first = next(rows)
    publish(client, topic, 1, first=1000)
    keep.unsubscribe()
    trim(broker, topic)
    with pytest.raises(DataLossError, match="are gone"):
        list(rows)
    assert first.column(0).to_pylist() == sent[: first.num_rows]


#: How Spark prepares a run, by its trigger.
TRIGGERS = [False, True]


@pytest.mark.parametrize("is_available_now", TRIGGERS)
def test_topic_deleted_while_the_query_was_stopped_is_loss_with_every_trigger(
    broker, client, topic, options, is_available_now
) -> None:
    given = {**options, "topic": "", "topicsPattern": f"{topic}-."}
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 3)
    stream = Stream(given, is_available_now=is_available_now)
    assert len(stream.batch()) == 6
    publish(client, f"{topic}-b", 5)
    delete(broker, f"{topic}-b")
    stream.restart()
    with pytest.raises(DataLossError, match=f"{topic}-b was deleted"):
        stream.plan()
    stream.restart(failOnDataLoss="false")
    publish(client, f"{topic}-a", 1)
    assert len(stream.batch()) == 1 if not is_available_now else not stream.plan()
    stream.stop()


@pytest.mark.parametrize("is_there_again", [False, True])
def test_topic_deleted_under_a_run_that_reads_what_is_available_is_loss_or_left_out(
    broker, client, topic, options, is_there_again
) -> None:
    """Also where its own subscription made it again, in which that stands before all: nothing was read, in silence."""
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 3)
    given = {**options, "topic": "", "topicsPattern": f"{topic}-.", "maxMessagesPerTrigger": "2"}
    stream = Stream(given, is_available_now=True)
    assert len(stream.batch()) == 2
    delete(broker, f"{topic}-b")
    if is_there_again:
        until(lambda: "mine" in subscriptions(broker, f"{topic}-b"), "the query's consumer is there again")
    with pytest.raises(DataLossError, match=r"-b was deleted|-b: .*are gone"):
        list(stream.batches())
    stream.stop()


@pytest.mark.parametrize("is_available_now", TRIGGERS)
def test_position_of_a_topic_that_is_not_read_is_refused_with_every_trigger(
    broker, client, topic, options, is_available_now
) -> None:
    publish(client, topic, 3)
    given = {**options, "startingOffsets": json.dumps({f"{topic}-typo": "1:2:0"})}
    stream = Stream(given, is_available_now=is_available_now)
    with pytest.raises(TopicError, match=f"startingOffsets: {topic}-typo is none of the topics read"):
        stream.plan()
    stream.stop()


@pytest.mark.parametrize("is_available_now", TRIGGERS)
def test_topic_that_the_options_leave_out_is_left_where_it_was(
    broker, client, topic, options, is_available_now, caplog
) -> None:
    names = [f"{topic}-{letter}" for letter in "ab"]
    for name in names:
        publish(client, name, 3)
    stream = Stream({**options, "topic": "", "topics": ",".join(names)}, is_available_now=is_available_now)
    assert len(stream.batch()) == 6
    for name in names:
        publish(client, name, 2, first=3)
    stream.restart(topics=names[0])
    assert [row["__topic"] for row in stream.batch()] == [names[0]] * 2
    assert f"{names[1]} is none of the topics that the options name any more" in caplog.text
    stream.restart(topics=",".join(names))
    assert [(row["__topic"], row["value"]) for row in stream.batch()] == [(names[1], b"3"), (names[1], b"4")]
    stream.stop()


@pytest.mark.parametrize("is_available_now", TRIGGERS)
def test_stream_from_the_latest_message_on_holds_no_older_ones(
    broker, client, topic, options, is_available_now
) -> None:
    publish(client, topic, 3)
    stream = Stream({**options, "startingOffsets": "latest"}, is_available_now=is_available_now)
    assert stream.batch() == []
    stats = Rest(broker.web_service_url).get(f"persistent/{topic.removeprefix('persistent://')}/stats").json
    assert stats["subscriptions"]["mine"]["msgBacklog"] == 0
    sent = publish(client, topic, 2, first=3)
    stream.restart()
    assert values(stream.batch()) == sent
    stream.stop()


def test_log_of_what_queries_committed_is_no_topic_of_a_pattern(broker, client, topic, options) -> None:
    """A query whose pattern takes the namespace that it commits in would read its own commits, and commit them."""
    namespace = f"public/own-{next(_names)}"
    assert Rest(broker.web_service_url).put(f"namespaces/{namespace}").status == 204
    sent = publish(client, f"persistent://{namespace}/orders", 3)
    log = f"persistent://{namespace}/__spark_commits"
    publish(client, log, 2)
    given = {**options, "topic": "", "topicsPattern": f"{namespace}/.*", "topicDiscoveryIntervalMs": "0"}
    stream = Stream(given)
    assert values(stream.batch()) == sent
    publish(client, log, 2)
    assert not stream.plan()
    assert "mine" not in subscriptions(broker, log)
    stream.stop()
    assert len(values(Stream({**options, "topic": log}).batch())) == 4  # by its name it is read


def test_query_that_read_the_log_of_commits_by_a_pattern_goes_on_without_it(broker, client, topic, options) -> None:
    namespace = f"public/own-{next(_names)}"
    assert Rest(broker.web_service_url).put(f"namespaces/{namespace}").status == 204
    log, orders = (f"persistent://{namespace}/{name}" for name in ("__spark_commits", "orders"))
    publish(client, log, 2)
    publish(client, orders, 2)
    stream = Stream({**options, "topic": "", "topics": f"{log},{orders}"})
    assert len(stream.batch()) == 4
    stream.options.update(topics="", topicsPattern=f"{namespace}/.*")
    stream.restart()
    sent = publish(client, orders, 2)
    publish(client, log, 2)
    assert values(stream.batch()) == sent
    stream.stop()


@pytest.mark.parametrize("is_read", [True, False])
def test_topic_that_is_there_anew_as_soon_as_it_was_deleted_does_not_end_the_query(
    broker, client, topic, options, is_read
) -> None:
    """Whoever consumes from a topic that goes makes it anew, as the query's own subscription does: none is missed."""
    for letter in "ab":
        publish(client, f"{topic}-{letter}", 3)
    consumer = client.subscribe(f"{topic}-a", "other")
    stream = Stream({**options, "topic": "", "topicsPattern": f"{topic}-."})
    assert len(stream.batch()) == 6
    assert not stream.plan()
    driver = stream.reader._driver
    assert driver is not None
    if not is_read:
        publish(client, f"{topic}-a", 1, first=9)
        assert stream.plan()
        publish(client, f"{topic}-a", 1, first=10)
        driver.known_ends = {}  # nobody saw how far it went
    before = broker._broker().topics[f"{topic}-a"]
    delete(broker, f"{topic}-a")
    sent = publish(client, f"{topic}-a", 2, first=50)
    assert broker._broker().topics[f"{topic}-a"] is not before
    driver._probes[f"{topic}-a"]._stream.fail(
        TopicNotFound(f"Topic {topic}-a not found")
    )  # as it was told before the topic was there again
    if is_read:
        rows = next(rows for _ in range(200) if (rows := stream.batch()))  # its watch connects again first
        assert values(rows) == sent
        stream.restart()
        assert values(stream.read()) == sent
    else:
        with pytest.raises(DataLossError, match=f"{topic}-a was deleted"):
            stream.plan()
    consumer.close()
    stream.stop()
