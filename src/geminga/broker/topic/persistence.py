"""Persistence of one topic: the quorums and the bookies of its next ledgers, and how often its cursors are written."""

from __future__ import annotations

from typing import ClassVar

from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.managed_ledger import Persistence


class LedgerPersistence(TopicPart):
    """Tells the ledger, which begins with what is configured. Topics of the broker's own keep its quorums."""

    __slots__ = ("_topic",)

    name: ClassVar[str] = "persistence"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic

    async def load(self) -> None:
        """Before parts behind it make ledgers."""
        self.policies_changed()

    def policies_changed(self) -> None:
        """Set what the rules want, from the next ledger on."""
        rules, ledger = self._topic.rules, self._topic.ledger
        if rules.persistence is None:
            ledger.stored_as.set(None, groups=rules.bookies)
            return
        ensemble, write, ack, rate = rules.persistence
        # Pulsar's tools write a rate of 0 or -1 where there is none.
        ledger.stored_as.set(Persistence(ensemble, write, ack, max(0.0, rate)), groups=rules.bookies)
