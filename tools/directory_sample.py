"""Data directories that an older tree wrote, kept as a sample: written here, and read whole by whoever opens them.

``python -m tools.directory_sample CHECKOUT`` starts the broker of another checkout, which has a ``.venv`` of its own,
publishes and acknowledges (:func:`fill`), kills it or stops it, and packs its directories with what each must still
hold into ``tests/samples/directories-<commit>.tar.xz``: a standalone's, that of several processes on the built-in
metadata store, and that of ``geminga cluster up``, whose metadata are a ZooKeeper's. :func:`read_whole` reads the same
of any broker.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

from geminga.client import CompressionType, ConsumerType, InitialPosition, MessageId, Timeout, blocking
from tools.standalone_process import ROOT, StandaloneProcess, StartError

#: A file of each packed directory: what :func:`read_whole` must find.
FOUND: Final = "found.json"
_PREFIX: Final = "persistent://public/sample/"
_NAMESPACE: Final = "/admin/v2/namespaces/public/sample"
#: Of the command that runs several processes on the built-in metadata store.
CLUSTER: Final = ("--brokers", "2", "--bookies", "3")
#: Ledgers of a few entries, small files.
SETTINGS: Final[Mapping[str, object]] = {
    "transactionCoordinatorEnabled": True,
    "acknowledgmentAtBatchIndexLevelEnabled": True,
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
}
#: The year 2100, ms since the epoch.
_MUCH_LATER_MS: Final = 4_102_444_800_000
_SECOND_MS: Final = 1000
#: Messages of the topic whose every second one is acknowledged.
_MANY: Final = 400
_SCHEMA: Final = {
    "type": "JSON",
    "schema": json.dumps({"type": "record", "name": "Typed", "fields": [{"name": "n", "type": "int"}]}),
    "properties": {},
}
#: How long the transaction that is left open may take, seconds.
_OPEN_S: Final = 20

Found = dict[str, Any]


class Running(Protocol):
    """What is started, filled, read and ended: a standalone or a cluster."""

    @property
    def service_url(self) -> str:
        """``pulsar://...`` for clients."""
        ...

    @property
    def web_url(self) -> str:
        """``http://...`` for administration."""
        ...

    def start(self) -> None:
        """Return when it is ready."""
        ...

    def stop(self) -> int:
        """End it in order; 0 where it ended so."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class CommandCluster:
    """``geminga cluster up`` in a directory: a real ZooKeeper, three bookies, two brokers, on free ports."""

    def __init__(self, data: Path, *, python: str = sys.executable, source: Path = ROOT / "src") -> None:
        """``python``, ``source``: of the tree whose command it is."""
        self._data = data
        self._command = (python, "-m", "geminga", "cluster")
        self._environment = {**os.environ, "PYTHONPATH": str(source)}
        self._urls: Mapping[str, Any] = {}

    @property
    def service_url(self) -> str:
        """Of the first broker."""
        return str(self._urls["brokerServiceUrl"]).split(",")[0]

    @property
    def web_url(self) -> str:
        """Of the first broker."""
        return str(self._urls["webServiceUrl"]).split(",")[0]

    @property
    def logs(self) -> str:
        """What all processes wrote."""
        return "".join(path.read_text(encoding="utf-8") for path in sorted((self._data / "logs").iterdir()))

    def start(self) -> None:
        """A directory that has been started once keeps its numbers and settings."""
        settings = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={json.dumps(value)}")]
        self._urls = json.loads(self._run("up", "--json", "--broker-port", "0", "--web-port", "0", *settings))

    def stop(self) -> int:
        """Brokers, bookies, ZooKeeper."""
        self._run("down")
        return 0

    def kill(self) -> None:
        """Not told from :meth:`stop`: what it started goes on without the command."""
        self.stop()

    def _run(self, word: str, *options: str) -> str:
        command = [*self._command, word, "--dir", str(self._data), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False, env=self._environment)
        if done.returncode:
            raise StartError(done.stderr)
        return done.stdout


class OldStandalone(StandaloneProcess):
    """The broker of another checkout."""

    def __init__(self, checkout: Path, data: Path, arguments: Sequence[str]) -> None:
        environment = {"PYTHONPATH": str(checkout / "src")}
        super().__init__(
            data, log=data.parent / "broker.log", settings=SETTINGS, arguments=arguments, environment=environment
        )
        self._python = str(checkout / ".venv" / "bin" / "python")

    def command(self) -> list[str]:
        """The command line."""
        return [self._python, *super().command()[1:]]


def asked(broker: Running, method: str, path: str, body: object = None) -> bytes:
    """The answer of the broker that it concerns: one of several sends who asks to another."""
    url, data = broker.web_url + path, None if body is None else json.dumps(body).encode()
    for _ in range(5):
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.TEMPORARY_REDIRECT:
                raise
            url = error.headers["Location"]
    raise StartError(f"{path}: sent from one broker to another for ever")


def fill(broker: Running) -> None:
    """Publish and acknowledge: each way of storing a message, and each state of a subscription, a few times."""
    asked(broker, "PUT", _NAMESPACE, {"bundles": {"numBundles": 4}})
    asked(broker, "POST", f"{_NAMESPACE}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1})
    asked(broker, "POST", f"{_NAMESPACE}/deduplication", True)
    asked(broker, "PUT", "/admin/v2/persistent/public/sample/parts/partitions", 3)
    with blocking.connect(broker.service_url) as client:
        _fill_single(client)
        _fill_many(client)
        _fill_batches(client)
        _fill_partitions(client)
        _fill_transactions(client)
        with _subscribed(client, _PREFIX + "later", "s") as consumer:
            producer = client.create_producer(_PREFIX + "later", batching_enabled=False)
            for number in range(30):
                producer.send(b"later %d" % number, deliver_at=_MUCH_LATER_MS + number * _SECOND_MS)
            producer.send(b"now")
            consumer.acknowledge(consumer.receive(5 * _SECOND_MS))
        client.create_producer(_PREFIX + "ended").send(b"the last one")
    asked(broker, "POST", "/admin/v2/persistent/public/sample/ended/terminate")
    asked(broker, "POST", "/admin/v2/schemas/public/sample/ended/schema", _SCHEMA)
    asked(broker, "PUT", "/admin/v2/persistent/public/sample/single/properties", {"owner": "sample"})
    asked(broker, "POST", "/admin/v2/persistent/public/sample/single/maxConsumers", 7)


def _fill_single(client: blocking.Client) -> None:
    """Entries of one message over several ledgers: a cursor in the middle, and one with holes."""
    topic = _PREFIX + "single"
    middle = _subscribed(client, topic, "middle", ConsumerType.Exclusive)
    with middle, _subscribed(client, topic, "holes") as holes:
        producer = client.create_producer(topic, producer_name="numbered", batching_enabled=False)
        for number in range(70):
            producer.send(b"single %d" % number, partition_key=f"k{number % 5}", properties={"n": str(number)})
        received = [middle.receive(5 * _SECOND_MS) for _ in range(70)]
        middle.acknowledge_cumulative(received[24])
        messages = [holes.receive(5 * _SECOND_MS) for _ in range(70)]
        holes.acknowledge([message for number, message in enumerate(messages) if number % 3])


def _fill_many(client: blocking.Client) -> None:
    """So many holes that a cursor's state lies in segments."""
    topic = _PREFIX + "many"
    with _subscribed(client, topic, "holes") as holes:
        producer = client.create_producer(topic, batching_enabled=False)
        for number in range(_MANY):
            producer.send_nowait(b"many %d" % number)
        producer.flush()
        messages = [holes.receive(5 * _SECOND_MS) for _ in range(_MANY)]
        holes.acknowledge(messages[1::2])


def _fill_batches(client: blocking.Client) -> None:
    """Compressed batches, one of them acknowledged in part."""
    topic = _PREFIX + "batches"
    with _subscribed(client, topic, "part") as consumer:
        with client.create_producer(
            topic,
            compression_type=CompressionType.ZLib,
            batching_max_messages=10,
            batching_max_publish_delay_ms=60 * _SECOND_MS,
        ) as producer:
            for number in range(40):
                producer.send_nowait(b"batched %d" % number)
            producer.flush()
        messages = [consumer.receive(5 * _SECOND_MS) for _ in range(40)]
        consumer.acknowledge([*messages[:10], messages[13], messages[17], messages[31]])


def _fill_partitions(client: blocking.Client) -> None:
    topic = _PREFIX + "parts"
    with _subscribed(client, topic, "s", ConsumerType.Failover) as consumer:
        with client.create_producer(topic, batching_enabled=False) as producer:
            for number in range(30):
                producer.send(b"part %d" % number, partition_key=str(number))
        for _ in range(12):
            consumer.acknowledge(consumer.receive(5 * _SECOND_MS))


def _fill_transactions(client: blocking.Client) -> None:
    """Committed and aborted ones; an acknowledgment in one."""
    topic = _PREFIX + "moved"
    with (
        _subscribed(client, topic, "s", ConsumerType.Exclusive) as consumer,
        client.create_producer(topic) as producer,
    ):
        for is_committed in (True, False):
            txn = client.transaction()
            for number in range(5):
                producer.send(b"%s %d" % (b"committed" if is_committed else b"aborted", number), txn=txn)
            (txn.commit if is_committed else txn.abort)()
        received = [consumer.receive(5 * _SECOND_MS) for _ in range(5)]
        txn = client.transaction()
        consumer.acknowledge(received[0], txn=txn)
        consumer.acknowledge(received[1], txn=txn)
        txn.commit()


def leave_open(broker: Running) -> blocking.Client:
    """Begin a transaction whose time will be over when the directory is opened again, and publish behind it. The client
    is to be closed when the broker is gone: it would end the transaction."""
    client = blocking.connect(broker.service_url, operation_timeout_ms=_SECOND_MS)
    producer = client.create_producer(_PREFIX + "moved")
    producer.send(b"of one that is open", txn=client.transaction(timeout=_OPEN_S))
    producer.send(b"behind it")
    return client


def _subscribed(
    client: blocking.Client, topic: str, name: str, kind: ConsumerType = ConsumerType.Shared
) -> blocking.Consumer[bytes]:
    """What it acknowledges is answered: only that is promised."""
    return client.subscribe(topic, name, consumer_type=kind, batch_index_ack_enabled=True, ack_receipt_enabled=True)


def promised() -> Found:
    """What must be there, by what was answered to the clients: messages by topic, and what subscriptions still get."""
    single = [f"single {number}" for number in range(70)]
    batched = [f"batched {number}" for number in range(40)]
    taken = {f"batched {number}" for number in (*range(10), 13, 17, 31)}
    return {
        "messages": {
            "single": single,
            "batches": batched,
            "many": [f"many {number}" for number in range(_MANY)],
            "parts": sorted(f"part {number}" for number in range(30)),
            "moved": [*(f"committed {number}" for number in range(5)), "behind it"],
            "later": [*(f"later {number}" for number in range(30)), "now"],
            "ended": ["the last one"],
        },
        "left": {
            "single middle": sorted(single[25:]),
            "single holes": sorted(single[::3]),
            "many holes": sorted(f"many {number}" for number in range(0, _MANY, 2)),
            "batches part": sorted(set(batched) - taken),
            "moved s": ["behind it", "committed 2", "committed 3", "committed 4"],
            "later s": [],
        },
        "left of parts": 18,
        "last sequence id": 69,
        "partitions": {"partitions": 3, "deleted": False},
        "properties": {"owner": "sample"},
        "consumers": 7,
        "schema": True,
    }


def read_whole(broker: Running) -> Found:
    """Every message of every topic, what each subscription still gets, and what the administration says."""
    wanted = promised()
    found: Found = {"messages": {}, "left": {}}
    with blocking.connect(broker.service_url) as client:
        for topic, messages in wanted["messages"].items():
            names = [f"{_PREFIX}parts-partition-{number}" for number in range(3)] if topic == "parts" else [topic]
            texts = [text for name in names for text in _read(client, name, len(messages))]
            found["messages"][topic] = sorted(texts) if topic == "parts" else texts
        for key, left in wanted["left"].items():
            topic, name = key.split()
            found["left"][key] = sorted(_left(client, topic, name, len(left)))
        found["left of parts"] = len(_left(client, "parts", "s", wanted["left of parts"]))
        with client.create_producer(_PREFIX + "single", producer_name="numbered") as producer:
            found["last sequence id"] = producer.last_sequence_id()
    place = "/admin/v2/persistent/public/sample"
    for name, path in {
        "policies": _NAMESPACE,
        "topics": place,
        "partitions": f"{place}/parts/partitions",
        "properties": f"{place}/single/properties",
        "consumers": f"{place}/single/maxConsumers",
        "schema": "/admin/v2/schemas/public/sample/ended/schema",
    }.items():
        found[name] = json.loads(asked(broker, "GET", path))
    found["topics"] = sorted(found["topics"])
    found["schema"] = json.loads(found["schema"]["data"]) == json.loads(str(_SCHEMA["schema"]))
    return found


def _read(client: blocking.Client, topic: str, count: int) -> list[str]:
    """All of a topic. What an open transaction hides comes when its time is over."""
    name = topic if "://" in topic else _PREFIX + topic
    found = []
    with client.create_reader(name, MessageId.earliest) as reader:
        while reader.has_message_available() or (topic == "moved" and len(found) < count):
            found.append(reader.read_next(30 * _SECOND_MS).data().decode())
    return found


def _left(client: blocking.Client, topic: str, name: str, count: int) -> list[str]:
    """What a subscription is given; nothing is acknowledged. One more than ``count`` is waited for a moment."""
    kind = {"middle": ConsumerType.Exclusive, "s": ConsumerType.Exclusive}.get(name, ConsumerType.Shared)
    kind = {"parts": ConsumerType.Failover, "later": ConsumerType.Shared}.get(topic, kind)
    options: Mapping[str, Any] = {"consumer_type": kind, "initial_position": InitialPosition.Latest}
    found = []
    with client.subscribe(_PREFIX + topic, name, batch_index_ack_enabled=True, **options) as consumer:
        try:
            for number in range(count + 1):
                found.append(consumer.receive(30 * _SECOND_MS if number < count else 200).data().decode())
        except Timeout:
            pass
    return found


def _made(checkout: Path, name: str, data: Path) -> Running:
    if name == "zookeeper":
        return CommandCluster(data, python=str(checkout / ".venv" / "bin" / "python"), source=checkout / "src")
    return OldStandalone(checkout, data, CLUSTER if name == "cluster" else ())


def write(checkout: Path, name: str) -> bytes:
    """One directory, packed without compression, with :data:`FOUND` beside its files. Alone, it is killed."""
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        broker = _made(checkout, name, data)
        broker.start()
        try:
            fill(broker)
            last = leave_open(broker)
            # Kept as the older tree tells it: the administration's answers have its own defaults.
            found = promised() | {
                key: json.loads(asked(broker, "GET", path))
                for key, path in {"policies": _NAMESPACE, "topics": "/admin/v2/persistent/public/sample"}.items()
            }
            found["topics"].sort()
        finally:
            if name == "alone":
                broker.kill()
            else:
                broker.stop()
        last.close()
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path in sorted(data.rglob("*")):
                if path.is_file() and not path.is_socket():
                    tar.add(path, f"{name}/data/{path.relative_to(data)}")
            member = tarfile.TarInfo(f"{name}/{FOUND}")
            text = json.dumps(found, indent=1, sort_keys=True).encode()
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        return packed.getvalue()


def unpack(sample: Path, name: str, place: Path) -> Found:
    """Put one directory of a sample into ``place / "data"``; what was promised of it."""
    with tarfile.open(sample) as outer:
        inner = outer.extractfile(f"{name}.tar")
        assert inner is not None
        with tarfile.open(fileobj=inner) as tar:
            tar.extractall(place, filter="data")
    found: Found = json.loads((place / name / FOUND).read_text(encoding="utf-8"))
    (place / name / "data").rename(place / "data")
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("checkout", type=Path)
    checkout: Path = parser.parse_args().checkout.resolve()
    command = ["git", "-C", str(checkout), "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    out = ROOT / "tests" / "samples" / f"directories-{commit}.tar.xz"
    with tarfile.open(out, "w:xz", preset=9) as outer:
        for name in ("alone", "cluster", "zookeeper"):
            packed = write(checkout, name)
            member = tarfile.TarInfo(f"{name}.tar")
            member.size = len(packed)
            outer.addfile(member, io.BytesIO(packed))
    print(f"{out}: {os.path.getsize(out)} bytes")


if __name__ == "__main__":
    main()
