"""64 bundles on one broker, then two more join: who carries how much after ten rounds of shedding.

Settings: ``BALANCED`` in ``support/stories/load_patterns.py``; load is bytes and messages a second, each by itself.
"""

from __future__ import annotations

import pytest

from geminga.broker.load_rules.config import LoadConfig
from geminga.broker.load_rules.replay import Replay, TraceRound
from support.stories.load_patterns import (
    BALANCED_CONFIG,
    BROKERS,
    CAPACITY,
    PATTERNS,
    ROUNDS,
    draws_of,
    joined,
    largest_part,
    moves_of,
    stats_of,
)

#: No broker carries more than that, in parts of the mean.
GOAL = 1.2
#: Of what a broker is to carry: a bundle that is more can not be placed at will.
LARGE_PART = 0.35
#: Bundles are moved one by one and each once, so that few draws of many end above the goal: by how much, and how many.
ROOM = 1.05
RARELY = 0.01
#: Messages a second in parts of what one broker can carry.
BUSY = (0.001, 0.05, 0.6)


def balance(pattern: str, seed: int, busy: float) -> float:
    """What the broker with most carries, in parts of what is allowed."""
    stats = stats_of(pattern, seed, CAPACITY.messages * busy)
    outcomes = joined(Replay(BALANCED_CONFIG, draws_of(seed)), stats)
    moved = moves_of(outcomes)
    assert len(moved) == len(set(moved)), "a bundle moved twice"
    worst = max(outcomes[-1].worst())
    part = largest_part(stats)
    # What can not be divided is no broker's fault: a bundle of several shares, or a few that have nearly all.
    limit = GOAL if part <= LARGE_PART else 1.05 * max(GOAL, part if part > 1 else 1 + part)
    print(f"{pattern}, seed {seed}, {busy}: {worst:.3f} of the mean, {limit:.3f} is the limit")
    return worst / limit


@pytest.mark.parametrize("pattern", PATTERNS)
def test_brokers_that_join_carry_their_share_within_ten_rounds(pattern: str) -> None:
    for busy in BUSY:
        for seed in range(4):
            assert balance(pattern, seed, busy) <= 1


@pytest.mark.long
@pytest.mark.parametrize("pattern", PATTERNS)
def test_brokers_that_join_carry_their_share_over_many_seeds(pattern: str) -> None:
    found = [balance(pattern, seed, busy) for busy in BUSY for seed in range(4, 200)]
    assert max(found) <= ROOM
    assert sum(share > 1 for share in found) <= RARELY * len(found)


@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "no load"])
def test_broker_that_joins_a_round_after_another_gets_its_share_of_what_moved(pattern: str) -> None:
    """Half of all is with the first that joined, and would stay for the grace period: nothing is left to give."""
    for seed in range(4):
        stats = stats_of(pattern, seed, 600)
        replay = Replay(BALANCED_CONFIG, draws_of(seed))
        replay.step(TraceRound(dict.fromkeys(BROKERS[:1], CAPACITY), stats))
        replay.step(TraceRound(dict.fromkeys(BROKERS[:2], CAPACITY)))
        replay.step(TraceRound(dict.fromkeys(BROKERS, CAPACITY)))
        outcomes = [replay.step(TraceRound()) for _ in range(ROUNDS)]
        part = largest_part(stats)
        limit = GOAL if part <= LARGE_PART else 1.05 * max(GOAL, part if part > 1 else 1 + part)
        assert max(outcomes[-1].worst()) <= limit * ROOM, f"{pattern}, seed {seed}"
        assert moves_of(outcomes[4:]) == [], f"{pattern}, seed {seed} goes on moving"


def test_pulsars_default_settings_do_not_reach_the_goal() -> None:
    """They compare usage, in points: with little load nothing moves, with much more than enough does."""
    for busy, least in ((0.05, 2.9), (0.6, 1.3)):
        stats = stats_of("one to ten", 1, CAPACITY.messages * busy)
        worst = max(joined(Replay(LoadConfig(), draws_of(1)), stats)[-1].worst())
        assert worst > least


def test_nothing_moves_without_load() -> None:
    stats = stats_of("no load", 1, 0.0)
    for config in (LoadConfig(), BALANCED_CONFIG):
        assert moves_of(joined(Replay(config, draws_of(1)), stats)) == []


def swing(seed: int, period: int, rounds: int) -> list[str]:
    """Load that swings between two halves of the bundles: what moved."""
    halves = [stats_of(half, seed, 30_000) for half in ("first half busy", "second half busy")]
    replay = Replay(BALANCED_CONFIG, draws_of(seed))
    moves = moves_of(joined(replay, halves[0]))
    for number in range(rounds):
        moves += [move.bundle for move in replay.step(TraceRound(None, halves[number // period % 2])).moves]
    return moves


def test_load_that_swings_makes_no_bundle_swing() -> None:
    """Within the grace period of 30 rounds no bundle moves twice, however fast the load comes and goes."""
    for seed in range(3):
        for period in (1, 3):
            moves = swing(seed, period, 30 - ROUNDS)
            assert len(moves) == len(set(moves))


def test_steady_load_comes_to_rest() -> None:
    """Long after, with every grace period over, nothing moves any more."""
    for pattern in PATTERNS:
        stats = stats_of(pattern, 3, 30_000)
        for config in (LoadConfig(grace_minutes=0), LoadConfig(shedding=BALANCED_CONFIG.shedding, grace_minutes=0)):
            outcomes = joined(Replay(config, draws_of(3)), stats, 60)
            assert moves_of(outcomes[40:]) == [], f"{pattern} goes on moving"


def test_bundles_of_a_broker_that_is_gone_are_spread_over_the_others() -> None:
    stats = stats_of("one to ten", 5, 30_000)
    replay = Replay(BALANCED_CONFIG, draws_of(5))
    joined(replay, stats)
    outcome = replay.step(TraceRound(dict.fromkeys(BROKERS[1:], CAPACITY)))
    assert sum(outcome.bundles.values()) == 64
    assert max(outcome.worst()) <= GOAL
