"""Who hears of changes and of the session: the listeners that every store has.

Notifications are delivered on the loop's later turn, never within the call that caused them; under faults late,
twice or never. A listener hears of one node, or of the children of one.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from typing import TypeAlias

from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.core.tree import check_path
from geminga.metadata.ports import ChangeKind, Notification, SessionEvent, Unsubscribe

#: Listeners of one kind, by path.
_Listeners: TypeAlias = dict[str, list[Callable[[Notification], None]]]


class Watches:
    """Listeners of nodes and of children by path, and session listeners."""

    __slots__ = ("_context", "_faults", "_of_children", "_of_nodes", "_on_session", "_random")

    def __init__(self, faults: MetadataFaults, random: Callable[[], float]) -> None:
        self._faults = faults
        self._random = random
        self._of_nodes: _Listeners = {}
        self._of_children: _Listeners = {}
        self._on_session: list[Callable[[SessionEvent], None]] = []
        # Deliveries belong to the process that watches, not to the one whose write caused them.
        self._context = contextvars.copy_context()

    def add_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """Hear of the node: made, changed, gone."""
        return _add(self._of_nodes, path, callback)

    def add_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """Hear of children of ``path`` that come or go."""
        return _add(self._of_children, path, callback)

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        """Hear of the session's life."""
        self._on_session.append(callback)

        def remove() -> None:
            if callback in self._on_session:
                self._on_session.remove(callback)

        return remove

    def notify(self, notifications: Iterable[Notification]) -> None:
        """Deliver, as the faults allow."""
        if not self._of_nodes and not self._of_children:
            return
        loop = asyncio.get_running_loop()
        for notification in notifications:
            if not self._listeners(notification):
                continue
            for delay_ms in self._faults.watch_delays_ms(self._random):
                loop.call_later(delay_ms / 1000.0, self._deliver, notification, context=self._context)

    def notify_session(self, event: SessionEvent) -> None:
        """Tell every session listener on the loop's next turn."""
        loop = asyncio.get_running_loop()
        for callback in tuple(self._on_session):
            loop.call_soon(callback, event, context=self._context)

    def clear(self) -> None:
        """Forget every listener; deliveries under way do not happen."""
        self._of_nodes.clear()
        self._of_children.clear()
        self._on_session.clear()

    def _deliver(self, notification: Notification) -> None:
        for callback in tuple(self._listeners(notification)):
            callback(notification)

    def _listeners(self, notification: Notification) -> Iterable[Callable[[Notification], None]]:
        is_of_children = notification.kind is ChangeKind.CHILDREN_CHANGED
        return (self._of_children if is_of_children else self._of_nodes).get(notification.path, ())


class WatchedStore:
    """The part of a ``MetadataStore`` whose listeners are in ``_watches``."""

    __slots__ = ("_watches",)

    _watches: Watches

    def watch_node(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_node``."""
        return self._watches.add_node(path, callback)

    def watch_children(self, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """See ``MetadataStore.watch_children``."""
        return self._watches.add_children(path, callback)

    def on_session_event(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        """See ``MetadataStore.on_session_event``."""
        return self._watches.add_session_listener(callback)


def _add(listeners: _Listeners, path: str, callback: Callable[[Notification], None]) -> Unsubscribe:
    check_path(path)
    listeners.setdefault(path, []).append(callback)
    is_active = True

    def remove() -> None:
        nonlocal is_active
        if not is_active:
            return
        is_active = False
        # None: everybody was forgotten meanwhile.
        there = listeners.get(path)
        if there is not None and callback in there:
            there.remove(callback)
            if not there:
                del listeners[path]

    return remove
