"""JSON documents in the metadata store: create, read, change by compare-and-set, delete.

Contract: a node with an empty value is a parent that the store made on the way, not a document. Any write may
end in ``UnknownOutcomeError``; here the node is read again and the outcome decided from what it holds: a create
that finds its own bytes counts as done, an update is applied once more to what is there, a deletion whose document
is gone is done. Updates are therefore functions from the old document to the new one and may run more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from geminga.broker.core.coercion import Document, Json, decode_document, encode_document
from geminga.metadata import cas
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore
from geminga.model.errors import (
    BadVersionError,
    ConflictError,
    NodeNotEmptyError,
    NotFoundError,
    UnknownOutcomeError,
)

__all__ = ["Change", "Document", "DocumentStore", "Json", "VersionedDocument"]

#: Old document to new document; pure, since it may run again after a lost compare-and-set.
Change = Callable[[Document], Document]
#: The same of one that may not be there: None.
Put = Callable[[Document | None], Document]

#: Attempts of one change before it is given up as a conflict: only heavy contention on one node gets there.
CHANGE_ATTEMPTS_MAX: Final = 16


class VersionedDocument(NamedTuple):
    """A document and the version of its node."""

    document: Document
    version: int
    #: When its node was made, ms since the epoch: one that was deleted and made again has another.
    created_ms: int


class DocumentStore:
    """Documents at paths of one metadata store."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def find(self, path: str) -> VersionedDocument | None:
        """The document, or None if there is none at ``path``."""
        node = await self._metadata.get(path)
        if node is None or not node.value:
            return None
        return VersionedDocument(decode_document(path, node.value), node.stat.version, node.stat.created_ms)

    async def children(self, path: str) -> list[str]:
        """Names of the direct children, sorted."""
        return await self._metadata.children(path)

    async def create(self, path: str, document: Mapping[str, Json], exists: str) -> int:
        """Create; the new node's version. Raises :class:`ConflictError` with the sentence ``exists``."""
        value = encode_document(document)
        for _ in range(CHANGE_ATTEMPTS_MAX):
            node = await self._metadata.get(path)
            if node is not None and node.value:
                raise ConflictError(exists)
            version = MUST_NOT_EXIST if node is None else node.stat.version
            try:
                return (await self._metadata.put(path, value, expected_version=version)).stat.version
            except BadVersionError:
                continue
            except UnknownOutcomeError:
                after = await self._metadata.get(path)
                if after is not None and after.value == value:
                    return after.stat.version
        raise ConflictError(f"{path} kept changing while it was created; try again")

    async def change(self, path: str, change: Change, missing: str) -> VersionedDocument:
        """Apply ``change`` by compare-and-set; raises :class:`NotFoundError` with the sentence ``missing``."""

        def changed(document: Document | None) -> Document:
            if document is None:
                raise NotFoundError(missing)
            return change(document)

        return await self.put(path, changed)

    async def put(self, path: str, put: Put) -> VersionedDocument:
        """Make or change: what is to be there is ``put`` of what is. Raises ConflictError, and what ``put`` raises."""
        for _ in range(CHANGE_ATTEMPTS_MAX):
            node = await self._metadata.get(path)
            found = None if node is None or not node.value else decode_document(path, node.value)
            # Before it is changed: it may be the same object.
            before = None if found is None else encode_document(found)
            wanted = put(found)
            value = encode_document(wanted)
            if node is not None and value == before:
                return VersionedDocument(wanted, node.stat.version, node.stat.created_ms)
            version = MUST_NOT_EXIST if node is None else node.stat.version
            try:
                result = await self._metadata.put(path, value, expected_version=version)
            except (BadVersionError, UnknownOutcomeError):
                continue
            return VersionedDocument(wanted, result.stat.version, result.stat.created_ms)
        raise ConflictError(f"{path} kept changing while it was updated; try again")

    async def delete(self, path: str, *, missing: str, not_empty: str, expected_version: int | None = None) -> None:
        """Delete what was read, never what took its place.

        ``expected_version``: of the document that the caller judged; None: as it is now, whatever it holds.
        Raises :class:`NotFoundError` or :class:`ConflictError` with the sentence that fits, and ConflictError for a
        document of another version.
        """
        for _ in range(CHANGE_ATTEMPTS_MAX):
            node = await self._metadata.get(path)
            if node is None or not node.value:
                raise NotFoundError(missing)
            if expected_version is not None and node.stat.version != expected_version:
                raise ConflictError(f"{path} changed while it was to be deleted; try again")
            try:
                await cas.remove_read(self._metadata, path, node)
            except NodeNotEmptyError as error:
                raise ConflictError(not_empty) from error
            except BadVersionError:
                continue
            return
        raise ConflictError(f"{path} kept changing while it was to be deleted; try again")

    async def remove_empty(self, path: str) -> None:
        """Remove a parent that the store made on the way, if nothing is below it any more. Raises MetadataError."""
        await cas.remove_if_empty(self._metadata, path)

    async def remove_empty_from(self, path: str, top: str) -> None:
        """The same for it and those above it, up to below ``top``. Raises MetadataError."""
        await cas.remove_empty_from(self._metadata, path, top)
