"""One resource group on one broker: its limits, this broker's shares of them, and who is held to those."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from geminga.broker.core.coercion import Document
from geminga.broker.core.group_shares import Use, next_share
from geminga.broker.core.rate_limit import Rate
from geminga.broker.groups.usage import GroupReport, Watched
from geminga.broker.publishing.publish_throttle import PublishThrottle
from geminga.broker.publishing.rates import BrokerThrottles
from geminga.broker.subscription.throttling import DispatchThrottle
from geminga.runtime import Part

PUBLISH: Final = ("publishRateInMsgs", "publishRateInBytes")
DISPATCH: Final = ("dispatchRateInMsgs", "dispatchRateInBytes")
#: Of what is copied to other clusters, an entry counting as one message, as in Pulsar.
COPYING: Final = ("replicationDispatchRateInMsgs", "replicationDispatchRateInBytes")
#: As statistics say which rate holds a dispatch.
LEVEL: Final = "ResourceGroup"
#: Who was held and used less than this part of its share was not held by that.
HELD_PART: Final = 0.9


def limits_of(document: Document | None) -> dict[str, int]:
    """The limits that a group's document sets, by Pulsar's names."""
    found = {}
    for name in (*PUBLISH, *DISPATCH, *COPYING):
        limit = document.get(name) if document is not None else None
        if isinstance(limit, int) and limit > 0:
            found[name] = limit
    return found


class BrokerGroup:
    """See the module."""

    __slots__ = (
        "_before",
        "_before_s",
        "_monotonic",
        "_part",
        "_times_before",
        "asked_s",
        "is_stale",
        "is_untold",
        "limits",
        "look",
        "name",
        "shares",
        "throttles",
        "unwatch",
        "watched",
    )

    def __init__(self, name: str, monotonic: Callable[[], float], part: Part) -> None:
        self.name = name
        self._monotonic = monotonic
        self._part = part
        #: What all brokers together may use; none: no limit.
        self.limits: dict[str, int] = {}
        #: What this one may.
        self.shares: dict[str, int] = {}
        #: What topics of the group are held by.
        self.throttles = BrokerThrottles()
        #: How often this broker looked.
        self.look = 0
        self.watched = Watched()
        #: When a topic asked for it last, by the monotonic clock.
        self.asked_s = monotonic()
        #: Its limits changed, and were not read since.
        self.is_stale = False
        #: Other throttles hold since topics were told to look.
        self.is_untold = False
        #: Stops hearing of other limits.
        self.unwatch: Callable[[], None] | None = None
        self._before: dict[str, int] = {}
        self._times_before: dict[str, int] = {}
        self._before_s = monotonic()

    def set_limits(self, limits: Mapping[str, int], *, is_alone: bool) -> bool:
        """The group's limits are these. Whether other throttles hold from now on: topics are to be told."""
        is_other_kind = limits.keys() != self.limits.keys()
        self.limits = dict(limits)
        # What was fair of the limit before, of a new one the floor until the next look, unless nobody else is there.
        self.set_shares(
            {name: limit if is_alone else min(limit, self.shares.get(name, 1)) for name, limit in limits.items()}
        )
        if is_other_kind:
            self._remake()
        return is_other_kind

    def set_shares(self, shares: Mapping[str, int]) -> None:
        """This broker may use so much from now on."""
        self.shares = dict(shares)
        if self.throttles.publish is not None and self._rate(PUBLISH) is not None:
            self.throttles.publish.change(Rate(*self._pair(PUBLISH)))
        if self.throttles.dispatch is not None and self._rate(DISPATCH) is not None:
            self.throttles.dispatch.change(Rate(*self._pair(DISPATCH)))
        if self.throttles.copying is not None and self._rate(COPYING) is not None:
            self.throttles.copying.change(Rate(*self._pair(COPYING)))

    def report(self, reports: Mapping[str, GroupReport], me: str, uses: Mapping[str, Use]) -> dict[str, GroupReport]:
        """The reports of all, with this broker's next shares."""
        found = dict(reports)
        mine = {}
        for limit, most in self.limits.items():
            others = {name: report.uses[limit] for name, report in found.items() if limit in report.uses}
            use = uses[limit]
            mine[limit] = use._replace(share=next_share(most, me, {**others, me: use}))
        found[me] = GroupReport(self.look, mine)
        return found

    def used(self) -> dict[str, Use]:
        """What was used since the last call, per second, of each limit."""
        now_s = self._monotonic()
        elapsed_s = max(now_s - self._before_s, 0.001)
        counts, times = self._counts(), self._times()
        found = {}
        for limit in self.limits:
            used = int((counts[limit] - self._before.get(limit, 0)) / elapsed_s)
            share = self.shares.get(limit, 0)
            # Also the other limit of the pair holds, and a share that has grown since: who used less needed less.
            is_held = times[limit] > self._times_before.get(limit, 0) and used >= share * HELD_PART
            found[limit] = Use(share, max(0, used), is_held)
        self._before, self._times_before, self._before_s = counts, times, now_s
        return found

    def totals(self) -> dict[str, int]:
        """Messages and bytes that counted for each of its limits, since it was loaded."""
        return self._counts()

    def close(self) -> None:
        """No topic is in it any more: nobody waits for it."""
        if self.unwatch is not None:
            self.unwatch()
            self.unwatch = None
        self._let_go()

    def _remake(self) -> None:
        before = self.throttles
        publish, dispatch, copying = self._rate(PUBLISH), self._rate(DISPATCH), self._rate(COPYING)
        self._before, self._times_before = {}, {}
        self.throttles = BrokerThrottles(
            None if publish is None else PublishThrottle(publish, self._monotonic, self._part),
            None if dispatch is None else DispatchThrottle(LEVEL, dispatch, self._monotonic, self._part),
            None if copying is None else DispatchThrottle(LEVEL, copying, self._monotonic, self._part),
        )
        for throttle in before:
            if throttle is not None:
                throttle.close()

    def _let_go(self) -> None:
        for throttle in self.throttles:
            if throttle is not None:
                throttle.close()

    def _rate(self, names: tuple[str, str]) -> Rate | None:
        pair = self._pair(names)
        return Rate(*pair) if any(pair) else None

    def _pair(self, names: tuple[str, str]) -> tuple[int, int]:
        messages, size = (self.shares.get(name, 0) for name in names)
        return messages, size

    def _counts(self) -> dict[str, int]:
        publish, dispatch, copying = self.throttles
        found = dict.fromkeys((*PUBLISH, *DISPATCH, *COPYING), 0)
        if publish is not None:
            found |= zip(PUBLISH, (publish.messages_in, publish.bytes_in), strict=True)
        if dispatch is not None:
            found |= zip(DISPATCH, (dispatch.messages_out, dispatch.bytes_out), strict=True)
        if copying is not None:
            found |= zip(COPYING, (copying.messages_out, copying.bytes_out), strict=True)
        return found

    def _times(self) -> dict[str, int]:
        publish, dispatch, copying = self.throttles
        # Who still waits is held, too, though nobody began to wait since.
        times = 0 if publish is None else publish.times + publish.waiting_count
        sent = 0 if dispatch is None else dispatch.times + dispatch.waiting_count
        copied = 0 if copying is None else copying.times
        return {**dict.fromkeys(PUBLISH, times), **dict.fromkeys(DISPATCH, sent), **dict.fromkeys(COPYING, copied)}
