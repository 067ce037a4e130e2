"""Whose the directories of sinks are, and files that no batch committed."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from geminga.spark.pipelines import CheckpointInUseError, Pipeline, Sink, Source, outputs
from geminga.spark.pipelines.files import local_directory, write_new_synced
from geminga.spark.pipelines.outputs import (
    ASIDE,
    FILES_OWNER,
    LOG,
    TABLE_OWNER,
    Uncommitted,
    claim,
    claim_files,
    committed_names,
)
from geminga.spark.pipelines.table import CURRENT, TableWriter


def name_of(number: int) -> str:
    return f"part-{number:05d}-00000000-0000-4000-8000-{number:012x}-c000.snappy.parquet"


def made(tmp_path: Path, checkpoint: str = "checkpoint", **sink: object) -> Pipeline:
    parts = {"parquet": "out", **sink}
    return Pipeline(
        "x",
        (Source(topics=("a",)),),
        Sink(**parts),
        checkpoint=checkpoint,
        base=str(tmp_path),  # type: ignore[arg-type]
    )


def commit(tmp_path: Path, batch: int, *names: str, suffix: str = "") -> None:
    log = tmp_path / "out" / LOG
    log.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"path": f"file:///moved/since/{name}", "action": "add"}) for name in names]
    (log / f"{batch}{suffix}").write_text("\n".join(["v1", *lines]), encoding="utf-8")


def begin(tmp_path: Path, batch: int) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / str(batch)).write_text("v1\n{}\n", encoding="utf-8")


def put(tmp_path: Path, *names: str) -> None:
    for name in names:
        path = tmp_path / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"PAR1")


def test_a_directory_is_one_checkpoints_whatever_it_is_called_from(tmp_path, monkeypatch) -> None:
    claim_files(made(tmp_path))
    claim_files(made(tmp_path))
    with pytest.raises(CheckpointInUseError, match="was made with another checkpoint"):
        claim_files(made(tmp_path, "other"))
    monkeypatch.chdir(tmp_path)
    claim_files(made(Path()))
    monkeypatch.chdir(tmp_path / "out")
    claim_files(made(Path("..")))


def test_a_new_checkpoint_does_not_take_a_directory_whose_batches_spark_would_pass_over(tmp_path) -> None:
    put(tmp_path, name_of(1))
    commit(tmp_path, 3, name_of(1))
    with pytest.raises(CheckpointInUseError, match="not this pipeline's"):
        claim_files(made(tmp_path))
    begin(tmp_path, 2)
    with pytest.raises(CheckpointInUseError, match="not this pipeline's"):
        claim_files(made(tmp_path))
    # Its own, of before directories had owners: killed between Spark's log of files and that of batches.
    begin(tmp_path, 3)
    claim_files(made(tmp_path))
    (tmp_path / "checkpoint" / "offsets" / "3").unlink()
    with pytest.raises(CheckpointInUseError, match=r"has batch 3, and the checkpoint .* is at 2"):
        claim_files(made(tmp_path))


def test_a_new_checkpoint_at_the_old_place_does_not_take_a_table_that_is_ahead_of_it(tmp_path) -> None:
    pipeline = made(tmp_path, parquet="", table="out")
    begin(tmp_path, 3)
    TableWriter(None, pipeline)  # type: ignore[arg-type]
    (tmp_path / "out" / CURRENT).symlink_to("v-000000000003")
    assert TableWriter(None, pipeline).version() == 3  # type: ignore[arg-type]
    # Deleted to begin anew, or restored from a backup: the table would do nothing for the batches up to its own.
    (tmp_path / "checkpoint" / "offsets" / "3").unlink()
    with pytest.raises(CheckpointInUseError, match=r"has batch 3, and the checkpoint .* is at -1"):
        TableWriter(None, pipeline)  # type: ignore[arg-type]


@pytest.mark.parametrize("owner", [FILES_OWNER, TABLE_OWNER])
def test_of_two_that_claim_a_new_directory_at_a_time_one_has_it(tmp_path, monkeypatch, owner) -> None:
    directory, read = str(tmp_path / "out"), outputs.read_local_file

    def nobodys_then_the_others(path: str) -> bytes:
        monkeypatch.undo()
        try:
            return read(path)
        finally:
            claim(directory, owner, made(tmp_path, "other"))

    monkeypatch.setattr(outputs, "read_local_file", nobodys_then_the_others)
    with pytest.raises(CheckpointInUseError, match="was made with another checkpoint"):
        claim(directory, owner, made(tmp_path))
    claim(directory, owner, made(tmp_path, "other"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == [owner]


def test_a_directory_without_hard_links_is_claimed_too(tmp_path, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", refused)
    claim(str(tmp_path / "out"), TABLE_OWNER, made(tmp_path))
    with pytest.raises(CheckpointInUseError, match="was made with another checkpoint"):
        claim(str(tmp_path / "out"), TABLE_OWNER, made(tmp_path, "other"))


def test_of_two_that_make_a_file_without_hard_links_at_a_time_one_has_it(tmp_path, monkeypatch) -> None:
    path, made_it, rename = str(tmp_path / "owner"), [], os.replace

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "no hard links here")

    def behind_another(source: str, target: str) -> None:
        monkeypatch.setattr(os, "replace", rename)
        made_it.append(write_new_synced(path, "another's"))
        rename(source, target)

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(os, "replace", behind_another)
    made_it.append(write_new_synced(path, "mine"))
    assert sorted(made_it) == [False, True]
    assert (tmp_path / "owner").read_text() == ("mine" if made_it[1] else "another's")
    assert [each.name for each in tmp_path.iterdir()] == ["owner"]


@pytest.mark.parametrize("owner", [FILES_OWNER, TABLE_OWNER])
def test_a_kill_in_the_middle_of_a_claim_is_nobodys_file(tmp_path, owner) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"{owner}.new").write_text("{", encoding="utf-8")
    claim(str(tmp_path / "out"), owner, made(tmp_path))
    assert json.loads((tmp_path / "out" / owner).read_text())["checkpoint"] == str(tmp_path / "checkpoint")
    (tmp_path / "out" / owner).write_text("{", encoding="utf-8")
    with pytest.raises(CheckpointInUseError, match="can not be read"):
        claim(str(tmp_path / "out"), owner, made(tmp_path))


def test_what_no_batch_committed_is_set_aside_after_a_batch_of_this_run_and_never_before(tmp_path) -> None:
    nested = f"day=1/{name_of(3)}"
    put(tmp_path, name_of(1), name_of(2), nested, "mine.parquet", "part-1.parquet")
    commit(tmp_path, 0, name_of(1))
    found = Uncommitted.of(made(tmp_path))
    assert found is not None
    # The batch that the killed run was in may have been committed by it after all.
    assert found.set_aside(0) == 0
    commit(tmp_path, 1, name_of(2))
    # Of this run: not looked at.
    put(tmp_path, name_of(9))
    assert found.set_aside(1) == 1
    assert found.set_aside(2) == 0
    left = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert left == {
        name_of(1),
        name_of(2),
        name_of(9),
        "mine.parquet",
        "part-1.parquet",
        f"{ASIDE}/{name_of(3)}.uncommitted",
        f"{LOG}/0",
        f"{LOG}/1",
    }


def test_a_log_that_can_not_be_read_as_a_whole_touches_nothing(tmp_path) -> None:
    put(tmp_path, *map(name_of, range(14)))
    commit(tmp_path, 9, *map(name_of, range(10)), suffix=".compact")
    commit(tmp_path, 10, name_of(10))
    commit(tmp_path, 11, name_of(11))
    assert committed_names(str(tmp_path / "out")) == {name_of(number) for number in range(12)}
    found = Uncommitted.of(made(tmp_path))
    assert found is not None
    (tmp_path / "out" / LOG / "10").unlink()
    commit(tmp_path, 12)
    assert committed_names(str(tmp_path / "out")) is None
    assert found.set_aside(12) == 0
    assert Uncommitted.of(made(tmp_path)).set_aside(13) == 0
    # Files that the log has forgotten are the sink's all the same.
    assert Uncommitted.of(made(tmp_path, options={"Retention": "1d"})) is None
    assert Uncommitted.of(made(tmp_path, parquet="s3a://bucket/out")) is None


@pytest.mark.parametrize(
    ("path", "expected"),
    [("/a/b", "/a/b"), ("file:///a/b", "/a/b"), ("file:/a/b", "/a/b"), ("s3a://b/k", None), ("hdfs:/a", None)],
)
def test_paths_of_this_machine(path, expected) -> None:
    assert local_directory(path) == expected
