"""Who hears of changes and of the session: the listeners that every store has.

Notifications are delivered on the loop's later turn, never within the call that caused them; under faults late,
twice or never. A listener hears of its prefix and everything below.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable

from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.core.tree import check_path
from geminga.metadata.ports import Notification, SessionEvent, Unsubscribe


class Watches:
    """Listeners by prefix, and session listeners."""

    __slots__ = ("_by_prefix", "_context", "_faults", "_on_session", "_random")

    def __init__(self, faults: MetadataFaults, random: Callable[[], float]) -> None:
        self._faults = faults
        self._random = random
        self._by_prefix: dict[str, list[Callable[[Notification], None]]] = {}
        self._on_session: list[Callable[[SessionEvent], None]] = []
        # Deliveries belong to the process that watches, not to the one whose write caused them.
        self._context = contextvars.copy_context()

    def add(self, prefix: str, callback: Callable[[Notification], None]) -> Unsubscribe:
        """Hear of changes at or below ``prefix``."""
        check_path(prefix)
        self._by_prefix.setdefault(prefix, []).append(callback)
        is_active = True

        def remove() -> None:
            nonlocal is_active
            if not is_active:
                return
            is_active = False
            listeners = self._by_prefix[prefix]
            listeners.remove(callback)
            if not listeners:
                del self._by_prefix[prefix]

        return remove

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> Unsubscribe:
        """Hear of the session's life."""
        self._on_session.append(callback)

        def remove() -> None:
            if callback in self._on_session:
                self._on_session.remove(callback)

        return remove

    def notify(self, notifications: Iterable[Notification]) -> None:
        """Deliver, as the faults allow."""
        if not self._by_prefix:
            return
        loop = asyncio.get_running_loop()
        for notification in notifications:
            if not self._listeners(notification.path):
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
        self._by_prefix.clear()
        self._on_session.clear()

    def _deliver(self, notification: Notification) -> None:
        for callback in self._listeners(notification.path):
            callback(notification)

    def _listeners(self, path: str) -> list[Callable[[Notification], None]]:
        found: list[Callable[[Notification], None]] = []
        prefix = path
        while True:
            found += self._by_prefix.get(prefix, ())
            if prefix == "/":
                return found
            prefix = prefix.rpartition("/")[0] or "/"
