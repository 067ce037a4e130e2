"""What differs on purpose between the two, of what ``pulsar-admin`` prints.

Rows are those of "Answers of the admin REST" and "Statistics" in ``docs/compatibility.md``, which says why.
"""

from __future__ import annotations

from typing import Final

from tools.interop.rest.comparing import Meant

MEANT: Final = (
    Meant("an error's body", r"answer: 400 <no such path> \| 400 .+"),
    Meant(
        "allocators of memory (`broker-stats/allocator-stats/default`, `ml-cache`)",
        r"answer: 200 \| 400 Invalid allocator name.+",
    ),
    Meant("a cluster that is not migrated", r"answer: 400 Cluster does not exist \| 200", ".+ get-cluster-migration"),
    Meant(
        "bookie affinity of a namespace that was never used",
        r"answer: 400 Namespace local-policies does not exist \| 200",
    ),
    Meant(
        "subscription types of a topic that are not set",
        r"value \.: \[\] \| None",
        "(topics|topicPolicies) subscription-types-enabled: ",
    ),
    Meant(
        "`oldestBacklogMessageAgeSeconds`, `oldestBacklogMessageSubscriptionName`",
        "only Geminga: oldestBacklogMessageSubscriptionName string",
        r"(persistent|topics) stats: ",
    ),
)

_STATISTICS: Final = r".*(stats|analyze-backlog|namespaces policies|position-stats)"
#: Of the two command lines at one broker; ``docs/pulsar-admin.md`` has the rows.
MEANT_OF_TOOLS: Final = (
    Meant(
        "members of an answer that 4.0.8 does not know are printed; what it adds of its own is not",
        r"only (Geminga|Apache): .+|body: none \| some",
        _STATISTICS,
    ),
    Meant(
        "`topics delete` and `terminate` tell why nothing was done, and end with 1",
        r"answer: (200|400 null) \| 400 .+",
        ".+: topics (delete|terminate) ",
    ),
    Meant(
        "`get-anti-affinity-namespaces` asks at the path of Pulsar 2",
        r"answer: 400 .+ \| 200",
        ".+: namespaces get-anti-affinity-namespaces ",
    ),
    Meant(
        "what is not set is told where 4.0.8 ends with an error of Java's",
        r"answer: 400 java\.lang\.NullPointerException.+ \| 200",
    ),
    Meant(
        "`get-schema-autoupdate-strategy` prints the word that was set: Full, not FULL",
        r"value \.: .+ \| .+",
        ".+: namespaces get-schema-autoupdate-strategy ",
    ),
    Meant(
        "lists are in the broker's order",
        r"(?s)value \.: .+ \| .+",
        ".+: (topics list|(topics|namespaces) permissions) ",
    ),
    Meant("`schemas extract` is not built", r"answer: 200 \| 400 .+", ".+: schemas extract "),
    Meant(
        "commands of `topicPolicies` wait for the broker's answer",
        r"answer: 200 \| 400 .+: not built in .+|value \.: None \| .+",
        ".+: topicPolicies (set-dispatcher-pause-on-ack-state-persistent|get-replication-clusters) ",
    ),
)
