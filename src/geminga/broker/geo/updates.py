"""Markers of replicated subscriptions are written, and what was acknowledged is told until it is stored."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from geminga.broker.geo.followers import Followers
from geminga.broker.topic.parts import PartTopic
from geminga.managed_ledger import AppendResult
from geminga.runtime import Contained, get_logger
from geminga.wire.pulsar.subscription_markers import Snapshot, Update, encode_update

_log: Final = get_logger(__name__)


def append_marker(topic: PartTopic, entry: bytes, done: Callable[[AppendResult], None] = lambda _: None) -> None:
    """Behind all that was published before. ``done`` hears of what depends on it; of all else nothing does: the
    snapshot that it is of is given up, and another is asked for."""

    def written(result: AppendResult) -> None:
        with Contained(topic, "a marker of its own"):
            if result.error is not None:
                _log.info("%s: a marker was not stored: %s", topic.name, result.error)
            done(result)

    topic.publishing.append_own([entry], written)


class Updates:
    """Of one topic: positions in the other clusters up to which a subscription has acknowledged everything."""

    __slots__ = ("_followers", "_topic", "_untold", "_woken")

    def __init__(self, topic: PartTopic, followers: Followers, woken: Callable[[], None]) -> None:
        """``woken`` is called when one is to be told again."""
        self._topic = topic
        self._followers = followers
        self._woken = woken
        #: Whose update was not stored, by subscription.
        self._untold: dict[str, Snapshot] = {}

    @property
    def are_waiting(self) -> bool:
        """Whether any is to be told again."""
        return bool(self._untold)

    def tell(self) -> None:
        """What was acknowledged since, and what was not stored, unless there is something newer."""
        if self._topic.ledger.stored.terminated_position is not None:
            self._untold.clear()
            return
        untold, self._untold = self._untold, {}
        # A subscription that is not kept any more is not made again by what it told late.
        told = {name: snapshot for name, snapshot in untold.items() if self._followers.keeps(name)}
        for subscription, snapshot in (told | dict(self._followers.acknowledged())).items():
            entry = encode_update(Update(subscription, snapshot.others), self._topic.services.runtime.clock.wall_ms())
            append_marker(self._topic, entry, partial(self._told, subscription, snapshot))

    def _told(self, subscription: str, snapshot: Snapshot, result: AppendResult) -> None:
        if result.error is not None:
            self._untold.setdefault(subscription, snapshot)
            self._woken()
