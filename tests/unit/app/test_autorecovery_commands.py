"""``geminga autorecovery``: what it is told, and what it says of what it can not do."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from geminga.app.commands.autorecovery_commands import commands
from geminga.app.servers.autorecovery_process import load_autorecovery_config
from geminga.model.errors import ConfigurationError


@pytest.mark.parametrize("words", [["--help"], ["decommission", "--help"]])
def test_help_names_the_options(words: list[str]) -> None:
    told = CliRunner().invoke(commands, words)
    assert told.exit_code == 0
    assert "--metadata" in told.stdout
    assert "metadataServiceUri" in told.stdout


def test_without_a_metadata_store_nothing_starts() -> None:
    for words in ([], ["decommission", "b1"]):
        refused = CliRunner().invoke(commands, words, env={})
        assert isinstance(refused.exception, ConfigurationError)
        assert "expected --metadata zk:host:port or metadataServiceUri" in str(refused.exception)


def test_keys_are_those_of_a_bookies_file() -> None:
    overrides = ["zkServers=host:2181", "journalDirectory=/j", "replicationRateByBytes=5000", "colour=red"]
    config = load_autorecovery_config((), {}, overrides)
    assert config.replication.replication_rate_by_bytes == 5000
    assert config.http is None
    for keys, place in (
        (["httpServerEnabled=true", "httpServerPort=5"], ("127.0.0.1", 5, "httpServerPort", None)),
        (["statsProviderClass=org.x.PrometheusMetricsProvider"], ("127.0.0.1", 8000, "prometheusStatsHttpPort", None)),
    ):
        assert load_autorecovery_config((), {}, [*overrides, *keys]).http == place
    assert len(config.warnings) == 1
    assert "colour" in config.warnings[0]
    with pytest.raises(ConfigurationError, match=r"rereplicationEntryBatchSize=0 .*expected entries, 1-10000"):
        load_autorecovery_config((), {}, [*overrides, "rereplicationEntryBatchSize=0"])
