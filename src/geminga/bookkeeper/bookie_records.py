"""What the metadata store says of bookies, for who administers them: their cookies, where they stand (``/bookies``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import NotFoundError, PreconditionFailedError
from geminga.model.limits import METADATA_VALUE_BYTES_MAX
from geminga.wire.bookkeeper.bookie_racks import (
    RACKS_PATH,
    Racks,
    decode_racks,
    encode_racks,
    told_of,
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

    async def rack(self, bookie_id: str) -> object:
        """What is told of one. Raises NotFoundError."""
        found = told_of(await self.racks(), bookie_id)
        if found is None:
            raise _not_found(bookie_id)
        return found

    async def set(self, group: str, bookie_id: str, told: Mapping[str, object]) -> None:
        """It is in this group, and not in the one where it was. Raises PreconditionFailedError: there is no room."""

        def change(value: bytes | None) -> bytes:
            wanted = encode_racks(with_bookie(decode_racks(value or b""), group, bookie_id, told))
            if len(wanted) > max(RACKS_BYTES_MAX, len(value or b"")):
                raise PreconditionFailedError(
                    f"{RACKS_PATH} would have {len(wanted)} bytes; at most {RACKS_BYTES_MAX} are kept"
                )
            return wanted

        await cas.update(self._metadata, RACKS_PATH, change)

    async def remove(self, bookie_id: str) -> None:
        """It is in one group less. Raises NotFoundError."""
        last: bytes | None = None

        def change(value: bytes | None) -> bytes | None:
            nonlocal last
            left = without_bookie(decode_racks(value or b""), bookie_id)
            if left is None:
                if value is not None and value == last:
                    return None  # our own write, whose outcome was unknown
                raise _not_found(bookie_id)
            last = encode_racks(left)
            return last

        await cas.update(self._metadata, RACKS_PATH, change)


def _not_found(bookie_id: str) -> NotFoundError:
    return NotFoundError(f"Bookie rack placement configuration not found: {bookie_id}")
