"""Names of lake files: each topic has a directory of its own."""

from __future__ import annotations

import pytest

from geminga.lake.core.names import (
    LedgerFile,
    ManifestName,
    directory_of,
    ledger_file,
    manifest_file,
    parse_ledger_file,
    parse_manifest_file,
)
from geminga.model.topic_name import TopicName


def of(name: str) -> str:
    return directory_of(TopicName.parse(f"persistent://tenant/ns/{name}"))


def test_directories_are_below_their_namespace_and_hide_from_nobody():
    assert of("orders-partition-3") == "tenant/ns/persistent/orders-partition-3"
    assert of("a/b c") == "tenant/ns/persistent/a%2Fb%20c"
    assert of("_x") == "tenant/ns/persistent/%5Fx"
    assert of("..") == "tenant/ns/persistent/%2E."


def test_no_two_topics_share_a_directory():
    long = "x" * 500
    cut = of(long).rpartition("/")[2]
    assert len(cut) == 193
    topics = [long, long + "y", "x" * 200, cut, "..", "%2E.", ".", "_", "%5F", "a/b", "a%2Fb"]
    assert len({of(topic) for topic in topics}) == len(topics)
    assert all("/" not in of(topic).split("/", 3)[3] for topic in topics)


def test_files_and_manifests_are_told_by_their_names():
    name = ledger_file(3, "ab" * 16)
    assert parse_ledger_file(name) == parse_ledger_file(f".{name}.tmp") == LedgerFile(3, "ab" * 16)
    manifest = manifest_file(ManifestName(1700000000000, 17))
    assert parse_manifest_file(manifest) == ManifestName(1700000000000, 17)


@pytest.mark.parametrize(
    "name", ["", "notes.txt", "ledger-3-x.parquet", "ledger-" + "3" * 19 + "-" + "g" * 32 + ".parquet"]
)
def test_other_files_are_not_ours(name):
    assert parse_ledger_file(name) is None
    assert parse_manifest_file(name) is None
