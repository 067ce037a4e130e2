"""Which ledgers the lists of managed ledgers and their cursors name.

What can not be read or decoded raises: a list that says nothing intelligible must never count as one that names
nothing, for what no list names may be deleted.
"""

from __future__ import annotations

from typing import Final

from geminga.managed_ledger.rules.attached import attached_ids
from geminga.managed_ledger.shared.metadata_io import ROOT
from geminga.metadata.ports import MetadataStore
from geminga.wire.managed_ledger import decode_cursor_info, decode_managed_ledger_info

#: The path element above topics with storage; tenant and namespace come before it, in old names a cluster too.
DOMAIN: Final = "persistent"
_DOMAIN_LEVELS: Final = (2, 3)


async def named_ledgers(metadata: MetadataStore, name: str) -> set[int]:
    """Ids that one managed ledger and its cursors name; -1 may be among them. Raises CorruptionError, MetadataError."""
    path = f"{ROOT}/{name}"
    found: set[int] = set()
    node = await metadata.get(path)
    if node is not None:
        record = decode_managed_ledger_info(node.value)
        found.update(item.ledger_id for item in record.ledgers)
        found.update(attached_ids(record.properties))
    for child in await metadata.children(path):
        cursor = await metadata.get(f"{path}/{child}")
        if cursor is not None:
            found.add(decode_cursor_info(cursor.value).cursor_ledger_id)
    return found


async def all_named_ledgers(metadata: MetadataStore) -> set[int]:
    """Ids that any managed ledger or cursor names; -1 may be among them. Raises CorruptionError, MetadataError."""
    found: set[int] = set()
    await _collect(metadata, "", 0, found)
    return found


async def _collect(metadata: MetadataStore, prefix: str, level: int, found: set[int]) -> None:
    for name in await metadata.children(f"{ROOT}{prefix}"):
        path = f"{prefix}/{name}"
        if level in _DOMAIN_LEVELS and name == DOMAIN:
            for topic in await metadata.children(f"{ROOT}{path}"):
                found |= await named_ledgers(metadata, f"{path[1:]}/{topic}")
        elif level < _DOMAIN_LEVELS[-1]:
            await _collect(metadata, path, level + 1, found)
