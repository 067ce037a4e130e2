"""Every path of the REST with numbers and texts at their borders in the path, the query and the body.

What is tried comes from the routes, and from the names that their handlers ask for: a new path is tried as soon as it
is there. No answer is a 500, and the broker serves on.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.standalone_process import ROOT, StandaloneProcess

from geminga.broker.rest.families import all_rows
from support.house.leaks import LEAKS
from support.house.weekly_sample import week
from support.processes.hostile import COMPLAINTS, Session, Witness

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SEED = os.environ.get("HOSTILE_SEED") or week()
#: Requests of the short test for each path and method.
REQUESTS_PER_ROUTE = 2
REQUESTS_PER_LOOK = 50
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
)
VALUES = (*NUMBERS, None, True, False, "", "x", "9" * 5000, [], [1], {}, {"x": 1})
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


def names_asked_for() -> tuple[list[str], list[str]]:
    """Keys of bodies, and names of queries, that any handler asks for."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "src/geminga/broker/rest").glob("*.py"))
    )
    keys = set(re.findall(r'(?:body|document|quota|given|value|policies)\.get\("(\w+)"', text))
    queries = set(re.findall(r'query_params\.get\("(\w+)"', text)) | set(re.findall(r'flag\(request, "(\w+)"', text))
    return sorted(keys | {"ledgerId", "entryId", "limit", "limitSize", "limitTime", "policy"}), sorted(queries)


def requests_of(method: str, path: str, keys: list[str], queries: list[str]) -> Iterator[Case]:
    """One thing changed at a time."""
    parameters = re.findall(r"{([^}]+)}", path)
    sane = {name: SANE.get(name, "1") for name in parameters}
    for name in parameters:
        for value in (*NUMBERS, *TEXTS):
            yield Case(method, filled(path, {**sane, name: str(value)}), None)
    usual = filled(path, sane)
    for name in queries:
        for value in (*NUMBERS, *TEXTS):
            yield Case(method, f"{usual}?{name}={value}", None)
    if method in ("PUT", "POST"):
        for value in VALUES:
            yield Case(method, usual, value)
            yield Case(method, usual, dict.fromkeys(keys, value))
            for key in keys:
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
        said = text.replace(path, "")
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
    keys, queries = names_asked_for()
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
                cases = list(requests_of(method, route.path, keys, queries))
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


def test_sample_of_requests_at_their_borders_kills_nothing(tmp_path) -> None:
    run_requests(tmp_path, REQUESTS_PER_ROUTE)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_every_request_at_its_borders_kills_nothing(tmp_path) -> None:
    run_requests(tmp_path, None)
