"""Messages over real HTTP: the page's examples, redirections aside, and clients that go away or take nothing."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pulsar
import pytest

from geminga import Standalone
from geminga.model.errors import ConfigurationError
from support.house.source_tree import ROOT
from support.house.waiting import until
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

PAGE = ROOT / "docs" / "http-messages.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples of the page are curl's")
def test_examples_of_the_page_do_what_it_says(broker: Standalone, namespace: str, tmp_path: Path) -> None:
    def told(script: str) -> str:
        script = script.replace("public/default", namespace)
        environment = {**os.environ, "WEB": broker.web_service_url}
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    publish, consume, follow = blocks("bash")
    shown_results, shown_message = (json.loads(block) for block in blocks("json"))
    rest = Rest(broker.web_service_url)
    rest.put(f"persistent/{namespace}/orders")
    results = json.loads(told(publish))
    assert results.keys() == shown_results.keys()
    assert [one.keys() for one in results["messagePublishResults"]] == [
        one.keys() for one in shown_results["messagePublishResults"]
    ]
    assert '"acknowledged":2' in told(consume)
    received = json.loads((tmp_path / "received.json").read_text(encoding="utf-8"))["messages"]
    assert [one["payload"] for one in received] == ["first", "second"]
    assert received[1].keys() == shown_message.keys()
    assert rest.get(f"persistent/{namespace}/orders/stats").json["subscriptions"]["billing"]["msgBacklog"] == 0
    events = told(follow)
    assert [json.loads(line[6:])["payload"] for line in events.splitlines() if line.startswith("data: ")] == [
        "first",
        "second",
    ]


def test_official_client_reads_what_was_published_with_a_schema(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    class Reading(pulsar.schema.Record):
        place = pulsar.schema.String()
        value = pulsar.schema.Integer()

    topic = f"persistent://{namespace}/t"
    schema = pulsar.schema.AvroSchema(Reading)
    consumer = client.subscribe(topic, "s", schema=schema)
    answer = rest.post(
        f"/topics/persistent/{namespace}/t",
        {"messages": [{"payload": json.dumps({"place": {"string": "x"}, "value": 3}), "key": "k"}], "schemaVersion": 0},
    )
    assert answer.status == 200
    message = consumer.receive(20_000)
    assert (message.value().place, message.value().value, message.partition_key()) == ("x", 3, "k")


def test_client_s_batch_is_received_and_acknowledged_over_http(
    rest: Rest, namespace: str, client: pulsar.Client
) -> None:
    consumers = f"/topics/persistent/{namespace}/t/subscriptions/s/consumers"
    consumer = f"{consumers}/{rest.post(consumers).json['consumer']}"
    producer = client.create_producer(
        f"persistent://{namespace}/t", batching_enabled=True, batching_max_publish_delay_ms=1000
    )
    for index in range(3):
        producer.send_async(b"m%d" % index, None)
    producer.flush()
    messages = rest.post(f"{consumer}/receive?waitMs=20000").json["messages"]
    assert [one["payload"] for one in messages] == ["m0", "m1", "m2"]
    ids = [one["messageId"] for one in messages]
    assert rest.post(f"{consumer}/acknowledge", {"messageIds": ids}).json == {"acknowledged": 3, "unknown": []}
    assert rest.delete(consumer).status == 204
    stats = rest.get(f"persistent/{namespace}/t/stats").json["subscriptions"]["s"]
    assert (stats["msgBacklog"], stats["consumers"]) == (0, [])


def asked(port: int, method: str, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}
    finally:
        connection.close()


def test_page_of_a_listed_origin_may_read_and_publish_and_one_of_a_stranger_neither() -> None:
    page, other = "https://console.example", "https://evil.example"
    path = "/topics/persistent/public/default/t"
    json_body = {"Content-Type": "application/json", "Content-Length": "0"}
    with Standalone(config={"gemingaHttpCorsAllowedOrigins": page}) as broker:
        port = broker.web_port
        question = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
        status, headers = asked(port, "OPTIONS", path, {"Origin": page, **question})
        assert (status, headers["access-control-allow-origin"]) == (204, page)
        assert "POST" in headers["access-control-allow-methods"]
        status, headers = asked(port, "OPTIONS", path, {"Origin": other, **question})
        assert (status, "access-control-allow-origin" in headers) == (405, False)
        # An error can be read, too: the body is missing.
        status, headers = asked(port, "POST", path, {"Origin": page, **json_body})
        assert (status, headers["access-control-allow-origin"]) == (400, page)
        status, headers = asked(port, "POST", path, {"Origin": other, **json_body})
        assert (status, headers.get("access-control-allow-origin"), headers["vary"]) == (403, None, "Origin")
        assert asked(port, "GET", f"{path}/tail", {"Origin": other})[0] == 403
        status, headers = asked(port, "GET", "/admin/v2/tenants", {"Origin": page})
        assert (status, headers["access-control-allow-origin"]) == (200, page)
        assert asked(port, "GET", "/admin/v2/tenants", {"Origin": page, "Host": "evil.example"})[0] == 403


def test_broker_does_not_start_where_every_page_would_have_its_visitor_s_credentials() -> None:
    settings = {"gemingaHttpCorsAllowedOrigins": "*", "gemingaHttpCorsAllowCredentials": True}
    with pytest.raises(ConfigurationError, match="list the origins that are meant"), Standalone(config=settings):
        pass


def test_follower_that_hangs_up_and_one_that_takes_nothing_leave_nothing(tmp_path: Path) -> None:
    settings = {"gemingaHttpBodyTimeoutSeconds": 1, "dispatcherMaxReadSizeBytes": 100_000}
    with Standalone(config=settings) as broker:
        rest = Rest(broker.web_service_url)
        path = "/topics/persistent/public/default/t"

        def readers() -> int:
            return len(rest.get("persistent/public/default/t/stats").json["subscriptions"])

        def connected() -> socket.socket:
            found = socket.socket()
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            found.connect(("127.0.0.1", broker.web_port))
            found.sendall(f"GET {path}/tail HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert b"text/event-stream" in found.recv(1000)
            return found

        rest.put("persistent/public/default/t")
        with connected():
            until(lambda: readers() == 1, "a reader")
        until(lambda: readers() == 0, "no reader")
        with connected():
            for _ in range(20):
                rest.post(path, {"messages": [{"payload": "x" * 100_000} for _ in range(5)]})
            until(lambda: readers() == 0, "no reader")
