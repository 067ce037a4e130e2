"""Whether messages wait, and how exactly: broker, namespace, topic."""

from __future__ import annotations

import pytest

from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

VALUE = {"tickTime": 60_000, "active": True, "maxDeliveryDelayInMillis": 5000}


def test_delayed_delivery_is_set_and_removed_at_namespace_and_topic(rest: Rest, namespace: str) -> None:
    of_namespace, topic = f"namespaces/{namespace}/delayedDelivery", f"persistent/{namespace}/waits"
    of_topic = f"{topic}/delayedDelivery"
    assert rest.put(topic).status == 204
    assert rest.get(of_namespace).body == b""
    assert rest.get(of_topic).body == b""
    assert rest.get(f"{of_topic}?applied=true").json == {**VALUE, "tickTime": 1000, "maxDeliveryDelayInMillis": 0}
    assert rest.post(of_namespace, VALUE).status == 204
    assert rest.get(of_namespace).json == VALUE
    assert rest.get(f"{of_topic}?applied=true").json == VALUE
    own = {"tickTime": 5000, "active": False, "maxDeliveryDelayInMillis": 0}
    assert rest.post(of_topic, own).status == 204
    assert rest.get(of_topic).json == own
    assert rest.delete(of_topic).status == 204
    assert rest.get(of_topic).body == b""
    assert rest.get(f"{of_topic}?applied=true").json == VALUE
    assert rest.delete(of_namespace).status == 204
    assert rest.get(of_namespace).body == b""


@pytest.mark.parametrize("body", [{}, {"active": True}, {"active": True, "tickTime": 0}])
def test_delayed_delivery_that_makes_no_sense_is_refused(rest: Rest, namespace: str, body) -> None:
    assert rest.post(f"namespaces/{namespace}/delayedDelivery", body).status in (400, 412)
