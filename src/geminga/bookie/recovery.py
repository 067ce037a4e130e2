"""Start-up of a bookie: identity, checkpoint, index, journal. Leaves a storage that has everything acknowledged.

1. Cookies: both directories belong together and to this bookie, or both are new.
2. Checkpoint and index runs; if one is damaged the index is rebuilt from the entry logs.
3. The journal from the mark on: the group chain must be whole up to its torn end; replay is idempotent.
Damage is named with file and offset and refused, unless the operator accepts it: then the ledgers that exist
are in limbo, where nothing absent is certain and nothing new is taken.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from pyroaring import BitMap64

from geminga.bookie import crash_points as points
from geminga.bookie.core import entry_log_format as log_format
from geminga.bookie.core.checkpoint_format import (
    FORMAT_VERSION,
    Checkpoint,
    Cookie,
    decode_checkpoint,
    decode_cookie,
    encode_checkpoint,
    encode_cookie,
)
from geminga.bookie.core.index import IndexRun, Row, make_location
from geminga.bookie.core.index_format import decode_run
from geminga.bookie.core.journal_format import (
    FILE_HEADER_BYTES,
    INSTANCE_ID_BYTES,
    AddRecord,
    Fence,
    Group,
    JournalScan,
    NewLedgerRecord,
    decode_file_header,
    decode_records,
    group_seed,
    scan_journal,
)
from geminga.bookie.core.ledger_states import LedgerStateRow, decode_states
from geminga.bookie.disk_io import RESERVE_NAME, is_disk_full, unlink_if_there
from geminga.bookie.entry_logs import SUFFIX as LOG_SUFFIX
from geminga.bookie.entry_logs import log_name
from geminga.bookie.garbage_collection import MARK_NAME, QUARANTINE_NAME
from geminga.bookie.journal import FIRST_JOURNAL_ID, journal_name
from geminga.bookie.journal import SUFFIX as JOURNAL_SUFFIX
from geminga.bookie.ledger_storage import CHECKPOINT_NAME, RUN_SUFFIX, LedgerStorage, merged_in_turns, run_name
from geminga.bookie.ports import LiveLedgers
from geminga.model.errors import CorruptionError, DataDirectoryError
from geminga.runtime import Runtime, crash_point, get_logger, next_turn

_log = get_logger(__name__)

COOKIE_NAME = "cookie"
#: BookKeeper's own, in the directories of a bookie that is a process.
VERSION_NAME = "VERSION"
#: A checkpoint with nothing but the ledgers in limbo, for a start that finds the other one damaged.
LIMBO_NAME: Final = "limbo"
_SMALL_FILES: Final = (
    *(CHECKPOINT_NAME, COOKIE_NAME, LIMBO_NAME, MARK_NAME),
    *(QUARANTINE_NAME, RESERVE_NAME, VERSION_NAME),
)
_NUMBERED: Final = "|".join(re.escape(suffix) for suffix in (JOURNAL_SUFFIX, LOG_SUFFIX, RUN_SUFFIX))
_OWN: Final = re.compile(rf"([0-9]+({_NUMBERED})|{'|'.join(map(re.escape, _SMALL_FILES))})(\.tmp)?")
#: Those that a step which was interrupted leaves: what a checkpoint has to name, and what replaces another file.
_LEFTOVER: Final = re.compile(rf"[0-9]+({re.escape(LOG_SUFFIX)}|{re.escape(RUN_SUFFIX)})")


def is_own_file(name: str) -> bool:
    """Whether a bookie calls its files so: any other in its directories is somebody else's, and never removed."""
    return _OWN.fullmatch(name) is not None


def _is_leftover(name: str) -> bool:
    return _LEFTOVER.fullmatch(name) is not None or (name.endswith(".tmp") and is_own_file(name))


class ReplayResult(NamedTuple):
    """Where the journal ended."""

    last_sequence: int
    #: Id of the next journal file.
    next_journal_id: int
    #: Files on disk, ascending.
    journal_ids: Sequence[int]
    #: Where the groups end in those from the mark on.
    journal_ends: Mapping[int, int]


def _ids(names: Sequence[str], suffix: str) -> list[int]:
    return sorted(
        int(name[: -len(suffix)]) for name in names if name.endswith(suffix) and name[: -len(suffix)].isdigit()
    )


async def establish_identity(
    runtime: Runtime,
    journal_directory: str,
    ledger_directory: str,
    expected_instance_id: str | None,
    *,
    part: str = "",
) -> bytes:
    """The bookie's instance id by its cookies, made if both directories are new. Raises DataDirectoryError.

    With an expected id, a standalone's, nothing is ever made: who is remembered had data. ``part``: which of several
    pairs it is.
    """
    journal_role, ledger_role = (f"{role}-{part}" if part else role for role in ("journal", "ledgers"))
    disk = runtime.disk
    for directory in (journal_directory, ledger_directory):
        await disk.make_dirs(directory)
        try:
            await disk.lock_dir(directory)
        except BlockingIOError as error:
            raise DataDirectoryError(f"{directory} is in use by another bookie") from error
    journal_names = await disk.list_dir(journal_directory)
    ledger_names = await disk.list_dir(ledger_directory)
    if expected_instance_id is not None and VERSION_NAME in (*journal_names, *ledger_names):
        raise DataDirectoryError(
            f"{journal_directory} and {ledger_directory} are those of a bookie of a cluster since ({VERSION_NAME}), "
            "whose ledgers the metadata here do not know. Start it with geminga bookie"
        )
    has_journal = bool(_ids(journal_names, JOURNAL_SUFFIX))
    has_ledgers = any(name == CHECKPOINT_NAME or _LEFTOVER.fullmatch(name) for name in ledger_names)
    journal_cookie = await _read_cookie(runtime, journal_directory, journal_names, journal_role)
    ledger_cookie = await _read_cookie(runtime, ledger_directory, ledger_names, ledger_role)
    if journal_cookie is not None and ledger_cookie is not None:
        if journal_cookie.instance_id != ledger_cookie.instance_id:
            raise DataDirectoryError(
                f"{journal_directory} belongs to bookie {journal_cookie.instance_id.hex()}, "
                f"{ledger_directory} to {ledger_cookie.instance_id.hex()}"
            )
        instance_id = journal_cookie.instance_id
        if has_ledgers and not has_journal:
            raise DataDirectoryError(f"{journal_directory} was emptied: {ledger_directory} still has entries")
    else:
        if expected_instance_id is not None:
            raise _emptied(journal_directory if journal_cookie is None else ledger_directory, expected_instance_id)
        # The journal's cookie is written first: alone and without data it is a first start that was interrupted.
        if ledger_cookie is not None or has_journal or has_ledgers:
            wiped = journal_directory if journal_cookie is None else ledger_directory
            raise DataDirectoryError(f"{wiped} has no cookie but there is data of a bookie: was it wiped or swapped?")
        instance_id = (
            journal_cookie.instance_id
            if journal_cookie is not None
            else bytes.fromhex(runtime.rng.token(INSTANCE_ID_BYTES))
        )
        for directory, role in ((journal_directory, journal_role), (ledger_directory, ledger_role)):
            await disk.write_file(f"{directory}/{COOKIE_NAME}", encode_cookie(Cookie(instance_id, role)))
    if expected_instance_id is not None and instance_id.hex() != expected_instance_id:
        raise DataDirectoryError(
            f"{ledger_directory} belongs to bookie {instance_id.hex()}, not {expected_instance_id}"
        )
    if expected_instance_id is not None and not has_journal:
        # It is remembered only once it has a journal.
        raise _emptied(journal_directory, expected_instance_id)
    return instance_id


def _emptied(directory: str, expected_instance_id: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"{directory} was emptied, or is not mounted: bookie {expected_instance_id} had data there. "
        "Bring it back, or begin anew with another data directory"
    )


async def _read_cookie(runtime: Runtime, directory: str, names: Sequence[str], role: str) -> Cookie | None:
    if COOKIE_NAME not in names:
        return None
    path = f"{directory}/{COOKIE_NAME}"
    cookie = decode_cookie(await runtime.disk.read_file(path))
    if cookie is None:
        raise DataDirectoryError(f"{path} is damaged")
    if cookie.format_version > FORMAT_VERSION:
        raise DataDirectoryError(
            f"{path}: format {cookie.format_version} is newer than this program's {FORMAT_VERSION}"
        )
    if cookie.role != role or len(cookie.instance_id) != INSTANCE_ID_BYTES:
        raise DataDirectoryError(
            f"{path} is the cookie of a {cookie.role} directory, not of {role}: a bookie keeps the number and order "
            "of its journal and ledger directories, for they say where a ledger lies"
        )
    return cookie


async def load_storage(storage: LedgerStorage) -> None:
    """Checkpoint, index and ledger states from disk, leftovers removed; a lost checkpoint is made anew, with no mark.

    Raises CorruptionError, DataDirectoryError, OSError.
    """
    names = await storage.runtime.disk.list_dir(storage.directory)
    checkpoint = await _read_checkpoint(storage, names)
    log_ids = _ids(names, LOG_SUFFIX)
    if checkpoint is None:
        if not log_ids and CHECKPOINT_NAME not in names:
            await storage.adopt(Checkpoint(), ())
            return
        _log.warning(
            "%s: no valid checkpoint, rebuilding the index from %d entry logs", storage.directory, len(log_ids)
        )
        checkpoint = Checkpoint(
            next_log_id=max(log_ids, default=0) + 1,
            next_run_id=1 + max(_ids(names, RUN_SUFFIX), default=0),
            limbo=await _noted_limbo(storage, names),
        )
        await _rebuild(storage, checkpoint, dict.fromkeys(log_ids))
        return
    for log_id, size in checkpoint.logs:
        if log_id not in log_ids or await storage.runtime.disk.file_size(storage.logs.path(log_id)) < size:
            raise DataDirectoryError(f"{storage.logs.path(log_id)} is missing or shorter than its {size} bytes")
    runs = await _read_runs(storage, checkpoint)
    if runs is None:
        await _rebuild(storage, checkpoint, dict(checkpoint.logs))
    await _remove_leftovers(storage, names)


async def _noted_limbo(storage: LedgerStorage, names: Sequence[str]) -> bytes:
    """Ledgers of which entries may have been lost, as a checkpoint that is lost had them. Raises DataDirectoryError."""
    if LIMBO_NAME not in names:
        return b""
    path = storage.path(LIMBO_NAME)
    noted = decode_checkpoint(await storage.runtime.disk.read_file(path), storage.instance_id)
    if noted is None:
        raise DataDirectoryError(
            f"{path} is damaged, and so is the checkpoint: of which ledgers entries were lost with a journal is not "
            "known any more. Bring one of them back, or remove it to forget that"
        )
    return noted.limbo


async def _read_checkpoint(storage: LedgerStorage, names: Sequence[str]) -> Checkpoint | None:
    if CHECKPOINT_NAME not in names:
        return None
    data = await storage.runtime.disk.read_file(storage.path(CHECKPOINT_NAME))
    checkpoint = decode_checkpoint(data, storage.instance_id)
    if checkpoint is None:
        _log.error("%s is damaged", storage.path(CHECKPOINT_NAME))
    return checkpoint


async def _read_runs(storage: LedgerStorage, checkpoint: Checkpoint) -> list[IndexRun] | None:
    """The runs of the checkpoint, adopted with their states; None if one is missing or damaged."""
    runs: list[IndexRun] = []
    states = []
    for run_id in checkpoint.run_ids:
        path = storage.path(run_name(run_id))
        try:
            decoded = decode_run(await storage.runtime.disk.read_file(path), run_id, storage.instance_id)
        except FileNotFoundError:
            decoded = None
        if decoded is None:
            _log.error("%s is missing or damaged: rebuilding the index from the entry logs", path)
            return None
        runs.append(decoded[0])
        states.append(decoded[1])
    await storage.adopt(checkpoint, runs)
    for rows in states:
        storage.states.restore(rows)
    return runs


async def _rebuild(storage: LedgerStorage, checkpoint: Checkpoint, logs: dict[int, int | None]) -> None:
    """One new run from the chunks of the logs (id -> durable size, None: up to the torn end)."""
    runs: list[IndexRun] = []
    states: list[list[LedgerStateRow]] = []
    sizes = {}
    for log_id, size in sorted(logs.items()):
        rows_by_ledger: dict[int, list[tuple[int, Row]]] = {}
        data = await storage.runtime.disk.read_file(storage.logs.path(log_id))
        end = _scan_log(storage, log_id, data if size is None else data[:size], size, rows_by_ledger, states)
        if end:
            sizes[log_id] = end
        # Rows of one log may overlap (a flush that was repeated): each layer of disjoint rows is a run.
        runs.extend(_layers(rows_by_ledger))
        await next_turn()
    merged = await merged_in_turns(runs, lambda _: False)
    await storage.adopt(replace(checkpoint, run_ids=(), logs=tuple(sorted(sizes.items()))), ())
    for rows in states:
        storage.states.restore(rows)
    deleted = storage.states.deleted
    unknown = [ledger_id for ledger_id in merged.ledger_ids if ledger_id not in storage.states.master_keys]
    for ledger_id in unknown:
        if ledger_id not in deleted:
            raise CorruptionError(f"{storage.directory}: entries of ledger {ledger_id}, but no state of it in any log")
    merged.state_ids.extend(sorted(storage.states.master_keys))
    await storage.write_run(merged)
    await storage.write_checkpoint([merged])


def _scan_log(
    storage: LedgerStorage,
    log_id: int,
    data: bytes,
    size: int | None,
    rows_by_ledger: dict[int, list[tuple[int, Row]]],
    states: list[list[LedgerStateRow]],
) -> int:
    """Collect rows and states of one log; where its valid part ends (0: it has none)."""
    path = storage.logs.path(log_id)
    header = log_format.decode_file_header(data)
    seed = storage.logs.seed(log_id)
    if header is None or header[1:] != (log_id, storage.instance_id):
        if size is not None or log_format.find_chunk(data, 0, seed) >= 0:
            raise CorruptionError(f"{path} at offset 0: the header is damaged")
        return 0
    view = memoryview(data)
    offset = log_format.FILE_HEADER_BYTES
    while offset < len(data):
        chunk = log_format.decode_chunk(view, offset, seed)
        if chunk is None:
            if size is not None or log_format.find_chunk(data, offset, seed) >= 0:
                raise CorruptionError(f"{path} at offset {offset}: the chunk is damaged")
            break
        if chunk.kind == log_format.KIND_LEDGERS:
            states.append(list(decode_states(chunk.body)))
        else:
            row = Row(chunk.first_entry_id, chunk.entry_count, chunk.end - offset, make_location(log_id, offset))
            rows_by_ledger.setdefault(chunk.ledger_id, []).append((offset, row))
        offset = chunk.end
    return offset


def _layers(rows_by_ledger: dict[int, list[tuple[int, Row]]]) -> list[IndexRun]:
    """Runs of disjoint sorted rows, older chunks in earlier runs."""
    layers: list[dict[int, list[Row]]] = []
    for ledger_id, placed in rows_by_ledger.items():
        depth = 0
        end = -1
        for _, row in placed:
            if row.first_entry_id < end:
                depth += 1
            end = row.first_entry_id + row.entry_count
            while len(layers) <= depth:
                layers.append({})
            layers[depth].setdefault(ledger_id, []).append(row)
    runs = []
    for layer in layers:
        run = IndexRun()
        for ledger_id in sorted(layer):
            run.add_ledger(ledger_id, layer[ledger_id])
        runs.append(run)
    return runs


async def _remove_leftovers(storage: LedgerStorage, names: Sequence[str]) -> None:
    """Unlink what the checkpoint does not name: steps that were interrupted."""
    current = {log_name(log_id) for log_id in storage.logs.sizes}
    current |= {run_name(run_id) for run_id in storage.checkpoint.run_ids}
    for name in names:
        if _is_leftover(name) and name not in current:
            await unlink_if_there(storage.runtime.disk, storage.path(name))


async def replay_journal(
    storage: LedgerStorage, directory: str, damaged: Callable[[str], Awaitable[None]]
) -> ReplayResult:
    """Bring everything behind the mark into the storage. Raises CorruptionError, OSError.

    ``damaged`` is told of damage, before anything behind it is taken: it raises, or has the loss noted in the storage.
    A replay may flush, and from then on the mark is behind the damage.
    """
    runtime = storage.runtime
    ids = _ids(await runtime.disk.list_dir(directory), JOURNAL_SUFFIX)
    mark_sequence, mark_journal_id = storage.checkpoint.mark_sequence, storage.checkpoint.mark_journal_id
    if not storage.checkpoint.serial and ids and ids[0] != FIRST_JOURNAL_ID:
        # Journals go only behind a checkpoint. (An index rebuilt from the entry logs has one by now.)
        raise DataDirectoryError(
            f"{storage.path(CHECKPOINT_NAME)} is missing, and so are the entry logs: {directory} begins with "
            f"{journal_name(ids[0])}, so there were some"
        )
    if mark_journal_id and mark_journal_id not in ids:
        await damaged(f"{directory}/{journal_name(mark_journal_id)} is missing")
    # A checkpoint that was lost, and made anew by this start or by one that got no further, has none.
    is_mark_known = bool(mark_journal_id) or ids[:1] == [FIRST_JOURNAL_ID]
    last = mark_sequence
    ends: dict[int, int] = {}
    previous_end = directory
    for journal_id in ids:
        if journal_id < mark_journal_id:
            continue
        path = f"{directory}/{journal_name(journal_id)}"
        data = await runtime.disk.read_file(path)
        known = last if is_mark_known else 1 << 62
        scan = scan_journal(data, seed=group_seed(storage.instance_id), journal_id=journal_id, known_sequence=known)
        header = decode_file_header(data)
        if header is None or header[1:] != (journal_id, storage.instance_id):
            # Without groups it was never used: its creation was interrupted. If it was, the chain of groups tells.
            if scan.groups:
                await damaged(f"{path} at offset 0: the header is damaged")
        elif scan.damaged_at == FILE_HEADER_BYTES and last > mark_sequence:
            await damaged(f"{previous_end} or {path} at offset {FILE_HEADER_BYTES}: groups are missing")
        elif scan.damaged_at is not None:
            await damaged(f"{path} at offset {scan.damaged_at}: the journal is damaged")
        await _settle_end(runtime, path, scan, storage.lanes.journal)
        ends[journal_id] = scan.end
        if scan.groups:
            is_mark_known = True
            previous_end = f"{path} at offset {scan.end}"
        crash_point(points.RECOVERY_SCANNED)
        await _apply(storage, scan.groups, mark_sequence, journal_id)
        last = max([last, *(group.sequence for group in scan.groups)])
    crash_point(points.RECOVERY_REPLAYED)
    next_id = max([0, mark_journal_id, *ids]) + 1
    return ReplayResult(last, next_id, ids, ends)


async def _settle_end(runtime: Runtime, path: str, scan: JournalScan, lane: str) -> None:
    """Cut a torn end off and make what was read durable, so that the next start finds the same."""
    if scan.is_torn:
        _log.warning("%s at offset %d: a torn group of which nobody was told is cut off", path, scan.end)
    if not scan.is_torn and not scan.groups:
        return
    file = await runtime.disk.open_file(path, lane=lane)
    try:
        if scan.is_torn:
            await runtime.disk.truncate(file, scan.end)
        await runtime.disk.sync_file(file)
    finally:
        await runtime.disk.close_file(file)


async def _apply(storage: LedgerStorage, groups: Sequence[Group], mark_sequence: int, journal_id: int) -> None:
    states = storage.states
    for group in groups:
        if group.sequence <= mark_sequence:
            continue
        for record in decode_records(group.body):
            match record:
                case AddRecord(ledger_id, first_entry_id, entries):
                    if ledger_id not in states.deleted:
                        states.know(ledger_id, b"")
                        storage.cache.put(ledger_id, first_entry_id, entries, sum(map(len, entries)))
                case Fence(ledger_id):
                    if ledger_id not in states.deleted:
                        states.know(ledger_id, b"")
                        states.fence(ledger_id)
                case NewLedgerRecord(ledger_id, master_key):
                    if ledger_id not in states.deleted:
                        states.know(ledger_id, master_key)
        if storage.cache.is_flush_due and storage.cache.flushing is None:
            storage.begin_flush((group.sequence, journal_id))
            try:
                await storage.flush()
            except OSError as error:
                if not is_disk_full(error):
                    raise
                # Both halves together hold what they held before: nothing was taken beyond it.
                _log.warning("no space to flush to %s: %s", storage.directory, error)


async def enter_limbo(storage: LedgerStorage, ledgers: LiveLedgers, what: str) -> None:
    """Part of the journal is lost: of the ledgers that exist now nothing absent is certain any more.

    Raises DataDirectoryError, StorageError.
    """
    _log.error("%s: accepted by the operator, entries may be lost", what)
    live = await ledgers.live_ledger_ids()
    if live is None:
        raise DataDirectoryError("which ledgers exist is not known now: a damaged journal needs that")
    storage.states.limbo |= BitMap64(live)
    noted = encode_checkpoint(Checkpoint(limbo=storage.states.limbo.serialize()), storage.instance_id)
    try:
        await storage.runtime.disk.write_file(storage.path(LIMBO_NAME), noted)
    except OSError as error:
        if not is_disk_full(error):
            raise
        _log.warning("no space to note the ledgers in limbo beside the checkpoint: %s", error)
