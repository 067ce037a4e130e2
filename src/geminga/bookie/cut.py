"""A bookie's files as of one moment, for who copies them while it goes on: what a crash at that moment would leave.

The checkpoint in force names index runs and entry logs, whose durable sizes never change but by appending; journals
behind its mark have the rest, up to the last group on stable storage. None of these is written over; those that are to
go meanwhile stay (``disk_io.HeldFiles``).
"""

from __future__ import annotations

from typing import NamedTuple

from geminga.bookie.bookie import LocalBookie
from geminga.bookie.core.checkpoint_format import encode_checkpoint
from geminga.bookie.entry_logs import log_name
from geminga.bookie.garbage_collection import MARK_NAME, QUARANTINE_NAME
from geminga.bookie.journal import journal_name
from geminga.bookie.ledger_storage import CHECKPOINT_NAME, run_name
from geminga.bookie.recovery import COOKIE_NAME, LIMBO_NAME


class CutFile(NamedTuple):
    """The first ``size_bytes`` of a file; None: all of it."""

    #: Below the bookie's directory: ``journal/...`` or ``ledgers/...``.
    name: str
    path: str
    size_bytes: int | None
    #: Another file of this name and size is the same.
    is_final: bool


class BookieCut(NamedTuple):
    """What to copy."""

    files: list[CutFile]
    #: Whole files, by name.
    values: dict[str, bytes]


async def small_files(bookie: LocalBookie) -> dict[str, bytes]:
    """Cookies, quarantine, limbo, and the mark, which the metadata have: so before these are copied. Raises OSError."""
    disk = bookie.storage.runtime.disk
    values = {}
    journal, ledgers = bookie.journal.directory, bookie.storage.directory
    for folder, directory, name in (
        ("journal", journal, COOKIE_NAME),
        ("ledgers", ledgers, COOKIE_NAME),
        ("ledgers", ledgers, QUARANTINE_NAME),
        ("ledgers", ledgers, MARK_NAME),
        ("ledgers", ledgers, LIMBO_NAME),
    ):
        try:
            values[f"{folder}/{name}"] = await disk.read_file(f"{directory}/{name}")
        except FileNotFoundError:
            continue
    return values


def cut_of(bookie: LocalBookie) -> BookieCut:
    """What the bookie has now; :func:`hold` was called before."""
    storage = bookie.storage
    checkpoint = storage.checkpoint
    files = [
        CutFile(f"ledgers/{log_name(log_id)}", storage.logs.path(log_id), size, is_final=True)
        for log_id, size in checkpoint.logs
    ]
    runs = [run_name(run_id) for run_id in checkpoint.run_ids]
    files += [CutFile(f"ledgers/{name}", storage.path(name), None, is_final=True) for name in runs]
    for journal_id, end in bookie.journal.durable_files():
        if journal_id >= checkpoint.mark_journal_id:
            name = journal_name(journal_id)
            files.append(CutFile(f"journal/{name}", f"{bookie.journal.directory}/{name}", end, is_final=False))
    return BookieCut(files, {f"ledgers/{CHECKPOINT_NAME}": encode_checkpoint(checkpoint, storage.instance_id)})


def hold(bookie: LocalBookie) -> None:
    """No file of the bookie goes until :func:`release`."""
    bookie.storage.logs.held.hold()
    bookie.journal.held.hold()


async def release(bookie: LocalBookie) -> None:
    """Files may go again. Raises OSError where one that was to go can not."""
    try:
        await bookie.storage.logs.held.release()
    finally:
        await bookie.journal.held.release()
