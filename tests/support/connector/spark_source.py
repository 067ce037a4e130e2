"""The source without Spark: its readers called as Spark calls them, in this process, against a real broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

from geminga.spark.source.stream_reader import PulsarStreamReader
from geminga.spark.source_rules.offsets import StreamOffset
from pyspark_geminga import DefaultSource

Row = dict[str, Any]


def rows_of(reader: Any, partitions: list[Any]) -> list[Row]:
    """The rows of all tasks, each read by a copy of the reader, as in a worker."""
    rows: list[Row] = []
    for partition in partitions:
        worker = pickle.loads(pickle.dumps(reader))
        for batch in worker.read(pickle.loads(pickle.dumps(partition))):
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


def read_batch(options: Mapping[str, str], schema: Any = None) -> list[Row]:
    """What ``spark.read`` gives."""
    source = DefaultSource(options=dict(options))
    reader = source.reader(schema or source.schema())
    return rows_of(reader, reader.partitions())


def values(rows: list[Row]) -> list[bytes]:
    """The column ``value``."""
    return [row["value"] for row in rows]


class Stream:
    """A query as Spark runs it: offsets go through JSON, the log remembers, a restart replays the last batch."""

    def __init__(self, options: Mapping[str, str], *, is_available_now: bool = False) -> None:
        self.options = dict(options)
        self._is_available_now = is_available_now
        #: The offset log: each batch's end, as text.
        self.log: list[str] = []
        self.commits = 0
        self.reader: PulsarStreamReader
        self._start_reader()

    def _start_reader(self) -> None:
        source = DefaultSource(options=self.options)
        self.reader = source.streamReader(source.schema())  # type: ignore[assignment]
        if self._is_available_now:
            self.reader.prepareForTriggerAvailableNow()

    @staticmethod
    def _through_json(offset: Any) -> Any:
        return json.loads(json.dumps(offset))

    def start_of(self, batch: int) -> Any:
        """The offset a batch begins at."""
        if batch == 0:
            return self._through_json(self.reader.initialOffset())
        return json.loads(self.log[batch - 1])

    def plan(self) -> bool:
        """Ask for the next batch; whether there is one (its end is in the log then). The first one is always made."""
        start = self.start_of(len(self.log))
        end = self._through_json(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))
        if self.log and json.dumps(end) == json.dumps(start):
            return False
        self.log.append(json.dumps(end))
        return True

    def read(self, batch: int = -1) -> list[Row]:
        """The rows of a logged batch."""
        batch %= len(self.log)
        partitions = self.reader.partitions(self.start_of(batch), json.loads(self.log[batch]))
        return rows_of(self.reader, list(partitions))

    def commit(self, batch: int = -1) -> None:
        """Spark tells the source that a batch is done."""
        self.reader.commit(json.loads(self.log[batch]))

    def batch(self) -> list[Row]:
        """One batch from planning to commit of the one before; no rows if there is nothing new."""
        if not self.plan():
            return []
        if len(self.log) > 1:
            self.commit(-2)
        return self.read()

    def batches(self) -> Iterator[list[Row]]:
        """Batches until nothing is left."""
        while self.plan():
            if len(self.log) > 1:
                self.commit(-2)
            yield self.read()

    def restart(self, **changed: str) -> None:
        """The driver died and comes back with the same log."""
        self.options.update(changed)
        self.reader.stop()
        self._start_reader()

    def offset(self, batch: int = -1) -> StreamOffset:
        """The end of a batch."""
        return StreamOffset.from_dict(json.loads(self.log[batch]))

    def stop(self) -> None:
        """The query stops."""
        self.reader.stop()
