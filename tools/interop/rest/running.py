"""``python -m tools.interop rest``: the table, sent to both brokers."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from rich.console import Console

from tools.interop.apache_standalone import ApacheStandalone
from tools.interop.artifacts import BUILD
from tools.interop.rest.calls import Story
from tools.interop.rest.comparing import Compared, compare
from tools.interop.rest.meant import MEANT
from tools.interop.rest.recording import names_of, record, recorded
from tools.interop.rest.sending import Answer, send_all
from tools.interop.rest.tables import TABLES, by_settings
from tools.standalone_process import StandaloneProcess


def run(console: Console, version: str, arguments: list[str]) -> int:
    """Send and compare; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.interop rest")
    parser.add_argument("-k", default="", help="only stories whose name has this text", dest="part")
    parser.add_argument("--table", choices=TABLES, help="only the stories of this table")
    parser.add_argument("--record", action="store_true", help="keep Apache's answers")
    parser.add_argument("--geminga", action="store_true", help="compare with the answers that were kept; no Java")
    options = parser.parse_args(arguments)
    tables = {
        name: [story for story in stories if options.part in story.name]
        for name, stories in TABLES.items()
        if options.table in (None, name)
    }
    ours: dict[str, Answer] = {}
    theirs: dict[str, Answer] = {}
    started = time.perf_counter()
    for settings, names in by_settings():
        stories = [story for name in names for story in tables.get(name, ())]
        if not stories:
            continue
        with tempfile.TemporaryDirectory(prefix="geminga-rest-") as directory:
            data = Path(directory)
            with StandaloneProcess(data / "geminga", log=BUILD / "rest-geminga.log", settings=settings) as process:
                ours |= send_all(stories, process.web_url, process.service_url)
            if options.geminga:
                kept = {name: answer for table in names for name, answer in recorded(table).items()}
                theirs |= {name: kept[name] for name in names_of(stories)}
            else:
                theirs |= _ask_apache(stories, data, version, settings)
    compared = compare(theirs, ours, MEANT)
    if options.record and not options.part:
        for table, chosen in tables.items():
            record(table, chosen, theirs)
    is_whole = not options.part and options.table is None
    report(console, compared, is_whole=is_whole)
    console.print(f"{time.perf_counter() - started:.0f} s")
    return 1 if compared.unexplained or (compared.idle and is_whole) else 0


def _ask_apache(stories: list[Story], directory: Path, version: str, settings: dict[str, str]) -> dict[str, Answer]:
    log = BUILD / f"rest-broker-{version}.log"
    with ApacheStandalone(directory / "apache", log=log, version=version, settings=settings) as process:
        return send_all(stories, process.web_url, process.service_url)


def report(console: Console, compared: Compared, *, is_whole: bool, what: str = "REST calls sent to both") -> None:
    """What is unexplained, line by line, and the sums."""
    last = ""
    for name, difference in compared.unexplained:
        if name != last:
            console.print(name, markup=False, soft_wrap=True, highlight=False)
        console.print(f"    {difference}", markup=False, soft_wrap=True, highlight=False)
        last = name
    for row in compared.idle if is_whole else ():
        console.print(f"covers nothing any more: {row}", markup=False, soft_wrap=True, highlight=False)
    meant = sum(compared.meant.values())
    rows = sum(count > 0 for count in compared.meant.values())
    console.print(
        f"{what}: {compared.calls}; differences that are meant: {meant}, in {rows} rows; "
        f"unexplained: {len(compared.unexplained)}"
    )
