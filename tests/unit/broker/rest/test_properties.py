"""Properties of topics and subscriptions stand in nodes that have ledgers and positions, too: they leave room."""

from __future__ import annotations

import json

import pytest

from geminga.wire.pulsar.texts import SAID_BYTES_MAX
from support.worlds.broker_world import BrokerWorld
from support.worlds.policy_levels import run_quietly
from support.worlds.rest_world import ask, rest_application

TOPICS = "/admin/v2/persistent/public/default"
MOST = {"k": "v" * (SAID_BYTES_MAX - 1)}
BEYOND = {**MOST, "é": ""}


@pytest.mark.parametrize(
    ("method", "path", "body", "whose"),
    [
        ("PUT", "new", BEYOND, "a topic"),
        ("PUT", "new/partitions", {"partitions": 2, "properties": BEYOND}, "a topic"),
        ("PUT", "t/properties", BEYOND, "a topic"),
        # What there is counts: they are added.
        ("PUT", "full/properties", {"another": ""}, "a topic"),
        ("PUT", "several/properties", BEYOND, "a topic"),
        ("PUT", "t/subscription/s/properties", BEYOND, "a subscription"),
        ("PUT", "t/subscription/new", {"ledgerId": 1, "entryId": 1, "properties": BEYOND}, "a subscription"),
    ],
)
def test_more_than_there_is_room_for_is_refused_and_changes_nothing(
    method: str, path: str, body: object, whose: str
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        for made, properties in (
            ("full", MOST),
            ("t", {}),
            ("several/partitions", {"partitions": 1}),
            ("t/subscription/s", None),
        ):
            data = b"" if properties is None else json.dumps(properties).encode()
            assert (await ask(application, "PUT", f"{TOPICS}/{made}", data)).status == 204
        assert (await ask(application, "PUT", f"{TOPICS}/t/properties", json.dumps(MOST).encode())).status == 204
        answer = await ask(application, method, f"{TOPICS}/{path}", json.dumps(body).encode())
        assert answer.status == 412, answer
        assert answer.reason.startswith(f"{whose}'s properties have at most {SAID_BYTES_MAX} bytes, not")
        for kept, expected in (("t", MOST), ("full", MOST), ("t/subscription/s", {})):
            told = await ask(application, "GET", f"{TOPICS}/{kept}/properties", b"")
            assert json.loads(told.body) == expected
        names = json.loads((await ask(application, "GET", TOPICS, b"")).body)
        assert sorted(name.rpartition("/")[2] for name in names) == ["full", "several-partition-0", "t"]

    run_quietly(scenario)
