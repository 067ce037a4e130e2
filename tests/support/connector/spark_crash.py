"""Runs a Spark job to its end over kills at random moments: the driver with its JVM, a Python worker, the broker.

Everything random comes from one seed, which every failure prints. A moment is a time after the first batch of a run, so
that most kills fall into work and some into a start.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.spark_driver import SparkDriver
from tools.standalone_process import StandaloneProcess

from geminga.client import MessageId, connect

PARTITIONS = 2
#: A job that neither reports nor ends for so long is stuck.
SILENCE_MAX_S = 300.0
#: Starts of the driver that one job may take beyond its kills: queries that end by an error are run again.
RESTARTS_MAX = 12
KINDS = ("driver", "worker", "broker")


@dataclass(slots=True)
class CrashRun:
    """One job, one broker, one seed."""

    broker: StandaloneProcess
    driver: SparkDriver
    rng: random.Random
    #: Seconds after the first batch of a start, or after the last kill, in which the next kill falls.
    moment_max_s: float = 3.0
    #: Batches after which a kill is due before its moment, so that a fast job has all of them; 0: only moments count.
    batches_max: int = 0
    kills: list[str] = field(default_factory=list)
    restarts: int = 0
    batches: int = 0

    def run(self, kills: int) -> None:
        """Run the job to its end with so many kills of all kinds on the way; fails if the job ended before."""
        plan = [KINDS[number % len(KINDS)] for number in range(kills)]
        self.rng.shuffle(plan)
        self.run_through(plan)

    def run_through(self, kinds: Sequence[str]) -> None:
        """The same with these kills, in this order."""
        plan = list(reversed(kinds))
        self.driver.start()
        moment: float | None = None
        killed_at = 0
        silent_since = time.monotonic()
        while True:
            is_waiting = moment is not None and bool(plan)
            wait_s = max(0.0, min(0.5, moment - time.monotonic())) if is_waiting else 0.5
            report = self.driver.report_within(wait_s)
            if report is not None:
                silent_since = time.monotonic()
                if "batch" in report:
                    self.batches += 1
                    moment = moment or self._next_moment()
                    if self.batches_max and self.batches - killed_at >= self.batches_max:
                        moment = time.monotonic()
            elif not self.driver.is_running:
                if self.driver.wait(1) == 0:
                    break
                self._start_again()
                moment, silent_since = None, time.monotonic()
            elif time.monotonic() - silent_since > SILENCE_MAX_S:
                raise AssertionError(f"stuck after {self.kills}\n{self.driver.log_tail(40)}")
            if moment is not None and plan and time.monotonic() >= moment:
                if self._kill(plan[-1]):
                    plan.pop()
                    killed_at = self.batches
                # After a new start its first batch sets the next moment.
                moment = None if self.kills[-1:] == ["driver"] else self._next_moment()
                silent_since = time.monotonic()
        assert not plan, f"the job ended after {self.kills}, {plan} were still to come"

    def _next_moment(self) -> float:
        return time.monotonic() + self.rng.uniform(0.0, self.moment_max_s)

    def _kill(self, kind: str) -> bool:
        """False if there is no such process now."""
        if kind == "worker":
            workers = self.driver.worker_pids()
            if not workers:
                return False
            os.kill(self.rng.choice(workers), signal.SIGKILL)
        elif kind == "driver":
            self.driver.kill()
            self._start_again()
        else:
            self.broker.kill()
            self.broker.start()
        self.kills.append(kind)
        return True

    def _start_again(self) -> None:
        self.restarts += 1
        assert self.restarts <= RESTARTS_MAX + len(self.kills), f"{self.kills}\n{self.driver.log_tail(60)}"
        self.driver.start()


def make_topics(broker: StandaloneProcess, *topics: str) -> None:
    """Partitioned topics."""
    for topic in topics:
        broker.request("PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", PARTITIONS)


async def publish(service_url: str, topic: str, rows: Sequence[tuple[str, bytes, int]]) -> None:
    """Key, payload and event time (ms) of each; the job's subscription is made first, so that nothing is trimmed."""
    async with connect(service_url) as client:
        await (await client.subscribe(topic, "crash")).close()
        producer = await client.create_producer(topic)
        for number, (key, line, at) in enumerate(rows):
            producer.send_nowait(line, partition_key=key, event_timestamp=at)
            if number % 1000 == 0:
                await producer.drain()
        await producer.flush()


async def subscribe(service_url: str, topic: str) -> None:
    """A subscription that keeps the topic's messages: without one, a restarted broker may trim what is old."""
    async with connect(service_url) as client:
        await (await client.subscribe(topic, "check")).close()


async def publish_to_partitions(service_url: str, topic: str, line: bytes, at: int) -> None:
    """One message to each partition."""
    async with connect(service_url) as client:
        for partition in range(PARTITIONS):
            producer = await client.create_producer(f"{topic}-partition-{partition}")
            await producer.send(line, event_timestamp=at)


async def _read(service_url: str, topic: str) -> list[tuple[str, bytes]]:
    found = []
    async with connect(service_url) as client:
        for partition in range(PARTITIONS):
            reader = await client.create_reader(f"{topic}-partition-{partition}", MessageId.earliest)
            while await reader.has_message_available():
                message = await reader.read_next()
                found.append((message.partition_key(), message.data()))
    return found


def read_all(service_url: str, topic: str) -> list[tuple[str, bytes]]:
    """(key, payload) of every message, in the order of each partition."""
    return asyncio.run(_read(service_url, topic))


def job(
    mode: str, service_url: str, topics: Sequence[str], output: str, directory: Path, **options: object
) -> SparkDriver:
    """The driver of a mode; ``options`` go to its command line."""
    arguments = {
        "service-url": service_url,
        "topics": ",".join(topics),
        "output": output,
        "checkpoint": str(directory / "checkpoint"),
        **{name.replace("_", "-"): value for name, value in options.items()},
    }
    line = [mode, *(part for name, value in arguments.items() for part in (f"--{name}", str(value)))]
    return SparkDriver("support.connector.spark_crash_job", line, log=directory / f"{mode}.log")
