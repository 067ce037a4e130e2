"""How long an HTTP connection may take, against a log of everything that was seen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.rest.calls.core.timeouts import RequestPhase, RequestTimeouts, TimeoutLimits

LIMITS = TimeoutLimits(head_s=10, body_s=60, stalled_s=30)
LOOKS = st.lists(
    st.tuples(st.integers(0, 25), st.sampled_from(list(RequestPhase)), st.booleans(), st.sampled_from([0, 0, 1, 2, 3])),
    max_size=30,
)


def since(log, same) -> int:
    """Time of the first of the last looks in a row that are ``same`` as the last one."""
    first = log[-1]
    for earlier in reversed(log):
        if not same(earlier):
            break
        first = earlier
    return first[0]


@given(LOOKS)
def test_it_ends_what_lasts_too_long_and_nothing_else(looks) -> None:
    patience = RequestTimeouts(LIMITS, 0)
    log = [(0, RequestPhase.HEAD, 0, 0)]
    now = request = 0
    for elapsed, part, is_next, unread in looks:
        now += elapsed
        request += is_next
        log.append((now, part, request, unread))
        began = since(log, lambda seen: seen[1:3] == log[-1][1:3])
        # The answer was last taken from when it last became smaller, or when it began to wait.
        waits = now
        for before, after in zip(reversed(log[:-1]), reversed(log), strict=False):
            if not after[3] or after[3] < before[3] or not before[3]:
                waits = after[0]
                break
        expected = ""
        if part is RequestPhase.HEAD and now - began >= LIMITS.head_s:
            expected = "its headers"
        elif part is RequestPhase.BODY and now - began >= LIMITS.body_s:
            expected = "its body"
        elif unread and now - waits >= LIMITS.stalled_s:
            expected = "reading the answer"
        assert patience.look(now, part, request, unread) == expected
