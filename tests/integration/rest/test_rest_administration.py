"""Brokers, clusters, tenants, namespaces and their policies over HTTP."""

from __future__ import annotations

import socket

import pytest

from support.rest import Rest

pytestmark = pytest.mark.integration


def test_broker_says_that_it_is_well(rest: Rest, broker) -> None:
    for path in ("brokers/health", "brokers/health?topicVersion=V2", "brokers/ready", "/status.html"):
        answer = rest.get(path)
        assert (answer.status, answer.body) == (200, b"ok")
    own = f"127.0.0.1:{broker.web_port}"
    assert rest.get("brokers").json == [own]
    assert rest.get("brokers/standalone").json == [own]
    assert rest.get("brokers/nowhere").status == 404
    assert rest.get("brokers/leaderBroker").json == {"serviceUrl": f"http://{own}", "brokerId": own}
    assert rest.get("brokers/version").body.decode()[0].isdigit()


def test_broker_tells_its_configuration_and_hides_secrets(rest: Rest) -> None:
    values = rest.get("brokers/configuration/runtime").json
    assert values["clusterName"] == "standalone"
    assert values["httpMaxRequestSize"] == "100000"
    assert all(value in ("", "****") for key, value in values.items() if "password" in key.lower())
    assert rest.get("brokers/configuration/").json == []
    assert rest.get("brokers/configuration/values").json == {}
    assert rest.post("brokers/configuration/maxMessageSize/%2F1").status == 412
    assert rest.delete("brokers/configuration/maxMessageSize").status == 412


def test_cluster_lives_and_dies(rest: Rest) -> None:
    assert "standalone" in rest.get("clusters").json
    assert rest.get("clusters/standalone").json["brokerServiceUrl"].startswith("pulsar://")
    assert rest.put("clusters/east", {"serviceUrl": "http://e"}).status == 204
    assert rest.put("clusters/east", {}).status == 409
    assert rest.post("clusters/east", {"serviceUrl": "http://f"}).status == 204
    assert rest.get("clusters/east").json == {"serviceUrl": "http://f"}
    assert rest.delete("clusters/east").status == 204
    assert rest.delete("clusters/east").status == 404
    assert rest.get("clusters/east").reason
    assert rest.put("clusters/no%20good", {}).status == 412


def test_tenant_lives_and_dies(rest: Rest) -> None:
    assert rest.put("tenants/acme", {"adminRoles": [], "allowedClusters": ["standalone"]}).status == 204
    assert rest.put("tenants/acme", {"allowedClusters": ["standalone"]}).status == 409
    assert rest.get("tenants/acme").json == {"adminRoles": [], "allowedClusters": ["standalone"]}
    assert rest.post("tenants/acme", {"allowedClusters": ["standalone"], "adminRoles": ["r"]}).status == 204
    assert "acme" in rest.get("tenants").json
    assert rest.put("tenants/x", {}).status == 412
    assert rest.put("namespaces/acme/orders").status == 204
    assert rest.delete("tenants/acme").status == 409
    assert rest.delete("tenants/acme?force=true").status == 405
    assert rest.delete("namespaces/acme/orders").status == 204
    assert rest.delete("tenants/acme").status == 204
    assert rest.get("tenants/acme").status == 404


def test_namespace_lives_and_dies(rest: Rest) -> None:
    assert rest.put("namespaces/public/ns1").status == 204
    assert rest.put("namespaces/public/ns1").status == 409
    assert rest.put("namespaces/nobody/ns1").status == 404
    assert rest.put("namespaces/public/no%20good").status == 412
    assert "public/ns1" in rest.get("namespaces/public").json
    assert rest.get("namespaces/public/ns1").json["bundles"]["numBundles"] == 4
    assert rest.get("namespaces/public/ns1/bundles").json["numBundles"] == 4
    assert rest.get("namespaces/public/ns1/topics").json == []
    assert rest.get("namespaces/public/ns1/topics?mode=SOME").status == 412
    assert rest.delete("namespaces/public/ns1").status == 204
    assert rest.delete("namespaces/public/ns1").status == 404
    assert rest.get("namespaces/public/ns1/topics").status == 404


def test_namespace_with_topics_is_deleted_by_force_only(rest: Rest, namespace: str) -> None:
    assert rest.put(f"persistent/{namespace}/t").status == 204
    assert rest.put(f"persistent/{namespace}/p/partitions", 2).status == 204
    assert rest.put(f"non-persistent/{namespace}/n/partitions", 2).status == 204
    assert rest.delete(f"namespaces/{namespace}").status == 409
    assert rest.delete(f"namespaces/{namespace}?force=true").status == 204
    assert rest.get(f"namespaces/{namespace}").status == 404
    assert rest.get(f"persistent/{namespace}/t/stats").status == 404


@pytest.mark.parametrize(
    ("policy", "method", "value"),
    [
        ("deduplication", "POST", True),
        ("messageTTL", "POST", 3600),
        ("retention", "POST", {"retentionTimeInMinutes": 10, "retentionSizeInMB": -1}),
        ("schemaCompatibilityStrategy", "PUT", "FORWARD"),
        (
            "autoTopicCreation",
            "POST",
            {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        ),
        ("autoSubscriptionCreation", "POST", {"allowAutoSubscriptionCreation": False}),
    ],
)
def test_policy_is_set_read_and_removed(rest: Rest, namespace: str, policy: str, method: str, value) -> None:
    path = f"namespaces/{namespace}/{policy}"
    assert rest.call(method, path, value).status == 204
    assert rest.get(path).json == value
    assert rest.delete(path).status == 204
    answer = rest.get(path)
    assert (answer.status, answer.body) == (204, b"")
    assert rest.call(method, f"namespaces/public/nowhere/{policy}", value).status == 404


@pytest.mark.parametrize(
    ("policy", "method", "value", "status"),
    [
        ("deduplication", "POST", "yes", 400),
        ("messageTTL", "POST", -1, 412),
        ("retention", "POST", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 0}, 412),
        ("retention", "POST", 3, 400),
        ("schemaCompatibilityStrategy", "PUT", "SIDEWAYS", 400),
        ("autoTopicCreation", "POST", {"allowAutoTopicCreation": True, "topicType": "round"}, 406),
        ("autoTopicCreation", "POST", {"allowAutoTopicCreation": True, "topicType": "partitioned"}, 406),
        ("autoSubscriptionCreation", "POST", {}, 406),
    ],
)
def test_policy_that_makes_no_sense_is_refused(rest: Rest, namespace: str, policy, method, value, status) -> None:
    answer = rest.call(method, f"namespaces/{namespace}/{policy}", value)
    assert answer.status == status
    assert answer.reason


def test_backlog_quota_is_set_by_type(rest: Rest, namespace: str) -> None:
    path = f"namespaces/{namespace}/backlogQuota"
    quota = {"limitSize": 1000, "limitTime": -1, "policy": "producer_exception"}
    assert rest.post(path, quota).status == 204
    assert rest.post(f"{path}?backlogQuotaType=message_age", {**quota, "limitTime": 9}).status == 204
    assert rest.get(f"{path}Map").json == {"destination_storage": quota, "message_age": {**quota, "limitTime": 9}}
    assert rest.delete(f"{path}?backlogQuotaType=message_age").status == 204
    assert list(rest.get(f"{path}Map").json) == ["destination_storage"]
    assert rest.post(f"{path}?backlogQuotaType=what", quota).status == 400
    assert rest.post(path, {"policy": "none"}).status == 400


def test_permission_is_granted_and_revoked(rest: Rest, namespace: str) -> None:
    path = f"namespaces/{namespace}/permissions"
    assert rest.get(path).json == {}
    assert rest.post(f"{path}/alice", ["produce", "consume"]).status == 204
    assert rest.get(path).json == {"alice": ["produce", "consume"]}
    assert rest.post(f"{path}/alice", ["fly"]).status == 400
    assert rest.delete(f"{path}/alice").status == 204
    assert rest.get(path).json == {}


def test_errors_are_pulsars(rest: Rest) -> None:
    assert rest.get("nothing/here").status == 404
    assert rest.get("nothing/here").reason
    assert rest.get("/elsewhere").status == 404
    assert rest.post("clusters").status == 405
    assert rest.call("PUT", "clusters/x", raw=b"{").status == 400
    assert rest.call("PUT", "clusters/x", raw=b"[" * 100_000).status in (400, 413)
    assert rest.call("PUT", "clusters/x", raw=b'"text"').status == 400
    assert rest.call("PUT", "clusters/x", raw=b'{"a":"' + b"x" * 200_000 + b'"}').status == 413
    assert rest.get("clusters/" + "x" * 600).status == 412


@pytest.mark.parametrize("garbage", [b"\x00\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b""])
def test_bytes_that_are_no_http_close_the_connection(broker, rest: Rest, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", broker.web_port), timeout=10) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    assert not received or received.startswith(b"HTTP/1.1 4")
    assert rest.get("brokers/health").status == 200


def test_connection_is_kept_for_several_requests(broker) -> None:
    request = b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(("127.0.0.1", broker.web_port), timeout=10) as connection:
        connection.sendall(request * 3)
        received = b""
        while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b'["standalone"]'):
            chunk = connection.recv(4096)
            assert chunk
            received += chunk
