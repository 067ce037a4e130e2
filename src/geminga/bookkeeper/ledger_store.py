"""Ledger metadata in the metadata store: create, read, compare-and-set, delete, list.

Paths and values are BookKeeper's (``/ledgers/00/0000/L0001``). Every write survives an unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from geminga.bookkeeper.ledger_ids import next_ledger_id
from geminga.metadata import cas
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore
from geminga.model.errors import (
    BadVersionError,
    MetadataError,
    NoSuchLedgerError,
    UnknownOutcomeError,
    invariant,
)
from geminga.runtime import get_logger
from geminga.wire.bookkeeper.bookie_registration import BOOKIE_MARKS_PATH, BookieMark, decode_mark, encode_mark
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata, decode_ledger_metadata, encode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import (
    HIERARCHICAL_LAYOUT,
    LAYOUT_PATH,
    LEDGERS_ROOT,
    depth_below,
    is_known_layout,
    is_ledger_leaf,
    ledger_id_of_path,
    ledger_path,
)

#: Geminga knows the hierarchical layouts.
LAYOUT_KNOWN: Final = b"HierarchicalLedgerManagerFactory"
#: Stands for the bytes of metadata that need not be read; those of no ledger, which begin otherwise.
_KNOWN: Final = b"known"

_log = get_logger(__name__)


class LedgerNode(NamedTuple):
    """Ledger metadata and the version of its node."""

    metadata: LedgerMetadata
    version: int
    #: When the node was made by the store's own clock, ms since the epoch; 0: not read. The value may lack it.
    node_created_ms: int = 0


class LedgerStore:
    """Ledger metadata by ledger id."""

    __slots__ = ("_is_layout_known", "_store")

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        #: Whether the cluster keeps its ledgers where they are looked for here.
        self._is_layout_known = False

    async def create(self, ledger_id: int, metadata: LedgerMetadata) -> LedgerNode | None:
        """Create the node; None if the id is taken. ``metadata.creation_token`` tells ours from another's."""
        invariant(metadata.creation_token is not None, f"ledger {ledger_id} created without a token")
        await self._check_layout()
        path = ledger_path(ledger_id)
        value = encode_ledger_metadata(metadata)
        try:
            result = await self._store.put(path, value, expected_version=MUST_NOT_EXIST)
        except BadVersionError:
            return None
        except UnknownOutcomeError:
            node = await self._store.get(path)
            # If it is not there it may still come: this id is given up, the caller takes another.
            if node is None or node.value != value:
                return None
            return LedgerNode(metadata, node.stat.version)
        return LedgerNode(metadata, result.stat.version)

    async def read(self, ledger_id: int) -> LedgerNode:
        """Raises NoSuchLedgerError, CorruptionError, MetadataError."""
        node = await self._store.get(ledger_path(ledger_id))
        if node is None:
            await self._check_layout()
            raise NoSuchLedgerError(f"ledger {ledger_id} does not exist")
        return LedgerNode(decode_ledger_metadata(node.value, ledger_id), node.stat.version, node.stat.created_ms)

    async def update(
        self,
        ledger_id: int,
        change: Callable[[LedgerMetadata], LedgerMetadata],
        *,
        known: LedgerNode | None = None,
    ) -> LedgerNode:
        """Compare-and-set in a loop; ``change`` returns its argument to leave it, or raises to give up.

        ``change`` may meet its own effect (see ``metadata.cas.update``). Raises NoSuchLedgerError.
        """

        #: By their bytes: what is known is not encoded and decoded again.
        seen: dict[bytes, LedgerMetadata] = {} if known is None else {_KNOWN: known.metadata}

        def change_value(value: bytes | None) -> bytes | None:
            if value is None:
                raise NoSuchLedgerError(f"ledger {ledger_id} does not exist")
            before = seen.get(value) or decode_ledger_metadata(value, ledger_id)
            after = change(before)
            if after == before:
                return None
            encoded = encode_ledger_metadata(after)
            seen[encoded] = after
            return encoded

        known_value = None if known is None else cas.CasResult(_KNOWN, known.version)
        written = await cas.update(self._store, ledger_path(ledger_id), change_value, known=known_value)
        if written is None:
            raise NoSuchLedgerError(f"ledger {ledger_id} does not exist")
        value, version = written
        return LedgerNode(seen.get(value) or decode_ledger_metadata(value, ledger_id), version)

    async def delete(self, ledger_id: int, *, expected_version: int | None = None) -> bool:
        """Delete the node; False if it is gone already. Raises BadVersionError if it has another version."""
        await self._check_layout()
        return await cas.remove(self._store, ledger_path(ledger_id), expected_version=expected_version)

    async def _check_layout(self) -> None:
        """Raise MetadataError in a cluster that keeps its ledgers elsewhere: what is not here is not gone.

        The same note may be read twice at first. It never changes in a cluster.
        """
        if self._is_layout_known:
            return
        node = await self._store.get(LAYOUT_PATH)
        if node is not None and not is_known_layout(node.value):
            raise MetadataError(
                f"{LAYOUT_PATH} says {node.value[:100]!r}: Geminga does not know where ledgers lie there, it knows "
                f"{HIERARCHICAL_LAYOUT!r}"
            )
        self._is_layout_known = True


class MetadataLiveLedgers:
    """Which ledgers exist, for the garbage collection of bookies.

    A ledger's node is created before its first entry is sent. So a bookie that lists its own ledgers *first* and asks
    *then* may delete those that are missing here: they were deleted, they are not about to appear.
    """

    __slots__ = ("_bookie_id", "_store")

    def __init__(self, store: MetadataStore, bookie_id: str = "") -> None:
        """``bookie_id``: whose marks are left; their nodes go with its cookie."""
        self._store = store
        self._bookie_id = bookie_id

    async def live_ledger_ids(self) -> AbstractSet[int] | None:
        """Ids of all ledgers, or None if they can not be told now: then nothing may be deleted."""
        found: set[int] = set()
        try:
            # A list that is older than the bookie's own would lack ledgers that it has entries of.
            await self._store.sync(LEDGERS_ROOT)
            if not await self._has_known_layout():
                return None
            for top_level in await self._store.children(LEDGERS_ROOT):
                depth = depth_below(top_level)
                if depth is not None:
                    await self._collect(f"{LEDGERS_ROOT}/{top_level}", depth - 1, found)
        except MetadataError as error:
            _log.warning("the list of ledgers can not be read now: %s", error)
            return None
        return found

    async def next_ledger_id(self) -> int | None:
        """A number that no id ever given out reaches. Raises MetadataError, CorruptionError."""
        return await next_ledger_id(self._store)

    async def read_mark(self, instance: str) -> int | None:
        """See ``LiveLedgers`` of the bookie. Raises MetadataError, CorruptionError."""
        path = f"{BOOKIE_MARKS_PATH}/{instance}"
        node = await self._store.get(path)
        return None if node is None else decode_mark(node.value, f"metadata node {path}").number

    async def write_mark(self, instance: str, mark: int) -> None:
        """See ``LiveLedgers`` of the bookie. Raises MetadataError."""
        value = encode_mark(BookieMark(mark, self._bookie_id))
        await cas.update(self._store, f"{BOOKIE_MARKS_PATH}/{instance}", lambda _: value)

    async def existing(self, ledger_ids: Sequence[int]) -> AbstractSet[int] | None:
        """Which of these exist; None: that can not be told. Raises MetadataError."""
        await self._store.sync(LEDGERS_ROOT)
        if not await self._has_known_layout():
            return None
        return {ledger_id for ledger_id in ledger_ids if await self._store.exists(ledger_path(ledger_id))}

    async def _has_known_layout(self) -> bool:
        layout = await self._store.get(LAYOUT_PATH)
        if layout is None or LAYOUT_KNOWN in layout.value:
            return True
        _log.warning("%s says %r: the list of ledgers can not be read", LAYOUT_PATH, layout.value[:100])
        return False

    async def _collect(self, path: str, depth: int, found: set[int]) -> None:
        """Add the ledgers ``depth + 1`` levels below ``path``."""
        names = await self._store.children(path)
        if depth:
            for name in names:
                await self._collect(f"{path}/{name}", depth - 1, found)
            return
        for name in names:
            if is_ledger_leaf(name):
                ledger_id = ledger_id_of_path(f"{path}/{name}")
                if ledger_id is not None:
                    found.add(ledger_id)
