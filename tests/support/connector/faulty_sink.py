"""The data source ``pulsar-faulty``: ``pulsar`` whose writers, in Spark's own processes, meet one planted fault.

The option ``fault`` names a file with the plan, ``{"label": ..., "hits": n, "what": "kill" | "raise" | "sleep" |
"claim" | "hold"}``: what happens at the n-th hit of a crash point in one process, once for the file (``<file>.done`` is
made with it). ``hold`` goes on when the file ``<file>.go`` is there."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from geminga.runtime.points import set_point_hook
from geminga.spark.datasource import PulsarDataSource
from geminga.spark.sink.writer import BatchWriter, StreamWriter
from support.house.waiting import until

FAULT = "fault"
#: How long ``sleep`` takes.
SLEEP_S = 4.0
#: How long ``hold`` waits at most.
HOLD_MAX_S = 300.0


def plan(path: Path, label: str, what: str, hits: int = 1) -> str:
    """Write a plan; its name, for the option."""
    path.write_text(json.dumps({"label": label, "what": what, "hits": hits}), encoding="utf-8")
    return str(path)


def has_happened(path: Path) -> bool:
    return Path(f"{path}.done").exists()


def let_go(path: Path) -> None:
    """End a ``hold``."""
    Path(f"{path}.go").touch()


class _Hook:
    def __init__(self, path: str, writer: BatchWriter | StreamWriter) -> None:
        self.path = path
        self.writer = writer
        self.planned = json.loads(Path(path).read_text(encoding="utf-8"))
        self.hits = self.planned["hits"]

    def crash_point(self, label: str) -> None:
        if label != self.planned["label"]:
            return
        self.hits -= 1
        if self.hits:
            return
        with suppress(FileExistsError):
            os.close(os.open(f"{self.path}.done", os.O_CREAT | os.O_EXCL))
            self._act()

    def _act(self) -> None:
        what = self.planned["what"]
        if what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "raise":
            raise ConnectionError(f"planted at {self.planned['label']}")
        elif what == "sleep":
            threading.Event().wait(SLEEP_S)
        elif what == "hold":
            until(Path(f"{self.path}.go").exists, "the test lets it go", limit_s=HOLD_MAX_S)
        else:
            self._claim()

    def _claim(self) -> None:
        """Another driver of the same sink begins to commit."""
        from geminga.spark.process.clients import session_for
        from geminga.spark.sink.decision_log import append_record
        from geminga.spark.sink.plans import plan_topic
        from geminga.spark.sink_rules.decisions import Claim

        options = self.writer.plan.options
        append_record(session_for(options.client), plan_topic(options), Claim(options.application_id, "other"), 10_000)

    def sometimes(self, label: str, percent: float) -> bool:
        return False

    def is_halted(self) -> bool:
        return False


class _Faulty:
    fault = ""

    @contextmanager
    def _planted(self) -> Iterator[None]:
        set_point_hook(_Hook(self.fault, self))  # type: ignore[arg-type]
        try:
            yield
        finally:
            set_point_hook(None)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        with self._planted():
            return super().write(iterator)  # type: ignore[misc]

    def commit(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        with self._planted():
            super().commit(messages, *batch)  # type: ignore[misc]


class FaultyStreamWriter(_Faulty, StreamWriter):
    pass


class FaultyBatchWriter(_Faulty, BatchWriter):
    pass


class FaultyPulsar(PulsarDataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return "pulsar-faulty"

    def _given(self) -> Mapping[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() != FAULT}

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        made = FaultyBatchWriter(self._given(), schema, overwrite)
        made.fault = self.options[FAULT]
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        made = FaultyStreamWriter(self._given(), schema, overwrite)
        made.fault = self.options[FAULT]
        return made
