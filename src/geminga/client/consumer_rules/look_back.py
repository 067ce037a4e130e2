"""Where to look for the beginning of a chunked message whose later chunk came first.

A reader that starts in the middle of a topic may start in the middle of such a message. It goes back in steps: a few
hundred entries, the beginning of the ledger, the beginning of the topic. What is not found there is not there.
"""

from __future__ import annotations

from typing import Final

EntryKey = tuple[int, int]

#: Entries of the first step back; chunks of one message are seldom further apart.
FIRST_STEP_ENTRIES: Final = 256
#: The topic's beginning.
EARLIEST: Final = (-1, -1)


def start_before(key: EntryKey, started_at: EntryKey) -> EntryKey | None:
    """The entry to start again at, for the chunk in entry ``key``; None: there is nothing further back.

    ``started_at``: where the subscription began that brought the chunk.
    """
    ledger_id, entry_id = key
    steps = ((ledger_id, max(0, entry_id - FIRST_STEP_ENTRIES)), (ledger_id, 0), EARLIEST)
    return next((step for step in steps if step < started_at), None)
