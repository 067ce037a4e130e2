"""Statistics of topics: Apache's broker and Geminga's are told the same stories, and must tell the same of them.

What is meant to differ is declared here, each with a row of ``docs/compatibility.md`` (Statistics).
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from tools.standalone_process import StandaloneProcess

from support.house.json_differences import Difference, differences
from support.processes.official import quiet_client
from support.stories.statistics_stories import Teller, Told, names_told, recorded_names, tell_all
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

#: Names, kinds and numbers of items that differ on purpose: (pattern of ``kind.path``, why).
MEANT_NAMES: Final = [
    (r".*\.geminga", "what Pulsar has no names for"),
    (r"stats\.oldestBacklogMessageSubscriptionName", "Pulsar tells it after its next check of quotas"),
    (r"partitioned-stats\.partitions\..*\.oldestBacklogMessageSubscriptionName", "the same"),
    (r"internal-info\.ledgers\[\]\.(entries|size)", "a terminated topic's last ledger is closed, and so counted"),
    (r"stats\.subscriptions\.[^.]*\.keySharedMode", "known while there are consumers"),
]
#: Values that differ on purpose, or from one run to the next.
MEANT_VALUES: Final = [
    (r".*(Timestamp|TimeStamp|Time|Since|Date|timestamp|InBacklogs?)", "times"),
    (r".*([rR]ate(In|Out|Redeliver|Expired)?|Rate|Throughput(In|Out)|averageMsgSize)", "each has its own window"),
    (r".*\.(address|ownerBroker)", "ports"),
    (r".*([lL]edgerId|cursorLedger|cursorsLedgerId)", "Geminga has another count of ledgers"),
    (r".*\.oldestBacklogMessageAgeSeconds", "Geminga's is of the moment"),
    (r".*\.delayedMessageIndexSizeInBytes", "another index"),
    (r".*\.nonContiguousDeletedMessagesRangesSerializedSize", "another format"),
    (r".*\.schemaLedgers\[\]\.size", "another format"),
    (r"(partitioned-)?internalStats\.(.*\.)?ledgers\[\]\.(entries|size)", "Pulsar tells 0 of the open ledger"),
    (r"(partitioned-)?internalStats\.(.*\.)?cursors\..*\.state", "NoLedger until a cursor's first save"),
    (r"(partitioned-)?internalStats\.(.*\.)?(cursorLedgerLastEntry|messagesConsumedCounter)", "another count"),
    (r"(partitioned-)?internalStats\.(.*\.)?(waiting.*|subscriptionHavePending.*)", "Pulsar's are of a moment before"),
    (r"(partitioned-)?internalStats\.(.*\.)?cursors\..*\.(readPosition|markDeletePosition)", "no ledger yet; rewound"),
    (r"(partitioned-)?internalStats\.(.*\.)?cursors\..*\.numberOfEntriesSinceFirstNotAckedMessage", "without the next"),
    (r"internal-info\.(.*\.)?(version|markDelete\.entryId)", "nodes are written at other times"),
    (r"partitioned-stats\.subscriptions\..*\.avgMessagesPerEntry", "Pulsar loses it"),
]
APACHE_VERSION: Final = os.environ.get("INTEROP_PULSAR", "")
_PLACE: Final = re.compile(r"-?\d+:(-?\d+)")
_PARTITION: Final = re.compile(r"(?:non-)?persistent://\S*?(-partition-\d+)")


@pytest.fixture(scope="module")
def told_by_both(standalone, tmp_path_factory) -> tuple[Told, Told]:
    """What Apache's standalone, and Geminga's beside it, tell of every story."""
    if not APACHE_VERSION:
        pytest.skip("two brokers are compared: Apache's must be the judge")
    directory = tmp_path_factory.mktemp("beside")
    with (
        StandaloneProcess(directory / "data", log=directory / "geminga.log") as geminga,
        ThreadPoolExecutor(2) as threads,
    ):
        tellings = [threads.submit(_told_by, broker, directory) for broker in (standalone, geminga)]
        pulsars, ours = (telling.result() for telling in tellings)
    return pulsars, ours


def test_both_brokers_tell_the_same_of_the_same_stories(told_by_both) -> None:
    pulsars, ours = told_by_both
    assert pulsars.keys() == ours.keys()
    unmeant: dict[str, list[str]] = defaultdict(list)
    for question in pulsars:
        kind = question.rpartition(": ")[2]
        for difference in differences(_comparable(pulsars[question]), _comparable(ours[question])):
            if not _is_meant(kind, difference):
                unmeant[f"{kind}.{difference.path}"].append(f"{question}: {difference.how}")
    assert not unmeant, "\n".join(f"{path}: {found[0]} (and {len(found) - 1})" for path, found in unmeant.items())


def test_the_record_of_pulsars_names_is_what_the_broker_tells(told_by_both) -> None:
    assert names_told(told_by_both[0]) == recorded_names()


def _told_by(broker: StandaloneProcess, directory: Path) -> Told:
    client = quiet_client(broker.service_url, directory)
    try:
        return tell_all(Teller(client, Rest(broker.web_url)))
    finally:
        client.close()


def _is_meant(kind: str, difference: Difference) -> bool:
    meant = MEANT_NAMES if difference.what == "names" else MEANT_VALUES
    return any(re.fullmatch(pattern, f"{kind}.{difference.path}") for pattern, _ in meant)


def _comparable(value: Any) -> Any:
    """Without what clients make up: names of Readers' subscriptions; ledger ids of positions."""
    if isinstance(value, dict):
        return {_plain(key): _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return _PLACE.sub(r"L:\1", value) if isinstance(value, str) and ":" in value and "//" not in value else value


def _plain(key: str) -> str:
    return "r" if key.startswith("r-") else _PARTITION.sub(r"P\1", key)
