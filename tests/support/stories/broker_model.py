"""What a broker must still be able to give, whatever it did in the background: a model that knows no broker.

Per topic: the messages, and for each durable subscription which of them it must still get (``MUST``), which it may
get or not (``MAYBE``), and which it must not get again (``DONE``). Time passes in :meth:`TopicModel.lapse`: it says
what the policies in force let go of by now, and what nothing holds any more is *lapsed* for good, since the broker may
have deleted it at that moment. Everything else must be there.

Bounds are taken from the safe side where the documents leave room: a quota evicts to nine tenths of its limit, the
last use of a subscription is noted each tenth of its expiry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

MINUTE_MS = 60_000
#: What an entry may take beside its payload.
OVERHEAD_BYTES = 400
#: An eviction by size leaves at least this part of the limit, whatever the mean entry of a ledger is.
EVICTION_LEAVES = 0.4
#: The part of an age limit, or of an expiry, that is always granted.
GRANTED = 0.8


#: Backlogs are measured by the mean entry of a ledger, which has at most so many.
ENTRIES_PER_LEDGER = 5


class Left(Enum):
    """What a subscription can expect of a message."""

    MUST = "must"
    MAYBE = "maybe"
    DONE = "done"


class Rules(NamedTuple):
    """Policies that hold for a topic; units as in Pulsar's documents."""

    #: Minutes and MiB; -1: no limit, (0, 0): nothing.
    retention: tuple[int, int] = (0, 0)
    #: Seconds; 0: never.
    ttl_s: int = 0
    #: Bytes of backlog, evicted beyond; 0: no limit. Those that hold producers back delete nothing.
    evict_bytes: int = 0
    #: Seconds of age, evicted beyond; 0: no limit.
    evict_s: int = 0
    #: Minutes; 0: never.
    expiry_min: int = 0


@dataclass(slots=True, eq=False)
class Message:
    """One message as its producer knows it."""

    number: int
    size: int
    published_ms: int
    #: 0: at once.
    deliver_at_ms: int = 0
    #: What its clock said was so many milliseconds from the truth.
    clock_error_ms: int = 0
    #: Its receipt came.
    is_stored: bool = False
    #: Sent so often without deduplication: there may be so many, which all count towards sizes.
    copies_max: int = 1
    #: Nothing held it at some moment.
    has_lapsed: bool = False

    @property
    def is_repeated(self) -> bool:
        """There may be more than one."""
        return self.copies_max > 1

    @property
    def claimed_ms(self) -> int:
        """Its publish time."""
        return max(0, self.published_ms + self.clock_error_ms)

    def age_ms(self, now_ms: int) -> int:
        """At most so old: one that says it is older may go early, by itself. What others say changes nothing."""
        return now_ms - min(self.published_ms, self.claimed_ms)


@dataclass(slots=True, eq=False)
class SubscriptionModel:
    """One durable subscription."""

    name: str
    last_used_ms: int
    left: dict[int, Left] = field(default_factory=dict)
    #: Sent without a receipt yet, and certainly not acknowledged if they are stored.
    fresh: set[int] = field(default_factory=set)
    has_consumer: bool = False
    #: Its creation or deletion was cut off, or it was unused for too long.
    may_be_gone: bool = False

    def weaken(self, number: int) -> None:
        """The message may have been acknowledged."""
        self.fresh.discard(number)
        if self.left.get(number) is Left.MUST:
            self.left[number] = Left.MAYBE

    def unsure(self, number: int) -> None:
        """Nobody knows any more."""
        self.fresh.discard(number)
        self.left[number] = Left.MAYBE


class TopicModel:
    """See the module."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.messages: dict[int, Message] = {}
        self.subscriptions: dict[str, SubscriptionModel] = {}
        #: It was told to exist: a producer or a consumer was let in since it was last found deleted.
        self.exists = False

    # ---- what happens

    def sent(self, message: Message) -> None:
        """A message is on its way."""
        self.messages[message.number] = message
        for subscription in self.subscriptions.values():
            subscription.left[message.number] = Left.MAYBE
            subscription.fresh.add(message.number)

    def stored(self, number: int) -> None:
        """Its receipt came: from now on it is promised."""
        message = self.messages[number]
        if message.is_stored:
            return
        message.is_stored = True
        for subscription in self.subscriptions.values():
            if number in subscription.fresh:
                subscription.fresh.discard(number)
                subscription.left[number] = Left.MAYBE if message.has_lapsed else Left.MUST

    def subscribed(self, name: str, now_ms: int, *, earliest: bool) -> SubscriptionModel:
        """A durable subscription was made now."""
        subscription = self.subscriptions[name] = SubscriptionModel(name, now_ms)
        for number, message in self.messages.items():
            if earliest and message.is_stored and not message.has_lapsed:
                subscription.left[number] = Left.MUST
            elif earliest or not message.is_stored:
                subscription.left[number] = Left.MAYBE
                if earliest and not message.is_stored:
                    subscription.fresh.add(number)
            else:
                subscription.left[number] = Left.DONE
        return subscription

    def sought(self, subscription: SubscriptionModel, first: int | None) -> None:
        """The subscription stands before message ``first`` (None: behind all) now."""
        subscription.fresh.clear()
        for number, message in self.messages.items():
            if first is None or number < first:
                subscription.left[number] = Left.DONE if message.is_stored and not message.is_repeated else Left.MAYBE
            elif message.is_stored and not message.has_lapsed and not message.is_repeated:
                subscription.left[number] = Left.MUST
            else:
                subscription.left[number] = Left.MAYBE

    def expired(self, subscription: SubscriptionModel, age_s: int, now_ms: int) -> None:
        """What is older was expired by hand, or is to be."""
        for number, message in self.messages.items():
            if message.age_ms(now_ms) >= age_s * 1000 * GRANTED:
                subscription.weaken(number)

    def vanished(self) -> None:
        """The topic was found deleted, rightly."""
        self.messages.clear()
        self.subscriptions.clear()
        self.exists = False

    # ---- what may go

    def lapse(self, rules: Rules, now_ms: int) -> None:
        """Time passed under these rules: let go of what they allow to be deleted by now."""
        behind = 0
        numbers = sorted(self.messages)
        for i in range(len(numbers) - 1, -1, -1):
            number = numbers[i]
            message = self.messages[number]
            near = numbers[max(0, i - ENTRIES_PER_LEDGER + 1) : i + ENTRIES_PER_LEDGER]
            behind += (max(self.messages[n].size for n in near) + OVERHEAD_BYTES) * message.copies_max
            age_ms = message.age_ms(now_ms)
            if (
                (rules.ttl_s and age_ms >= rules.ttl_s * 1000 * GRANTED)
                or (rules.evict_s and age_ms >= rules.evict_s * 1000 * GRANTED)
                or (rules.evict_bytes and behind >= rules.evict_bytes * EVICTION_LEAVES)
            ):
                for subscription in self.subscriptions.values():
                    subscription.weaken(number)
        for subscription in self.subscriptions.values():
            idle_ms = now_ms - subscription.last_used_ms
            if rules.expiry_min and not subscription.has_consumer and idle_ms >= rules.expiry_min * MINUTE_MS * GRANTED:
                subscription.may_be_gone = True
        self._let_go(rules, now_ms)

    def _let_go(self, rules: Rules, now_ms: int) -> None:
        behind = 0
        holders = [item for item in self.subscriptions.values() if not item.may_be_gone]
        for number in sorted(self.messages, reverse=True):
            message = self.messages[number]
            behind += (message.size + OVERHEAD_BYTES) * message.copies_max
            if message.has_lapsed or is_retained(rules, now_ms - message.published_ms, behind):
                continue
            if not any(item.left.get(number) is Left.MUST or number in item.fresh for item in holders):
                message.has_lapsed = True
                for subscription in self.subscriptions.values():
                    subscription.weaken(number)

    # ---- what must be

    def promised(self) -> list[int]:
        """Numbers of the messages that a reader from the beginning must get, in order."""
        return sorted(n for n, message in self.messages.items() if message.is_stored and not message.has_lapsed)

    def expected(self, subscription: SubscriptionModel, due_ms: int) -> list[int]:
        """Numbers of the messages that a consumer of the subscription must get by ``due_ms``."""
        return sorted(
            number
            for number, left in subscription.left.items()
            if left is Left.MUST and self.messages[number].deliver_at_ms <= due_ms
        )

    def why_it_must_exist(self) -> str:
        """What a deleted topic would have taken along; empty if it may be deleted."""
        held = [item.name for item in self.subscriptions.values() if not item.may_be_gone]
        promised = self.promised()
        found = [f"subscriptions {held}"] if held else []
        return ", ".join([*found, *([f"messages {promised}"] if promised else [])])


def is_retained(rules: Rules, age_ms: int, bytes_to_end: int) -> bool:
    """Whether retention holds a message that every subscription has acknowledged."""
    minutes, mebibytes = rules.retention
    by_time = minutes < 0 or age_ms < minutes * MINUTE_MS
    by_size = mebibytes < 0 or bytes_to_end <= mebibytes << 20
    return minutes != 0 and mebibytes != 0 and by_time and by_size
