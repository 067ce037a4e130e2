"""Offloading: the policies of a namespace, the command of a topic, and Geminga's own path for its lake."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Publish, Story, delete, get, post, put

_TOPIC: Final = "persistent/{ns}/t"
_POLICIES: Final = "namespaces/{ns}/offloadPolicies"
_REMOVE: Final = "namespaces/{ns}/removeOffloadPolicies"
_ID: Final = {"ledgerId": 0, "entryId": 0, "partitionIndex": -1}

STORIES: Final = [
    Story(
        "offload policies",
        get(_POLICIES),
        delete(_REMOVE),
        post(_POLICIES, {}),
        post(_POLICIES, None),
        post(_POLICIES, {"managedLedgerOffloadDriver": "tape"}),
        post(_POLICIES, {"managedLedgerOffloadDriver": "aws-s3"}),
        post(_POLICIES, raw=b"{"),
        get(_POLICIES),
        delete(_REMOVE),
        get("namespaces/public/nowhere/offloadPolicies"),
        post("namespaces/public/nowhere/offloadPolicies", {"managedLedgerOffloadDriver": "filesystem"}),
        delete("namespaces/public/nowhere/removeOffloadPolicies"),
    ),
    Story(
        "a topic is offloaded",
        get(f"{_TOPIC}/offload"),
        put(f"{_TOPIC}/offload", _ID),
        put(_TOPIC),
        Publish("persistent://{ns}/t", 1),
        get(f"{_TOPIC}/offload"),
        get(f"{_TOPIC}/lake"),
        put(f"{_TOPIC}/lake/restore"),
        put("persistent/{ns}/p/partitions", 2),
        get("persistent/{ns}/p/lake"),
    ),
    Story(
        "ledgers that can not be read",
        put(_TOPIC),
        get(f"{_TOPIC}/holes"),
        put(f"{_TOPIC}/holes/skip", {"ledgerId": 1_000_000_000}),
        put(f"{_TOPIC}/holes/skip", {"ledger": 1}),
        get("persistent/{ns}/none/holes"),
    ),
    Story(
        "source positions",
        put(_TOPIC),
        get(f"{_TOPIC}/sourcePositions"),
        delete(f"{_TOPIC}/sourcePositions/east"),
    ),
]
