"""How the descriptors that a process may have are shared: storage first, then HTTP, the rest for clients.

::

    0            connections             limit - storage - web     limit - storage       limit
    |-- all connections, everything else --|-- HTTP only --|-- storage: journals, logs, metadata --|

A connection of the binary protocol is refused where its descriptor would lie behind the first border, one of HTTP
behind the second: an operator can still look when clients have taken all of theirs, and the storage can open its
files whatever connects. HTTP has an upper bound of its own too, so that it never takes the clients' share.
"""

from __future__ import annotations

from typing import Final, NamedTuple

#: Descriptors of the storage beside entry logs: journals (writing, spare, closing), logs being written and compacted,
#: directories being synced, files read as a whole, the metadata store, and modules that are loaded late.
STORAGE_FILES: Final = 48
#: Of these, what each further bookie of the process needs for itself.
BOOKIE_FILES: Final = 16
#: Descriptors of a storage in memory.
MEMORY_FILES: Final = 16
#: Descriptors that only HTTP may take.
WEB_ONLY: Final = 32
#: The least of descriptors that a process of ours starts with: below, storage would have everything and clients none.
LIMIT_MIN: Final = 64
#: Descriptors assumed where the system sets no limit.
LIMIT_ASSUMED: Final = 1 << 20


class DescriptorPlan(NamedTuple):
    """Numbers of descriptors."""

    #: Of the process.
    limit: int
    #: Kept for the storage.
    storage: int
    #: Kept for HTTP beside that.
    web: int
    #: Entry logs that the bookie may keep open.
    open_logs: int
    #: Connections of HTTP at the same time.
    web_connections_max: int

    @property
    def keep_free_of_clients(self) -> int:
        """What a connection of the binary protocol must leave."""
        return self.storage + self.web

    @property
    def keep_free_of_web(self) -> int:
        """What an HTTP connection must leave."""
        return self.storage

    @property
    def connections_max(self) -> int:
        """Connections of both kinds at the most, if nothing else were open."""
        return self.limit - self.storage


def plan_descriptors(
    limit: int | None, *, open_logs: int, web_connections_max: int, has_files: bool = True, bookies: int = 1
) -> DescriptorPlan:
    """The shares of ``limit`` descriptors (None: no limit); ``has_files``: the storage is on a disk.

    ``open_logs`` of the plan is for all ``bookies`` together, at least two for each.

    ``open_logs`` and ``web_connections_max`` are what is configured; a small limit lowers both.
    """
    limit = LIMIT_ASSUMED if limit is None else limit
    open_logs = max(2 * bookies, min(open_logs, limit // 4))
    files = open_logs + STORAGE_FILES + BOOKIE_FILES * (bookies - 1) if has_files else MEMORY_FILES
    storage = min(files, limit // 2)
    web = min(WEB_ONLY, 1 + limit // 16)
    return DescriptorPlan(limit, storage, web, open_logs, max(1, min(web_connections_max, (limit - storage) // 2)))
