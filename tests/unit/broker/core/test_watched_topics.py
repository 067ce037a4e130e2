"""What a watched pattern's topics are, and what is told of them."""

from __future__ import annotations

from geminga.broker.core.watched_topics import TopicChange, WatchedTopics
from geminga.wire.pulsar.commands import topics_hash


def test_change_tells_only_news() -> None:
    topics = WatchedTopics(["a", "c"])
    assert topics.hash == topics_hash(["a", "c"])
    assert topics.change(["a"], ["b"]) is None
    assert topics.change(["b", "a"], ["c", "x"]) == TopicChange(["b"], ["c"], topics_hash(["a", "b"]))
    assert topics.names == ["a", "b"]
    assert topics.hash == topics_hash(["a", "b"])
