"""How many clients, subscriptions and messages a topic takes, and what may be made on demand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from geminga.broker.access.core.actions import PolicyName
from geminga.broker.core.coercion import Json, number_of, object_of
from geminga.broker.policies.core.avro_types import optional, record
from geminga.broker.policies.core.readers import (
    TopicCreation,
    count_of,
    flag_of,
    memberwise,
    subscription_creation_of,
    text_value_of,
    topic_creation_of,
)
from geminga.broker.policies.core.row import NO_POLICIES, NamespaceLevel, Nothing, PolicyRow, Rest, Settings, TopicLevel
from geminga.broker.policies.core.values import check_subscription_creation, check_topic_creation, limit_check
from geminga.model.errors import PreconditionFailedError
from geminga.model.limits import PARTITIONS_MAX

_INT: Final = optional("int")


def _limit(path: str) -> Callable[[Json], Json]:
    return limit_check(f"{path} must be 0 or more")


MAX_PRODUCERS: Final = PolicyRow(
    name="maxProducers",
    policy=PolicyName.MAX_PRODUCERS,
    read=count_of,
    otherwise=0,
    check=_limit("maxProducers"),
    keys=("maxProducersPerTopic",),
    namespace=NamespaceLevel(
        "max_producers_per_topic",
        Rest("maxProducersPerTopic", nothing=Nothing.IS_REFUSED, check=_limit("maxProducersPerTopic")),
    ),
    topic=TopicLevel({"maxProducerPerTopic": _INT}, Rest("maxProducers", nothing=Nothing.IS_REFUSED)),
    followed_by=("topic/base.py", "publishing/producers.py"),
    text="Producers that a topic takes at the same time, beside replicators; 0: no limit.",
)
MAX_CONSUMERS: Final = PolicyRow(
    name="maxConsumers",
    policy=PolicyName.MAX_CONSUMERS,
    read=count_of,
    otherwise=0,
    check=_limit("maxConsumers"),
    keys=("maxConsumersPerTopic",),
    namespace=NamespaceLevel(
        "max_consumers_per_topic",
        Rest("maxConsumersPerTopic", nothing=Nothing.IS_REFUSED, check=_limit("maxConsumersPerTopic")),
    ),
    topic=TopicLevel({"maxConsumerPerTopic": _INT}, Rest("maxConsumers", nothing=Nothing.IS_REFUSED)),
    followed_by=("topic/base.py", "subscription/subscribe.py"),
    text="Consumers that a topic takes at the same time; 0: no limit.",
)
MAX_CONSUMERS_PER_SUBSCRIPTION: Final = PolicyRow(
    name="maxConsumersPerSubscription",
    policy=PolicyName.MAX_CONSUMERS,
    read=count_of,
    otherwise=0,
    check=limit_check("Invalid value for maxConsumersPerSubscription"),
    keys=("maxConsumersPerSubscription",),
    namespace=NamespaceLevel(
        "max_consumers_per_subscription",
        Rest("maxConsumersPerSubscription", nothing=Nothing.IS_REFUSED, check=_limit("maxConsumersPerSubscription")),
    ),
    topic=TopicLevel(
        {"maxConsumersPerSubscription": _INT},
        Rest("maxConsumersPerSubscription", nothing=Nothing.IS_REFUSED, unset_status=204),
    ),
    followed_by=("topic/base.py", "subscription/subscription.py"),
    text="Consumers that a subscription takes at the same time; 0: no limit.",
)
MAX_SUBSCRIPTIONS: Final = PolicyRow(
    name="maxSubscriptionsPerTopic",
    policy=PolicyName.MAX_SUBSCRIPTIONS,
    read=count_of,
    otherwise=0,
    check=_limit("maxSubscriptionsPerTopic"),
    keys=("maxSubscriptionsPerTopic",),
    namespace=NamespaceLevel(
        "max_subscriptions_per_topic",
        Rest("maxSubscriptionsPerTopic", nothing=Nothing.IS_REFUSED, missing=NO_POLICIES),
    ),
    topic=TopicLevel(
        {"maxSubscriptionsPerTopic": _INT},
        Rest("maxSubscriptionsPerTopic", nothing=Nothing.IS_REFUSED, unset_status=204),
    ),
    followed_by=("topic/base.py", "subscription/subscribe.py"),
    text="Subscriptions that a topic has, those of readers too; 0: no limit.",
)
MAX_TOPICS: Final = PolicyRow(
    name="maxTopicsPerNamespace",
    policy=PolicyName.MAX_TOPICS,
    read=count_of,
    otherwise=0,
    check=_limit("maxTopicsPerNamespace"),
    keys=("maxTopicsPerNamespace",),
    namespace=NamespaceLevel(
        "max_topics_per_namespace",
        Rest("maxTopicsPerNamespace", nothing=Nothing.IS_REFUSED, unset=0, missing=NO_POLICIES),
    ),
    followed_by=("registry/topic_registry.py",),
    text="Topics that a namespace has, partitions counted one by one; 0: no limit.",
)
MAX_UNACKED_ON_CONSUMER: Final = PolicyRow(
    name="maxUnackedMessagesOnConsumer",
    policy=PolicyName.MAX_UNACKED,
    read=count_of,
    otherwise=50_000,
    check=limit_check("maxUnackedNum must be 0 or more"),
    keys=("maxUnackedMessagesPerConsumer",),
    namespace=NamespaceLevel(
        "max_unacked_messages_per_consumer",
        Rest(
            "maxUnackedMessagesPerConsumer", nothing=Nothing.IS_REFUSED, check=_limit("maxUnackedMessagesPerConsumer")
        ),
    ),
    topic=TopicLevel({"maxUnackedMessagesOnConsumer": _INT}, Rest("maxUnackedMessagesOnConsumer")),
    followed_by=("topic/persistent.py",),
    text="Messages that one consumer of a Shared or Key_Shared subscription may leave unacknowledged; 0: no limit.",
)
MAX_UNACKED_ON_SUBSCRIPTION: Final = PolicyRow(
    name="maxUnackedMessagesOnSubscription",
    policy=PolicyName.MAX_UNACKED,
    read=count_of,
    otherwise=200_000,
    check=limit_check("maxUnackedNum must be 0 or more"),
    keys=("maxUnackedMessagesPerSubscription",),
    namespace=NamespaceLevel(
        "max_unacked_messages_per_subscription",
        Rest(
            "maxUnackedMessagesPerSubscription",
            nothing=Nothing.IS_REFUSED,
            check=_limit("maxUnackedMessagesPerSubscription"),
        ),
    ),
    topic=TopicLevel({"maxUnackedMessagesOnSubscription": _INT}, Rest("maxUnackedMessagesOnSubscription")),
    followed_by=("topic/persistent.py",),
    text="The same of all consumers of a subscription together.",
)

_SIZE_REFUSAL: Final = (
    "topic-level maxMessageSize must be greater than or equal to 0 and must be smaller than that in the broker-level"
)


def _below_brokers(value: Json, settings: Settings) -> None:
    most = settings["maxMessageSize"]
    if isinstance(most, int) and number_of(value, "the body") > most:
        raise PreconditionFailedError(_SIZE_REFUSAL)


MAX_MESSAGE_SIZE: Final = PolicyRow(
    name="maxMessageSize",
    policy=PolicyName.MAX_PRODUCERS,
    read=count_of,
    otherwise=0,
    check=limit_check(_SIZE_REFUSAL),
    topic=TopicLevel({"maxMessageSize": _INT}, Rest("maxMessageSize", nothing=Nothing.IS_REFUSED, unset_status=204)),
    bound=_below_brokers,
    followed_by=("topic/message_size.py",),
    text="Bytes of the largest entry (a message, a batch or a chunk) that a topic takes; 0: the broker's own limit.",
)


def _topic_creation(is_allowed: object, topic_type: object, partitions: object) -> Json:
    return {
        "allowAutoTopicCreation": bool(is_allowed),
        "topicType": str(topic_type),
        "defaultNumPartitions": partitions if isinstance(partitions, int) else 1,
    }


class TooManyPartitionsError(PreconditionFailedError):
    """More of them than a topic may have; with Pulsar's status."""

    http_status = 406


def _within_partitions(value: Json, settings: Settings) -> None:
    document = object_of(value, "the body")
    partitions, most = document.get("defaultNumPartitions"), settings["maxNumPartitionsPerPartitionedTopic"]
    most = most if isinstance(most, int) and most else PARTITIONS_MAX
    if document.get("topicType") == "partitioned" and isinstance(partitions, int) and partitions > most:
        raise TooManyPartitionsError(f"Number of partitions should be less than or equal to {most}")


AUTO_TOPIC_CREATION: Final = PolicyRow(
    name="autoTopicCreation",
    policy=PolicyName.AUTO_TOPIC_CREATION,
    read=topic_creation_of,
    otherwise=TopicCreation(),
    check=check_topic_creation,
    bound=_within_partitions,
    keys=("allowAutoTopicCreation", "allowAutoTopicCreationType", "defaultNumPartitions"),
    of_broker=_topic_creation,
    namespace=NamespaceLevel("autoTopicCreationOverride", Rest("autoTopicCreation")),
    merge=memberwise({"allowAutoTopicCreation": flag_of, "topicType": text_value_of, "defaultNumPartitions": count_of}),
    followed_by=("registry/topic_registry.py",),
    text="Whether clients make a topic by using its name, and of which type.",
)
AUTO_SUBSCRIPTION_CREATION: Final = PolicyRow(
    name="autoSubscriptionCreation",
    policy=PolicyName.AUTO_SUBSCRIPTION_CREATION,
    read=subscription_creation_of,
    otherwise=True,
    check=check_subscription_creation,
    keys=("allowAutoSubscriptionCreation",),
    of_broker=lambda is_allowed: {"allowAutoSubscriptionCreation": bool(is_allowed)},
    namespace=NamespaceLevel("autoSubscriptionCreationOverride", Rest("autoSubscriptionCreation")),
    topic=TopicLevel(
        {
            "autoSubscriptionCreationOverride": optional(
                record(
                    "org.apache.pulsar.common.policies.data.impl.AutoSubscriptionCreationOverrideImpl",
                    {"allowAutoSubscriptionCreation": "boolean"},
                )
            )
        },
        Rest("autoSubscriptionCreation"),
    ),
    followed_by=("topic/base.py",),
    text="Whether consumers make a durable subscription by using its name.",
)

ROWS: Final = (
    MAX_PRODUCERS,
    MAX_CONSUMERS,
    MAX_CONSUMERS_PER_SUBSCRIPTION,
    MAX_SUBSCRIPTIONS,
    MAX_TOPICS,
    MAX_UNACKED_ON_CONSUMER,
    MAX_UNACKED_ON_SUBSCRIPTION,
    MAX_MESSAGE_SIZE,
    AUTO_TOPIC_CREATION,
    AUTO_SUBSCRIPTION_CREATION,
)
