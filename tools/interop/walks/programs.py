"""What a walk does: a list of steps, drawn from a seed, in which two brokers that are right do the same.

What Apache's broker does in another way for a reason that docs/compatibility.md tells is not drawn, and is said beside.
A step is a JSON array of its name and its arguments, so that a walk can be written down, cut short and run again.
Messages have numbers, from 0 on, in the order in which they are published; consumers have names. Nothing here knows
what a broker answers: a step that finds nothing to do is told as such by who takes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

Step = list[object]

STEPS: Final = 30
#: Consumers of a subscription.
CONSUMERS: Final = ("c0", "c1", "c2")
SUBSCRIPTIONS: Final = ("s0", "s1")
TYPES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
#: Which of the messages that a consumer has not acknowledged: all, the first, the last, each second, each third but
#: the first.
CHOICES: Final = ("all", "first", "last", "halves", "thirds")


class Walk:
    """Draws the steps of one walk; remembers what makes a step likely to mean something."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"walk {seed}")
        self.published = 0
        self.numbered = 0
        self.types: dict[str, str] = {}
        self.consumers: dict[str, list[str]] = {}
        self.open_transactions: list[str] = []
        self.transactions = 0
        self.transacts = self.rng.random() < 0.35
        self.compacts = self.rng.random() < 0.3
        self.batches = self.rng.choice((0.0, 0.5, 1.0))
        #: Whether parts of batches are acknowledged: Apache's broker forgets them with an unload, and remembers them
        #: over a seek.
        self.parts = not self.batches or self.rng.random() < 0.5
        self.moves = not self.batches or not self.parts
        self.deduplicates = self.rng.random() < 0.25
        #: What a consumer asks for ahead.
        self.ahead = self.rng.choice((1000, 1000, 1000, 1, 3))

    def steps(self) -> list[Step]:
        """All of them; the last ones look at everything."""
        found: list[Step] = [["publish", *self.amount()]]
        if self.deduplicates:
            found.append(["policy", "deduplicationEnabled", True])
        while len(found) < STEPS:
            kind = self.rng.choices(list(KINDS), [weight for weight, _ in KINDS.values()])[0]
            found += KINDS[kind][1](self)
        for name in self.open_transactions:
            found.append(["commit" if self.rng.random() < 0.5 else "abort", name])
        for name in SUBSCRIPTIONS:
            found += [["close", name, one] for one in self.consumers.get(name, [])]
        found += self.look()
        for name in SUBSCRIPTIONS:
            found += [["subscribe", name, "last", "Exclusive", "earliest"], ["take", name], ["close", name, "last"]]
        found += [["read", "earliest", True], ["last id"], *self.look()]
        return found

    # ---- what is drawn

    def amount(self) -> list[object]:
        """How many, whether in one batch, with how many keys (0: none)."""
        count = self.rng.choice((1, 2, 3, 5, 8))
        self.published += count
        return [count, self.rng.random() < self.batches, self.rng.choice((0, 2, 5)) if not self.compacts else 3]

    def any_message(self) -> int:
        """A number; of one that may not be published yet, now and then."""
        return self.rng.randrange(max(1, self.published))

    def any_place(self) -> object:
        """A message or an end of the topic."""
        # The end is where Apache's broker has stored something, and where ours shows something.
        return self.rng.choice(
            (self.first_place(), "earliest", self.any_message())
            if self.transacts
            else ("earliest", "latest", self.any_message(), self.any_message(), self.any_message())
        )

    def publish_numbered(self) -> list[Step]:
        if not self.deduplicates:
            return []
        first = self.rng.randrange(self.numbered + 3)
        count = self.rng.choice((1, 2, 4))
        self.numbered = max(self.numbered, first + count)
        self.published += count
        return [["publish numbered", first, count, self.rng.random() < self.batches]]

    def first_place(self) -> str:
        """Where a subscription begins."""
        return "earliest" if self.transacts else self.rng.choice(("earliest", "latest"))

    def publish(self) -> list[Step]:
        return [["publish", *self.amount()]]

    def subscribe(self) -> list[Step]:
        name = self.rng.choice(SUBSCRIPTIONS)
        there = self.consumers.setdefault(name, [])
        if not there:
            self.types[name] = self.rng.choice(TYPES)
        kind = self.types[name] if self.rng.random() < 0.9 else self.rng.choice(TYPES)
        left = [one for one in CONSUMERS if one not in there]
        if not left:
            return []
        one = left[0]
        # Who is refused (Exclusive, another type) is not there; the walk does not know, and acts as if it were.
        if not there or kind == self.types[name] != "Exclusive":
            there.append(one)
        return [["subscribe", name, one, kind, self.first_place(), self.ahead]]

    def close(self) -> list[Step]:
        name = self.rng.choice(SUBSCRIPTIONS)
        there = self.consumers.get(name, [])
        if not there:
            return []
        one = self.rng.choice(there)
        there.remove(one)
        return [["close", name, one]]

    def take(self) -> list[Step]:
        return [["take", self.rng.choice(SUBSCRIPTIONS)]]

    def acknowledge(self) -> list[Step]:
        name = self.rng.choice(SUBSCRIPTIONS)
        how = "ack"
        if self.rng.random() < 0.3 and self.types.get(name) in ("Exclusive", "Failover", None):
            how = "ack to"
        found: list[Step] = [["take", name]] if self.rng.random() < 0.7 else []
        if self.open_transactions and self.rng.random() < 0.6:
            return [*found, [how, name, self.choice(), self.rng.choice(self.open_transactions)]]
        return [*found, [how, name, self.choice()]]

    def choice(self) -> str:
        return self.rng.choice(CHOICES) if self.parts else "all"

    def again(self) -> list[Step]:
        name = self.rng.choice(SUBSCRIPTIONS)
        how = self.rng.choice((["nack", name, self.rng.choice(CHOICES)], ["redeliver", name]))
        return [["take", name], how, ["take", name]]

    def seek(self) -> list[Step]:
        if self.open_transactions or not self.moves:
            return []
        name = self.rng.choice(SUBSCRIPTIONS)
        place = self.any_place()
        how = ["seek", name, place] if self.rng.random() < 0.7 else ["seek time", name, self.any_message()]
        return [how, ["take", name]]

    def administer(self) -> list[Step]:
        name = self.rng.choice(SUBSCRIPTIONS)
        if self.transacts:
            return []  # Apache's broker goes by what is stored, ours by what may be read: see compatibility.md
        return [
            self.rng.choice(
                (
                    ["skip", name, self.rng.choice((1, 2, 5))],
                    ["skip all", name],
                    ["reset", name, self.any_place(), self.rng.random() < 0.3] if self.moves else ["take", name],
                    ["reset time", name, self.any_message()] if self.moves else ["take", name],
                    ["expire to", name, self.any_message(), self.rng.random() < 0.3],
                    ["create", name, self.any_place()],
                    ["delete", name, self.rng.random() < 0.4],
                    ["peek", name, self.rng.choice((1, 2, 4))],
                    ["peek", name, self.rng.choice((1, 3))],
                    ["examine", self.rng.choice(("earliest", "latest")), self.rng.choice((1, 2, 4))],
                    ["get", self.any_message()],
                    # Apache's broker tells what compaction left, also to who reads all.
                    ["id at time", self.any_message()] if not self.compacts else ["get", self.any_message()],
                    ["analyze", name],
                )
            )
        ]

    def unload(self) -> list[Step]:
        return [["unload"]] if self.moves else []

    def look(self) -> list[Step]:
        return [] if self.transacts else [["look"]]

    def read(self) -> list[Step]:
        return self.rng.choice(([["read", self.any_place(), self.rng.random() < 0.5]], [["last id"]]))

    def transact(self) -> list[Step]:
        if not self.transacts:
            return []
        if not self.open_transactions or (len(self.open_transactions) < 2 and self.rng.random() < 0.4):
            name = f"t{self.transactions}"
            self.transactions += 1
            self.open_transactions.append(name)
            return [["begin", name], ["publish", *self.amount(), name]]
        name = self.rng.choice(self.open_transactions)
        if self.rng.random() < 0.5:
            return [["publish", *self.amount(), name]]
        self.open_transactions.remove(name)
        return [["commit" if self.rng.random() < 0.6 else "abort", name]]

    def compact(self) -> list[Step]:
        if not self.compacts:
            return []
        return [["compact"], ["read compacted", self.any_place()]]

    def end(self) -> list[Step]:
        # Transactions that are open then never end at Apache's broker.
        return [["terminate"]] if self.rng.random() < 0.2 and not self.transacts else []


KINDS: Final[dict[str, tuple[float, Callable[[Walk], list[Step]]]]] = {
    "publish": (5, Walk.publish),
    "publish numbered": (3, Walk.publish_numbered),
    "subscribe": (5, Walk.subscribe),
    "close": (2, Walk.close),
    "take": (2, Walk.take),
    "acknowledge": (5, Walk.acknowledge),
    "again": (2, Walk.again),
    "seek": (2, Walk.seek),
    "administer": (6, Walk.administer),
    "unload": (1, Walk.unload),
    "look": (1, Walk.look),
    "read": (1.5, Walk.read),
    "transact": (4, Walk.transact),
    "compact": (1.5, Walk.compact),
    "end": (0.6, Walk.end),
}


def walk(seed: int) -> list[Step]:
    """The steps of a seed."""
    return Walk(seed).steps()
