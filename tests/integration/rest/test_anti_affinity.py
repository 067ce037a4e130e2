"""Anti-affinity groups over HTTP, and what a broker reports of its load."""

from __future__ import annotations

import pulsar
import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_a_namespace_is_put_into_a_group_and_taken_out(rest: Rest, namespace: str) -> None:
    path = f"namespaces/{namespace}/antiAffinity"
    tenant = namespace.partition("/")[0]
    assert (rest.get(path).status, rest.get(path).body) == (200, b"")
    bundles = rest.get(f"namespaces/{namespace}/bundles").json
    # The name as it is, as pulsar-admin sends it, and as JSON, as Go's client does.
    for body in (b"racks", b'"racks"'):
        assert rest.call("POST", path, raw=body).status == 204
        assert rest.get(path).body == b"racks"
        assert namespace in rest.get(f"namespaces/standalone/antiAffinity/RACKS?tenant={tenant}").json
    assert rest.get(f"namespaces/{namespace}/bundles").json == bundles
    assert rest.get(f"namespaces/standalone/antiAffinity/other?tenant={tenant}").json == []
    assert rest.delete(path).status == 204
    assert rest.get(path).body == b""
    assert rest.get(f"namespaces/standalone/antiAffinity/racks?tenant={tenant}").json == []


def test_what_can_be_no_group_is_refused(rest: Rest, namespace: str) -> None:
    path = f"namespaces/{namespace}/antiAffinity"
    for body, status in (
        (b" ", 412),
        (b'" "', 412),
        (b"\xff", 400),
        (b'"x', 400),
        (b'"\\ud800"', 400),
        (b"x" * 513, 412),
    ):
        assert rest.call("POST", path, raw=body).status == status
    assert rest.get("namespaces/standalone/antiAffinity/x").status == 400
    assert rest.get("namespaces/nowhere/antiAffinity/x?tenant=public").status == 412
    for call in (rest.get, rest.delete):
        assert call("namespaces/public/nowhere/antiAffinity").status == 404
    assert rest.call("POST", "namespaces/public/nowhere/antiAffinity", raw=b"x").status == 404


def test_a_broker_that_is_alone_reports_what_it_serves(rest: Rest, client: pulsar.Client, namespace: str) -> None:
    producer = client.create_producer(f"persistent://{namespace}/reported")
    report = rest.get("broker-stats/load-report").json
    assert report["loadReportType"] == "LocalBrokerData"
    assert report["numProducers"] >= 1
    assert report["numTopics"] >= report["numBundles"] >= 1
    assert any(bundle.startswith(f"{namespace}/0x") for bundle in report["bundles"])
    producer.close()
