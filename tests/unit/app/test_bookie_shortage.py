"""What is told where a new ledger finds too few bookies."""

from __future__ import annotations

import asyncio
import logging

import pytest

from geminga.app.servers.bookie_shortage import BookieShortage
from geminga.bookkeeper import LocalBookiePool, MemoryBookie
from geminga.model.errors import StorageError


def test_shortage_names_what_is_wanted_and_what_is_there_and_ends_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        bookies = {name: MemoryBookie() for name in ("a", "b", "c")}
        shortage = BookieShortage(LocalBookiePool(bookies), 3)
        shortage.look()
        assert (shortage.story(), caplog.messages) == ("", [])
        bookies["b"].is_writable = False
        told = "managedLedgerDefaultEnsembleSize=3, and 2 bookies take entries (a, c): what needs a new ledger fails"
        assert shortage.story().startswith(told)
        assert shortage.story().endswith(" (read-only, of a full disk or as they were started: b)")
        bookies["a"].go_down(StorageError("down"))
        assert "and 1 bookies take entries (c)" in shortage.story()
        assert shortage.story().endswith("started: b)")
        assert len(caplog.messages) == 1
        for name in ("a", "b"):
            bookies[name].come_back()
        assert shortage.story() == ""
        assert caplog.messages[1:] == ["3 bookies take entries: enough for new ledgers"]
        # Who stops knows that its bookies go.
        await shortage.close()
        bookies["c"].go_down(StorageError("down"))
        assert len(caplog.messages) == 2

    with caplog.at_level(logging.INFO):
        asyncio.run(main())


def test_nobody_at_all_is_told_without_names() -> None:
    async def main() -> None:
        story = BookieShortage(LocalBookiePool({}), 1).story()
        assert story.startswith("managedLedgerDefaultEnsembleSize=1, and 0 bookies take entries: ")

    asyncio.run(main())
