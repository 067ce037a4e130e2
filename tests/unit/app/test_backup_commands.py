"""``geminga backup`` on the command line: where a backup is restored to, by how many copies, and how fast."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from geminga.app.commands import backup_commands
from geminga.app.commands.cli import app_for
from geminga.model.errors import ConfigurationError, DataDirectoryError


def run(*words: str) -> Result:
    return CliRunner().invoke(app_for(["backup"]), ["backup", *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("restore", "copy"), "expected either DATA"),
        (("restore", "copy", "data", "--metadata", "zk:there:2181"), "expected either DATA"),
        (("restore", "copy", "data", "--set", "a=b"), "--set is for a cluster"),
        (("restore", "copy", "data", "--rate-limit", "-1"), "--rate-limit"),
        (("create", "copy", "--rate-limit", "many"), "--rate-limit"),
    ],
)
def test_words_that_do_not_fit_together_are_refused_before_anything_is_done(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_copies_of_restored_ledgers_come_from_files_and_words_and_must_fit(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("managedLedgerDefaultEnsembleSize=3\nmanagedLedgerDefaultWriteQuorum=2\n", encoding="utf-8")
    loaded, sizes = backup_commands._reached(
        "zk:there:2181/prod", [str(file)], ["managedLedgerDefaultAckQuorum=1"], "it"
    )
    assert str(loaded.metadata) == "zk:there:2181/prod"
    assert (sizes.ensemble_size, sizes.write_quorum, sizes.ack_quorum) == (3, 2, 1)
    given = ["managedLedgerDefaultAckQuorum=4"]
    with pytest.raises(ConfigurationError, match="WriteQuorum=2, AckQuorum=4: expected each to be at most"):
        backup_commands._reached("zk:there:2181/prod", [str(file)], given, "it")


def test_a_directory_without_a_backup_is_told_before_a_cluster_is_asked(tmp_path: Path) -> None:
    done = run("restore", str(tmp_path), "--metadata", "zk:127.0.0.1:1")
    assert isinstance(done.exception, DataDirectoryError)
    assert "holds no backup: geminga-backup.json is not there" in str(done.exception)


def test_a_broker_is_told_the_name_of_its_cluster_and_not_of_one_that_it_knows() -> None:
    assert backup_commands.named([]) == ""
    assert backup_commands.named(["prod"]) == " --set clusterName=prod"
    assert backup_commands.named(["east", "west"]) == " --set clusterName=NAME, where NAME is its own of east, west"
