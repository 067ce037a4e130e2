"""ZooKeeper's watches under the port's: they fire once and die with their connection, so they are armed anew.

Each path that somebody listens to has an entry of its own. What was told when it was armed (the ids of the changes that
made it so) is compared with what is told when it is armed again: nothing that happened in between is missed, and the
listener is told after the new watch stands, so that what it reads then is followed by the next notification.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from typing import Final, Protocol, TypeAlias

from kazoo import exceptions as zk

from geminga.metadata.ports import ChangeKind, Notification, Unsubscribe
from geminga.metadata.zookeeper.kazoo_thread import Kazoo
from geminga.metadata.zookeeper.requests import Requests
from geminga.model.errors import MetadataUnavailableError
from geminga.runtime import get_logger

#: Nodes and lists of children watched at once: all are armed again with a new connection, and wait in one queue.
WATCHED_MAX: Final = 50_000
#: Armed in one turn of the loop: some 10 us each.
ARMED_PER_TURN_MAX: Final = 200
#: A watch that the server, or a full queue, refused is tried again after this long.
RETRY_S: Final = 1.0

#: Ids of the last changes; None: there is no such node.
_Seen: TypeAlias = tuple[int, int] | None
_NEVER: Final = (-1, -1)

_log = get_logger(__name__)


class Arming(Protocol):
    """Requests that leave a watch; each event of it goes to :meth:`ArmedWatches.fired`."""

    def exists(self, path: str) -> Kazoo:
        """The node's stat, or None; watched either way."""
        ...

    def children(self, path: str) -> Kazoo:
        """Names and the node's stat; NoNodeError, and no watch, if there is none."""
        ...

    def disarm(self, path: str, *, of_children: bool) -> Kazoo:
        """End the watch of the node, or of its children."""
        ...


class _State(Enum):
    IDLE = 0
    ARMING = 1
    ARMED = 2
    #: On children of a node that is not there: its coming is watched.
    ARMED_FOR_COMING = 3


class _Entry:
    """What is watched at one path, of one kind."""

    __slots__ = ("has_come", "has_fired", "listeners", "of_children", "path", "seen", "state")

    def __init__(self, path: str, *, of_children: bool) -> None:
        self.path = path
        self.of_children = of_children
        self.listeners = 0
        self.state = _State.IDLE
        self.seen: _Seen = _NEVER
        #: Something changed, or may have, that nobody was told of.
        self.has_fired = False
        #: The node came whose children are watched: that is no change of them by itself.
        self.has_come = False


class ArmedWatches:
    """All watches of a store; on the loop's thread. Paths are those of the port."""

    __slots__ = ("_arming", "_entries", "_requests", "_retry", "_tell")

    def __init__(self, requests: Requests, arming: Arming, tell: Callable[[list[Notification]], None]) -> None:
        self._requests = requests
        self._retry: asyncio.TimerHandle | None = None
        self._arming = arming
        self._tell = tell
        self._entries: dict[tuple[str, bool], _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def watch(self, path: str, unsubscribe: Unsubscribe, *, of_children: bool) -> Unsubscribe:
        """Somebody listens there who ends it with ``unsubscribe``; returns what ends both.

        Raises MetadataUnavailableError.
        """
        entry = self._entries.get((path, of_children))
        if entry is None:
            if len(self._entries) >= WATCHED_MAX:
                unsubscribe()
                raise MetadataUnavailableError(f"{WATCHED_MAX} metadata nodes are watched already")
            entry = self._entries[path, of_children] = _Entry(path, of_children=of_children)
        entry.listeners += 1
        if entry.state is _State.IDLE:
            self._arm(entry)
        is_active = True

        def end() -> None:
            nonlocal is_active
            unsubscribe()
            if is_active:
                is_active = False
                entry.listeners -= 1
                if not entry.listeners:
                    self._drop(entry)

        return end

    def fired(self, path: str, *, of_children: bool) -> None:
        """A watch of the server fired (and is gone)."""
        for is_of_children, state in ((of_children, _State.ARMED), (True, _State.ARMED_FOR_COMING)):
            entry = self._entries.get((path, is_of_children))
            # While it is being armed what comes is older than the answer, which will tell the same.
            if entry is not None and entry.state is state:
                entry.has_fired = True
                entry.has_come = state is _State.ARMED_FOR_COMING
                self._arm(entry)

    def connection_lost(self) -> None:
        """No watch stands any more; those that are being armed are asked again, or fail."""
        for entry in self._entries.values():
            if entry.state is not _State.ARMING:
                entry.state = _State.IDLE

    def connected(self) -> None:
        """Arm all of them again, in several turns of the loop."""
        self._arm_some(iter(list(self._entries.values())))

    def _arm_some(self, entries: Iterator[_Entry]) -> None:
        count = 0
        for entry in islice(entries, ARMED_PER_TURN_MAX):
            count += 1
            if entry.listeners and entry.state is _State.IDLE and self._requests.is_connected:
                self._arm(entry)
        if count == ARMED_PER_TURN_MAX:
            asyncio.get_running_loop().call_soon(self._arm_some, entries)

    def clear(self) -> None:
        """Nobody listens any more."""
        self._entries.clear()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # ---- inside

    def _arm(self, entry: _Entry) -> None:
        entry.state = _State.ARMING
        if entry.of_children:
            self._ask(entry, self._arming.children, self._listed)
        else:
            self._ask(entry, self._arming.exists, self._looked)

    def _ask(
        self,
        entry: _Entry,
        ask: Callable[[str], Kazoo],
        done: Callable[[_Entry, Kazoo, BaseException | None], None],
    ) -> None:
        def answered(value: Kazoo, error: BaseException | None) -> None:
            if self._entries.get((entry.path, entry.of_children)) is not entry:
                # Nobody listens any more; which of the two watches stands now is not looked into.
                self._disarm(entry.path, of_children=False)
                if entry.of_children:
                    self._disarm(entry.path, of_children=True)
            elif entry.state is _State.ARMING:
                done(entry, value, error)

        self._requests.start(f"watch {entry.path}", ask(entry.path), answered)

    def _looked(self, entry: _Entry, stat: Kazoo, error: BaseException | None) -> None:
        if error is not None:
            self._failed(entry, error)
        else:
            self._armed(entry, _State.ARMED, None if stat is None else (stat.czxid, stat.mzxid))

    def _listed(self, entry: _Entry, listed: Kazoo, error: BaseException | None) -> None:
        if isinstance(error, zk.NoNodeError):
            self._ask(entry, self._arming.exists, self._looked_for_coming)
        elif error is not None:
            self._failed(entry, error)
        else:
            stat = listed[1]
            now = (stat.czxid, stat.pzxid)
            if entry.has_come and stat.pzxid == stat.czxid:
                entry.has_fired, entry.seen = False, now
            self._armed(entry, _State.ARMED, now)

    def _looked_for_coming(self, entry: _Entry, stat: Kazoo, error: BaseException | None) -> None:
        if error is not None:
            self._failed(entry, error)
        elif stat is not None:
            self._arm(entry)  # it came meanwhile
        else:
            self._armed(entry, _State.ARMED_FOR_COMING, None)

    def _armed(self, entry: _Entry, state: _State, now: _Seen) -> None:
        entry.state = state
        entry.has_come = False
        before, entry.seen = entry.seen, now
        is_first = before == _NEVER
        if entry.has_fired or (before != now and not is_first):
            entry.has_fired = False
            kind = ChangeKind.CHILDREN_CHANGED if entry.of_children else _kind(before, now)
            self._tell([Notification(kind, entry.path)])

    def _failed(self, entry: _Entry, error: BaseException) -> None:
        """Tried again; what was read meanwhile may have changed since, untold."""
        entry.state = _State.IDLE
        entry.has_fired = True
        _log.info("watch of %s: %s", entry.path, error)
        if self._requests.is_connected and self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._requests.is_connected:
            self.connected()

    def _drop(self, entry: _Entry) -> None:
        if self._entries.get((entry.path, entry.of_children)) is entry:
            del self._entries[entry.path, entry.of_children]
            if entry.state in (_State.ARMED, _State.ARMED_FOR_COMING):
                self._disarm(entry.path, of_children=entry.state is _State.ARMED and entry.of_children)

    def _disarm(self, path: str, *, of_children: bool) -> None:
        """End the server's watch, unless another listener needs it: it would stay until the node changes."""
        children = self._entries.get((path, True))
        if of_children:
            is_needed = children is not None
        else:
            # Whose node is there needs none of the node's own.
            is_needed = (path, False) in self._entries or (children is not None and children.state is not _State.ARMED)
        if self._requests.is_connected and not is_needed:
            self._requests.start(
                f"unwatch {path}",
                self._arming.disarm(path, of_children=of_children),
                lambda _value, _error: None,  # it may have fired already
            )


def _kind(before: _Seen, now: _Seen) -> ChangeKind:
    if now is None:
        return ChangeKind.DELETED
    if before is None or before[0] != now[0]:
        return ChangeKind.MODIFIED if before == _NEVER else ChangeKind.CREATED
    return ChangeKind.MODIFIED
