"""The entry logs of a bookie: writing chunks to the active one, open handles for reading, removal.

A log counts only up to its durable size: what was written behind it by an interrupted flush is never referred to.
Writes are buffered and handed to the disk in batches; nothing is durable before :meth:`LogWriter.sync`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from geminga.bookie.core import entry_log_format as fmt
from geminga.bookie.disk_io import ONLY_LANES, DiskLanes, HeldFiles, append, unlink_if_there
from geminga.bookie.limits import FLUSH_BATCH_BYTES_MAX
from geminga.runtime import DiskFile, Runtime, get_logger

_log = get_logger(__name__)

SUFFIX = ".log"


def log_name(log_id: int) -> str:
    """File name of an entry log."""
    return f"{log_id:010d}{SUFFIX}"


class LogWriter:
    """The end of one log."""

    __slots__ = ("_buffers", "_buffers_at", "_disk", "file", "log_id", "offset", "seed")

    def __init__(self, runtime: Runtime, file: DiskFile, log_id: int, offset: int, seed: int) -> None:
        self._disk = runtime.disk
        self.file = file
        self.log_id = log_id
        #: Offset of the next chunk.
        self.offset = offset
        self.seed = seed
        self._buffers: list[bytes] = []
        self._buffers_at = offset

    def put(self, chunk: Sequence[bytes]) -> int:
        """Queue a chunk, of buffers back to back; its offset."""
        offset = self.offset
        self._buffers.extend(chunk)
        self.offset += sum(map(len, chunk))
        return offset

    @property
    def is_batch_full(self) -> bool:
        """Whether enough is queued to be handed to the disk."""
        return self.offset - self._buffers_at >= FLUSH_BATCH_BYTES_MAX

    async def drain(self) -> None:
        """Hand what is queued to the disk; raises OSError."""
        buffers, self._buffers = self._buffers, []
        offset, self._buffers_at = self._buffers_at, self.offset
        if buffers:
            await append(self._disk, self.file, offset, buffers, sync=False)

    async def sync(self) -> None:
        """Make everything put so far durable; raises OSError."""
        await self.drain()
        await self._disk.sync_file(self.file)


class EntryLogs:
    """All entry logs; ``sizes`` are their durable sizes."""

    def __init__(
        self,
        runtime: Runtime,
        directory: str,
        instance_id: bytes,
        open_file_limit: int,
        lanes: DiskLanes = ONLY_LANES,
    ) -> None:
        self._runtime = runtime
        self._lanes = lanes
        self._directory = directory
        self._instance_id = instance_id
        self._open_file_limit = open_file_limit
        #: Log id -> durable size in bytes.
        self.sizes: dict[int, int] = {}
        self.next_log_id = 1
        #: Open for reading, least recently used first.
        self._handles: OrderedDict[int, DiskFile] = OrderedDict()
        self._opening: dict[int, asyncio.Future[None]] = {}
        self._pins: dict[int, int] = {}
        #: Logs and index runs go through it.
        self.held = HeldFiles(runtime.disk)

    def path(self, log_id: int) -> str:
        """Path of a log."""
        return f"{self._directory}/{log_name(log_id)}"

    def seed(self, log_id: int) -> int:
        """Start value of the CRCs in a log."""
        return fmt.log_seed(self._instance_id, log_id)

    async def create(self) -> LogWriter:
        """A new log with its header; its name is durable, its bytes are not. Raises OSError."""
        log_id = self.next_log_id
        self.next_log_id += 1
        disk = self._runtime.disk
        file = await disk.open_file(self.path(log_id), lane=self._lanes.flush, create=True)
        writer = LogWriter(self._runtime, file, log_id, 0, self.seed(log_id))
        try:
            writer.put((fmt.encode_file_header(log_id, self._instance_id),))
            await writer.drain()
            await disk.sync_dir(self._directory)
        except OSError:
            await self.abandon(writer)
            raise
        return writer

    async def reopen(self, log_id: int) -> LogWriter:
        """Go on writing at the durable end of a log; what lies behind is cut off. Raises OSError."""
        file = await self._runtime.disk.open_file(self.path(log_id), lane=self._lanes.flush)
        size = self.sizes[log_id]
        await self._runtime.disk.truncate(file, size)
        return LogWriter(self._runtime, file, log_id, size, self.seed(log_id))

    async def abandon(self, writer: LogWriter) -> None:
        """Give up a log after a failed write: it keeps its durable part, or goes if it has none."""
        disk = self._runtime.disk
        try:
            await disk.close_file(writer.file)
            if writer.log_id not in self.sizes:
                await unlink_if_there(disk, self.path(writer.log_id))
        except OSError as error:
            _log.warning("giving up %s: %s", self.path(writer.log_id), error)

    async def close_writer(self, writer: LogWriter) -> None:
        """Close a synced log that takes no more chunks."""
        await self._runtime.disk.close_file(writer.file)

    async def pin(self, log_id: int) -> DiskFile:
        """The log opened for reading; it stays open until :meth:`unpin`. Raises OSError."""
        self._pins[log_id] = self._pins.get(log_id, 0) + 1
        try:
            while log_id in self._opening:
                # Who is cut off must not take it from those who open the log, or wait as well.
                await asyncio.shield(self._opening[log_id])
            file = self._handles.get(log_id)
            if file is None:
                file = await self._open(log_id)
            self._handles.move_to_end(log_id)
        except BaseException:
            self.unpin(log_id)
            raise
        return file

    async def _open(self, log_id: int) -> DiskFile:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._opening[log_id] = opened
        try:
            file = await self._runtime.disk.open_file(self.path(log_id), lane=self._lanes.read)
            self._handles[log_id] = file
        finally:
            del self._opening[log_id]
            opened.set_result(None)
        unpinned = [i for i in self._handles if not self._pins.get(i)]
        # All at once: while one is being closed another may be pinned, or removed.
        left = [self._handles.pop(old) for old in unpinned[: max(0, len(self._handles) - self._open_file_limit)]]
        for old in left:
            await self._runtime.disk.close_file(old)
        return file

    def unpin(self, log_id: int) -> None:
        """The log may be closed again."""
        self._pins[log_id] -= 1
        if not self._pins[log_id]:
            del self._pins[log_id]

    async def remove(self, log_id: int) -> None:
        """Unlink a log nobody refers to any more; reads under way finish first. Raises OSError."""
        await self._close_handle(log_id)
        await self.held.unlink(self.path(log_id))
        # Who looked it up before may have opened it once more; open, it would keep its space for as long as others do.
        while log_id in self._opening:
            await asyncio.shield(self._opening[log_id])
        await self._close_handle(log_id)

    async def _close_handle(self, log_id: int) -> None:
        file = self._handles.pop(log_id, None)
        if file is not None:
            await self._runtime.disk.close_file(file)

    async def close(self) -> None:
        """Close the handles."""
        while self._handles:
            _, file = self._handles.popitem()
            await self._runtime.disk.close_file(file)
