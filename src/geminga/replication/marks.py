"""Marks, locks and switches in the metadata store, where auditors and workers of any make meet.

A lock only keeps others from doing the same work: who lost it without knowing does no harm (copies are the same
bytes, metadata change by compare-and-set, a mark goes by its version). docs/formats/under-replication.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from geminga.metadata import cas
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, Notification, Unsubscribe
from geminga.model.errors import (
    BadVersionError,
    CorruptionError,
    NodeNotEmptyError,
    NoSuchNodeError,
    UnknownOutcomeError,
)
from geminga.runtime import get_logger
from geminga.wire.bookkeeper.under_replication import (
    CHECK_ALL_LEDGERS_PATH,
    DISABLE_PATH,
    LOCKS_PATH,
    LOST_BOOKIE_RECOVERY_DELAY_PATH,
    MARK_LEVELS,
    MARKS_PATH,
    REREPLICATION_LAYOUT_PATH,
    UnderReplicatedLedger,
    check_rereplication_layout,
    decode_check_all_ledgers,
    decode_mark,
    decode_recovery_delay,
    encode_check_all_ledgers,
    encode_lock,
    encode_mark,
    encode_recovery_delay,
    encode_rereplication_layout,
    is_mark_level,
    ledger_id_of_mark,
    lock_path,
    mark_path,
)

#: Attempts at a lock whose outcome is unknown.
LOCK_ATTEMPTS_MAX: Final = 4

_log = get_logger(__name__)


class StoredMark(NamedTuple):
    """A mark and the version of its node: what a worker may delete when it is done."""

    mark: UnderReplicatedLedger
    version: int


class RecoveryDelay(NamedTuple):
    """How long one lost bookie is waited for, and the version of the node: it tells a value that was written again."""

    seconds: int
    version: int


class UnderReplicatedLedgers:
    """See the module."""

    __slots__ = ("_store",)

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def check_layout(self) -> None:
        """Make ``LAYOUT``, or see that it is ours; raises CorruptionError if others lay the nodes out differently."""
        value = encode_rereplication_layout()
        if not await cas.put_if_absent(self._store, REREPLICATION_LAYOUT_PATH, value):
            node = await self._store.get(REREPLICATION_LAYOUT_PATH)
            if node is not None:
                check_rereplication_layout(node.value, REREPLICATION_LAYOUT_PATH)

    # ---- marks

    async def mark(self, ledger_id: int, replicas: Iterable[str], marked_ms: int | None) -> None:
        """Say that copies on these bookies are missing. A mark that is damaged is written anew."""
        path, missing = mark_path(ledger_id), tuple(replicas)

        def change(value: bytes | None) -> bytes | None:
            found = UnderReplicatedLedger(())
            if value is not None:
                try:
                    found = decode_mark(value, path)
                except CorruptionError as error:
                    _log.warning("%s: written anew", error)
            grown = found.with_replicas(missing, marked_ms)
            return None if value is not None and grown == found else encode_mark(grown)

        await cas.update(self._store, path, change)

    async def read(self, ledger_id: int) -> StoredMark | None:
        """The mark of a ledger; None if there is none. One that is damaged names nobody."""
        path = mark_path(ledger_id)
        node = await self._store.get(path)
        if node is None:
            return None
        try:
            mark = decode_mark(node.value, path)
        except CorruptionError as error:
            _log.warning("%s: taken as a mark without names", error)
            mark = UnderReplicatedLedger(())
        return StoredMark(mark, node.stat.version)

    async def unmark(self, ledger_id: int, version: int) -> bool:
        """Delete the mark if it has this version still; False if it was renewed meanwhile."""
        path = mark_path(ledger_id)
        try:
            await cas.remove(self._store, path, expected_version=version)
        except BadVersionError:
            return False
        await self._remove_empty_parents(path)
        return True

    async def _remove_empty_parents(self, path: str) -> None:
        for _ in range(MARK_LEVELS):
            path = path.rpartition("/")[0]
            try:
                node = await self._store.get(path)
                if node is None:
                    continue
                await self._store.delete(path, expected_version=node.stat.version)
            except NoSuchNodeError:
                continue
            except (NodeNotEmptyError, BadVersionError, UnknownOutcomeError):
                return  # an empty node costs nothing

    async def ledger_ids(self) -> list[int]:
        """Ledgers that are marked, ascending."""
        found: list[int] = []
        paths = [MARKS_PATH]
        for _ in range(MARK_LEVELS):
            paths = [
                f"{path}/{name}" for path in paths for name in await self._store.children(path) if is_mark_level(name)
            ]
        for path in paths:
            for name in await self._store.children(path):
                ledger_id = ledger_id_of_mark(name)
                if ledger_id is not None and mark_path(ledger_id) == f"{path}/{name}":
                    found.append(ledger_id)
        return sorted(found)

    def watch(self, callback: Callable[[Notification], None]) -> list[Unsubscribe]:
        """Hear of what may bring work: a first mark of a range of ledgers, a lock that goes, the switch.

        Marks further down are found by looking now and then.
        """
        return [
            self._store.watch_children(MARKS_PATH, callback),
            self._store.watch_children(LOCKS_PATH, callback),
            self._store.watch_node(DISABLE_PATH, callback),
        ]

    # ---- locks

    async def locked(self) -> frozenset[int]:
        """Ledgers that somebody works on."""
        ids = (ledger_id_of_mark(name) for name in await self._store.children(LOCKS_PATH))
        return frozenset(ledger_id for ledger_id in ids if ledger_id is not None)

    async def lock(self, ledger_id: int, owner: str) -> bool:
        """Make the lock for as long as this session lives; False if somebody else has it."""
        path, value = lock_path(ledger_id), encode_lock(owner)
        for _ in range(LOCK_ATTEMPTS_MAX):
            try:
                await self._store.put(path, value, expected_version=MUST_NOT_EXIST, ephemeral=True)
                return True
            except BadVersionError:
                return False
            except UnknownOutcomeError:
                node = await self._store.get(path)
                if node is not None:
                    return node.stat.is_own
        return False

    async def holds(self, ledger_id: int) -> bool:
        """Whether this session has the lock still."""
        node = await self._store.get(lock_path(ledger_id))
        return node is not None and node.stat.is_own

    async def unlock(self, ledger_id: int) -> None:
        """Release a lock that this session made; fine if it is gone, or another's by now."""
        path = lock_path(ledger_id)
        node = await self._store.get(path)
        if node is not None and node.stat.is_own:
            await cas.remove(self._store, path)

    # ---- switches

    async def is_enabled(self) -> bool:
        """Whether anything may be marked and restored now."""
        return not await self._store.exists(DISABLE_PATH)

    async def set_enabled(self, is_enabled: bool) -> None:
        """Switch auditors and workers of the cluster on or off."""
        if is_enabled:
            await cas.remove(self._store, DISABLE_PATH)
        else:
            await cas.put_if_absent(self._store, DISABLE_PATH, b"")

    async def recovery_delay(self, configured: int) -> RecoveryDelay:
        """The cluster's value, which is ``configured`` if there is none yet."""
        path = LOST_BOOKIE_RECOVERY_DELAY_PATH
        await cas.put_if_absent(self._store, path, encode_recovery_delay(configured))
        node = await self._store.get(path)
        if node is None:
            return RecoveryDelay(configured, 0)
        try:
            return RecoveryDelay(decode_recovery_delay(node.value, path), node.stat.version)
        except CorruptionError as error:
            _log.warning("%s: %d counts instead", error, configured)
            return RecoveryDelay(configured, node.stat.version)

    async def set_recovery_delay(self, seconds: int) -> None:
        """Change the cluster's value."""
        value = encode_recovery_delay(seconds)
        await cas.update(self._store, LOST_BOOKIE_RECOVERY_DELAY_PATH, lambda found: None if found == value else value)

    def watch_recovery_delay(self, callback: Callable[[Notification], None]) -> Unsubscribe:
        """Hear of a change of the delay."""
        return self._store.watch_node(LOST_BOOKIE_RECOVERY_DELAY_PATH, callback)

    async def checked_all_ms(self) -> int | None:
        """When all ledgers were checked last, ms since the epoch; None: never, or nobody knows."""
        node = await self._store.get(CHECK_ALL_LEDGERS_PATH)
        if node is None:
            return None
        try:
            return decode_check_all_ledgers(node.value, CHECK_ALL_LEDGERS_PATH)
        except CorruptionError as error:
            _log.warning("%s: taken as never", error)
            return None

    async def set_checked_all(self, checked_ms: int) -> None:
        """All ledgers were checked."""
        value = encode_check_all_ledgers(checked_ms)
        await cas.update(self._store, CHECK_ALL_LEDGERS_PATH, lambda found: None if found == value else value)
