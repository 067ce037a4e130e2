"""The policies of one topic: Pulsar's ``TopicPolicies``, as stored.

Field names are those of Pulsar's class and are the interface; an absent field means "not set here". What a field means
is said by ``policies.rows``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from geminga.broker.resources.documents import Json


@dataclass(frozen=True, slots=True)
class TopicPolicies:
    """What a topic has of its own."""

    #: In this cluster.
    document: Mapping[str, Json] = field(default_factory=dict)
    #: For all clusters (``isGlobal``); counts less.
    for_all: Mapping[str, Json] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.document or self.for_all)


#: Most topics have none.
NO_TOPIC_POLICIES: Final = TopicPolicies()
