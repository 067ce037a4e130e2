"""Who this installation is: the brokers that share one metadata store, and nobody else.

BookKeeper may be shared by several installations, each with lists of its own, so that the ledgers of one look
forgotten to all the others. Every ledger therefore names its installation in its custom metadata
(docs/formats/ledger-metadata.md). The identity lies beside the lists of ledgers, in the broker's metadata store:
BookKeeper's own instance id is the same for all who share it.
"""

from __future__ import annotations

from typing import Final

from geminga.metadata import cas
from geminga.metadata.ports import MetadataStore
from geminga.model.errors import MetadataError
from geminga.runtime.ports import Rng

#: Value: 32 hex digits, drawn once.
INSTALLATION_PATH: Final = "/geminga/installation"
#: Key in a ledger's custom metadata; its value is the node's.
META_INSTALLATION: Final = "geminga/installation"
_TOKEN_BYTES: Final = 16


class Installation:
    """The identity, read (at the very first start: made) when it is asked for first."""

    __slots__ = ("_id", "_metadata", "_rng")

    def __init__(self, metadata: MetadataStore, rng: Rng) -> None:
        self._metadata = metadata
        self._rng = rng
        self._id = b""

    async def id(self) -> bytes:
        """The same for all processes on this metadata store, for ever. Raises MetadataError."""
        if not self._id:
            drawn = self._rng.token(_TOKEN_BYTES).encode()
            written = await cas.update(self._metadata, INSTALLATION_PATH, lambda found: None if found else drawn)
            if written is None or not written.value:
                raise MetadataError(f"{INSTALLATION_PATH} could not be made")
            self._id = written.value
        return self._id
