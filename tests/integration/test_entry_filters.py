"""Entry filters in processes of their own: through REST, with a client, and one that never answers."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

import geminga
import geminga.admin.blocking
import geminga.client as gc
from geminga.admin import AdminError
from geminga.client import blocking
from support.house.waiting import until

pytestmark = pytest.mark.integration

FILTERS = """
import time
from geminga.entry_filters import ACCEPT, REJECT

def europe(entry):
    print("noise", flush=True)
    return ACCEPT if entry.properties.get("region") == "eu" else REJECT

def wanted(entry):
    return ACCEPT if entry.target.consumers[0].get("wants") == entry.key else REJECT

def sleeps(entry):
    time.sleep(3600)

def loops(entry):
    while True:
        pass
"""

#: Says which process it is in, and never answers.
TELLS = """
import os

def tells(entry):
    with open({told!r}, "w") as file:
        file.write(str(os.getpid()) + "\\n")
    while True:
        pass
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    directory = tmp_path_factory.mktemp("filters")
    (directory / "mine.py").write_text(FILTERS)
    settings = {
        "entryFiltersDirectory": str(directory),
        "allowOverrideEntryFilters": "true",
        "gemingaEntryFilterBudgetMillis": "200",
        "gemingaEntryFilterProcesses": "1",
    }
    with geminga.Standalone(config=settings) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker):
    with geminga.admin.blocking.connect(broker.web_service_url) as found:
        yield found


@pytest.fixture(scope="module")
def client(broker):
    with blocking.connect(broker.service_url) as found:
        yield found


def held(admin, topic):
    """What a subscription of ``topic`` says while its filters fail; only its statistics tell."""
    found = []
    until(lambda: found.append(_failure(admin, topic)) or found[-1], "a subscription that is held")
    return found[-1]


def _failure(admin, topic):
    return admin.topics.stats(topic)["subscriptions"]["s"].get("filterFailure")


def test_a_filter_of_a_topic_judges_what_its_subscriptions_get(admin, client):
    topic = "persistent://public/default/europe"
    admin.topics.create(topic)
    admin.topic_policies.entry_filters.set(topic, {"entryFilterNames": "mine:europe"})
    with client.subscribe(topic, "s") as consumer, client.create_producer(topic) as producer:
        for number in range(20):
            producer.send(str(number).encode(), properties={"region": "eu" if number % 2 else "us"})
        found = [int(consumer.receive(30_000).data()) for _ in range(10)]
        assert found == list(range(1, 20, 2))
        stats = admin.topics.stats(topic)["subscriptions"]["s"]
        counts = [stats[f"filter{what}MsgCount"] for what in ("Processed", "Accepted", "Rejected", "Rescheduled")]
        assert counts == [20, 10, 10, 0]
        assert stats["msgBacklog"] == 10


def test_what_was_compacted_is_judged_too(admin, client):
    topic = "persistent://public/default/newest"
    with client.create_producer(topic) as producer:
        for number in range(12):
            region = "eu" if number % 4 else "us"
            producer.send(str(number).encode(), partition_key=f"k{number % 6}", properties={"region": region})
    admin.compaction.start(topic)
    until(lambda: admin.compaction.status(topic)["status"] == "SUCCESS", "a compaction that ended")
    admin.topic_policies.entry_filters.set(topic, {"entryFilterNames": "mine:europe"})
    with client.create_producer(topic) as producer:
        producer.send(b"12", partition_key="k0", properties={"region": "us"})
        producer.send(b"13", partition_key="k1", properties={"region": "eu"})
    with client.create_reader(topic, gc.MessageId.earliest, is_read_compacted=True) as reader:
        found = [int(reader.read_next(30_000).data()) for _ in range(6)]
    # 8 is the newest of its key, and from elsewhere.
    assert found == [6, 7, 9, 10, 11, 13]


@pytest.mark.parametrize("name", ["mine:sleeps", "mine:loops"])
def test_a_filter_that_never_answers_is_ended_and_others_go_on(admin, client, name):
    topic, other = f"persistent://public/default/{name[5:]}", f"persistent://public/default/{name[5:]}-beside"
    admin.topics.create(topic)
    admin.topics.create(other)
    admin.topic_policies.entry_filters.set(topic, {"entryFilterNames": name})
    admin.topic_policies.entry_filters.set(other, {"entryFilterNames": "mine:europe"})
    with (
        client.create_producer(topic) as producer,
        client.create_producer(other) as beside,
        client.subscribe(topic, "s") as consumer,
        client.subscribe(other, "s") as filtered,
    ):
        producer.send(b"stays")
        told = {"filters": name, "error": "they took longer than 200 ms for a batch", "isHeld": True}
        assert held(admin, topic) == told
        beside.send(b"passes", properties={"region": "eu"})
        assert filtered.receive(30_000).data() == b"passes"
        assert admin.topics.stats(topic)["subscriptions"]["s"]["msgBacklog"] == 1
        admin.topic_policies.entry_filters.remove(topic)
        assert consumer.receive(30_000).data() == b"stays"


@pytest.mark.parametrize("name", ["mine:absent:x", "os:system", "absent"])
def test_a_filter_that_is_not_there_is_refused(admin, name):
    with pytest.raises(AdminError, match=f"Entry filter '{name}' not found"):
        admin.namespace_policies.entry_filters.set("public/default", {"entryFilterNames": name})


def test_no_process_of_filters_is_left_behind(tmp_path):
    told = tmp_path / "told"
    os.mkfifo(told)
    (tmp_path / "mine.py").write_text(TELLS.format(told=str(told)))
    settings = {"entryFiltersDirectory": str(tmp_path), "entryFilterNames": "mine:tells"}
    before = _children()
    reading = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with (
            geminga.Standalone(config=settings) as running,
            blocking.connect(running.service_url) as client,
            client.subscribe("t", "s"),
            client.create_producer("t") as producer,
        ):
            producer.send(b"x")
            assert select.select([reading], [], [], 30)[0], "no filter began"
            first = int(os.read(reading, 64).split()[0])
        assert not Path(f"/proc/{first}").exists()
        assert not _children() - before
    finally:
        os.close(reading)


def _children():
    """Processes of filters that this one started."""
    found = set()
    pids = [pid for file in Path("/proc/self/task").glob("*/children") for pid in file.read_text().split()]
    for pid in pids:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                if b"geminga.entry_filters.worker" in file.read():
                    found.add(pid)
        except OSError:
            pass
    return found
