"""Whose bundle it is, for who asks for its topics."""

from __future__ import annotations

from types import SimpleNamespace

from geminga.broker.ownership.core.bundles import Bundle, topic_hash
from geminga.broker.rest.calls.routing import SegmentRouter
from geminga.broker.rest.families import all_rows
from geminga.broker.rest.namespace_routes.bundle_topics import _loaded
from geminga.model.topic_name import TopicName

NAMES = ["persistent://a/b/t", "non-persistent://a/b/n", "persistent://a/c/t"]
WHOLE = Bundle("a/b", 0, 0xFFFFFFFF)


def context(*, owned: list[Bundle] | None) -> SimpleNamespace:
    loaded = {name: SimpleNamespace(name=TopicName.parse(name)) for name in NAMES}
    membership = None if owned is None else SimpleNamespace(ownership=SimpleNamespace(owned=owned))
    return SimpleNamespace(membership=membership, topics=SimpleNamespace(registry=SimpleNamespace(loaded=loaded)))


def test_alone_a_bundle_is_owned_while_somebody_uses_it() -> None:
    assert _loaded(context(owned=None), WHOLE) == sorted(NAMES[:2])  # type: ignore[arg-type]
    above = Bundle("a/b", max(map(topic_hash, NAMES[:2])) + 1, 0xFFFFFFFF)
    assert _loaded(context(owned=None), above) is None  # type: ignore[arg-type]


def test_one_of_several_owns_what_its_nodes_say_used_or_not() -> None:
    assert _loaded(context(owned=[]), WHOLE) is None  # type: ignore[arg-type]
    assert _loaded(context(owned=[Bundle("x/y", 0, 5)]), Bundle("x/y", 0, 5)) == []  # type: ignore[arg-type]


def test_a_bundle_does_not_hide_the_lists_of_its_namespace() -> None:
    paths = [route.path for route in SegmentRouter(all_rows()).routes]
    bundle = next(path for path in paths if path.endswith("/non-persistent/{tenant}/{namespace}/{bundle}"))
    partitioned = next(path for path in paths if path.endswith("/{tenant}/{namespace}/partitioned"))
    assert paths.index(partitioned) < paths.index(bundle)
