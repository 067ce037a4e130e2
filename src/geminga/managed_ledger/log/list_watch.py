"""``ListWatch``: an owner hears that another one claimed its ledger list, without writing anything itself.

A broker that lost a topic and was not told may open it again behind the back of the one that has it by now. That one's
next write would find out; a topic that nobody writes to would show its readers an old end for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from geminga.managed_ledger.log.tenure import Tenure
from geminga.metadata.ports import MetadataStore, Notification, Unsubscribe
from geminga.model.errors import MetadataError, StorageError
from geminga.runtime import get_logger, spawn

#: Seconds until the list is looked at once that nobody changes, not even its owner, who looks behind each change.
FIRST_LOOK_S: Final = 1.0
#: ... and between two looks at one that is not watched.
LOOK_S: Final = 60.0

_log = get_logger(__name__)


class ListWatch:
    """See the module. A watch may come late or never; the next write finds out all the same.

    A store takes so many watches, which others need, too: beyond, lists are looked at from time to time.
    """

    __slots__ = ("_check", "_is_asked", "_is_looking", "_next_look", "_tenure", "_unsubscribe")

    def __init__(
        self,
        tenure: Tenure,
        check: Callable[[], Awaitable[None]],
        metadata: MetadataStore,
        path: str,
        *,
        is_watched: bool = True,
    ) -> None:
        """``check``: raises LedgerFencedError, having told everybody, if the list is another owner's; MetadataError.

        ``is_watched``: there is a watch to be had for it.
        """
        self._tenure = tenure
        self._check = check
        self._is_looking = False
        self._is_asked = False
        #: None: it is not watched.
        self._unsubscribe: Unsubscribe | None = None
        if is_watched:
            try:
                self._unsubscribe = metadata.watch_node(path, self._on_change)
            except MetadataError as error:
                _log.info("%s: its list is looked at from time to time: %s", tenure.name, error)
        # What changed before the watch was there is not told.
        self._next_look = asyncio.get_running_loop().call_later(FIRST_LOOK_S, self._look_soon)

    def end(self) -> None:
        """Nobody has to hear any more."""
        self._next_look.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()

    def _on_change(self, _: Notification) -> None:
        self._look_soon()

    def _look_soon(self) -> None:
        self._next_look.cancel()
        self._is_asked = True
        if not self._is_looking:
            self._is_looking = True
            spawn(self._look(), name=f"look-at-list-of-{self._tenure.name}", part=self._tenure.part)

    async def _look(self) -> None:
        """Our own changes are told, too; several looks are one."""
        try:
            while self._is_asked and not self._tenure.is_over:
                self._is_asked = False
                await self._check()
        except StorageError as error:
            _log.info("%s: its list was looked at: %s", self._tenure.name, error)
        finally:
            self._is_looking = False
            if self._unsubscribe is None and not self._tenure.is_over:
                self._next_look = asyncio.get_running_loop().call_later(LOOK_S, self._look_soon)
