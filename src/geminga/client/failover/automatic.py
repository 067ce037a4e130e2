"""``AutoClusterFailover``: a client that leaves its cluster when that does not answer, and goes back when it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from geminga.client._api.errors import InvalidConfiguration
from geminga.client._api.service_targets import FailoverClient, ServiceTarget, target_of
from geminga.client._transport.service_urls import parse_addresses
from geminga.client.rules.failover import FailoverRules
from geminga.runtime import wait_ms

#: Java's.
CHECK_INTERVAL_S: Final = 30.0
#: A cluster that takes no connection in this time does not answer.
PROBE_TIMEOUT_S: Final = 1.5


class AutoClusterFailover:
    """As Java's of that name: a primary cluster, and others that are tried in their order when it does not answer.

    Every ``check_interval_s`` the present cluster is asked, by a connection of its own with its credentials: what takes
    none within ``probe_timeout_s`` does not answer. After ``failover_delay_s`` without an answer the first other one
    that answers is used, the primary before all. Once the primary has answered again for ``switch_back_delay_s`` the
    client goes back. Where no cluster answers it stays.
    """

    def __init__(
        self,
        primary: str | ServiceTarget,
        secondaries: Sequence[str | ServiceTarget],
        *,
        failover_delay_s: float = 0,
        switch_back_delay_s: float = 0,
        check_interval_s: float = CHECK_INTERVAL_S,
        probe_timeout_s: float = PROBE_TIMEOUT_S,
    ) -> None:
        """Raises InvalidUrl, InvalidConfiguration."""
        if isinstance(secondaries, str) or not secondaries:
            raise InvalidConfiguration(f"secondaries: expected a list of one or more clusters, not {secondaries!r}")
        times = {"failover_delay_s": failover_delay_s, "switch_back_delay_s": switch_back_delay_s}
        for name, value in times.items():
            _check(name, value, 0)
        _check("check_interval_s", check_interval_s, 0.001)
        _check("probe_timeout_s", probe_timeout_s, 0.001)
        self.targets = [target_of(primary, "primary"), *(target_of(one, "secondaries") for one in secondaries)]
        for target in self.targets:
            parse_addresses(target.service_url)
        self._delays_s = (failover_delay_s, switch_back_delay_s)
        self._rules = FailoverRules(*self._delays_s)
        self._interval_s = check_interval_s
        self._timeout_s = probe_timeout_s

    @property
    def first(self) -> ServiceTarget:
        """The primary."""
        return self.targets[0]

    @property
    def current(self) -> ServiceTarget:
        """The cluster that is used now."""
        return self.targets[self._rules.current]

    async def watch(self, client: FailoverClient) -> None:
        """As of :class:`ServiceUrlProvider`."""
        # A client begins with the primary, wherever one before it went.
        self._rules = FailoverRules(*self._delays_s)
        clock = client.runtime.clock
        while True:
            await wait_ms(self._rules.next_look_s(clock.monotonic(), self._interval_s) * 1000)
            await self._look(client)

    async def _look(self, client: FailoverClient) -> None:
        rules, clock = self._rules, client.runtime.clock
        answers = await client.reaches(self.current, self._timeout_s)
        rules.looked(answers=answers, now_s=clock.monotonic())
        if rules.current:
            answers = await client.reaches(self.first, self._timeout_s)
            rules.looked_at_primary(answers=answers, now_s=clock.monotonic())
        if rules.goes_back(clock.monotonic()):
            self._go_to(client, 0)
        elif rules.is_given_up(clock.monotonic()):
            for number, target in enumerate(self.targets):
                # The primary was asked just now, as the current one.
                if number not in (0, rules.current) and await client.reaches(target, self._timeout_s):
                    self._go_to(client, number)
                    return

    def _go_to(self, client: FailoverClient, number: int) -> None:
        client.go_on_with(self.targets[number])
        self._rules.switched(number)


def _check(name: str, value: float, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < float("inf"):
        raise InvalidConfiguration(f"{name}: expected a number of seconds, {least:g} or more, not {value!r}")
