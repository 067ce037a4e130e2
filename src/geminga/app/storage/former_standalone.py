"""A bookie process in the directory of a standalone that became a cluster: which of its bookies, and under which id.

The id is the one that ledger metadata name, ``127.0.0.1:3181``; where it is reached is registered beside it. Only a
directory whose metadata were copied (``geminga metadata copy``) is taken: a standalone could start in any other.
"""

from __future__ import annotations

import os.path
from typing import NamedTuple

from geminga.app.storage.core.bookie_set import BOOKIES_MAX, BookieSlot, bookie_slot
from geminga.app.storage.data_directory import FORMAT_FILE, read_move
from geminga.model.errors import DataDirectoryError
from geminga.runtime.ports import Disk

_SLOTS = {slot.name: slot for slot in (bookie_slot(number) for number in range(1, BOOKIES_MAX + 1))}


class BookieDirectory(NamedTuple):
    """Where a bookie keeps everything unless configured otherwise."""

    directory: str
    #: The id that it has there; empty: none yet.
    bookie_id: str = ""


async def bookie_directory(disk: Disk, path: str, *, has_metadata: bool) -> BookieDirectory:
    """Where the bookie of ``--data path`` lies. Raises DataDirectoryError, OSError."""
    names = await _names(disk, path)
    if FORMAT_FILE in names:
        slots = [_SLOTS[name] for name in names if name in _SLOTS]
        await _check_moved(disk, path, has_metadata=has_metadata)
        if len(slots) > 1:
            raise DataDirectoryError(_several_bookies(path, slots))
        slot = slots[0] if slots else bookie_slot(1)
        return BookieDirectory(os.path.join(path, slot.name), slot.bookie_id)
    above, name = os.path.split(path)
    if name in _SLOTS and FORMAT_FILE in await _names(disk, above):
        await _check_moved(disk, above, has_metadata=has_metadata)
        return BookieDirectory(path, _SLOTS[name].bookie_id)
    return BookieDirectory(path)


async def _names(disk: Disk, path: str) -> list[str]:
    try:
        return sorted(await disk.list_dir(path))
    except OSError:
        return []  # it is new, or the bookie will say what is wrong


async def _check_moved(disk: Disk, path: str, *, has_metadata: bool) -> None:
    move = await read_move(disk, path)
    if move is None or not move.is_done:
        raise DataDirectoryError(
            f"{path} is the data directory of a standalone ({FORMAT_FILE}): its bookies are served there. To make it "
            f"one of a cluster, stop it and copy its metadata first (geminga metadata copy {path} zk:HOST:PORT/PATH); "
            "otherwise name an empty or a new directory"
        )
    if not has_metadata:
        raise DataDirectoryError(
            f"{path} is of a standalone that became a cluster, whose metadata are in {move.to}: add --metadata "
            f"{move.to}"
        )


def _several_bookies(path: str, slots: list[BookieSlot]) -> str:
    commands = " and ".join(f"--data {os.path.join(path, slot.name)}" for slot in sorted(slots))
    return (
        f"{path} is of a standalone with {len(slots)} bookies: start a process for each of them ({commands}), each on "
        "a port of its own"
    )
