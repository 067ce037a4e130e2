"""Authorizers of tests: they deny what they are told to, at once or after a while, and keep what they were asked."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import ALLOWED, Decision, Denied


class Denying:
    """Denies some actions to everybody."""

    def __init__(self, denied: Collection[Action] = (), *, is_slow: bool = False, reason: str = "") -> None:
        self.denied = denied
        self.is_slow = is_slow
        self.reason = reason
        self.asked: list[tuple[Principal, Action, Resource]] = []

    def decide(
        self, principal: Principal, action: Action, resource: Resource
    ) -> Decision | Coroutine[Any, Any, Decision]:
        self.asked.append((principal, action, resource))
        decision = Denied(self.reason) if action in self.denied else ALLOWED
        return self._later(decision) if self.is_slow else decision

    async def _later(self, decision: Decision) -> Decision:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.01, future.set_result, None)
        await future
        return decision
