"""Topics in Spark against what Spark itself can do: one run, one session, turns of product and comparison.

Random payloads of 500 to 1,500 bytes with key and event time, six metadata columns, producer batches of 128 KiB (what
a producer makes of such messages by default when it has enough of them), two topics and two tasks on each side. Times
are those of a whole trigger, planning and checkpoint included; each ratio is the median of the ratios of neighbouring
turns.

- *streaming read*: topics to Spark's ``noop`` sink; beside it a Python Arrow source that builds the same columns from
  memory.
  What the memory source does not do: come over a socket from another process, be checked against a checksum, have its
  messages told apart; its keys and payloads are the same bytes in each batch. What both do is Spark's: batches from
  Python to the JVM, rows of them there.
- *streaming write*: the source in memory to topics, with each guarantee, every row's receipt awaited; beside it the
  smaller of the disk's own durable rate and the sink without a broker: rows read, cut and encoded, and dropped. The
  broker writes each byte twice (journal and entry log), so that half of the disk's rate is the most it can do once
  the page cache is full.
- *Parquet files*: the same rows to files without compression and from them, by Spark's own reader and writer in the
  JVM; neither is synced, and no Python process is involved in the reading.
- *pulsar-spark*, the Scala connector, is not measured: it is not among what the bench can install.
- *client alone*: the same tasks in one process without Spark, from the socket to Arrow batches.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.standalone_process import StandaloneProcess

from bench.client import next_turn
from bench.measure import Row
from bench.servers import Bench, BenchError, SparkLoads, finish_load
from bench.spark_load import PAYLOAD_BYTES, PAYLOAD_VARIABLE, payloads

#: Messages of one topic that is read; of the two tasks of a write.
MESSAGES = 100_000
TASKS = 2
#: Messages of the topic whose micro-batches have one each.
SMALL_BATCHES = 20
#: Writes of the disk's durable rate.
DISK_WRITE_BYTES = 1 << 20
DISK_WRITES = 200
#: In the first turn, which warms up, what is made for it is this part of the other turns'.
WARM_UP_PART = 8
#: Of the source in memory; of the lower of sink to nowhere and disk; of at-least-once.
READ_GOAL, WRITE_GOAL, EXACTLY_GOAL = 0.7, 0.7, 0.7
GUARANTEES = ("at-least-once", "effectively-once", "exactly-once")
#: A task that writes effectively once holds its rows, to sort them: this many bytes are written at most.
SORTED_TASK_BYTES = 256 << 20
#: The namespace with deduplication.
DEDUPLICATED = "public/deduplicated"
WRITTEN_COLUMNS = ["value", "__key", "__eventTime"]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class _Turn:
    """One query: MB/s, and CPU seconds a GB."""

    rate: float
    broker: float
    jvm: float
    python: float


def spark(bench: Bench, gigabytes: float = 0.0, payload_bytes: int = 0, which: str = "") -> list[Row]:
    """All rows. ``gigabytes``: of payloads in each query; ``payload_bytes``: of each; 0: as the module says.

    ``which``: only queries whose name contains it ("a or b": one of these), and the source in memory: NONE, LZ4,
    nowhere, a guarantee (beside nowhere), "Parquet write", "Parquet read"; a read comes with the bare socket.
    """
    average = payload_bytes or sum(PAYLOAD_BYTES) // 2
    messages = max(1, int(gigabytes * 1e9 / average / TASKS)) if gigabytes else MESSAGES
    settings = {
        "brokerDeleteInactiveTopicsEnabled": "false",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    with bench.product(**settings) as broker:
        return _Measuring(bench, broker, messages, payload_bytes, which).rows()


class _Measuring:
    def __init__(self, bench: Bench, broker: StandaloneProcess, messages: int, payload_bytes: int, which: str) -> None:
        self._messages = messages
        self._size = payload_bytes
        self._which = which.split(" or ")
        self._compressions = [name for name in ("NONE", "LZ4") if self._is_wanted(name)]
        self._sorted = min(messages, SORTED_TASK_BYTES // (payload_bytes or sum(PAYLOAD_BYTES) // 2))
        self._files = ["parquet", {"path": str(bench.scratch / "parquet"), "compression": "none"}]
        self._bench = bench
        self._broker = broker
        variables = {PAYLOAD_VARIABLE: str(payload_bytes)}
        self._loads = SparkLoads(bench, "bench.spark_load", broker.service_url, variables)
        self._turns: dict[str, list[_Turn]] = {}
        #: Process and port of what only sends.
        self._sender = self._port = 0

    def rows(self) -> list[Row]:
        """Fill, start Spark, take turns."""
        for compression in self._compressions:
            self._load("fill", topics=_topics(compression), count=self._messages, compression=compression)
        self._load("fill", topics=["small"], count=1, compression="NONE")
        for _ in range(SMALL_BATCHES - 1):
            self._load("fill", topics=["small"], count=1, compression="NONE")
        alone = [self._alone(compression) for compression in self._compressions]
        self._deduplicate()
        sender = self._loads.start("send")
        assert sender.stdout is not None
        self._sender, self._port = sender.pid, json.loads(sender.stdout.readline())["port"]
        session = self._loads.start_session()
        try:
            self._take_turns(session)
            small = next_turn(session, json.dumps(self._query(["small"], "noop", maxMessagesPerTrigger="1")))
        finally:
            for process in (session, sender):
                process.kill()
                process.wait()
        writes = self._writes(durable_rate(self._bench.scratch)) if "nowhere" in self._turns else []
        return [*self._reads(), *writes, *alone, _floor(small, self._turns)]

    # ---- turns

    def _take_turns(self, session: subprocess.Popen[str]) -> None:
        for turn in range(self._bench.rounds + 1):
            for name, query in self._queries(turn):
                rows = TASKS * self._rows_of(name, turn)
                server = self._sender if name == "bare socket" else self._broker.pid
                before = cpu_seconds(server)
                answer = next_turn(session, json.dumps(query))
                broker_s = cpu_seconds(server) - before
                if answer["rows"] != rows:
                    raise BenchError(f"{name}: {answer['rows']} rows, expected {rows}")
                if turn:  # the first one warms up
                    size = self._row_bytes() * rows
                    self._turns.setdefault(name, []).append(
                        _Turn(
                            size / 1e3 / sum(answer["trigger_ms"]),
                            broker_s / size * 1e9,
                            answer["jvm_cpu_s"] / size * 1e9,
                            answer["python_cpu_s"] / size * 1e9,
                        )
                    )

    def _rows_of(self, name: str, turn: int) -> int:
        """Messages of a task of this query."""
        rows = self._sorted if name == "effectively-once" else self._messages
        return rows if turn or name in self._compressions else max(1, rows // WARM_UP_PART)

    def _row_bytes(self) -> float:
        """Of a payload, as a mean over those that come in turns."""
        return self._size or statistics.mean(map(len, payloads()))

    def _queries(self, turn: int) -> list[tuple[str, dict[str, Any]]]:
        directory = {**self._files[1], "path": f"{self._files[1]['path']}-{turn}"}
        memory = _memory(self._rows_of("memory", turn))
        queries: list[tuple[str, dict[str, Any]]] = [
            ("memory", {"from": memory, "to": ["noop", {}]}),
            ("bare socket", {"from": ["bench_socket", {**memory[1], "port": str(self._port)}], "to": ["noop", {}]}),
            ("NONE", self._query(_topics("NONE"), "noop")),
            ("LZ4", self._query(_topics("LZ4"), "noop")),
            ("Parquet write", {"from": memory, "to": ["parquet", directory]}),
            ("Parquet read", {"from": ["parquet", directory], "to": ["noop", {}]}),
            ("nowhere", {"from": memory, "to": ["bench_nowhere", {}], "select": WRITTEN_COLUMNS}),
            *((name, self._write_query(name, turn)) for name in GUARANTEES),
        ]
        return [one for one in queries if self._is_wanted(one[0])]

    def _is_wanted(self, name: str) -> bool:
        if name == "memory" or (name == "bare socket" and self._compressions):
            return True
        if name == "Parquet write" and self._is_wanted("Parquet read"):
            return True  # what is read must be written
        if name == "nowhere" and any(self._is_wanted(guarantee) for guarantee in GUARANTEES):
            return True
        return any(which in name for which in self._which)

    def _write_query(self, guarantee: str, turn: int) -> dict[str, Any]:
        is_sorted = guarantee == "effectively-once"
        namespace = DEDUPLICATED if is_sorted else "public/default"
        topic = f"persistent://{namespace}/{guarantee}-{turn}"
        sink = {"service.url": self._broker.service_url, "topic": topic, "guarantee": guarantee}
        source = _memory(self._rows_of(guarantee, turn))
        return {"from": source, "to": ["pulsar", sink], "select": WRITTEN_COLUMNS}

    def _deduplicate(self) -> None:
        """Make the namespace for ``effectively-once``."""
        for method, path, body in (("PUT", "", b"{}"), ("POST", "/deduplication", b"true")):
            url = f"{self._broker.web_url}/admin/v2/namespaces/{DEDUPLICATED}{path}"
            request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method=method)
            with urllib.request.urlopen(request, timeout=30):
                pass

    def _query(self, topics: list[str], sink: str, **options: str) -> dict[str, Any]:
        reading = {
            "service.url": self._broker.service_url,
            "topics": ",".join(topics),
            "startingOffsets": "earliest",
            "numPartitions": str(TASKS),
        }
        return {"from": ["pulsar", {**reading, **options}], "to": [sink, {}]}

    # ---- rows

    def _reads(self) -> list[Row]:
        """Topics and files, beside the source in memory."""
        memory = [one.rate for one in self._turns["memory"]]
        beside = "source in memory"
        rows = [
            _row(f"streaming read, {name}", self._turns[name], beside, memory, READ_GOAL) for name in self._compressions
        ]
        if "bare socket" in self._turns:
            rows.append(_row("streaming read, bare socket", self._turns["bare socket"], beside, memory, 0.0))
        if "Parquet read" in self._turns:
            rows.append(_row("streaming read, Parquet files", self._turns["Parquet read"], beside, memory, 0.0))
        return rows

    def _writes(self, disk: float) -> list[Row]:
        """Each guarantee beside the smaller of two, as the goal says; exactly-once beside at-least-once, too."""
        nowhere = [one.rate for one in self._turns["nowhere"]]
        limits = [min(one, disk) for one in nowhere]
        beside = f"sink to nowhere, or the disk's {disk:.0f}"
        rows = [
            _row(f"streaming write, {name}", self._turns[name], beside, limits, WRITE_GOAL)
            for name in GUARANTEES
            if name in self._turns
        ]
        if self._turns.keys() >= {"at-least-once", "exactly-once"}:
            rates = [one.rate for one in self._turns["at-least-once"]]
            rows.append(
                _row("streaming write, exactly-once", self._turns["exactly-once"], "at-least-once", rates, EXACTLY_GOAL)
            )
        if "Parquet write" in self._turns:
            files = self._turns["Parquet write"]
            rows.append(_row("streaming write, Parquet files (not synced)", files, "sink to nowhere", nowhere, 0.0))
        return rows

    def _alone(self, compression: str) -> Row:
        before = cpu_seconds(self._broker.pid)
        options = {"numPartitions": str(TASKS)}
        answer = self._load("alone", topics=_topics(compression), options=options)
        gigabytes = answer["bytes"] / 1e9
        turn = _Turn(
            answer["bytes"] / 1e6 / answer["seconds"],
            (cpu_seconds(self._broker.pid) - before) / gigabytes,
            0.0,
            answer["cpu_s"] / gigabytes,
        )
        return _row(f"client alone to Arrow, {compression}", [turn], "-", [], 0.0)

    # ---- processes

    def _load(self, mode: str, **options: Any) -> dict[str, Any]:
        return finish_load(self._loads.start(mode, **options))


def _memory(messages: int) -> list[Any]:
    """The source of the bench, with so many messages a task."""
    return ["bench_memory", {"tasks": str(TASKS), "rows": str(messages)}]


def _topics(compression: str) -> list[str]:
    return [f"{compression.lower()}-{index}" for index in range(TASKS)]


def _row(what: str, turns: list[_Turn], beside: str, limits: list[float], goal: float) -> Row:
    ratio = statistics.median(turn.rate / limit for turn, limit in zip(turns, limits, strict=True)) if limits else "-"
    return {
        "what": what,
        "MB/s": round(statistics.median(turn.rate for turn in turns)),
        "beside": beside,
        "its MB/s": round(statistics.median(limits)) if limits else "-",
        "ratio": ratio,
        "goal": goal or "-",
        "met": "-" if not limits or not goal else "yes" if ratio >= goal else "NO",
        "CPU s/GB broker": statistics.median(turn.broker for turn in turns),
        "JVM": statistics.median(turn.jvm for turn in turns),
        "Python": statistics.median(turn.python for turn in turns),
    }


def _floor(small: dict[str, Any], turns: dict[str, list[_Turn]]) -> Row:
    """The micro-batch with one message; beside it, what the source in memory takes of CPU."""
    memory = turns["memory"]
    return {
        "what": f"micro-batch of one message: {statistics.median(small['trigger_ms']):.0f} ms",
        "MB/s": "-",
        "beside": "CPU: the source in memory",
        "its MB/s": round(statistics.median(turn.rate for turn in memory)),
        "ratio": "-",
        "goal": "-",
        "met": "-",
        "CPU s/GB broker": 0.0,
        "JVM": statistics.median(turn.jvm for turn in memory),
        "Python": statistics.median(turn.python for turn in memory),
    }


def durable_rate(directory: Path) -> float:
    """MB/s of the disk: 1 MiB at a time at the end of a preallocated file, each synced."""
    path = directory / "durable"
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.posix_fallocate(file, 0, DISK_WRITE_BYTES * DISK_WRITES)
        data = os.urandom(DISK_WRITE_BYTES)
        started = time.perf_counter()
        for index in range(DISK_WRITES):
            os.pwrite(file, data, index * DISK_WRITE_BYTES)
            os.fdatasync(file)
        return DISK_WRITE_BYTES * DISK_WRITES / 1e6 / (time.perf_counter() - started)
    finally:
        os.close(file)
        path.unlink()


def cpu_seconds(pid: int) -> float:
    """Of a process so far."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13])) / _TICKS
