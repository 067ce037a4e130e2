"""What the environment says, and what an order is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Self

from pydantic import BaseModel, Field


class Order(BaseModel):
    """What is published: the schema of the topic is made of it."""

    order_id: Annotated[str, Field(min_length=1, max_length=100)]
    customer: Annotated[str, Field(min_length=1, max_length=100)]
    amount: Annotated[Decimal, Field(gt=0, max_digits=12, decimal_places=2)]


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the broker is, and what the service uses there."""

    service_url: str = "pulsar://localhost:6650"
    topic: str = "persistent://public/default/orders"
    #: Replicas of the service share the work of one subscription.
    subscription: str = "settlement"
    #: A token, or ``file:///path`` of one; empty: none.
    token: str = ""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """``PULSAR_SERVICE_URL``, ``ORDERS_TOPIC``, ``ORDERS_SUBSCRIPTION``, ``PULSAR_TOKEN``; defaults where unset."""
        default = cls()
        return cls(
            environment.get("PULSAR_SERVICE_URL", default.service_url),
            environment.get("ORDERS_TOPIC", default.topic),
            environment.get("ORDERS_SUBSCRIPTION", default.subscription),
            environment.get("PULSAR_TOKEN", default.token),
        )
