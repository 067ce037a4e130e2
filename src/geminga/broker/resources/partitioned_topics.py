"""Partitioned topics: ``/admin/partitioned-topics/{tenant}/{namespace}/{domain}/{topic}``.

The value is Pulsar's ``PartitionedTopicMetadata``: ``{"partitions": n, "deleted": false, "properties": {...}}``.
``deleted`` says that a deletion began: nothing of the topic is served any more, and it takes no change. Where nobody
asked for it, a property (:data:`IF_EMPTY`, which is told to nobody) says that it is for a topic without partitions.
Another one (:data:`STANDS`) says that who made a topic of that name without partitions at the same time gave way to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from geminga.broker.resources.documents import Document, DocumentStore, Json
from geminga.model.errors import ConflictError, NotFoundError, PreconditionFailedError
from geminga.model.topic_name import TopicName, decode_name
from geminga.runtime import AskedTogether

PARTITIONED_TOPICS_PATH: Final = "/admin/partitioned-topics"
#: A property, since Pulsar's class has no member for it.
IF_EMPTY: Final = "geminga.deleted-if-empty"
STANDS: Final = "geminga.stands"


@dataclass(frozen=True, slots=True)
class PartitionedTopic:
    """What is stored of a partitioned topic."""

    partitions: int
    properties: Mapping[str, str] = field(default_factory=dict)
    is_deleted: bool = False
    #: It is only to go if none of its partitions is there: nobody asked for it.
    is_if_empty: bool = False
    #: A topic of that name without partitions, which was made at the same time, was taken back for it.
    stands: bool = False
    #: Of its metadata node.
    version: int = -1


class PartitionedTopics:
    """Create, read, grow and delete partitioned topics; a partition's name stands for its partitioned topic."""

    __slots__ = ("_asked", "_store")

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        #: By path.
        self._asked: AskedTogether[str, PartitionedTopic | None] = AskedTogether()

    async def find(self, name: TopicName) -> PartitionedTopic | None:
        """What is stored, or None if ``name`` is not partitioned, or is being deleted."""
        found = await self.find_stored(name)
        return None if found is None or found.is_deleted else found

    async def find_stored(self, name: TopicName) -> PartitionedTopic | None:
        """What is stored, also of one that is being deleted, or None if ``name`` is not partitioned.

        Partitions ask by the hundred, all for the same: it is read for all who ask together.
        """
        path = _path(name)
        return await (self._asked.ask(path, lambda: self._read(path)) if name.is_partition else self._read(path))

    async def _read(self, path: str) -> PartitionedTopic | None:
        found = await self._store.find(path)
        if found is None:
            return None
        partitions = found.document.get("partitions")
        if not isinstance(partitions, int) or partitions <= 0:
            return None
        properties = found.document.get("properties")
        texts = {key: str(value) for key, value in properties.items()} if isinstance(properties, dict) else {}
        is_deleted = found.document.get("deleted") is True
        is_if_empty = texts.pop(IF_EMPTY, None) is not None and is_deleted
        stands = texts.pop(STANDS, None) is not None
        return PartitionedTopic(partitions, texts, is_deleted, is_if_empty, stands, found.version)

    async def list(self, namespace: str, domain: str = "persistent") -> list[str]:
        """Full names of the namespace's partitioned topics, sorted."""
        encoded = await self._store.children(f"{PARTITIONED_TOPICS_PATH}/{namespace}/{domain}")
        return sorted(f"{domain}://{namespace}/{decode_name(name)}" for name in encoded)

    async def create(self, name: TopicName, partitions: int, properties: Mapping[str, str] | None = None) -> None:
        """Raises ConflictError (409) if it exists, PreconditionFailedError (412) for a bad count or name."""
        if partitions < 1:
            raise PreconditionFailedError(f"{name} needs at least one partition, not {partitions}")
        if name.is_partition:
            raise PreconditionFailedError(f"{name} is named like a partition and can not be partitioned itself")
        document: Document = {"partitions": partitions, "deleted": False}
        if properties:
            document["properties"] = dict(properties)
        await self._store.create(_path(name), document, "This topic already exists")

    async def update(self, name: TopicName, partitions: int) -> None:
        """Grow to ``partitions``; raises NotFoundError (404), ConflictError (409) for fewer than there are."""

        def grow(document: Document) -> Document:
            _require_served(document, name)
            present = document.get("partitions")
            if isinstance(present, int) and present > partitions:
                raise ConflictError(f"{name} has {present} partitions and can not shrink to {partitions}")
            return {**document, "partitions": partitions}

        await self._store.change(_path(name), grow, _missing(name))

    async def set_properties(self, name: TopicName, properties: Mapping[str, str]) -> None:
        """Replace the properties; raises NotFoundError (404)."""
        values: dict[str, Json] = dict(properties)

        def put(document: Document) -> Document:
            _require_served(document, name)
            present = document.get("properties")
            stands = {STANDS: present[STANDS]} if isinstance(present, dict) and STANDS in present else {}
            return {**document, "properties": {**values, **stands}}

        await self._store.change(_path(name), put, _missing(name))

    async def let_stand(self, name: TopicName) -> None:
        """A topic of that name without partitions gives way: who made the partitioned one must not take it back.

        Raises NotFoundError (404): it is not there any more, or is being deleted.
        """

        def stand(document: Document) -> Document:
            _require_served(document, name)
            present = document.get("properties")
            return {**document, "properties": {**(present if isinstance(present, dict) else {}), STANDS: "true"}}

        await self._store.change(_path(name), stand, _missing(name))

    async def mark_deleted(
        self, name: TopicName, is_deleted: bool, *, partitions: int, is_if_empty: bool = False
    ) -> int:
        """Say whether it is being deleted; the version that says so. ``is_if_empty``: if none of its partitions is
        there, and nobody asked for it.

        Raises NotFoundError (404), ConflictError (409) if it has not that many ``partitions`` any more.
        """

        def mark(document: Document) -> Document:
            if document.get("partitions") != partitions:
                raise ConflictError(f"{name} has got other partitions meanwhile; try again")
            present = document.get("properties")
            properties: Document = {**present} if isinstance(present, dict) else {}
            properties.pop(IF_EMPTY, None)
            if is_if_empty:
                properties[IF_EMPTY] = "true"
            marked: Document = {**document, "deleted": is_deleted}
            return {**marked, "properties": properties} if properties or "properties" in document else marked

        return (await self._store.change(_path(name), mark, _missing(name))).version

    async def delete(self, name: TopicName, *, expected_version: int | None = None) -> None:
        """Raises NotFoundError (404), ConflictError (409) if it is not of ``expected_version`` any more."""
        await self._store.delete(
            _path(name),
            missing=_missing(name),
            not_empty=f"{name} still has children",
            expected_version=expected_version,
        )


def _path(name: TopicName) -> str:
    return f"{PARTITIONED_TOPICS_PATH}/{name.partitioned_topic.managed_ledger_name}"


def _require_served(document: Document, name: TopicName) -> None:
    if document.get("deleted") is True:
        raise NotFoundError(f"partitioned topic {name.partitioned_topic} is being deleted")


def _missing(name: TopicName) -> str:
    return f"partitioned topic {name.partitioned_topic} does not exist"
