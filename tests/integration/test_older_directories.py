"""Data directories that an older tree wrote (``tools/directory_sample.py``) are opened and read whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.directory_sample import SETTINGS, promised, read_whole, unpack
from tools.standalone_process import StandaloneProcess

from support.house.source_tree import ROOT

pytestmark = pytest.mark.integration

SAMPLES = sorted((ROOT / "tests" / "samples").glob("directories-*.tar.xz"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name.removesuffix(".tar.xz"))
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("alone", ()),
        pytest.param("cluster", ("--brokers", "2", "--bookies", "3"), marks=pytest.mark.long),
    ],
)
def test_what_was_promised_of_an_older_directory_is_read_whole(
    tmp_path: Path, sample: Path, name: str, arguments: tuple[str, ...]
) -> None:
    """One was killed while it ran, so that its journal is replayed; the other is a cluster's, with bundles and cursors
    of several owners. Opened a second time, by what this tree wrote of it, each has the same again."""
    kept = unpack(sample, name, tmp_path)
    assert {key: kept[key] for key in promised()} == promised(), "the sample is of another story than the tool's"
    broker = StandaloneProcess(tmp_path / "data", log=tmp_path / "broker.log", settings=SETTINGS, arguments=arguments)
    for _ in range(2):
        with broker:
            found = read_whole(broker)
            assert broker.stop() == 0, broker.log_tail()
        for key, wanted in kept.items():
            assert found[key] == wanted, f"{key} of a directory by {sample.name}"
    assert " ERROR " not in broker.log.read_text(encoding="utf-8")
