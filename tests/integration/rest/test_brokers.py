"""``brokers`` over HTTP."""

from __future__ import annotations

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
