"""Listeners by prefix; deliveries are on later turns and in the watcher's own context."""

from __future__ import annotations

import asyncio
import contextvars

from geminga.metadata.core.faults import MetadataFaults
from geminga.metadata.delay import delay
from geminga.metadata.ports import ChangeKind, Notification, SessionEvent
from geminga.metadata.watches import Watches

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


def created(path):
    return Notification(ChangeKind.CREATED, path)


def run(main):
    return asyncio.run(main())


def test_notification_reaches_every_prefix_above_it_on_a_later_turn():
    async def main():
        watches = Watches(MetadataFaults(), lambda: 0.0)
        heard = []
        for prefix in ("/", "/a", "/a/b", "/a/b/c", "/ab"):
            watches.add(prefix, lambda n, prefix=prefix: heard.append(prefix))
        watches.notify([created("/a/b")])
        assert heard == []
        await delay(0)
        assert sorted(heard) == ["/", "/a", "/a/b"]

    run(main)


def test_listener_removed_before_delivery_hears_nothing():
    async def main():
        watches = Watches(MetadataFaults(), lambda: 0.0)
        heard = []
        remove = watches.add("/a", heard.append)
        watches.notify([created("/a")])
        remove()
        remove()
        await delay(0)
        assert heard == []

    run(main)


def test_listener_may_remove_itself_while_it_is_called():
    async def main():
        watches = Watches(MetadataFaults(), lambda: 0.0)
        heard = []

        def once(notification):
            heard.append(notification.path)
            remove()

        remove = watches.add("/a", once)
        watches.add("/a", lambda n: heard.append("other"))
        watches.notify([created("/a"), created("/a")])
        await delay(1)
        assert heard == ["/a", "other", "other"]

    run(main)


def test_delivery_runs_in_the_context_of_the_watcher():
    async def main():
        PLACE.set("watcher")
        watches = Watches(MetadataFaults(), lambda: 0.0)
        heard = []
        watches.add("/a", lambda n: heard.append(PLACE.get()))
        watches.add_session_listener(lambda e: heard.append(PLACE.get()))
        PLACE.set("writer")
        watches.notify([created("/a")])
        watches.notify_session(SessionEvent.EXPIRED)
        await delay(1)
        assert heard == ["watcher", "watcher"]

    run(main)


def test_cleared_watches_are_silent():
    async def main():
        watches = Watches(MetadataFaults(), lambda: 0.0)
        heard = []
        watches.add("/a", heard.append)
        remove = watches.add_session_listener(heard.append)
        watches.notify([created("/a")])
        watches.clear()
        watches.notify_session(SessionEvent.EXPIRED)
        remove()
        await delay(1)
        assert heard == []

    run(main)
