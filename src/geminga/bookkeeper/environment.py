"""What all handles of one ledger client share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from geminga.bookkeeper.ledger_store import LedgerStore
from geminga.bookkeeper.replicas import Replicas
from geminga.model.errors import NotEnoughBookiesError
from geminga.wire.bookkeeper.ledger_metadata import META_PLACEMENT

if TYPE_CHECKING:
    from geminga.bookkeeper.config import BookKeeperConfig
    from geminga.bookkeeper.core.refused_ids import RefusedIds
    from geminga.bookkeeper.placement_facts import PlacementFacts
    from geminga.metadata.ports import MetadataStore
    from geminga.model.bookie_port import BookiePool
    from geminga.runtime import Runtime


class LedgerEnvironment:
    """Metadata, bookies, placement and its randomness."""

    __slots__ = (
        "_config",
        "_metadata",
        "_placement",
        "_refused_ids",
        "_runtime",
        "below",
        "bookies",
        "ledgers",
        "replicas",
    )

    def __init__(
        self, runtime: Runtime, metadata: MetadataStore, bookies: BookiePool, config: BookKeeperConfig
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._config = config
        self._placement: PlacementFacts | None = None
        self.ledgers = LedgerStore(metadata)
        self.bookies = bookies
        #: How reads reach them.
        self.replicas = Replicas(
            bookies,
            runtime.clock.monotonic,
            speculative_s=config.speculative_read_timeout_ms / 1000,
            is_sticky=config.has_sticky_reads,
        )
        #: Made with the first that was refused.
        self._refused_ids: RefusedIds | None = None
        #: Draws from [0, n).
        self.below: Callable[[int], int] = runtime.rng.below

    def id_was_refused(self, ledger_id: int) -> None:
        """Bookies have a new ledger's id as another's."""
        if self._refused_ids is None:
            from geminga.bookkeeper.core.refused_ids import RefusedIds

            self._refused_ids = RefusedIds()
        self._refused_ids.refused(ledger_id, now_s=self._runtime.clock.monotonic())

    @property
    def newest_refused_id(self) -> int:
        """New ledgers get greater ids; -1: any."""
        return -1 if self._refused_ids is None else self._refused_ids.newest

    @property
    def placement(self) -> PlacementFacts:
        """Which bookies are taken; loaded where there is a choice. Raises NotEnoughBookiesError.

        A process that has no descriptor left can not load it now: that is no worse than a bookie that is missing.
        """
        if self._placement is None:
            try:
                from geminga.bookkeeper.placement_facts import PlacementFacts
            except OSError as error:
                raise NotEnoughBookiesError(f"who could take a bookie's place can not be told now: {error}") from error

            self._placement = PlacementFacts(self._runtime, self._metadata, self.bookies, self._config)
        return self._placement

    async def new_ensemble(
        self, ensemble_size: int, write_quorum: int, custom_metadata: Mapping[str, bytes]
    ) -> tuple[str, ...]:
        """The bookies of a new ledger of these custom metadata. Raises NotEnoughBookiesError."""
        available = self.bookies.available()
        is_strict = self._config.has_strict_placement or META_PLACEMENT in custom_metadata
        if len(available) == ensemble_size == 1 and not is_strict:
            return tuple(available)
        placement = await self.placement.known(custom_metadata)
        return placement.new_ensemble(
            self.bookies.available(), ensemble_size=ensemble_size, write_quorum=write_quorum, below=self.below
        )
