"""What operators of a cluster ask and set: isolation policies, failure domains, statistics of a broker, bundles."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Call, Publish, Story, delete, get, post, put

_CLUSTER: Final = "clusters/standalone"
_POLICIES: Final = f"{_CLUSTER}/namespaceIsolationPolicies"
_DOMAINS: Final = f"{_CLUSTER}/failureDomains"

_BUNDLES: Final = (
    "0x00000000_0x40000000",
    "0x40000000_0x80000000",
    "0x80000000_0xc0000000",
    "0xc0000000_0xffffffff",
)


def _policy(**changes: object) -> dict[str, object]:
    whole: dict[str, object] = {
        "namespaces": ["{ns}"],
        "primary": ["nobody.*"],
        "secondary": ["somebody.*"],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "1", "usage_threshold": "80"},
        },
    }
    return {key: value for key, value in {**whole, **changes}.items() if value != "left out"}


def _failover(**changes: object) -> dict[str, object]:
    whole = {"policy_type": "min_available", "parameters": {"min_limit": "1", "usage_threshold": "80"}, **changes}
    return {"auto_failover_policy": {key: value for key, value in whole.items() if value != "left out"}}


#: Bodies that are odd or wrong.
_ODD: Final = [
    _policy(namespaces=[]),
    _policy(namespaces="left out"),
    _policy(namespaces=None),
    _policy(namespaces="a text"),
    _policy(namespaces=[1]),
    _policy(primary=[]),
    _policy(primary="left out"),
    _policy(primary=["("]),
    _policy(secondary=[]),
    _policy(secondary="left out"),
    _policy(secondary=None),
    _policy(auto_failover_policy="left out"),
    _policy(auto_failover_policy=None),
    _policy(auto_failover_policy={}),
    _policy(**_failover(policy_type="max_available")),
    _policy(**_failover(policy_type="left out")),
    _policy(**_failover(policy_type=0)),
    _policy(**_failover(parameters="left out")),
    _policy(**_failover(parameters={})),
    _policy(**_failover(parameters={"min_limit": "1"})),
    _policy(**_failover(parameters={"min_limit": 1, "usage_threshold": 80})),
    _policy(**_failover(parameters={"min_limit": "x", "usage_threshold": "80"})),
    _policy(**_failover(parameters={"min_limit": "-1", "usage_threshold": "80"})),
    _policy(**_failover(parameters={"min_limit": "1", "usage_threshold": "101"})),
    _policy(**_failover(parameters={"min_limit": "1", "usage_threshold": "80", "other": "1"})),
    _policy(unload_scope="none"),
    _policy(unload_scope="all_matching"),
    _policy(unload_scope="changed"),
    _policy(unload_scope="everything"),
    _policy(nothingThatIsKnown=1),
    {},
]

STORIES: Final = [
    Story(
        "isolation policies",
        get("clusters/nowhere/namespaceIsolationPolicies"),
        get("clusters/nowhere/namespaceIsolationPolicies/a"),
        get("clusters/nowhere/namespaceIsolationPolicies/brokers"),
        get("clusters/nowhere/namespaceIsolationPolicies/brokers/b:8080"),
        post("clusters/nowhere/namespaceIsolationPolicies/a", _policy()),
        delete("clusters/nowhere/namespaceIsolationPolicies/a"),
        get(_POLICIES),
        get(f"{_POLICIES}/a"),
        get(f"{_POLICIES}/brokers"),
        get(f"{_POLICIES}/brokers/b:8080"),
        delete(f"{_POLICIES}/a"),
        get(_POLICIES, exact=True),
        get(f"{_POLICIES}/a"),
        get(f"{_POLICIES}/brokers/b:8080", exact=True),
        post(f"{_POLICIES}/a", _policy()),
        get(_POLICIES, exact=True),
        get(f"{_POLICIES}/a", exact=True),
        get(f"{_POLICIES}/b"),
        post(f"{_POLICIES}/a", _policy(primary=["nobody-else.*"], secondary=[])),
        get(f"{_POLICIES}/a", exact=True),
        post(f"{_POLICIES}/b?unloadBundles=false", _policy(namespaces=["public/other.*", "x/y"])),
        get(_POLICIES, exact=True),
        get(f"{_POLICIES}/brokers"),
        get(f"{_POLICIES}/brokers/nobody.east:8080", exact=True),
        get(f"{_POLICIES}/brokers/somebody.east:8080", exact=True),
        get(f"{_POLICIES}/brokers/stranger:8080", exact=True),
        get(f"{_POLICIES}/brokers/stranger", exact=True),
        delete("clusters/standalone"),
        delete(f"{_POLICIES}/a"),
        delete(f"{_POLICIES}/b"),
        delete(f"{_POLICIES}/b"),
        get(_POLICIES, exact=True),
        post(f"{_POLICIES}/brokers", _policy(namespaces=["x/y"])),
        get(_POLICIES, exact=True),
        delete(f"{_POLICIES}/brokers"),
    ),
    Story(
        "isolation policy bodies",
        post(f"{_POLICIES}/body"),
        post(f"{_POLICIES}/body", None),
        post(f"{_POLICIES}/body", raw=b"{"),
        post(f"{_POLICIES}/body", []),
        post(f"{_POLICIES}/body", 3),
        post(f"{_POLICIES}/body?unloadBundles=maybe", _policy(namespaces=["x/y"])),
        delete(f"{_POLICIES}/body"),
        post(f"{_POLICIES}/a%20b", _policy(namespaces=["x/y"])),
        get(f"{_POLICIES}/a%20b", exact=True),
        delete(f"{_POLICIES}/a%20b"),
    ),
    *(
        Story(
            f"isolation odd {number}",
            post(f"{_POLICIES}/odd?unloadBundles=false", body),
            get(f"{_POLICIES}/odd", exact=True),
            delete(f"{_POLICIES}/odd"),
        )
        for number, body in enumerate(_ODD)
    ),
    Story(
        "failure domains",
        get("clusters/nowhere/failureDomains", exact=True),
        get("clusters/nowhere/failureDomains/a"),
        post("clusters/nowhere/failureDomains/a", {"brokers": ["b1:8080"]}),
        delete("clusters/nowhere/failureDomains/a"),
        get(_DOMAINS, exact=True),
        get(f"{_DOMAINS}/a"),
        delete(f"{_DOMAINS}/a"),
        post(f"{_DOMAINS}/a", {"brokers": ["b1:8080", "b2:8080"]}),
        get(f"{_DOMAINS}/a", exact=True),
        post(f"{_DOMAINS}/b", {"brokers": ["b2:8080", "b3:8080"]}),
        post(f"{_DOMAINS}/b", {"brokers": ["b3:8080"]}),
        post(f"{_DOMAINS}/a", {"brokers": ["b2:8080"]}),
        get(_DOMAINS, exact=True),
        post(f"{_DOMAINS}/c", {}),
        get(f"{_DOMAINS}/c", exact=True),
        post(f"{_DOMAINS}/d", {"brokers": []}),
        get(f"{_DOMAINS}/d", exact=True),
        post(f"{_DOMAINS}/e", {"brokers": None}),
        post(f"{_DOMAINS}/f", {"brokers": "b"}),
        post(f"{_DOMAINS}/g", {"brokers": [1]}),
        get(f"{_DOMAINS}/g", exact=True),
        post(f"{_DOMAINS}/h", {"brokers": ["x"], "nothingThatIsKnown": 1}),
        post(f"{_DOMAINS}/i"),
        post(f"{_DOMAINS}/i", raw=b"{"),
        post(f"{_DOMAINS}/i", []),
        post(f"{_DOMAINS}/a%20b", {"brokers": ["y"]}),
        get(f"{_DOMAINS}/a%20b", exact=True),
        get(_DOMAINS, exact=True),
        *(delete(f"{_DOMAINS}/{name}") for name in ("a", "b", "c", "d", "e", "f", "g", "h", "i", "a%20b", "a")),
        get(_DOMAINS, exact=True),
    ),
    Story(
        "statistics of a broker",
        get("broker-stats/topics", keys=False),
        get("broker-stats/destinations", keys=False),
        get("broker-stats/metrics", keys=False),
        get("broker-stats/mbeans", keys=False),
        get("broker-stats/load-report", keys=False),
        get("broker-stats/allocator-stats/default", keys=False),
        get("broker-stats/allocator-stats/nobody", keys=False),
        get("broker-stats/bookieops", keys=False),
        get("broker-stats/broker-resource-availability/{ns}"),
        get("broker-stats/broker-resource-availability/public/nowhere"),
        get("broker-stats/broker-resource-availability/public"),
        get("brokers/internal-configuration"),
        get("brokers/backlog-quota-check"),
        get("brokers/standalone/nobody:1/ownedNamespaces"),
        get("brokers/nowhere/nobody:1/ownedNamespaces"),
        get("brokers/standalone/nobody/ownedNamespaces"),
        post("brokers/backlog-quota-check"),
        Call("POST", "brokers/shutdown?maxConcurrentUnloadPerSec=x", keys=False),
    ),
    Story(
        "topics of bundles",
        Publish("persistent://{ns}/t"),
        Publish("persistent://{ns}/u"),
        *(get(f"namespaces/{{ns}}/{bundle}/topicHashPositions", exact=True) for bundle in _BUNDLES),
        *(get(f"non-persistent/{{ns}}/{bundle}", exact=True) for bundle in _BUNDLES),
        *(
            get(f"namespaces/{{ns}}/{bundle}/topicHashPositions?topics=persistent://{{ns}}/t", exact=True)
            for bundle in _BUNDLES
        ),
        get("namespaces/{ns}/0x00000000_0x30000000/topicHashPositions"),
        get("namespaces/{ns}/nothing/topicHashPositions"),
        get("namespaces/public/nowhere/0x00000000_0x40000000/topicHashPositions"),
        get("non-persistent/{ns}/0x00000000_0x30000000"),
        get("non-persistent/public/nowhere/0x00000000_0x40000000"),
    ),
    Story(
        "bundles unloaded and split",
        put("namespaces/{ns}/0x00000000_0x40000000/unload"),
        put("namespaces/{ns}/0x00000000_0x30000000/unload"),
        put("namespaces/{ns}/nothing/unload"),
        put("namespaces/public/nowhere/0x00000000_0x40000000/unload"),
        put("namespaces/{ns}/0x00000000_0x40000000/unload?destinationBroker=nobody:1"),
        put("namespaces/{ns}/0x00000000_0x30000000/split"),
        put("namespaces/{ns}/nothing/split"),
        put("namespaces/public/nowhere/0x00000000_0x40000000/split"),
        put("namespaces/{ns}/0x00000000_0x40000000/split?splitAlgorithmName=nobody"),
        put("namespaces/{ns}/0x40000000_0x80000000/split"),
        get("namespaces/{ns}/bundles"),
    ),
]
