"""Looks at what a topic stores, over HTTP."""

from __future__ import annotations

import re
from collections import Counter

import pulsar
import pytest

from geminga import Standalone
from geminga.broker.rest.families import all_rows
from support.processes.official import quiet_client
from support.worlds.rest import EARLIEST, Rest, publish

pytestmark = pytest.mark.integration

INDEXING = {"brokerEntryMetadataInterceptors": "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"}


def id_of(message_id: pulsar.MessageId) -> dict[str, int]:
    return {"ledgerId": message_id.ledger_id(), "entryId": message_id.entry_id()}


def test_message_is_examined_by_its_number_from_either_end(rest: Rest, namespace: str, client) -> None:
    path = f"persistent/{namespace}/t/examinemessage"
    ids = publish(client, f"persistent://{namespace}/t", 3)
    for query, body in (
        ("?initialPosition=earliest&messagePosition=1", b"m0"),
        ("?initialPosition=earliest&messagePosition=3", b"m2"),
        ("?initialPosition=earliest&messagePosition=99", b"m2"),
        ("?initialPosition=latest&messagePosition=3", b"m0"),
        ("?messagePosition=2", b"m1"),
        ("", b"m2"),
    ):
        assert rest.get(f"{path}{query}").body == body, query
    answer = rest.get(path)
    assert answer.headers["x-pulsar-message-id"] == f"{ids[2].ledger_id()}:{ids[2].entry_id()}"
    refused = rest.get(f"{path}?initialPosition=latest&messagePosition=4")
    assert (refused.status, "3 messages" in refused.reason) == (412, True)


def test_bytes_behind_a_message_shrink_to_none(rest: Rest, namespace: str, client) -> None:
    path = f"persistent/{namespace}/t/backlogSize"
    ids = publish(client, f"persistent://{namespace}/t", 4)
    whole = rest.put(path, EARLIEST).json
    assert whole == rest.get(f"persistent/{namespace}/t/stats").json["storageSize"]
    assert [rest.put(path, id_of(each)).json for each in ids] == [whole * left // 4 for left in (3, 2, 1, 0)]
    assert rest.put(path, {"ledgerId": ids[0].ledger_id() + 1, "entryId": 0}).json == 0
    for body in (None, "earliest", [], {"ledgerId": 1}, {"ledgerId": "x", "entryId": 0}):
        assert rest.put(path, body).status == 400, body


def test_backlog_is_analyzed_and_stays_as_it_is(rest: Rest, namespace: str, client) -> None:
    path = f"persistent/{namespace}/t/subscription/s/analyzeBacklog"
    ids = publish(client, f"persistent://{namespace}/t", 4)
    rest.put(f"persistent/{namespace}/t/subscription/s", EARLIEST)
    rest.post(f"persistent/{namespace}/t/subscription/s/skip/1")
    found = rest.post(path).json
    assert found == {
        "entries": 3,
        "messages": 3,
        "markerMessages": 0,
        "filterRejectedEntries": 0,
        "filterAcceptedEntries": 3,
        "filterRescheduledEntries": 0,
        "filterRejectedMessages": 0,
        "filterAcceptedMessages": 3,
        "filterRescheduledMessages": 0,
        "aborted": False,
        "firstMessageId": f"{ids[1].ledger_id()}:{ids[1].entry_id()}",
        "lastMessageId": f"{ids[3].ledger_id()}:{ids[3].entry_id()}",
    }
    assert rest.post(path, id_of(ids[2])).json["entries"] == 2
    assert rest.post(path).json == found
    rest.post(f"persistent/{namespace}/t/subscription/s/skip_all")
    nothing = rest.post(path).json
    assert (nothing["entries"], "firstMessageId" in nothing) == (0, False)
    assert rest.post(path, {"ledgerId": ids[0].ledger_id(), "entryId": -1}).status == 412


def test_message_is_found_by_its_index_where_messages_are_numbered(tmp_path) -> None:
    with Standalone(config=INDEXING) as broker:
        rest = Rest(broker.web_service_url)
        path = "persistent/public/default/t/getMessageIdByIndex"
        client = quiet_client(broker.service_url, tmp_path)
        try:
            producer = client.create_producer(
                "persistent://public/default/t", batching_enabled=True, batching_max_publish_delay_ms=1000
            )
            ids = []
            for count in (1, 3, 2):
                for number in range(count):
                    producer.send_async(b"m%d" % number, lambda _, message_id: ids.append(message_id))
                producer.flush()
        finally:
            client.close()
        entries = [id_of(ids[index]) for index in (0, 1, 4)]
        # The index of an entry is that of its last message: 0, 3 and 5.
        for index, entry in ((0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 2)):
            found = rest.get(f"{path}?index={index}").json
            assert {key: found[key] for key in ("ledgerId", "entryId")} == entries[entry], index
        for index, status in ((6, 404), (1 << 62, 404), (-1, 404), ("x", 404)):
            assert rest.get(f"{path}?index={index}").status == status, index
        assert rest.get("persistent/public/default/nowhere/getMessageIdByIndex?index=0").status == 404


def test_what_answers_json_is_json(rest: Rest, namespace: str, client) -> None:
    """Every path that is read: with what was set before, nothing of which is plain."""
    topic, name = f"persistent/{namespace}/t", 'a "b" \\c'
    publish(client, f"persistent://{namespace}/t", 2)
    rest.put(f"{topic}/subscription/s")
    rest.put(f"namespaces/{namespace}/properties", {"x": name, name: name})
    rest.post(f"namespaces/{namespace}/permissions/x", ["produce"])
    assert rest.call("POST", f"namespaces/{namespace}/antiAffinity", raw=name.encode()).status == 204
    names = {
        **dict(zip(("tenant", "namespace"), namespace.split("/"), strict=True)),
        **dict.fromkeys(("subscription", "form_subscription", "path_subscription"), "s"),
        "topic": "t",
        "domain": "persistent",
        "cluster": "standalone",
        "bundle": "0x00000000_0x40000000",
        "broker": rest.get("brokers").json[0],
    }
    seen, told = Counter[str](), Counter[int]()
    for route in all_rows():
        # Sockets and live tails have no end, and tests of their own.
        if "GET" not in (route.methods or ()) or route.path.startswith("/ws/") or route.path.endswith("/tail"):
            continue
        path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: names.get(found[1], "1"), route.path)
        answer = rest.get(path + ("?tenant=public" if "antiAffinity/" in path else ""))
        media_type = answer.headers.get("content-type", "").partition(";")[0]
        seen[media_type] += 1
        told[answer.status] += 1
        if media_type == "application/json":
            assert isinstance(answer.json, dict | list | str | int | float | bool), path
    # Most of them have something to tell.
    assert seen["application/json"] > 60
    assert told[200] > 100
    for path in ("antiAffinity", "property/x"):
        answer = rest.get(f"namespaces/{namespace}/{path}")
        assert (answer.body, answer.headers["content-type"]) == (name.encode(), "text/plain; charset=utf-8")
