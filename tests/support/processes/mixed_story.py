"""What is done to a mixed cluster while clients are at work, and what has to hold afterwards."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tools.chaos.history import judge

from support.processes.mixed_cluster import MAKES, Make, MixedCluster, eventually
from support.processes.mixed_load import TRANSACTIONS, Load, Told, all_of, places_of
from support.processes.official import quiet_client
from support.processes.steady_load import wait_until_healthy

#: That a killed broker stays away: less than a session (4 s), or more.
AWAY_S_MAX: Final = 6.0
#: In which every topic has a receipt again, on a machine that has much else to do.
PROGRESS_S: Final = 120.0


class Story:
    """What is done to the brokers."""

    def __init__(self, cluster: MixedCluster, seed: int, loads: Sequence[Load]) -> None:
        self.cluster = cluster
        self.rng = random.Random(seed)
        self.loads = loads
        self.topics = [topic.removeprefix("persistent://") for load in loads for topic in load.topics]
        #: The last maximum of consumers that was set, by topic.
        self.policies: dict[str, int] = {}
        self.done: Counter[str] = Counter()

    def run(self, *, unloads: int, kills: int) -> None:
        """So many of each, in an order that is drawn."""
        steps = [*(f"kill {MAKES[number % 2]}" for number in range(kills)), *["unload"] * unloads]
        self.rng.shuffle(steps)
        for number, step in enumerate(steps):
            if step == "unload":
                self.unload()
            else:
                self.kill(MAKES[step.endswith(MAKES[1])])
            for load in self.loads:
                load.told.wait_for("progress", PROGRESS_S)
            self.set_policy(100 + number)

    def unload(self) -> None:
        topic, asked = self.rng.choice(self.topics), self.rng.choice(MAKES)
        to = MAKES[self.cluster.owner(topic, asked) == MAKES[0]]
        self._insist(lambda: self.cluster.ask_move(topic, to, asked=asked).status)
        self.done[f"unloaded to {to}"] += 1

    def kill(self, make: Make) -> None:
        broker = self.cluster.brokers[make]
        broker.kill()
        threading.Event().wait(self.rng.uniform(0, AWAY_S_MAX))
        broker.start(PROGRESS_S)
        wait_until_healthy(broker.web_url)
        self.done[f"killed {make}"] += 1

    def set_policy(self, value: int) -> None:
        topic, asked = self.rng.choice(self.topics), self.rng.choice(MAKES)
        self._insist(lambda: self.cluster.rest(asked).post(f"persistent/{topic}/maxConsumers", value).status)
        self.policies[topic] = value

    def _insist(self, request: Callable[[], int]) -> None:
        """What can not be done now is answered with 5xx, or not in time, and is asked again."""

        def is_done() -> bool:
            try:
                status = request()
            except OSError:
                return False
            self.done["requests asked again"] += status >= 500
            assert status == 204 or status >= 500, status
            return status == 204

        eventually(is_done, True, PROGRESS_S)


def check(cluster: MixedCluster, story: Story, directory: Path) -> None:
    """All that was acknowledged is there, once and in order; delivered in order per key; cursors and policies hold."""
    client = quiet_client(cluster.service_url, directory)
    messages = 0
    for load in story.loads:
        told = load.told
        assert told.errors == []
        for topic in load.topics:
            acknowledged = told.acknowledged[topic]
            # Numbers begin with 1.
            verdict = judge(told.sent[topic] + 1, acknowledged, all_of(client, topic))
            assert verdict.is_right, (topic, verdict)
            order: dict[str, list[int]] = {}
            for number, key in told.delivered[topic].items():
                order.setdefault(key, []).append(number)
            assert all(numbers == sorted(numbers) for numbers in order.values()), topic
            messages += len(acknowledged)
            path = f"persistent/{topic.removeprefix('persistent://')}/stats"

            def backlog(path: str = path, name: str = load.name) -> object:
                return [cluster.rest(make).get(path).json["subscriptions"][name]["msgBacklog"] for make in MAKES]

            eventually(backlog, [0, 0])
    for topic, value in story.policies.items():
        for make in MAKES:
            assert cluster.rest(make).get(f"persistent/{topic}/maxConsumers").json == value, (topic, make)
    client.close()
    again = sum(load.told.again for load in story.loads)
    print(f"{messages} messages acknowledged, {again} delivered again; {dict(story.done)}")
    assert messages > 100 * len(story.topics)


def outcome_of(told: Told, number: int) -> str:
    """What the client said of a transaction."""
    outcomes = (("committed", told.committed), ("aborted", told.aborted), ("in doubt", told.unknown))
    return ", ".join(name for name, numbers in outcomes if number in numbers)


def check_transactions(cluster: MixedCluster, load: Load, topics: list[str], directory: Path) -> None:
    """All of a committed one is there, in each of its topics; nothing of an aborted one; the same of a doubtful one."""
    told = load.told
    # The last one may wait for its coordinator, for its topics, and for its end.
    told.wait_for("transactions", 2 * PROGRESS_S)
    client = quiet_client(cluster.service_url, directory)
    # What nobody ended is aborted when its time is over; until then it holds back what is behind it.
    found: list[list[int]] = []

    def is_readable() -> bool:
        found[:] = [all_of(client, topic) for topic in topics]
        return found[0] == found[1] and told.committed <= set(found[0])

    try:
        eventually(is_readable, True, PROGRESS_S)
    except AssertionError as error:
        both = set(found[0]) & set(found[1])
        doubtful = (set(found[0]) | set(found[1]) | told.committed) - both
        places = [
            {number: at for number, at in places_of(client, topic).items() if number in doubtful} for topic in topics
        ]
        outcomes = {number: outcome_of(told, number) for number in sorted(doubtful)}
        raise AssertionError(f"transactions in part, or not at all: {outcomes}; they are at {places}") from error
    first = found[0]
    assert first == sorted(set(first))
    assert not told.aborted & set(first)
    assert set(first) <= told.committed | told.unknown
    assert len(told.committed) > 5
    print(
        f"{told.sent[TRANSACTIONS]} transactions over two topics: {len(told.committed)} committed, "
        f"{len(told.aborted)} aborted or never committed, {len(told.unknown)} in doubt"
    )
    client.close()
