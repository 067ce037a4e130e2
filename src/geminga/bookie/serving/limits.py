"""Limits of a bookie's server that are not configuration, each with its reason."""

from __future__ import annotations

from typing import Final

#: Bytes of requests of one connection that are not answered yet; beyond, it is not read until half are.
CONNECTION_BYTES_MAX: Final = 8 * 1024 * 1024
#: The same of all connections together: what the bookie's queues may hold for its clients.
SERVER_BYTES_MAX: Final = 64 * 1024 * 1024
#: What a request counts as beside its entry: objects that wait for its answer.
REQUEST_BYTES: Final = 512
#: Answers of a connection that its client does not take: beyond, none of its reads is carried out, nor it read.
OUTPUT_BYTES_MAX: Final = 1024 * 1024
#: The same of all connections together: beyond, nobody's reads are carried out until half is taken.
UNREAD_BYTES_MAX: Final = 64 * 1024 * 1024
#: Seconds after which a connection is cut off then that took neither so many bytes nor all it had, and between looks.
UNREAD_STALL_S: Final = 1.0
UNREAD_TAKEN_BYTES_MIN: Final = 64 * 1024
UNREAD_LOOK_S: Final = 0.25
#: From this mean size of their parts on the answers of a turn are not put together before they are written.
WRITE_PIECES_BYTES_MIN: Final = 2048
#: Seconds in which a request that was begun must be whole, and a client that is behind must take its answers: what
#: either holds is held for nobody. A connection between two requests may be silent for ever, as pools of clients are.
STUCK_S_MAX: Final = 60.0
#: Seconds between two looks at that.
STUCK_CHECK_S: Final = 10.0
#: Reads of one connection that wait (``maxPendingReadRequestsPerThread``); one more is answered ETOOMANYREQUESTS.
READS_WAITING_MAX: Final = 10_000
#: Reads that are carried out as one, and bytes that they may give.
GROUP_READS_MAX: Final = 256
GROUP_BYTES_MAX: Final = 1024 * 1024
#: Groups under way at once: enough to keep a disk busy.
GROUPS_MAX: Final = 4
#: What one connection's requests that wait for no turn may cost in a turn of the loop, in reads of one entry.
PROMPT_TURN_COST_MAX: Final = 64
#: Those of one connection that are begun and not answered: each may hold an entry.
PROMPT_UNDER_WAY_MAX: Final = 4
#: Entries of the answer to one batch read.
BATCH_ENTRIES_MAX: Final = 5000
#: Long polls that wait; one more is answered ETOOMANYREQUESTS.
LONG_POLLS_MAX: Final = 10_000
#: Those of one connection: the places are for all.
LONG_POLLS_OF_ONE_MAX: Final = 1_000
#: Longest wait of a long poll, milliseconds.
LONG_POLL_MS_MAX: Final = 60_000
