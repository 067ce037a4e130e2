"""What goes wrong with other sources, each prevented here: the durable cursor, reconnects, kills. Without a JVM.

The numbers in the comments are those of ``test_spark_source_traps.py``.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from geminga.client import ConnectError
from geminga.spark.process.clients import session_for
from geminga.spark.rules.client_options import ClientConfiguration
from geminga.spark.source.subscriptions import Cursors
from geminga.spark.source_rules.errors import SubscriptionBusyError
from support.connector.rolled_topics import LEDGER_ENTRIES, backlog, cut_connections, hold, publish, subscriptions, trim
from support.connector.spark_source import Stream, read_batch, values


def test_cursor_moves_only_when_spark_has_committed_and_the_last_batch_stays(broker, client, topic, options):
    # 17, 18; defect 4: the backlog never drained, as commit was a seek.
    publish(client, topic, 10)
    stream = Stream({**options, "subscription": "mine"})
    stream.plan()
    assert backlog(broker, topic, "mine") == 10
    stream.read()
    assert backlog(broker, topic, "mine") == 10
    publish(client, topic, 5, first=10)
    stream.batch()  # commits the first
    assert backlog(broker, topic, "mine") == 5
    stream.stop()
    assert backlog(broker, topic, "mine") == 5  # the last batch, until the next run
    stream.restart()
    publish(client, topic, 1, first=15)
    stream.batch()
    assert backlog(broker, topic, "mine") == 1
    stream.stop()


def test_restart_does_not_move_the_cursor(broker, client, topic, options):
    # Defect 3: each start set the cursor to startingOffsets, and what was not read yet could be deleted.
    publish(client, topic, 5)
    stream = Stream({**options, "startingOffsets": "latest", "subscription": "mine"})
    stream.batch()
    publish(client, topic, 2 * LEDGER_ENTRIES, first=5)
    stream.restart()
    assert not stream.reader.initialOffset().get("t")
    stream.plan()
    trim(broker, topic)
    assert len(stream.read()) == 2 * LEDGER_ENTRIES
    assert backlog(broker, topic, "mine") == 2 * LEDGER_ENTRIES
    stream.stop()


def test_what_came_between_stop_and_restart_is_held_by_the_cursor(broker, client, topic, options):
    # Defect 5: stop() deleted the cursor. 4: and stop() may not run at all.
    publish(client, topic, 5)
    stream = Stream({**options, "subscription": "mine"})
    stream.batch()
    stream.stop()
    sent = publish(client, topic, 3 * LEDGER_ENTRIES, first=5)
    trim(broker, topic)
    assert subscriptions(broker, topic) == ["mine"]
    stream.restart()
    assert values(stream.batch()) == sent
    stream.stop()


def test_subscription_of_a_running_query_is_refused_to_another_one(client, session, topic, options):
    publish(client, topic, 5)
    stream = Stream({**options, "subscription": "mine"})
    stream.batch()
    second = Cursors(session.client, "mine", busy_wait_s=0.2)
    with pytest.raises(SubscriptionBusyError, match="Is the query running already"):
        session.run(lambda: second.create([topic], from_earliest=True))
    stream.stop()
    session.run(lambda: second.create([topic], from_earliest=True))
    session.run(second.close)


def test_driver_that_starts_while_its_killed_predecessor_is_still_connected_waits_for_its_end(
    client, session, topic, options
):
    publish(client, topic, 5)
    stream = Stream({**options, "subscription": "mine"})
    stream.batch()
    successor = Cursors(session.client, "mine")
    created = asyncio.run_coroutine_threadsafe(successor.create([topic], from_earliest=True), session.thread.loop)
    other = Cursors(session.client, "mine", busy_wait_s=0.0)
    with pytest.raises(SubscriptionBusyError):
        session.run(lambda: other.create([topic], from_earliest=True))
    assert not created.done()
    stream.stop()
    created.result(10)
    session.run(successor.close)


def test_position_behind_the_end_is_said_once_in_a_batch_and_in_a_stream(client, topic, options, caplog):
    publish(client, topic, 5)
    beyond = json.dumps({topic: "999999:0:0"})
    assert read_batch({**options, "startingOffsets": beyond}) == []
    assert len(read_batch({**options, "endingOffsets": beyond})) == 5
    stream = Stream({**options, "startingOffsets": beyond, "subscription": "mine"})
    for _ in range(3):
        stream.plan()
    stream.stop()
    texts = [record.getMessage() for record in caplog.records]
    assert [text.partition(":")[0] for text in texts] == ["startingOffsets", "endingOffsets", "the query's offset"]
    assert all("999999:0:0" in text and "behind the topic's end" in text for text in texts)


def test_position_at_the_end_is_no_surprise(client, topic, options, caplog):
    publish(client, topic, 5)
    stream = Stream({**options, "subscription": "mine"})
    stream.plan()
    at_end = json.dumps({topic: str(stream.offset().topics[topic])})
    stream.stop()
    assert read_batch({**options, "startingOffsets": at_end}) == []
    assert not caplog.records


def test_alias_of_pulsar_spark_names_the_subscription(broker, client, topic, options):
    publish(client, topic, 1)
    stream = Stream({**options, "predefinedSubscription": "old-name"})
    stream.batch()
    stream.stop()
    assert subscriptions(broker, topic) == ["old-name"]


def test_new_topic_of_a_pattern_is_read_from_its_beginning_and_gets_the_cursor(broker, client, topic, options):
    publish(client, f"{topic}-a", 2)
    stream = Stream(
        {
            **options,
            "topic": "",
            "topicsPattern": f"{topic}-.",
            "topicDiscoveryIntervalMs": "0",
            "startingOffsets": "latest",
            "subscription": "mine",
        }
    )
    stream.plan()
    publish(client, f"{topic}-b", 3)
    assert len(stream.batch()) == 3
    assert "mine" in subscriptions(broker, f"{topic}-b")
    assert backlog(broker, f"{topic}-b", "mine") == 3
    stream.stop()


def test_reader_that_loses_its_connection_loses_nothing_and_repeats_nothing(broker, client, topic, options):
    # pulsar-spark #181: loss and duplicates after reconnects.
    hold(client, topic)
    sent = publish(client, topic, 60 * LEDGER_ENTRIES, batch=3)
    stream = Stream(
        {
            **options,
            "numPartitions": "1",
            "pulsar.reader.receiverQueueSize": "30",
            "arrowBatchBytes": "1",
            "pulsar.client.initialBackoffIntervalNanos": "1000000",
        }
    )
    stream.plan()
    found: list[bytes] = []
    (part,) = stream.reader.partitions(stream.start_of(0), json.loads(stream.log[0]))
    for number, batch in enumerate(stream.reader.read(part)):
        found += batch.column(0).to_pylist()
        if number % 40 == 3:
            session = session_for(stream.reader._options.client)
            session.thread.call(
                lambda session=session: [
                    connection.abort(ConnectError("cut by the test"))
                    for connection in list(session.client.pool._connections.values())
                ]
            )
    assert found == sent
    stream.stop()


def test_driver_that_loses_its_connection_goes_on(broker, client, topic, options):
    sent = publish(client, topic, 5)
    stream = Stream({**options, "subscription": "mine", "maxMessagesPerTrigger": "3"})
    found = values(stream.batch())
    cut_connections(broker)
    found += values(stream.batch())
    assert not stream.plan()
    cut_connections(broker)
    sent += publish(client, topic, 2, first=5)
    while len(found) < 7:
        found += values(stream.batch())
    assert found == sent
    stream.commit()
    assert backlog(broker, topic, "mine") == 0
    stream.stop()


KILLED = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from support.connector.spark_source import Stream
stream = Stream(json.loads(sys.argv[2]))
stream.batch()
stream.plan()          # watches stand now
stream.plan()
(part, *_) = stream.reader.partitions(stream.start_of(0), json.loads(stream.log[0]))
rows = stream.reader.read(part)
next(rows)             # a task in the middle of its range
print("reading", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("subscription", ["", "mine"])
def test_job_that_was_killed_leaves_no_subscription_that_the_user_did_not_name(
    broker, client, topic, options, subscription
):
    publish(client, topic, 3 * LEDGER_ENTRIES)
    options = {**options, "arrowBatchBytes": "1", "pulsar.reader.receiverQueueSize": "2", "subscription": subscription}
    for limits in ({}, {"maxMessagesPerTrigger": "50"}):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, json.dumps(sys.path), json.dumps({**options, **limits})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout.readline() == "reading\n"
            assert set(subscriptions(broker, topic)) > {subscription} - {""}
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.communicate(timeout=10)
        # The broker notices the end of the connection by itself.
        left = {subscription} - {""}
        for _ in range(1000):
            if set(subscriptions(broker, topic)) == left:
                break
        assert set(subscriptions(broker, topic)) == left


def test_question_whose_connection_breaks_before_the_answer_is_asked_again(broker, client, topic, options):
    # Spark ends a query at the first error of its source.
    publish(client, topic, 3)
    stream = Stream(options)
    stream.batch()
    session = session_for(ClientConfiguration(broker.service_url))

    async def ask_and_cut():
        asking = asyncio.ensure_future(stream.reader._driver._probes[topic].end())
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the question is on its way
        for connection in list(session.client.pool._connections.values()):
            connection.abort(ConnectError("cut by the test"))
        return await asking

    assert session.run(ask_and_cut) == stream.offset().topics[topic]
    stream.stop()
