"""Statistics have Pulsar's names, all of them, in every state of a topic; `make interop` compares kinds and values."""

from __future__ import annotations

import pytest

from support.processes.official import quiet_client
from support.stories.statistics_stories import Teller, names_told, recorded_names, tell_all
from support.worlds.rest import Rest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def told(broker, tmp_path_factory):
    """What the broker tells of every story."""
    client = quiet_client(broker.service_url, tmp_path_factory.mktemp("client"))
    yield tell_all(Teller(client, Rest(broker.web_service_url)))
    client.close()


#: Told where there is something to tell (docs/doctor.md).
BEYOND = {"geminga", "heldByRate", "nextDueTimestamp"}


def test_every_place_has_pulsars_names(told) -> None:
    ours = {place: names - BEYOND for place, names in names_told(told).items() if ".geminga" not in place}
    # Pulsar's broker tells it as well, once it has looked at the quotas.
    ours["partitioned-stats.partitions.{}"].discard("oldestBacklogMessageSubscriptionName")
    pulsars = recorded_names()
    differing = {
        place: (
            sorted(pulsars.get(place, set()) - ours.get(place, set())),
            sorted(ours.get(place, set()) - pulsars[place]),
        )
        for place in pulsars
        if ours.get(place) != pulsars[place]
    }
    assert differing == {}
    assert ours.keys() <= pulsars.keys()


def test_the_oldest_message_of_all_partitions_is_the_oldest_of_one(told) -> None:
    stats = told["partitioned, used: partitioned-stats"]
    of_partitions = [
        each["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] for each in stats["partitions"].values()
    ]
    assert stats["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == min(t for t in of_partitions if t > 0)


def test_quotas_are_told_with_the_topics_they_hold_for(told) -> None:
    for question in ("quotas, produced: stats", "quota-partitions, produced: partitioned-stats"):
        assert (told[question]["backlogQuotaLimitSize"], told[question]["backlogQuotaLimitTime"]) == (100_000, 3600)


def test_times_of_the_topic_and_its_newest_message_outlive_an_unload(told) -> None:
    before, after = told["shared, redelivered: stats"], told["shared, connected again: stats"]
    assert before["topicCreationTimeStamp"] == after["topicCreationTimeStamp"] > 0
    # Before it is when the broker stored the message, afterwards when its producer published it.
    assert 0 <= before["lastPublishTimeStamp"] - after["lastPublishTimeStamp"] < 10_000
    assert before["lastPublishTimeStamp"] > before["topicCreationTimeStamp"]
