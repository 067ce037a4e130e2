"""What broke above storage: one line each in the log, a count for the metrics, and how long it stays closed.

Connections, subscriptions and topics are the parts that can break by themselves (:mod:`geminga.runtime.containment`).
What belongs to no single one of them (a timer over all topics, say) is the broker's own: it is noted, and the broker
goes on.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from geminga.broker.core.holds import Holds
from geminga.model.errors import UnavailableError
from geminga.runtime import Clock, get_logger, where

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = get_logger(__name__)


class BrokenPart(StrEnum):
    """What can break; the label ``part`` of the metric."""

    BROKER = "broker"
    CONNECTION = "connection"
    SUBSCRIPTION = "subscription"
    TOPIC = "topic"


class Failures:
    """See the module; one for a broker."""

    __slots__ = ("_clock", "_holds", "counts")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._holds = Holds()
        #: Part -> how many broke; read at scrape time.
        self.counts = dict.fromkeys(BrokenPart, 0)

    def note(self, kind: BrokenPart, name: str, what: str, error: BaseException, *, is_held: bool = False) -> None:
        """``name`` broke in ``what`` and is closed; ``is_held``: for a while."""
        self.counts[kind] += 1
        held = ""
        if is_held:
            held = f" for {self._holds.broke(_key(kind, name), self._now_ms())} ms"
        outcome = "the broker goes on" if kind is BrokenPart.BROKER else f"it is closed{held}"
        _log.error(
            "%s %s broke in %s, %s: %s: %s at %s",
            kind,
            name,
            what,
            outcome,
            type(error).__name__,
            error,
            where(error),
            exc_info=error if _log.isEnabledFor(10) else None,
        )

    def check(self, kind: BrokenPart, names: Iterable[str]) -> None:
        """Raise UnavailableError, which clients answer by trying again later, if one of these is held."""
        if not len(self._holds):
            return
        now_ms = self._now_ms()
        for name in names:
            left_ms = self._holds.left_ms(_key(kind, name), now_ms)
            if left_ms:
                raise UnavailableError(f"{kind} {name} broke and is closed for {left_ms} ms more")

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)


def _key(kind: BrokenPart, name: str) -> str:
    return f"{kind} {name}"


def subscription_name(topic: object, subscription: str) -> str:
    """What a subscription is called in the log and here."""
    return f"{subscription} of {topic}"
