"""``bin/pulsar standalone --wipe-data``: what is removed, and when nothing is."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from geminga.app.container.programs import wipe
from geminga.model.errors import DataDirectoryError


def filled(path: Path) -> Path:
    data = path / "data"
    (data / "bookie" / "journal").mkdir(parents=True)
    (data / "bookie" / "journal" / "1.log").write_bytes(b"entries")
    (data / "metadata.sqlite").write_bytes(b"nodes")
    kept = path / "kept"
    kept.mkdir()
    (kept / "other").write_bytes(b"of somebody else")
    (data / "link").symlink_to(kept)
    return data


def test_everything_below_goes_and_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    data = filled(tmp_path)
    wipe(str(data))
    assert not list(data.iterdir())
    assert (tmp_path / "kept" / "other").read_bytes() == b"of somebody else"
    wipe(str(data))
    wipe(str(tmp_path / "not there"))


def test_nothing_goes_while_a_process_has_it(tmp_path: Path) -> None:
    data = filled(tmp_path)
    held = os.open(data, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(DataDirectoryError, match="is in use by another process, and nothing of it was removed"):
            wipe(str(data))
        assert (data / "bookie" / "journal" / "1.log").read_bytes() == b"entries"
    finally:
        os.close(held)
    wipe(str(data))
    assert not list(data.iterdir())
