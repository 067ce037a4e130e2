"""The admin REST of a broker in a simulation, as an application without a socket."""

from __future__ import annotations

from starlette.types import ASGIApp

from geminga.broker.metrics import Metrics
from geminga.broker.rest.context import RestContext
from geminga.broker.rest.loading import application_maker
from geminga.broker.rest.stats import TopicStatistics
from geminga.broker.service import Broker


def rest_application(broker: Broker) -> ASGIApp:
    """The application for a broker, put together as the composition root does it."""
    statistics = TopicStatistics(broker.runtime.clock, broker)
    context = RestContext(
        status=broker,
        topics=broker.administered,
        resources=broker.resources,
        policies=broker.policies,
        policies_changed=broker.policies_changed,
        schemas=broker.schemas,
        lookup=broker.lookup,
        ownership=broker.ownership,
        ledgers=broker.ledgers,
        clock=broker.runtime.clock,
        disk=broker.runtime.disk,
        config=broker.config,
        metrics=Metrics(broker, statistics, cluster="standalone", has_topic_level=True),
        statistics=statistics,
        cluster="standalone",
        version="test",
        access=broker.access,
    )
    return application_maker(context)()
