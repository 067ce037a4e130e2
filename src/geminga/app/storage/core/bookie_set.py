"""Which bookies a process runs, by what was asked for and what the metadata store remembers. Pure.

Bookie n has one name (its directory), one id and one place for ever. A bookie that is remembered is never left out
silently and never begun anew: its ledgers name it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError, DataDirectoryError

#: Port in the id of the first one, as BookKeeper's bookies have it; in one process it is never connected to.
FIRST_PORT: Final = 3181
#: Bookies of one process.
BOOKIES_MAX: Final = 16


class BookieSlot(NamedTuple):
    """One bookie of the process."""

    number: int
    #: The directory that it has in the data directory, which is also what it is called.
    name: str
    #: As ledger metadata name it.
    bookie_id: str


def bookie_slot(number: int) -> BookieSlot:
    """Bookie ``number``, from 1 on."""
    return BookieSlot(number, "bookie" if number == 1 else f"bookie-{number}", f"127.0.0.1:{FIRST_PORT + number - 1}")


def bookies_to_run(count: int, left_out: Collection[str], remembered: Collection[str]) -> Sequence[BookieSlot]:
    """The bookies to open, in order: ``count`` without those ``left_out`` by name.

    ``remembered``: ids that the metadata store has a cookie of. Raises ConfigurationError for a name that none has or
    when nobody is left, DataDirectoryError if one is remembered and not among them.
    """
    slots = [bookie_slot(number) for number in range(1, count + 1)]
    names = [slot.name for slot in slots]
    strange = sorted(set(left_out) - set(names))
    if strange:
        raise ConfigurationError(
            f"gemingaBookiesLeftOut={','.join(left_out)}: there is no {' or '.join(strange)} among {', '.join(names)}"
        )
    known = {bookie_slot(number).bookie_id: bookie_slot(number) for number in range(1, BOOKIES_MAX + 1)}
    ids = {slot.bookie_id for slot in slots}
    missing = sorted(
        (known[name].number, f"{known[name].name} ({name})") for name in remembered if name in known.keys() - ids
    )
    foreign = sorted(name for name in remembered if name not in known)
    if missing or foreign:
        most = max([count, *(number for number, _ in missing)])
        advice = f"start it with --bookies {most}" if missing else "they are not of a standalone"
        raise DataDirectoryError(
            f"{count} {'bookie was' if count == 1 else 'bookies were'} asked for, but the metadata store remembers "
            f"{', '.join([*(text for _, text in missing), *foreign])} too, and what they hold would be out of reach: "
            f"{advice}"
        )
    chosen = [slot for slot in slots if slot.name not in left_out]
    if not chosen:
        raise ConfigurationError(f"gemingaBookiesLeftOut={','.join(left_out)}: no bookie is left")
    return chosen
