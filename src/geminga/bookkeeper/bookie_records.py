"""What the metadata store says of bookies, for who administers them: their cookies, where they stand (``/bookies``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.wire.bookkeeper.bookie_racks import (
    RACKS_PATH,
    Racks,
    decode_racks,
    document_of,
    encode_racks,
    with_bookie,
    without_bookie,
)
from geminga.wire.bookkeeper.bookie_registration import COOKIES_PATH, READ_ONLY_NAME

#: What can lie beside cookies, as BookKeeper's tools pass it over.
_NO_BOOKIES: Final = ("INSTANCEID", READ_ONLY_NAME)
#: Of the node of all bookies: its half stays free for what others write.
RACKS_BYTES_MAX: Final = METADATA_VALUE_BYTES_MAX // 2


class BookieRecords:
    """See the module. Changes are compare-and-set; raises CorruptionError, MetadataError."""

    __slots__ = ("_metadata",)

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def all(self) -> Sequence[str]:
        """Ids of all bookies that were ever registered, sorted."""
        return sorted(name for name in await self._metadata.children(COOKIES_PATH) if name not in _NO_BOOKIES)

    async def racks(self) -> Racks:
        """All that is told of where they stand."""
        node = await self._metadata.get(RACKS_PATH)
        return decode_racks(b"" if node is None else node.value)

    async def rack(self, bookie_id: str) -> object | None:
        """What is told of one; None: nothing."""
        return document_of(await self.racks(), bookie_id)

    async def set(self, group: str, bookie_id: str, document: Mapping[str, object]) -> bool:
        """It is in this group, and not in the one where it was; False: there is no room, and nothing is changed."""
        has_room = True

        def change(value: bytes | None) -> bytes | None:
            nonlocal has_room
            wanted = encode_racks(with_bookie(decode_racks(value or b""), group, bookie_id, document))
            has_room = len(wanted) <= max(RACKS_BYTES_MAX, len(value or b""))
            return wanted if has_room else None

        await cas.update(self._metadata, RACKS_PATH, change)
        return has_room

    async def remove(self, bookie_id: str) -> bool:
        """It is in one group less; False: it was in none."""
        was_there = False

        def change(value: bytes | None) -> bytes | None:
            nonlocal was_there
            left = without_bookie(decode_racks(value or b""), bookie_id)
            if left is None:
                return None
            # For good: it may be gone at the next look by our own write, whose outcome was unknown.
            was_there = True
            return encode_racks(left)

        await cas.update(self._metadata, RACKS_PATH, change)
        return was_there
