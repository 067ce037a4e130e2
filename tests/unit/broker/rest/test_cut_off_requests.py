"""A request that is called off in its midst: whatever it had done by then, the next one like it does what was asked.

It is called off after each number of the loop's turns until it is over; ``make test`` tries a tenth of them, others
each week. Twice the broker's part of a table or a cursor stayed half open for good.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, NamedTuple

import pytest

from geminga.runtime import next_turn, spawn, wait_ms
from support.house.weekly_sample import sampled
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.rest_world import ask, rest_application

Call = tuple[str, str, object]

NS: Final = "public/default"
TOPIC: Final = f"persistent/{NS}/t"
FULL: Final = f"persistent://{NS}/t"
SCHEMA: Final = {"type": "STRING", "schema": "", "properties": {}}
TENANT: Final = {"adminRoles": [], "allowedClusters": ["standalone"]}
#: Of the turns of the loop after which a request is called off, every so manieth is tried at once.
PARTS: Final = 10
#: A request takes fewer turns.
TURNS_MAX: Final = 3_000
#: Somebody else does it at this moment.
BUSY: Final = 503


class Case(NamedTuple):
    name: str
    call: Call
    #: Asked for first.
    before: tuple[Call, ...] = ()
    #: What the call may be answered the second time.
    again: tuple[int, ...] = (200, 204)
    #: What is asked for in the end, also after a restart, and the answer.
    after: tuple[str, object] | None = None


MADE: Call = ("PUT", TOPIC, None)
PARTED: Call = ("PUT", f"{TOPIC}/partitions", 3)
SUBSCRIBED: Call = ("PUT", f"{TOPIC}/subscription/s", None)

CASES: Final = [
    Case("tenant", ("PUT", "tenants/new", TENANT), (), (204, 409), ("tenants", ["new", "public", "pulsar"])),
    Case(
        "namespace",
        ("PUT", "namespaces/public/new", {}),
        (),
        (204, 409),
        ("namespaces/public", ["public/default", "public/new"]),
    ),
    Case("topic", MADE, (), (204, 409), (f"persistent/{NS}", [FULL])),
    Case("partitions", PARTED, (), (204, 409), (f"persistent/{NS}/partitioned", [FULL])),
    Case(
        "more partitions",
        ("POST", f"{TOPIC}/partitions", 5),
        (PARTED,),
        (204, 409),
        (f"{TOPIC}/partitions", {"partitions": 5, "deleted": False}),
    ),
    Case("subscription", SUBSCRIBED, (MADE,), (204, 409), (f"{TOPIC}/subscriptions", ["s"])),
    Case("subscription of partitions", SUBSCRIBED, (PARTED,), (204, 409), (f"{TOPIC}/subscriptions", ["s"])),
    Case(
        "unsubscribe",
        ("DELETE", f"{TOPIC}/subscription/s", None),
        (MADE, SUBSCRIBED),
        (204, 404),
        (f"{TOPIC}/subscriptions", []),
    ),
    Case("delete", ("DELETE", TOPIC, None), (MADE,), (204, 404), (f"persistent/{NS}", [])),
    Case("delete partitions", ("DELETE", f"{TOPIC}/partitions", None), (PARTED,), (204, 404), (f"persistent/{NS}", [])),
    Case(
        "delete with a schema",
        ("DELETE", f"{TOPIC}?deleteSchema=true", None),
        (MADE, ("POST", f"schemas/{NS}/t/schema", SCHEMA)),
        (204, 404),
        (f"persistent/{NS}", []),
    ),
    Case("schema", ("POST", f"schemas/{NS}/t/schema", SCHEMA), (MADE,), (200,)),
    Case(
        "delete schema",
        ("DELETE", f"schemas/{NS}/t/schema", None),
        (MADE, ("POST", f"schemas/{NS}/t/schema", SCHEMA)),
        (200, 404),
    ),
    Case("topic policy", ("POST", f"{TOPIC}/maxProducers", 7), (MADE,), (204,), (f"{TOPIC}/maxProducers", 7)),
    Case(
        "topic policy gone",
        ("DELETE", f"{TOPIC}/maxProducers", None),
        (MADE, ("POST", f"{TOPIC}/maxProducers", 7)),
        (204,),
        (f"{TOPIC}/maxProducers", None),
    ),
    Case(
        "namespace policy",
        ("POST", f"namespaces/{NS}/maxProducersPerTopic", 7),
        (MADE,),
        (204,),
        (f"namespaces/{NS}/maxProducersPerTopic", 7),
    ),
    Case("unload", ("PUT", f"{TOPIC}/unload", None), (MADE,), (204,), (f"{TOPIC}/subscriptions", [])),
    Case("unload all", ("PUT", f"namespaces/{NS}/unload", None), (MADE,), (204,), (f"{TOPIC}/subscriptions", [])),
    Case("terminate", ("POST", f"{TOPIC}/terminate", None), (MADE,), (200,)),
    Case("truncate", ("DELETE", f"{TOPIC}/truncate", None), (MADE, SUBSCRIBED), (204,)),
    Case("clear", ("POST", f"{TOPIC}/subscription/s/skip_all", None), (MADE, SUBSCRIBED), (204,)),
    Case("reset", ("POST", f"{TOPIC}/subscription/s/resetcursor/0", None), (MADE, SUBSCRIBED), (204,)),
    Case("compaction", ("PUT", f"{TOPIC}/compaction", None), (MADE,), (204, 409)),
    Case(
        "delete namespace",
        ("DELETE", "namespaces/public/new", None),
        (("PUT", "namespaces/public/new", {}),),
        (204, 404),
        ("namespaces/public", ["public/default"]),
    ),
    Case(
        "delete tenant",
        ("DELETE", "tenants/new", None),
        (("PUT", "tenants/new", TENANT),),
        (204, 404),
        ("tenants", ["public", "pulsar"]),
    ),
    Case("split", ("PUT", f"namespaces/{NS}/0x00000000_0x40000000/split", None), (MADE,), (204, 412)),
    Case(
        "properties", ("PUT", f"{TOPIC}/properties", {"a": "b"}), (MADE,), (204,), (f"{TOPIC}/properties", {"a": "b"})
    ),
    Case(
        "subscription properties",
        ("PUT", f"{TOPIC}/subscription/s/properties", {"a": "b"}),
        (MADE, SUBSCRIBED),
        (204,),
        (f"{TOPIC}/subscription/s/properties", {"a": "b"}),
    ),
    Case("grant", ("POST", f"namespaces/{NS}/permissions/r", ["produce"]), (), (204,)),
    Case(
        "resource group",
        ("PUT", "resourcegroups/g", {"publishRateInMsgs": 5}),
        (),
        (204, 409),
        ("resourcegroups", ["g"]),
    ),
    Case(
        "shadow",
        ("PUT", f"{TOPIC}/shadowTopics", ["persistent://public/default/shadow"]),
        (MADE, ("PUT", f"persistent/{NS}/shadow", {"PULSAR.SHADOW_SOURCE": FULL})),
        (204,),
    ),
    Case("replication clusters", ("POST", f"namespaces/{NS}/replication", ["standalone"]), (MADE,), (200, 204)),
    Case("non-persistent partitions", ("PUT", f"non-persistent/{NS}/t/partitions", 3), (), (204, 409)),
]


async def _ask(world: BrokerWorld, call: Call) -> tuple[int, Any]:
    method, path, body = call
    data = b"" if body is None else json.dumps(body).encode()
    answer = await ask(rest_application(world.broker), method, f"/admin/v2/{path}", data)
    return answer.status, json.loads(answer.body) if answer.body else None


async def _check(world: BrokerWorld, case: Case) -> None:
    if case.after is not None:
        path, expected = case.after
        assert (await _ask(world, ("GET", path, None)))[1] == expected


async def _is_done_after(world: BrokerWorld, case: Case, turns: int) -> bool:
    for each in case.before:
        status, answer = await _ask(world, each)
        assert status in (200, 204), (each, status, answer)
    task = spawn(_ask(world, case.call), name="called off")
    for _ in range(turns):
        await next_turn()
    is_done = task.done()
    task.cancel()
    await asyncio.wait([task])
    while (again := await _ask(world, case.call))[0] == BUSY:
        await wait_ms(1000)
    assert again[0] in case.again, again
    await _check(world, case)
    await world.restart()
    await _check(world, case)
    return is_done


@pytest.mark.parametrize("part", sampled("requests called off", range(PARTS), 1))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_request_that_is_called_off_does_not_stand_in_the_way_of_the_next(case: Case, part: int) -> None:
    for turns in range(part + 1, TURNS_MAX, PARTS):

        async def scenario(world: BrokerWorld, turns: int = turns) -> bool:
            async with asyncio.timeout(600):
                return await _is_done_after(world, case, turns)

        if run_with_broker(
            scenario,
            keep_alive_interval_s=1_000_000,
            delete_inactive_topics=False,
            transaction_coordinator_enabled=True,
        ):
            return
    raise AssertionError(f"not over after {TURNS_MAX} turns")
