"""Two clusters with stores of their own that keep their configuration alike by a topic, with our client and copying.

What is said in one holds in the other; what both said before stays as it is; a cluster that was away hears of it.
"""

from __future__ import annotations

import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.standalone_process import StandaloneProcess
from typer.testing import CliRunner

from geminga.app.commands.cli import app_for
from support.house.waiting import until

pytestmark = pytest.mark.integration

NAMES = ("east", "west")
#: Until a change has gone round, on a machine that is busy.
LIMIT_S = 30.0
NAMESPACES = "/admin/v2/namespaces"
TOPICS = "/admin/v2/persistent"
SYNC = "persistent://public/sync/events"
LATE, KEPT = "persistent://shop/orders/late", "persistent://shop/orders/t"
SETTINGS = {"configurationMetadataSyncEventTopic": SYNC, "transactionCoordinatorEnabled": False}


def ask(broker: StandaloneProcess, method: str, path: str, body: object = None) -> object:
    """The answer; for one that is no success its status."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(broker.web_url + path, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
            return json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        return error.code


def examined(broker: StandaloneProcess) -> dict[str, Any]:
    """What the doctor says of configuration kept alike, when the other cluster was told how everything came to be."""
    words = ["doctor", "--configuration", "--json", "--admin-url", broker.web_url]
    found: list[dict[str, Any]] = []

    def is_told() -> bool:
        result = CliRunner().invoke(app_for(words), words)
        found.append(json.loads(result.stdout))
        return all(each["isTold"] for each in found[-1]["state"]["clusters"].values())

    until(is_told, "the other cluster to be told", LIMIT_S)
    return found[-1]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, StandaloneProcess]]:
    found = {}
    with contextlib.ExitStack() as stack:
        for name in NAMES:
            settings = {"clusterName": name, **SETTINGS}
            broker = StandaloneProcess(tmp_path / name, log=tmp_path / f"{name}.log", settings=settings)
            found[name] = stack.enter_context(broker)
        for name, other in (NAMES, NAMES[::-1]):
            data = {"serviceUrl": found[other].web_url, "brokerServiceUrl": found[other].service_url}
            assert ask(found[name], "PUT", f"/admin/v2/clusters/{other}", data) is None
            assert ask(found[name], "POST", "/admin/v2/tenants/public", {"allowedClusters": [*NAMES]}) is None
            policies = {"replication_clusters": [*NAMES]}
            assert ask(found[name], "PUT", f"{NAMESPACES}/public/sync", policies) is None
        yield found


def test_what_is_said_in_one_cluster_holds_in_the_other(clusters: dict[str, StandaloneProcess]) -> None:
    east, west = clusters.values()
    assert ask(east, "PUT", "/admin/v2/tenants/shop", {"allowedClusters": [*NAMES]}) is None
    assert ask(east, "PUT", f"{NAMESPACES}/shop/orders", {"replication_clusters": [*NAMES]}) is None
    assert ask(east, "POST", f"{NAMESPACES}/shop/orders/messageTTL", 3600) is None
    assert ask(east, "PUT", f"{TOPICS}/shop/orders/t/partitions", 2) is None
    until(lambda: ask(west, "GET", f"{NAMESPACES}/shop/orders/messageTTL") == 3600, "the change", LIMIT_S)
    until(
        lambda: (
            ask(west, "GET", f"{TOPICS}/shop/orders/t/partitions")
            == ask(east, "GET", f"{TOPICS}/shop/orders/t/partitions")
        ),
        "the change",
        LIMIT_S,
    )
    # Each goes on living in what was its own before.
    assert ask(east, "GET", f"{NAMESPACES}/public/default/replication") == ["east"]
    assert ask(west, "GET", f"{NAMESPACES}/public/default/replication") == ["west"]
    # Until one of them deletes it: no start makes it again.
    assert ask(west, "DELETE", f"{NAMESPACES}/public/default") is None
    until(lambda: ask(east, "GET", f"{NAMESPACES}/public") == ["public/sync"], "the deletion", LIMIT_S)
    # The doctor of either tells how it stands: here both had pulsar/system of their own.
    for broker, other in ((east, "west"), (west, "east")):
        told = examined(broker)
        assert told["state"]["topic"] == SYNC
        assert told["state"]["clusters"] == {other: {"isHeard": True, "isTold": True}}
        assert "/admin/policies/pulsar/system" in told["state"]["differing"]["paths"]
        assert {each["cause"] for each in told["findings"]} <= {"configuration-differs", "configuration-undone"}
        assert told["lines"][0].startswith("told last: /admin/")
        assert told["lines"][2].startswith(f"{other}: ")
    # Said where the other can not hear of it, which is killed.
    east.kill()
    assert ask(west, "POST", f"{NAMESPACES}/shop/orders/messageTTL", 7200) is None
    east.start()
    until(lambda: ask(east, "GET", f"{NAMESPACES}/shop/orders/messageTTL") == 7200, "the change", LIMIT_S)
    for broker in clusters.values():
        assert ask(broker, "GET", f"{NAMESPACES}/public") == ["public/sync"]
    # Deleted in one cluster, it stays where partitions are stored, and goes where none are.
    for name in ("t", "late"):
        assert ask(east, "PUT", f"{TOPICS}/shop/orders/{name}/partitions", 2) in (None, 409)
    until(lambda: ask(west, "GET", f"{TOPICS}/shop/orders/partitioned") == [LATE, KEPT], "the change", LIMIT_S)
    assert ask(west, "POST", f"{TOPICS}/shop/orders/t/createMissedPartitions") is None
    for name in ("t", "late"):
        assert ask(east, "DELETE", f"{TOPICS}/shop/orders/{name}/partitions") is None
    until(lambda: ask(west, "GET", f"{TOPICS}/shop/orders/partitioned") == [KEPT], "the change", LIMIT_S)
    assert ask(east, "GET", f"{TOPICS}/shop/orders/partitioned") == []
