"""A backup of a cluster by the command itself: one that can not be reached leaves what was there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from geminga.app.handles.cluster_backups import Reached, RestoreTarget, back_up_cluster, restore_cluster
from geminga.app.storage.core.backup_format import BackupManifest, encode_manifest
from geminga.app.storage.core.restore_marks import RestoredSizes
from geminga.model.errors import DataDirectoryError, MetadataError


@asynccontextmanager
async def out_of_reach() -> AsyncIterator[Reached]:
    raise MetadataError("zk:nowhere:2181 does not answer")
    yield


def test_a_cluster_that_does_not_answer_is_told_and_the_backup_before_stays(tmp_path: Path) -> None:
    (tmp_path / "manifest").write_bytes(b"of yesterday")
    told: list[object] = []
    with pytest.raises(MetadataError, match="zk:nowhere:2181 does not answer"):
        back_up_cluster(out_of_reach(), str(tmp_path), whole=False, told=told.append)
    assert [file.name for file in tmp_path.iterdir()] == ["manifest"]
    assert told == []


def test_a_backup_of_a_standalone_is_refused_before_a_cluster_is_asked(tmp_path: Path) -> None:
    manifest = BackupManifest("b1", 1, 0, "test", 1, "", {}, ())
    (tmp_path / "geminga-backup.json").write_bytes(encode_manifest(manifest))
    place = RestoreTarget("zk:nowhere:2181", lambda path, value: None)
    with pytest.raises(DataDirectoryError, match="is of a standalone: restore it to a directory, which becomes"):
        restore_cluster(out_of_reach(), str(tmp_path), place, sizes=RestoredSizes(), told=lambda _: None)
