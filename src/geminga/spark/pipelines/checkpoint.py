"""The pipeline's own part of a checkpoint: whose it is, who runs it; and where Spark's part says that it stands."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any, Final, Self

from geminga.runtime.local_file import make_private_directories, private, read_local_file
from geminga.spark.pipelines.core.checkpoint_text import (
    CheckpointDamagedError,
    LoggedOffsets,
    latest_number,
    parse_offsets,
)
from geminga.spark.pipelines.core.definition import Pipeline
from geminga.spark.pipelines.core.identity import CheckpointInUseError, check_change, definition_json
from geminga.spark.pipelines.files import local_directory, write_synced

#: Below Spark's checkpoint.
DIRECTORY: Final = "geminga"
DEFINITION: Final = "pipeline.json"
LOCK: Final = "lock"
#: What the JVM and the Python workers of the last run had to say.
LOG: Final = "spark.log"
#: A run gives up getting its lock when so many tries in a row met somebody who asked whether it runs.
LOCK_TRIES_MAX: Final = 1000


class PipelineCheckpoint:
    """``with Checkpoint(pipeline):`` it belongs to this pipeline and this process; raises CheckpointInUseError."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.path = local_path(pipeline.checkpoint_path)
        self._lock: IO[str] | None = None

    @property
    def log_path(self) -> str:
        """Where the output of Spark's processes goes."""
        return os.path.join(self.path, DIRECTORY, LOG)

    def __enter__(self) -> Self:
        own = os.path.join(self.path, DIRECTORY)
        self._checked()  # nothing is made in what is no checkpoint of this pipeline
        make_private_directories(own)
        self._lock = lock = open(os.path.join(own, LOCK), "a+", encoding="utf-8", opener=private)
        try:
            if not _is_locked_for_run(lock):
                holder = _holder(os.path.join(own, LOCK))
                raise CheckpointInUseError(
                    f"{self.path}: a process{f' ({holder})' if holder else ''} runs this pipeline already"
                )
            stored = self._checked()  # whoever had the lock before may have begun it
            lock.seek(0)
            lock.truncate()
            since = datetime.now(UTC).isoformat(timespec="seconds")
            lock.write(json.dumps({"pid": os.getpid(), "since": since}))
            lock.flush()
            text = definition_json(self._pipeline)
            if text != stored:
                write_synced(os.path.join(own, DEFINITION), text)
        except BaseException:
            with suppress(OSError):  # what could not be written is written once more
                lock.close()
            raise
        return self

    def _checked(self) -> str | None:
        """The stored definition, which may go on with this one; None: a new checkpoint."""
        stored = stored_definition(self.path)
        if stored is not None:
            check_change(stored, self._pipeline, self.path)
        return stored

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()


def stored_definition(path: str) -> str | None:
    """The text of ``pipeline.json``; None: a new checkpoint. Raises CheckpointInUseError for one of another query."""
    directory = local_path(path)
    try:
        return read_local_file(os.path.join(directory, DIRECTORY, DEFINITION)).decode("utf-8", "replace")
    except FileNotFoundError:
        if os.path.isdir(os.path.join(directory, "offsets")):
            raise CheckpointInUseError(
                f"{directory}: the checkpoint of a query that is no pipeline: expected a new directory, or one that "
                "this pipeline made"
            ) from None
        return None


def _is_locked_for_run(lock: IO[str]) -> bool:
    """Whether it is this process's alone. Who asks whether a pipeline runs has a share of it for a moment."""
    for _ in range(LOCK_TRIES_MAX):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(lock, fcntl.LOCK_UN)
    return False


def _holder(path: str) -> str:
    try:
        return f"process {json.loads(read_local_file(path))['pid']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def local_path(path: str) -> str:
    """A checkpoint's directory; raises CheckpointInUseError for one on an object store."""
    directory = local_directory(path)
    if directory is None:
        raise CheckpointInUseError(
            f"{path}: expected a directory of this machine (or one that is mounted): pipelines lock their checkpoint "
            "and read in it"
        )
    return directory


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """Where a pipeline stands."""

    path: str
    is_running: bool
    pid: int
    since: str
    #: The last batch that was begun, and the last that was done; -1: none.
    begun: int
    done: int
    #: ISO time of when the last batch was planned; empty: none.
    planned: str
    watermark_ms: int
    #: Of each source, what it was read to.
    offsets: tuple[Mapping[str, Any] | None, ...]
    definition: str


def read_state(path: str) -> CheckpointState:
    """From the files; raises CheckpointInUseError, CheckpointDamagedError."""
    directory = local_path(path)
    own = os.path.join(directory, DIRECTORY)
    try:
        definition = read_local_file(os.path.join(own, DEFINITION)).decode("utf-8", "replace")
    except FileNotFoundError:
        raise CheckpointInUseError(f"{directory}: no pipeline has run with this checkpoint yet") from None
    is_running, holder = _lock_state(os.path.join(own, LOCK))
    begun = latest_number(_names(os.path.join(directory, "offsets")))
    done = latest_number(_names(os.path.join(directory, "commits")))
    planned, watermark_ms = "", 0
    offsets: tuple[Mapping[str, Any] | None, ...] = ()
    if done >= 0 or begun >= 0:
        at = done if done >= 0 else begun
        logged, planned = _logged(os.path.join(directory, "offsets", str(at)))
        watermark_ms = logged.watermark_ms
        offsets = logged.sources if done >= 0 else ()
    return CheckpointState(
        directory,
        is_running,
        int(holder.get("pid", 0)) if is_running else 0,
        str(holder.get("since", "")) if is_running else "",
        begun,
        done,
        planned,
        watermark_ms,
        offsets,
        definition,
    )


def _logged(path: str) -> tuple[LoggedOffsets, str]:
    """What a file of the offset log says, and when it was planned as ISO time. Raises CheckpointDamagedError."""
    try:
        logged = parse_offsets(read_local_file(path).decode())
        planned = datetime.fromtimestamp(logged.timestamp_ms / 1000, UTC)
    except (FileNotFoundError, ValueError, OverflowError, CheckpointDamagedError) as error:
        raise CheckpointDamagedError(f"{path}: {error}") from None
    return logged, planned.isoformat(timespec="milliseconds")


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _lock_state(path: str) -> tuple[bool, Mapping[str, Any]]:
    try:
        with open(path, encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                try:
                    return True, json.loads(file.read())
                except ValueError:
                    return True, {}
            return False, {}
    except FileNotFoundError:
        return False, {}
