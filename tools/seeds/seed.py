"""One seed. (A module of its own: processes that work on seeds can not import ``__main__``.)"""

from __future__ import annotations

import logging
import time
import traceback
from contextlib import redirect_stderr
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geminga.sim import SimWorld
    from support.token_ring import Ring


def run_seed(seed: int) -> dict[str, Any]:
    """One seed, as a line of the log."""
    from geminga.sim import SimWorld, run_in
    from support.token_ring import Ring

    logging.disable(logging.CRITICAL)
    world = SimWorld(seed)
    rings: list[Ring] = []

    async def story(world: SimWorld) -> None:
        rings.append(Ring(world))
        await rings[0].run()

    started = time.process_time()
    error = None
    try:
        with redirect_stderr(StringIO()):
            run_in(world, story)
    except Exception as raised:
        error = "".join(traceback.format_exception(raised))
    line: dict[str, Any] = {"scenario": "token_ring", "seed": seed, "ok": error is None}
    if rings:
        line |= rings[0].told()._asdict()
    line["cpu_s"] = round(time.process_time() - started, 3)
    if error is not None:
        line["error"] = error
    return line
