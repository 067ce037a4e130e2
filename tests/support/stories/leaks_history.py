"""What a story of deletions asked for and what it was answered: what must be there in the end, and what must not.

Whatever was asked for and not answered may be there or not; the story asks again until it is answered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from geminga.model.position import EARLIEST, Position
from geminga.model.topic_name import TopicName


@dataclass
class Subscription:
    """Of one topic."""

    #: None: it was asked for, or its deletion was.
    is_there: bool | None = None
    is_wanted: bool = True
    #: Messages with a greater number were published when it was there.
    since: int = 0
    #: Up to here it was asked to acknowledge, and it has been.
    asked: Position = EARLIEST
    done: Position = EARLIEST
    #: Something was acknowledged in a transaction.
    has_transactions: bool = False


@dataclass
class Topic:
    """One with storage of its own."""

    name: TopicName
    is_there: bool | None = False
    is_wanted: bool = False
    #: Messages that were answered and count, by number, since it was last made.
    messages: dict[int, Position] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    #: None: perhaps.
    has_schema: bool | None = False
    has_policies: bool | None = False
    was_transacted: bool = False

    def goes(self) -> None:
        """It is to be deleted: from now on nothing of it is promised."""
        self.is_there, self.is_wanted = None, False
        self.messages.clear()

    def is_gone(self) -> None:
        self.is_there = False
        self.subscriptions.clear()
        self.has_schema = self.has_policies = self.was_transacted = False

    def comes(self) -> None:
        """It is to be there."""
        self.is_wanted = True
        if not self.is_there:
            self.is_there = None

    def promised(self, *, is_retained: bool) -> dict[int, Position]:
        """Messages that must be stored, by number."""
        return {
            number: position
            for number, position in self.messages.items()
            if is_retained or any(holds(one, number, position) for one in self.subscriptions.values())
        }


def holds(subscription: Subscription, number: int, position: Position) -> bool:
    """Whether a subscription may still ask for that message."""
    return bool(subscription.is_there) and number > subscription.since and position > subscription.asked


@dataclass
class Namespace:
    """With all its topics, those that were never made too."""

    name: str
    topics: dict[str, Topic]
    is_retained: bool
    is_there: bool | None = False
    is_wanted: bool = False
    #: Partitions of the topic "parts"; 0: there is none. None: perhaps.
    partitions: int | None = 0
    wanted_partitions: int = 0

    def goes(self) -> None:
        self.is_there, self.is_wanted, self.partitions, self.wanted_partitions = None, False, None, 0
        for topic in self.topics.values():
            topic.goes()

    def is_gone(self) -> None:
        self.is_there, self.partitions = False, 0
        for topic in self.topics.values():
            topic.is_gone()
