"""BookKeeper's part of a cluster's metadata made and removed as a whole: ``initnewcluster`` and ``metaformat``.

What removes says first what would go, and goes on only with the operator's word; it never does while a bookie is up.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from geminga.bookie.registration import draw_cluster_id, prepare_cluster, registered_ids
from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import DataDirectoryError
from geminga.runtime import Runtime
from geminga.wire.bookkeeper.bookie_registration import (
    BOOKIE_MARKS_PATH,
    COOKIES_PATH,
    INSTANCE_ID_PATH,
)
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT

#: Kept by ``metaformat``: an id is never given twice.
_KEPT: Final = ("idgen", "idgen-long")
#: Removed at once.
_AT_ONCE_MAX: Final = 200


class StoredCluster(NamedTuple):
    """What there is of a cluster."""

    ledgers: int
    cookies: int
    #: Ids of bookies that are registered.
    up: tuple[str, ...]
    #: Whether there is anything.
    is_there: bool


async def look(metadata: MetadataStore, ledgers: int) -> StoredCluster:
    """What there is beside ``ledgers``, which were counted. Raises MetadataError."""
    up = await registered_ids(metadata)
    cookies = await metadata.children(COOKIES_PATH)
    return StoredCluster(ledgers, len(cookies), tuple(sorted(up)), bool(await metadata.children(LEDGERS_ROOT)))


async def init_new_cluster(metadata: MetadataStore, runtime: Runtime) -> str:
    """Make what a cluster without bookies has; its id. Raises DataDirectoryError if something is there."""
    names = await metadata.children(LEDGERS_ROOT)
    if names:
        raise DataDirectoryError(
            f"{LEDGERS_ROOT} is there already, with {', '.join(names[:5])}: it is a cluster's. Nothing was changed"
        )
    await prepare_cluster(metadata)
    return (await draw_cluster_id(metadata, runtime)).decode()


async def format_cluster(metadata: MetadataStore, runtime: Runtime) -> str:
    """Remove ledgers, cookies and marks, and begin anew; the new id. Cut off, it is to be called again.

    Raises DataDirectoryError while a bookie is registered, MetadataError.
    """
    up = (await look(metadata, 0)).up
    if up:
        raise DataDirectoryError(f"bookies are up, and would go on with what is removed: {', '.join(up)}. Stop them")
    # The id first: whoever is cut off has cookies that fit no bookie's directories, and says so.
    await cas.remove(metadata, INSTANCE_ID_PATH)
    for name in await metadata.children(LEDGERS_ROOT):
        if name not in _KEPT:
            await _remove(metadata, f"{LEDGERS_ROOT}/{name}")
    await _remove(metadata, BOOKIE_MARKS_PATH)
    await prepare_cluster(metadata)
    return (await draw_cluster_id(metadata, runtime)).decode()


async def _remove(metadata: MetadataStore, path: str) -> None:
    names = await metadata.children(path)
    for start in range(0, len(names), _AT_ONCE_MAX):
        window = names[start : start + _AT_ONCE_MAX]
        ended = await asyncio.gather(*(_remove(metadata, f"{path}/{name}") for name in window), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error
    await cas.remove(metadata, path)
