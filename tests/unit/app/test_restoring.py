"""Files of a backup are copied as they are; one that changed under way is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from geminga.app.handles.backups import local_runtime
from geminga.app.storage.core.backup_format import BackupFile, BackupManifest
from geminga.app.storage.pace import Pace
from geminga.app.storage.restoring import Restoring, restore_files
from geminga.model.crc32c import crc32c
from geminga.model.errors import DataDirectoryError


def test_files_are_copied_under_their_names_and_damage_is_told(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "00000001-log").write_bytes(b"entries")
    good = BackupFile("bookie/ledgers/log", "00000001-log", 7, crc32c(b"entries"))
    told: list[str] = []

    async def main() -> None:
        async with local_runtime() as runtime:
            manifest = BackupManifest("b1", 1, 0, "test", 1, "", {}, (good,))
            pace = Pace(runtime.clock)
            backup = Restoring(runtime, str(tmp_path), manifest, pace, lambda file: told.append(file.name))
            await restore_files(backup, str(tmp_path / "new"), manifest.files)
            with pytest.raises(DataDirectoryError, match=r"\(bookie/ledgers/log\) is damaged: CRC32C"):
                await restore_files(backup, str(tmp_path / "other"), [good._replace(crc32c=1)])

    asyncio.run(main())
    assert (tmp_path / "new" / "bookie" / "ledgers" / "log").read_bytes() == b"entries"
    assert told == ["bookie/ledgers/log"] * 2
