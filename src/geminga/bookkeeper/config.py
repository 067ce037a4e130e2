"""The ledger client's settings, with BookKeeper's and Pulsar's key names."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.model.settings import setting


@dataclass(frozen=True, slots=True)
class BookKeeperConfig:
    """See ``docs/compatibility.md`` for keys of Pulsar that have no effect here."""

    #: Entries that ledger recovery reads at once (BookKeeper's client reads 1, its autorecovery 10).
    recovery_read_batch_size: int = setting("recoveryReadBatchSize", 100, "entries, 1-10000", minimum=1, maximum=10_000)
    #: Digest of new ledgers; Pulsar's default is CRC32C.
    digest_type: str = setting(
        "managedLedgerDigestType",
        "CRC32C",
        "one of CRC32, CRC32C, MAC, DUMMY",
        choices=("CRC32", "CRC32C", "MAC", "DUMMY"),
    )
    #: Password of new ledgers; Pulsar's default is empty.
    password: str = setting("managedLedgerPassword", "", "text")
    #: After so long without an answer another replica is asked as well; BookKeeper's default (Pulsar's is 0: never).
    speculative_read_timeout_ms: int = setting(
        "bookkeeperClientSpeculativeReadTimeoutInMillis", 2000, "milliseconds, 0 or more", minimum=0
    )
    #: Whether reads of a ledger keep to one bookie while it answers.
    has_sticky_reads: bool = setting("bookkeeperEnableStickyReads", True)
    #: Placement over racks and regions, by what ``/bookies`` tells of them; Pulsar's defaults.
    is_rack_aware: bool = setting("bookkeeperClientRackawarePolicyEnabled", True)
    is_region_aware: bool = setting("bookkeeperClientRegionawarePolicyEnabled", False)
    racks_per_write_quorum_min: int = setting(
        "bookkeeperClientMinNumRacksPerWriteQuorum", 2, "racks, 1-100", minimum=1, maximum=100
    )
    is_racks_min_enforced: bool = setting("bookkeeperClientEnforceMinNumRacksPerWriteQuorum", False)
    isolation_groups: tuple[str, ...] = setting("bookkeeperClientIsolationGroups", (), "groups, comma separated")
    secondary_isolation_groups: tuple[str, ...] = setting(
        "bookkeeperClientSecondaryIsolationGroups", (), "groups, comma separated"
    )
    #: Whether the room that bookies have on disk counts, and how often they are asked for it.
    is_placement_weighted: bool = setting("bookkeeperDiskWeightBasedPlacementEnabled", False)
    bookie_info_interval_s: int = setting(
        "bookkeeperClientGetBookieInfoIntervalSeconds", 86_400, "seconds, 1 or more", minimum=1
    )
    bookie_info_retry_interval_s: int = setting(
        "bookkeeperClientGetBookieInfoRetryIntervalSeconds", 60, "seconds, 1 or more", minimum=1
    )

    @property
    def needs_racks(self) -> bool:
        """Whether placement goes by where bookies stand."""
        return self.is_rack_aware or self.is_region_aware or bool(self.isolation_groups)

    @property
    def has_strict_placement(self) -> bool:
        """Whether a bookie that could be written to may not be used."""
        return self.is_racks_min_enforced or bool(self.isolation_groups)
