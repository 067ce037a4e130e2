"""Several bookies in one process: where they are, who they are, and what happens when one of them is not there."""

from __future__ import annotations

import shutil
import urllib.request
from pathlib import Path

import pulsar
import pytest

from geminga import Standalone
from geminga.app.configuration.config import load_config
from geminga.app.storage.bookies import of_bookie
from geminga.app.storage.core.bookie_set import bookie_slot
from geminga.app.storage.stopped_directory import StoppedDirectory
from geminga.bookie import BookieConfig
from geminga.bookie.config import of_part
from geminga.model.errors import ConfigurationError, DataDirectoryError
from geminga.wire.bookkeeper.ledger_metadata import decode_ledger_metadata
from geminga.wire.bookkeeper.ledger_path import ledger_path
from support.house.waiting import until
from support.processes.official import quiet_client

TOPIC = "persistent://public/default/t"
QUORUMS = ("managedLedgerDefaultEnsembleSize", "managedLedgerDefaultWriteQuorum", "managedLedgerDefaultAckQuorum")


def publish(broker: Standalone, tmp_path: Path, first: int, count: int) -> None:
    client = quiet_client(broker.service_url, tmp_path)
    client.subscribe(TOPIC, "keeps everything").close()
    producer = client.create_producer(TOPIC, batching_enabled=False)
    for number in range(first, first + count):
        producer.send(b"%d" % number)
    client.close()


def stored(broker: Standalone, tmp_path: Path, count: int) -> list[int]:
    client = quiet_client(broker.service_url, tmp_path)
    reader = client.create_reader(TOPIC, pulsar.MessageId.earliest)
    found = [int(reader.read_next(10_000).data()) for _ in range(count)]
    assert not reader.has_message_available()
    client.close()
    return found


def metric(broker: Standalone, name: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{broker.web_service_url}/metrics/", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + "{")}


def test_three_bookies_have_directories_ids_and_metrics_of_their_own(tmp_path) -> None:
    directory = tmp_path / "d"
    with Standalone(directory, bookies=3) as broker:
        publish(broker, tmp_path, 0, 30)
        values = metric(broker, "bookie_ADD_ENTRY_count")
        assert {key.partition('bookie="')[2].partition('"')[0] for key in values} == {"bookie", "bookie-2", "bookie-3"}
        assert sum(values.values()) >= 60
        assert list(metric(broker, "bookie_SERVER_STATUS").values()) == [1.0] * 3
    assert sorted(path.name for path in directory.iterdir() if path.is_dir()) == ["bookie", "bookie-2", "bookie-3"]
    with StoppedDirectory(str(directory)) as stopped:
        ids = stopped.children("/ledgers/cookies")
        assert ids == ["127.0.0.1:3181", "127.0.0.1:3182", "127.0.0.1:3183"]
        known = [stopped.value(f"/ledgers/cookies/{bookie_id}") for bookie_id in ids]
    with Standalone(directory, bookies=3) as broker:
        assert stored(broker, tmp_path, 30) == list(range(30))
    with StoppedDirectory(str(directory)) as stopped:
        assert [stopped.value(f"/ledgers/cookies/{bookie_id}") for bookie_id in ids] == known


def test_stopped_directory_is_read_over_all_its_bookies_also_without_the_first(tmp_path) -> None:
    directory = tmp_path / "d"
    with Standalone(directory, bookies=3) as broker:
        publish(broker, tmp_path, 0, 12)
    with StoppedDirectory(str(directory)) as stopped:
        whole = {ledger_id: list(stopped.entries(ledger_id)) for ledger_id in range(10)}
        files = {entry.file.partition("/")[0] for i in whole for entry in stopped.entries(i).values()}
        assert files & {"bookie-2", "bookie-3"}
        assert list(range(12)) in whole.values()
    shutil.rmtree(directory / "bookie")
    with StoppedDirectory(str(directory)) as stopped:
        assert {ledger_id: list(stopped.entries(ledger_id)) for ledger_id in whole} == whole
    for name in ("bookie-2", "bookie-3"):
        shutil.rmtree(directory / name)
    with (
        StoppedDirectory(str(directory)) as stopped,
        pytest.raises(DataDirectoryError, match="nothing was ever stored"),
    ):
        stopped.entries(0)


def test_one_bookie_is_as_it_was(tmp_path) -> None:
    with Standalone(tmp_path / "d") as broker:
        assert list(metric(broker, "bookie_SERVER_STATUS")) == ['bookie_SERVER_STATUS{cluster="standalone"}']
    assert [path.name for path in (tmp_path / "d").iterdir() if path.is_dir()] == ["bookie"]


def test_fewer_than_the_directory_has_are_refused_by_name_and_more_are_fine(tmp_path) -> None:
    directory = tmp_path / "d"
    with Standalone(directory) as broker:
        publish(broker, tmp_path, 0, 5)
    with Standalone(directory, bookies=3) as broker:
        publish(broker, tmp_path, 5, 5)
        assert stored(broker, tmp_path, 10) == list(range(10))
    for count, named in (
        (1, r"bookie-2 \(127\.0\.0\.1:3182\), bookie-3 \(127\.0\.0\.1:3183\)"),
        (2, "remembers bookie-3"),
    ):
        with pytest.raises(DataDirectoryError, match=rf"{named}.*--bookies 3"):
            Standalone(directory, bookies=count).start()
    with Standalone(directory, bookies=4) as broker:
        assert stored(broker, tmp_path, 10) == list(range(10))


@pytest.mark.parametrize("lost", ["all of it", "the journal", "the ledgers", "taken for another"])
def test_lost_bookie_is_refused_by_name_and_left_out_only_where_that_is_said(tmp_path, lost: str) -> None:
    directory = tmp_path / "d"
    with Standalone(directory, bookies=3) as broker:
        publish(broker, tmp_path, 0, 20)
    second, away = directory / "bookie-2", tmp_path / "away"
    shutil.copytree(second, away)
    shutil.rmtree(second / {"the journal": "journal", "the ledgers": "ledgers"}.get(lost, ""))
    if lost == "taken for another":
        shutil.copytree(directory / "bookie-3", second)
    for _ in range(2):
        with pytest.raises(
            DataDirectoryError, match=r"bookie-2 \(127\.0\.0\.1:3182\): .*gemingaBookiesLeftOut=bookie-2"
        ):
            Standalone(directory, bookies=3).start()
    with Standalone(directory, {"gemingaBookiesLeftOut": "bookie-2"}, bookies=3) as broker:
        assert stored(broker, tmp_path, 20) == list(range(20))
        publish(broker, tmp_path, 20, 10)
        assert len(metric(broker, "bookie_SERVER_STATUS")) == 2
    shutil.rmtree(second)
    shutil.copytree(away, second)
    with Standalone(directory, bookies=3) as broker:
        assert stored(broker, tmp_path, 30) == list(range(30))


def named_bookies(directory: Path) -> set[str]:
    """Bookies that metadata of ledgers name."""
    with StoppedDirectory(str(directory)) as stopped:
        values = [stopped.value(ledger_path(ledger_id)) for ledger_id in range(100)]
        assert stopped.children("/ledgers/underreplication/ledgers") == []
    metadata = [decode_ledger_metadata(value, 0) for value in values if value is not None]
    return {name for one in metadata for fragment in one.fragments for name in fragment.ensemble}


def test_copies_of_a_bookie_that_is_left_out_are_made_anew_by_the_others(tmp_path) -> None:
    directory = tmp_path / "d"
    quorums = dict(zip(QUORUMS, "332", strict=True))
    with Standalone(directory, quorums, bookies=3) as broker:
        publish(broker, tmp_path, 0, 50)
    assert "127.0.0.1:3182" in named_bookies(directory)
    shutil.rmtree(directory / "bookie-2")
    settings = {**quorums, "gemingaBookiesLeftOut": "bookie-2", "openLedgerRereplicationGracePeriod": "100"}
    with Standalone(directory, {**settings, "autoRecoveryDaemonEnabled": "false"}, bookies=4) as broker:
        assert metric(broker, "replication_worker_NUM_ENTRIES_WRITTEN") == {}
        publish(broker, tmp_path, 50, 5)
    assert "127.0.0.1:3182" in named_bookies(directory)

    def is_restored() -> bool:
        [marked] = metric(broker, "auditor_NUM_UNDER_REPLICATED_LEDGERS_count").values()
        [restored] = metric(broker, "replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED").values()
        return restored >= marked > 0

    with Standalone(directory, settings, bookies=4) as broker:
        publish(broker, tmp_path, 55, 5)
        until(is_restored, "every mark ended")
        assert stored(broker, tmp_path, 60) == list(range(60))
    assert named_bookies(directory) == {"127.0.0.1:3181", "127.0.0.1:3183", "127.0.0.1:3184"}
    # Two more copies of everything are left if another one is lost.
    shutil.rmtree(directory / "bookie")
    both = {**settings, "gemingaBookiesLeftOut": "bookie,bookie-2"}
    with Standalone(directory, both, bookies=5) as broker:
        assert stored(broker, tmp_path, 60) == list(range(60))


def test_bookie_whose_first_start_was_cut_off_is_begun_again(tmp_path) -> None:
    directory = tmp_path / "d"
    with Standalone(directory) as broker:
        publish(broker, tmp_path, 0, 3)
    # The second one got as far as its directories and cookies; the metadata store never heard of it.
    with Standalone(tmp_path / "other", bookies=2):
        pass
    shutil.copytree(tmp_path / "other" / "bookie-2", directory / "bookie-2")
    with Standalone(directory, bookies=2) as broker:
        assert stored(broker, tmp_path, 3) == list(range(3))


@pytest.mark.parametrize(
    ("settings", "met"),
    [
        ([], (2, 2, 2)),
        ([3, 3, 2], (3, 3, 2)),
        ([3, 2, 2], (3, 2, 2)),
        ([1], (1, 1, 1)),
        ([3, 3], (3, 3, 2)),
    ],
)
def test_quorums_with_three_bookies_are_those_said_and_else_two_copies(
    settings: list[int], met: tuple[int, ...]
) -> None:
    overrides = ["gemingaBookies=3", *(f"{key}={value}" for key, value in zip(QUORUMS, settings, strict=False))]
    ledgers = load_config(overrides=overrides).managed_ledger
    assert (ledgers.ensemble_size, ledgers.write_quorum, ledgers.ack_quorum) == met


@pytest.mark.parametrize("wrong", [f"{QUORUMS[0]}=4", f"{QUORUMS[1]}=3", f"{QUORUMS[2]}=3"])
def test_quorums_that_three_bookies_can_not_meet_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{wrong}.*there are 3 bookies"):
        load_config(overrides=["gemingaBookies=3", wrong])
    with pytest.raises(ConfigurationError, match=r"EnsembleSize=3.*there are 2 bookies"):
        load_config(overrides=["gemingaBookies=3", "gemingaBookiesLeftOut=bookie-2", f"{QUORUMS[0]}=3"])


def test_what_is_bounded_for_the_process_is_shared_out() -> None:
    whole = BookieConfig(journal_directory="/j", ledger_directory="")
    shared = of_part(whole, "/j", "", 4)
    assert shared.write_cache_max_size_mb * 4 == whole.write_cache_max_size_mb
    assert shared.read_cache_max_size_mb * 4 == whole.read_cache_max_size_mb
    assert shared.open_file_limit * 4 == whole.open_file_limit
    assert of_part(whole, "/j", "", 1) == whole
    assert of_bookie(whole, bookie_slot(1)) == whole
    assert (of_bookie(whole, bookie_slot(3)).journal_directory, of_bookie(whole, bookie_slot(3)).ledger_directory) == (
        "/j/bookie-3",
        "",
    )


def test_striped_topic_lies_on_two_bookies_each(tmp_path) -> None:
    settings = dict(zip(QUORUMS, (3, 2, 2), strict=True))
    with Standalone(tmp_path / "d", settings, bookies=3) as broker:
        publish(broker, tmp_path, 0, 40)
        assert stored(broker, tmp_path, 40) == list(range(40))
        # Nobody has all: every bookie has about two thirds.
        added = metric(broker, "bookie_ADD_ENTRY_count")
        assert max(added.values()) < sum(added.values()) / 2
    with Standalone(tmp_path / "d", settings, bookies=3) as broker:
        assert stored(broker, tmp_path, 40) == list(range(40))


def test_several_bookies_in_memory_serve_too(tmp_path) -> None:
    with Standalone(bookies=3) as broker:
        publish(broker, tmp_path, 0, 10)
        assert stored(broker, tmp_path, 10) == list(range(10))
        assert len(metric(broker, "bookie_SERVER_STATUS")) == 3
