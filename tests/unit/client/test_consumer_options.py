"""Options, names, patterns and policies of consumers, without a broker."""

from __future__ import annotations

import re

import pytest

import geminga.client as gc
from geminga.client._consuming.dead_letter import DeadLetters
from geminga.client._messages.consumer_interceptors import ConsumerInterceptor
from geminga.client._messages.consumer_options import ConsumerArguments, ConsumerOptions, ReaderArguments
from geminga.client.consumer_rules import chunk_assembly
from geminga.client.consumer_rules import dead_letter_names as names
from geminga.client.consumer_rules.chunk_assembly import PIECE_OVERHEAD_BYTES, Chunk, ChunkAssembly, ChunkBounds
from geminga.client.consumer_rules.prefetch import FlowControl
from geminga.client.consumer_rules.start_position import StartPosition
from geminga.client.consumer_rules.topic_pattern import TopicPattern, changes
from geminga.client.consumer_rules.unacked_tracker import UnackedTracker
from geminga.client.rules.stats import ConsumerCounters, StatsRecorder
from geminga.model.errors import ConfigurationError, InvalidTopicNameError, InvariantError

STICKY = gc.KeySharedMode.Sticky


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"receiver_queue_size": -1}, "receiver_queue_size"),
        ({"ack_group_size_max": 0}, "ack_group_size_max"),
        ({"unacked_messages_timeout_ms": 999}, "unacked_messages_timeout_ms"),
        ({"unacked_messages_tick_ms": 1}, "unacked_messages_tick_ms"),
        ({"key_shared_policy": gc.ConsumerKeySharedPolicy()}, "key_shared_policy"),
        ({"is_read_compacted": True, "consumer_type": gc.ConsumerType.Shared}, "is_read_compacted"),
        ({"start_message_id": gc.MessageId.earliest}, "start_message_id"),
        ({"dead_letter_policy": gc.ConsumerDeadLetterPolicy(1)}, "dead_letter_policy"),
        (
            {"dead_letter_policy": gc.ConsumerDeadLetterPolicy(0), "consumer_type": gc.ConsumerType.Shared},
            "max_redeliver_count",
        ),
    ],
)
def test_options_that_can_not_be_are_named(options, named) -> None:
    with pytest.raises(gc.InvalidConfiguration, match=named):
        ConsumerOptions(**options).check()


@pytest.mark.parametrize("option", ["dead_letter_topic", "retry_letter_topic"])
def test_topics_of_letters_that_can_not_be_are_refused_before_there_is_a_letter(option) -> None:
    """Each letter went round for good."""
    policy = gc.ConsumerDeadLetterPolicy(1, **{option: "a/b"})
    with pytest.raises(gc.InvalidTopicName, match=f"{option}: .*'a/b'"):
        ConsumerOptions(consumer_type=gc.ConsumerType.Shared, dead_letter_policy=policy).check()


@pytest.mark.parametrize(
    "policy",
    [
        gc.ConsumerKeySharedPolicy(STICKY),
        gc.ConsumerKeySharedPolicy(sticky_ranges=[(0, 1)]),
        gc.ConsumerKeySharedPolicy(STICKY, sticky_ranges=[(0, 10), (10, 20)]),
        gc.ConsumerKeySharedPolicy(STICKY, sticky_ranges=[(5, 4)]),
        gc.ConsumerKeySharedPolicy(STICKY, sticky_ranges=[(0, 65536)]),
    ],
)
def test_key_ranges_that_can_not_be_are_refused(policy) -> None:
    with pytest.raises(gc.InvalidConfiguration, match="sticky_ranges"):
        ConsumerOptions(consumer_type=gc.ConsumerType.KeyShared, key_shared_policy=policy).check()


def test_every_option_is_an_argument_of_subscribe_and_readers_take_some_of_them() -> None:
    assert set(ConsumerArguments.__annotations__) == set(ConsumerOptions.__dataclass_fields__)
    assert set(ReaderArguments.__annotations__) < set(ConsumerOptions.__dataclass_fields__)
    ConsumerOptions().check()


def test_a_plain_interceptor_changes_nothing() -> None:
    assert vars(ConsumerInterceptor()) == {}
    assert issubclass(ConsumerInterceptor, object)
    assert DeadLetters.__slots__


def test_dead_letter_names_are_pulsars() -> None:
    topic = "persistent://t/n/topic-partition-3"
    assert names.retry_letter_topic(topic, "sub") == "persistent://t/n/topic-sub-RETRY"
    assert names.dead_letter_topic("topic", "sub") == "persistent://public/default/topic-sub-DLQ"


def test_origin_of_a_message_is_that_of_its_first_round() -> None:
    first = names.origin_properties({"own": "1"}, topic="a", subscription="s", message_id="1:2:-1")
    carried = names.retry_properties(first, times=1, delay_ms=50)
    assert carried["DELAY_TIME"] == "50"
    assert names.reconsume_times(carried) == 1
    second = names.origin_properties(carried, topic="b", subscription="s", message_id="9:9:-1")
    assert (second["REAL_TOPIC"], second["ORIGIN_MESSAGE_ID"], second["own"]) == ("a", "1:2:-1", "1")
    assert names.reconsume_times({"RECONSUMETIMES": "x"}) == 0


def test_ids_in_properties_are_written_as_the_java_client_does() -> None:
    assert names.message_id_text(1, 2, -1, -1, None) == "1:2:-1"
    assert names.message_id_text(1, 2, 3, 0, None) == "1:2:3:0"
    assert names.message_id_text(1, 9, -1, -1, (1, 7)) == "1:7:-1;1:9:-1"


def test_patterns_match_whole_names_without_domain_and_partitions_as_their_topic() -> None:
    pattern = TopicPattern.parse("persistent://public/default/a.*")
    topics = ["persistent://public/default/ab-partition-0", "persistent://public/default/ab-partition-1"]
    assert pattern.topics([*topics, "persistent://public/default/ba"]) == {"persistent://public/default/ab"}
    assert TopicPattern.parse("a|b").matches("b")
    assert not TopicPattern.parse("a|b").matches("bc")
    assert not pattern.matches("persistent://public/other/ab")
    for text in ("a/b", "public/default/(", "pu blic/default/x"):
        with pytest.raises(InvalidTopicNameError):
            TopicPattern.parse(text)
    assert changes(["a", "b"], ["b", "c"]) == (["c"], ["a"])
    assert re.compile(pattern.expression)


@pytest.mark.timeout(60)
def test_pattern_that_a_matcher_could_go_back_in_for_ever_is_evaluated_at_once() -> None:
    pattern = TopicPattern.parse("(a+)+b", must_be_linear=True)
    assert not pattern.matches("a" * 200)
    assert pattern.topics(["a" * 200, "aaab-partition-2"]) == {"persistent://public/default/aaab"}


def test_pattern_beyond_re2_is_pythons_unless_it_must_be_linear() -> None:
    assert TopicPattern.parse("(?!__).*").matches("a")
    assert not TopicPattern.parse("(?!__).*").matches("__a")
    with pytest.raises(InvalidTopicNameError, match="RE2"):
        TopicPattern.parse("(?!__).*", must_be_linear=True)


def test_batch_receive_ends_at_its_first_limit_and_needs_one() -> None:
    policy = gc.BatchReceivePolicy(10, 1000, 100)
    assert not policy.is_enough(9, 999, 100)
    assert policy.is_enough(10, 0, 100)
    assert policy.is_enough(0, 1000, 100)
    assert policy.is_enough(5, 0, 5), "the queue can not hold more"


@pytest.mark.parametrize(
    "make",
    [
        lambda: gc.BatchReceivePolicy(-1, -1, -1),
        lambda: gc.BatchReceivePolicy("10"),  # type: ignore[arg-type]
        lambda: gc.MultiplierRedeliveryBackoff(0),
        lambda: gc.MultiplierRedeliveryBackoff(5, 1),
        lambda: gc.MultiplierRedeliveryBackoff(1, 5, float("nan")),
        lambda: gc.MultiplierRedeliveryBackoff(1, 5, 0.5),
        lambda: ConsumerOptions(unacked_messages_timeout_ms=1000, unacked_messages_tick_ms=2000).check(),
    ],
)
def test_policies_that_can_not_be_are_refused_with_the_clients_own_error(make) -> None:
    """They raised an error of servers, which is no PulsarException."""
    with pytest.raises(gc.InvalidConfiguration, match=r"expected|at least"):
        make()


def test_cores_refuse_what_can_not_be() -> None:
    with pytest.raises(ConfigurationError, match="ack timeout"):
        UnackedTracker(10, 20)
    with pytest.raises(InvariantError):
        FlowControl(-1)
    assert gc.MultiplierRedeliveryBackoff(10, 10).next(5) == 10
    # A broker may say any count of 32 bits, and a whole number has no largest power.
    assert gc.MultiplierRedeliveryBackoff(10, 60_000, 2).next((1 << 32) - 1) == 60_000
    assert gc.MultiplierRedeliveryBackoff(10, 60_000, 10**400).next(1) == 60_000
    assert gc.MultiplierRedeliveryBackoff(1, 1000, 1e300).next(9) == 1000


@pytest.mark.parametrize("backoff", [None, gc.MultiplierRedeliveryBackoff(100, 1000)])
def test_unacked_tracker_forgets_everything_at_once(backoff: gc.MultiplierRedeliveryBackoff | None) -> None:
    tracker = UnackedTracker(10, 10, backoff)
    tracker.add((1, 1))
    assert (1, 1) in tracker
    tracker.clear()
    assert len(tracker) == 0
    assert [tracker.tick() for _ in range(20)] == [[]] * 20


@pytest.mark.parametrize(("capacity", "given_back"), [(1, [1, 1, 1]), (2, [1, 1, 1]), (4, [0, 2, 0])])
def test_permits_go_back_when_half_of_the_queue_was_received(capacity: int, given_back: list[int]) -> None:
    flow = FlowControl(capacity)
    assert [flow.received() for _ in range(3)] == given_back


def test_paused_permits_are_kept_over_a_restart() -> None:
    flow = FlowControl(10)
    flow.is_paused = True
    assert flow.restart(3) == 0
    assert flow.received(4) == 0
    flow.is_paused = False
    assert flow.take() == 11


def test_start_inside_a_batch_means_the_message() -> None:
    assert StartPosition(1, 1, 2, is_inclusive=True).first_index(1, 1, is_batch=True) == 2
    assert StartPosition(1, 1, 2).first_index(1, 1, is_batch=True) == 3
    assert StartPosition(1, 1).first_index(1, 0, is_batch=False) is None


def test_rates_are_those_of_the_last_whole_interval() -> None:
    counters = ConsumerCounters()
    recorder = StatsRecorder(1000, 0)
    counters.messages_received = 500
    assert not recorder.tick(counters, 999)
    assert recorder.tick(counters, 2000)
    assert recorder.message_rate == 250.0
    assert recorder.tick(counters, 3000)
    stats = recorder.stats(counters, prefetched_messages=3, pending_acks=1)
    assert (stats.message_rate, stats.messages_received, stats.prefetched_messages) == (0.0, 500, 3)
    assert not StatsRecorder(0, 0).tick(counters, 1e9)
    assert counters.values()[-3] == 500 or 500 in counters.values()


def chunk(part: int, entry: int, *, uuid: str = "u", total: int = 4, of: int = 2, payload: bytes = b"xx") -> Chunk:
    return Chunk(uuid, part, of, total, payload, (1, entry))


def test_chunks_past_their_limits_are_of_no_use() -> None:
    assembly = ChunkAssembly(2, 100)
    assert assembly.add(chunk(0, 1, total=1000), 0, size_max=999).is_stray
    assert assembly.add(chunk(0, 1, of=0), 0).is_stray
    assert assembly.add(chunk(1, 2), 0).is_stray, "its beginning never came"
    assembly.add(chunk(0, 3, total=3), 0)
    assert assembly.add(chunk(1, 4, total=3), 0).discarded == [(1, 3), (1, 4)], "more bytes than it said"
    assembly.add(chunk(0, 5), 50)
    assert assembly.add(chunk(0, 5), 60).payload is None, "from the beginning again"
    assert assembly.next_expiry_ms == 160
    assert assembly.expire(159) == []
    assert assembly.expire(160) == [(1, 5)]
    assembly.add(chunk(0, 6, of=3), 0)
    assert assembly.add(chunk(0, 7, uuid="v", of=3), 0).evicted == []
    assert assembly.add(chunk(0, 8, uuid="w", of=3), 0).evicted == [(1, 6)]
    assert assembly.add(chunk(2, 9, uuid="w", of=3), 0).discarded == [(1, 8)], "a hole"
    assembly.clear()
    assert (len(assembly), assembly.bounds.held_bytes) == (0, 0)


def test_pieces_of_all_topics_have_one_bound_and_the_oldest_of_its_topic_gives_way() -> None:
    bounds = ChunkBounds(0, 10 + 4 * PIECE_OVERHEAD_BYTES)
    one, other = ChunkAssembly(0, 100, bounds), ChunkAssembly(0, 100, bounds)
    assert not one.add(chunk(0, 1, uuid="a", of=9, total=99), 0).evicted
    assert not one.add(chunk(0, 2, uuid="b", of=9, total=99), 0).evicted
    assert not other.add(chunk(0, 3, uuid="c", of=9, total=99, payload=b"xxxx"), 0).evicted
    assert one.add(chunk(1, 4, uuid="b", of=9, total=99, payload=b"xxxx"), 0).evicted == [(1, 1)]
    assert other.add(chunk(1, 5, uuid="c", of=9, total=99), 0).evicted == [(1, 3), (1, 5)], "others hold the rest"
    assert bounds.held_bytes == 6 + 2 * PIECE_OVERHEAD_BYTES
    # What comes of one that gave way is asked for again with it; from its beginning on it is a message again.
    assert one.add(chunk(1, 6, uuid="a", of=2), 0).evicted == [(1, 6)]
    assert not one.add(chunk(1, 6, uuid="a", of=2), 0).is_stray
    assert one.add(chunk(0, 1, uuid="a", of=2), 0).payload is None
    assert one.add(chunk(1, 6, uuid="a", of=2), 0).payload == b"xxxx"
    # The last piece has room: nothing waits any more.
    assert other.add(chunk(0, 7, uuid="d", of=2, total=4), 0).payload is None
    for assembly in (one, other):
        assembly.check_invariants()
        assembly.clear()
    assert bounds.held_bytes == 0


def test_of_messages_that_gave_way_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_assembly, "GAVE_WAY_KEPT_MAX", 2)
    assembly = ChunkAssembly(1, 100)
    for number in range(5):
        assembly.add(chunk(0, number, uuid=f"u{number}"), 0)
    assert [assembly.add(chunk(1, 9, uuid=f"u{number}"), 0).is_stray for number in range(4)] == [
        True,
        True,
        False,
        False,
    ]


def test_piece_that_comes_twice_changes_nothing() -> None:
    assembly = ChunkAssembly(2, 100)
    assembly.add(chunk(0, 1, total=300, of=3), 0)
    assembly.add(chunk(1, 2, total=300, of=3), 0)
    again = assembly.add(chunk(1, 2, total=300, of=3), 0)
    assert (again.payload, again.discarded, again.is_stray) == (None, (), False)
    assert assembly.add(chunk(2, 3, total=300, of=3), 0).entries == [(1, 1), (1, 2), (1, 3)]
