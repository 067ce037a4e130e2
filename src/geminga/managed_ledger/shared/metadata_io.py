"""Metadata nodes of managed ledgers and cursors: paths, and compare-and-set by one owner.

A managed ledger has one owner at a time. Who finds another version than the one it wrote is no longer the
owner: :class:`LedgerFencedError`. A write with an unknown outcome, or whose caller was called off, is settled by
reading before anything else is written; until that succeeds the node stays *in doubt*. It may come to be after that
was read: then it is found at the version that it makes. A node is deleted under the version that we know, as it is
written: what another owner has changed is not ours to delete.
"""

from __future__ import annotations

from typing import Final

from geminga.metadata import cas
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore, Node, Stat
from geminga.model.errors import BadVersionError, LedgerFencedError, StorageError, UnknownOutcomeError, invariant

ROOT: Final = "/managed-ledgers"
#: Times that a node is claimed again because it was changed in between.
CLAIM_ATTEMPTS_MAX: Final = 16
#: Times a write is repeated at once after an unknown outcome that turned out not to have happened.
UNKNOWN_ATTEMPTS_MAX: Final = 8
_DELETED: Final = -2


def ledger_path(name: str) -> str:
    """The node of a managed ledger."""
    return f"{ROOT}/{name}"


def cursor_path(ledger_name: str, cursor_name: str) -> str:
    """The node of a cursor; the name is one path element already (the broker encodes subscription names)."""
    invariant(cursor_name and "/" not in cursor_name, f"cursor name {cursor_name!r} is not encoded")
    return f"{ROOT}/{ledger_name}/{cursor_name}"


class MetadataNode:
    """One node that we own: its version, and what may have been written without an answer."""

    __slots__ = ("_in_doubt", "_late", "created_ms", "version")

    def __init__(self, version: int = MUST_NOT_EXIST, created_ms: int = 0) -> None:
        #: When the node was made, ms since the epoch; 0: it is not there yet.
        self.created_ms = created_ms
        #: As we know it; -1: does not exist yet; -2: we deleted it, and it must not come back.
        self.version = version
        self._in_doubt: bytes | None = None
        #: Was in doubt and not there when that was looked at.
        self._late: bytes | None = None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the node may hold the value of a write that failed."""
        return self._in_doubt is not None

    @property
    def is_deleted(self) -> bool:
        """By us."""
        return self.version == _DELETED

    @property
    def may_be_there(self) -> bool:
        """Whether there is, or may be, such a node."""
        return self.version >= 0 or self.is_in_doubt

    def take_over(self, before: MetadataNode) -> None:
        """Go on with the node that ``before`` knows, or may have made, and that nobody else has."""
        self.version, self.created_ms = before.version, before.created_ms
        self._in_doubt, self._late = before._in_doubt, before._late

    async def put(self, store: MetadataStore, path: str, value: bytes) -> None:
        """Replace (or create) the node. Raises LedgerFencedError, UnknownOutcomeError, MetadataError."""
        if self.is_deleted:
            raise LedgerFencedError(f"{path} was deleted")
        await self._settle(store, path)
        for _ in range(UNKNOWN_ATTEMPTS_MAX):
            # Until there is an answer: who is called off does not hear it.
            self._in_doubt = value
            try:
                result = await store.put(path, value, expected_version=self.version)
            except BadVersionError as error:
                self._in_doubt = None
                if await self._came_late(store, path):
                    continue
                if self._late == value:
                    # An earlier attempt may have been there, and what another owner has now stands on it.
                    self._in_doubt = self._late
                raise _fenced(path, self.version) from error
            except UnknownOutcomeError:
                if await self._settle(store, path):
                    return
                continue
            except StorageError as error:
                self._in_doubt = None
                raise error
            self._written(result.stat)
            return
        raise UnknownOutcomeError(f"{path}: {UNKNOWN_ATTEMPTS_MAX} writes in a row without an answer")

    async def require_ours(self, store: MetadataStore, path: str) -> None:
        """Raise LedgerFencedError if another owner changed or claimed it. No write of ours may be under way."""
        node = await store.get(path)
        self._settle_by(path, node)
        if node is None or node.stat.version != self.version:
            raise _fenced(path, self.version, node)

    async def delete(self, store: MetadataStore, path: str) -> None:
        """Delete the node as we know it, a write in doubt settled first; fine if it is gone.

        Raises LedgerFencedError if another owner changed it: then it stays. UnknownOutcomeError, MetadataError.
        """
        if self.is_deleted:
            return
        node = await store.get(path)
        if node is not None:
            self._settle_by(path, node)
            if node.stat.version != self.version:
                raise _fenced(path, self.version, node)
            try:
                await cas.remove_read(store, path, node, attempts_max=UNKNOWN_ATTEMPTS_MAX)
            except BadVersionError as error:
                if await self._came_late(store, path):
                    await self.delete(store, path)
                    return
                raise _fenced(path, self.version) from error
        self.version = _DELETED
        self._in_doubt = self._late = None

    async def _settle(self, store: MetadataStore, path: str) -> bool:
        """Find out about the write in doubt; True if it happened."""
        return self._in_doubt is not None and self._settle_by(path, await store.get(path))

    async def _came_late(self, store: MetadataStore, path: str) -> bool:
        """Whether the version is another one because a write of ours came to be after it was looked for."""
        if self._late is None:
            return False
        before = self.version
        self._settle_by(path, await store.get(path))
        return self.version != before

    def _settle_by(self, path: str, node: Node | None) -> bool:
        """The write in doubt, by what was read after it: whether it happened."""
        value = self._in_doubt
        for written in (value, self._late):
            if node is not None and node.value == written and node.stat.version == self.version + 1:
                self._written(node.stat)
                return written is value
        if value is None:
            return False
        if (MUST_NOT_EXIST if node is None else node.stat.version) != self.version:
            raise _fenced(path, self.version, node)
        # Not yet, that is: it may be on its way.
        self._in_doubt, self._late = None, value
        return False

    def _written(self, stat: Stat) -> None:
        """One that was in doubt before can not come to be any more."""
        self.version, self.created_ms = stat.version, stat.created_ms
        self._in_doubt = self._late = None


async def claim(store: MetadataStore, path: str) -> Node | None:
    """Write a node as it is, so that nobody who knew it before may change it; what it is now. None if it is not there.

    Raises LedgerFencedError if it goes on changing, MetadataError.
    """
    for _ in range(CLAIM_ATTEMPTS_MAX):
        found = await store.get(path)
        if found is None:
            return None
        node = MetadataNode(found.stat.version, found.stat.created_ms)
        try:
            await node.put(store, path, found.value)
        except LedgerFencedError:
            continue
        return Node(found.value, found.stat._replace(version=node.version))
    raise LedgerFencedError(f"{path}: another owner goes on changing it")


def _fenced(path: str, version: int, node: Node | None = None) -> LedgerFencedError:
    found = "" if node is None else f", found {node.stat.version}"
    return LedgerFencedError(f"{path}: another owner changed it (version {version} expected{found})")
