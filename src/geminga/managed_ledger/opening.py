"""Opening a managed ledger: its last ledger is recovered, and every cursor comes back at its newest complete state.

Where several brokers share the metadata, an owner that was not told may go on meanwhile. So each node is claimed before
what it names is read: then nothing that the other one still writes counts, or is answered for. The list comes first, so
that no ledger and no cursor is added behind our back; the ledgers are fenced by being recovered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.managed_ledger.cursor.cursor_recovery import GIVE_UP
from geminga.managed_ledger.managed_ledger import ManagedLedger
from geminga.managed_ledger.shared.metadata_io import MetadataNode, claim, cursor_path, ledger_path
from geminga.managed_ledger.shared.services import LedgerHome, StorageServices
from geminga.metadata.ports import Node
from geminga.model.errors import CorruptionError, LedgerFencedError, MetadataError, NoSuchLedgerError, StorageError
from geminga.model.topic_name import SHADOW_SOURCE
from geminga.runtime import all_ended, get_logger
from geminga.wire.managed_ledger import (
    ManagedLedgerRecord,
    decode_cursor_info,
    decode_managed_ledger_info,
    encode_managed_ledger_info,
)

#: Cursors of a log that are brought back at the same time.
CURSORS_AT_ONCE: Final = 8

_log = get_logger(__name__)


async def load(services: StorageServices, home: LedgerHome, name: str) -> ManagedLedger:
    """Read, or create, the managed ledger of that name. Raises StorageError."""
    metadata = services.metadata
    path = ledger_path(name)
    node = await _get(services, path)
    if node is None:
        fresh = MetadataNode()
        record = ManagedLedgerRecord()
        try:
            await fresh.put(metadata, path, encode_managed_ledger_info(record))
        except LedgerFencedError:
            # It was created in between, as the partitions of a new topic are, without being opened.
            node = await _get(services, path)
            if node is None:
                raise
        else:
            made = ManagedLedger(services, home, name, fresh, record)
            made.stored.is_new = True
            return made
    known = MetadataNode(node.stat.version, node.stat.created_ms)
    try:
        record = decode_managed_ledger_info(node.value)
    except CorruptionError as error:
        raise CorruptionError(f"{path}: {error}") from error
    if record.properties.get(SHADOW_SOURCE):
        from geminga.managed_ledger.shadow import open_shadow  # few topics are one

        ml: ManagedLedger = await open_shadow(services, home, name, known, record)
    else:
        ml = ManagedLedger(services, home, name, known, record)
        await _recover_end(ml, services)
    await _bring_cursors_back(ml, services, await metadata.children(path))
    return ml


async def _bring_cursors_back(ml: ManagedLedger, services: StorageServices, names: Sequence[str]) -> None:
    """Some at a time: each may wait for the claim of its node, and for its ledger to be recovered."""
    for first in range(0, len(names), CURSORS_AT_ONCE):
        window = names[first : first + CURSORS_AT_ONCE]
        if len(window) == 1:
            await _bring_back(ml, services, window[0])
            continue
        await all_ended(_bring_back(ml, services, each) for each in window)
    if len(names) > 1:
        # In their order, whichever came first; in this mapping, which others look at.
        durable = ml.cursor_set.durable
        for each in names:
            if each in durable:
                durable[each] = durable.pop(each)


async def _bring_back(ml: ManagedLedger, services: StorageServices, cursor_name: str) -> None:
    # None: it was deleted in between.
    if (found := await _get(services, cursor_path(ml.name, cursor_name))) is not None:
        await ml.cursor_set.bring_back(cursor_name, decode_cursor_info(found.value), found.stat)


async def _recover_end(ml: ManagedLedger, services: StorageServices) -> None:
    """Find where the last ledger ends if the list does not say. Raises StorageError."""
    last = ml.ledgers.last
    if last is None or last.closed_ms:
        return
    try:
        ledger = await services.ledgers.open_ledger(last.ledger_id, recover=True)
    except NoSuchLedgerError:
        _log.error("%s: its last ledger %d does not exist and leaves the list", ml.name, last.ledger_id)
        last.entries = last.size_bytes = 0
    except MetadataError:
        raise
    except StorageError as error:
        _log.error("%s: where its last ledger %d ends can not be told: %s%s", ml.name, last.ledger_id, error, GIVE_UP)
        raise
    else:
        last.opened_ms = ledger.metadata.created_ms or 0
        last.entries, last.size_bytes = ledger.last_add_confirmed + 1, ledger.length_bytes
        if last.entries:
            ml.reader.keep(ledger)
    last.closed_ms = max(1, services.clock.wall_ms())
    ml.stored.drop_empty()
    ml.extent.listed()


async def _get(services: StorageServices, path: str) -> Node | None:
    return await (claim(services.metadata, path) if services.is_shared else services.metadata.get(path))
