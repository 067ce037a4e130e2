"""``brokers`` over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga import Standalone
from support.rest import Rest

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
    assert all(value in ("", "****") for key, value in values.items() if "password" in key.lower())
    assert rest.get("brokers/configuration/").json == []
    assert rest.get("brokers/configuration/values").json == {}
    assert rest.post("brokers/configuration/maxMessageSize/%2F1").status == 412
    assert rest.delete("brokers/configuration/maxMessageSize").status == 412
