"""Messages of one topic into Spark: its closed ledgers from the lake and the tail from the broker, beside all from it.

One topic, one producer, 100 bytes each (``--size``), batches of 128 KiB, every fourth with a key; ledgers of 64 MiB,
all but the open one offloaded to Parquet in a directory, the bookies' copies kept. One Spark session, two tasks at a
time; reads take turns, after one of the newest ledger and the tail that warms up. Planning is included. What is read:

- *all columns*: the default ones to Spark's ``noop`` sink;
- *value, event time, key*: those, to ``noop``;
- *count by key*;
- *count* of rows.

Each from the broker, told by ``metadataColumns`` which columns are wanted, and with ``read_topic``, where Spark reads
the Parquet files itself; all columns with ``lake.root`` through the data source (Python), too. At last every message id
of broker and ``read_topic`` is looked at: each number once, in the order of the ids.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
import urllib.request
from typing import Any, Final

from tools.standalone_process import StandaloneProcess

from bench.client import next_turn
from bench.lake_queries import ALL, QUERIES
from bench.measure import Row
from bench.servers import Bench, BenchError, SparkLoads, finish_load
from bench.spark import cpu_seconds

MESSAGES: Final = 1_000_000
PAYLOAD_BYTES: Final = 100
GOAL: Final = 5.0
TOPIC: Final = "persistent://public/default/lake"
LEDGER_MEGABYTES: Final = "64"
_SAID: Final = {"broker": "broker alone", "python": "lake by Python", "files": "lake by Spark"}
_PATH: Final = "/admin/v2/persistent/public/default/lake"
_OFFLOAD_S: Final = 1200.0
_ASK_AGAIN_S: Final = 0.5


def lake(bench: Bench, messages: int = 0, payload_bytes: int = 0) -> list[Row]:
    """All rows."""
    root = bench.scratch / "lake"
    root.mkdir()
    settings = {
        "managedLedgerOffloadDriver": "filesystem",
        "fileSystemURI": str(root),
        "managedLedgerMaxSizePerLedgerMbytes": LEDGER_MEGABYTES,
        "managedLedgerMaxEntriesPerLedger": "1000000",
        "managedLedgerMinLedgerRolloverTimeMinutes": "0",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
        "brokerDeleteInactiveTopicsEnabled": "false",
    }
    with bench.product(**settings) as broker:
        return _Measuring(bench, broker, messages or MESSAGES, payload_bytes or PAYLOAD_BYTES, str(root)).rows()


class _Measuring:
    def __init__(self, bench: Bench, broker: StandaloneProcess, messages: int, size: int, root: str) -> None:
        self._bench = bench
        self._broker = broker
        self._loads = SparkLoads(bench, "bench.lake_load", broker.service_url)
        self._messages = messages
        self._size = size
        broker_alone = {"service.url": broker.service_url, "topic": TOPIC}
        with_lake = {**broker_alone, "lake.root": root}
        self._ways: dict[str, dict[str, Any]] = {
            "broker": {"options": broker_alone, "files": False},
            "python": {"options": with_lake, "files": False},
            "files": {"options": with_lake, "files": True},
        }

    def rows(self) -> list[Row]:
        """Fill, offload, start Spark, take turns, look at the ids."""
        filled = finish_load(self._loads.start("fill", topic=TOPIC, count=self._messages, size=self._size))
        offloaded_s, ledgers = self._offload()
        asked = [(way, query) for query in QUERIES for way in self._ways if way != "python" or query == ALL]
        turns: dict[tuple[str, str], list[dict[str, float]]] = {one: [] for one in asked}
        newest = {"startingOffsets": json.dumps({TOPIC: f"{max(ledgers)}:0:0"})} if ledgers else {}
        session = self._loads.start_session()
        try:
            for turn in range(self._bench.rounds + 1):
                for way, query in asked:
                    how = self._ways[way]
                    options = how["options"] if turn else {**how["options"], **newest}
                    answer = self._turn(session, {**how, "options": options, "query": query})
                    if turn:  # the first one warms up
                        turns[way, query].append(answer)
            checked = {way: self._check(session, self._ways[way]) for way in ("broker", "files")}
        finally:
            session.kill()
            session.wait()
        if checked["broker"] != checked["files"]:
            raise BenchError(f"rows by ledger differ: {checked}")
        seam = [ledger for ledger in checked["files"] if int(ledger) not in ledgers]
        if not seam or len(seam) == len(checked["files"]):
            raise BenchError(f"there is no seam: {sorted(ledgers)} are in the lake of {sorted(checked['files'])}")
        tail = sum(checked["files"][ledger] for ledger in seam)
        there = f"{tail:,} of the tail from the broker"
        return [
            *(self._row(query, turns, way) for way, query in asked),
            {**_EMPTY, "what": f"published, {self._size} bytes each", "seconds": filled["seconds"]}
            | {"messages/s": round(self._messages / filled["seconds"])},
            {**_EMPTY, "what": f"offloaded, {len(ledgers)} ledgers; {there}", "seconds": offloaded_s}
            | {"messages/s": round((self._messages - tail) / offloaded_s)},
            {**_EMPTY, "what": "message ids: each once, same by ledger", "messages/s": "-", "met": "yes"},
        ]

    def _row(self, query: str, turns: dict[tuple[str, str], list[dict[str, float]]], way: str) -> Row:
        own = turns[way, query]
        beside = "" if way == "broker" else "broker"
        middle = {name: statistics.median(turn[name] for turn in own) for name in own[0]}
        ratio = statistics.median(
            one["seconds"] / other["seconds"] for one, other in zip(turns["broker", query], own, strict=True)
        )
        return {
            "what": f"{query}: {_SAID[way]}",
            "seconds": middle["seconds"],
            "messages/s": round(self._messages / middle["seconds"]),
            "beside": beside or "-",
            "ratio": ratio if beside else "-",
            "goal": GOAL if beside else "-",
            "met": ("yes" if ratio >= GOAL else "NO") if beside else "-",
            "CPU s broker": middle["broker_cpu_s"],
            "JVM": middle["jvm_cpu_s"],
            "Python": middle["python_cpu_s"],
        }

    def _turn(self, session: subprocess.Popen[str], how: dict[str, Any]) -> dict[str, float]:
        before = cpu_seconds(self._broker.pid)
        answer: dict[str, float] = next_turn(session, json.dumps(how))
        answer["broker_cpu_s"] = cpu_seconds(self._broker.pid) - before
        return answer

    # ---- steps

    def _offload(self) -> tuple[float, set[int]]:
        """Seconds, and the ledgers that went."""
        started = time.perf_counter()
        last = self._ask("/internalStats")["ledgers"][-1]["ledgerId"]
        self._ask("/offload", {"ledgerId": last, "entryId": 0, "partitionIndex": -1})
        while (found := self._ask("/offload"))["status"] == "RUNNING":
            if time.perf_counter() - started > _OFFLOAD_S:
                raise BenchError(f"the offload took longer than {_OFFLOAD_S:.0f} s")
            time.sleep(_ASK_AGAIN_S)
        if found["status"] != "SUCCESS":
            raise BenchError(f"the offload ended as {found}")
        seconds = time.perf_counter() - started
        return seconds, {one["ledgerId"] for one in self._ask("/lake")["ledgers"] if one["isOffloaded"]}

    def _ask(self, path: str, body: dict[str, int] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "PUT"
        headers = {"Content-Type": "application/json"}
        url = f"{self._broker.web_service_url.rstrip('/')}{_PATH}{path}"
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text else {}

    def _check(self, session: subprocess.Popen[str], how: dict[str, Any]) -> dict[str, int]:
        answer = next_turn(session, json.dumps({**how, "check": True, "count": self._messages}))
        found: dict[str, int] = answer["ledgers"]
        return found


_EMPTY: Final[Row] = {
    "what": "",
    "seconds": 0.0,
    "messages/s": 0,
    "beside": "-",
    "ratio": "-",
    "goal": "-",
    "met": "-",
    "CPU s broker": "-",
    "JVM": "-",
    "Python": "-",
}
