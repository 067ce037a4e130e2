"""A ledger of a backup, written to bookies once more: what goes with it, and how its entries are appended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from geminga.bookkeeper.installation import META_INSTALLATION
from geminga.bookkeeper.ledger_handle import LedgerHandle
from geminga.model.errors import GemingaError
from geminga.runtime import answer_of
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT, LedgerMetadata

#: Not of this cluster any more: where the ledger may lie, and whose it is.
_DROPPED: Final = (META_PLACEMENT, META_INSTALLATION)


def custom_metadata_of(metadata: LedgerMetadata) -> dict[str, bytes]:
    """What its creator said of it, and holds wherever it lies."""
    return {key: value for key, value in metadata.custom_metadata.items() if key not in _DROPPED}


async def append_all(handle: LedgerHandle, payloads: Sequence[bytes]) -> None:
    """All are on their ack quorum when this returns. Raises StorageError."""
    await answer_of(partial(_append, handle, payloads))


def _append(handle: LedgerHandle, payloads: Sequence[bytes], done: Callable[[int | GemingaError], None]) -> None:
    handle.append(payloads, lambda first, count, error: done(first + count if error is None else error))
