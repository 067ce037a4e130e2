"""A broker with a lake, as its clients and operators see it: directory and bucket, every kind of message."""

from __future__ import annotations

import pulsar
import pytest
from pulsar import ConsumerType, InitialPosition
from typer.testing import CliRunner

import geminga
from geminga.app.commands.cli import app_for
from geminga.broker.rest.topic_routes import lake
from geminga.broker.topic.offload import LOOK_S
from geminga.client.blocking import connect
from support.house.waiting import until
from support.house.weekly_sample import sampled
from support.processes.s3_server import S3Server
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

#: Pulsar's words.
SUPPORTED = "The driver is not supported, support value: S3,aws-s3,google-cloud-storage,filesystem,azureblob,aliyun-oss"
CONFIG = {
    "managedLedgerMaxEntriesPerLedger": 20,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerOffloadDeletionLagMs": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
}


@pytest.fixture(params=sampled("a broker's lake", ["directory", "bucket"], 1))
def settings(request, tmp_path, monkeypatch):
    """Where the lake is."""
    if request.param == "directory":
        (tmp_path / "lake").mkdir()
        yield {**CONFIG, "managedLedgerOffloadDriver": "filesystem", "fileSystemURI": str(tmp_path / "lake")}
        return
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with S3Server() as s3:
        yield {
            **CONFIG,
            "managedLedgerOffloadDriver": "aws-s3",
            "s3ManagedLedgerOffloadBucket": "lake",
            "s3ManagedLedgerOffloadServiceEndpoint": s3.endpoint,
        }


@pytest.fixture
def served(settings, tmp_path):
    """A broker on a directory, and how to start it again."""
    with geminga.Standalone(tmp_path / "data", settings) as broker:
        yield broker


def publish(client, topic: str) -> list[bytes]:
    """Messages of all kinds that a client sends; their payloads."""
    sent: list[bytes] = []
    for number, codec in enumerate(pulsar.CompressionType.__members__.values()):
        with_batches = client.create_producer(topic, compression_type=codec, batching_max_publish_delay_ms=50)
        for index in range(30):
            data = b"%d-%d-" % (number, index) + b"x" * 50
            with_batches.send_async(
                data,
                lambda *_: None,
                properties={"n": str(index)},
                partition_key=f"k{index % 3}",
                event_timestamp=index + 1,
            )
            sent.append(data)
        with_batches.flush()
        with_batches.close()
        alone = client.create_producer(topic, compression_type=codec, batching_enabled=False)
        for index in range(12):
            data = b"%d-alone-%d" % (number, index)
            alone.send(data)
            sent.append(data)
        alone.close()
    chunked = client.create_producer(topic, chunking_enabled=True, batching_enabled=False)
    sent.append(bytes(range(256)) * 50_000)
    chunked.send(sent[-1])
    chunked.close()
    large = client.create_producer(topic, batching_enabled=False)
    sent.append(b"l" * (5 * 1024 * 1024 - 10_000))
    large.send(sent[-1])
    for index in range(25):  # so that all of the above is in closed ledgers
        sent.append(b"end-%d" % index)
        large.send(sent[-1])
    large.close()
    return sent


def read_all(client, topic: str, count: int) -> list[bytes]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    found = [reader.read_next(20_000).data() for _ in range(count)]
    assert not reader.has_message_available()
    reader.close()
    return found


def offload(rest: Rest, name: str, *options: str):
    result = CliRunner().invoke(
        app_for(["lake"]), ["lake", "offload", name, "--admin-url", rest.base_url, "--wait", *options]
    )
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def only_in_the_lake(rest: Rest, path: str) -> int:
    return sum(not ledger["isOnBookies"] for ledger in rest.get(f"{path}/lake").json["ledgers"])


def test_everything_that_was_published_is_read_from_the_lake(settings, tmp_path):
    topic, path = "persistent://public/default/lake", "persistent/public/default/lake"
    with geminga.Standalone(tmp_path / "data", settings) as broker:
        rest = Rest(broker.web_service_url)
        client = pulsar.Client(broker.service_url)
        client.subscribe(topic, "late", initial_position=InitialPosition.Earliest).close()
        sent = publish(client, topic)
        assert "success" in offload(rest, topic)
        stats = rest.get(f"{path}/stats").json
        assert stats["offloadedStorageSize"] > 10_000_000
        assert stats["lastOffloadSuccessTimeStamp"] > 0
        assert rest.get(f"{path}/offload").json["firstUnoffloadedMessage"]["ledgerId"] > 0
        client.close()
    with geminga.Standalone(tmp_path / "data", settings) as broker:
        rest = Rest(broker.web_service_url)
        client = pulsar.Client(broker.service_url)
        internal = rest.get(f"{path}/internalStats").json
        away = [ledger["offloaded"] for ledger in internal["ledgers"]]
        assert sum(away) >= 5
        until(lambda: only_in_the_lake(rest, path) >= 5, "the lake", 20)
        assert read_all(client, topic, len(sent)) == sent
        late = client.subscribe(topic, "late", ConsumerType.Shared)
        messages = [late.receive(20_000) for _ in range(100)]
        assert [message.data() for message in messages][:42] == sent[:42]
        assert messages[1].properties() == {"n": "1"}
        assert (messages[1].partition_key(), messages[1].event_timestamp()) == ("k1", 2)
        late.seek(messages[50].message_id())
        late.close()
        result = CliRunner().invoke(app_for(["lake"]), ["lake", "list", topic, "--admin-url", rest.base_url, "--json"])
        assert result.exit_code == 0
        assert '"isOffloaded": true' in result.output
        assert rest.call("DELETE", f"{path}?force=true").status == 204
        client.close()


def test_restored_ledgers_are_what_they_were_and_need_no_lake(settings, tmp_path):
    topic, path = "persistent://public/default/back", "persistent/public/default/back"

    def read(broker: geminga.Standalone) -> list[tuple[bytes, bytes]]:
        client = pulsar.Client(broker.service_url)
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = [reader.read_next(20_000) for _ in range(len(sent))]
        client.close()
        return [(message.message_id().serialize(), message.data()) for message in found]

    with geminga.Standalone(tmp_path / "data", settings) as broker:
        rest = Rest(broker.web_service_url)
        client = pulsar.Client(broker.service_url)
        sent = [b"%d" % index for index in range(130)]
        for batched, codec in ((True, pulsar.CompressionType.LZ4), (False, pulsar.CompressionType.ZSTD)):
            one = client.create_producer(topic, compression_type=codec, batching_enabled=batched)
            half = sent[:65] if batched else sent[65:]
            for number, data in enumerate(half):
                one.send_async(data, lambda *_: None, partition_key="k")
                if number % 3 == 0:
                    one.flush()
            one.flush()
            one.close()
        client.close()
        before = read(broker)
        offload(rest, topic)
    with geminga.Standalone(tmp_path / "data", settings) as broker:
        rest = Rest(broker.web_service_url)
        read(broker)
        until(lambda: only_in_the_lake(rest, path) >= 4, "the lake", 20)
        ledgers = rest.get(f"{path}/lake").json["ledgers"]
    # An orderly stop: what was deleted in the bookie's sight is deleted for good.
    with geminga.Standalone(tmp_path / "data", settings) as broker:
        rest = Rest(broker.web_service_url)
        read(broker)
        result = CliRunner().invoke(app_for(["lake"]), ["lake", "restore", topic, "--admin-url", rest.base_url])
        assert result.exit_code == 0, (result.output, result.exception)
        assert "0 are in the lake" in result.output
        again = rest.get(f"{path}/lake").json
        assert again["restore"]["restored"] == sum(ledger["isOffloaded"] for ledger in ledgers)
        assert not any(ledger["isOffloaded"] or ledger["uid"] for ledger in again["ledgers"])
        assert {ledger["ledgerId"]: ledger["size"] for ledger in again["ledgers"]}.items() >= {
            ledger["ledgerId"]: ledger["size"] for ledger in ledgers if ledger["isOffloaded"]
        }.items()
        until(lambda: not rest.get(f"{path}/lake").json["filesToDelete"], "the files", 20)
        assert read(broker) == before
    with geminga.Standalone(tmp_path / "data", {**settings, "managedLedgerOffloadDriver": ""}) as broker:
        assert read(broker) == before


def test_policies_are_followed_and_what_can_not_be_is_refused(settings, tmp_path):
    rest_of = Rest
    with geminga.Standalone(None, {**settings, "managedLedgerOffloadDriver": ""}) as broker:
        rest = rest_of(broker.web_service_url)
        path = "persistent/public/default/ruled"
        rest.put(path)
        assert rest.put(f"{path}/offload", {"ledgerId": 1, "entryId": 0}).status == 412
        assert rest.get(f"{path}/offload").json["status"] == "NOT_RUN"
        namespace = "namespaces/public/default"
        for driver in ("google-cloud-storage", "azureblob", "aliyun-oss", "tape", None):
            answer = rest.post(f"{namespace}/offloadPolicies", {"managedLedgerOffloadDriver": driver})
            assert answer.status == 412
            words = "of Apache Pulsar is not built" if driver and driver != "tape" else SUPPORTED
            assert words in answer.reason
        assert rest.post(f"{namespace}/offloadPolicies", {}).reason == SUPPORTED
        bare = rest.post(f"{namespace}/offloadPolicies", {"managedLedgerOffloadDriver": "aws-s3"})
        assert bare.reason == "The bucket must be specified for namespace offload."
        policies = {
            "managedLedgerOffloadDriver": "filesystem" if "fileSystemURI" in settings else "aws-s3",
            "managedLedgerOffloadBucket": "lake",
            "managedLedgerOffloadThresholdInBytes": 0,
        }
        assert (
            rest.post(f"{namespace}/offloadPolicies", {**policies, "s3ManagedLedgerOffloadCredentialId": "x"}).status
            == 400
        )
        outside = {**policies, "managedLedgerOffloadDriver": "filesystem", "fileSystemURI": "file:///etc"}
        assert rest.post(f"{namespace}/offloadPolicies", outside).status == 412
        assert rest.post(f"{namespace}/offloadPolicies", policies).status == 204
        assert rest.get(f"{namespace}/offloadPolicies").json["managedLedgerOffloadThresholdInBytes"] == 0
        assert rest.put(f"{namespace}/offloadThreshold", 10).status == 204
        assert (
            rest.post(f"{path}/offloadPolicies", {**policies, "managedLedgerOffloadThresholdInBytes": 7}).status == 204
        )
        until(lambda: rest.get(f"{path}/lake").json["thresholdBytes"] == 7, "the lake", 10)
        assert rest.call("DELETE", f"{path}/offloadPolicies").status == 204
        until(lambda: rest.get(f"{path}/lake").json["thresholdBytes"] == 0, "the lake", 10)
        assert rest.call("DELETE", f"{namespace}/removeOffloadPolicies").status == 204
        until(lambda: rest.get(f"{path}/lake").json["driver"] == "", "the lake", 10)


def test_a_root_is_for_one_cluster_and_the_other_is_told_whose_it_is(settings, tmp_path):
    topic, path = "persistent://public/default/shared-root", "persistent/public/default/shared-root"
    rooms = {"first": tmp_path / "one", "second": tmp_path / "two"}
    for cluster, told in (("first", "SUCCESS"), ("second", "ERROR"), ("first", "SUCCESS")):
        with geminga.Standalone(rooms[cluster], {**settings, "clusterName": cluster}) as broker:
            rest = Rest(broker.web_service_url)
            with connect(broker.service_url) as client, client.create_producer(topic, batching_enabled=False) as one:
                sent = [one.send(b"%d" % index) for index in range(25)]
            ledger = {"ledgerId": sent[-1].ledger_id(), "entryId": 0, "partitionIndex": -1}
            assert rest.call("PUT", f"{path}/offload", ledger).status == 204
            until(lambda rest=rest: rest.get(f"{path}/offload").json["status"] != "RUNNING", "the offload", 20)
            found = rest.get(f"{path}/offload").json
            assert found["status"] == told, found
            if told == "ERROR":
                assert "is the lake of cluster 'first'" in found["lastError"]
                assert "not of 'second'" in found["lastError"]
                assert not any(one["isOffloaded"] or one["uid"] for one in rest.get(f"{path}/lake").json["ledgers"])


def test_paths_are_pulsars_but_one():
    paths = [route.path.rpartition("/")[2] for route in [*lake.ROUTES, *lake.NAMESPACE_ROUTES]]
    assert sorted(set(paths)) == ["lake", "offload", "offloadPolicies", "removeOffloadPolicies", "restore"]
    assert LOOK_S > 0
