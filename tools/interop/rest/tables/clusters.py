"""Clusters."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, delete, get, post, put

_EAST: Final = {"serviceUrl": "http://east:8080", "brokerServiceUrl": "pulsar://east:6650"}
#: Bodies that are odd or wrong.
_ODD: Final = [
    {"serviceUrl": None},
    {"serviceUrl": 3},
    {"serviceUrl": ["http://h:1"]},
    {"serviceUrl": "east:8080"},
    {"serviceUrl": "pulsar://east:6650"},
    {"brokerServiceUrl": "http://east:8080"},
    {"brokerClientTlsEnabled": "true"},
    {"brokerClientTlsEnabled": "maybe"},
    {"brokerClientTlsEnabled": 1},
    {"serviceUrl": ""},
    {"serviceUrl": "http://"},
    {"serviceUrl": "http://a:1,b:2"},
    {"serviceUrl": "https://a:1"},
    {"serviceUrl": "http://a b:1"},
    {"serviceUrlTls": "http://a:1"},
    {"brokerServiceUrlTls": "pulsar://a:1"},
    {"brokerServiceUrl": "pulsar+ssl://a:1"},
    {"proxyServiceUrl": "a:1"},
    {"proxyServiceUrl": "pulsar://a:1"},
    {"peerClusterNames": []},
    {"peerClusterNames": "nobody"},
    {"listenerName": "internal"},
    {"nothingThatIsKnown": 1},
    {"serviceUrlTls": "https://east:8443", "brokerServiceUrlTls": "pulsar+ssl://east:6651"},
]

STORIES: Final = [
    Story(
        "clusters",
        get("clusters", exact=True),
        get("clusters/", exact=True),
        post("clusters"),
        delete("clusters"),
        get("clusters/standalone"),
        get("clusters/nowhere"),
        put("clusters/east", _EAST),
        put("clusters/east", _EAST),
        put("clusters/east", {}),
        get("clusters/east", exact=True),
        get("clusters", exact=True),
        post("clusters/east", {"serviceUrl": "http://west:8080"}),
        get("clusters/east", exact=True),
        post("clusters/east", {}),
        get("clusters/east", exact=True),
        post("clusters/nowhere", _EAST),
        post("clusters/nowhere", {}),
        delete("clusters/east"),
        delete("clusters/east"),
        delete("clusters/nowhere"),
        put("clusters/no%20good", _EAST),
        put("clusters/a%252Db", _EAST),
        get("clusters/a%252Db"),
        get("clusters/a-b"),
        get("clusters/no%20good"),
        delete("clusters/no%20good"),
        post("clusters/no%20good", _EAST),
        put("clusters/%C3%A9", _EAST),
        put("clusters/global", _EAST),
        put("clusters/" + "c" * 200, _EAST),
        get("clusters/standalone"),
    ),
    Story(
        "cluster bodies",
        put("clusters/body"),
        put("clusters/body", None),
        put("clusters/body", raw=b""),
        put("clusters/body", raw=b"{"),
        put("clusters/body", raw=b"{} trailing"),
        put("clusters/body", "text"),
        put("clusters/body", 3),
        put("clusters/body", []),
        put("clusters/body", True),
        put("clusters/body", raw=b"{'serviceUrl':'http://h:1'}"),
        put("clusters/body", {}, headers={"Content-Type": "text/plain"}),
        post("clusters/body"),
        get("clusters/body"),
        put("clusters/body", _EAST, headers={"Content-Type": "application/json; charset=utf-8"}),
        post("clusters/body"),
        post("clusters/body", None),
        post("clusters/body", raw=b"{"),
        post("clusters/body", []),
        get("clusters/body", exact=True),
        delete("clusters/body", {}),
        get("clusters/body"),
    ),
    *(
        Story(
            f"cluster odd {number}",
            put(f"clusters/odd-{number}", body),
            get(f"clusters/odd-{number}", exact=True),
            delete(f"clusters/odd-{number}"),
            put(f"clusters/upd-{number}", _EAST),
            post(f"clusters/upd-{number}", body),
            get(f"clusters/upd-{number}", exact=True),
            delete(f"clusters/upd-{number}"),
        )
        for number, body in enumerate(_ODD)
    ),
    Story(
        "cluster peers",
        put("clusters/peers", {"peerClusterNames": ["nobody"]}),
        put("clusters/peered", _EAST),
        post("clusters/peered", {"peerClusterNames": ["nobody"]}),
        delete("clusters/peered"),
    ),
    Story(
        "own cluster",
        delete("clusters/standalone"),
        # It is there again for what follows.
        put("clusters/standalone", _EAST),
        get("tenants/public", exact=True),
    ),
]
