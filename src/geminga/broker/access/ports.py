"""Who answers whether somebody may do something."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.principal import Principal


@dataclass(frozen=True, slots=True)
class Allowed:
    """It may be done."""


@dataclass(frozen=True, slots=True)
class Denied:
    """It may not."""

    #: What the client is told of it; empty: which action it is.
    reason: str = ""


Decision: TypeAlias = Allowed | Denied
ALLOWED: Final = Allowed()


class Authorizer(Protocol):
    """Decides at every door."""

    def decide(
        self, principal: Principal, action: Action, resource: Resource
    ) -> Decision | Coroutine[Any, Any, Decision]:
        """Whether ``principal`` may do ``action`` to ``resource``.

        At once where the answer is known, so that a door costs no task. A coroutine where something must be read
        first: commands behind the one that asks wait for it; its GemingaError is the answer to the client.
        """
