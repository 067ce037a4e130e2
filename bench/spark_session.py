"""The Spark session that benches of Spark run in, and the loop that answers their lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


def serve(scratch: Path, sources: Iterable[Any], answer: Callable[[Any, Answer, Path], Answer]) -> Answer:
    """Start a session with ``sources``, say that it is ready, and answer each line of stdin with one line."""
    from geminga.spark import session

    session_ = session(
        "bench",
        master="local[2]",
        settings={
            "spark.driver.memory": "1g",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        },
    )
    session_.sparkContext.setLogLevel("ERROR")
    for source in sources:
        session_.dataSource.register(source)
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(session_, json.loads(line), scratch)), flush=True)
    session_.stop()
    return {}
