"""``python -m tools.interop admin``: every command of ``pulsar-admin``, at both brokers."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from rich.console import Console

from tools.interop.admin.commands import Command, parsed
from tools.interop.admin.keeping import keep
from tools.interop.admin.meant import MEANT, MEANT_OF_TOOLS
from tools.interop.admin.own_tool import OwnTool
from tools.interop.admin.recorder import recording
from tools.interop.admin.stories import Story, stories_of
from tools.interop.admin.telling import DONE, Teller, Told, Tool
from tools.interop.apache_standalone import ApacheStandalone
from tools.interop.artifacts import BUILD
from tools.interop.pulsar_admin import PulsarAdmin, pulsar_admin
from tools.interop.rest.comparing import compare, differences
from tools.interop.rest.running import report
from tools.interop.rest.sending import Answer
from tools.standalone_process import StandaloneProcess

TABLE: Final = BUILD / "admin-commands.tsv"
TOOLS_TABLE: Final = BUILD / "admin-tools.tsv"
TOOLS_PRINTED: Final = BUILD / "admin-tools-printed.txt"
PRINTED: Final = BUILD / "admin-printed.txt"
SETTINGS: Final = {"transactionCoordinatorEnabled": "true"}


def run(console: Console, version: str, arguments: list[str]) -> int:
    """Run all commands and compare; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.interop admin")
    parser.add_argument("-k", default="", help="only stories with this in their title", dest="part")
    parser.add_argument("--tools", choices=("apache", "geminga"), help="both command lines, at one make of broker")
    parser.add_argument("--keep", action="store_true", help="keep the requests for the table of REST calls")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="geminga-admin-") as name, pulsar_admin(Path(name)) as admin:
        directory = Path(name)
        commands = parsed(admin.run("http://127.0.0.1:1").out)
        whole = stories_of(commands)
        stories = [story for story in whole if options.part in story.title]
        if options.tools:
            return _both_tools(console, admin, directory, stories, (options.tools, version))
        # Apache's takes policies that nothing can follow.
        (directory / "lake").mkdir()
        settings = {**SETTINGS, "fileSystemURI": f"file://{directory}/lake"}
        with StandaloneProcess(directory / "geminga", log=BUILD / "admin-geminga.log", settings=settings) as process:
            ours = _tell(admin, process, directory, stories)
        log = BUILD / f"admin-broker-{version}.log"
        with ApacheStandalone(directory / "apache", log=log, version=version, settings=SETTINGS) as process:
            theirs = _tell(admin, process, directory, stories)
    compared = compare(theirs.answers, ours.answers, MEANT)
    TABLE.write_text("".join(_rows(theirs, ours)), encoding="utf-8")
    PRINTED.write_text("".join(_printed(theirs, ours)), encoding="utf-8")
    is_whole = not options.part
    report(console, compared, is_whole=is_whole, what="pulsar-admin at both")
    done = sum(answer.status == DONE for answer in theirs.answers.values())
    console.print(
        f"{len(commands)} commands, {len(theirs.answers)} lines of which Apache's broker did {done}; the table is "
        f"{TABLE.relative_to(BUILD.parents[1])}; {time.perf_counter() - started:.0f} s"
    )
    if options.keep and is_whole:
        console.print(f"requests kept: {keep(theirs.stories)}; record Apache's answers: tools.interop rest --record")
    missing = missed(commands, stories) if is_whole else []
    for command in missing:
        console.print(f"not run: {command}", markup=False, highlight=False)
    return 1 if compared.unexplained or missing or (compared.idle and is_whole) else 0


def _both_tools(
    console: Console, admin: PulsarAdmin, directory: Path, stories: list[Story], make: tuple[str, str]
) -> int:
    """``pulsar-admin`` and Geminga's own command line, each at a fresh broker of a make and version."""
    found = []
    for tool, name in ((admin, "pulsar-admin"), (OwnTool(), "geminga")):
        place = directory / name
        (place / "files").mkdir(parents=True)
        log = BUILD / f"tools-{make[0]}-{name}.log"
        with _broker(make, place, log) as process:
            found.append(_tell(tool, process, place / "files", stories))
    theirs, ours = found
    compared = compare(theirs.answers, ours.answers, MEANT_OF_TOOLS)
    TOOLS_TABLE.write_text("".join(_rows(theirs, ours)), encoding="utf-8")
    TOOLS_PRINTED.write_text("".join(_printed(theirs, ours, ("pulsar-admin", "geminga"))), encoding="utf-8")
    report(console, compared, is_whole=False, what=f"both tools at {make[0]}")
    console.print(f"{len(theirs.answers)} lines; the table is {TOOLS_TABLE.relative_to(BUILD.parents[1])}")
    return 1 if compared.unexplained else 0


def _broker(
    make: tuple[str, str], place: Path, log: Path
) -> AbstractContextManager[StandaloneProcess | ApacheStandalone]:
    if make[0] == "apache":
        return ApacheStandalone(place / "data", log=log, version=make[1], settings=SETTINGS)
    return StandaloneProcess(place / "data", log=log, settings=SETTINGS)


def missed(commands: Iterable[Command], stories: Iterable[Story]) -> list[str]:
    """Commands that no story runs."""
    lines = [f"{line} " for story in stories for line in story.lines]
    return [one.words for one in commands if not any(line.startswith(f"{one.words} ") for line in lines)]


def _tell(admin: Tool, process: StandaloneProcess | ApacheStandalone, directory: Path, stories: list[Story]) -> Told:
    with recording(process.web_url) as recorder:
        urls = {"web_url": process.web_url, "service_url": process.service_url}
        return Teller(admin, recorder, directory=directory, **urls).tell_all(stories)


def _rows(theirs: Told, ours: Told) -> Iterable[str]:
    yield "command\tApache\tGeminga\tdifferences\trequests\n"
    for name, answer in theirs.answers.items():
        found = " / ".join(differences(answer, ours.answers[name]))
        sent = " / ".join(f"{one.method} {one.target} {one.status}" for one in theirs.requests[name])
        fields = [name, _short(answer), _short(ours.answers[name]), found, sent]
        yield "\t".join(" ".join(field.split()) for field in fields) + "\n"


def _printed(theirs: Told, ours: Told, titles: tuple[str, str] = ("Apache", "Geminga")) -> Iterable[str]:
    for name in theirs.answers:
        for make, told in zip(titles, (theirs, ours), strict=True):
            yield f"==== {name} ({make})\n{told.printed[name].out}{told.printed[name].errors}\n"


def _short(answer: Answer) -> str:
    return "done" if answer.status == DONE else f"failed: {answer.reason}"
