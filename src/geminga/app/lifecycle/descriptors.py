"""The limit on open files of this process: raised at the start of ``geminga standalone``.

Never by ``geminga.Standalone``: the limit belongs to whose process it is.
"""

from __future__ import annotations

import resource
from typing import Final

from geminga.app.lifecycle.core.descriptors import LIMIT_ASSUMED

#: Tried from the largest on where the system takes no larger one (macOS: 10,240 though the hard limit is infinite).
_FALLBACKS: Final = (65_536, 10_240, 4_096)


def raise_descriptor_limit() -> tuple[int, int]:
    """Raise the soft limit to the hard one, as far as the system lets; the limit before and the one now in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = LIMIT_ASSUMED if soft == resource.RLIM_INFINITY else soft
    # A hard limit without bound, or of a billion as in some containers, would only make the kernel's tables large.
    wanted = LIMIT_ASSUMED if hard == resource.RLIM_INFINITY else min(hard, LIMIT_ASSUMED)
    for limit in (wanted, *_FALLBACKS):
        if limit <= before or limit > wanted:
            continue
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            continue
        return before, limit
    return before, before
