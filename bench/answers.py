"""What a generator process prints: one line of JSON, its answer or the key ``error``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any


def tell(answer: Callable[[dict[str, Any]], object], failures: tuple[type[Exception], ...] = (Exception,)) -> int:
    """Print what ``answer`` gives for the options of the command line, or its error; 1 then.

    ``failures``: the errors that are told; others end the process.
    """
    try:
        told = answer(json.loads(sys.argv[1]))
    except failures as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        return 1
    print(json.dumps(told), flush=True)
    return 0
