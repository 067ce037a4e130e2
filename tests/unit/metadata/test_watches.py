"""Listeners by path; deliveries are on later turns and in the watcher's own context."""

from __future__ import annotations

import asyncio
import contextvars

from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.ports import ChangeKind, Notification, SessionEvent
from geminga.metadata.watches import Watches
from geminga.runtime import delay

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


def created(path):
    return Notification(ChangeKind.CREATED, path)


def run(main):
    return asyncio.run(main())


def new_watches() -> tuple[Watches, list[Notification]]:
    """Without faults or delay, and a list for what a listener hears."""
    return Watches(MetadataFaults(), lambda: 0.0), []


def test_notification_reaches_its_own_path_and_kind_on_a_later_turn():
    async def main():
        watches, heard = new_watches()
        for path in ("/", "/a", "/a/b", "/a/b/c", "/ab"):
            watches.add_node(path, lambda _, path=path: heard.append(("node", path)))
            watches.add_children(path, lambda _, path=path: heard.append(("children", path)))
        watches.notify([created("/a/b"), Notification(ChangeKind.CHILDREN_CHANGED, "/a")])
        assert heard == []
        await delay(0)
        assert heard == [("node", "/a/b"), ("children", "/a")]

    run(main)


def test_listener_removed_before_delivery_hears_nothing():
    async def main():
        watches, heard = new_watches()
        remove = watches.add_node("/a", heard.append)
        watches.notify([created("/a")])
        remove()
        remove()
        await delay(0)
        assert heard == []

    run(main)


def test_listener_may_remove_itself_while_it_is_called():
    async def main():
        watches, heard = new_watches()

        def once(notification):
            heard.append(notification.path)
            remove()

        remove = watches.add_node("/a", once)
        watches.add_node("/a", lambda n: heard.append("other"))
        watches.notify([created("/a"), created("/a")])
        await delay(1)
        assert heard == ["/a", "other", "other"]

    run(main)


def test_delivery_runs_in_the_context_of_the_watcher():
    async def main():
        PLACE.set("watcher")
        watches, heard = new_watches()
        watches.add_node("/a", lambda n: heard.append(PLACE.get()))
        watches.add_session_listener(lambda e: heard.append(PLACE.get()))
        PLACE.set("writer")
        watches.notify([created("/a")])
        watches.notify_session(SessionEvent.EXPIRED)
        await delay(1)
        assert heard == ["watcher", "watcher"]

    run(main)


def test_cleared_watches_are_silent():
    async def main():
        watches, heard = new_watches()
        unwatch = watches.add_node("/a", heard.append)
        remove = watches.add_session_listener(heard.append)
        watches.notify([created("/a")])
        watches.clear()
        watches.notify_session(SessionEvent.EXPIRED)
        remove()
        unwatch()
        await delay(1)
        assert heard == []

    run(main)
