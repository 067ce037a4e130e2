"""A small shop as a standalone: tenants, topics with schemas and rights, subscriptions that lag, dead letters."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Self

import geminga.admin
import geminga.client
from geminga.client import ConsumerDeadLetterPolicy, ConsumerType, InitialPosition
from geminga.client.schema import AvroSchema, JsonSchema, StringSchema

ORDERS = "shop/orders/checkout"
PAYMENTS = "shop/orders/payments"
READINGS = "iot/telemetry/readings"
LETTERS = "shop/orders/checkout-billing-DLQ"
SHIPPING = "shop/orders/shipments"
REFUNDS = "shop/orders/refunds"
#: Messages of ORDERS, and how many of them subscription ``billing`` has not had.
ORDERS_SENT, BILLING_LAG = 1_500, 1_204
LETTERS_SENT = 5


@dataclass
class Order:
    """Version 0 of the schema of ORDERS."""

    order_id: str
    customer: str
    amount_cents: int


@dataclass
class OrderWithCurrency:
    """Version 1: another field."""

    order_id: str
    customer: str
    amount_cents: int
    currency: str = "EUR"
    gift_note: str | None = None


# What Avro calls the record is the same in both versions.
OrderWithCurrency.__name__ = "Order"


@dataclass
class Reading:
    """What is sent to READINGS."""

    sensor: str
    celsius: float


async def fill(service_url: str, web_url: str, token: str = "") -> None:
    """Make all of it, as who has ``token``."""
    who = geminga.client.AuthenticationToken(token) if token else None
    async with (
        geminga.admin.connect(web_url, authentication=who) as admin,
        geminga.client.connect(service_url, authentication=who) as client,
    ):
        await _namespaces(admin)
        await _orders(admin, client)
        await _dead_letters(client)
        await _others(admin, client)


async def _namespaces(admin: geminga.admin.AdminClient) -> None:
    clusters = await admin.clusters.list()
    for tenant in ("shop", "iot"):
        await admin.tenants.create(tenant, admin_roles=[f"{tenant}-admin"], allowed_clusters=clusters)
    for namespace in ("shop/orders", "shop/catalogue", "iot/telemetry"):
        await admin.namespaces.create(namespace)
    kept = {"retentionTimeInMinutes": 1_440, "retentionSizeInMB": 1_024}
    await admin.namespace_policies.retention.set("shop/orders", kept)
    await admin.permissions.grant("shop/orders", "checkout-service", ["produce"])
    await admin.permissions.grant("shop/orders", "billing-service", ["consume"])
    for number in range(30):
        await admin.topics.create(f"shop/catalogue/changes-{number:02d}")


async def _orders(admin: geminga.admin.AdminClient, client: geminga.client.Client) -> None:
    await admin.topics.create(ORDERS)
    for name in ("billing", "search-index", "fraud-check"):
        await admin.subscriptions.create(ORDERS, name, "earliest")
    old = await client.create_producer(
        ORDERS, schema=AvroSchema(Order), producer_name="checkout-1", batching_enabled=False
    )
    for number in range(100):
        old.send_nowait(Order(f"A-{number:05d}", f"customer-{number % 37}", 100 + number * 13))
    await old.flush()
    await old.close()
    producer = await client.create_producer(
        ORDERS, schema=AvroSchema(OrderWithCurrency), producer_name="checkout-2", batching_enabled=False
    )
    for number in range(100, ORDERS_SENT):
        order = OrderWithCurrency(f"A-{number:05d}", f"customer-{number % 37}", 100 + number * 13, "CHF")
        producer.send_nowait(
            order,
            partition_key=order.customer,
            properties={"channel": "app" if number % 3 else "web", "region": ("eu", "us", "ap")[number % 3]},
        )
    await producer.flush()
    await producer.close()
    await admin.subscriptions.skip(ORDERS, "billing", ORDERS_SENT - BILLING_LAG)
    await admin.subscriptions.skip_all(ORDERS, "search-index")


async def _dead_letters(client: geminga.client.Client) -> None:
    """What a real consumer gave up: a topic of its own, so that the lag of ORDERS is what was said."""
    policy = ConsumerDeadLetterPolicy(1, dead_letter_topic=LETTERS, initial_subscription_name="kept")
    consumer = await client.subscribe(
        REFUNDS,
        "billing",
        consumer_type=ConsumerType.Shared,
        initial_position=InitialPosition.Earliest,
        dead_letter_policy=policy,
        negative_ack_redelivery_delay_ms=1,
        schema=StringSchema(),
    )
    producer = await client.create_producer(REFUNDS, schema=StringSchema())
    for number in range(LETTERS_SENT):
        await producer.send(f"refund {number}: the account is closed", properties={"attempt": "2"})
    letters = await client.subscribe(LETTERS, "kept", initial_position=InitialPosition.Earliest)
    seen = 0
    while seen < LETTERS_SENT:
        refused = asyncio.ensure_future(consumer.receive())
        came = asyncio.ensure_future(letters.receive())
        done, waiting = await asyncio.wait({refused, came}, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        if refused in done:
            await consumer.negative_acknowledge(refused.result())
        if came in done:
            seen += 1
    await letters.close()
    await consumer.close()
    await producer.close()


async def _others(admin: geminga.admin.AdminClient, client: geminga.client.Client) -> None:
    await admin.topics.create_partitioned(PAYMENTS, 4)
    await admin.subscriptions.create(PAYMENTS, "ledger", "earliest")
    payments = await client.create_producer(PAYMENTS)
    for number in range(400):
        payments.send_nowait(b"payment %d" % number, partition_key=f"account-{number % 50}")
    await payments.flush()
    await payments.close()
    await admin.topics.create(SHIPPING)
    await client.subscribe(SHIPPING, "carrier", consumer_type=ConsumerType.Shared)
    shipments = await client.create_producer(SHIPPING, schema=JsonSchema(Reading))
    for number in range(20):
        await shipments.send(Reading(f"parcel-{number}", 4.5), deliver_after=timedelta(hours=2))
    await shipments.close()


class Background(ABC):
    """Clients on a thread of their own, from when they are ready until the block ends."""

    def __init__(self, service_url: str, *, patience_s: float) -> None:
        self._service_url = service_url
        self._patience_s = patience_s
        self._ready, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(self._patience_s):
            raise TimeoutError(f"no {type(self).__name__.lower()} within {self._patience_s:g} s")
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(self._patience_s)

    @abstractmethod
    async def _run(self) -> None:
        """Set ``_ready``, and end soon after ``_over`` is set."""


class Traffic(Background):
    """Something that goes on while pages are looked at: a producer and two consumers."""

    def __init__(self, service_url: str) -> None:
        super().__init__(service_url, patience_s=30)

    async def _run(self) -> None:
        async with geminga.client.connect(self._service_url) as client:
            fast = await client.subscribe(READINGS, "dashboard", schema=JsonSchema(Reading))
            slow = await client.subscribe(
                READINGS,
                "archive",
                consumer_type=ConsumerType.Shared,
                receiver_queue_size=10,
                schema=JsonSchema(Reading),
            )
            producer = await client.create_producer(READINGS, schema=JsonSchema(Reading), producer_name="gateway-7")
            self._ready.set()
            number = 0
            while not self._over.is_set():
                for _ in range(20):
                    producer.send_nowait(Reading(f"sensor-{number % 9}", 18 + number % 7 / 2))
                    number += 1
                await producer.flush()
                for _ in range(20):
                    await fast.acknowledge(await fast.receive())
                if number % 60 == 0:
                    await slow.acknowledge(await slow.receive())
                await asyncio.to_thread(self._over.wait, 0.2)
