"""Records in the cluster's own store: a tree beside that of the paths that they are of."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from geminga.broker.resources.initialization import KEPT_ALIKE_PATH
from geminga.broker.synchronization.core.records import PathRecord, decode, encode
from geminga.metadata.cas import remove_empty_from
from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore
from geminga.model.errors import BadVersionError, NodeNotEmptyError, NoSuchNodeError
from geminga.runtime import get_logger

_log = get_logger(__name__)

#: Of this cluster's own store. The node itself is made when it is kept alike for the first time: its time is when. It
#: says who was told how everything came to be.
ROOT: Final = KEPT_ALIKE_PATH


class StoredRecord:
    """A record as it was read, and what it may be written over."""

    __slots__ = ("_metadata", "_version", "path", "record")

    def __init__(self, metadata: MetadataStore, path: str, record: PathRecord | None, version: int) -> None:
        self._metadata = metadata
        self._version = version
        self.path = path
        #: None: there is none.
        self.record = record

    async def write(self, record: PathRecord) -> None:
        """Raises BadVersionError where another broker wrote it, MetadataError."""
        result = await self._metadata.put(f"{ROOT}{self.path}", encode(record), expected_version=self._version)
        self.record, self._version = record, result.stat.version

    async def remove(self) -> None:
        """Nothing is remembered of the path any more. Raises MetadataError."""
        path = f"{ROOT}{self.path}"
        try:
            await self._metadata.delete(path, expected_version=self._version)
            await remove_empty_from(self._metadata, path.rpartition("/")[0], ROOT)
        except NodeNotEmptyError:
            await self._metadata.put(path, b"", expected_version=self._version)
        except (NoSuchNodeError, BadVersionError):
            pass  # another broker did, or wrote one


class Told(NamedTuple):
    """Clusters that were told how everything came to be."""

    clusters: frozenset[str] = frozenset()
    #: Those that were, and went.
    former: frozenset[str] = frozenset()
    #: Those that an event came from: from then on they listen.
    heard: frozenset[str] = frozenset()
    #: When the node was made, as it says; another time: it was restored. 0: it does not say.
    made_ms: int = 0
    version: int = MUST_NOT_EXIST

    def among(self, others: Iterable[str]) -> Told:
        """When the topic goes to these, and to nobody else."""
        stay = self.clusters & frozenset(others)
        return self._replace(clusters=stay, former=self.former | (self.clusters - stay))


class StoredRecords:
    """See the module."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def read(self, path: str) -> StoredRecord:
        """Raises MetadataError."""
        node = await self._metadata.get(f"{ROOT}{path}")
        if node is None:
            return StoredRecord(self._metadata, path, None, MUST_NOT_EXIST)
        record = decode(node.value) if node.value else None
        if node.value and record is None:
            _log.warning("%s%s holds no record: %s is taken for one that others do not know", ROOT, path, path)
        return StoredRecord(self._metadata, path, record, node.stat.version)

    async def below(self, path: str) -> list[str]:
        """Names of what records are kept of below a path. Raises MetadataError."""
        return await self._metadata.children(f"{ROOT}{path}")

    async def joined_ms(self) -> int:
        """Since when this cluster is kept alike with others; from now on, where it was not. Raises MetadataError."""
        node = await self._metadata.get(ROOT)
        while node is None:
            try:
                await self._metadata.put(ROOT, b"", expected_version=MUST_NOT_EXIST)
            except BadVersionError:
                pass  # another broker did
            node = await self._metadata.get(ROOT)
        return node.stat.created_ms

    async def told(self) -> Told:
        """Raises MetadataError."""
        node = await self._metadata.get(ROOT)
        if node is None:
            return Told()
        try:
            document = json.loads(node.value) if node.value else {}
        except ValueError:
            document = {}
        told, former, heard = (_names(document, key) for key in ("told", "former", "heard"))
        made = document.get("made") if isinstance(document, dict) else None
        return Told(told, former, heard, made if isinstance(made, int) else 0, node.stat.version)

    async def write_told(self, told: Told) -> None:
        """Raises BadVersionError where another broker wrote it, MetadataError."""
        document = {
            "told": sorted(told.clusters),
            "former": sorted(told.former),
            "heard": sorted(told.heard),
            "made": told.made_ms,
        }
        await self._metadata.put(ROOT, json.dumps(document).encode(), expected_version=told.version)


def _names(document: object, key: str) -> frozenset[str]:
    found = document.get(key) if isinstance(document, dict) else None
    return frozenset(each for each in found if isinstance(each, str)) if isinstance(found, list) else frozenset()
