"""What has to be alike in two clusters before the topics of a namespace are copied between them. Pure.

Rules and words: Pulsar's (PIP-433, ``NamespacesBase`` of 4.2.4), whose ``compareTopicPartitions`` asks for this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from geminga.model.topic_name import CHANGE_EVENTS

#: Of automatic creation, where a cluster says nothing of it.
NON_PARTITIONED: Final = "non-partitioned"


@dataclass(frozen=True, slots=True)
class NamespaceTopics:
    """A namespace in one of the two."""

    cluster: str
    #: Of its persistent topics by their whole names, ``persistent://tenant/namespace/topic``; 0: without partitions.
    partitions: Mapping[str, int]
    #: ``partitioned`` or ``non-partitioned``: what comes to be where somebody asks for a topic that is not there.
    made_type: str
    #: And with so many partitions.
    made_partitions: int


def mismatches(namespace: str, here: NamespaceTopics, there: NamespaceTopics) -> list[str]:
    """What is not alike, a sentence each; what only one of the two has is made in the other, and is no mismatch."""
    found = []
    for topic in sorted(here.partitions.keys() & there.partitions.keys()):
        mine, theirs = here.partitions[topic], there.partitions[topic]
        if mine == theirs:
            continue
        if mine:
            kind = f"{CHANGE_EVENTS} system topic" if topic.endswith(f"/{CHANGE_EVENTS}") else "topic"
            found.append(
                f"Partition count mismatch for {kind} '{topic}': local cluster has {mine} partitions, remote cluster "
                f"'{there.cluster}' has {theirs} partitions. Please ensure partition counts are the same before "
                "enabling replication."
            )
        else:
            found.append(
                f"Topic type mismatch for topic '{topic}': local cluster has a non-partitioned topic, but remote "
                f"cluster '{there.cluster}' has a partitioned topic with {theirs} partitions. Please ensure topic "
                "types are the same before enabling replication."
            )
    differing = []
    if here.made_type != there.made_type:
        differing.append(f"topicType: local={here.made_type}, remote={there.made_type}")
    if here.made_partitions != there.made_partitions:
        differing.append(f"defaultNumPartitions: local={here.made_partitions}, remote={there.made_partitions}")
    if differing:
        found.append(
            f"Effective auto-topic creation policy mismatch for namespace '{namespace}' between local cluster and "
            f"remote cluster '{there.cluster}': {'; '.join(differing)}. Please ensure auto-topic creation policies are "
            "the same before enabling replication."
        )
    return found


def made_by(override: object, made_type: str, made_partitions: int) -> tuple[str, int]:
    """What comes to be in a namespace with this ``autoTopicCreationOverride``, a broker's own values behind it.

    As Pulsar compares them: the number counts also where none are made.
    """
    if not isinstance(override, Mapping):
        return made_type, made_partitions
    own_type, own = override.get("topicType"), override.get("defaultNumPartitions")
    return f"{own_type}" if own_type else "null", own if isinstance(own, int) else made_partitions
