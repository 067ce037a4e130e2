"""Loaded topics follow the policies of their namespace: told by who changed them, and by the metadata store's watch.

One pass over the topics of a namespace at a time. Who asks while one is under way shares the next one, as the change
may be newer than what the pass has read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from geminga.model.errors import GemingaError
from geminga.runtime import Part, next_turn, spawn

if TYPE_CHECKING:
    from geminga.broker.policies.retries import PolicyRetries
    from geminga.broker.registry.namespaces import Namespaces
    from geminga.broker.registry.topic_registry import TopicRegistry
    from geminga.broker.topic.base import Topic

#: Topics that follow in one turn of the loop: some milliseconds' worth where nothing has to be read.
TOPICS_PER_TURN: Final = 64


class PolicyFollowing:
    """See the module."""

    __slots__ = ("_forget", "_leave", "_loaded", "_part", "_retries", "_running", "_waiting")

    def __init__(
        self,
        loaded: Mapping[str, Topic],
        forget: Callable[[str], None],
        part: Part,
        leave: Callable[[str], Awaitable[bool]],
        retries: PolicyRetries,
    ) -> None:
        """``loaded``: topics by full name. ``forget``: what was remembered of a namespace's policies is read anew.

        ``part``: whose failure it is that is no single topic's. ``leave``: unloads a namespace that does not live here
        any more; whether it is so. ``retries``: of what can not be done at that moment.
        """
        self._leave = leave
        self._retries = retries
        self._loaded = loaded
        self._forget = forget
        self._part = part
        self._running: dict[str, asyncio.Task[None]] = {}
        #: Passes that have not begun.
        self._waiting: dict[str, asyncio.Task[None]] = {}

    async def follow(self, namespace: str) -> None:
        """On return the loaded topics of the namespace follow the policies that were stored before the call.

        A topic that can not (its deduplication could not be recovered, for one) is named in the log, and tried again.
        """
        task = self._waiting.get(namespace)
        if task is None:
            task = spawn(self._pass(namespace), name=f"apply policies of {namespace}", part=self._part)
            self._waiting[namespace] = task
        await asyncio.shield(task)

    async def _pass(self, namespace: str) -> None:
        before = self._running.get(namespace)
        if before is not None:
            await asyncio.wait([before])
        self._running[namespace] = self._waiting.pop(namespace)
        try:
            self._forget(namespace)
            if await self._has_left(namespace):
                return
            topics = [topic for topic in self._loaded.values() if topic.name.namespace == namespace]
            for number, topic in enumerate(topics, 1):
                if not topic.is_closing:
                    await self._retries.follow(topic)
                if not number % TOPICS_PER_TURN:
                    await next_turn()
        finally:
            del self._running[namespace]

    async def _has_left(self, namespace: str) -> bool:
        try:
            found = await self._leave(namespace)
        except GemingaError as error:
            what = "whether it lives in this cluster can not be read"
            self._retries.failed(namespace, what, error, lambda: self.follow(namespace))
            return False
        self._retries.succeeded(namespace)
        return found


async def leave_if_elsewhere(registry: TopicRegistry, namespaces: Namespaces, cluster: str, namespace: str) -> bool:
    """Unload a namespace that its policies leave out of this ``cluster``; whether it is so. What is stored stays.

    Raises MetadataError: then nothing is unloaded.
    """
    policies = await namespaces.policies(namespace)
    if policies is None or policies.is_deleted or policies.lives_in(cluster):
        return False
    await registry.taken(lambda name: name.namespace == namespace)
    return True
