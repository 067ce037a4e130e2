"""What the workers of a run need not tell: half a millisecond of processor time a test.

Of each test pytest-xdist sends six messages, three of them reports. Nobody looks at the beginning of a test, unless the
run names each, nor at a setting up and a tearing down that passed and printed nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def is_needed(name: str, message: Mapping[str, Any]) -> bool:
    """Whether the process that writes the result does something with an event of a worker."""
    if name == "logstart":
        return False
    if name != "testreport":
        return True
    report = message["data"]
    passed_in_silence = report["outcome"] == "passed" and not report["sections"] and not report["user_properties"]
    return report["when"] == "call" or not passed_in_silence


def tell_less(config: pytest.Config) -> None:
    """In a worker, keep back what is not needed: with ``-v`` and ``--durations`` all of it is."""
    if not hasattr(config, "workerinput") or config.option.verbose > 0 or config.option.durations is not None:
        return
    # By name: a worker has its class from a text that it was sent, and not from the package.
    plugins: Iterable[Any] = config.pluginmanager.get_plugins()
    (interactor,) = (plugin for plugin in plugins if type(plugin).__name__ == "WorkerInteractor")
    send = interactor.sendevent

    def send_what_is_needed(name: str, **message: object) -> None:
        if is_needed(name, message):
            send(name, **message)

    interactor.sendevent = send_what_is_needed
