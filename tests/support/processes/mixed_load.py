"""The official Java, Go and Python clients at work on topics of a mixed cluster, and what they were told.

Each publishes to topics of its own and consumes them; the Java one also spans topics with transactions. The two
programs say the same in lines on standard output (``tests/peers/go/load``, ``tests/interop/java/MixedLoad.java``).
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pulsar
from tools.interop.apache_standalone import die_with_parent
from tools.interop.artifacts import HERE, class_path, java, pinned_version

from support.processes.official import quiet_client

KEYS: Final = 4
PAUSE_MS: Final = 20
#: Messages of the transacted topics are not told one by one.
TRANSACTIONS: Final = "transactions"
END_S: Final = 120.0


class Told:
    """What a client said; by topic's full name where it is about one."""

    def __init__(self, topics: Sequence[str]) -> None:
        self.acknowledged: dict[str, set[int]] = {topic: set() for topic in topics}
        #: In the order in which they came first.
        self.delivered: dict[str, dict[int, str]] = {topic: {} for topic in topics}
        self.again = 0
        self.sent: dict[str, int] = {}
        self.errors: list[str] = []
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.unknown: set[int] = set()
        self.news = threading.Condition()

    def hear(self, line: str) -> None:
        """One line of a program."""
        kind, _, rest = line.strip().partition(" ")
        words = rest.split(" ")
        with self.news:
            match kind:
                case "A":
                    self.acknowledged[words[0]].add(int(words[1]))
                case "R":
                    delivered, number = self.delivered[words[0]], int(words[1])
                    self.again += number in delivered
                    delivered.setdefault(number, words[2])
                case "S":
                    self.sent[words[0]] = int(words[1])
                case "C":
                    self.committed.add(int(words[0]))
                case "X":
                    self.aborted.add(int(words[0]))
                case "U":
                    self.unknown.add(int(words[0]))
                case "E":
                    self.errors.append(rest)
            self.news.notify_all()

    @property
    def is_complete(self) -> bool:
        """Whether all that was acknowledged was delivered."""
        return all(numbers <= self.delivered[topic].keys() for topic, numbers in self.acknowledged.items())

    def wait_for(self, what: str, limit_s: float) -> None:
        """Until ``progress`` (each topic has one more receipt), ``sent`` (all has its own), ``delivered`` (all came).

        ``transactions``: none is begun any more, and the last one has ended.
        """
        counts = {topic: len(numbers) for topic, numbers in self.acknowledged.items()}

        def is_there() -> bool:
            match what:
                case "progress":
                    return all(len(numbers) > counts[topic] for topic, numbers in self.acknowledged.items())
                case "transactions":
                    return TRANSACTIONS in self.sent
                case "sent":
                    return all(topic in self.sent for topic in self.acknowledged)
            return self.is_complete

        with self.news:
            if not self.news.wait_for(is_there, limit_s):
                left = {
                    topic: (len(numbers), len(numbers - self.delivered[topic].keys()))
                    for topic, numbers in self.acknowledged.items()
                }
                raise AssertionError(
                    f"no {what} within {limit_s} s: (acknowledged, undelivered) {left} {self.errors[:3]}"
                )


class LoadProgram:
    """A program that says what its client was told."""

    def __init__(self, name: str, command: Sequence[str], topics: Sequence[str], log: Path) -> None:
        self.name = name
        self.topics = topics
        self.told = Told(topics)
        self._log = log.open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            preexec_fn=die_with_parent,
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line[:2] in ("A ", "R ", "S ", "C ", "X ", "U ", "E "):
                self.told.hear(line)
            else:
                self._log.write(line)

    def _order(self, word: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """Publish no more."""
        self._order("stop")

    def end(self) -> None:
        """Its consumer goes."""
        if self._process.poll() is None:
            self._order("end")
            self._process.wait(END_S)
        self._reading.join(END_S)

    def kill(self) -> None:
        """Whatever it does."""
        self._process.kill()
        self._process.wait()
        self._reading.join(END_S)
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            if pipe is not None:
                pipe.close()


class PythonLoad:
    """The same in this process."""

    name = "python"

    def __init__(self, url: str, topics: Sequence[str], directory: Path) -> None:
        self.topics = topics
        self.told = Told(topics)
        self._is_stopping, self._is_ending = threading.Event(), threading.Event()
        self._client = quiet_client(url, directory)
        self._consumer = self._client.subscribe(
            list(topics),
            "python",
            consumer_type=pulsar.ConsumerType.Failover,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        self._threads = [threading.Thread(target=self._receive, daemon=True)]
        self._threads += [threading.Thread(target=self._send, args=(topic,), daemon=True) for topic in topics]
        for thread in self._threads:
            thread.start()

    def _send(self, topic: str) -> None:
        # Its numbers begin behind 0: with deduplication the client would begin again at 0, were it cut off at first.
        producer = self._client.create_producer(
            topic,
            producer_name="python",
            initial_sequence_id=1,
            send_timeout_millis=0,
            block_if_queue_full=True,
            batching_enabled=True,
            batching_max_publish_delay_ms=5,
        )
        number = 0
        while not self._is_stopping.wait(PAUSE_MS / 1000):
            number += 1
            producer.send_async(
                b"%d" % number,
                lambda result, _id, number=number: self.told.hear(
                    f"A {topic} {number}" if result == pulsar.Result.Ok else f"E {topic} {number}: {result}"
                ),
                partition_key=str(number % KEYS),
            )
        producer.flush()
        self.told.hear(f"S {topic} {number}")

    def _receive(self) -> None:
        while not self._is_ending.is_set():
            try:
                message = self._consumer.receive(timeout_millis=500)
            except pulsar.Timeout:
                continue
            self.told.hear(f"R {message.topic_name()} {int(message.data())} {message.partition_key()}")
            self._consumer.acknowledge(message)

    def stop(self) -> None:
        """As of a program."""
        self._is_stopping.set()

    def end(self) -> None:
        """As of a program."""
        self._is_ending.set()
        for thread in self._threads:
            thread.join(END_S)
        self._client.close()

    def kill(self) -> None:
        """As of a program: its threads end with the process."""
        self._is_stopping.set()
        self._is_ending.set()


Load = LoadProgram | PythonLoad


def go_load(url: str, topics: Sequence[str], directory: Path) -> LoadProgram:
    """The Go client; built first."""
    from tools.peers.__main__ import build_go

    command = [*build_go("load"), "-url", url, "-topics", ",".join(topics), "-pause", f"{PAUSE_MS}ms"]
    return LoadProgram("go", command, topics, directory / "go.log")


def java_load(url: str, topics: Sequence[str], transacted: Sequence[str], directory: Path) -> LoadProgram:
    """The Java client; its program is one file, run as it is."""
    source = Path(__file__).parents[2] / "interop" / "java" / "MixedLoad.java"
    program = [java(), "-Xmx256m", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"]
    program += ["-cp", class_path(pinned_version()), str(source)]
    command = [*program, url, ",".join(topics), ",".join(transacted), str(PAUSE_MS)]
    return LoadProgram("java", command, topics, directory / "java.log")


def _messages(client: pulsar.Client, topic: str) -> list[tuple[int, str]]:
    """Every message of a topic, in its order: its number, and where it is."""
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        message = reader.read_next(timeout_millis=30_000)
        found.append((int(message.data()), str(message.message_id())))
    reader.close()
    return found


def all_of(client: pulsar.Client, topic: str) -> list[int]:
    """The number of every message of a topic, in its order."""
    return [number for number, _ in _messages(client, topic)]


def places_of(client: pulsar.Client, topic: str) -> dict[int, str]:
    """Where the messages of a topic are, by number."""
    return dict(_messages(client, topic))


def seed_from_environment() -> int:
    """``MIXED_SEED``, or one that was drawn."""
    return int(os.environ.get("MIXED_SEED") or int.from_bytes(os.urandom(4), "big"))
