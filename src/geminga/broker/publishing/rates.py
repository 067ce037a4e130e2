"""The rates of one topic: who publishes to it, what is sent from it, who subscribes. Nothing while none is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from geminga.broker.configuration.broker_config import BrokerConfig
from geminga.broker.core.rate_limit import Rate, rate_of
from geminga.broker.core.subscribe_rate import ConsumerIdentity, SubscribeCounts
from geminga.broker.policies.core.rates import NO_RATES, TopicRates
from geminga.broker.publishing.publish_throttle import PublishThrottle
from geminga.broker.subscription.throttling import DispatchThrottle
from geminga.model.errors import NotAllowedError
from geminga.runtime import Clock, Part

#: In Pulsar's words.
SUBSCRIBES_TOO_OFTEN: Final = "Subscribe limited by subscribe rate limit per consumer."


class BrokerThrottles(NamedTuple):
    """Rates of all topics of a broker together, or of those of a resource group; None: no limit."""

    publish: PublishThrottle | None = None
    dispatch: DispatchThrottle | None = None
    #: Of what is copied to other clusters; a resource group's alone.
    copying: DispatchThrottle | None = None


#: A broker, or a group, without rates of its own.
NO_THROTTLES: Final = BrokerThrottles()


def broker_throttles(
    config: BrokerConfig, monotonic: Callable[[], float], part: Part, before: BrokerThrottles = NO_THROTTLES
) -> BrokerThrottles:
    """The broker's own rates, by its configuration. Those of ``before`` that are the same stay, with what was taken."""
    publish = rate_of(config.publish_rate_messages, config.publish_rate_bytes)
    dispatch = rate_of(config.dispatch_rate_messages, config.dispatch_rate_bytes)
    publishing, dispatching = before.publish, before.dispatch
    if publish is None:
        publishing = None
    elif publishing is None or publishing.rate != publish:
        publishing = PublishThrottle(publish, monotonic, part)
    if dispatch is None:
        dispatching = None
    elif dispatching is None or dispatching.rate != dispatch:
        dispatching = DispatchThrottle("Broker", dispatch, monotonic, part)
    return BrokerThrottles(publishing, dispatching)


class TopicThrottling:
    """What holds a topic's clients now."""

    __slots__ = (
        "_limited_times",
        "_monotonic",
        "_part",
        "_published",
        "_shared",
        "dispatch",
        "publish",
        "rates",
        "subscribe",
    )

    def __init__(
        self,
        broker: BrokerThrottles,
        monotonic: Callable[[], float],
        part: Part,
        published: Callable[[], tuple[int, int]],
    ) -> None:
        """``published``: messages and bytes that were published to the topic so far."""
        #: What it shares with others: the broker's rates, its resource group's.
        self._shared = (broker, NO_THROTTLES)
        self._monotonic = monotonic
        self._part = part
        self._published = published
        self._limited_times = 0
        self.rates = NO_RATES
        #: By which its publishes are counted: the broker's, its group's, its own.
        self.publish: tuple[PublishThrottle, ...] = self._shared_publish()
        #: By which its subscriptions' dispatch is counted.
        self.dispatch: tuple[DispatchThrottle, ...] = self._shared_dispatch()
        self.subscribe: SubscribeCounts | None = None

    @property
    def publish_limited_times(self) -> int:
        """How often a connection was held by the topic's own publish rates, whichever they were."""
        return self._limited_times + sum(throttle.times for throttle in self._own_publish())

    def hold_to_shared(self, broker: BrokerThrottles, group: BrokerThrottles = NO_THROTTLES) -> bool:
        """The rates of the broker, and of its resource group, are these from now on; whether they are others.
        Subscriptions are to be told."""
        if self._shared == (broker, group):
            return False
        publish, dispatch = self._own_publish(), self._own_dispatch()
        self._shared = (broker, group)
        self.publish = (*self._shared_publish(), *publish)
        self.dispatch = (*self._shared_dispatch(), *dispatch)
        return True

    @property
    def copying(self) -> DispatchThrottle | None:
        """What its resource group may copy to other clusters."""
        return self._shared[1].copying

    def _shared_publish(self) -> tuple[PublishThrottle, ...]:
        return tuple(shared.publish for shared in self._shared if shared.publish is not None)

    def _shared_dispatch(self) -> tuple[DispatchThrottle, ...]:
        return tuple(shared.dispatch for shared in self._shared if shared.dispatch is not None)

    def _own_publish(self) -> list[PublishThrottle]:
        shared = self._shared_publish()
        return [throttle for throttle in self.publish if throttle not in shared]

    def _own_dispatch(self) -> list[DispatchThrottle]:
        shared = self._shared_dispatch()
        return [throttle for throttle in self.dispatch if throttle not in shared]

    def apply(self, rates: TopicRates) -> bool:
        """Hold to other rates from now on; whether they differ. Subscriptions are to be told."""
        before, self.rates = self.rates, rates
        if rates == before:
            return False
        if rates.publish != before.publish:
            self._set_publish(rates.publish)
        if rates.dispatch != before.dispatch:
            self._set_dispatch(rates.dispatch)
        if rates.subscribe != before.subscribe:
            rate = rates.subscribe
            self.subscribe = None if rate is None else SubscribeCounts(rate, self._monotonic())
        return True

    def of_subscription(self, name: str, present: DispatchThrottle | None) -> DispatchThrottle | None:
        """The own rate of a subscription that has ``present``: the same while the rate is."""
        rate = self.rates.of_subscription(name)
        if rate is None or (present is not None and present.rate == rate):
            return present if rate is not None else None
        return DispatchThrottle("Subscription", rate, self._monotonic, self._part, self._published)

    def check_subscribe(self, peer: str, name: str, consumer_id: int) -> None:
        """Raise NotAllowedError if this consumer subscribes too often. ``peer``: ``/address:port``."""
        if self.subscribe is None:
            return
        who = ConsumerIdentity(peer.rpartition(":")[0], name, consumer_id)
        if not self.subscribe.admit(who, self._monotonic()):
            raise NotAllowedError(SUBSCRIBES_TOO_OFTEN)

    def close(self) -> None:
        """The topic goes: who waits for its rates goes on."""
        self.apply(NO_RATES)
        self.publish = ()
        self.dispatch = ()

    def _set_publish(self, rate: Rate | None) -> None:
        before = self._own_publish()
        self._limited_times = self.publish_limited_times
        self.publish = self._shared_publish()
        if rate is not None:
            self.publish += (PublishThrottle(rate, self._monotonic, self._part),)
        for throttle in before:
            throttle.close()

    def _set_dispatch(self, rate: Rate | None) -> None:
        before = self._own_dispatch()
        self.dispatch = self._shared_dispatch()
        if rate is not None:
            self.dispatch += (DispatchThrottle("Topic", rate, self._monotonic, self._part, self._published),)
        for throttle in before:
            throttle.close()


class Counts(Protocol):
    """What counts what is published to a topic."""

    def totals(self) -> tuple[int, int]:
        """Messages and bytes so far."""


class HeldRates:
    """The rates that hold a topic, whether there are any or not: a topic without pays for this alone."""

    __slots__ = ("_broker", "_clock", "_part", "_published", "publish", "throttling")

    def __init__(
        self,
        broker: Callable[[], BrokerThrottles] | None,
        clock: Clock,
        part: Part,
        published: Counts,
    ) -> None:
        """``broker``: the broker's own rates, as they are now; None: they are not for this topic. ``published``:
        what was published to it.
        """
        self._broker = broker
        self._clock = clock
        self._part = part
        self._published = published
        #: What holds its clients to rates; None: there never was a rate.
        self.throttling: TopicThrottling | None = None
        #: By which its publishes are counted; prebuilt, empty as a rule.
        self.publish: tuple[PublishThrottle, ...] = ()

    def hold_to(self, rates: TopicRates, group: BrokerThrottles = NO_THROTTLES) -> bool:
        """Hold to these rates from now on, to those of the topic's resource group and to the broker's; whether
        connections are to look at them again."""
        throttles = self._broker() if self._broker is not None else NO_THROTTLES
        if self.throttling is None:
            if self._broker is None or (rates == NO_RATES and throttles == group == NO_THROTTLES):
                return False
            self.throttling = TopicThrottling(throttles, self._clock.monotonic, self._part, self._published.totals)
            self.throttling.hold_to_shared(throttles, group)
        elif not self.throttling.hold_to_shared(throttles, group) and rates == self.throttling.rates:
            return False
        self.throttling.apply(rates)
        self.publish = self.throttling.publish
        return True

    @property
    def publish_limited_times(self) -> int:
        """How often a connection was held by the topic's publish rate, since it was loaded."""
        return 0 if self.throttling is None else self.throttling.publish_limited_times

    @property
    def dispatch(self) -> tuple[DispatchThrottle, ...]:
        """Rates that all its subscriptions share."""
        return () if self.throttling is None else self.throttling.dispatch

    @property
    def copying(self) -> DispatchThrottle | None:
        """The rate that its resource group has for what is copied to other clusters."""
        return None if self.throttling is None else self.throttling.copying

    def of_subscription(self, name: str, present: DispatchThrottle | None) -> DispatchThrottle | None:
        """The own rate of a subscription that has ``present`` by now; None: it has none."""
        return None if self.throttling is None else self.throttling.of_subscription(name, present)

    def check_subscribe(self, peer: str, name: str, consumer_id: int) -> None:
        """Raise NotAllowedError if this consumer subscribes too often. ``peer``: ``/address:port``."""
        if self.throttling is not None:
            self.throttling.check_subscribe(peer, name, consumer_id)

    def end(self) -> None:
        """The topic goes: nobody waits for its rates."""
        self.publish = ()
        if self.throttling is not None:
            self.throttling.close()
