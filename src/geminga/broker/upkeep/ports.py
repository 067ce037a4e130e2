"""What the upkeep uses of the rest of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from geminga.broker.topic.base import Topic

#: The loaded topics by full name.
LoadedTopics: TypeAlias = "Mapping[str, Topic]"
