#!/usr/bin/env python3
"""Make a whole cluster Geminga's, or Apache Pulsar's again: brokers, auto-recovery, bookies, one process at a time.

::

    migrate.py plan.json --list      # what would be done
    migrate.py plan.json             # do it, while clients publish and consume
    migrate.py plan.json --from 4    # go on where it stopped

The plan names the processes, and the commands that stop and start them (systemctl, ssh, what you have). One plan goes
from Apache Pulsar to Geminga, another one back; the steps are the same::

    {"metadata": "zk1:2181,zk2:2181/chroot",
     "namespaces": ["public/default"],
     "leaves": "apache",
     "brokers": [{"broker": "b1:8080", "stop": "systemctl stop pulsar-broker", "start": "systemctl start geminga"}],
     "autorecovery": {"start": "...", "stop": "..."},
     "bookies": [{"old": "bk1:3181", "new": "bk1-geminga", "start": "...", "read_only": "...", "stop": "..."}]}

1. **Ledgers that are in the lake alone** come back to the bookies, if the cluster leaves Geminga: Apache's brokers can
   not read Geminga's lake. Switch thresholds of offloading off before, or nothing is restored.
2. **Each broker** is replaced by another at its address (``replace_broker.py``): the old one gives its bundles to the
   others and ends, the new one joins; topics and subscriptions are compared.
3. **Auto-recovery**: the new one starts, the old one stops. One of them is needed for what follows.
4. **Each bookie** is replaced by one under a *new id*, in an empty directory: neither make reads the other's directory,
   and the old one's cookie under its id would refuse the start. The new one starts; the old one is made read-only (for
   both makes: a restart with ``forceReadOnlyBookie=true``), so that no ledger begins there and writers leave it; it
   is stopped and decommissioned: auto-recovery copies what it had from the other copies. Only when no ledger names it
   any more is it the next one's turn. Keep its directory until all is done.

It ends with 0 if all of it was done, with 1 and a sentence otherwise: nothing is lost then, look, and go on with
``--from`` and the step that it stopped at (where you finished a broker's step by hand, with the next one). Needs
Geminga installed, at the version of the cluster.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from replace_broker import StepError, ask, inventory, replace, wait_until

#: Where bookies register themselves, writable and read-only, and where the cookie of each that ever was is kept.
WRITABLE, READ_ONLY, COOKIES = "/ledgers/available", "/ledgers/available/readonly", "/ledgers/cookies"
#: What ``geminga autorecovery decommission`` says of a bookie whose session is not over yet.
REGISTERED = "is registered: stop it first"


class Step(NamedTuple):
    """One of them."""

    title: str
    do: Callable[[], str]


class Migration:
    """The plan, and what its steps need."""

    def __init__(self, plan: dict[str, Any], limit_s: float) -> None:
        """``limit_s``: for each wait. Raises StepError for a plan that can not be right."""
        self.limit_s = limit_s
        try:
            self.metadata: str = plan["metadata"]
            self.namespaces: list[str] = plan["namespaces"]
            self.leaves_geminga = {"apache": False, "geminga": True}[plan["leaves"]]
            self.brokers: list[dict[str, str]] = plan["brokers"]
            self.autorecovery: dict[str, str] | None = plan.get("autorecovery")
            self.bookies: list[dict[str, str]] = plan["bookies"]
        except KeyError as error:
            raise StepError(f"the plan lacks or has a wrong {error}; see the head of this program") from error
        ids = [bookie[which] for bookie in self.bookies for which in ("old", "new")]
        if len(set(ids)) < len(ids):
            raise StepError("the plan has a bookie id twice: each bookie is replaced by one under a new id")

    def steps(self) -> list[Step]:
        """All of them, in order."""
        steps = [Step("look whether everything is there", self.look)]
        if self.leaves_geminga:
            steps.append(Step("bring back from the lake what is there alone", self.restore_lake))
        for number, broker in enumerate(self.brokers):
            steps.append(Step(f"replace broker {broker['broker']}", lambda number=number: self.broker(number)))
        if self.autorecovery is not None:
            steps.append(Step("replace auto-recovery", self.recovery))
        for bookie in self.bookies:
            title = f"replace bookie {bookie['old']} by {bookie['new']}"
            steps.append(Step(title, lambda bookie=bookie: self.bookie(bookie)))
        return [*steps, Step("look whether everything answers", self.look_again)]

    # ---- the steps

    def look(self) -> str:
        """Nothing was done yet: what the plan says is there, and nothing is in its way."""
        present = ask(self.admin(), "brokers")
        missing = [one["broker"] for one in self.brokers if one["broker"] not in present]
        if missing:
            raise StepError(f"not in the cluster: {', '.join(missing)}; there are {', '.join(present)}")
        writable, read_only = self.registered(WRITABLE), self.registered(READ_ONLY)
        gone = [one["old"] for one in self.bookies if one["old"] not in {*writable, *read_only}]
        if gone:
            raise StepError(f"bookies that are not registered: {', '.join(gone)}; there are {', '.join(writable)}")
        known = self.registered(COOKIES)
        taken = [one["new"] for one in self.bookies if one["new"] in known]
        if taken:
            raise StepError(f"bookies were there under these ids before, take others: {', '.join(taken)}")
        topics = inventory(self.admin(), self.namespaces)
        return f"{len(present)} brokers, {len(writable)} bookies, {len(topics)} topics"

    def restore_lake(self) -> str:
        """Every topic that has something in the lake; clients are served meanwhile."""
        restored = 0
        for topic in inventory(self.admin(), self.namespaces):
            ledgers = ask(self.admin(), f"{topic.replace('://', '/')}/lake")["ledgers"]
            count = sum(ledger["isOffloaded"] for ledger in ledgers)
            if count:
                self.geminga("lake", "restore", topic, "--admin-url", self.admin())
                restored += count
        return f"{restored} ledgers came back to the bookies"

    def broker(self, number: int) -> str:
        """See ``replace_broker.py``."""
        one = self.brokers[number]
        return replace(self.admin(but=number), one["broker"], self.namespaces, one["stop"], one["start"], self.limit_s)

    def recovery(self) -> str:
        """Two of them do each other no harm, whatever their make: they lock what they copy."""
        assert self.autorecovery is not None
        run(self.autorecovery["start"])
        run(self.autorecovery["stop"])
        return "the new one runs"

    def bookie(self, one: dict[str, str]) -> str:
        """The new one first, so that there are always as many as before. What was done already is left out."""
        began = time.monotonic()
        old, new = one["old"], one["new"]
        if new not in self.registered(WRITABLE):
            run(one["start"])
            self.wait(f"{new} takes entries", lambda: new in self.registered(WRITABLE))
        if old in self.registered(WRITABLE):
            run(one["read_only"])
            self.wait(f"{old} is read-only", lambda: old in self.registered(READ_ONLY))
        if old in self.registered(READ_ONLY):
            run(one["stop"])
            self.wait(f"{old} is gone", lambda: old not in self.registered(READ_ONLY))
        self.geminga("autorecovery", "decommission", old, "--metadata", f"zk:{self.metadata}")
        return f"no ledger names {old} any more, {time.monotonic() - began:.1f} s after the step began"

    def look_again(self) -> str:
        """Every topic answers at every broker; all bookies that there are take entries."""
        for broker in self.brokers:
            found = inventory(f"http://{broker['broker']}", self.namespaces)
        writable = self.registered(WRITABLE)
        missing = [one["new"] for one in self.bookies if one["new"] not in writable]
        if missing:
            raise StepError(f"bookies that do not take entries: {', '.join(missing)}")
        return (
            f"{len(found)} topics answer at each of {len(self.brokers)} brokers; {len(writable)} bookies take entries"
        )

    # ---- what they need

    def admin(self, but: int | None = None) -> str:
        """A broker to ask, another one than ``but`` if there is one."""
        others = [one["broker"] for number, one in enumerate(self.brokers) if number != but]
        return f"http://{(others or [one['broker'] for one in self.brokers])[0]}"

    def registered(self, path: str) -> list[str]:
        """Names of bookies below one of BookKeeper's paths in ZooKeeper; nothing where there is no such path."""
        client = KazooClient(self.metadata)
        client.start(timeout=self.limit_s)
        try:
            return sorted(set(client.get_children(path)) - {"readonly"})
        except NoNodeError:
            return []
        finally:
            client.stop()
            client.close()

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Raises StepError."""
        wait_until(what, is_so, self.limit_s)

    def geminga(self, *words: str) -> str:
        """What a command of Geminga's prints; tried again while a stopped bookie's session goes on."""
        deadline = time.monotonic() + self.limit_s
        while True:
            done = subprocess.run(
                [sys.executable, "-m", "geminga", *words], capture_output=True, text=True, check=False
            )
            if done.returncode == 0:
                return done.stdout
            if REGISTERED not in done.stderr or time.monotonic() > deadline:
                raise StepError(f"geminga {shlex.join(words)}: {done.stderr.strip()[-500:]}")
            time.sleep(1)


def run(command: str) -> None:
    """Raises StepError."""
    done = subprocess.run(shlex.split(command), check=False)
    if done.returncode:
        raise StepError(f"{command} ended with {done.returncode}")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path, help="a JSON file")
    parser.add_argument("--list", action="store_true", help="tell the steps and do nothing")
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="STEP", help="begin with this one (1)")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for each wait (300)")
    options = parser.parse_args()
    number = options.first
    try:
        steps = Migration(json.loads(options.plan.read_text(encoding="utf-8")), options.timeout).steps()
        if not 1 <= options.first <= len(steps):
            raise StepError(f"--from {options.first}: expected a step from 1 to {len(steps)}")
        for number, step in enumerate(steps[options.first - 1 :], options.first):
            print(f"{number}. {step.title}", flush=True)
            if not options.list:
                print(f"   {step.do()}", flush=True)
    except (StepError, OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"migrate: stopped at step {number}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
