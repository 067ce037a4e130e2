"""What was seen lately of a topic: a few numbers each time that somebody looked, for the plots.

Kept by the server and not by the page's script, so that a plot is there without script, is the same after a reload and
in a second window, and so that one place holds the limit. Nothing is sampled while nobody looks: a page adds what it
has just asked for with its visitor's own rights, and shows the history only of what it was just allowed to ask for.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Final

from geminga.app.console.core.plots import Series

#: Things (topics, subscriptions) whose history is kept, over all visitors; beyond, the one looked at longest ago goes.
KEYS_MAX: Final = 500
#: Samples of one thing: ten minutes of a page that asks every five seconds.
SAMPLES_MAX: Final = 120
#: Samples nearer than this to the one before are dropped: many visitors do not make the history shorter.
APART_MS: Final = 4_000
#: What plots show, and how long a sample is kept.
SPAN_MS: Final = 600_000


class SeenLately:
    """The last samples of the things that were looked at."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: OrderedDict[str, deque[tuple[int, dict[str, float]]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._samples)

    def add(self, key: str, values: Mapping[str, float], *, now_ms: int) -> None:
        """Keep ``values`` of ``key`` as of ``now_ms``, unless the sample before is less than APART_MS old.

        A clock that was set back begins the history anew: a plot has no place for what comes later than now.
        """
        samples = self._samples.setdefault(key, deque(maxlen=SAMPLES_MAX))
        self._samples.move_to_end(key)
        if samples and samples[-1][0] > now_ms:
            samples.clear()
        while samples and samples[0][0] < now_ms - SPAN_MS:
            samples.popleft()
        if not samples or now_ms - samples[-1][0] >= APART_MS:
            samples.append((now_ms, dict(values)))
        if len(self._samples) > KEYS_MAX:
            self._samples.popitem(last=False)

    def series(self, key: str, name: str, called: str) -> Series:
        """The samples called ``name`` of ``key`` as the line ``called``; without any, an empty one."""
        samples = self._samples.get(key, ())
        return Series(called, tuple((at_ms, values[name]) for at_ms, values in samples if name in values))
