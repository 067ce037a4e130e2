"""What is not built, where the answer is known all the same, and what this cluster alone can do of it."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post, put

_N: Final = "namespaces/{ns}"
_T: Final = "persistent/{ns}/t"
_NOWHERE: Final = "namespaces/public/nowhere"
_STATUS: Final = "replicatedSubscriptionStatus"
_NO_RATE: Final = {"dispatchThrottlingRateInMsg": -1, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 1}

STORIES: Final = [
    Story(
        "replication to nobody",
        *(get(f"{base}/{path}", exact=True) for base in (_N, _NOWHERE) for path in ("replication", "allowedClusters")),
        *(
            post(f"{base}/{path}", clusters)
            for base in (_N, _NOWHERE)
            for path in ("replication", "allowedClusters")
            for clusters in (["standalone"], ["nowhere"])
        ),
        post(f"{_N}/replication"),
        post(f"{_N}/replication", []),
        post(f"{_N}/allowedClusters", []),
        get(f"{_N}/replication", exact=True),
        get(f"{_N}/allowedClusters", exact=True),
        put(_T),
        get(f"{_T}/replication"),
        get(f"{_T}/replication?applied=true", exact=True),
        post(f"{_T}/replication"),
        post(f"{_T}/replication", []),
        post(f"{_T}/replication", ["nowhere"]),
        post(f"{_T}/replication", ["standalone"]),
        get(f"{_T}/replication", exact=True),
        delete(f"{_T}/replication"),
        get(f"{_T}/replication"),
        get("persistent/{ns}/nowhere/replication"),
        post("persistent/{ns}/nowhere/replication", ["standalone"]),
        put(f"{_T}/subscription/s"),
        get(f"{_T}/subscription/s/{_STATUS}", exact=True),
        post(f"{_T}/subscription/s/{_STATUS}", False),
        get(f"{_T}/subscription/none/{_STATUS}"),
        post(f"{_T}/subscription/none/{_STATUS}", False),
        get(f"persistent/{{ns}}/nowhere/subscription/s/{_STATUS}"),
        put("persistent/{ns}/several/partitions", 2),
        put("persistent/{ns}/several/subscription/s"),
        get(f"persistent/{{ns}}/several/subscription/s/{_STATUS}", exact=True),
    ),
    Story(
        "peers of clusters",
        put("clusters/peerless", {"serviceUrl": "http://127.0.0.1:1", "peerClusterNames": [""]}),
        get("clusters/peerless", exact=True),
        post("clusters/peerless", {"serviceUrl": "http://127.0.0.1:2"}),
        get("clusters/peerless/peers"),
        post("clusters/peerless/peers", []),
        get("clusters/peerless/peers", exact=True),
        post("clusters/peerless/peers", ["peerless"]),
        post("clusters/peerless/peers", ["nowhere"]),
        get("clusters/nowhere/peers"),
        post("clusters/nowhere/peers", []),
        get("clusters/nowhere/migrate"),
        get("clusters/peerless/migrate"),
        delete("clusters/peerless"),
    ),
    Story(
        "known answers",
        put(_T),
        get("metadata/migration/status", exact=True),
        get("resourcegroups", exact=True),
        get("resourcegroups/none"),
        delete("resourcegroups/none"),
        *(get(f"{base}/resourcegroup") for base in (_N, _NOWHERE)),
        *(delete(f"{base}/resourcegroup") for base in (_N, _NOWHERE)),
        *(get(f"{base}/permissions/subscription", exact=True) for base in (_N, _NOWHERE)),
        *(
            get(f"{topic}/{path}", exact=True)
            for topic in (_T, "persistent/{ns}/nowhere", "persistent/public/nowhere/t")
            for path in ("compaction", "permissions")
        ),
        post(f"{_N}/permissions/role", ["produce"]),
        get(f"{_T}/permissions", exact=True),
        delete(f"{_N}/permissions/role"),
    ),
    Story(
        "values that are not set",
        put(_T),
        post(f"{_N}/encryptionRequired", False),
        get(f"{_N}/encryptionRequired", exact=True),
        post(f"{_N}/subscriptionAuthMode", "None"),
        get(f"{_N}/subscriptionAuthMode", exact=True),
        post(f"{_N}/replicatorDispatchRate", _NO_RATE),
        get(f"{_N}/replicatorDispatchRate", exact=True),
        post(f"{_T}/replicatorDispatchRate", _NO_RATE),
        get(f"{_T}/replicatorDispatchRate", exact=True),
        put(f"{_N}/compactionThreshold", 0),
        get(f"{_N}/compactionThreshold", exact=True),
        post(f"{_T}/compactionThreshold", 0),
        get(f"{_T}/compactionThreshold", exact=True),
        post(f"{_N}/allowedTopicPropertyKeysForMetrics", []),
        put(f"{_T}/shadowTopics", []),
        post(f"{_N}/entryFilters", {"entryFilterNames": ""}),
        post(f"{_T}/entryFilters", {"entryFilterNames": ""}),
        post(f"{_N}/delayedDelivery", {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": -1}),
        post(f"{_NOWHERE}/encryptionRequired", True),
        post(f"{_NOWHERE}/replicatorDispatchRate", _NO_RATE),
        put(f"{_NOWHERE}/compactionThreshold", 5),
        put("persistent/{ns}/nowhere/compaction"),
        post("persistent/{ns}/nowhere/compactionThreshold", 5),
        put("persistent/{ns}/nowhere/shadowTopics", ["persistent://public/default/x"]),
    ),
    Story(
        "a bundle that is split",
        put("namespaces/{ns}/HOT/split"),
        put("namespaces/{ns}/LARGEST/split"),
        *(put(f"persistent/{{ns}}/t{number}") for number in (1, 5, 9, 2)),
        put("namespaces/{ns}/LARGEST/split"),
        get("namespaces/{ns}/bundles", exact=True),
        put("namespaces/{ns}/0x00000000_0x20000000/split"),
        put("namespaces/public/nowhere/LARGEST/split"),
    ),
]
