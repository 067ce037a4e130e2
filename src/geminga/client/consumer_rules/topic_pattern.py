"""Topics that match a pattern, and what changed since last time.

As in Pulsar, the pattern is written like a topic name (``persistent://tenant/namespace/regex``) or without its domain;
domains are left out of the comparison, and partitions count as their partitioned topic. RE2 evaluates it, in time that
is linear in the name; what RE2 does not know, or takes in another sense, is Python's, whose matcher may take for ever.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from geminga.model import TopicName
from geminga.model.errors import InvalidTopicNameError
from geminga.model.topic_name import DEFAULT_NAMESPACE
from geminga.wire.pulsar.topic_pattern import LinearPattern


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A pattern over the topics of one namespace."""

    #: ``tenant/namespace`` whose topics are looked at.
    namespace: str
    #: ``tenant/namespace/regex``, to be matched against whole names without domain.
    expression: str
    #: The same as short as possible: brokers take patterns of 50 characters by default.
    text_for_brokers: str
    #: None: only Python's matcher can evaluate it.
    linear: LinearPattern | None = field(default=None, compare=False)

    @classmethod
    def parse(cls, text: str, *, must_be_linear: bool = False) -> TopicPattern:
        """From ``[domain://]tenant/namespace/regex``, or a regex in ``public/default``; InvalidTopicNameError.

        ``must_be_linear``: nor may it be one that only Python's matcher can evaluate.
        """
        _, separator, rest = text.partition("://")
        rest = rest if separator else text
        parts = rest.split("/", 2)
        if len(parts) == 1:
            namespace, local = DEFAULT_NAMESPACE, parts[0]
        elif len(parts) == 3:
            namespace, local = f"{parts[0]}/{parts[1]}", parts[2]
        else:
            raise InvalidTopicNameError(f"topic pattern {text!r}: expected 'persistent://tenant/namespace/regex'")
        try:
            re.compile(local)
        except re.error as error:
            raise InvalidTopicNameError(f"topic pattern {text!r}: {error}") from error
        TopicName.parse(f"persistent://{namespace}/topic")
        escaped = re.escape(namespace)
        expression = f"{escaped}/(?:{local})"
        linear = LinearPattern.compile(expression)
        if linear is None and must_be_linear:
            raise InvalidTopicNameError(
                f"topic pattern {text!r}: expected one that RE2 can evaluate in 64 KiB, so without look-aheads, "
                "back-references, possessive quantifiers, {,n}, octal escapes and classes within classes"
            )
        for_brokers = f"{escaped}/({local})" if "|" in local else f"{escaped}/{local}"
        return cls(namespace, expression, for_brokers, linear)

    def matches(self, topic: str) -> bool:
        """Whether a topic (or partition) belongs to the pattern."""
        name = TopicName.parse(topic).partitioned_topic
        if self.linear is not None:
            return self.linear.matches(str(name))
        return re.fullmatch(self.expression, f"{name.namespace}/{name.local_name}") is not None

    def matching(self, names: Iterable[str]) -> set[str]:
        """Those of the topics and partitions that belong to the pattern."""
        return {name for name in names if self.matches(name)}

    def topics(self, names: Iterable[str]) -> set[str]:
        """Full names of the matching topics, partitioned ones without partition suffix."""
        return {str(TopicName.parse(name).partitioned_topic) for name in names if self.matches(name)}


def changes(before: Iterable[str], after: Iterable[str]) -> tuple[list[str], list[str]]:
    """(topics that came, topics that went), sorted."""
    old, new = set(before), set(after)
    return sorted(new - old), sorted(old - new)
