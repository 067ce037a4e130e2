"""Every path of the REST with numbers and texts at their borders in the path, the query and the body.

What is tried comes from the routes, and from the names that their handlers ask for: a new path is tried as soon as it
is there. No answer is a 500, and the broker serves on.
"""

from __future__ import annotations

import ast
import http.client
import json
import os
import random
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.broker.policies.core.rows import ROWS
from geminga.broker.rest.calls.routing import Route
from geminga.broker.rest.families import all_rows
from support.house.leaks import LEAKS
from support.house.weekly_sample import week
from support.processes.hostile import COMPLAINTS, Session, Witness

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SEED = os.environ.get("HOSTILE_SEED") or week()
#: Requests of the short test for each path and method.
REQUESTS_PER_ROUTE = 3
REQUESTS_PER_LOOK = 50


def nested(depth: int) -> object:
    """An object in an object in an object."""
    made: object = 1
    for _ in range(depth):
        made = {"x": made}
    return made


NUMBERS = (
    *(0, 1, -1, -2, 64, 65_536, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 32) - 1, (1 << 53) + 1),
    *((1 << 63) - 1, 1 << 63, -(1 << 63), (1 << 64) - 1, 10**30, 10**400, 0.5, -0.0, 1e308),
)
TEXTS = (
    "x",
    "%00",
    "%FF%FE",
    "..%2F..",
    "a" * 600,
    "9" * 5000,
    "%F0%9F%98%80",
    "-",
    "1e3",
    "0x10",
    "%D9%A3",
    "+1",
    "1_0",
    # Half of a character, a line's end as Unicode has it, one of ASCII.
    "%ED%A0%80",
    "%E2%80%A8",
    "%0D%0Ax",
)
VALUES = (
    *(*NUMBERS, None, True, False, "", "x", "9" * 5000, [], [1], [None], [""], {}, {"x": 1}, {"": None}),
    *("\ud800", "\x00", "a\nb", "..", ["\ud800"], {"\ud800": "\ud800"}, nested(200), [nested(200)]),
)
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{1,60}")
#: Characters that a reason has room for in any case.
REASON_PART = 3000
#: Values that are tried of each name in a query, and members of policies that are tried alone, of each path.
QUERIES_OF_A_NAME = 6
POLICY_MEMBERS = 8
SANE = {
    "domain:domain": "persistent",
    "domain": "persistent",
    "tenant": "hostile",
    "namespace": "rest",
    "topic": "t",
    "subscription": "hostile-1",
    "cluster": "standalone",
    "key": "maxConcurrentLookupRequest",
    "role": "r",
    "ledger": "0",
    "entry": "0",
}
#: Nothing is to be created by the million here; that is another test's subject.
SETTINGS = {
    "maxNumPartitionsPerPartitionedTopic": 8,
    "brokerDeleteInactiveTopicsEnabled": "false",
    "activeConsumerFailoverDelayTimeMillis": 0,
}


class Case(NamedTuple):
    """One request."""

    method: str
    path: str
    body: object


@cache
def names_in(module: str) -> frozenset[str]:
    """Names that the module of a handler has as texts: of members of bodies, and of queries."""
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8"))
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return frozenset(text for text in texts if _NAME.fullmatch(text))


@cache
def names_of_policies() -> frozenset[str]:
    """Members of policies, which are checked where no handler is."""
    return frozenset().union(*(names_in(row.check.__module__) for row in ROWS))


def requests_of(method: str, route: Route, choose: random.Random) -> Iterator[Case]:
    """One thing changed at a time, and all at once; of queries some values each, chosen at random."""
    path = route.path
    parameters = re.findall(r"{([^}]+)}", path)
    sane = {name: SANE.get(name, "1") for name in parameters}
    for name in parameters:
        for value in (*NUMBERS, *TEXTS):
            yield Case(method, filled(path, {**sane, name: str(value)}), None)
    usual = filled(path, sane)
    module = route.endpoint.__module__
    names = sorted(names_in(module))
    for name in names:
        for value in choose.sample((*NUMBERS, *TEXTS), QUERIES_OF_A_NAME):
            yield Case(method, f"{usual}?{name}={value}", None)
    if method not in ("PUT", "POST"):
        return
    policies = sorted(names_of_policies()) if module.endswith(".policies") else []
    for value in VALUES:
        yield Case(method, usual, value)
        yield Case(method, usual, dict.fromkeys([*names, *policies], value))
        for key in (*names, *choose.sample(policies, min(POLICY_MEMBERS, len(policies)))):
            yield Case(method, usual, {"ledgerId": 0, "entryId": 0, "policy": "producer_exception", key: value})


def filled(path: str, values: dict[str, str]) -> str:
    """The path with its parameters."""
    return re.sub(r"{([^}]+)}", lambda match: values[match.group(1)], path)


def ask(connection: http.client.HTTPConnection, case: Case) -> int:
    """The status."""
    body = None if case.body is None and case.method in ("GET", "DELETE") else json.dumps(case.body)
    connection.request(case.method, case.path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    if answer.status >= 400:
        # The path that was asked for may come back, and who asks for bookies is told of them.
        path = case.path.partition("?")[0]
        # A reason has an end, a path need not.
        said = text.replace(path, "").replace(path[:REASON_PART], "")
        said = said if "bookie" not in path else said.replace("bookie", "")
        assert not LEAKS.search(said), f"{case}: {text}"
    return answer.status


def prepare(connection: http.client.HTTPConnection) -> None:
    """What a request may have deleted."""
    for path, body in (
        ("/admin/v2/tenants/hostile", {"allowedClusters": ["standalone"]}),
        ("/admin/v2/namespaces/hostile/rest", None),
        ("/admin/v2/persistent/hostile/rest/t", None),
        ("/admin/v2/persistent/hostile/rest/t/subscription/hostile-1", None),
    ):
        ask(connection, Case("PUT", path, body))


#: Answered 503 as in Pulsar: no such listener; a log of a subscription that acknowledged in no transaction.
MEANT_503 = re.compile(r"listenerName=|/pendingAckInternalStats/")


#: Asked for once, by tests of its own.
ENDS_THE_BROKER = ("/admin/v2/brokers/shutdown",)
#: Answers that last an hour; HEAD decides the same.
LASTS = "/tail"


def run_requests(tmp_path: Path, count: int | None) -> None:
    choose = random.Random(SEED)
    print(f"HOSTILE_SEED={SEED}")
    process = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=SETTINGS)
    with process:
        connection = http.client.HTTPConnection("127.0.0.1", process.web_port, timeout=30)
        witness = Witness(process.broker_port)
        tried, failed = 0, []
        for route in all_rows():
            if route.path in ENDS_THE_BROKER:
                continue
            for method in ["HEAD"] if route.path.endswith(LASTS) else sorted((route.methods or set()) - {"HEAD"}):
                cases = list(requests_of(method, route, choose))
                for case in cases if count is None else choose.sample(cases, min(count, len(cases))):
                    if tried % REQUESTS_PER_LOOK == 0 or method == "DELETE":
                        prepare(connection)
                    if tried % REQUESTS_PER_LOOK == 0:
                        witness.look()
                    tried += 1
                    status = ask(connection, case)
                    # 501: what is not built; 503 as in Pulsar.
                    if status >= 500 and status != 501 and not (status == 503 and MEANT_503.search(case.path)):
                        connection.close()  # as the server does then
                        failed.append(f"{status} {str(case)[:300]}")
        print(f"{tried} requests, deaths {int(not process.is_running)}, slowest look {witness.slowest_s * 1000:.0f} ms")
        assert process.is_running, process.log_tail()
        log = process.log.read_text(encoding="utf-8", errors="replace")
        assert not failed, "\n".join(failed[:40]) + log[-3000:]
        assert not COMPLAINTS.search(log), log[-3000:]
        witness.look()
        witness.close()
        connection.close()
        assert process.stop() == 0
        # What was stored of it does not keep the broker from starting and serving.
        process.start()
        Session(process.broker_port).close()


def test_names_that_handlers_ask_for_are_tried() -> None:
    tried = {
        (route.path.rpartition("/")[2], name) for route in all_rows() for name in names_in(route.endpoint.__module__)
    }
    expected = {
        ("partitions", "checkAllowAutoCreation"),
        ("{namespace}", "replication_clusters"),
        ("replication", "allowed_clusters"),
        ("{cluster}", "authenticationPlugin"),
        ("schema", "compatibility"),
        ("backlogQuota", "backlogQuotaType"),
    }
    assert expected <= tried
    assert {"dispatchThrottlingRateInMsg", "limitSize", "retentionTimeInMinutes"} <= names_of_policies()
    for route in all_rows():
        assert names_in(route.endpoint.__module__), route.path


def test_sample_of_requests_at_their_borders_kills_nothing(tmp_path) -> None:
    run_requests(tmp_path, REQUESTS_PER_ROUTE)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_request_at_its_borders_kills_nothing(tmp_path) -> None:
    run_requests(tmp_path, None)
