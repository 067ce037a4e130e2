"""What became of credentials: counted under Pulsar's names, and told in the log without filling it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from geminga.broker.access.ports import Labels
from geminga.broker.authentication.ports import Provider
from geminga.runtime import Clock, get_logger

_log = get_logger(__name__)

#: Seconds between two lines of one address.
LINE_S: Final = 1.0
#: Addresses whose last line is remembered, and lines of all of them within one :data:`LINE_S`.
SOURCES_MAX: Final = 1024
LINES_MAX: Final = 20
#: Characters of a reason.
_REASON_LENGTH_MAX: Final = 300


class Outcomes:
    """See the module."""

    __slots__ = ("_clock", "_failures", "_left_out", "_lines", "_since_s", "_successes", "_written_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._successes: dict[tuple[str, str], int] = {}
        self._failures: dict[tuple[str, str, str], int] = {}
        #: Address -> when its last line was written; in that order.
        self._written_s: dict[str, float] = {}
        self._left_out = 0
        #: Lines since then.
        self._lines = 0
        self._since_s = clock.monotonic()

    def succeeded(self, provider: Provider) -> None:
        """Somebody is known."""
        key = (provider.name, provider.method)
        self._successes[key] = self._successes.get(key, 0) + 1

    def failed(self, provider_name: str, method: str, code: str, reason: str, source: str) -> None:
        """Somebody is not; ``reason`` holds nothing of the credentials. ``source``: the address, without the port."""
        key = (provider_name, method, code)
        self._failures[key] = self._failures.get(key, 0) + 1
        now_s = self._clock.monotonic()
        if now_s - self._since_s >= LINE_S:
            self._since_s, self._lines = now_s, 0
        if self._lines >= LINES_MAX or now_s - self._written_s.get(source, -LINE_S) < LINE_S:
            self._left_out += 1
            return
        self._lines += 1
        self._written_s.pop(source, None)
        self._written_s[source] = now_s
        if len(self._written_s) > SOURCES_MAX:
            del self._written_s[next(iter(self._written_s))]
        text = reason if len(reason) <= _REASON_LENGTH_MAX else f"{reason[:_REASON_LENGTH_MAX]}..."
        more = f" ({self._left_out} more failures since the last of these lines)" if self._left_out else ""
        self._left_out = 0
        _log.warning("authentication of %s by %s failed: %s%s", source or "somebody", method or "no method", text, more)

    def metrics(self) -> Iterator[tuple[Labels, Mapping[str, float]]]:
        """Labels and samples."""
        for (name, method), count in self._successes.items():
            labels = (("provider_name", name), ("auth_method", method))
            yield labels, {"pulsar_authentication_success_total": count}
        for (name, method, code), count in self._failures.items():
            why = (("provider_name", name), ("auth_method", method), ("reason", code))
            yield why, {"pulsar_authentication_failures_total": count}
