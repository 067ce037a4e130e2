"""Permissions of topics, partitioned ones and their partitions, of subscriptions, and of several topics at once."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post, put

_N: Final = "namespaces/{ns}"
_T: Final = "persistent/{ns}/t"
_P: Final = "persistent/{ns}/p"
_TOPIC: Final = "persistent://{ns}/t"

STORIES: Final = [
    Story(
        "permissions of topics",
        put(_T),
        post(f"{_T}/permissions/jane", ["produce"]),
        get(f"{_T}/permissions", exact=True),
        post(f"{_T}/permissions/jane", ["consume"]),
        get(f"{_T}/permissions", exact=True),
        post(f"{_N}/permissions/jane", ["produce"]),
        post(f"{_N}/permissions/jim", ["functions", "sources", "sinks", "packages"]),
        get(f"{_T}/permissions", exact=True),
        post(f"{_T}/permissions/jane", []),
        get(f"{_T}/permissions", exact=True),
        post(f"{_T}/permissions/joe"),
        post(f"{_T}/permissions/joe", {"a": 1}),
        post(f"{_T}/permissions/joe", "produce"),
        delete(f"{_T}/permissions/jane"),
        delete(f"{_T}/permissions/jane"),
        delete(f"{_T}/permissions/nobody"),
        get(f"{_T}/permissions", exact=True),
        post("persistent/{ns}/nowhere/permissions/jane", ["produce"]),
        delete("persistent/{ns}/nowhere/permissions/jane"),
        post("persistent/public/nowhere/t/permissions/jane", ["produce"]),
        delete("persistent/public/nowhere/t/permissions/jane"),
        post(f"{_T}/permissions/jane", ["produce"]),
        delete(_T),
        put(_T),
        get(f"{_T}/permissions", exact=True),
    ),
    Story(
        "permissions of non-persistent topics",
        put("non-persistent/{ns}/t/partitions", 2),
        post("non-persistent/{ns}/t/permissions/jane", ["consume"]),
        get("non-persistent/{ns}/t/permissions", exact=True),
        delete("non-persistent/{ns}/t/permissions/jane"),
        get("non-persistent/{ns}/t/permissions", exact=True),
        get("non-persistent/{ns}/nowhere/permissions"),
        post("non-persistent/{ns}/nowhere/permissions/jane", ["consume"]),
    ),
    Story(
        "permissions of partitions",
        put(f"{_P}/partitions", 2),
        post(f"{_P}/permissions/jane", ["produce"]),
        get(f"{_P}/permissions", exact=True),
        get(f"{_P}-partition-0/permissions", exact=True),
        post(f"{_P}-partition-1/permissions/jane", ["consume"]),
        get(f"{_P}-partition-1/permissions", exact=True),
        post(f"{_P}-partition-7/permissions/jane", ["consume"]),
        get(f"{_P}-partition-7/permissions"),
        post(f"{_P}/partitions", 3),
        delete(f"{_P}/permissions/jane"),
        get(f"{_P}/permissions", exact=True),
        get(f"{_P}-partition-1/permissions", exact=True),
    ),
    Story(
        "permissions of subscriptions",
        post(f"{_N}/permissions/subscription/s", ["jane", "jim"]),
        get(f"{_N}/permissions/subscription", exact=True),
        post(f"{_N}/permissions/subscription/s", ["joe", "joe"]),
        get(f"{_N}/permissions/subscription", exact=True),
        post(f"{_N}/permissions/subscription/none", []),
        get(f"{_N}/permissions/subscription", exact=True),
        post(f"{_N}/permissions/subscription/s"),
        post(f"{_N}/permissions/subscription/s", "jane"),
        post(f"{_N}/permissions/subscription/s", {"a": 1}),
        delete(f"{_N}/permissions/s/nobody"),
        get(f"{_N}/permissions/subscription", exact=True),
        delete(f"{_N}/permissions/s/joe"),
        get(f"{_N}/permissions/subscription", exact=True),
        delete(f"{_N}/permissions/s/joe"),
        post("namespaces/public/nowhere/permissions/subscription/s", ["jane"]),
        delete("namespaces/public/nowhere/permissions/s/jane"),
    ),
    Story(
        "permissions at several topics",
        put(_T),
        put("persistent/{ns}/u"),
        post("namespaces/grantPermissionsOnTopics", [{"topic": _TOPIC, "role": "jane", "actions": ["produce"]}]),
        get(f"{_T}/permissions", exact=True),
        post(
            "namespaces/grantPermissionsOnTopics",
            [
                {"topic": _TOPIC, "role": "jim", "actions": ["consume"]},
                {"topic": "persistent://{ns}/u", "role": "jim", "actions": ["consume", "produce"]},
            ],
        ),
        get(f"{_T}/permissions", exact=True),
        get("persistent/{ns}/u/permissions", exact=True),
        post(
            "namespaces/grantPermissionsOnTopics",
            [
                {"topic": _TOPIC, "role": "jim", "actions": ["consume"]},
                {"topic": "persistent://public/default/t", "role": "jim", "actions": ["consume"]},
            ],
        ),
        post(
            "namespaces/grantPermissionsOnTopics",
            [{"topic": "persistent://{ns}/nowhere", "role": "jane", "actions": ["produce"]}],
        ),
        post("namespaces/revokePermissionsOnTopics", [{"topic": _TOPIC, "role": "jane"}]),
        post("namespaces/revokePermissionsOnTopics", [{"topic": _TOPIC, "role": "jane"}]),
        get(f"{_T}/permissions", exact=True),
        post("namespaces/revokePermissionsOnTopics", [{"topic": "persistent://{ns}/nowhere", "role": "jane"}]),
    ),
]
