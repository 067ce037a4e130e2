"""Counters of sequential nodes, brought up to a number: nobody can set one, so children are made and deleted."""

from __future__ import annotations

from typing import Final

from geminga.metadata.ports import MetadataStore
from geminga.model.errors import BadVersionError, MetadataError, NoSuchNodeError, UnknownOutcomeError
from geminga.runtime import all_ended

#: Children on their way at once.
AT_ONCE_MAX: Final = 256
#: Looks at the counter; each but the first says that some requests were lost.
LOOKS_MAX: Final = 64
_NAME: Final = "ID-"


async def use_up(store: MetadataStore, parent: str, counter: int) -> None:
    """Let the next sequential child of ``parent`` get at least ``counter``. Raises MetadataError."""
    for _ in range(LOOKS_MAX):
        missing = counter - await store.next_sequence(parent)
        if missing <= 0:
            return
        for start in range(0, missing, AT_ONCE_MAX):
            count = min(AT_ONCE_MAX, missing - start)
            await all_ended(_one(store, parent) for _ in range(count))
    raise MetadataError(f"the counter of {parent} could not be brought to {counter} in {LOOKS_MAX} attempts")


async def _one(store: MetadataStore, parent: str) -> None:
    try:
        made = await store.put(f"{parent}/{_NAME}", b"", expected_version=None, ephemeral=True, sequential=True)
        await store.delete(made.path)
    except (BadVersionError, NoSuchNodeError, UnknownOutcomeError):
        pass  # what is left of it goes with the session
