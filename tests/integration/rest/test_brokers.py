"""``brokers`` over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.standalone_process import StandaloneProcess

from geminga import Standalone
from geminga.model.secret import DOTS
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


def test_broker_says_that_it_is_well(rest: Rest, broker) -> None:
    for path in ("brokers/health", "brokers/health?topicVersion=V2", "brokers/ready"):
        answer = rest.get(path)
        assert (answer.status, answer.body) == (200, b"ok")
    own = f"127.0.0.1:{broker.web_port}"
    assert rest.get("brokers").json == [own]
    assert rest.get("brokers/standalone").json == [own]
    assert rest.get("brokers/nowhere").json == [own]
    assert rest.get("brokers/leaderBroker").json == {"serviceUrl": f"http://{own}", "brokerId": own}
    assert rest.get("brokers/version").body.decode()[0].isdigit()


def test_load_balancer_is_told_while_the_status_file_is_there(rest: Rest, tmp_path: Path) -> None:
    assert rest.get("/status.html").status == 404
    file = tmp_path / "status"
    with Standalone(tmp_path / "data", config={"statusFilePath": str(file)}) as running:
        own = Rest(running.web_service_url)
        assert own.get("/status.html").status == 404
        file.touch()
        answer = own.get("/status.html")
        assert (answer.status, answer.body) == (200, b"OK")
        file.unlink()
        assert own.get("/status.html").status == 404


def test_broker_tells_its_configuration_and_hides_secrets(rest: Rest) -> None:
    values = rest.get("brokers/configuration/runtime").json
    assert values["clusterName"] == "standalone"
    assert values["httpMaxRequestSize"] == "100000"
    assert all(value in ("", DOTS) for key, value in values.items() if "password" in key.lower())
    assert rest.post("brokers/configuration/maxMessageSize/%2F1").status == 412
    assert rest.delete("brokers/configuration/maxMessageSize").status == 412


def test_settings_change_at_run_time_and_last_over_a_restart(tmp_path: Path) -> None:
    path = "brokers/configuration"
    with Standalone(tmp_path) as running:
        own = Rest(running.web_service_url)
        assert "allowAutoSubscriptionCreation" in own.get(f"{path}/").json
        assert own.get(f"{path}/values").json == {}
        assert own.post(f"{path}/loadBalancerSheddingExcludedNamespaces/a%2Fb,c%2Fd%20").status == 200
        assert own.post(f"{path}/forceDeleteNamespaceAllowed/true").status == 200
        assert own.get(f"{path}/runtime").json["forceDeleteNamespaceAllowed"] == "true"
        # What is no name and no value changes nothing, and says why.
        for call in ("a%2Fb/1", "%00/1", "maxTopicsPerNamespace/%FF", "maxTopicsPerNamespace/%zz", f"{'n' * 600}/1"):
            answer = own.post(f"{path}/{call}")
            assert (answer.status in (400, 412), bool(answer.reason)) == (True, True), call
        assert own.post(f"{path}/maxTopicsPerNamespace/{'9' * 5000}").status == 412
        values = {"loadBalancerSheddingExcludedNamespaces": "a/b,c/d ", "forceDeleteNamespaceAllowed": "true"}
        assert own.get(f"{path}/values").json == values
    with Standalone(tmp_path) as running:
        own = Rest(running.web_service_url)
        running.create_namespace("public/full")
        assert own.put("persistent/public/full/t").status == 204
        assert own.delete("namespaces/public/full?force=true").status == 204
        assert own.delete(f"{path}/forceDeleteNamespaceAllowed").status == 200
        assert own.get(f"{path}/runtime").json["forceDeleteNamespaceAllowed"] == "false"
        assert own.delete(f"{path}/forceDeleteNamespaceAllowed").status == 200


def test_figures_have_pulsars_shape_and_say_nothing_that_is_not_there(rest: Rest, namespace: str) -> None:
    assert rest.put(f"persistent/{namespace}/t").status == 204
    assert rest.put(f"persistent/{namespace}/t/subscription/s").status == 204
    said = rest.get("broker-stats/metrics").json
    assert all(set(one) == {"metrics", "dimensions"} for one in said)
    (own,) = (one["metrics"] for one in said if one["dimensions"] == {"namespace": namespace})
    assert (own["brk_no_of_subscriptions"], own["brk_no_of_consumers"], own["brk_msg_backlog"]) == (1, 0, 0)
    (connections,) = (one["metrics"] for one in said if one["dimensions"].get("metric") == "broker_connection")
    assert connections["brk_active_connections"] <= connections["brk_connection_created_total_count"]
    beans = rest.get("broker-stats/mbeans").json
    (process,) = (one["metrics"] for one in beans if one["dimensions"] == {"MBean": "geminga:type=Process"})
    assert process["process_resident_memory_bytes"] > 1 << 20
    answer = rest.get("broker-stats/allocator-stats/default")
    assert (answer.status, "no Java program" in answer.reason) == (406, True)
    assert rest.get("brokers/backlog-quota-check").status == 204


def test_a_broker_in_another_program_is_not_ended_by_rest(rest: Rest) -> None:
    answer = rest.post("brokers/shutdown?maxConcurrentUnloadPerSec=1")
    assert (answer.status, "lives in another program" in answer.reason) == (412, True)
    assert rest.get("brokers/ready").status == 200


def test_a_process_that_is_shut_down_by_rest_ends_in_good_order_and_keeps_its_data(tmp_path: Path) -> None:
    with StandaloneProcess(tmp_path / "data", log=tmp_path / "log") as process:
        own = Rest(process.web_url)
        assert own.put("persistent/public/default/kept").status == 204
        assert own.post("brokers/shutdown?maxConcurrentUnloadPerSec=x").status == 404
        assert own.post("brokers/shutdown?maxConcurrentUnloadPerSec=-7&forcedTerminateTopic=false").status == 204
        assert process.process is not None
        assert process.process.wait(30) == 0
        process.start()
        assert own.get("persistent/public/default").json == ["persistent://public/default/kept"]
        assert process.stop() == 0
