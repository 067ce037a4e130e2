"""Clients of topics that are given away: told when the next owner is there, and by which address; never left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise

from geminga import sim
from geminga.broker.ownership.core.bundles import Bundle, equal_bundles
from geminga.broker.ownership.departures import TAKEN_S_MAX, Departures
from geminga.broker.ownership.endpoints import Endpoint, Endpoints
from geminga.broker.ownership.ports import HERE, Elsewhere, Owner, Unknown
from geminga.model.errors import UnavailableError
from geminga.model.topic_name import TopicName
from geminga.runtime import next_turn, spawn, wait_ms
from geminga.runtime.turns import TURN_STEPS_MAX
from support.house.python_calls import counted_calls
from support.house.stepping_clock import WorkClock

BUNDLES = equal_bundles("t/n", 4).all()
NEXT = Endpoints(
    [
        Endpoint("internal", "pulsar://next:6650", "pulsar+ssl://next:6651"),
        Endpoint("out", "pulsar://next.example:7000"),
    ]
)

CHOSEN = Elsewhere(NEXT, is_owner=False)


def topic_in(bundle: Bundle) -> TopicName:
    names = (TopicName.parse(f"persistent://t/n/topic-{number}") for number in range(1000))
    return next(name for name in names if bundle.has(name))


class Client:
    def __init__(self, listener: str = "") -> None:
        self.listener = listener
        self.output = self
        self.heard: list[bytes] = []

    def write_soon(self, data: bytes) -> None:
        self.heard.append(data)


def farewell(url: str, url_tls: str) -> bytes:
    return f"{url} {url_tls}".strip().encode()


class Cluster:
    """Nobody has a bundle until it is asked for; ``place`` is who is to take it."""

    def __init__(self, place: Owner = CHOSEN) -> None:
        self.place = place
        self.asked: list[str] = []
        self.owned: set[str] = set()
        self.answer_ms: float = 0
        self.error: UnavailableError | None = None
        self.departures = Departures(self.placed, self.owner_now, WorkClock())
        self.departures.ask_through(self)

    async def placed(self, bundle: Bundle) -> Owner:
        return self.place

    async def owner_now(self, bundle: Bundle) -> Owner | None:
        return Elsewhere(NEXT) if self.owned else None

    async def ask_at(self, endpoint: Endpoint, method: str, path: str, *, query: str = "", body: bytes = b"") -> object:
        self.asked.append(f"{method} {endpoint.broker_url} {path}?{query}")
        if self.error is not None:
            raise self.error
        await wait_ms(self.answer_ms)
        self.owned.add(path)
        return None


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def scenario(world: sim.SimWorld) -> None:
        await world.node("broker").run(lambda _: main())

    sim.run(scenario, seed=1)


async def leave(cluster: Cluster, clients: list[Client], *, is_given: bool = True) -> None:
    name = topic_in(BUNDLES[1])
    departure = cluster.departures.begin(BUNDLES[1].has)
    assert cluster.departures.of(name) is departure
    assert cluster.departures.of(topic_in(BUNDLES[0])) is None
    for client in clients:
        departure.add(name, client, farewell, partial(client.heard.append, b"told"))
    assert not any(client.heard for client in clients)
    await cluster.departures.end(departure, [BUNDLES[1]], is_given=is_given)
    assert cluster.departures.of(name) is None


def test_clients_are_told_of_the_next_owner_by_their_own_listener_once_it_has_the_bundle() -> None:
    async def main() -> None:
        cluster, clients = Cluster(), [Client(), Client("out"), Client("nowhere")]
        await leave(cluster, clients)
        assert [client.heard for client in clients] == [
            [b"pulsar://next:6650 pulsar+ssl://next:6651", b"told"],
            [b"pulsar://next.example:7000", b"told"],
            [b"", b"told"],
        ]
        (asked,) = cluster.asked
        assert asked.startswith("GET pulsar://next:6650 /lookup/v2/topic/persistent/t/n/topic-")
        assert asked.endswith("?authoritative=true")

    run(main)


def test_very_many_clients_are_told_in_several_turns() -> None:
    async def main() -> None:
        cluster, clients = Cluster(HERE), [Client() for _ in range(2 * TURN_STEPS_MAX + 7)]
        heard: list[int] = []

        async def look() -> None:
            while not heard or heard[-1] < len(clients):
                heard.append(sum(bool(client.heard) for client in clients))
                await next_turn()

        looking = spawn(look(), name="look")
        await leave(cluster, clients)
        await looking
        assert [after - before for before, after in pairwise([0, *heard]) if after > before] == [
            TURN_STEPS_MAX,
            TURN_STEPS_MAX,
            7,
        ]

    run(main)


def test_who_has_no_clients_to_tell_asks_nobody() -> None:
    async def main() -> None:
        cluster = Cluster()
        await leave(cluster, [])
        assert not cluster.asked

    run(main)


def test_clients_are_sent_away_without_an_address_where_there_is_no_next_owner() -> None:
    async def main() -> None:
        for place in (HERE, Unknown()):
            cluster, client = Cluster(place), Client()
            await leave(cluster, [client])
            assert (client.heard, cluster.asked) == ([b"", b"told"], [])
        cluster, client = Cluster(), Client()
        await leave(cluster, [client], is_given=False)
        assert (client.heard, cluster.asked) == ([b"", b"told"], [])
        cluster.error = UnavailableError("it does not answer")
        client.heard.clear()
        await leave(cluster, [client])
        assert client.heard == [b"", b"told"]

    run(main)


def test_a_next_owner_that_takes_its_time_is_not_waited_for() -> None:
    async def main() -> None:
        cluster, client = Cluster(), Client()
        cluster.answer_ms = 60_000
        loop = asyncio.get_running_loop()
        since = loop.time()
        await leave(cluster, [client])
        assert TAKEN_S_MAX <= loop.time() - since < TAKEN_S_MAX + 0.1
        assert client.heard == [b"", b"told"]

    run(main)


def test_clients_are_told_without_each_being_held_against_each_bundle_that_is_given() -> None:
    async def main() -> None:
        given, cluster = equal_bundles("t/n", 4096).all(), Cluster()
        clients = [Client() for _ in range(200)]
        departure = cluster.departures.begin(lambda _: True)
        for number, client in enumerate(clients):
            departure.add(TopicName.parse(f"persistent://t/n/{number}"), client, farewell)
        with counted_calls() as calls:
            await cluster.departures.end(departure, given, is_given=True)
            count = calls()
        assert all(client.heard == [b"pulsar://next:6650 pulsar+ssl://next:6651"] for client in clients)
        assert count < 1000 * len(clients)

    run(main)
