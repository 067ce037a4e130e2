"""``ListWatch``: an owner hears that another one claimed its ledger list, without writing anything itself.

A broker that lost a topic and was not told may open it again behind the back of the one that has it by now. That one's
next write would find out; a topic that nobody writes to would show its readers an old end for ever.
"""

from __future__ import annotations

from typing import Protocol

from geminga.metadata.ports import MetadataStore, Notification, Unsubscribe
from geminga.model.errors import StorageError
from geminga.runtime import Part, get_logger, spawn

_log = get_logger(__name__)


class WatchedLog(Protocol):
    """The managed ledger."""

    name: str
    is_fenced: bool
    is_closed: bool
    part: Part | None

    async def check_list(self) -> None:
        """Raise LedgerFencedError, having told everybody, if the list is another owner's. MetadataError."""
        ...


class ListWatch:
    """See the module. A watch may come late or never: the next write finds out all the same."""

    __slots__ = ("_is_asked", "_is_looking", "_log", "_unsubscribe")

    def __init__(self, log: WatchedLog, metadata: MetadataStore, path: str) -> None:
        self._log = log
        self._is_looking = False
        self._is_asked = False
        self._unsubscribe: Unsubscribe = metadata.watch_node(path, self._on_change)
        # What changed before the watch was there is not told.
        self._look_soon()

    def end(self) -> None:
        """Nobody has to hear any more."""
        self._unsubscribe()

    def _on_change(self, _: Notification) -> None:
        self._look_soon()

    def _look_soon(self) -> None:
        self._is_asked = True
        if not self._is_looking:
            self._is_looking = True
            spawn(self._look(), name=f"look-at-list-of-{self._log.name}", part=self._log.part)

    async def _look(self) -> None:
        """Our own changes are told, too; several looks are one."""
        log = self._log
        try:
            while self._is_asked and not (log.is_closed or log.is_fenced):
                self._is_asked = False
                await log.check_list()
        except StorageError as error:
            _log.info("%s: its list was looked at: %s", log.name, error)
        finally:
            self._is_looking = False
