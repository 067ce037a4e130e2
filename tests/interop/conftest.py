"""Topics and clusters of the tests that both brokers judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tools.standalone_process import StandaloneProcess
from tools.zookeeper_server import ZooKeeperServer, running_zookeeper

if TYPE_CHECKING:
    from support.processes.apache_rights import Asked


@pytest.fixture
def topic(fresh_topic: str) -> str:
    """A topic of ``public/default`` that nobody used: its local name."""
    return fresh_topic.rsplit("/", 1)[1]


@pytest.fixture
def zookeeper(judge_is_apache: bool) -> Iterator[ZooKeeperServer]:
    """One of its own: each cluster is made anew."""
    if not judge_is_apache:
        pytest.skip("Apache's ledger client, bookies and auto-recovery")
    with running_zookeeper() as server:
        yield server


@pytest.fixture(scope="module")
def apache(judge_is_apache: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Apache's broker with the roles and grants of the table of rights."""
    if not judge_is_apache:
        pytest.skip("Apache's broker is asked")
    from support.processes.apache_rights import running_asked
    from unit.broker.access.test_decision_table import GRANTS, PROXIES

    given = {"topics": GRANTS["destination_auth"], "of_namespace": GRANTS["namespace_auth"]}
    with running_asked(tmp_path_factory.mktemp("rights"), proxies=PROXIES, **given) as broker:
        yield broker


@pytest.fixture(scope="module")
def start_judge(
    judge_is_apache: bool, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Mapping[str, str]], StandaloneProcess]]:
    """Starts a broker of the judge's make with settings of a module's own, behind which it is killed."""
    kind: type[StandaloneProcess] = StandaloneProcess
    if judge_is_apache:
        from tools.interop.apache_standalone import ApacheStandalone

        kind = ApacheStandalone
    with ExitStack() as stack:

        def start(settings: Mapping[str, str]) -> StandaloneProcess:
            directory = tmp_path_factory.mktemp("judge")
            process = kind(directory / "data", log=directory / "broker.log", settings=settings)
            process.start()
            stack.callback(process.kill)
            return process

        yield start
