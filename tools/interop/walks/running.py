"""Runs walks at both brokers, several at a time, and tells where they part."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import geminga.client as gc
from tools.interop.apache_standalone import ApacheStandalone
from tools.interop.walks.asking import make_namespace
from tools.interop.walks.programs import Step, walk
from tools.interop.walks.recording import Shown, record
from tools.interop.walks.walking import Seen, Walker
from tools.standalone_process import StandaloneProcess

#: The second as in ``standalone.conf``, which Apache's broker is started with.
SETTINGS: Final = {
    "transactionCoordinatorEnabled": "true",
    "activeConsumerFailoverDelayTimeMillis": 100,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
}
NAMESPACE: Final = "public/walks"
AT_ONCE: Final = 20
#: How often a walk that parts is taken again.
AGAIN: Final = 2


async def walk_all(
    broker: StandaloneProcess,
    walks: Mapping[str, Sequence[Step]],
    *,
    quiet_s: float,
    awaited: Mapping[str, Sequence[Seen]] | None = None,
) -> dict[str, list[Seen]]:
    """Name of each walk, which is that of its topic -> what was seen; ``awaited``: what another broker showed."""
    make_namespace(broker.web_url, NAMESPACE)
    turns = asyncio.Semaphore(AT_ONCE)
    found: dict[str, list[Seen]] = {}

    async def one(name: str, steps: Sequence[Step]) -> None:
        async with turns, gc.connect(broker.service_url, operation_timeout_ms=20_000) as client:
            walker = Walker(client, broker.web_url, NAMESPACE, name, quiet_s)
            found[name] = await walker.walk(steps, (awaited or {}).get(name, ()))

    await asyncio.gather(*(one(name, steps) for name, steps in walks.items()))
    return found


class Pair:
    """Apache's broker and Geminga's, which take the same walks."""

    def __init__(self, apache: StandaloneProcess, geminga: StandaloneProcess, quiet_s: float) -> None:
        self.brokers = (apache, geminga)
        self.quiet_s = quiet_s
        self._taken = 0

    async def walk(self, walks: Sequence[Sequence[Step]]) -> list[tuple[list[Seen], list[Seen]]]:
        """What was seen at either, of each walk."""
        named = {f"w{self._taken + i}": steps for i, steps in enumerate(walks)}
        self._taken += len(named)
        apache, ours = [await walk_all(broker, named, quiet_s=self.quiet_s) for broker in self.brokers]
        return [(apache[name], ours[name]) for name in named]

    async def shortest(self, steps: Sequence[Step]) -> list[Step]:
        """Of a walk whose last step differs, what is left when every step that can go is gone."""
        left = list(steps)
        size = max(1, len(left) // 2)
        while size:
            tries = [left[:i] + left[i + size :] for i in range(0, len(left) - 1, size) if i + size < len(left)]
            seen = await self.walk(tries)
            found = next((one for one, pair in zip(tries, seen, strict=True) if _differs_last(*pair)), None)
            if found is not None and not _differs_last(*(await self.walk([found]))[0]):
                found = None
            if found is not None:
                left = found
            else:
                size //= 2
        return left


def _differs_last(one: Sequence[Seen], other: Sequence[Seen]) -> bool:
    return first_difference(one, other) == len(one) - 1


def first_difference(one: Sequence[Seen], other: Sequence[Seen]) -> int | None:
    """The step at which they part."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if told(a) != told(b)), None)


def told(seen: Seen) -> str:
    """As text, to be compared."""
    return json.dumps(seen, sort_keys=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: whether a walk differs."""
    parser = argparse.ArgumentParser(prog="make interop INTEROP_ARGS=walks", description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seeds", default="", help="these alone, with commas")
    parser.add_argument("--walk", default="", help="a JSON array of steps, instead of seeds")
    parser.add_argument("--quiet", type=float, default=0.7, help="seconds without a message that mean: no more")
    parser.add_argument("--show", type=int, default=3, help="steps that are shown before the one that differs")
    parser.add_argument("--record", action="store_true", help="keep what Apache's broker showed twice, and ours alike")
    parser.add_argument("--shorten", action="store_true", help="find the shortest walk that parts in the same step")
    options = parser.parse_args(arguments)
    seeds = list(range(options.first, options.first + options.count))
    if options.seeds or options.walk:
        seeds = [int(seed) for seed in options.seeds.split(",") if seed]
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = []
        for kind in (ApacheStandalone, StandaloneProcess):
            process = kind(directory / kind.__name__, log=directory / f"{kind.__name__}.log", settings=SETTINGS)
            process.start()
            stack.callback(process.kill)
            brokers.append(process)
        return asyncio.run(_compare(Pair(brokers[0], brokers[1], options.quiet), seeds, options))


async def _compare(pair: Pair, seeds: Sequence[int], options: argparse.Namespace) -> int:
    walks = [json.loads(options.walk)] if options.walk else [walk(seed) for seed in seeds]
    seeds = seeds or [-1]
    seen = await pair.walk(walks)
    parted = [i for i, both in enumerate(seen) if first_difference(*both) is not None]
    for _ in range(AGAIN if parted else 0):
        # What comes a moment too late on a busy machine is no difference.
        for i, both in zip(parted, await pair.walk([walks[i] for i in parted]), strict=True):
            if (first_difference(*both) or -1) != first_difference(*seen[i]):
                seen[i] = ([], [])
        parted = [i for i in parted if seen[i][0]]

    async def tell(seed: int, steps: Sequence[Step], apache: Sequence[Seen], ours: Sequence[Seen]) -> None:
        at = first_difference(apache, ours)
        assert at is not None
        print("\n".join(_report(seed, steps, apache, ours, at, options.show)), flush=True)
        if options.shorten:
            short = await pair.shortest(steps[: at + 1])
            [(apache, ours)] = await pair.walk([short])
            lines = _report(f"{seed}, shortened", short, apache, ours, len(short) - 1, len(short))
            print("\n".join(lines), flush=True)

    if options.record:
        again = await pair.walk(walks)
        record(
            Shown(seeds[i], walks[i], apache)
            for i, ((apache, ours), (later, _)) in enumerate(zip(seen, again, strict=True))
            if told(apache) == told(ours) == told(later)
        )
    await asyncio.gather(*(tell(seeds[i], walks[i], *seen[i]) for i in parted))
    print(f"{len(walks)} walks, {len(parted)} differ")
    return int(bool(parted))


def _report(
    seed: object, steps: Sequence[Step], apache: Sequence[Seen], ours: Sequence[Seen], at: int, before: int
) -> Iterable[str]:
    yield f"seed {seed}: step {at} of {len(steps)}"
    for i in range(max(0, at - before), at):
        yield f"    {json.dumps(steps[i])} -> {told(ours[i])}"
    yield f"    {json.dumps(steps[at])}"
    yield f"      Apache : {told(apache[at])}"
    yield f"      Geminga: {told(ours[at])}"
