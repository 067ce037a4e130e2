"""Directories that pipelines write: whose each is, and which Parquet files in one were never committed.

Spark's file sink numbers its batches as the checkpoint does, and passes over a batch whose number its log
(``_spark_metadata``) has already. So with a new checkpoint and the old directory it would leave out the first batches
without a word: a directory belongs to one checkpoint, and says so in a file that readers of Parquet pass over.

A batch that is killed leaves files which that log does not name. Spark's readers do not see them, all others do. They
are set aside (renamed, never deleted) when a run has committed a batch of its own: no process of an earlier run can
commit then what it was writing.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from geminga.runtime.local_file import read_local_file
from geminga.spark.pipelines.core.checkpoint_text import latest_number
from geminga.spark.pipelines.core.identity import CheckpointInUseError
from geminga.spark.pipelines.files import local_directory, write_new_synced

if TYPE_CHECKING:
    from geminga.spark.pipelines.core.definition import Pipeline

TABLE_OWNER: Final = "geminga-table.json"
#: Beginning with _, as everything that readers of Parquet directories pass over.
FILES_OWNER: Final = "_geminga.json"
LOG: Final = "_spark_metadata"
ASIDE: Final = "_uncommitted"
#: What Spark calls the files of its file sink: the number of the task, and a random id.
_WRITTEN: Final = re.compile(r"part-\d{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-].*\.parquet")


def claim(directory: str, owner_file: str, pipeline: Pipeline, *, may_adopt: bool = False) -> None:
    """The directory is this checkpoint's from now on, or CheckpointInUseError; ``may_adopt``: though it has files."""
    os.makedirs(directory, exist_ok=True)
    owner = local_directory(pipeline.checkpoint_path) or pipeline.checkpoint_path
    path = os.path.join(directory, owner_file)
    found = _owner(path)
    if found is None:
        # What a kill in the middle of this left is no file of anybody.
        others = [name for name in os.listdir(directory) if not name.startswith(owner_file)]
        if others and not may_adopt:
            raise CheckpointInUseError(
                f"{directory}: has files that are not this pipeline's, such as {min(others)}: expected an empty "
                "directory. (A new checkpoint begins anew: give it a new directory, or delete this one)"
            )
        text = json.dumps({"format": 1, "pipeline": pipeline.name, "checkpoint": owner}) + "\n"
        if write_new_synced(path, text):
            return
        found = _owner(path)  # another one began at the same time
    # As it was written before: relative to where the program ran.
    if found not in (owner, pipeline.checkpoint_path):
        raise CheckpointInUseError(
            f"{directory}: was made with another checkpoint, {found}. A new checkpoint begins anew: give it a new "
            "directory, or delete this one"
        )


def _owner(path: str) -> Any:  # noqa: ANN401 (JSON)
    """The checkpoint that an owner's file names; None: there is no such file. Raises CheckpointInUseError."""
    try:
        return json.loads(read_local_file(path))["checkpoint"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointInUseError(f"{path} can not be read ({error}): it says whose the directory is") from None


def claim_files(pipeline: Pipeline) -> None:
    """The directory of a Parquet sink; nothing for one of an object store. Raises CheckpointInUseError."""
    directory = local_directory(pipeline.path(pipeline.sink.parquet))
    if directory is None:
        return
    begun = _begun_batch(pipeline)
    written = _latest_batch(directory)
    # One that was begun before directories had owners: its batches are those of the checkpoint.
    claim(directory, FILES_OWNER, pipeline, may_adopt=begun is not None and begun >= max(written, 0))
    check_not_ahead(directory, written, pipeline)


def check_not_ahead(directory: str, written: int, pipeline: Pipeline) -> None:
    """Raise CheckpointInUseError for a directory that has a batch which its checkpoint has not begun.

    The checkpoint was deleted, or is from a backup: its batches would be taken for those that are there.
    """
    begun = _begun_batch(pipeline)
    if begun is not None and written > begun:
        raise CheckpointInUseError(
            f"{directory}: has batch {written}, and the checkpoint {pipeline.checkpoint_path} is at {begun}: all "
            "batches up to there would be passed over. Give a new checkpoint a new directory, or delete this one"
        )


def _begun_batch(pipeline: Pipeline) -> int | None:
    """The last batch that the checkpoint has begun, -1 for none; None: it is on an object store."""
    checkpoint = local_directory(pipeline.checkpoint_path)
    return None if checkpoint is None else latest_number(_names(os.path.join(checkpoint, "offsets")))


class Uncommitted:
    """The files of a sink that no batch committed, as of before a run; the sink's directory is this checkpoint's."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._latest = _latest_batch(directory)
        committed = committed_names(directory)
        self._paths = [] if committed is None else [p for p in _written(directory) if _name(p) not in committed]

    @classmethod
    def of(cls, pipeline: Pipeline) -> Uncommitted | None:
        """None: no Parquet files, of an object store, or Spark's log forgets files after a time."""
        if not pipeline.sink.parquet or any(name.lower() == "retention" for name in pipeline.sink.options):
            return None
        directory = local_directory(pipeline.path(pipeline.sink.parquet))
        return None if directory is None or not os.path.isdir(directory) else cls(directory)

    def set_aside(self, batch: int) -> int:
        """After this run committed ``batch``: how many files were set aside, each still there under another name."""
        if not self._paths or batch <= self._latest:
            return 0
        committed = committed_names(self._directory)
        if committed is None:
            return 0
        aside = os.path.join(self._directory, ASIDE)
        os.makedirs(aside, exist_ok=True)
        moved = 0
        for path in self._paths:
            if _name(path) not in committed:
                with suppress(FileNotFoundError):
                    # Not a name that a pattern such as **/*.parquet would find.
                    os.rename(path, os.path.join(aside, f"{_name(path)}.uncommitted"))
                    moved += 1
        self._paths = []
        return moved


def committed_names(directory: str) -> frozenset[str] | None:
    """Names of the files that Spark's log says are the sink's; None: the log can not be read as a whole.

    Names have a random id each; paths in the log are those of when the files were written.
    """
    log = os.path.join(directory, LOG)
    names = _names(log)
    compacted = latest_number(name.removesuffix(".compact") for name in names if name.endswith(".compact"))
    latest = max(compacted, latest_number(names))
    wanted = [f"{compacted}.compact"] if compacted >= 0 else []
    wanted += [str(number) for number in range(compacted + 1, latest + 1)]
    found = set()
    try:
        for name in wanted:
            with open(os.path.join(log, name), encoding="utf-8") as file:
                if file.readline().strip() != "v1":
                    return None
                found |= {_name(json.loads(line)["path"]) for line in file if line.strip()}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return frozenset(found)


def _latest_batch(directory: str) -> int:
    return latest_number(name.removesuffix(".compact") for name in _names(os.path.join(directory, LOG)))


def _written(directory: str) -> Iterator[str]:
    for at, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(("_", "."))]
        yield from (os.path.join(at, name) for name in names if _WRITTEN.fullmatch(name))


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
