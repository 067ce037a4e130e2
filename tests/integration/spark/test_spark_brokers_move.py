"""Two broker processes whose topics go from one to the other under source and sink: unloaded, or as one is killed.

Without a JVM: readers and writers are called as Spark calls them.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client.blocking import Client, connect
from geminga.spark.sink import crash_points
from geminga.spark.sink.commits import TaskCommit
from geminga.spark.sink.writer import StreamWriter
from support.connector.sink_cases import arrow_batches, run_task, schema_of, stored
from support.connector.spark_source import Stream, values
from support.house.waiting import until
from support.house.weekly_sample import sampled
from support.processes.killing import hooked
from support.processes.official import quiet_client

PARTITIONS = 4
#: Messages of a round.
ROUND = 200
BROKERS = 2
VALUE = "value string"
ROWS = 30
_names = count(1)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory) -> Iterator[StandaloneProcess]:
    directory = tmp_path_factory.mktemp("brokers")
    arguments = ["--brokers", str(BROKERS)]
    with StandaloneProcess(directory / "data", log=directory / "broker.log", arguments=arguments) as process:
        yield process


@pytest.fixture
def topic(brokers) -> str:
    """Its partitions are of both brokers as a rule, which serve."""
    until(lambda: _serves(brokers), "a broker answers", limit_s=60.0)
    name = f"persistent://public/default/moves-{next(_names)}"
    brokers.request("PUT", f"/admin/v2/{name.replace('://', '/')}/partitions", PARTITIONS)
    return name


def children_of(process: StandaloneProcess) -> list[int]:
    """Pids of its broker processes, oldest first."""
    found: list[int] = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        found += map(int, (task / "children").read_text(encoding="ascii").split())
    return sorted(found)


def _serves(process: StandaloneProcess) -> bool:
    """Whether the first broker does again, that the test before may have killed."""
    if len(children_of(process)) < BROKERS:
        return False
    try:
        process.request("GET", "/admin/v2/clusters")
    except OSError:
        return False
    return True


def kill(process: StandaloneProcess, which: int) -> None:
    """One of its broker processes; the one that was killed before is started again first."""
    until(lambda: len(children_of(process)) == BROKERS, "all broker processes are there", limit_s=60.0)
    os.kill(children_of(process)[which], signal.SIGKILL)


def publish(client: Client, topic: str, first: int, number: int = ROUND) -> list[bytes]:
    sent = [b"%d" % index for index in range(first, first + number)]
    with client.create_producer(topic, batching_max_messages=5) as producer:
        for value in sent:
            producer.send_nowait(value, partition_key=f"k{int(value) % 16}")
        producer.flush()
    return sent


def moved_while_read(brokers: StandaloneProcess, stream: Stream, how: str, number: int) -> list[bytes]:
    """The rows of the batch that was planned last; what is read changes its broker in the middle of each task."""
    start = stream.start_of(len(stream.log) - 1)
    found: list[bytes] = []
    for part in stream.reader.partitions(start, json.loads(stream.log[-1])):
        rows = stream.reader.read(part)
        # A task may have none: from the end of a ledger to the first entry of the one that the new broker began.
        for batch in islice(rows, 1):
            found += batch.column(0).to_pylist()
        if how == "unloaded":
            brokers.request("PUT", "/admin/v2/namespaces/public/default/unload")
        else:
            kill(brokers, number % BROKERS)
        for batch in rows:
            found += batch.column(0).to_pylist()
    return found


@pytest.mark.parametrize("how", sampled("brokers move", ["unloaded", "killed"], 1))
def test_stream_whose_topics_change_their_brokers_has_every_row_once(brokers, topic, how) -> None:
    options = {
        "service.url": brokers.service_url,
        "topic": topic,
        "startingOffsets": "earliest",
        "subscription": "mine",
        "maxMessagesPerTrigger": "150",
        "longPollMs": "20",
        "numPartitions": "2",
        "arrowBatchBytes": "64",
        "pulsar.reader.receiverQueueSize": "10",
    }
    stream = Stream(options)
    sent: list[bytes] = []
    found: list[bytes] = []
    with connect(brokers.service_url) as client:
        for number in range(2):
            sent += publish(client, topic, len(sent))
            while len(found) < len(sent):
                assert stream.plan()
                if len(stream.log) > 1:
                    stream.commit(-2)
                read = moved_while_read(brokers, stream, how, number)
                assert sorted(values(stream.read())) == sorted(read)  # replayed
                found += read
    assert sorted(found, key=int) == sent
    assert not stream.plan()
    stream.stop()


class _KillsBroker:
    """The hook of crash points that kills a broker process at one of them, once."""

    def __init__(self, label: str, process: StandaloneProcess, which: int) -> None:
        self._label = label
        self._process = process
        self._which = which
        self.has_killed = False

    def crash_point(self, label: str) -> None:
        if label == self._label and not self.has_killed:
            self.has_killed = True
            kill(self._process, self._which)


def written(writer: StreamWriter, query: str, batch: int, attempt: int = 0) -> list[TaskCommit]:
    return [
        run_task(writer, arrow_batches(VALUE, rows(batch, task)), task, query=query, batch=batch, attempt=attempt)
        for task in range(PARTITIONS)
    ]


def rows(batch: int, task: int) -> list[tuple[str]]:
    return [(f"{batch}-{task}-{number}",) for number in range(ROWS)]


@pytest.mark.parametrize(
    "label",
    [
        crash_points.TXN_ENDED,  # some are committed, the rest is told to coordinators that nobody has yet
        *(
            pytest.param(label, marks=pytest.mark.long)
            for label in crash_points.COMMIT
            if label != crash_points.TXN_ENDED
        ),
    ],
)
@pytest.mark.parametrize("which", range(BROKERS))
def test_commit_goes_on_with_the_coordinators_that_another_broker_took_over(
    brokers, topic, tmp_path, label, which
) -> None:
    """Killed in the middle of a commit; coordinators, the log of decisions and the output are of both brokers."""
    writer = StreamWriter({"service.url": brokers.service_url, "topic": topic}, schema_of(VALUE), overwrite=False)
    query = f"taken-over-{topic.rpartition('-')[2]}-{os.getpid()}"
    writer.commit(written(writer, query, 0), 0)
    messages = written(writer, query, 1)
    hook = _KillsBroker(label, brokers, which)
    with hooked(hook):
        writer.commit(messages, 1)
    assert hook.has_killed
    writer.commit(written(writer, query, 1, attempt=1), 1)  # as a driver does that died before Spark's own log had it
    writer.commit(written(writer, query, 2), 2)
    wanted = sorted(value for batch in range(3) for task in range(PARTITIONS) for (value,) in rows(batch, task))
    client = quiet_client(brokers.service_url, tmp_path)
    try:
        assert sorted(message.data().decode() for message in stored(client, topic, len(wanted))) == wanted
    finally:
        client.close()
