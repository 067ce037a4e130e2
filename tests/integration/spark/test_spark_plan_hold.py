"""The plans' topic stays: under brokers that delete what nobody uses, and where policies would empty it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from itertools import count
from urllib.request import Request, urlopen

import pytest

import geminga
from geminga.client import MessageId, Timeout, blocking
from geminga.spark.sink import crash_points
from geminga.spark.sink.writer import StreamWriter
from geminga.spark.sink_rules.errors import ReplayDiffersError, SinkError
from support.connector.sink_cases import arrow_batches, run_task, schema_of
from support.house.waiting import until
from support.processes.killing import hooked

pytestmark = pytest.mark.geminga_only("its sweep is made to run each second, and its policies are changed")

COLUMNS = "value string"
TENANT = "/admin/v2/persistent/public/default"
NAMESPACE = "/admin/v2/namespaces/public/default"
#: Entries of one row each, so that a task can be cut off between them.
SINGLE = {"pulsar.producer.batchingMaxMessages": "1"}
SWEEPING = {"brokerDeleteInactiveTopicsFrequencySeconds": 1, "brokerDeduplicationEnabled": "true"}
_numbers = count(1)


@pytest.fixture(scope="module", params=["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"])
def sweeping(request) -> Iterator[geminga.Standalone]:
    """A broker that deletes unused topics each second."""
    with geminga.Standalone(config={**SWEEPING, "brokerDeleteInactiveTopicsMode": request.param}) as broker:
        yield broker


def admin(broker: geminga.Standalone, method: str, path: str, body: object = None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(broker.web_service_url + path, data=data, method=method, headers=headers)) as answer:
        text = answer.read()
        return json.loads(text) if text else None


def topics_of(broker: geminga.Standalone) -> set[str]:
    return {name.rpartition("/")[2] for name in admin(broker, "GET", TENANT)}


def writer_of(broker: geminga.Standalone, topic: str, **more: str) -> StreamWriter:
    given = {"service.url": broker.service_url, "topic": topic, "guarantee": "effectively-once", **SINGLE}
    options = {**given, **{name.replace("__", "."): value for name, value in more.items()}}
    return StreamWriter(options, schema_of(COLUMNS), overwrite=False)


def rows(*values: int):
    return arrow_batches(COLUMNS, [(f"{value:03d}",) for value in values])


class Cut(Exception):
    """The task ended here."""


class CutAfter:
    """Ends a task when it sent so many entries of rows."""

    def __init__(self, entries: int) -> None:
        self.left = entries

    def crash_point(self, label: str) -> None:
        if label in (crash_points.ENTRY_SENT, crash_points.FIRST_ENTRY_STORED):
            self.left -= 1
            if self.left == 0:
                raise Cut

    def sometimes(self, label: str, percent: float) -> bool:
        return False


def begin(writer: StreamWriter, query: str, batch: int, batches) -> None:
    """A task that is cut off in the middle of its rows."""
    with hooked(CutAfter(3)), pytest.raises(Cut):
        run_task(writer, batches, query=query, batch=batch)


def hold(broker: geminga.Standalone, topic: str) -> None:
    """What the output needs: a subscription."""
    with blocking.connect(broker.service_url) as client:
        client.subscribe(topic, "output").close()


def wait_for_a_sweep(broker: geminga.Standalone) -> None:
    """Until topics were deleted that nobody used since now, twice."""
    for _ in range(2):
        decoy = f"decoy-{next(_numbers)}"
        with blocking.connect(broker.service_url) as client:
            client.create_producer(decoy).send(b"x")
        until(lambda gone=decoy: gone not in topics_of(broker), "a sweep", limit_s=60)


def values_in(broker: geminga.Standalone, topic: str) -> list[str]:
    values = []
    with blocking.connect(broker.service_url) as client:
        reader = client.create_reader(topic, MessageId.earliest)
        while True:
            try:
                values.append(reader.read_next(300).data().decode())
            except Timeout:
                return values


def test_plan_topic_outlives_sweeps_and_the_query_resumes(sweeping) -> None:
    topic = f"output-{next(_numbers)}"
    hold(sweeping, topic)
    writer = writer_of(sweeping, topic)
    run_task(writer, rows(1, 2, 3), query="q", batch=0)
    begin(writer, "q", 1, rows(*range(10, 20)))
    wait_for_a_sweep(sweeping)
    assert "__spark_commits" in topics_of(sweeping)
    run_task(writer, rows(*range(10, 20)), query="q", batch=1)
    assert values_in(sweeping, topic) == [f"{value:03d}" for value in (1, 2, 3, *range(10, 20))]
    (subscription,) = admin(sweeping, "GET", f"{TENANT}/__spark_commits/subscriptions")
    assert subscription == "__spark_commits"


def test_advice_after_a_lost_plan_topic_writes_nothing_twice(broker, caplog) -> None:
    topic, plans = f"output-{next(_numbers)}", f"plans-{next(_numbers)}"
    admin(broker, "POST", f"{NAMESPACE}/deduplication", True)
    hold(broker, topic)
    writer = writer_of(broker, topic, commitStateTopic=plans)
    begin(writer, "lost", 7, rows(*range(10)))
    assert "knows none of its plans" not in caplog.text
    admin(broker, "DELETE", f"{TENANT}/{plans}?force=true")
    with pytest.raises(ReplayDiffersError) as raised:
        run_task(writer, rows(*range(10)), query="lost", batch=7)
    text = str(raised.value)
    assert "resumeWithoutPlan=7" in text
    assert "Another sinkName would write them a second time" in text
    admin(broker, "DELETE", f"{TENANT}/{plans}?force=true")
    resumed = writer_of(broker, topic, commitStateTopic=plans, resumeWithoutPlan="7")
    with caplog.at_level(logging.WARNING):
        run_task(resumed, rows(*range(10)), query="lost", batch=7)
    assert "knows none of its plans" in caplog.text
    assert values_in(broker, topic) == [f"{value:03d}" for value in range(10)]
    # It is recorded now, and the option means nothing for the batches behind it.
    run_task(writer, rows(*range(10)), query="lost", batch=7)
    begin(resumed, "lost", 8, rows(*range(20, 30)))
    admin(broker, "DELETE", f"{TENANT}/{plans}?force=true")
    with pytest.raises(ReplayDiffersError):
        run_task(resumed, rows(*range(20, 30)), query="lost", batch=8)


def test_resuming_without_plan_with_fewer_rows_is_refused(broker) -> None:
    topic, plans = f"output-{next(_numbers)}", f"plans-{next(_numbers)}"
    admin(broker, "POST", f"{NAMESPACE}/deduplication", True)
    hold(broker, topic)
    begin(writer_of(broker, topic, commitStateTopic=plans), "fewer", 0, rows(*range(10)))
    admin(broker, "DELETE", f"{TENANT}/{plans}?force=true")
    with pytest.raises(ReplayDiffersError, match="the replay has 1") as raised:
        run_task(
            writer_of(broker, topic, commitStateTopic=plans, resumeWithoutPlan="0"), rows(1), query="fewer", batch=0
        )
    assert "sequence ids from 0 to 4294967295" in str(raised.value)


def test_admin_url_makes_the_topic_and_retains_it(broker) -> None:
    plans = f"plans-{next(_numbers)}"
    for _ in range(2):
        writer_of(broker, "output", commitStateTopic=plans, admin__url=broker.web_service_url)
        assert admin(broker, "GET", f"{TENANT}/{plans}/subscriptions") == ["__spark_commits"]
        retention = admin(broker, "GET", f"{TENANT}/{plans}/retention")
        assert retention == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}


@pytest.mark.parametrize(
    ("path", "set_with", "value", "text"),
    [
        ("messageTTL", "POST", 60, "messages live for 60 s"),
        ("subscriptionExpirationTime", "POST", 5, "deleted after 5 minutes"),
        (
            "backlogQuota",
            "POST",
            {"limitSize": 1000, "policy": "consumer_backlog_eviction"},
            "evicts what is not consumed",
        ),
    ],
)
def test_policy_that_could_empty_the_topic_is_refused(broker, path, set_with, value, text) -> None:
    plans = f"plans-{next(_numbers)}"
    admin(broker, set_with, f"{NAMESPACE}/{path}", value)
    try:
        with pytest.raises(SinkError, match=text):
            writer_of(broker, "output", commitStateTopic=plans, admin__url=broker.web_service_url)
        # Without the admin URL nothing can be learnt.
        writer_of(broker, "output", commitStateTopic=plans)
    finally:
        admin(broker, "DELETE", f"{NAMESPACE}/{path}")


def test_admin_that_does_not_answer_is_told_and_stops_nothing(broker, caplog) -> None:
    writer_of(broker, "output", admin__url="http://127.0.0.1:1")
    assert "held by its subscription alone" in caplog.text


def test_broker_that_makes_no_subscriptions_is_named() -> None:
    with geminga.Standalone(config={"allowAutoSubscriptionCreation": "false"}) as broker:
        writer = writer_of(broker, "output")
        with pytest.raises(SinkError, match="create-subscription --subscription __spark_commits"):
            run_task(writer, rows(1), query="q", batch=0)
