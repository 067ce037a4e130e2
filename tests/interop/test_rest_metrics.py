"""``/metrics``: Apache's broker and Geminga's are told the same stories; names and labels of what they expose.

What is meant to differ is declared here, each with a line in ``docs/compatibility.md`` (Statistics).
"""

from __future__ import annotations

import os
import re
from typing import Final

import pytest
from tools.standalone_process import StandaloneProcess

from geminga.client import ConsumerType
from geminga.client.blocking import connect
from support.house.exposition import Sample, label_names, samples
from support.processes.official import quiet_client
from support.stories.statistics_stories import Teller, exclusive, not_stored, shared, with_quotas
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

APACHE_VERSION: Final = os.environ.get("INTEROP_PULSAR", "")
#: What Pulsar exposes and Geminga does not: (pattern of the name, why).
NOT_EXPOSED: Final = [
    (r"jvm_.*|jetty_.*|log4j2_.*|pulsar_web_.*|caffeine_.*", "Java's, and that of its libraries"),
    (r"pulsar_metadata_store_.*|pulsar_batch_metadata_store_.*", "of Pulsar's metadata client"),
    (r"pulsar_ml_cache_(pool_.*|entries|.*_throughput|.*_entries_total)", "its cache is of another make"),
    (r"pulsar_ml_(cache_pendingreads|reads)_.*", "reads that run are shared in another way, and bounded elsewhere"),
    (
        r"pulsar_topic_load_(failed_count|rate_s|time_.*)",
        "the same as topic_load_failed_total, pulsar_topic_load_times",
    ),
    (r"pulsar_ml_(AddEntryErrors|AddEntryWithReplicasBytesRate|MarkDeleteRate)", "not counted"),
    (r"pulsar_ml_(LedgerSwitchLatencyBuckets.*|ReadEntries(BytesRate|Errors|Succeeded))", "not counted"),
    (r"pulsar_broker_load_manager_.*|pulsar_lb_.*|pulsar_loadbalance_.*", "one broker balances nothing"),
    (r"pulsar_resource_group_.*", "there are no resource groups"),
    (r"pulsar_txn_.*|pulsar_compaction_.*", "nothing is done in a transaction here; there is no compaction"),
    (r"pulsar_schema_.*", "schemas are not timed"),
    (r"pulsar_broker_topic_list_.*", "limits of memory that Geminga has in other ways"),
    (r"pulsar_broker_(throttled_connections|pending_bytes_to_dispatch)", "the same"),
    (r"pulsar_(broker_)?storage_backlog_(age_seconds|quota_exceeded_evictions_total)", "ages are read when asked for"),
    (r"pulsar_storage_backlog_quota_check_duration_seconds.*", "quotas are not checked in rounds"),
    (r"pulsar_subscription_dispatch_throttled_.*", "of subscriptions that a rate has held"),
    (r".*_created", "OpenMetrics' time of creation"),
]
#: The same of transactions.
NOT_EXPOSED_OF_TRANSACTIONS: Final = [
    (r"pulsar_txn_tb_client_.*", "coordinators tell topics without a client"),
    (r"pulsar_txn_tp_commit_latency.*", "commits are timed as a whole, by their coordinators"),
    (r"pulsar_txn_(tc|pending_ack_store)_bufferedwriter_.*", "nothing waits for a batch"),
    (r".*_created", "OpenMetrics' time of creation"),
]
#: What Geminga exposes and Pulsar's standalone does not.
OUR_OWN: Final = [
    (r"bookie_.*|bookkeeper_.*", "BookKeeper exposes them itself"),
    (r"geminga_.*", "what Pulsar has no names for"),
]


@pytest.fixture(scope="module")
def pages(standalone, tmp_path_factory) -> tuple[list[Sample], list[Sample]]:
    """What Apache's standalone, and Geminga's beside it, expose after some stories."""
    if not APACHE_VERSION:
        pytest.skip("two brokers are compared: Apache's must be the judge")
    directory = tmp_path_factory.mktemp("beside")
    off = {"transactionCoordinatorEnabled": "false"}
    with StandaloneProcess(directory / "data", log=directory / "geminga.log", settings=off) as geminga:
        pulsars, ours = (_page_of(broker, directory) for broker in (standalone, geminga))
    # Pulsar's page breaks rules of the format that ours is held to: families that are interrupted.
    return [sample for line in pulsars.splitlines() if (sample := _loose(line))], samples(ours)


def test_metrics_have_pulsars_names_and_labels(pages) -> None:
    pulsars, ours = (label_names(page) for page in pages)
    missing = [name for name in sorted(pulsars.keys() - ours.keys()) if not _is_any(name, NOT_EXPOSED)]
    assert missing == []
    extra = [name for name in sorted(ours.keys() - pulsars.keys()) if not _is_any(name, OUR_OWN)]
    assert extra == []
    labels = {name: (pulsars[name], ours[name]) for name in pulsars.keys() & ours.keys() if pulsars[name] != ours[name]}
    assert labels == {}


def test_what_is_declared_as_not_exposed_is_pulsars(pages) -> None:
    pulsars, ours = (label_names(page) for page in pages)
    assert [name for name in ours if _is_any(name, NOT_EXPOSED) and name in pulsars] == []
    assert len(pulsars.keys() & ours.keys()) > 100


def test_metrics_of_transactions_have_pulsars_names_and_labels(tmp_path) -> None:
    if not APACHE_VERSION:
        pytest.skip("two brokers are compared: Apache's must be the judge")
    from tools.interop.apache_standalone import ApacheStandalone

    on = {"transactionCoordinatorEnabled": "true"}
    found = []
    for name, kind in (("apache", ApacheStandalone), ("geminga", StandaloneProcess)):
        with kind(tmp_path / name, log=tmp_path / f"{name}.log", settings=on) as broker:
            lines = _transacted(broker).splitlines()
        names = label_names([sample for line in lines if (sample := _loose(line))])
        found.append({name: labels for name, labels in names.items() if name.startswith("pulsar_txn_")})
    pulsars, ours = found
    assert [name for name in pulsars if name not in ours and not _is_any(name, NOT_EXPOSED_OF_TRANSACTIONS)] == []
    older = {name for name in ours if name.endswith("_count") and name.replace("_count", "_total") in ours}
    assert {name: pulsars.get(name) for name in ours if name not in older} == {
        name: labels for name, labels in ours.items() if name not in older
    }
    assert (len(ours) - len(older), len(older)) == (25, 5)


def _transacted(broker: StandaloneProcess) -> str:
    """The page after a transaction that was committed and one that was aborted."""
    with connect(broker.service_url) as client:
        consumer = client.subscribe("t", "s", consumer_type=ConsumerType.Shared)
        with client.create_producer("t") as producer:
            for commit in (True, False):
                producer.send(b"plain")
                txn = client.transaction(30)
                consumer.acknowledge(consumer.receive(10_000), txn=txn)
                producer.send(b"in it", txn=txn)
                if commit:
                    txn.commit()
                    consumer.acknowledge(consumer.receive(10_000))
                else:
                    txn.abort()
    return Rest(broker.web_url).get("/metrics/").body.decode()


def _page_of(broker: StandaloneProcess, directory) -> str:
    client, rest = quiet_client(broker.service_url, directory), Rest(broker.web_url)
    teller = Teller(client, rest, namespace="public/metrics")
    teller.prepare()
    for story in (exclusive, shared, not_stored, with_quotas):
        story(teller)
    page = rest.get("/metrics/").body.decode()
    client.close()
    return page


def _loose(line: str) -> Sample | None:
    matched = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line)
    if matched is None:
        return None
    labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', matched[2] or ""))
    return Sample(matched[1], labels, float(matched[3]))


def _is_any(name: str, declared: list[tuple[str, str]]) -> bool:
    return any(re.fullmatch(pattern, name) for pattern, _ in declared)
