"""Names with odd characters, as the official tools put them into paths: which name a broker hears.

The paths are those that ``pulsar-admin`` 4.2.4 and Go's admin client were seen to send.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, quote_plus

from tools.interop.rest.calls import Call, Story, delete, get, post, put

#: A character of each kind: a space, those of forms, of escapes, of paths and queries, of JSON, beyond ASCII.
NAMES: Final = (
    *("my sub", "a+b", "100%", "a%20b", "a%2Bb", "a%2Fb", "a?b", "a#b", "a&b", "a=b", "a:b", "a;b", "a,b", "a@b"),
    *("a*b", "a~b", "a(b)", "a{b}", "a[b]", "a^b", "a|b", "a\\b", 'a"b', "ü", "日本"),
)
#: Of a subscription, a role or a property, not of a topic.
WITH_SLASH: Final = (*NAMES, "a/b")


def java_form(name: str) -> str:
    """``URLEncoder``: topics, properties, roles, subscriptions of a namespace."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def java_subscription(name: str) -> str:
    """That, encoded by Jersey once more."""
    return quote(java_form(name), safe="*")


def java_path(name: str) -> str:
    """Jersey alone, which takes what looks like an escape for one: isolation policies, domains, transactions."""
    return quote(name, safe="%+&=:;,@*~()")


def go_path(name: str) -> str:
    """``url.PathEscape``: topics; twice: subscriptions."""
    return quote(name, safe="$&+=:@")


_T: Final = "persistent/{ns}/t"
_RATE: Final = {"dispatchThrottlingRateInMsg": 7, "dispatchThrottlingRateInByte": 8}
_DOMAINS: Final = "clusters/standalone/failureDomains"
_POLICIES: Final = "clusters/standalone/namespaceIsolationPolicies"
_POLICY: Final = {
    "namespaces": ["public/nowhere-.*"],
    "primary": ["nobody.*"],
    "secondary": [],
    "auto_failover_policy": {
        "policy_type": "min_available",
        "parameters": {"min_limit": "1", "usage_threshold": "80"},
    },
}


def _subscription(name: str, encoded: str) -> tuple[Call, ...]:
    path = f"{_T}/subscription/{encoded}"
    return (
        put(path, "latest"),
        get(f"{_T}/subscriptions", exact=True),
        post(f"{path}/skip_all"),
        get(f"{path}/replicatedSubscriptionStatus", exact=True),
        delete(path),
    )


STORIES: Final = [
    Story(
        "names of subscriptions by Java",
        put(_T),
        *(c for n in WITH_SLASH for c in _subscription(n, java_subscription(n))),
    ),
    # Go leaves a plus sign as it is, both times: both brokers take it for a space.
    Story(
        "names of subscriptions by Go",
        put(_T),
        *(c for n in WITH_SLASH for c in _subscription(n, go_path(go_path(n)))),
    ),
    Story(
        "names of subscriptions encoded once",
        put(_T),
        *(c for n in WITH_SLASH for c in _subscription(n, quote(n, safe=""))),
    ),
    Story(
        "names of topics",
        *(
            call
            for name in NAMES
            for encoded in dict.fromkeys((java_form(name), go_path(name)))
            for call in (
                put(f"persistent/{{ns}}/{encoded}"),
                get("persistent/{ns}", exact=True),
                put(f"persistent/{{ns}}/{encoded}-p/partitions", 2),
                get("persistent/{ns}/partitioned", exact=True),
                get(f"/lookup/v2/topic/persistent/{{ns}}/{encoded}/bundle"),
                delete(f"persistent/{{ns}}/{encoded}-p/partitions"),
                delete(f"persistent/{{ns}}/{encoded}"),
            )
        ),
    ),
    Story(
        "names of subscriptions with a rate of their own",
        put(_T),
        *(
            call
            for name in WITH_SLASH
            for call in (
                post(f"{_T}/{java_form(name)}/dispatchRate", _RATE),
                get(f"{_T}/{java_form(name)}/dispatchRate", exact=True),
                get(f"{_T}/{java_subscription(name)}/dispatchRate", exact=True),
                delete(f"{_T}/{java_form(name)}/dispatchRate"),
            )
        ),
    ),
    Story(
        "names of properties of a namespace",
        *(
            call
            for name in WITH_SLASH
            for call in (
                put(f"namespaces/{{ns}}/property/{java_form(name)}/{java_form(name)}"),
                get("namespaces/{ns}/properties", exact=True),
                get(f"namespaces/{{ns}}/property/{java_form(name)}", keys=False),
                delete(f"namespaces/{{ns}}/property/{java_form(name)}"),
            )
        ),
    ),
    Story(
        "names of roles",
        *(
            call
            for name in WITH_SLASH
            for call in (
                post(f"namespaces/{{ns}}/permissions/{java_form(name)}", ["produce"]),
                get("namespaces/{ns}/permissions", exact=True),
                delete(f"namespaces/{{ns}}/permissions/{java_form(name)}"),
            )
        ),
    ),
    Story(
        "names of isolation policies and failure domains",
        *(
            call
            for name in NAMES
            # Jersey takes braces for its own, and Apache's broker what follows a semicolon for a parameter.
            if not set(name) & set("{};") and name != "a%2Fb"
            for call in (
                post(f"{_POLICIES}/{java_path(name)}", _POLICY),
                get(_POLICIES, exact=True),
                delete(f"{_POLICIES}/{java_path(name)}"),
                post(f"{_DOMAINS}/{java_path(name)}", {"brokers": ["nobody:1"]}),
                get(_DOMAINS, exact=True),
                delete(f"{_DOMAINS}/{java_path(name)}"),
            )
        ),
    ),
]
