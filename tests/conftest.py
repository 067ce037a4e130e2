"""The brokers that judge: Geminga's, or with ``INTEROP_PULSAR=version`` Apache Pulsar's (``make interop``).

Properties hold however slow the machine is: an example that takes its time is no failure. Their examples are the
same in every run; ``make search`` draws new ones.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from support.house.examples import EXAMPLES
from support.house.few_messages import tell_less

if TYPE_CHECKING:
    import pulsar
    from tools.standalone_process import StandaloneProcess
    from tools.zookeeper_server import ZooKeeperServer
    from xdist.remote import Producer

    import geminga
    from support.house.worker_groups import GroupScheduling

#: The version of Apache Pulsar whose broker is the judge; empty: Geminga is.
APACHE_VERSION = os.environ.get("INTEROP_PULSAR", "")

#: Geminga as a judge: Failover does not wait, as tests that time it say so themselves (Apache's is told 100 ms).
SETTINGS = {"activeConsumerFailoverDelayTimeMillis": 0}

_numbers = count(1)

settings.register_profile(
    "geminga",
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("PROPERTY_SEED"),
    print_blob=True,
)
settings.load_profile("geminga")
if not os.environ.get("PROPERTY_SEED"):
    # Constants of all modules of ours that a process has loaded by then would be drawn, too: other examples with each
    # order of tests, and each source parsed in each worker. `make search` has them.
    providers.is_local_module_file = lambda path: False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Workers share the tests by groups."""
    from support.house.worker_groups import GroupScheduling

    return GroupScheduling(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Compile once what each worker would compile; and one week for all of them, whenever they begin."""
    from support.house.compiled_ahead import compile_ahead
    from support.house.weekly_sample import WEEK_VARIABLE, week

    os.environ[WEEK_VARIABLE] = week()
    compile_ahead()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand items live as long as the session: no collection of any test looks at them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class _Survivors:
    """What outlives tests (modules they load, caches) is looked at by each full collection: a fifth of the CPU."""

    # Full collections, between two tests that set what is left aside.
    EVERY: Final = 6
    # Objects set aside more than there were, when all of them are looked at again: cycles of what the last test still
    # had, as a simulated world, may have died since.
    MORE_MAX: Final = 250_000

    def __init__(self) -> None:
        self.collections = self.objects_max = 0

    def pytest_runtest_logfinish(self) -> None:
        """Between two tests: cycles of a running one would stay."""
        if gc.get_stats()[2]["collections"] - self.collections < self.EVERY:
            return
        is_full = gc.get_freeze_count() > self.objects_max
        if is_full:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
        self.collections = gc.get_stats()[2]["collections"]
        if is_full:
            self.objects_max = gc.get_freeze_count() + self.MORE_MAX


def pytest_configure(config: pytest.Config) -> None:
    """Each process that runs tests keeps its heap small for the collector; a worker tells what somebody looks at."""
    config.pluginmanager.register(_Survivors())
    tell_less(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests that take turns, and whose week it is not, are long; of some long ones each week has a part."""
    from support.house.weekly_sample import LONG_TURNS, TURNS, left_to_other_weeks, whose_turn_it_is_not

    of_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        file = item.nodeid.partition("::")[0].removeprefix("tests/")
        is_long = item.get_closest_marker("long") is not None
        if file in (LONG_TURNS if is_long else TURNS):
            of_file.setdefault(file, []).append(item)
    left: set[str] = set()
    for file, found in of_file.items():
        names = sorted({item.nodeid for item in found})
        waiting = whose_turn_it_is_not(file, names)
        left |= left_to_other_weeks(file, names)
        for item in found:
            if item.nodeid in waiting:
                item.add_marker("long")
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left])
        items[:] = [item for item in items if item.nodeid not in left]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Who silences the log for good has every test behind it hear nothing, which some of them listen for."""
    assert logging.root.manager.disable == logging.NOTSET, f"{item.nodeid} left logging disabled"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what asks for parts that only Geminga has, or what Apache's broker is known to do in another way."""
    marker = item.get_closest_marker("geminga_only")
    if APACHE_VERSION and marker is not None:
        pytest.skip(marker.args[0])
    if (marker := item.get_closest_marker("uncompiled")) is not None:
        from geminga.version import is_compiled

        if is_compiled():
            pytest.skip(f"compiled code takes no other: {marker.args[0]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which sample ran, so that it runs again."""
    from support.house.weekly_sample import WEEK_VARIABLE, week

    terminalreporter.write_line(f"samples of {WEEK_VARIABLE}={week()}")


@pytest.fixture(scope="session", autouse=True)
def _warm_starts() -> Iterator[None]:
    """Brokers and bookies come from one process that has their imports behind it; ``WARM_STARTS=0``: they do not."""
    if os.environ.get("WARM_STARTS") == "0":
        yield
        return
    from tools.standalone_process import StandaloneProcess
    from tools.warm_process import WarmStarts

    warm_starts = WarmStarts()
    StandaloneProcess.warm_starts = warm_starts
    try:
        yield
    finally:
        StandaloneProcess.warm_starts = None
        warm_starts.close()


def _process(directory: Path) -> StandaloneProcess:
    if not APACHE_VERSION:
        from tools.standalone_process import StandaloneProcess

        return StandaloneProcess(directory / "data", log=directory / "broker.log", settings=SETTINGS)
    from tools.interop.apache_standalone import ApacheStandalone
    from tools.interop.artifacts import BUILD

    return ApacheStandalone(directory / "data", log=BUILD / f"broker-{APACHE_VERSION}.log", version=APACHE_VERSION)


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    """The judge as a process of its own, one for the whole session."""
    with _process(tmp_path_factory.mktemp("standalone")) as process:
        yield process


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper, one for all tests of a worker: each takes a chroot of its own."""
    from tools.zookeeper_server import running_zookeeper

    with running_zookeeper() as server:
        yield server


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[StandaloneProcess | geminga.Standalone]:
    """The judge for a module: Geminga in this process and in memory, or Apache's process."""
    if APACHE_VERSION:
        yield request.getfixturevalue("standalone")
        return
    from geminga import Standalone

    with Standalone(config=SETTINGS) as embedded:
        yield embedded


@pytest.fixture
def restartable(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StandaloneProcess]:
    """A judge that a test may stop, kill and start: Geminga's is fresh, Apache's (slow to start) is the session's."""
    if APACHE_VERSION:
        process: StandaloneProcess = request.getfixturevalue("standalone")
        yield process
        if not process.is_running:
            process.start()
        return
    with _process(tmp_path) as process:
        yield process


@pytest.fixture
def official(standalone: StandaloneProcess, tmp_path: Path) -> Iterator[pulsar.Client]:
    """An official client of the session's broker."""
    from support.processes.official import official_client

    with official_client(standalone.service_url, tmp_path) as client:
        yield client


@pytest.fixture(scope="session")
def judge_is_apache() -> bool:
    """Whether Apache Pulsar's broker is the judge: for the few promises that only Geminga's makes."""
    return bool(APACHE_VERSION)


@pytest.fixture
def fresh_topic() -> str:
    """A topic name nobody used."""
    return f"persistent://public/default/it-{next(_numbers)}"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """This process and its children hear SIGINT, also where the run ignores it, as all does that a shell put into the
    background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
