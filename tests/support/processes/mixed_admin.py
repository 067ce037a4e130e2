"""``pulsar-admin`` run at both brokers of a mixed cluster, and what is compared of its answers."""

from __future__ import annotations

import json
import re
import threading
import time
from typing import Any, Final

from tools.interop.pulsar_admin import Printed, PulsarAdmin

from support.processes.mixed_cluster import MAKES, Make, MixedCluster

UNBUILT: Final = "not built in Geminga"
#: What both agree on a moment later: policies and lists of the other broker come by watches.
SOON_S: Final = 5.0
#: Values that another question has otherwise, whichever broker is asked.
MOVING: Final = {
    # Rates and ages are of the moment in which they are asked for.
    "msgRateIn",
    "msgThroughputIn",
    "msgRateOut",
    "msgThroughputOut",
    "averageMsgSize",
    "oldestBacklogMessageAgeSeconds",
    "lastLedgerCreatedTimestamp",
    "earliestMsgPublishTimeInBacklogs",
    "entriesAddedCounter",
    # Of what is read for the answer itself.
    "pendingReadEntriesQueueSize",
}


class Asking:
    """Both brokers are asked the same."""

    def __init__(self, cluster: MixedCluster, admin: PulsarAdmin) -> None:
        self.cluster = cluster
        self.admin = admin
        self.asked = 0
        self.different: list[str] = []
        #: What Geminga says is not built: a route that is listed so (docs/compatibility.md).
        self.unbuilt: list[str] = []
        self._pause = threading.Event()

    def at(self, make: Make, command: str) -> Printed:
        """What one of them says."""
        return self.admin.run(self.cluster.brokers[make].web_url, *command.split())

    def done(self, make: Make, command: str) -> None:
        """One that has to go well."""
        printed = self.at(make, command)
        assert printed.is_done, (make, command, printed)

    def is_unbuilt(self, make: Make, command: str) -> bool:
        """Whether one that has to go well is not built in Geminga."""
        printed = self.at(make, command)
        if UNBUILT in printed.errors:
            self.unbuilt.append(command)
            return True
        assert printed.is_done, (make, command, printed)
        return False

    def both(self, command: str, *, is_done: bool | None = True, moving: frozenset[str] = frozenset()) -> None:
        """Note where the two differ, or whether it did not go as meant, for as long as one may not have heard yet."""
        self.asked += 1
        deadline = time.monotonic() + SOON_S
        while True:
            found = [self.at(make, command) for make in MAKES]
            if UNBUILT in found[MAKES.index("geminga")].errors:
                self.unbuilt.append(command)
                return
            read = [comparable(printed, moving) for printed in found]
            is_meant = is_done is None or [printed.is_done for printed in found] == [is_done] * 2
            if read[0] == read[1] and is_meant:
                return
            if time.monotonic() > deadline:
                break
            self._pause.wait(0.5)
        told = [f"  {make}: {one}\n" for make, one in zip(MAKES, read, strict=True)]
        self.different.append(f"{command}\n{''.join(told)}")
        print(self.different[-1], flush=True)

    def check(self) -> None:
        """Fails with all that differs."""
        print(f"{self.asked} commands at both, {len(self.different)} differ; not built: {self.unbuilt}")
        assert not self.different, "\n" + "\n".join(self.different)


def comparable(printed: Printed, moving: frozenset[str] = frozenset()) -> Any:
    """Values without the order of names, and without what moves; of an error its status and reason."""
    if not printed.is_done:
        return re.sub(r"127\.0\.0\.1:\d+", "BROKER", printed.errors).split("\n\tat ")[0].strip()
    try:
        return without(json.loads(printed.out), MOVING | moving)
    except ValueError:
        return sorted(printed.out.splitlines())


def without(value: Any, names: frozenset[str] | set[str]) -> Any:
    match value:
        case dict():
            return {key: without(each, names) for key, each in value.items() if key not in names}
        case list():
            return sorted((without(each, names) for each in value), key=lambda one: json.dumps(one, sort_keys=True))
        case _:
            return value
