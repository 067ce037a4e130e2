"""The ledger client's settings, with BookKeeper's and Pulsar's key names."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.model.settings import setting


@dataclass(frozen=True, slots=True)
class BookKeeperConfig:
    """See ``docs/compatibility.md`` for keys of Pulsar that have no effect here."""

    #: Entries that ledger recovery reads at once (BookKeeper's client reads 1, its autorecovery 10).
    recovery_read_batch_size: int = setting("recoveryReadBatchSize", 100, "entries, 1-10000", minimum=1, maximum=10_000)
    #: Ledger ids taken from the metadata store at once; what is left of them at a crash is never used.
    ledger_id_batch_size: int = setting("gemingaLedgerIdBatchSize", 100, "ids, 1-1000000", minimum=1, maximum=1_000_000)
    #: Digest of new ledgers; Pulsar's default is CRC32C.
    digest_type: str = setting(
        "managedLedgerDigestType",
        "CRC32C",
        "one of CRC32, CRC32C, MAC, DUMMY",
        choices=("CRC32", "CRC32C", "MAC", "DUMMY"),
    )
    #: Password of new ledgers; Pulsar's default is empty.
    password: str = setting("managedLedgerPassword", "", "text")
