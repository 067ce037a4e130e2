"""Who decides in tests: authorizers that deny what they are told to, and authenticators that know some words."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping
from typing import Any

from geminga.broker.access.anonymous import EVERYBODY_IS_ANONYMOUS
from geminga.broker.access.core.actions import Action, Resource
from geminga.broker.access.core.handshake import Challenge, Credentials, Known, Rejected, Verdict
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import ALLOWED, Access, Decision, Denied
from geminga.runtime import wait_ms


class Denying:
    """Denies some actions to everybody."""

    def __init__(self, denied: Collection[Action] = (), *, is_slow: bool = False, reason: str = "") -> None:
        self.denied = denied
        self.is_slow = is_slow
        self.reason = reason
        self.asked: list[tuple[Principal, Action, Resource]] = []

    @property
    def access(self) -> Access:
        """It decides, and everybody is anonymous."""
        return Access(authenticator=EVERYBODY_IS_ANONYMOUS, authorizer=self)

    def decide(
        self, principal: Principal, action: Action, resource: Resource
    ) -> Decision | Coroutine[Any, Any, Decision]:
        self.asked.append((principal, action, resource))
        decision = Denied(self.reason) if action in self.denied else ALLOWED
        return self._later(decision) if self.is_slow else decision

    async def _later(self, decision: Decision) -> Decision:
        await wait_ms(10)
        return decision


class TakenAtTheirWord:
    """Believes everybody: what a peer brings as credentials is its role. Who brings nothing is refused."""

    def begin(self, *_: object, **__: object) -> TakenAtTheirWord:
        return self

    def answer(self, credentials: Credentials) -> Verdict:
        return Known(credentials.data.decode()) if credentials.data else Rejected("nothing was said")


class Secrets:
    """Knows who says which word; some words are asked for in a second round."""

    def __init__(
        self,
        roles: Mapping[bytes, str],
        *,
        challenges: bool = False,
        until_s: float | None = None,
        is_slow: bool = False,
    ) -> None:
        self.roles = roles
        self.challenges = challenges
        self.until_s = until_s
        self.is_slow = is_slow
        self.begun = 0

    def begin(self, source: str = "", *, in_http: bool = False) -> SecretExchange:
        self.begun += 1
        return SecretExchange(self)


class SecretExchange:
    """With one peer."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._has_asked = False

    def answer(self, credentials: Credentials) -> Verdict | Coroutine[Any, Any, Verdict]:
        verdict = self._verdict(credentials)
        return self._later(verdict) if self._secrets.is_slow else verdict

    def _verdict(self, credentials: Credentials) -> Verdict:
        if self._secrets.challenges and not self._has_asked:
            self._has_asked = True
            return Challenge(b"which word?")
        role = self._secrets.roles.get(credentials.data)
        return Known(role, self._secrets.until_s) if role is not None else Rejected("a wrong word")

    async def _later(self, verdict: Verdict) -> Verdict:
        await wait_ms(10)
        return verdict
