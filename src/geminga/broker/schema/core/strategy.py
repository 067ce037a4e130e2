"""``schemaCompatibilityStrategy``: what a new schema of a topic must keep to."""

from __future__ import annotations

from enum import Enum


class Strategy(Enum):
    """Pulsar's names; ``compatibility`` carries them out."""

    UNDEFINED = "UNDEFINED"
    ALWAYS_INCOMPATIBLE = "ALWAYS_INCOMPATIBLE"
    ALWAYS_COMPATIBLE = "ALWAYS_COMPATIBLE"
    #: The new schema can read what the newest one wrote.
    BACKWARD = "BACKWARD"
    #: The newest schema can read what the new one writes.
    FORWARD = "FORWARD"
    #: Both.
    FULL = "FULL"
    #: The same with every schema of the topic instead of the newest.
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all schemas count, not only the newest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def new_reads_old(self) -> bool:
        """Whether the new schema must read what was written."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def old_reads_new(self) -> bool:
        """Whether old schemas must read what will be written."""
        return self.value.startswith(("FORWARD", "FULL"))
