"""What a backup is made of: the storage of a standalone that runs, or a data directory that nobody uses.

The moment of a running one is a turn of its loop. Whatever an entry or a change of metadata depends on was on stable
storage, or asked for, in an earlier turn: so the bookies' groups that are on stable storage then, and the metadata
writes that were asked for until then, are a state that the server could have stopped in. Nothing waits for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Self

from geminga.app.storage.backup_writing import LANE, Cut
from geminga.app.storage.core.bookie_set import BOOKIES_MAX, bookie_slot
from geminga.app.storage.data_directory import DIRECTORY_FORMAT, METADATA_FILE, read_move, read_origin
from geminga.bookie import LocalBookie
from geminga.bookie.core.checkpoint_format import decode_checkpoint, decode_cookie
from geminga.bookie.cut import CutFile, cut_of, hold, release, small_files
from geminga.bookie.entry_logs import log_name
from geminga.bookie.garbage_collection import MARK_NAME, QUARANTINE_NAME
from geminga.bookie.journal import SUFFIX as JOURNAL_SUFFIX
from geminga.bookie.ledger_storage import CHECKPOINT_NAME, run_name
from geminga.bookie.recovery import COOKIE_NAME, LIMBO_NAME
from geminga.metadata import SqliteMetadataStore
from geminga.model.errors import DataDirectoryError
from geminga.runtime import Runtime
from geminga.runtime.local_file import create_private
from geminga.version import __version__

_PROGRAM: Final = f"geminga {__version__}"


def _of_bookie(name: str, file: CutFile) -> CutFile:
    return file._replace(name=f"{name}/{file.name}")


class RunningSource:
    """A context manager, in which no file of the bookies goes."""

    directory_format = DIRECTORY_FORMAT
    program = _PROGRAM

    def __init__(
        self, runtime: Runtime, data: str, metadata: SqliteMetadataStore, bookies: Mapping[str, LocalBookie]
    ) -> None:
        self._runtime = runtime
        self._data = data
        self._metadata = metadata
        self._bookies = bookies
        self._stack = AsyncExitStack()
        self.origin = ""
        self.bookies = {name: bookie.instance_id for name, bookie in bookies.items()}

    async def __aenter__(self) -> Self:
        """Itself."""
        self.origin = await read_origin(self._runtime.disk, self._data)
        for bookie in self._bookies.values():
            hold(bookie)
            self._stack.push_async_callback(release, bookie)
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Files may go again."""
        await self._stack.aclose()

    def preview(self) -> Sequence[CutFile]:
        """See ``BackupSource``: final files only, and not the log that is written to."""
        return [
            _of_bookie(name, file)
            for name, bookie in self._bookies.items()
            for file in cut_of(bookie).files
            if file.is_final and not self._is_active(bookie, file)
        ]

    @staticmethod
    def _is_active(bookie: LocalBookie, file: CutFile) -> bool:
        active = bookie.storage.active_log_id
        return active is not None and file.path == bookie.storage.logs.path(active)

    async def cut(self) -> Cut:
        """See ``BackupSource``."""
        values = {}
        for name, bookie in self._bookies.items():
            values.update({f"{name}/{path}": value for path, value in (await small_files(bookie)).items()})
        # The moment: from here to the next await.
        as_of_ms = self._runtime.clock.wall_ms()
        snapshot = self._metadata.snapshot()
        self._stack.push_async_callback(snapshot.close)
        files = []
        for name, bookie in self._bookies.items():
            cut = cut_of(bookie)
            files += [_of_bookie(name, file) for file in cut.files]
            values.update({f"{name}/{path}": value for path, value in cut.values.items()})
        await snapshot.take()

        async def write(target: str) -> None:
            await snapshot.write_to(target)
            await snapshot.close()

        return Cut(as_of_ms, files, values, write)


class StoppedSource:
    """A data directory whose lock the caller holds. Made by :meth:`open`."""

    directory_format = DIRECTORY_FORMAT
    program = _PROGRAM

    def __init__(self, runtime: Runtime, data: str, origin: str) -> None:
        self._runtime = runtime
        self._data = data
        self.origin = origin
        self.bookies: dict[str, str] = {}
        self._files: list[CutFile] = []
        self._values: dict[str, bytes] = {}

    @classmethod
    async def open(cls, runtime: Runtime, data: str) -> StoppedSource:
        """Look at it, and change nothing. Raises DataDirectoryError, OSError."""
        move = await read_move(runtime.disk, data)
        if move is not None and move.is_done:
            raise DataDirectoryError(
                f"the metadata of {data} are in {move.to} since it was moved to a cluster: back up the cluster's"
            )
        source = cls(runtime, data, await read_origin(runtime.disk, data))
        there = await runtime.disk.list_dir(data)
        for name in [bookie_slot(number).name for number in range(1, BOOKIES_MAX + 1)]:
            if name in there and "ledgers" in await runtime.disk.list_dir(f"{data}/{name}"):
                await source._look(name)
        if not source.bookies:
            raise DataDirectoryError(
                f"{data}/bookie/ledgers is not there: nothing was ever stored here, or journalDirectory and "
                "ledgerDirectories name other places: start the server and back it up while it runs"
            )
        return source

    async def _look(self, name: str) -> None:
        disk, ledgers, journal = (self._runtime.disk, f"{self._data}/{name}/ledgers", f"{self._data}/{name}/journal")
        again = "start the server once and stop it, which makes it good, or back it up while it runs"
        try:
            cookie = decode_cookie(await disk.read_file(f"{ledgers}/{COOKIE_NAME}"))
            data = await disk.read_file(f"{ledgers}/{CHECKPOINT_NAME}")
        except FileNotFoundError as error:
            raise DataDirectoryError(f"{error.filename or ledgers} is not there: {again}") from error
        checkpoint = decode_checkpoint(data, cookie.instance_id) if cookie is not None else None
        if cookie is None or checkpoint is None:
            raise DataDirectoryError(
                f"{ledgers}/{COOKIE_NAME if cookie is None else CHECKPOINT_NAME} is damaged: {again}"
            )
        self.bookies[name] = cookie.instance_id.hex()
        parts: list[tuple[str, int | None, bool]] = [
            (f"ledgers/{log_name(log_id)}", size, True) for log_id, size in checkpoint.logs
        ]
        parts += [(f"ledgers/{run_name(run_id)}", None, True) for run_id in checkpoint.run_ids]
        stems = [(name, name.removesuffix(JOURNAL_SUFFIX)) for name in await disk.list_dir(journal)]
        journals = {int(stem): name for name, stem in stems if stem != name and stem.isdigit()}
        if checkpoint.mark_journal_id and checkpoint.mark_journal_id not in journals:
            # As a start in it would say: they are elsewhere, and with them what was acknowledged last.
            raise DataDirectoryError(
                f"{journal} has no journal {checkpoint.mark_journal_id}, which the checkpoint in {ledgers} names: "
                "where journalDirectory names another place, start the server and back it up while it runs"
            )
        kept = [name for journal_id, name in sorted(journals.items()) if journal_id >= checkpoint.mark_journal_id]
        parts += [(f"journal/{name}", None, False) for name in kept]
        place = f"{self._data}/{name}"
        self._files += [CutFile(f"{name}/{part}", f"{place}/{part}", size, final) for part, size, final in parts]
        small = [f"ledgers/{each}" for each in (COOKIE_NAME, CHECKPOINT_NAME, QUARANTINE_NAME, MARK_NAME, LIMBO_NAME)]
        for part in [f"journal/{COOKIE_NAME}", *small]:
            try:
                self._values[f"{name}/{part}"] = await disk.read_file(f"{place}/{part}")
            except FileNotFoundError:
                continue

    def preview(self) -> Sequence[CutFile]:
        """See ``BackupSource``: they do not change."""
        return ()

    async def cut(self) -> Cut:
        """See ``BackupSource``."""
        return Cut(self._runtime.clock.wall_ms(), self._files, self._values, self._write_metadata)

    async def _write_metadata(self, target: str) -> None:
        """From a copy: SQLite writes where it opens a file that a crash left."""
        disk, source = self._runtime.disk, f"{self._data}/{METADATA_FILE}"
        create_private(target)
        await disk.write_file(target, await disk.read_file(source))
        try:
            log = await disk.read_file(f"{source}-wal")
        except FileNotFoundError:
            log = b""
        if log:
            await disk.write_file(f"{target}-wal", log)
        await self._runtime.threads.call(LANE, lambda: _settle(target))


def _settle(path: str) -> None:
    """What the log has goes into the file, and the log goes."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise DataDirectoryError(f"{path}: {error}") from error
    finally:
        connection.close()
