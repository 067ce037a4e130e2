"""A bookie reached by its wire protocol: ``model.bookie_port.Bookie`` over the network, Geminga's bookie or Apache's.

Three connections: in version 2 one for adds, which cost the least so (``add_channel``), and one for batch reads, which
only that version has (and only from 4.17 on); in version 3 one for all else, for recovery's adds, for those of a
request that is being served, whose trace id goes along, and for an entry that is sent again while it is under way,
since version 2 could not tell the answers apart. All are made when they are needed; the first and the last are made
again by themselves, so that it is noticed when a bookie comes back. Whether it can be used is what was seen of it last:
it counts as writable until either of them fails, again when the one in version 3 is made anew (the other is tried at
once then), or the one that failed is; and some time after it said that it is read-only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from google.protobuf.message import Message

from geminga.bookkeeper.core.addresses import BookieAddress
from geminga.bookkeeper.remote.add_channel import AddChannel
from geminga.bookkeeper.remote.channel import Channel
from geminga.bookkeeper.remote.kept_connection import Backlog, BookieEnd, TlsOfBookies
from geminga.bookkeeper.remote.reads import BatchReads, EntriesRead, failure_of
from geminga.model.bookie_port import (
    ID_MAX,
    AddDone,
    Availability,
    AvailabilityListener,
    AvailabilityState,
    BookieInfo,
    FenceDone,
    InfoDone,
    LacDone,
    LacResult,
    ListDone,
    ReadDone,
    WriteLacDone,
    ids_error,
)
from geminga.model.errors import CorruptionError, NoSuchEntryError, NoSuchLedgerError, ProtocolError, StorageError
from geminga.model.limits import FRAME_PADDING_BYTES, MESSAGE_SIZE_BYTES_MAX_DEFAULT
from geminga.runtime import Runtime
from geminga.runtime.log import is_under_way, trace_id
from geminga.wire._generated import bookkeeper_protocol_pb2 as pb
from geminga.wire.bookkeeper import v3
from geminga.wire.bookkeeper.answers import (
    AddAnswer,
    Answer,
    BookieInfoAnswer,
    LedgerAnswer,
    ListEntriesAnswer,
    ReadAnswer,
    ReadLacAnswer,
)
from geminga.wire.bookkeeper.availability import decode_availability
from geminga.wire.bookkeeper.codes import (
    MASTER_KEY_BYTES,
    VERSION_2,
    VERSION_3,
    OperationType,
    StatusCode,
    error_of_status,
)
from geminga.wire.bookkeeper.digest import read_header, read_lac_ids

#: How long a bookie that said it is read-only is left alone.
READ_ONLY_S: Final = 60.0
#: Largest frame of a bookie that serves Pulsar (5,253,120): its largest message, and what is around it.
FRAME_BYTES_PULSAR: Final = MESSAGE_SIZE_BYTES_MAX_DEFAULT + FRAME_PADDING_BYTES
#: What a frame has around an entry and its master key, at most.
FRAME_ROOM_BYTES: Final = 128
#: An entry begins with them.
_HEADER_BYTES: Final = 32
#: Which connection it is.
_MAIN: Final = "main"
_ADDS: Final = "adds"


def frame_bytes_for(message_bytes_max: int) -> int:
    """Largest frame of the bookies of a broker that takes such messages.

    Where those are smaller than Pulsar's largest, the bookies' frames are not: answers have several entries, larger
    ones from before, and those of cursors.
    """
    return max(FRAME_BYTES_PULSAR, message_bytes_max + FRAME_PADDING_BYTES)


class RemoteBookie:
    """See the module."""

    def __init__(
        self,
        runtime: Runtime,
        bookie_id: str,
        host: str,
        port: int,
        *,
        frame_bytes_max: int = FRAME_BYTES_PULSAR,
        backlog: Backlog | None = None,
        tls: TlsOfBookies | None = None,
    ) -> None:
        """Nothing is connected yet. ``bookie_id``: for errors and the log; ``frame_bytes_max``: the bookie's.

        ``backlog``: shared with other bookies; None: only the bookie's connections share one.
        """
        self._id = bookie_id
        self._frame_bytes_max = frame_bytes_max
        self._loop = asyncio.get_running_loop()
        self._availability = AvailabilityState(Availability.WRITABLE)
        end = BookieEnd(bookie_id, BookieAddress(host, port), backlog or Backlog(), tls)
        channel = partial(Channel, runtime, end, frame_bytes_max=frame_bytes_max)
        self._channel = channel(VERSION_3, on_state=partial(self._state_changed, _MAIN), keeps_connected=True)
        self._adds = AddChannel(
            runtime, end, on_state=partial(self._state_changed, _ADDS), on_read_only=self._saw_read_only
        )
        #: Connections that failed, and are not there again.
        self._failed: set[str] = set()
        self._batch_reads = BatchReads(bookie_id)
        self._batches = channel(VERSION_2, on_state=lambda _: None, keeps_connected=False)
        self._read_only_timer: asyncio.TimerHandle | None = None

    def connect(self) -> None:
        """Begin to connect, so that it is seen whether it can be reached before it is needed."""
        self._channel.connect()

    async def close(self) -> None:
        """End its connections; what is outstanding fails."""
        if self._read_only_timer is not None:
            self._read_only_timer.cancel()
        await self._adds.close()
        await self._channel.close()
        await self._batches.close()
        self._availability.set(Availability.DOWN)

    # ---- the port

    def add_entries(
        self,
        ledger_id: int,
        entry_ids: Sequence[int],
        entries: Sequence[bytes],
        *,
        master_key: bytes,
        recovery: bool,
        done: AddDone,
    ) -> None:
        """See ``Bookie.add_entries``: one request an entry, answered in one group unless they end differently."""
        error = _ledger_error(ledger_id) or ids_error(ledger_id, entry_ids, entries)
        entry_bytes = sum(map(len, entries))
        room = self._frame_bytes_max - len(master_key) - FRAME_ROOM_BYTES
        if error is None and entry_bytes > room and max(map(len, entries)) > room:
            # The bookie would close the connection, with all that is outstanding on it.
            largest = max(map(len, entries)) + self._frame_bytes_max - room
            error = StorageError(f"bookie {self._id}: a frame of {largest} bytes: at most {self._frame_bytes_max}")
        if error is not None:
            done(entry_ids, error)
            return
        trace = trace_id.get()
        # Version 2 can not tell a bookie whose request it is: as long as one is served, its adds go in version 3.
        is_plain = not recovery and len(master_key) == MASTER_KEY_BYTES and not (trace and is_under_way(trace))
        if is_plain and self._adds.takes(ledger_id, entry_ids):
            self._adds.send(ledger_id, entry_ids, entries, entry_bytes, master_key, done)
            return
        group = _AddGroup(self._saw_read_only, done, f"bookie {self._id}, ledger {ledger_id}")
        for entry_id, entry in zip(entry_ids, entries, strict=True):
            make = partial(_add, ledger_id, entry_id, master_key, entry, recovery)
            self._channel.send(make, group.answered, entry_id)

    def read_entries(
        self, ledger_id: int, entry_ids: Sequence[int], done: ReadDone, *, bytes_max: int | None = None
    ) -> None:
        """See ``Bookie.read_entries``."""
        error = _ledger_error(ledger_id)
        if error is not None:
            done([error] * len(entry_ids))
            return
        channels = self._channel, self._batches
        EntriesRead(self._id, *channels, ledger_id, entry_ids, done, bytes_max, self._batch_reads).go_on()

    def fence(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See ``Bookie.fence``: by a read of the last entry, which need not be there."""
        self.fence_and_read_lac(
            ledger_id,
            master_key=master_key,
            done=lambda result: done(result if isinstance(result, StorageError) else None),
        )

    def fence_and_read_lac(self, ledger_id: int, *, master_key: bytes, done: LacDone) -> None:
        """See ``Bookie.fence_and_read_lac``: the last entry is what a fence is answered with."""

        def answered(_: int, answer: Answer | StorageError) -> None:
            done(_fenced_result(answer, f"bookie {self._id}, fencing ledger {ledger_id}"))

        error = _ledger_error(ledger_id)
        if error is not None:
            done(error)
            return
        self._channel.send(lambda number: v3.encode_fence(number, ledger_id, master_key), answered)

    def read_lac(self, ledger_id: int, *, done: LacDone) -> None:
        """See ``Bookie.read_lac``."""

        def answered(_: int, answer: Answer | StorageError) -> None:
            story = f"bookie {self._id}, LAC of ledger {ledger_id}"
            done(_lac_result(answer, story))

        error = _ledger_error(ledger_id)
        if error is not None:
            done(error)
            return
        make = _maker(OperationType.READ_LAC, readLacRequest=pb.ReadLacRequest(ledgerId=ledger_id))
        self._channel.send(make, answered)

    def readmit(self, ledger_id: int, *, master_key: bytes, done: FenceDone) -> None:
        """See ``Bookie.readmit``: BookKeeper's protocol has no such call, so a ledger that is deleted there stays so.

        A bookie that does not remember what it deleted, as Apache's, takes any ledger, fenced.
        """

        def fenced(error: StorageError | None) -> None:
            if isinstance(error, NoSuchLedgerError):
                sentence = (
                    f"bookie {self._id}: ledger {ledger_id} was deleted there, and it can not be asked to take it again"
                )
                error = StorageError(sentence)
            done(error)

        self.fence(ledger_id, master_key=master_key, done=fenced)

    def write_lac(self, ledger_id: int, lac: bytes, *, master_key: bytes, done: WriteLacDone) -> None:
        """See ``Bookie.write_lac``."""
        story = f"bookie {self._id}, announcement for ledger {ledger_id}"
        try:
            announced = read_lac_ids(lac)[1]
        except CorruptionError as malformed:
            done(StorageError(f"{story}: {malformed}"))
            return
        error = _ledger_error(ledger_id)
        if error is not None:
            done(error)
            return
        request = pb.WriteLacRequest(ledgerId=ledger_id, lac=announced, masterKey=master_key, body=lac)

        def answered(_: int, answer: Answer | StorageError) -> None:
            done(
                error_of_status(answer.status, story) if isinstance(answer, LedgerAnswer) else failure_of(answer, story)
            )

        self._channel.send(_maker(OperationType.WRITE_LAC, writeLacRequest=request), answered)

    def list_entries(self, ledger_id: int, *, done: ListDone) -> None:
        """See ``Bookie.list_entries``."""

        def answered(_: int, answer: Answer | StorageError) -> None:
            story = f"bookie {self._id}, entries of ledger {ledger_id}"
            if not isinstance(answer, ListEntriesAnswer):
                done(failure_of(answer, story))
                return
            error = error_of_status(answer.status, story)
            if error is not None:
                done(error)
                return
            try:
                done(decode_availability(answer.availability))
            except ProtocolError as malformed:
                done(StorageError(f"{story}: {malformed}"))

        error = _ledger_error(ledger_id)
        if error is not None:
            done(error)
            return
        request = pb.GetListOfEntriesOfLedgerRequest(ledgerId=ledger_id)
        make = _maker(OperationType.GET_LIST_OF_ENTRIES_OF_LEDGER, getListOfEntriesOfLedgerRequest=request)
        self._channel.send(make, answered)

    @property
    def is_writable(self) -> bool:
        """Whether it takes new entries, as far as was seen."""
        return self._availability.current is Availability.WRITABLE

    @property
    def availability(self) -> Availability:
        """See the module's docstring."""
        return self._availability.current

    def watch(self, listener: AvailabilityListener) -> None:
        """See ``Bookie.watch``."""
        self._availability.watch(listener)

    def read_info(self, *, done: InfoDone) -> None:
        """See ``Bookie.read_info``."""

        def answered(_: int, answer: Answer | StorageError) -> None:
            story = f"bookie {self._id}, its room"
            if not isinstance(answer, BookieInfoAnswer):
                done(failure_of(answer, story))
                return
            error = error_of_status(answer.status, story)
            if error is None and (answer.total_bytes is None or answer.free_bytes is None):
                error = StorageError(f"{story}: an answer without numbers")
            done(error or BookieInfo(answer.total_bytes or 0, answer.free_bytes or 0, answer.added_bytes))

        flags = pb.GetBookieInfoRequest
        request = pb.GetBookieInfoRequest(requested=flags.TOTAL_DISK_CAPACITY | flags.FREE_DISK_SPACE)
        self._channel.send(_maker(OperationType.GET_BOOKIE_INFO, getBookieInfoRequest=request), answered)

    # ---- what is seen of it

    def _state_changed(self, which: str, is_connected: bool) -> None:
        if not is_connected:
            self._failed.add(which)
            self._availability.set(Availability.DOWN)
            return
        self._failed.discard(which)
        if which == _MAIN:
            self._batch_reads.connected()
            if _ADDS in self._failed:
                self._failed.clear()
                self._adds.connect()
        elif self._failed:
            self._channel.connect()
        if not self._failed and self._availability.current is Availability.DOWN:
            self._availability.set(Availability.WRITABLE)

    def _saw_read_only(self) -> None:
        """It refused an add for that."""
        if self._availability.current is Availability.WRITABLE:
            self._availability.set(Availability.READ_ONLY)
            self._read_only_timer = self._loop.call_later(READ_ONLY_S, self._perhaps_writable)

    def _perhaps_writable(self) -> None:
        if self._availability.current is Availability.READ_ONLY:
            self._availability.set(Availability.WRITABLE)


class _AddGroup:
    """The adds of one call in version 3: their answers of one turn of the loop are told together."""

    __slots__ = ("_done", "_errors", "_good", "_on_read_only", "_story")

    def __init__(self, on_read_only: Callable[[], None], done: AddDone, story: str) -> None:
        self._on_read_only = on_read_only
        self._done = done
        self._story = story
        self._good: list[int] = []
        #: By what is wrong.
        self._errors: dict[str, tuple[StorageError, list[int]]] = {}

    def answered(self, entry_id: int, answer: Answer | StorageError) -> None:
        """Of one entry."""
        if not self._good and not self._errors:
            asyncio.get_running_loop().call_soon(self._tell)
        error: StorageError | None
        if isinstance(answer, AddAnswer) and answer.status == StatusCode.EOK:
            self._good.append(entry_id)
            return
        error = failure_of(answer, self._story)
        if not isinstance(answer, StorageError) and answer.status == StatusCode.EREADONLY:
            self._on_read_only()
        self._errors.setdefault(f"{type(error).__name__} {error}", (error, []))[1].append(entry_id)

    def _tell(self) -> None:
        good, self._good = self._good, []
        errors, self._errors = self._errors, {}
        if good:
            self._done(good, None)
        for error, entry_ids in errors.values():
            self._done(entry_ids, error)


def _lac_result(answer: Answer | StorageError, story: str) -> LacResult | StorageError:
    if not isinstance(answer, ReadLacAnswer):
        return failure_of(answer, story)
    if answer.status == StatusCode.ENOENTRY:
        return LacResult(-1, None, None)
    error = error_of_status(answer.status, story)
    if error is not None:
        return error
    return _with_last(answer.last_entry, answer.lac, story)


def _fenced_result(answer: Answer | StorageError, story: str) -> LacResult | StorageError:
    if not isinstance(answer, ReadAnswer):
        return failure_of(answer, story)
    error = error_of_status(answer.status, story)
    if isinstance(error, NoSuchEntryError):
        return LacResult(-1, None, None)
    return error or _with_last(answer.entry, None, story)


def _with_last(last_entry: bytes | None, announced: bytes | None, story: str) -> LacResult | StorageError:
    if last_entry is None:
        return LacResult(-1, None, announced)
    if len(last_entry) < _HEADER_BYTES:
        return StorageError(f"{story}: a last entry of {len(last_entry)} bytes")
    return LacResult(read_header(last_entry).entry_id, last_entry, announced)


def _ledger_error(ledger_id: int) -> StorageError | None:
    return None if 0 <= ledger_id <= ID_MAX else StorageError(f"{ledger_id} is no ledger id")


def _add(ledger_id: int, entry_id: int, master_key: bytes, entry: bytes, recovery: bool, number: int) -> bytes:
    return v3.encode_add(number, ledger_id, entry_id, master_key, entry, recovery=recovery)


def _maker(operation: OperationType, **fields: Message) -> Callable[[int], bytes]:
    return lambda number: v3.encode_request(operation, number, high_priority=False, **fields)
