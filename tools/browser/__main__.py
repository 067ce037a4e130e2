"""``make browser``: the console in Debian's Chromium. Prints what was found and figures; ends with 1 if one is wrong.

``script``: console.js alone. ``tasks``: the twelve tasks at both widths, and one by keys alone. ``audit``: axe-core on
every page. ``paint``: first contentful paint on many topics. ``stress``: what it bears.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

try:
    from tools.browser import audit, bears, paint, script, signing_in, tasks, world
    from tools.browser.chrome import EXECUTABLE, Watch, chromium
except ModuleNotFoundError as missing:
    sys.exit(f"{missing.name} is not installed; make browser installs it in build/browser-extras")
from tools.standalone_process import StandaloneProcess

#: Seconds; the promise of docs/console.md.
PAINT_S = 0.3


@contextmanager
def standalone(directory: Path, name: str, *arguments: str, **settings: object) -> Iterator[StandaloneProcess]:
    """A fresh one, whose topics stay although nobody uses them."""
    settings = {"brokerDeleteInactiveTopicsEnabled": "false", **settings}
    process = StandaloneProcess(directory / name, log=directory / f"{name}.log", arguments=arguments, settings=settings)
    with process:
        yield process


def _script(options: argparse.Namespace) -> list[str]:
    with chromium() as browser:
        return script.told(browser)


def _shop(options: argparse.Namespace, name: str, look: Callable[[StandaloneProcess, Watch], list[str]]) -> list[str]:
    with standalone(options.directory, name) as process:
        asyncio.run(world.fill(process.service_url, process.web_url))
        watch = Watch(urlsplit(process.web_url).netloc)
        with world.Traffic(process.service_url):
            found = look(process, watch)
        print(
            f"requests of the browser: {watch.requests}; to elsewhere, against the policy, errors: {len(watch.found)}"
        )
        return found + watch.found


def _tasks(options: argparse.Namespace) -> list[str]:
    def look(process: StandaloneProcess, watch: Watch) -> list[str]:
        with chromium() as browser:
            return tasks.done(browser, process, watch, options.keep)

    return _shop(options, "tasks", look)


def _audit(options: argparse.Namespace) -> list[str]:
    def look(process: StandaloneProcess, watch: Watch) -> list[str]:
        with chromium() as browser:
            pages = audit.crawl(browser, process.web_url, watch)
            print(f"pages looked at: {len(pages)}, each in two schemes at two widths")
            for page in pages:
                print(f"  {page.removeprefix(process.web_url)}")
            return audit.look(browser, pages, watch)

    return _shop(options, "audit", look)


def _paint(options: argparse.Namespace) -> list[str]:
    found = []
    with standalone(options.directory, "many") as process:
        asyncio.run(paint.make_topics(process.web_url, options.topics))
        watch = Watch(urlsplit(process.web_url).netloc)
        with chromium() as browser:
            for path in paint.PATHS:
                seen = paint.times(browser, process.web_url + path, watch)
                middle = paint.middle(seen)
                print(
                    f"first contentful paint of {path}: median {middle:.3f} s of {len(seen)}, "
                    f"{min(seen):.3f} to {max(seen):.3f}; {options.topics} topics"
                )
                if middle > PAINT_S:
                    found.append(f"{path}: {middle:.3f} s, {PAINT_S} promised")
    return found + watch.found


def _stress(options: argparse.Namespace) -> list[str]:
    found = []
    with standalone(options.directory, "crowd") as process:
        asyncio.run(paint.make_topics(process.web_url, options.topics))
        found += bears.a_crowd(process, options.topics, options.loads)
    found += bears.a_killed_broker(options.directory)
    found += bears.bare_posts_and_read_only(options.directory)
    found += signing_in.told(options.directory)
    return found


KINDS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "script": _script,
    "tasks": _tasks,
    "audit": _audit,
    "paint": _paint,
    "stress": _stress,
}


def main() -> int:
    """Read the options, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.browser", description=__doc__)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="all of them unless told")
    parser.add_argument("--keep", action="store_true", help="write the pictures of docs/console.md anew")
    parser.add_argument("--topics", type=int, default=10_000, help="of paint and stress (10000)")
    parser.add_argument("--loads", type=int, default=2_000, help="of pages, in stress (2000)")
    parser.add_argument("--directory", type=Path, help="keep data and logs there")
    options = parser.parse_args()
    if not Path(EXECUTABLE).exists():
        print(f"{EXECUTABLE} is not there: apt-get install chromium", file=sys.stderr)
        return 2
    given = options.directory
    options.directory = given or Path(tempfile.mkdtemp(prefix="geminga-browser-"))
    options.directory.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    for kind in options.kinds or KINDS:
        found = KINDS[kind](options)
        print(f"{kind}: {'as promised' if not found else f'{len(found)} found'}")
        for line in found:
            print(f"FOUND {line}", file=sys.stderr, flush=True)
        wrong += found
    if not given and not wrong:
        shutil.rmtree(options.directory, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
