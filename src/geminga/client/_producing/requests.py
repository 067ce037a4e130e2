"""The commands of one producer: PRODUCER, from its options and what the broker granted before, and CLOSE_PRODUCER."""

from __future__ import annotations

from typing import cast

from geminga.client._api.options import ProducerOptions
from geminga.wire._generated import pulsar_api_pb2 as pb


def create(
    topic: str,
    producer_id: int,
    request_id: int,
    options: ProducerOptions,
    *,
    name: str,
    epoch: int,
    topic_epoch: int | None,
    is_encrypted: bool,
    schema: pb.Schema | None,
) -> pb.BaseCommand:
    """PRODUCER. ``name``: the one given or granted before, empty: the broker picks one.

    ``epoch`` grows with each PRODUCER, so that the broker tells a returning producer from a second one;
    ``topic_epoch`` is that of exclusive access, as the broker granted it.
    """
    request = pb.CommandProducer(
        topic=topic,
        producer_id=producer_id,
        request_id=request_id,
        producer_name=name or None,
        epoch=epoch,
        encrypted=is_encrypted,
        user_provided_producer_name=bool(options.producer_name),
        producer_access_mode=cast("pb.ProducerAccessMode", int(options.access_mode)),
        topic_epoch=topic_epoch,
        initial_subscription_name=options.initial_subscription_name or None,
        schema=schema,
    )
    for key, value in options.properties.items():
        request.metadata.add(key=key, value=value)
    return pb.BaseCommand(type=pb.BaseCommand.PRODUCER, producer=request)


def close(producer_id: int, request_id: int) -> pb.BaseCommand:
    """CLOSE_PRODUCER."""
    request = pb.CommandCloseProducer(producer_id=producer_id, request_id=request_id)
    return pb.BaseCommand(type=pb.BaseCommand.CLOSE_PRODUCER, close_producer=request)
