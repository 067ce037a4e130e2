"""Subscriptions of a whole namespace or bundle, bundles, and quotas of bundles."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post, put

_NAMESPACE: Final = "namespaces/{ns}"
#: One of four, and one that there is not.
_FIRST: Final = "0x00000000_0x40000000"
_NONE: Final = "0x00000000_0x00000001"
_TOPICS: Final = ("a", "b", "c", "d")
#: One in each of the four, or where it is.
_ALL: Final = (_FIRST, "0x40000000_0x80000000", "0x80000000_0xc0000000", "0xc0000000_0xffffffff")
_QUOTA: Final = {
    "msgRateIn": 1.5,
    "msgRateOut": 2,
    "bandwidthIn": 3,
    "bandwidthOut": "4",
    "memory": 5,
    "dynamic": False,
}


STORIES: Final = [
    Story(
        # What is there is left alone: Apache's 4.2.4 answers nothing to that, here, nor much else afterwards.
        "namespace subscriptions",
        *(put(f"persistent/{{ns}}/{topic}/subscription/s") for topic in _TOPICS),
        post(f"{_NAMESPACE}/clearBacklog/nobody"),
        *(post(f"{_NAMESPACE}/{bundle}/clearBacklog/nobody") for bundle in _ALL),
        post(f"{_NAMESPACE}/unsubscribe/pulsar.repl.there"),
        post(f"{_NAMESPACE}/{_FIRST}/unsubscribe/pulsar.repl.there"),
        post(f"{_NAMESPACE}/clearBacklog/pulsar.repl.there"),
        post("namespaces/public/nowhere/clearBacklog"),
        post("namespaces/public/nowhere/clearBacklog/s"),
        post("namespaces/public/nowhere/unsubscribe/s"),
        post(f"namespaces/public/nowhere/{_FIRST}/clearBacklog"),
        post(f"{_NAMESPACE}/{_NONE}/clearBacklog"),
        post(f"{_NAMESPACE}/{_NONE}/clearBacklog/s"),
        post(f"{_NAMESPACE}/{_NONE}/unsubscribe/s"),
        post(f"{_NAMESPACE}/everything/clearBacklog"),
        post(f"{_NAMESPACE}/everything/unsubscribe/s"),
        *(delete(f"{_NAMESPACE}/{bundle}") for bundle in _ALL),
        delete(f"{_NAMESPACE}/{_NONE}"),
        delete(f"{_NAMESPACE}/everything"),
        delete(f"namespaces/public/nowhere/{_FIRST}"),
        *(get(f"persistent/{{ns}}/{topic}/subscriptions", exact=True) for topic in _TOPICS),
        get(f"{_NAMESPACE}/bundles", exact=True),
    ),
    Story(
        "quotas of bundles",
        get("resource-quotas", exact=True),
        get(f"resource-quotas/{{ns}}/{_FIRST}", exact=True),
        delete(f"resource-quotas/{{ns}}/{_FIRST}"),
        post(f"resource-quotas/{{ns}}/{_FIRST}", _QUOTA),
        get(f"resource-quotas/{{ns}}/{_FIRST}", exact=True),
        get(f"resource-quotas/{{ns}}/{_ALL[1]}", exact=True),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": 7}),
        get(f"resource-quotas/{{ns}}/{_FIRST}", exact=True),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {}),
        get(f"resource-quotas/{{ns}}/{_FIRST}", exact=True),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": None, "dynamic": None}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": "x"}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": -1}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": True}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": "NaN"}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": "Infinity"}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"msgRateIn": []}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"dynamic": "x"}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"valid": True}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", {"more": 1}),
        post(f"resource-quotas/{{ns}}/{_FIRST}", []),
        post(f"resource-quotas/{{ns}}/{_FIRST}", "x"),
        post(f"resource-quotas/{{ns}}/{_FIRST}", None),
        post(f"resource-quotas/{{ns}}/{_FIRST}", raw=b""),
        post(f"resource-quotas/{{ns}}/{_FIRST}", raw=b"{"),
        post(f"resource-quotas/{{ns}}/{_NONE}", _QUOTA),
        post("resource-quotas/{ns}/everything", _QUOTA),
        post(f"resource-quotas/public/nowhere/{_FIRST}", _QUOTA),
        get(f"resource-quotas/{{ns}}/{_NONE}"),
        get(f"resource-quotas/public/nowhere/{_FIRST}"),
        delete(f"resource-quotas/{{ns}}/{_NONE}"),
        delete(f"resource-quotas/public/nowhere/{_FIRST}"),
        delete(f"resource-quotas/{{ns}}/{_FIRST}"),
        delete(f"resource-quotas/{{ns}}/{_FIRST}"),
        get(f"resource-quotas/{{ns}}/{_FIRST}", exact=True),
        post("resource-quotas", _QUOTA),
        get("resource-quotas", exact=True),
        get(f"resource-quotas/{{ns}}/{_FIRST}", exact=True),
        post("resource-quotas", {"msgRateIn": -1}),
        post("resource-quotas", {}),
        get("resource-quotas", exact=True),
        post("resource-quotas", None),
        delete("resource-quotas"),
    ),
]
