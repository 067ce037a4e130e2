"""Which bookies there are, where they stand, and on which of them a namespace's ledgers are."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post

_AFFINITY: Final = "namespaces/{ns}/persistence/bookieAffinity"
_GROUPS: Final = {"bookkeeperAffinityGroupPrimary": "a,b", "bookkeeperAffinityGroupSecondary": "c"}
#: Nobody's address, so that no ledger is placed by it.
_BOOKIE: Final = "bookies/racks-info/10.1.1.1:1"

STORIES: Final = [
    Story(
        "bookies",
        get("bookies/all"),
        get("bookies/racks-info", exact=True),
        get(_BOOKIE),
        delete(_BOOKIE),
        post(_BOOKIE, {"rack": "/r", "hostname": "h"}),
        post(f"{_BOOKIE}?group=g", {"rack": "/r", "hostname": "h"}),
        get("bookies/racks-info", exact=True),
        get(_BOOKIE, exact=True),
        post(f"{_BOOKIE}?group=f", {"rack": "r2"}),
        get("bookies/racks-info", exact=True),
        get(_BOOKIE, exact=True),
        post("bookies/racks-info/10.1.1.2:1?group=f", {"rack": "/r3/", "hostname": "h"}),
        get("bookies/racks-info", exact=True),
        post(f"{_BOOKIE}?group=g", {"rack": "/r/s", "hostname": "h"}),
        post(f"{_BOOKIE}?group=g", {"rack": 3, "hostname": None}),
        post(f"{_BOOKIE}?group=g", {"rack": {}}),
        post(f"{_BOOKIE}?group=g", {}),
        get(_BOOKIE, exact=True),
        post(f"{_BOOKIE}?group=g", {"rack": "/r", "later": 1}),
        get(_BOOKIE, exact=True),
        post(f"{_BOOKIE}?group=g", None),
        post(f"{_BOOKIE}?group=g", raw=b""),
        post(f"{_BOOKIE}?group=g", raw=b"{"),
        post(f"{_BOOKIE}?group=g", []),
        post(f"{_BOOKIE}?group=g", "r"),
        post(f"{_BOOKIE}?group=", {"rack": "/r", "hostname": "h"}),
        get("bookies/racks-info", exact=True),
        delete(_BOOKIE),
        delete("bookies/racks-info/10.1.1.2:1"),
        delete("bookies/racks-info/10.1.1.2:1"),
        get("bookies/racks-info", exact=True),
    ),
    Story(
        "bookie affinity",
        get(_AFFINITY),
        delete(_AFFINITY),
        get(_AFFINITY),
        post(_AFFINITY, _GROUPS),
        get(_AFFINITY, exact=True),
        post(_AFFINITY, {"bookkeeperAffinityGroupPrimary": "a"}),
        get(_AFFINITY, exact=True),
        post(_AFFINITY, {"bookkeeperAffinityGroupPrimary": 3, "bookkeeperAffinityGroupSecondary": None}),
        get(_AFFINITY, exact=True),
        post(_AFFINITY, {**_GROUPS, "later": 1}),
        get(_AFFINITY, exact=True),
        get("namespaces/{ns}/bundles", exact=True),
        delete(_AFFINITY),
        get(_AFFINITY, exact=True),
        post(_AFFINITY, _GROUPS),
        post(_AFFINITY, None),
        get(_AFFINITY, exact=True),
        post(_AFFINITY, raw=b"{"),
        post(_AFFINITY, []),
        post(_AFFINITY, "a"),
        post(_AFFINITY, {"bookkeeperAffinityGroupPrimary": ["a"]}),
        get("namespaces/public/nowhere/persistence/bookieAffinity"),
        post("namespaces/public/nowhere/persistence/bookieAffinity", _GROUPS),
        delete("namespaces/public/nowhere/persistence/bookieAffinity"),
    ),
    Story(
        "bookie affinity without a first group",
        post(_AFFINITY, {}),
        get(_AFFINITY),
        post(_AFFINITY, {"bookkeeperAffinityGroupSecondary": "a"}),
        post(_AFFINITY, {"bookkeeperAffinityGroupPrimary": ""}),
        delete(_AFFINITY),
    ),
]
