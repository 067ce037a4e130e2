"""Tenants."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post, put

_INFO: Final = {"adminRoles": ["admin"], "allowedClusters": ["standalone"]}
_ODD: Final = [
    {},
    {"allowedClusters": []},
    {"allowedClusters": None},
    {"allowedClusters": ["nowhere"]},
    {"allowedClusters": ["standalone", "nowhere"]},
    {"allowedClusters": "standalone"},
    {"allowedClusters": [3]},
    {"allowedClusters": [None]},
    {"allowedClusters": [""]},
    {"allowedClusters": ["standalone", "standalone"]},
    {"allowedClusters": ["global"]},
    {"allowedClusters": ["standalone"], "adminRoles": None},
    {"allowedClusters": ["standalone"], "adminRoles": []},
    {"allowedClusters": ["standalone"], "adminRoles": ["a", "a"]},
    {"allowedClusters": ["standalone"], "adminRoles": [" a"]},
    {"allowedClusters": ["standalone"], "adminRoles": "a"},
    {"allowedClusters": ["standalone"], "adminRoles": [3]},
    {"allowedClusters": ["standalone"], "somethingElse": 3},
    {"adminRoles": ["a"]},
]

STORIES: Final = [
    Story(
        "tenants",
        get("tenants"),
        get("tenants/"),
        post("tenants"),
        delete("tenants"),
        get("tenants/public", exact=True),
        get("tenants/public/", exact=True),
        get("tenants/nobody"),
        put("tenants/acme", _INFO),
        put("tenants/acme", _INFO),
        put("tenants/acme", {}),
        get("tenants/acme", exact=True),
        post("tenants/acme", {"adminRoles": ["other"], "allowedClusters": ["standalone"]}),
        get("tenants/acme", exact=True),
        post("tenants/nobody", _INFO),
        post("tenants/nobody", {}),
        post("tenants/nobody"),
        get("namespaces/acme", exact=True),
        put("namespaces/acme/orders"),
        get("namespaces/acme", exact=True),
        delete("tenants/acme"),
        delete("tenants/acme?force=true"),
        delete("tenants/acme?force=maybe"),
        delete("namespaces/acme/orders"),
        delete("tenants/acme"),
        delete("tenants/acme"),
        delete("tenants/nobody?force=true"),
        get("tenants/acme"),
        put("tenants/no%20good", _INFO),
        put("tenants/a%252Db", _INFO),
        get("tenants/a%252Db"),
        get("tenants/a-b"),
        get("tenants/no%20good"),
        post("tenants/no%20good", _INFO),
        delete("tenants/no%20good"),
        put("tenants/" + "t" * 200, _INFO),
        get("tenants/acme/x"),
    ),
    Story(
        "tenant bodies",
        put("tenants/body"),
        put("tenants/body", None),
        put("tenants/body", raw=b"{"),
        put("tenants/body", "text"),
        put("tenants/body", 3),
        put("tenants/body", []),
        put("tenants/body", _INFO, headers={"Content-Type": "text/plain"}),
        get("tenants/body"),
        put("tenants/body", _INFO),
        post("tenants/body"),
        post("tenants/body", None),
        post("tenants/body", raw=b"{"),
        post("tenants/body", []),
        post("tenants/body", _INFO, headers={"Content-Type": "text/plain"}),
        get("tenants/body", exact=True),
        delete("tenants/body"),
    ),
    *(
        Story(
            f"tenant odd {number}",
            put(f"tenants/odd-{number}", body),
            get(f"tenants/odd-{number}", exact=True),
            delete(f"tenants/odd-{number}"),
            put(f"tenants/upd-{number}", _INFO),
            post(f"tenants/upd-{number}", body),
            get(f"tenants/upd-{number}", exact=True),
            delete(f"tenants/upd-{number}"),
        )
        for number, body in enumerate(_ODD)
    ),
    Story(
        "tenant without a name for a role",
        put("tenants/nameless", {"allowedClusters": ["standalone"], "adminRoles": [""]}),
    ),
]
