"""Copying a file, and what a held file is, on a simulated disk."""

from __future__ import annotations

import pytest

from geminga.app.storage.backup_writing import COPY_BYTES, copy_file
from geminga.bookie.cut import cut_of, hold, release
from geminga.model.crc32c import crc32c
from geminga.model.errors import DataDirectoryError
from support.clusters.bookie_node import BookieNode, entries_of, run_bookie


def test_file_of_three_batches_is_copied_whole_and_a_shorter_one_is_refused() -> None:
    async def main(case: BookieNode) -> None:
        disk = case.node.runtime.disk
        data = bytes(range(256)) * (2 * COPY_BYTES // 256) + b"end"
        await disk.write_file("/b/source", data + b"behind")
        assert await copy_file(disk, "/b/source", "/b/copy", len(data)) == crc32c(data)
        assert await disk.read_file("/b/copy") == data
        assert await copy_file(disk, "/b/copy", "", len(data)) == crc32c(data)
        with pytest.raises(DataDirectoryError, match="/b/copy has 2097155 bytes, expected 2097156"):
            await copy_file(disk, "/b/copy", "/b/other", len(data) + 1)

    run_bookie(main)


def test_files_of_a_cut_stay_until_they_are_released_and_go_then() -> None:
    async def main(case: BookieNode) -> None:
        for ledger_id in range(1, 4):
            assert await case.add(ledger_id, 0, entries_of(ledger_id, 0, 30, size=200)) is None
        hold(case.bookie)
        files = cut_of(case.bookie).files
        await case.bookie.flush()
        files += cut_of(case.bookie).files
        case.ledgers.live = {3}
        result = await case.bookie.collect_garbage(compact_below=0.9)
        assert (result.deleted_ledgers, result.removed_logs + result.compacted_logs > 0) == (2, True)
        await case.bookie.flush()
        named = {file.path for file in files}
        assert any(path.endswith(".journal") for path in named)
        assert any(path.endswith(".log") for path in named)
        assert named <= set(case.disk.paths())
        await release(case.bookie)
        left = named & set(case.disk.paths())
        assert left <= {file.path for file in cut_of(case.bookie).files}
        assert len(left) < len(named)
        await case.reopen()
        assert await case.read(3, *range(30)) == entries_of(3, 0, 30, size=200)

    run_bookie(main)
