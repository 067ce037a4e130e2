"""Patterns over topic names, matched in time that is linear in the name.

A pattern is evaluated by RE2, never by a matcher that backtracks: by the broker, which does not know who wrote it, by
the client and by Spark's source. What RE2 has no notion of (look-aheads, back-references, possessive quantifiers) is no
pattern here; nor is what RE2 takes to mean something else than Java, whose syntax the protocol's patterns are written
in, and Python, whose our own client sends. The broker leaves those to the client, which filters by itself then; Spark's
source refuses them. Pulsar's broker evaluates patterns with RE2's twin for Java, too
(``topicsPatternRegexImplementation``).

Pure; RE2 is imported with the first pattern.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from geminga.model.topic_name import PARTITION_SUFFIX, TopicName

if TYPE_CHECKING:
    import re2

#: Memory of one compiled pattern, bytes; RE2 refuses to compile what needs more. It bounds time, too: the largest
#: program that fits takes about a millisecond for a name of 500 characters. 200 alternatives of ten letters fit.
#: RE2 itself remembers 128 patterns.
PATTERN_BYTES_MAX: Final = 64 * 1024

#: One step through a pattern: quoted text, an escape, the begin of a class (a bracket right behind it is a member of
#: it), or a single character.
_STEP: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?|.", re.DOTALL)
#: ``(?U)`` is "lazy" in RE2 and "Unicode classes" in Java.
_FLAGS: Final = re.compile(r"\(\?-?[a-zA-Z]*U")


class LinearPattern:
    """A compiled pattern; made by :meth:`compile`."""

    __slots__ = ("_expression",)

    def __init__(self, expression: re2._Regexp) -> None:
        self._expression = expression

    @classmethod
    def compile(cls, text: str) -> LinearPattern | None:
        """From ``[domain://]tenant/namespace/regex``; None if it is no pattern, or one for the client to evaluate."""
        _, separator, rest = text.partition("://")
        text = rest if separator else text
        if has_other_meaning(text):
            return None
        import re2

        options = re2.Options()
        options.max_mem = PATTERN_BYTES_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            return cls(re2.compile(text.encode(), options))
        except (re2.error, UnicodeEncodeError):
            return None

    def matches(self, topic: str) -> bool:
        """Whether a full topic name matches from its tenant on; a partition counts by its partitioned topic's name."""
        name = topic.partition("://")[2]
        if PARTITION_SUFFIX in name:
            name = str(TopicName.parse(topic).partitioned_topic).partition("://")[2]
        return self.matches_text(name)

    def matches_text(self, text: str) -> bool:
        """Whether a text matches as a whole, whatever it is."""
        return self._expression.fullmatch(text.encode(errors="replace")) is not None


def has_other_meaning(text: str) -> bool:
    """Whether RE2 would compile the pattern to something else than Java or Python do.

    Character classes within classes (``[[:alpha:]]``, ``[a&&[b]]``), ``{,n}``, digits behind a backslash, ``\\C``,
    ``\\v`` and the flag ``U``.
    """
    in_class = False
    for step in _STEP.finditer(text):
        token, position = step.group(), step.start()
        if token.startswith("\\") and len(token) > 1:
            if token[1] in "Cv0123456789":
                return True
        elif in_class:
            if token.startswith("[") or text.startswith("&&", position):
                return True
            in_class = token != "]"
        elif token.startswith("["):
            in_class = True
        elif (token == "{" and text.startswith("{,", position)) or (token == "(" and _FLAGS.match(text, position)):
            return True
    return False
