"""What starts Apache's broker: tested without Java, Maven and network."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from tools.free_ports import free_ports
from tools.interop import artifacts
from tools.interop.__main__ import SUITES, count
from tools.interop.admin.arguments import line_of
from tools.interop.admin.commands import parsed
from tools.interop.admin.keeping import keep
from tools.interop.admin.meant import MEANT
from tools.interop.admin.recorder import Request, recording
from tools.interop.admin.running import missed
from tools.interop.admin.stories import LAST, Story, stories_of
from tools.interop.admin.telling import seen
from tools.interop.apache_standalone import ApacheStandalone
from tools.interop.pulsar_admin import Printed
from tools.interop.rest.calls import Call, Publish
from tools.interop.rest.tables.pulsar_admin import kept
from tools.standalone_process import ROOT, StartError

pytestmark = pytest.mark.integration

#: A standalone whose process only waits; its own process says the pid, then waits, too.
PARENT = """
import sys
from pathlib import Path
from tools.interop.apache_standalone import ApacheStandalone

class Waiting(ApacheStandalone):
    def command(self):
        return ["sleep", "600"]

one = Waiting(Path(sys.argv[1]), log=Path(sys.argv[1]) / "log")
one.launch()
print(one.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_the_broker_dies_with_the_process_that_started_it(tmp_path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "data")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert select.select([child], [], [], 0)[0] == []
            parent.kill()
            assert select.select([child], [], [], 30)[0] == [child]
        finally:
            os.close(child)


def test_a_broker_that_ends_or_is_not_healthy_in_time_is_named_with_its_last_words(tmp_path) -> None:
    class Ending(ApacheStandalone):
        words = "echo no disk; exit 3"

        def command(self) -> list[str]:
            return ["sh", "-c", self.words]

    broker = Ending(tmp_path / "data", log=tmp_path / "log")
    with pytest.raises(StartError, match=r"(?s)exit code 3.*no disk"):
        broker.start()
    broker.words = "echo slow; exec sleep 600"
    with pytest.raises(StartError, match=r"(?s)not healthy within 0\.5 s.*slow"):
        broker.start(timeout_s=0.5)
    assert not broker.is_running


def test_the_configuration_has_the_ports_and_they_stay(tmp_path, monkeypatch) -> None:
    jar = tmp_path / "pulsar.jar"
    jar.write_bytes(b"")
    (tmp_path / "classpath-4.2.4.txt").write_text(str(jar), encoding="utf-8")
    monkeypatch.setattr(artifacts, "BUILD", tmp_path)
    monkeypatch.setenv("INTEROP_JAVA", sys.executable)
    broker = ApacheStandalone(tmp_path / "data", log=tmp_path / "log", version="4.2.4")
    command = broker.command()
    assert command[0] == sys.executable
    assert command[command.index("-cp") + 1] == str(jar)
    broker.launch()
    broker.kill()
    urls = (broker.service_url, broker.web_service_url)
    lines = (tmp_path / "data" / "standalone.conf").read_text(encoding="utf-8").splitlines()
    assert f"brokerServicePort={broker.broker_port}" in lines
    assert f"webServicePort={broker.web_port}" in lines
    broker.launch()
    broker.kill()
    assert (broker.service_url, broker.web_service_url) == urls


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(5))) == 5


def test_the_class_path_is_asked_for_once_and_a_missing_tool_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(artifacts, "BUILD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("INTEROP_JAVA", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(artifacts.ToolError, match="mvn"):
        artifacts.class_path("4.2.4")
    with pytest.raises(artifacts.ToolError, match="17 or newer"):
        artifacts.java()
    jar = tmp_path / "one.jar"
    jar.write_bytes(b"")
    (tmp_path / "classpath-4.2.4.txt").write_text(f"{jar}\n", encoding="utf-8")
    assert artifacts.class_path("4.2.4") == str(jar)
    jar.unlink()
    with pytest.raises(artifacts.ToolError, match="mvn"):
        artifacts.class_path("4.2.4")


def test_outcomes_are_counted_by_module_and_every_suite_exists(tmp_path) -> None:
    outcomes = tmp_path / "outcomes.xml"
    outcomes.write_text(
        '<testsuites><testsuite><testcase classname="a" time="1.5"/><testcase classname="a" time="0.5"><failure/>'
        '</testcase><testcase classname="b" time="0"><skipped/></testcase></testsuite></testsuites>',
        encoding="utf-8",
    )
    assert count(outcomes) == {"a": Counter(passed=1, failed=1, ms=2000), "b": Counter(skipped=1, ms=0)}
    assert [path for _, path in SUITES if not (ROOT / path).exists()] == []
    assert Path(artifacts.POM).is_file()
    assert Path(artifacts.POM_5).is_file()
    assert artifacts.pinned_version().count(".") == 2


def test_another_version_has_the_judge_s_place_and_says_which_java_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("INTEROP_PULSAR", raising=False)
    pinned = artifacts.pinned_version()
    assert ApacheStandalone(tmp_path, log=tmp_path / "log").version == pinned
    monkeypatch.setenv("INTEROP_PULSAR", "5.0.1")
    assert ApacheStandalone(tmp_path, log=tmp_path / "log").version == "5.0.1"
    assert ApacheStandalone(tmp_path, log=tmp_path / "log", version=pinned).version == pinned
    assert [artifacts.java_needed(version) for version in (pinned, "5.0.1")] == [17, 21]


#: As ``AdminCommands.java`` tells them.
TOLD = """functions list\tFunctions
topics get-retention\tThe retention
\t-ap,--applied\tboolean\t0\tfalse\tWhat holds
\t0\tString\t1\ttrue\tpersistent://tenant/namespace/topic
topics set-retention\tSets it
\t0\tString\t1\ttrue\tpersistent://tenant/namespace/topic
\t--size,-s\tLong\t1\ttrue\tSize
\t--time,-t\tLong\t1\ttrue\tTime
topics remove-retention\tRemoves it
\t0\tString\t1\ttrue\tpersistent://tenant/namespace/topic
topics info-internal\tThe last one
\t0\tString\t1\ttrue\tpersistent://tenant/namespace/topic
topics create-missed-partitions\tStatistics
\t0\tString\t1\ttrue\tpersistent://tenant/namespace/topic
brokers shutdown\tEnds it
"""


def test_commands_are_read_and_each_is_run_with_what_it_needs_policies_in_order() -> None:
    commands = parsed(TOLD)
    assert [command.words for command in commands] == [
        "topics get-retention",
        "topics set-retention",
        "topics remove-retention",
        "topics info-internal",
        "topics create-missed-partitions",
        "brokers shutdown",
    ]
    stories = stories_of(commands)
    assert stories[-1].lines == (f"{LAST} -m 10",)
    found = {story.title: story.lines for story in stories}
    get, end = "topics get-retention {topic}", "topics remove-retention {topic}"
    assert found["topics retention"] == (get, "topics set-retention {topic} --size 1G --time 3h", get, end, get)
    assert found["topics info-internal"] == ("topics info-internal {topic}",)
    assert found["topics create-missed-partitions"] == ("topics create-missed-partitions {parts}",)
    assert missed(commands, stories) == []
    assert missed(commands, stories[:-1]) == ["brokers shutdown"]


def test_a_parameter_without_a_value_and_what_is_no_command_are_named() -> None:
    (command,) = parsed("topics new\tNew\n\t--colour,-c\tString\t1\ttrue\tIts colour\n")
    with pytest.raises(KeyError, match=r"topics new: no value for --colour \(String\)"):
        line_of(command)
    with pytest.raises(ValueError, match="a parameter has 5 fields"):
        parsed("topics new\tNew\n\t--colour\n")


def test_what_moves_is_compared_by_its_names_and_errors_without_addresses_and_stacks() -> None:
    stats = seen("topics stats {topic}", Printed(True, '{"msgInCounter": 3}', ""))
    assert stats.body == {".": "object", "msgInCounter": "number"}
    assert seen("topics get-retention {topic}", Printed(True, '{"a": 3}', "")).body == {".": "object", "a": 3}
    failed = seen("topics stats {topic}", Printed(False, "", "no 127.0.0.1:8080\n\tat org.Class\n"))
    assert failed.reason == "no HOST"


def test_requests_are_kept_once_as_stories_of_the_table_and_own_addresses_and_ledgers_are_not(tmp_path) -> None:
    usual = ("application/json", "application/json")
    sent = [
        Request("POST", "/admin/v2/persistent/public/admin-1/t/retention", *usual, b'{"a":1}', 204),
        Request("GET", "/admin/v2/persistent/public/admin-1/t/ledger/17/entry/0", "", "*/*", None, 200),
        Request("PUT", "/admin/v2/persistent/public/admin-1/t", "text/plain", "", b"public/admin-1", 204),
    ]
    again = Request("POST", "/admin/v2/persistent/public/admin-2/t/retention", *usual, b'{"a":1}', 204)
    own = Request("GET", "/admin/v2/brokers/new", "", "", None, 200)
    told = [
        (Story("topics retention", ("topics set-retention {topic}",)), "public/admin-1", sent),
        (Story("persistent retention", ("persistent set-retention {topic}",)), "public/admin-2", [again]),
        (Story("own", ("brokers namespaces {broker}",)), "public/admin-3", [own]),
    ]
    assert keep(told, tmp_path / "kept.jsonl") == 2
    (story,) = kept(tmp_path / "kept.jsonl")
    assert story.name == "admin topics policies"
    assert [name for name, step in story.named_steps() if isinstance(step, Call)][-2:] == [
        'admin topics policies: POST /admin/v2/persistent/{ns}/t/retention {"a":1}',
        "admin topics policies: PUT /admin/v2/persistent/{ns}/t {ns} Content-Type=text/plain",
    ]
    assert sum(isinstance(step, Publish) for step in story.steps) == 1


def test_what_is_meant_to_differ_is_told_to_users() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")}
    assert {row.row for row in MEANT} - rows == set()


def test_the_recorder_passes_requests_on_and_notes_them() -> None:
    (port,) = free_ports(1)
    # The inner one finds nobody behind it, and says so.
    with recording(f"http://127.0.0.1:{port}") as inner, recording(inner.url) as outer:
        request = urllib.request.Request(f"{outer.url}/a%2Fb?c=d", b"text", method="PUT")
        request.add_header("Content-Type", "text/plain")
        with pytest.raises(urllib.error.HTTPError, match="502: no answer of the broker") as refused:
            urllib.request.urlopen(request)
        refused.value.close()
        assert outer.take() == [Request("PUT", "/a%2Fb?c=d", "text/plain", "", b"text", 502)]
        assert (outer.take(), inner.take()) == ([], [])
