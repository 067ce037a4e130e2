"""What the stage around the windows makes of events, and reads from the table."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from demo.events import Events
from demo.troubled import Row
from demo.weekly import EventError, Sums, WindowKey
from demo.weekly_stage import read_table, rows_of


def event(repo: str, commit: str, at: int) -> bytes:
    numbers = {"event_time": at, "files": 1, "insertions": 2, "deletions": 3}
    return json.dumps({"repo": repo, "commit": commit, **numbers}).encode()


def test_events_become_rows_with_their_commit_as_id() -> None:
    lines = [event("apache/pulsar", "a", 5), event("redis/redis", "b", 6)]
    rows, owner = rows_of(Events([("", line) for line in lines], "here"))
    assert owner == "apache"
    assert rows == [
        Row("apache/pulsar", lines[0], 5, "a", is_first=True),
        Row("redis/redis", lines[1], 6, "b", is_first=False),
    ]


def test_events_that_are_no_commits_are_told() -> None:
    with pytest.raises(EventError, match="event 1 has no repo, commit, event_time"):
        rows_of(Events([("", b"{}")], "here"))


def batch_of_table(directory: Path, batch: int, rows: list[tuple[int, str | None, int]]) -> None:
    path = directory / f"batch={batch}"
    path.mkdir(parents=True)
    names = ("window_start_ms", "repo", "commits")
    columns = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    zeros = {name: [0] * len(rows) for name in ("files", "insertions", "deletions")}
    pq.write_table(pa.table({**columns, **zeros}), path / "part-0.parquet")
    (path / "_SUCCESS").touch()


def test_table_is_read_in_the_order_of_its_batches(tmp_path) -> None:
    for batch in (10, 9, 2):
        batch_of_table(tmp_path, batch, [(batch, "r", batch), (batch, None, 1)])
    assert read_table(tmp_path) == [
        (WindowKey(batch, repo), Sums(commits, 0, 0, 0))
        for batch in (2, 9, 10)
        for repo, commits in (("r", batch), ("", 1))
    ]


def test_table_without_a_batch_is_empty(tmp_path) -> None:
    assert read_table(tmp_path / "none") == []
