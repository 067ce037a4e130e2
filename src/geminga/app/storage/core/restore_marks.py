"""Restoring a backup to a cluster, its decisions: what may be there before, and how ledgers are spread. Pure.

``docs/formats/backup.md``, Restoring to a cluster, is the specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from geminga.metadata.core.copying import RESTORING_PATH, Marker, several
from geminga.model.errors import ConfigurationError, DataDirectoryError
from geminga.model.settings import setting
from geminga.wire.bookkeeper.bookie_registration import BOOKIE_MARKS_PATH
from geminga.wire.bookkeeper.ledger_metadata import LedgerMetadata
from geminga.wire.bookkeeper.ledger_path import LEDGERS_ROOT

#: Ephemeral: one restores at a time.
RESTORER_PATH: Final = "/geminga/restorer"
#: Which backup the cluster began as.
RESTORED_PATH: Final = "/geminga/restored"
_OWN: Final = (RESTORER_PATH, RESTORING_PATH, RESTORED_PATH)
#: What a target may have that the backup has not, beside who its installation is.
ADDED: Final = (*_OWN, LEDGERS_ROOT, BOOKIE_MARKS_PATH)
_AS_IT_HAD: Final = "bookies >= 0, 0: as each ledger had"
_BEFORE: Final = frozenset(("/zookeeper", LEDGERS_ROOT, BOOKIE_MARKS_PATH, *_OWN))


class Found(NamedTuple):
    """What a store holds before anything is written there."""

    #: Paths of the nodes at its root, and of those below ``/geminga``.
    paths: Sequence[str]
    #: Whether any ledger is there.
    has_ledgers: bool
    #: The first id that no ledger had.
    next_ledger_id: int
    restoring: Marker | None = None
    restored: Marker | None = None


def is_done(found: Found, backup_id: str) -> bool:
    """Whether all of this backup is there, and was used since or not."""
    return found.restoring is None and found.restored is not None and found.restored.copy_id == backup_id


def goes_on(found: Found, backup_id: str, target: str) -> bool:
    """Whether an attempt before left a part of this backup there; False: nothing is there.

    Raises DataDirectoryError where it is anything else.
    """
    if found.restoring is not None:
        if found.restoring.copy_id == backup_id:
            return True
        raise DataDirectoryError(
            f"{target} holds a part of another backup ({found.restoring.copy_id}, of {found.restoring.source}): "
            "restore that one until it is done, or remove what is there, and what its bookies have"
        )
    foreign = sorted(path for path in found.paths if path != "/geminga" and path not in _BEFORE)
    if found.restored is not None:
        raise DataDirectoryError(
            f"{target} was made of another backup ({found.restored.copy_id}, of {found.restored.source}), nothing was "
            "changed there: name an empty or a new path behind the port (zk:HOST:PORT/PATH)"
        )
    if found.has_ledgers or found.next_ledger_id > 0:
        foreign.append(
            f"ledgers below {LEDGERS_ROOT}" if found.has_ledgers else f"ids given out to {found.next_ledger_id} ledgers"
        )
    if foreign:
        raise DataDirectoryError(
            f"{target} is not empty: it holds {several(foreign)}. Nothing was changed there; expected a store in which "
            "nothing but bookies were started: no broker, no geminga initialize-cluster-metadata"
        )
    return False


@dataclass(frozen=True, slots=True)
class RestoredSizes:
    """How many bookies and copies restored ledgers get; 0: as many as each had."""

    ensemble_size: int = setting("managedLedgerDefaultEnsembleSize", 0, _AS_IT_HAD, minimum=0)
    write_quorum: int = setting("managedLedgerDefaultWriteQuorum", 0, _AS_IT_HAD, minimum=0)
    ack_quorum: int = setting("managedLedgerDefaultAckQuorum", 0, _AS_IT_HAD, minimum=0)

    def __post_init__(self) -> None:
        """Refuse what no ledger can be made with."""
        given = [size for size in (self.ensemble_size, self.write_quorum, self.ack_quorum) if size]
        if given != sorted(given, reverse=True):
            raise ConfigurationError(
                f"managedLedgerDefaultEnsembleSize={self.ensemble_size}, WriteQuorum={self.write_quorum}, "
                f"AckQuorum={self.ack_quorum}: expected each to be at most the one before"
            )

    def of(self, ledger: LedgerMetadata) -> tuple[int, int, int]:
        """Ensemble, write and ack quorum of a ledger; what is not given is as it was, or as much as that allows."""
        ack = self.ack_quorum or 1
        write = self.write_quorum or max(min(ledger.write_quorum, self.ensemble_size or ledger.write_quorum), ack)
        ensemble = self.ensemble_size or max(ledger.ensemble_size, write)
        return ensemble, write, self.ack_quorum or min(ledger.ack_quorum, write)
