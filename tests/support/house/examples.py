"""How many examples a property tries: few in ``make test``, all in ``make test-long`` and ``make search``."""

from __future__ import annotations

import os
from typing import Final

#: Of a property that says nothing else.
EXAMPLES: Final = int(os.environ.get("PROPERTY_EXAMPLES", "50"))
#: What ``make test-long`` tries of it.
_EXAMPLES_LONG: Final = 200
#: Of one whose examples are dear by themselves.
FEW: Final = 2 * EXAMPLES // 5


def many(examples: int) -> int:
    """The number for a property that meets seldom what it looks for: ``examples`` in ``make test-long``.

    ``make test`` tries a quarter of them, and no fewer than of other properties.
    """
    return max(EXAMPLES, examples * EXAMPLES // _EXAMPLES_LONG)
