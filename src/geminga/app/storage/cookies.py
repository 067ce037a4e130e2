"""What the metadata store remembers of a bookie: its cookie, at BookKeeper's path ``/ledgers/cookies/{bookie id}``.

The value is a format version line and BookKeeper's fields in protobuf's text format. The instance id in it is that
of the bookie's own directories; a bookie whose directories were wiped or swapped is refused with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from geminga.metadata.ports import MUST_NOT_EXIST, MetadataStore
from geminga.model.errors import BadVersionError, CorruptionError, DataDirectoryError

COOKIES_PATH: Final = "/ledgers/cookies"
#: BookKeeper's cookie layout version.
LAYOUT_VERSION: Final = 5

_INSTANCE: Final = re.compile(r'^instanceId: "([0-9a-f]{32})"$', re.MULTILINE)


async def remembered_instance_id(metadata: MetadataStore, bookie_id: str) -> str | None:
    """The instance id of the bookie's cookie, None if it never was registered; raises CorruptionError."""
    node = await metadata.get(f"{COOKIES_PATH}/{bookie_id}")
    if node is None:
        return None
    found = _INSTANCE.search(node.value.decode("utf-8", "replace"))
    if found is None:
        raise CorruptionError(f"metadata node {COOKIES_PATH}/{bookie_id} holds no cookie")
    return found.group(1)


async def remembered_bookies(metadata: MetadataStore) -> Sequence[str]:
    """Ids of all bookies that were ever registered, sorted."""
    # BookKeeper's instance id is a node beside the cookies.
    return sorted(name for name in await metadata.children(COOKIES_PATH) if ":" in name)


async def remember_instance_id(metadata: MetadataStore, bookie_id: str, instance_id: str, directory: str) -> None:
    """Register a new bookie; raises DataDirectoryError if another one has the id already."""
    try:
        await metadata.put(
            f"{COOKIES_PATH}/{bookie_id}", _encoded(bookie_id, instance_id, directory), expected_version=MUST_NOT_EXIST
        )
    except BadVersionError as error:
        if await remembered_instance_id(metadata, bookie_id) != instance_id:
            raise DataDirectoryError(f"another bookie is registered as {bookie_id}") from error


def _encoded(bookie_id: str, instance_id: str, directory: str) -> bytes:
    fields = {"bookieHost": bookie_id, "journalDir": directory, "ledgerDirs": f"1\t{directory}"}
    lines = [str(LAYOUT_VERSION), *(f"{name}: {json.dumps(text)}" for name, text in fields.items())]
    return "\n".join([*lines, f'instanceId: "{instance_id}"', ""]).encode()
