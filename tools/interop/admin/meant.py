"""What differs on purpose between the two, of what ``pulsar-admin`` prints.

Rows are those of "Answers of the admin REST" and "Statistics" in ``docs/compatibility.md``, which says why.
"""

from __future__ import annotations

from typing import Final

from tools.interop.rest.comparing import Meant

#: Stories that go on with what could not be set.
_AFTER_UNBUILT: Final = (
    "clusters: clusters get-peer-clusters|permissions of a (namespace|topic): .+permissions? |resource groups: |"
    r"(namespaces|topicPolicies|topics) (compaction-threshold|dispatcher-pause-on-ack-state-persistent|"
    r"encryption-required|replicator-dispatch-rate|subscription-auth-mode): \S+ get-"
)

MEANT: Final = (
    Meant("what is not built", r"answer: .+ \| 400 .+: not built in Geminga .+"),
    Meant(
        "what is not built",
        r"body: some \| none|(value|only Apache:) .+|answer: 200 \| 400 ResourceGroup does not exist",
        _AFTER_UNBUILT,
    ),
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

#: Of the two command lines at one broker.
MEANT_OF_TOOLS: Final[tuple[Meant, ...]] = ()
