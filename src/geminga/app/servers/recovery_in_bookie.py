"""Auto-recovery in a bookie's process, with connections of its own to all of them (``autoRecoveryDaemonEnabled``)."""

from __future__ import annotations

from geminga.app.configuration.bookie_config import RecoveryConfig
from geminga.bookkeeper import BookKeeper
from geminga.bookkeeper.remote import RegisteredBookies, RemoteBookiePool
from geminga.bookkeeper.remote.kept_connection import TlsOfBookies
from geminga.metadata.ports import MetadataStore
from geminga.replication.autorecovery import AutoRecovery
from geminga.replication.registry import MetadataBookieRegistry
from geminga.runtime.ports import Runtime


class RecoveryInBookie:
    """See the module. Its locks and its vote are of the bookie's session."""

    def __init__(
        self,
        runtime: Runtime,
        metadata: MetadataStore,
        bookie_id: str,
        config: RecoveryConfig,
        frame_bytes_max: int,
        tls: TlsOfBookies | None = None,
    ) -> None:
        """``bookie_id``: whose process it is, for people who read locks. ``tls``: how bookies are spoken to."""
        self._metadata = metadata
        self._pool = RemoteBookiePool(runtime, frame_bytes_max=frame_bytes_max, tls=tls)
        self._registered: RegisteredBookies | None = None
        self._recovery = AutoRecovery(
            runtime,
            metadata,
            self._pool,
            BookKeeper(runtime, metadata, self._pool, config.bookkeeper),
            MetadataBookieRegistry(metadata),
            config.replication,
            name=bookie_id,
        )

    async def start(self) -> None:
        """Begin. Raises MetadataError, CorruptionError; :meth:`close` is called then, too."""
        self._registered = await RegisteredBookies.follow(self._metadata, self._pool)
        await self._recovery.start()

    async def close(self) -> None:
        """Stop where it is. Raises MetadataError after everything was closed that can be."""
        try:
            await self._recovery.close()
        finally:
            if self._registered is not None:
                await self._registered.close()
            await self._pool.close()
