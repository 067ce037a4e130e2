"""Bookies over REST: where they stand, and namespaces whose ledgers keep to some of them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pulsar
import pytest

from geminga import Standalone
from geminga.client import Timeout, connect
from support.processes.official import official_client, quiet_client
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration

BOOKIES = 4
AFFINITY = "persistence/bookieAffinity"
#: As a broker of Apache's writes them, and what it could write some day.
LOCAL_POLICIES = {
    "bundles": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
    "bookieAffinityGroup": {"bookkeeperAffinityGroupPrimary": "mine", "bookkeeperAffinityGroupSecondary": "spare"},
    "namespaceAntiAffinityGroup": "racks",
    "migrated": False,
    "later": {"x": [1]},
}


class Running:
    def __init__(self, standalone: Standalone) -> None:
        self.standalone = standalone
        self.rest = Rest(standalone.web_service_url)
        self.names = [each["bookieId"] for each in self.rest.get("bookies/all").json["bookies"]]

    def on_loop(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.standalone._loop).result(10)  # type: ignore[arg-type]

    @property
    def broker(self) -> Any:
        return self.standalone._server.broker  # type: ignore[union-attr]

    def put(self, group: str, *names: str) -> None:
        for name in names:
            answer = self.rest.post(f"bookies/racks-info/{name}?group={group}", {"rack": "/r", "hostname": "h"})
            assert answer.status == 204, answer

    def namespace(self, name: str, primary: str = "", secondary: str | None = None) -> str:
        assert self.rest.put(f"namespaces/public/{name}").status == 204
        if primary:
            group = {"bookkeeperAffinityGroupPrimary": primary, "bookkeeperAffinityGroupSecondary": secondary}
            assert self.rest.post(f"namespaces/public/{name}/{AFFINITY}", group).status == 204
        return f"public/{name}"

    def ensembles(self, topic: str) -> tuple[list[set[str]], list[set[str]]]:
        """Of the topic's ledgers, and of its cursors'."""
        stats = self.rest.get(f"persistent/{topic}/internalStats").json
        cursors = [each["cursorLedger"] for each in stats["cursors"].values()]
        return self.on(*(each["ledgerId"] for each in stats["ledgers"])), self.on(*(one for one in cursors if one >= 0))

    def on(self, *ledger_ids: int) -> list[set[str]]:
        found = [self.on_loop(self.broker.ledgers.bookkeeper.read_ledger(one)).metadata for one in ledger_ids]
        return [{name for fragment in one.fragments for name in fragment.ensemble} for one in found]


@pytest.fixture(scope="module")
def running():
    config = {
        "managedLedgerMaxEntriesPerLedger": 2,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
        "managedLedgerDefaultEnsembleSize": 2,
        "managedLedgerDefaultWriteQuorum": 2,
        "managedLedgerDefaultAckQuorum": 2,
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore": 0,
    }
    with Standalone(config=config, bookies=BOOKIES) as standalone:
        found = Running(standalone)
        assert len(found.names) == BOOKIES
        found.put("mine", *found.names[:2])
        found.put("other", found.names[2])
        yield found


@pytest.fixture
def client(running: Running, tmp_path):
    with official_client(running.standalone.service_url, tmp_path) as client:
        yield client


def use(client: pulsar.Client, topic: str, count: int = 6) -> None:
    """Publish, and acknowledge every second message: more than a cursor's node holds."""
    consumer = client.subscribe(f"persistent://{topic}", "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(f"persistent://{topic}", batching_enabled=False)
    for number in range(count):
        producer.send(b"%d" % number)
    for number in range(count):
        message = consumer.receive(5000)
        if number % 2:
            consumer.acknowledge(message)
    consumer.close()
    producer.close()


def test_ledgers_of_a_namespace_are_on_its_bookies_alone_and_those_of_others_on_all(running: Running, client) -> None:
    mine, plain = running.namespace("mine", "mine"), running.namespace("plain")
    seen: set[str] = set()
    for number in range(3):
        use(client, f"{plain}/t{number}")
        topics, _ = running.ensembles(f"{plain}/t{number}")
        seen |= set().union(*topics)
    assert seen == {*running.names}, "a namespace without groups keeps off some bookies"
    for number in range(3):
        use(client, f"{mine}/t{number}")
        # What nobody waits for is written now.
        assert running.rest.put(f"persistent/{mine}/t{number}/unload").status == 204
        topics, cursors = running.ensembles(f"{mine}/t{number}")
        assert len(topics) >= 3
        assert cursors, "no ledger of a cursor was seen"
        for ensemble in [*topics, *cursors]:
            assert ensemble == {*running.names[:2]}


def test_groups_without_enough_bookies_are_named_to_who_asks(running: Running) -> None:
    """They heard "Too little storage is available now", and the log alone said why."""
    namespace = running.namespace("narrow", "other", "nobody")
    cause = (
        "Too little storage is available now: 2 bookies are needed that can be written to, 4 can, and 1 of them is in "
        "the groups nobody, other"
    )

    async def produce() -> None:
        async with connect(running.standalone.service_url) as client:
            producer = await client.create_producer(f"persistent://{namespace}/t", send_timeout_millis=300)
            with pytest.raises(Timeout, match=re.escape(f"the broker said last: {cause}")):
                await producer.send(b"x")

    asyncio.run(produce())


def test_affinity_holds_from_the_next_ledgers_of_an_open_topic_on(running: Running, client) -> None:
    namespace = running.namespace("changed")
    topic = f"{namespace}/t"
    client.subscribe(f"persistent://{topic}", "s")
    producer = client.create_producer(f"persistent://{topic}", batching_enabled=False)
    producer.send(b"0")
    path = f"namespaces/{namespace}/{AFFINITY}"
    assert running.rest.post(path, {"bookkeeperAffinityGroupPrimary": "mine"}).status == 204
    for number in range(4):
        producer.send(b"%d" % number)
    assert running.ensembles(topic)[0][1:] == [{*running.names[:2]}] * 2
    # One bookie is too few: the second group helps out.
    both = {"bookkeeperAffinityGroupPrimary": "other", "bookkeeperAffinityGroupSecondary": "mine"}
    assert running.rest.post(path, both).status == 204
    for number in range(2):
        producer.send(b"%d" % number)
    assert running.ensembles(topic)[0][-1] < {*running.names[:3]}
    # Nobody is in that group: what is acknowledged stays, and all goes on with the next change.
    assert running.rest.post(path, {"bookkeeperAffinityGroupPrimary": "nobody"}).status == 204
    sent: list[Any] = []
    for number in range(4):
        producer.send_async(b"%d" % number, lambda result, _: sent.append(result))
    assert running.rest.delete(path).status == 204
    producer.flush()
    assert sent == [pulsar.Result.Ok] * 4
    producer.close()


def test_what_a_broker_of_apache_wrote_holds_and_stays(running: Running, client) -> None:
    namespace = running.namespace("apache")
    path = f"/admin/local-policies/{namespace}"

    def stored() -> dict[str, Any]:
        return json.loads(running.on_loop(running.broker.metadata.get(path)).value)

    running.on_loop(running.broker.metadata.put(path, json.dumps(LOCAL_POLICIES).encode(), expected_version=None))
    rest = running.rest
    assert rest.get(f"namespaces/{namespace}/{AFFINITY}").json == LOCAL_POLICIES["bookieAffinityGroup"]
    use(client, f"{namespace}/t")
    assert running.ensembles(f"{namespace}/t")[0][0] == {*running.names[:2]}
    group = {"bookkeeperAffinityGroupPrimary": "other,mine"}
    assert rest.post(f"namespaces/{namespace}/{AFFINITY}", group).status == 204
    assert stored() == {**LOCAL_POLICIES, "bookieAffinityGroup": group}
    assert rest.call("POST", f"namespaces/{namespace}/antiAffinity", raw=b"else").status == 204
    assert rest.delete(f"namespaces/{namespace}/{AFFINITY}").status == 204
    left = {**LOCAL_POLICIES, "namespaceAntiAffinityGroup": "else"}
    del left["bookieAffinityGroup"]
    assert stored() == left


def test_what_can_be_no_group_is_refused_and_changes_nothing(running: Running) -> None:
    namespace = running.namespace("refused", "mine")
    path = f"namespaces/{namespace}/{AFFINITY}"
    for body, status in (
        ({}, 412),
        ({"bookkeeperAffinityGroupPrimary": ","}, 412),
        ({"bookkeeperAffinityGroupSecondary": "mine"}, 412),
        ({"bookkeeperAffinityGroupPrimary": "x" * 513}, 412),
        ({"bookkeeperAffinityGroupPrimary": "x", "bookkeeperAffinityGroupSecondary": "x" * 513}, 412),
        ({"bookkeeperAffinityGroupPrimary": {}}, 400),
        (["mine"], 400),
    ):
        answer = running.rest.post(path, body)
        assert answer.status == status, (body, answer)
        assert answer.reason
    assert running.rest.get(path).json == {"bookkeeperAffinityGroupPrimary": "mine"}


def test_what_can_be_no_rack_is_refused_and_changes_nothing(running: Running) -> None:
    before = running.rest.get("bookies/racks-info").json
    path = "bookies/racks-info/10.0.0.9:3181"
    for query, body, status in (
        ("", {"rack": "/r"}, 412),
        ("?group=g", {"rack": "/r/s"}, 412),
        ("?group=g", {"rack": "r" * 513}, 412),
        ("?group=g", {"rack": "/r", "hostname": "h" * 513}, 412),
        (f"?group={'g' * 513}", {"rack": "/r"}, 412),
        ("?group=g", {"rack": []}, 400),
        ("?group=g", [], 400),
        ("?group=g", None, 400),
    ):
        answer = running.rest.post(f"{path}{query}", body)
        assert answer.status == status, (query, body, answer)
    assert running.rest.delete(path).status == 404
    assert running.rest.get("bookies/racks-info").json == before


def test_strict_affinity_keeps_the_others_off_bookies_that_are_in_groups(tmp_path) -> None:
    with Standalone(config={"strictBookieAffinityEnabled": "true"}, bookies=4) as standalone:
        running = Running(standalone)
        running.put("mine", *running.names[:2])
        client = quiet_client(standalone.service_url, tmp_path)
        for number in range(3):
            use(client, f"public/default/t{number}", 2)
            (ensemble,) = running.ensembles(f"public/default/t{number}")[0]
            assert ensemble == {*running.names[2:]}
        client.close()
