"""Persistence of one topic: the quorums of its next ledgers, and how often its cursors are written."""

from __future__ import annotations

from typing import ClassVar

from geminga.broker.topic.parts import PartTopic, TopicPart
from geminga.managed_ledger import Persistence


class LedgerPersistence(TopicPart):
    """Tells the ledger, which begins with what is configured. Topics of the broker's own keep that."""

    __slots__ = ("_topic",)

    name: ClassVar[str] = "persistence"

    def __init__(self, topic: PartTopic) -> None:
        self._topic = topic

    def policies_changed(self) -> None:
        """Set what the rules want, from the next ledger on."""
        wanted = self._topic.rules.persistence
        if wanted is None:
            self._topic.ledger.set_persistence(None)
            return
        ensemble, write, ack, rate = wanted
        # Pulsar's tools write a rate of 0 or -1 where there is none.
        self._topic.ledger.set_persistence(Persistence(ensemble, write, ack, max(0.0, rate)))
