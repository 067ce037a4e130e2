"""What a bookie is told: BookKeeper's keys, what it refuses by name, who it is."""

from __future__ import annotations

import re

import pytest

from geminga.app.configuration.bookie_config import BookieServerConfig, load_bookie_config
from geminga.app.configuration.core.bookie_keys import GROUPS, asked_of_bookie
from geminga.app.configuration.core.bookie_place import advertised_host, bookie_id
from geminga.app.servers.core.addresses import WILDCARD_ADDRESSES
from geminga.bookie import BookieConfig
from geminga.model.errors import ConfigurationError
from geminga.model.settings import settings_of
from support.house.source_tree import ROOT

KEYS = [key for group in GROUPS for key in group.keys]
REFUSED = [key for group in GROUPS if group.is_refused for key in group.keys]
TOLD = [key for group in GROUPS if not group.is_refused for key in group.keys]


def test_keys_stand_once_and_have_no_effect_elsewhere() -> None:
    assert len(KEYS) == len(set(KEYS))
    assert not set(KEYS) & {*settings_of(BookieServerConfig), *settings_of(BookieConfig)}


def test_page_has_the_table() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for group in GROUPS:
        keys = ", ".join(f"`{key}`" for key in group.keys)
        assert f"| {group.what} | {'refused: ' * group.is_refused}{group.instead} | {keys} |" in page
    for key in settings_of(BookieServerConfig):
        assert f"`{key}`" in page


@pytest.mark.parametrize("key", REFUSED)
def test_protection_that_is_not_there_is_refused_by_name(key: str, tmp_path) -> None:
    conf = tmp_path / "bk_server.conf"
    conf.write_text(f"bookiePort=3181\n{key}=yes\n")
    with pytest.raises(ConfigurationError, match=rf"{key}=.*bk_server\.conf, line 2.*Remove this key"):
        load_bookie_config([str(conf)])
    assert load_bookie_config(overrides=[f"{key}=null"]).warnings == ()


@pytest.mark.parametrize("key", TOLD)
def test_what_else_is_not_there_is_told(key: str) -> None:
    (warning,) = load_bookie_config(overrides=[f"{key}=true"]).warnings
    assert re.match(rf"{key}=true \(--set\) has no effect \(", warning)
    assert asked_of_bookie(key, "False") is None


def test_unknown_keys_are_told_and_those_of_bookkeeper_are_not() -> None:
    config = load_bookie_config(overrides=["bokiePort=1", "zkTimeout=10000", "gcEntryLogMetadataCacheEnabled=false"])
    assert [warning.partition(" (")[0] for warning in config.warnings if "bokie" in warning] == [
        "unknown configuration key bokiePort"
    ]
    assert "did you mean bookiePort?" in config.warnings[0]
    assert not any("zkTimeout" in warning for warning in config.warnings)


def test_auto_recovery_runs_where_it_is_asked_for_and_a_cluster_is_there() -> None:
    at = "metadataServiceUri=zk:h:2181"
    config = load_bookie_config(overrides=[at, "autoRecoveryDaemonEnabled=true", "rereplicationEntryBatchSize=7"])
    assert (config.warnings, config.recovery and config.recovery.replication.rereplication_entry_batch_size) == ((), 7)
    for asked in ("autoRecoveryDaemonEnabled=false", at):
        assert load_bookie_config(overrides=[at, asked]).recovery is None
    (warning,) = load_bookie_config(overrides=["autoRecoveryDaemonEnabled=true"]).warnings
    assert "without a metadata store the bookie is in no cluster" in warning


def directories(*overrides: str) -> list[tuple[str, str]]:
    return [tuple(pair) for pair in load_bookie_config(overrides=overrides).directories("/data")]


def test_directories_have_two_names() -> None:
    assert directories() == [("/data/journal", "/data/ledgers")]
    assert directories("journalDirectory=/old", "journalDirectories=/j", "ledgerDirectories= /l ") == [("/j", "/l")]
    assert directories("journalDirectory=/old") == [("/old", "/data/ledgers")]


def test_several_directories_are_pairs_that_share_nothing() -> None:
    assert directories("journalDirectories=/a,/b", "ledgerDirectories=/c,/d") == [("/a", "/c"), ("/b", "/d")]
    assert directories("ledgerDirectories=/c,/d,/e", "journalDirectories=/a,/b") == [
        ("/a/1", "/c"),
        ("/b/2", "/d"),
        ("/a/3", "/e"),
    ]
    assert directories("journalDirectories=/a,/b") == [("/a", "/data/ledgers/1"), ("/b", "/data/ledgers/2")]


@pytest.mark.parametrize(
    ("journals", "ledgers"),
    [("/a,/a", "/c,/d"), ("/a", "/a"), ("/a,/b", "/c,/b/"), ("/a,/b", "/c,/c/../c"), ("/a", "/a/1,/a/2")],
)
def test_a_directory_is_there_for_one_thing(journals: str, ledgers: str) -> None:
    with pytest.raises(ConfigurationError, match="expected each directory once"):
        directories(f"journalDirectories={journals}", f"ledgerDirectories={ledgers}")


@pytest.mark.parametrize(
    "text",
    [
        "bookiePort=70000",
        "nettyMaxFrameSizeBytes=12",
        "bookieId=a/b",
        "bookieId=ReadOnly",
        "bookieId=a b",
        "bookieId=a;b",
    ],
)
def test_bad_values_are_refused_by_key(text: str) -> None:
    with pytest.raises(ConfigurationError, match=text.partition("=")[0]):
        load_bookie_config(overrides=[text])


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["metadataServiceUri=zk+hierarchical://a:1;b:2/ledgers"], "zk:a:1,b:2"),
        (["metadataServiceUri=metadata-store:zk:a:1/c", "zkServers=b:1"], "zk:a:1/c"),
        (["zkServers=a:1,b", "zkLedgersRootPath=/c/ledgers"], "zk:a:1,b:2181/c"),
        (["metadataServiceUri=null"], "None"),
        ([], "None"),
    ],
)
def test_metadata_are_where_bookkeeper_keys_say(assignments: list[str], expected: str) -> None:
    config = load_bookie_config(overrides=assignments)
    assert str(config.metadata) == expected
    assert config.warnings == ()


def test_bad_servers_are_refused_by_their_key() -> None:
    with pytest.raises(ConfigurationError, match=r"zkServers=a:0 \(--set\): .*expected"):
        load_bookie_config(overrides=["zkServers=a:0"])
    with pytest.raises(ConfigurationError, match=r"zkServers=a:1 \(--set\): .*ends with /ledgers"):
        load_bookie_config(overrides=["zkServers=a:1", "zkLedgersRootPath=/other"])


@pytest.mark.parametrize("uri", ["zk+flat://localhost:2181/ledgers", "sqlite:", "etcd://x"])
def test_metadata_that_can_not_be_reached_are_refused(uri: str) -> None:
    with pytest.raises(ConfigurationError, match=r"metadataServiceUri=.*expected"):
        load_bookie_config(overrides=[f"metadataServiceUri={uri}"])


def test_who_it_is() -> None:
    def host(advertised: str, bind: str) -> str:
        return advertised_host(advertised, bind, "here", is_wildcard=bind in WILDCARD_ADDRESSES)

    assert bookie_id("", host("", "127.0.0.1"), 3181) == "127.0.0.1:3181"
    assert bookie_id("", host("", "0.0.0.0"), 3181) == "here:3181"
    assert bookie_id("", host("10.0.0.7", "0.0.0.0"), 3181) == "10.0.0.7:3181"
    assert bookie_id("bookie-7", host("", "::1"), 3181) == "bookie-7"
    with pytest.raises(ConfigurationError, match="set bookieId"):
        bookie_id("", host("", "::1"), 3181)
    with pytest.raises(ConfigurationError, match=r"advertisedAddress=h_\?:1"):
        bookie_id("", "h_?", 1)
