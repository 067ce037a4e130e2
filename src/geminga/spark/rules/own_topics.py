"""Topics that the connector keeps for itself in the namespaces of those it writes to."""

from __future__ import annotations

from typing import Final

from geminga.model.topic_name import TopicName

#: Where plans and decisions are recorded unless an option says otherwise: in the namespace of the output topic.
PLAN_TOPIC: Final = "__spark_commits"


def is_own(topic: str) -> bool:
    """Whether a topic or partition is such a one: no pattern means it, and a query that read what its own commits
    write would never be done."""
    return TopicName.parse(topic).partitioned_topic.local_name == PLAN_TOPIC
