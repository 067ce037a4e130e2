"""Pages of topics and what is done there, as a visitor does it, at a broker that stores in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from html import unescape

import pytest

import geminga
from geminga.admin import UnreachableError
from geminga.admin._topics import Topics
from geminga.app.console.acts import subscriptions as subscription_acts
from geminga.app.console.acts import topics as topic_acts
from geminga.app.console.pages import namespaces, start, topics
from geminga.app.console.reading import topics as asking
from geminga.client import blocking, connect
from support.worlds.console import Visitor, notice_of, problem_of
from support.worlds.rest import EARLIEST, Rest

HERE = "persistent://public/default"


@pytest.fixture(scope="module")
def broker() -> Iterator[geminga.Standalone]:
    with geminga.Standalone() as running:
        yield running


@pytest.fixture(scope="module")
def rest(broker: geminga.Standalone) -> Rest:
    return Rest(broker.web_service_url)


@pytest.fixture(scope="module")
def client(broker: geminga.Standalone) -> Iterator[blocking.Client]:
    with blocking.connect(broker.service_url) as found:
        yield found


@pytest.fixture
def visitor(broker: geminga.Standalone) -> Iterator[Visitor]:
    with Visitor(broker.web_service_url) as found:
        yield found


@pytest.fixture
def topic(request: pytest.FixtureRequest, rest: Rest, client: blocking.Client) -> str:
    """Ten messages, and a subscription ``s`` that has had none."""
    name = f"{HERE}/t{abs(hash(request.node.nodeid)):x}"
    assert rest.put(f"{name.replace('://', '/')}").status == 204
    assert rest.put(f"{name.replace('://', '/')}/subscription/s", EARLIEST).status == 204
    publish(client, name, 10)
    return name


def publish(client: blocking.Client, topic: str, count: int) -> None:
    with client.create_producer(topic, batching_enabled=False) as producer:
        for number in range(count):
            producer.send(b"%d" % number)


def backlog(rest: Rest, topic: str, subscription: str = "s") -> int:
    stats = rest.get(f"{topic.replace('://', '/')}/stats?getPreciseBacklog=true").json
    return int(stats["subscriptions"][subscription]["msgBacklog"])


def words(text: str) -> str:
    return " ".join(unescape(text).split())


# ---- pages


@pytest.fixture(scope="module")
def many(rest: Rest) -> str:
    """A namespace of 55 topics and a partitioned one."""
    rest.put("namespaces/public/many")
    for number in range(55):
        rest.put(f"persistent/public/many/listed-{number:03}")
    rest.put("persistent/public/many/wide/partitions", 3)
    return "public/many"


def test_topics_are_listed_searched_and_paged(visitor: Visitor, many: str) -> None:
    first = visitor.look("/topics", namespace=many)
    assert "Page 1 of 2, 56 in all" in first.text
    assert first.text.count('<th scope="row"') == 50
    last = visitor.look("/topics", namespace=many, page=2)
    assert last.text.count('<th scope="row"') == 6
    assert "wide" in last.text
    assert "wide-partition-0" not in last.text
    found = visitor.look("/topics", namespace=many, q="LISTED-01")
    assert found.text.count('<th scope="row"') == 10


def test_a_list_asks_for_the_topics_of_its_page_alone(
    visitor: Visitor, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    row = asking._row

    async def counted(admin, listed, now_ms):
        asked.append(listed.name)
        return await row(admin, listed, now_ms)

    monkeypatch.setattr(asking, "_row", counted)
    visitor.look("/topics", namespace=many)
    assert len(asked) == 50


def test_a_broker_that_hangs_leaves_the_rest_of_the_list(
    visitor: Visitor, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hangs(*_: object, **__: object) -> None:
        raise UnreachableError("GET /x", 0, "no answer within 10 seconds")

    monkeypatch.setattr(Topics, "list_non_persistent", hangs)
    page = visitor.look("/topics")
    assert (page.status_code, topic in page.text) == (200, True)
    assert "non-persistent topics are left out" in page.text


def test_the_start_tells_the_greatest_backlogs(visitor: Visitor, rest: Rest, topic: str) -> None:
    page = visitor.look("/")
    assert page.status_code == 200
    assert topic in page.text
    assert "This broker serves" in page.text
    assert "<svg" in page.text
    now = visitor.look("/", part="now").text
    assert topic not in now
    assert "This broker serves" not in now
    assert "<svg" in now
    assert topic in visitor.look("/", part="attention").text


def test_a_broker_of_many_topics_does_not_add_up_their_rates(
    visitor: Visitor, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "RATED_TOPICS_MAX", 0)
    page = visitor.look("/").text
    assert "<svg" not in page.partition("<main")[2]
    assert "more than 1,000 topics" in page
    assert 'data-part="now"' not in page
    assert 'data-part="attention"' in page


def test_a_topic_is_shown_with_all_that_is_known(visitor: Visitor, topic: str, client: blocking.Client) -> None:
    with client.create_producer(topic, producer_name="<maker>"):
        page = visitor.look("/topic", topic=topic)
    assert page.status_code == 200
    text = words(page.text)
    for expected in ("&lt;maker&gt;", "LedgerOpened", "1 ledger", "no consumer yet"):
        assert unescape(expected) in text, expected
    assert "<maker>" not in page.text
    answer = visitor.look("/topic", topic=topic, part="now")
    assert answer.status_code == 200
    assert "<html" not in answer.text
    assert "no consumer yet" in answer.text


def test_a_partitioned_topic_is_shown_with_its_partitions(visitor: Visitor, rest: Rest) -> None:
    rest.put("persistent/public/default/wide/partitions", 3)
    page = visitor.look("/topic", topic=f"{HERE}/wide")
    assert page.status_code == 200
    assert f"{HERE}/wide-partition-2" in page.text
    assert visitor.look("/topic", topic=f"{HERE}/wide", part="partitions").status_code == 200


def test_why_messages_are_not_delivered_is_said(visitor: Visitor, topic: str, client: blocking.Client) -> None:
    page = visitor.look("/subscription", topic=topic, subscription="s")
    assert page.status_code == 200
    assert "Nobody consumes s" in words(page.text)
    with client.subscribe(topic, "s", consumer_name="eager"):
        assert "eager" in visitor.look("/subscription", topic=topic, subscription="s").text
    for part in ("now", "findings"):
        assert visitor.look("/subscription", topic=topic, subscription="s", part=part).status_code == 200
    assert visitor.look("/subscription", topic=topic, subscription="none").status_code == 404


def test_namespaces_are_shown_with_their_policies(visitor: Visitor, rest: Rest) -> None:
    rest.put("namespaces/public/kept")
    rest.post("namespaces/public/kept/retention", {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1})
    listed = visitor.look("/namespaces")
    assert "public/kept" in listed.text
    assert "public/kept" in visitor.look("/namespaces", tenant="public").text
    page = visitor.look("/namespace", namespace="public/kept")
    assert "retention time 60 min; retention size no limit" in page.text
    assert visitor.look("/namespaces", tenant="nobody").status_code == 200


def test_every_row_has_its_page() -> None:
    assert [page.path for page in (*namespaces.PAGES, *topics.PAGES)] == [
        "/namespaces",
        "/namespace",
        "/topics",
        "/topic",
        "/subscription",
    ]
    assert len({act.name for act in (*topic_acts.ACTS, *subscription_acts.ACTS)}) == 11


# ---- acts on subscriptions


def test_a_backlog_is_cleared_after_it_was_told(visitor: Visitor, rest: Rest, topic: str) -> None:
    sentence, form = visitor.ask("clear-backlog", topic=topic, subscription="s")
    assert sentence == f"Clear the backlog of s on {topic}: 10 messages will never be delivered to it."
    assert backlog(rest, topic) == 10
    answer = visitor.send(form)
    assert notice_of(answer) == f"The backlog of s on {topic} is cleared."
    assert backlog(rest, topic) == 0


def test_messages_of_a_batch_are_counted_one_by_one(
    visitor: Visitor, rest: Rest, topic: str, broker: geminga.Standalone, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def batch() -> None:
        async with connect(broker.service_url) as client:
            producer = await client.create_producer(topic, batching_enabled=True)
            await asyncio.gather(*(producer.send(b"x") for _ in range(90)))

    asyncio.run(batch())
    entries = backlog(rest, topic)
    assert entries < 100
    assert "100 messages will never be delivered" in visitor.ask("clear-backlog", topic=topic, subscription="s")[0]
    monkeypatch.setattr(asking, "COUNTED_ENTRIES", 5)
    sentence = visitor.ask("clear-backlog", topic=topic, subscription="s")[0]
    assert f"{entries} messages and batches will never be delivered" in sentence


def test_more_than_was_told_is_asked_anew(visitor: Visitor, rest: Rest, topic: str, client: blocking.Client) -> None:
    form = visitor.ask("clear-backlog", topic=topic, subscription="s")[1]
    publish(client, topic, 1)
    answer = visitor.send(form)
    assert answer.status_code == 409
    assert problem_of(answer).startswith("More would be hit now")
    assert backlog(rest, topic) == 11
    sentence, again = visitor.asked(answer)
    assert "11 messages" in sentence
    assert "growing" not in again.fields
    publish(client, topic, 1)
    assert visitor.send(again).status_code == 409
    assert backlog(rest, topic) == 12
    assert notice_of(visitor.send(again, {"growing": "yes"})) != ""
    assert backlog(rest, topic) == 0


@pytest.mark.parametrize("told", ["", "-1", "x", "9" * 30])
def test_a_form_that_does_not_say_what_was_told_does_nothing(
    visitor: Visitor, rest: Rest, topic: str, told: str
) -> None:
    form = visitor.ask("clear-backlog", topic=topic, subscription="s")[1]
    assert visitor.send(form, {"hits": told}).status_code == 409
    assert backlog(rest, topic) == 10


def test_messages_are_skipped(visitor: Visitor, rest: Rest, topic: str) -> None:
    form = visitor.ask("skip-messages", topic=topic, subscription="s")[1]
    sentence, form = visitor.asked(visitor.send(form, {"count": "4"}))
    assert sentence.startswith(f"Skip 4 messages and batches of s on {topic}, the oldest of 10")
    visitor.send(form)
    assert backlog(rest, topic) == 6
    assert visitor.look("/acts/skip-messages", topic=topic, subscription="s", count="many").status_code == 400


def test_a_cursor_is_reset_to_each_place(visitor: Visitor, rest: Rest, topic: str) -> None:
    ledger = rest.get(f"{topic.replace('://', '/')}/internalStats").json["ledgers"][0]["ledgerId"]

    def reset(**given: str) -> str:
        form = visitor.ask("reset-cursor", topic=topic, subscription="s")[1]
        sentence, form = visitor.asked(visitor.send(form, given))
        assert notice_of(visitor.send(form)) != ""
        return sentence

    assert "up to 10 messages and batches will never be delivered" in reset(where="latest")
    assert backlog(rest, topic) == 0
    assert "4 messages and batches are delivered again" in reset(where="message", id=f"{ledger}:6")
    assert backlog(rest, topic) == 4
    assert "6 messages and batches are delivered again" in reset(where="earliest")
    assert backlog(rest, topic) == 10
    assert "up to 10 messages" in reset(where="time", at="2100-01-01T00:00:00")
    assert backlog(rest, topic) == 0
    assert "10 messages and batches are delivered again" in reset(where="time", at="2020-01-01T00:00")
    assert backlog(rest, topic) == 10


@pytest.mark.parametrize(
    "given", [{"where": "time", "at": "soon"}, {"where": "message", "id": "x"}, {"where": "moon"}, {"where": "time"}]
)
def test_a_place_that_is_none_is_refused(visitor: Visitor, rest: Rest, topic: str, given: dict[str, str]) -> None:
    answer = visitor.look("/acts/reset-cursor", topic=topic, subscription="s", **given)
    assert answer.status_code == 400
    assert problem_of(answer).endswith(".")


def test_messages_expire(visitor: Visitor, rest: Rest, topic: str) -> None:
    form = visitor.ask("expire-messages", topic=topic, subscription="s")[1]
    sentence, form = visitor.asked(visitor.send(form, {"seconds": "3600"}))
    assert "up to 0 messages and batches" in sentence
    assert "expire now" in notice_of(visitor.send(form))
    assert backlog(rest, topic) == 10


def test_subscriptions_come_and_go(visitor: Visitor, rest: Rest, client: blocking.Client) -> None:
    # Elsewhere a consumer that was cut off makes its subscription anew.
    topic = "persistent://public/kept/t"
    rest.put("namespaces/public/kept")
    rest.post("namespaces/public/kept/autoSubscriptionCreation", {"allowAutoSubscriptionCreation": False})
    rest.put(topic.replace("://", "/"))
    publish(client, topic, 10)
    answer = visitor.act("create-subscription", {"subscription": "n/ew", "position": "earliest"}, topic=topic)
    assert notice_of(answer) == f"Subscription n/ew of {topic} is created."
    assert backlog(rest, topic, "n/ew") == 10
    with client.subscribe(topic, "n/ew"):
        sentence = visitor.ask("delete-subscription", topic=topic, subscription="n/ew")[0]
        assert "10 messages will never be delivered to it. 1 consumer will be cut off." in sentence
        assert "is deleted" in notice_of(visitor.act("delete-subscription", topic=topic, subscription="n/ew"))
    assert visitor.look("/subscription", topic=topic, subscription="n/ew").status_code == 404


def test_a_consumer_that_came_meanwhile_is_not_cut_off(visitor: Visitor, topic: str, client: blocking.Client) -> None:
    form = visitor.ask("delete-subscription", topic=topic, subscription="s")[1]
    with client.subscribe(topic, "s"):
        answer = visitor.send(form)
        assert answer.status_code == 412
        assert problem_of(answer).startswith("It can not be done as things are:")


# ---- acts on topics


def test_topics_are_made_widened_and_deleted(visitor: Visitor, rest: Rest) -> None:
    made = visitor.act("create-topic", {"namespace": "public/default", "name": "new one", "partitions": "2"})
    assert notice_of(made) == f"{HERE}/new one is created with 2 partitions."
    again = visitor.act("create-topic", {"namespace": "public/default", "name": "new one", "partitions": "2"})
    assert again.status_code == 409
    wider = visitor.act("add-partitions", {"partitions": "5"}, topic=f"{HERE}/new one")
    assert notice_of(wider) == f"{HERE}/new one has 5 partitions now."
    fewer = visitor.act("add-partitions", {"partitions": "3"}, topic=f"{HERE}/new one")
    assert fewer.status_code == 400
    assert notice_of(visitor.act("unload-topic", topic=f"{HERE}/new one")) != ""
    assert notice_of(visitor.act("delete-topic", topic=f"{HERE}/new one")) == f"{HERE}/new one is deleted."
    assert rest.get("persistent/public/default/partitioned").json.count(f"{HERE}/new one") == 0


def test_deleting_a_topic_says_what_goes(visitor: Visitor, rest: Rest, topic: str, client: blocking.Client) -> None:
    with client.create_producer(topic):
        sentence, form = visitor.ask("delete-topic", topic=topic)
        assert "10 stored messages and batches" in sentence
        assert "1 subscription with 10 unacknowledged messages and batches" in sentence
        assert "1 producer and 0 consumers are cut off" in sentence
    # Connected, it would come back at once and make it anew.
    assert "is deleted" in notice_of(visitor.send(form))
    assert visitor.look("/topic", topic=topic).status_code == 404


def test_a_topic_is_ended(visitor: Visitor, rest: Rest, topic: str) -> None:
    assert notice_of(visitor.act("terminate-topic", topic=topic)) == f"{topic} is terminated."
    assert "Terminated" in visitor.look("/topic", topic=topic).text


def test_what_can_not_be_done_has_no_button(visitor: Visitor, rest: Rest, topic: str) -> None:
    answer = visitor.look("/acts/add-partitions", topic=topic)
    assert answer.status_code == 409
    assert "not partitioned" in problem_of(answer)
    assert "<button>" not in answer.text.partition("<main")[2]
