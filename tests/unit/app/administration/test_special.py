"""Commands of more than one request, at a broker that answers what it is told to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from geminga.admin._http import JSON
from geminga.admin.errors import NotFoundError, PreconditionFailedError
from geminga.app.administration import special
from geminga.app.administration.arguments import UsageError, given
from geminga.app.administration.asking import carried_out_by
from geminga.app.administration.groups import commands_of
from geminga.app.administration.session import FailedError
from geminga.app.administration.special import FUNCTIONS
from support.processes.asked_broker import AskedBroker

TOPIC: Final = "/admin/v2/persistent/a/b/t"


def documents_of(broker: AskedBroker) -> list[tuple[str, Any]]:
    """What was changed, each change with its body."""
    return [(one.change, one.document) for one in broker.asked if one.change]


def run(broker: AskedBroker, words: str, *rest: str) -> Any:
    group, _, name = words.partition(" ")
    command = commands_of(group)[name]
    assert not command.function or command.function in FUNCTIONS
    return carried_out_by(broker, command, given(command, rest, {"yes": True}), asks=True)


@pytest.mark.parametrize(
    ("threshold", "first"), [("0", 3), ("10", 3), ("11", 3), ("29", 3), ("30", 2), ("60", None), ("100", None)]
)
def test_the_newest_ledgers_that_are_small_enough_together_stay(threshold: str, first: int | None) -> None:
    ledgers = [{"ledgerId": 1, "size": 30}, {"ledgerId": 2, "size": 20}, {"ledgerId": 3, "size": 0}]
    broker = AskedBroker({f"{TOPIC}/internalStats": {"ledgers": ledgers, "currentLedgerSize": 10}})
    said = run(broker, "topics offload", "a/b/t", "-s", threshold)
    if first is None:
        assert (said, broker.changes) == ("Nothing to offload", [])
    else:
        place = {"ledgerId": first, "entryId": 0, "partitionIndex": -1, "batchIndex": -1}
        assert documents_of(broker) == [(f"PUT {TOPIC}/offload", place)]
        assert said == f"Offload triggered for a/b/t for messages before {first}:0:-1"


@pytest.mark.parametrize(
    ("status", "said"),
    [("NOT_RUN", "has not been run for a/b/t"), ("RUNNING", "is currently running"), ("SUCCESS", "was a success")],
)
def test_how_far_it_is(status: str, said: str) -> None:
    assert said in run(AskedBroker({f"{TOPIC}/offload": {"status": status}}), "topics offload-status", "a/b/t")


def test_who_waits_is_told_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(special, "_LOOK_EVERY_S", 0)
    coming = iter(["RUNNING", "RUNNING", "SUCCESS"])
    broker = AskedBroker(lambda _: json.dumps({"status": next(coming)}).encode())
    assert run(broker, "topics compaction-status", "a/b/t", "-w") == "Compaction was a success"
    assert len(broker.asked) == 3


def test_what_went_wrong_is_an_error() -> None:
    broker = AskedBroker({f"{TOPIC}/compaction": {"status": "ERROR", "lastError": "no room"}})
    with pytest.raises(FailedError, match="Compaction of a/b/t failed: no room"):
        run(broker, "topics compaction-status", "a/b/t")


def test_topics_that_an_expression_fits_are_deleted_and_those_that_were_not_are_named() -> None:
    refused = PreconditionFailedError("x", 412, "in use")
    names = ["persistent://a/b/one", "persistent://a/b/two", "persistent://a/b/other"]
    broker = AskedBroker({"/admin/v2/persistent/a/b": names, "/admin/v2/persistent/a/b/two": refused})
    with pytest.raises(FailedError, match=r"1 of 2 topics were deleted, not persistent://a/b/two: 412 in use"):
        run(broker, "topics delete", "persistent://a/b/(one|two)", "-r")
    assert broker.changes == ["DELETE /admin/v2/persistent/a/b/one", "DELETE /admin/v2/persistent/a/b/two"]


def test_topics_of_a_file_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "topics"
    path.write_text("a/b/one\n\nnon-persistent://a/b/two\n", encoding="utf-8")
    broker = AskedBroker()
    run(broker, "topics delete", str(path), "--from-file")
    assert broker.changes == [
        "DELETE /admin/v2/persistent/a/b/one",
        "DELETE /admin/v2/non-persistent/a/b/two",
    ]
    with pytest.raises(UsageError, match="No such file"):
        run(broker, "topics delete", str(tmp_path / "none"), "--from-file")
    with pytest.raises(UsageError, match="expected tenant/namespace/EXPRESSION"):
        run(broker, "topics delete", "a", "-r")


def test_nothing_is_deleted_where_one_name_can_not_be(tmp_path: Path) -> None:
    """Exit code 2 says that nothing was done."""
    path, broker = tmp_path / "topics", AskedBroker()
    path.write_text("a/b/one\nno/such/kind/of/name\na/b/two\n")
    with pytest.raises(UsageError, match="no/such/kind/of/name"):
        run(broker, "topics delete", str(path), "--from-file")
    with pytest.raises(UsageError, match="there is nothing for 'a/b/two' to be"):
        run(broker, "topics delete", "a/b/one", "a/b/two")
    with pytest.raises(UsageError, match="either --regex or --from-file may be given"):
        run(broker, "topics delete", str(path), "--from-file", "--regex")
    path.write_bytes(b"a/b/one\n\xff\n")
    with pytest.raises(UsageError, match="no UTF-8"):
        run(broker, "topics delete", str(path), "--from-file")
    assert broker.changes == []


def test_a_cluster_is_left_by_tenants_of_it_alone() -> None:
    broker = AskedBroker(
        {
            "/admin/v2/tenants": ["one", "both"],
            "/admin/v2/tenants/one": {"allowedClusters": ["c"]},
            "/admin/v2/tenants/both": {"allowedClusters": ["c", "d"]},
            "/admin/v2/namespaces/one": ["one/a"],
        }
    )
    run(broker, "clusters delete", "c", "--all")
    assert broker.changes == [
        "DELETE /admin/v2/namespaces/one/a",
        "DELETE /admin/v2/tenants/one",
        "DELETE /admin/v2/clusters/c",
    ]


def test_messages_are_peeked_as_many_as_there_are() -> None:
    path = f"{TOPIC}/subscription/s/position"
    over = NotFoundError("x", 404, "Message not found")
    assert len(run(AskedBroker({f"{path}/3": over}), "topics peek-messages", "a/b/t", "-s", "s", "-n", "5")) == 2
    assert run(AskedBroker({f"{path}/1": over}), "topics peek-messages", "a/b/t", "-s", "s") == []
    with pytest.raises(NotFoundError, match="no topic"):
        run(AskedBroker({f"{path}/1": NotFoundError("x", 404, "no topic")}), "topics peek-messages", "a/b/t", "-s", "s")


def test_the_brokers_own_cluster_is_marked() -> None:
    answers = {"/admin/v2/clusters": ["a", "b"], "/admin/v2/brokers/configuration/runtime": {"clusterName": "b"}}
    assert run(AskedBroker(answers), "clusters list", "-c") == ["a", "b(*)"]


def test_partitions_are_looked_up_by_broker() -> None:
    answers = {f"{TOPIC}/partitions": {"partitions": 2}}
    answers |= {f"/lookup/v2/topic/persistent/a/b/t-partition-{one}": {"brokerUrl": "u"} for one in (0, 1)}
    assert run(AskedBroker(answers), "topics partitioned-lookup", "a/b/t", "-s") == {
        "u": ["a/b/t-partition-0", "a/b/t-partition-1"]
    }


def test_partitions_with_properties_are_a_type_of_their_own() -> None:
    broker = AskedBroker()
    run(broker, "topics create-partitioned-topic", "a/b/t", "-p", "2", "-m", "x=y")
    run(broker, "topics create-partitioned-topic", "a/b/t", "-p", "2")
    assert [one.content_type for one in broker.asked if one.change] == [
        "application/vnd.partitioned-topic-metadata+json",
        JSON,
    ]


def test_a_shadow_has_as_many_partitions() -> None:
    broker = AskedBroker({f"{TOPIC}/partitions": {"partitions": 2}})
    run(broker, "topics create-shadow-topic", "a/b/s", "-s", "a/b/t")
    properties = {"PULSAR.SHADOW_SOURCE": "a/b/t"}
    assert documents_of(broker) == [
        ("PUT /admin/v2/persistent/a/b/s/partitions", {"partitions": 2, "deleted": False, "properties": properties})
    ]
    found = run(AskedBroker({f"{TOPIC}/properties": properties}), "topics get-shadow-source", "a/b/t")
    assert found == "a/b/t"


@pytest.mark.parametrize(
    ("words", "rest", "said"),
    [
        ("topics update-subscription-properties", ["t", "-s", "s"], "either --property or --clear"),
        ("topics expire-messages", ["t", "-s", "s"], "either --expireTime or --position"),
        ("topics reset-cursor", ["t", "-s", "s"], "either --messageId or --time"),
        ("topics reset-cursor", ["t", "-s", "s", "-m", "x"], "--messageId: 'x' is no place"),
        ("schemas get", ["t", "-a", "-v", "1"], "either --version or --all-version"),
        ("namespaces create", ["a/b", "-b", "-1"], "--bundles: expected 1 or more"),
        ("namespaces unload", ["a/b", "-d", "x"], "--destinationBroker needs --bundle"),
        ("namespaces split-bundle", ["a/b", "-b", "x", "-bt", "HOT"], "exactly one of --bundle, --bundle-type"),
        ("resource-quotas get", ["-n", "a/b"], "both --namespace and --bundle"),
        ("namespaces unload", ["a"], "a namespace is tenant/namespace, not 'a'"),
    ],
)
def test_wrong_words_are_told(words: str, rest: list[str], said: str) -> None:
    broker = AskedBroker()
    with pytest.raises(UsageError, match=said):
        run(broker, words, *rest)
    assert broker.changes == []


NAMESPACE: Final = "/admin/v2/namespaces/a/b/replication"
SET: Final = (f"POST {NAMESPACE}", ["east", "north"])


def two_clusters() -> AskedBroker:
    """A namespace in two clusters, with a topic that is copied to both others and one that is not."""
    west = {"replication": {"west": {"replicationBacklog": 7}, "north": {"replicationBacklog": 100}}}
    return AskedBroker(
        {
            NAMESPACE: ["east", "west"],
            "/admin/v2/persistent/a/b": ["persistent://a/b/t", "persistent://a/b/u"],
            f"{TOPIC}/stats": west,
            "/admin/v2/persistent/a/b/u/stats": {"replication": {}},
        }
    )


def test_a_cluster_is_taken_out_after_a_question_with_counts() -> None:
    command, broker = commands_of("namespaces")["set-clusters"], two_clusters()
    asked = given(command, ["a/b", "-c", "east,north"], {})
    with pytest.raises(UsageError) as caught:
        carried_out_by(broker, command, asked, asks=True)
    assert f"{caught.value}".startswith(
        "Taking west out of a/b, with 2 topics and 7 entries that are not copied there yet, can not be undone"
    )
    assert broker.changes == []
    # Not where nothing is taken out, it was agreed to, or the program asks nothing.
    carried_out_by(broker, command, asked, asks=False)
    run(broker, "namespaces set-clusters", "a/b", "-c", "east,north")
    added = given(command, ["a/b", "-c", "east,west,north"], {})
    carried_out_by(broker, command, added, asks=True)
    assert documents_of(broker) == [SET, SET, (f"POST {NAMESPACE}", ["east", "west", "north"])]
