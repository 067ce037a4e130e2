"""The topic of the plans: where it is, and what keeps it there.

A topic without subscriptions is deleted by brokers once nobody uses it (``brokerDeleteInactiveTopicsEnabled``), and a
query whose plans are gone can not tell a replay from other rows. So the topic has one subscription, which nobody ever
consumes: every producer of plans names it as its initial subscription, and the broker makes it if it is not there.
"""

from __future__ import annotations

from typing import Final

from geminga.model.topic_name import TopicName
from geminga.spark.rules.own_topics import PLAN_TOPIC
from geminga.spark.sink_rules.sink_options import ProducerSettings, SinkOptions

#: Where plans of rows with a column of topics are recorded unless an option says otherwise.
PLAN_TOPIC_DEFAULT: Final = f"persistent://public/default/{PLAN_TOPIC}"
#: The subscription that holds the topic.
PLAN_SUBSCRIPTION: Final = "__spark_commits"
#: How plans are written.
PLAN_PRODUCER: Final = ProducerSettings(initial_subscription=PLAN_SUBSCRIPTION)


def plan_topic(options: SinkOptions) -> str:
    """Where the plans of a sink are recorded: a matter of its options alone, so that a replay finds them."""
    if options.plan_topic:
        return options.plan_topic
    if not options.topic:
        return PLAN_TOPIC_DEFAULT
    topic = TopicName.parse(options.topic)
    return str(TopicName(topic.domain, topic.tenant, topic.namespace_name, PLAN_TOPIC))
