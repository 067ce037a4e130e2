"""Who may ask for what over HTTP: the table of rights, sent to Apache's broker with tokens for each role.

The table is that of ``tests/unit/broker/access/test_decision_table.py``, which Geminga is held to without Java. What
would change what others may do, or end the broker, is asked for by those alone who must be refused.
"""

from __future__ import annotations

import re

import pytest

from geminga.broker.rest.calls.routing import Route
from support.processes.apache_rights import Asked
from unit.broker.access.test_decision_table import (
    BUILT,
    PRINCIPALS,
    Who,
    is_let_in,
    methods_of,
    refusals,
    shown,
)
from unit.broker.rest.test_doors import body_of, path_of

pytestmark = pytest.mark.integration

CELLS_MIN = 7000
#: Geminga's own, and pages for which nobody is asked.
OURS = (
    "/lake",
    "/holes",
    "/sourcePositions",
    "/standings/",
    "/bufferSnapshot/",
    "/status.html",
    "/metrics",
    "/configuration/synchronization",
    "/brokers/backup",
    "/leftTopics",
    "/shadowState",
    "/consumers",
    "/tail",
    # Theirs stand where WebSockets are switched on, and are not of the broker's web service.
    "/ws/",
    "/proxy-stats/",
)
#: Bodies of which one is of the type that a path takes: Apache's broker reads the body before it asks who sends it.
BODIES = (b"{}", b"1", b"true", b'["x"]', b'"NONE"', b'"None"', b'"Full"', b'"LATEST"')
#: Paths that are asked for by those alone who must be refused.
CHANGES_RIGHTS = (
    "unload",
    "terminate",
    "shutdown",
    "split",
    "permissions",
    "OnTopics",
    "/tenants/",
    "/clusters/",
    "AuthMode",
)

#: ``method path`` -> why Apache's broker answers otherwise; those of rights are rows of docs/compatibility.md.
DIFFERENT: dict[str, str] = {
    r"(POST|DELETE) /admin/v2/namespaces/{n}/delayedDelivery": "a super-user's there, as no other policy",
    r"\w+ /admin/v2/{t}/maxMessageSize": "401 there, as no other policy of a topic",
    r"POST /admin/v2/{t}/createMissedPartitions": "who may look the topic up there",
    r"PUT /admin/v2/{t}/properties": "everybody there, whatever the role",
    r"\w+ /admin/v3/transactions/.*": "everybody there",
    r"GET /admin/v2/{t}/getMessageIdByIndex": "what the broker is configured for is said first there",
    r"DELETE /admin/v2/{t}/(schemaValidationEnforced|compaction)": "not there",
    r"GET /admin/v2/namespaces/{n}/scanOffloadedLedgers": "refused with 500 there",
    r"PUT /admin/v2/namespaces/{n}/{bundle}/split": "the body is read first there",
    r"GET /admin/v2/namespaces/{cluster}/antiAffinity/{group}": "the tenant of the query is asked for first there",
    r"POST /admin/v2/namespaces/{n}/(replication|allowedClusters)": "403 says that there is no such cluster",
}
#: Of who comes by a proxy that is a super-user: there it has to be among the tenant's administrators for these.
OF_ADMINISTRATORS = r"\w+ /admin/v2/(namespaces/{n}/propert.*|schemas/.*/compatibility|{t}/permissions.*)"


def body_for(apache: Asked, method: str, route: Route) -> bytes | None:
    """One that the path takes, as far as types go; found by asking as a stranger, who is refused."""
    if method not in ("POST", "PUT"):
        return None
    for body in (body_of(route), *BODIES):
        status, text = apache.ask(method, path_of(route), body, role="stranger")
        if status in (401, 403) or b"deserialize" not in text:
            return body
    return body_of(route)


@pytest.mark.timeout(900)
def test_apache_refuses_the_same_with_the_same_status(apache: Asked) -> None:
    cells, found = 0, {}
    by_who = {who: {id(route): status for route, status in refusals(who)} for who in filter(is_let_in, PRINCIPALS)}
    for route in BUILT:
        if any(part in route.path for part in OURS):
            continue
        for method in methods_of(route):
            body = body_for(apache, method, route)
            changes_rights = method == "DELETE" or any(part in route.path for part in CHANGES_RIGHTS)
            is_asked_by_all = method == "GET" or not changes_rights
            for who, refused in by_who.items():
                expected = refused.get(id(route))
                if expected is None and not is_asked_by_all:
                    continue
                status, text = apache.ask(method, path_of(route), body, **who._asdict())
                cells += 1
                is_same = status == expected if expected is not None else status not in (401, 403)
                if not is_same and not is_known(who, f"{method} {shown(route).partition(' ')[2]}"):
                    found.setdefault(f"{shown(route)}: {expected} | {status}", []).append((_name(who), text[:90]))
    print(f"{cells} cells")
    told = [f"{line} {len(whom)} {[name for name, _ in whom][:6]} {whom[0][1]!r}" for line, whom in found.items()]
    assert not found, "\n".join(told)
    assert cells >= CELLS_MIN


def _name(who: Who) -> str:
    return f"{who.role} for {who.original}" if who.original else who.role


def is_known(who: Who, call: str) -> bool:
    """Whether that difference is one of those above."""
    if who == Who("proxy-root", "owner") and re.fullmatch(_escaped(OF_ADMINISTRATORS), call):
        return True
    return any(re.fullmatch(_escaped(pattern), call) for pattern in DIFFERENT)


def _escaped(pattern: str) -> str:
    """With its braces as they stand."""
    return pattern.replace("{", r"\{").replace("}", r"\}")
