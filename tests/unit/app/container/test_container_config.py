"""Files of the image: what variables make of them, and where they are on a read-only root."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from geminga.app.configuration.config import load_config
from geminga.app.configuration.config_sources import read_file
from geminga.app.container.config_copies import (
    Image,
    apply_to_file,
    config_file,
    container_start,
    remember,
    remembered,
)
from geminga.app.container.core.doors import health_url, open_doors
from geminga.app.container.core.environment_keys import apply_environment
from geminga.app.container.core.file_layers import copy_places, is_current
from geminga.app.container.default_files import FILES, file_text, write_files
from geminga.app.container.programs import main
from geminga.model.errors import ConfigurationError


def test_a_variable_sets_a_key_that_the_file_has_also_in_a_comment() -> None:
    applied = apply_environment("a=1\n# about b\n#b=\nc=3", {"a": "2", "b": "x=y", "PULSAR_MEM": "-Xmx1g", "d": "4"})
    assert applied.text == "a=2\n# about b\nb=x=y\nc=3\n"
    assert applied.done == ("a = 2", "b = x=y")


def test_the_prefix_sets_any_key_and_wins() -> None:
    environment = {"a": "2", "PULSAR_PREFIX_a": "3", "PULSAR_PREFIX_new": " n ", "PULSAR_PREFIX_": "?"}
    applied = apply_environment("a=1\n", environment)
    assert applied.text == "a=3\nnew=n\n"
    assert applied.done == ("a = 3", "new = n (new)")


def test_the_line_that_counts_is_the_one_that_changes() -> None:
    assert apply_environment("a=1\na=2\n#a=9\n", {"a": "3"}).text == "a=1\na=3\n#a=9\n"


def test_a_value_stays_on_its_line_and_a_secret_is_not_shown() -> None:
    applied = apply_environment("", {"PULSAR_PREFIX_brokerClientAuthenticationParameters": "token:a\r\nb"})
    assert applied.text == "brokerClientAuthenticationParameters=token:a\\nb\n"
    assert applied.done == ("brokerClientAuthenticationParameters = ******** (new)",)
    # Of it servers take the text of the file, too.
    assert apply_environment("", {"PULSAR_PREFIX_basicAuthConf": "data:,a:$2y$05$x"}).done == (
        "basicAuthConf = ******** (new)",
    )


def test_a_value_with_a_line_end_of_unicode_stays_one_value() -> None:
    assert apply_environment("a=x\u2028b=1\x0cc=2\x85\n", {"b": "9", "c": "9"}).text == "a=x\u2028b=1\x0cc=2\x85\n"


def test_a_line_goes_with_what_continues_it() -> None:
    text = "# no \\\na=1,\\\n  b=2,\\\n  3\nc=\\\\\nd=4\n"
    assert apply_environment(text, {"b": "9"}).text == text
    assert apply_environment(text, {"a": "9", "d": "5"}).text == "# no \\\na=9\nc=\\\\\nd=5\n"
    assert apply_environment(text, {"c": "8"}).text == "# no \\\na=1,\\\n  b=2,\\\n  3\nc=8\nd=4\n"
    assert apply_environment("a=1\\\r\n", {"PULSAR_PREFIX_b": "2"}).text == "a=1\\\n\nb=2\n"


@pytest.mark.parametrize(
    ("value", "expected"), [("a\\", "b ends with a single backslash"), ("\udcff", "b is no UTF-8 text")]
)
def test_a_value_that_would_change_other_keys_or_no_file_can_have_is_refused(
    image: Image, value: str, expected: str
) -> None:
    conf = Path(image.home) / "conf" / "standalone.conf"
    conf.write_text("b=1\nauthenticationEnabled=true\n")
    with pytest.raises(ConfigurationError, match=f"the environment variable for {expected}"):
        apply_to_file(image, "conf/standalone.conf", {"PULSAR_PREFIX_b": value})
    assert conf.read_text() == "b=1\nauthenticationEnabled=true\n"
    assert apply_environment("b=1\n", {"b": "a\\\\"}).text == "b=a\\\\\n"


def test_a_file_for_which_there_is_no_room_is_as_it_was_and_no_half_of_a_copy_counts(image: Image) -> None:
    conf = Path(image.home) / "conf" / "standalone.conf"
    before = conf.read_text() + "authenticationEnabled=true\n"
    conf.write_text(before)
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 1, kept[1]))
    try:
        with pytest.raises(ConfigurationError, match=r"standalone\.conf: File too large"):
            apply_to_file(image, "conf/standalone.conf", {"PULSAR_PREFIX_clusterName": "a" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
    assert conf.read_text() == before
    assert config_file(image, "conf/standalone.conf") == str(conf)
    assert not list((Path(image.home) / "data").glob("*"))


def test_a_copy_of_an_earlier_start_does_not_count() -> None:
    assert is_current("boot 7", "boot 7")
    assert not is_current("boot 7", "boot 8")
    assert is_current("boot 7", "")
    assert copy_places("/pulsar", "/pulsar/conf/a.conf", ("/run/geminga", "data/.conf")) == [
        "/run/geminga/pulsar-conf-a.conf",
        "/pulsar/data/.conf/pulsar-conf-a.conf",
    ]


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """A home of its own, with copies in its volume only, in a container that has always run."""
    write_files(str(tmp_path / "conf"))
    return Image(str(tmp_path), ("data",), "")


def test_a_writable_file_is_changed_in_place(image: Image) -> None:
    place, done = apply_to_file(image, "conf/standalone.conf", {"PULSAR_PREFIX_clusterName": "mine"})
    assert place == f"{image.home}/conf/standalone.conf" == config_file(image, "conf/standalone.conf")
    assert done == ("clusterName = mine",)
    assert load_config([place]).server.cluster_name == "mine"


def test_of_a_read_only_file_a_copy_on_the_volume_is_made_and_changed_further(image: Image) -> None:
    original = Path(image.home) / "conf" / "standalone.conf"
    before = original.read_text()
    original.unlink()
    place = Path(copy_places(image.home, str(original), image.copies)[0])
    place.parent.mkdir()
    place.write_text(before)
    place.with_name(f"{place.name}.start").write_text("of any start")
    assert config_file(image, "conf/standalone.conf") == str(place)
    assert apply_to_file(image, "conf/standalone.conf", {"clusterName": "first"})[0] == str(place)
    apply_to_file(image, "conf/standalone.conf", {"webServicePort": "1"})
    server = load_config([str(place)]).server
    assert (server.cluster_name, server.web_port) == ("first", 1)
    assert not original.exists()


def test_a_missing_file_and_a_place_that_nobody_can_write_are_told(image: Image) -> None:
    with pytest.raises(ConfigurationError, match=r"conf/none\.conf: No such file"):
        apply_to_file(image, "conf/none.conf", {})


def test_what_is_remembered_is_read_again(image: Image) -> None:
    assert remembered(image, "health") is None
    remember(image, "health", "http://127.0.0.1:8080/x")
    assert remembered(image, "health") == "http://127.0.0.1:8080/x"
    first, second = (image._replace(start=f"boot {number}") for number in (1, 2))
    remember(first, "health", "http://127.0.0.1:8080/y")
    assert remembered(second, "health") is None
    for file in (Path(image.home) / "data").iterdir():
        os.utime(file, (-100, -100))  # the clock was set forward since
    assert remembered(first, "health") == "http://127.0.0.1:8080/y"
    remember(second, "health", "")
    assert remembered(second, "health") == ""
    assert remembered(first, "health") is None


def test_a_start_of_a_container_is_the_same_whatever_its_clock_says() -> None:
    assert container_start() == container_start()
    assert container_start().split()[-1].isdecimal()


@pytest.mark.parametrize(
    ("named", "text", "expected"),
    [
        ("", None, "bin/pulsar-client : expected one of consume, produce"),
        ("", b"authPlugin=\\u12\n", r"client.conf, line 1: \u needs four hex digits"),
        ("", b"authPlugin=\xff\n", "client.conf is not UTF-8 text"),
        ("conf/mine.conf", None, "conf/mine.conf: No such file"),
    ],
)
def test_a_file_of_clients_that_is_named_or_there_and_can_not_be_read_is_told(
    image: Image,
    named: str,
    text: bytes | None,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    conf = Path(image.home) / "conf" / "client.conf"
    if text is None:
        conf.unlink()
    else:
        conf.write_bytes(text)
    monkeypatch.setenv("PULSAR_HOME", image.home)
    monkeypatch.setenv("PULSAR_COPY_DIR", "data")
    monkeypatch.setenv("PULSAR_CLIENT_CONF", named)
    with pytest.raises(SystemExit) as ended:
        main(["pulsar-client"])
    assert ended.value.code == 1
    assert expected in " ".join(capsys.readouterr().err.split())


def test_a_server_is_open_only_while_nothing_asks_who_clients_are() -> None:
    doors = open_doors("standalone", {})
    assert doors.settings == ("gemingaAllowOpen=true", "gemingaHttpAllowedHosts=*")
    assert len(doors.warnings) == 1
    assert "read, write and delete everything" in doors.warnings[0]
    assert open_doors("broker", {"authenticationEnabled": "true"}) == ((), ())
    assert open_doors("broker", {"gemingaAllowOpen": "false"}) == ((), ())
    assert open_doors("bookie", {"gemingaHttpAllowedHosts": "a"}).settings == ("gemingaAllowOpen=true",)


@pytest.mark.parametrize(
    ("role", "values", "expected"),
    [
        ("standalone", {}, "http://127.0.0.1:8080/admin/v2/brokers/ready"),
        ("broker", {"webServicePort": "8081"}, "http://127.0.0.1:8081/admin/v2/brokers/ready"),
        ("broker", {"webServicePort": ""}, ""),
        ("broker", {"authenticationEnabled": "true"}, "http://127.0.0.1:8080/status.html"),
        ("broker", {"bindAddress": "10.0.0.7"}, "http://10.0.0.7:8080/admin/v2/brokers/ready"),
        ("proxy", {"bindAddress": "::"}, "http://127.0.0.1:8080/health"),
        (
            "autorecovery",
            {"httpServerEnabled": "true", "httpServerHost": "fd00::1", "bindAddress": "10.0.0.7"},
            "http://[fd00::1]:8080/metrics",
        ),
        ("proxy", {"authenticationEnabled": "true"}, "http://127.0.0.1:8080/health"),
        (
            "bookie",
            {"httpServerEnabled": "true", "httpServerPort": "8000"},
            "http://127.0.0.1:8000/api/v1/bookie/is_ready",
        ),
        ("bookie", {}, ""),
    ],
)
def test_where_health_is_asked(role: str, values: dict[str, str], expected: str) -> None:
    assert health_url(role, values) == expected


def test_the_files_of_the_image_are_read_without_a_warning(tmp_path: Path) -> None:
    write_files(str(tmp_path))
    assert sorted(FILES) == sorted(path.name for path in tmp_path.iterdir())
    config = load_config([str(tmp_path / "standalone.conf")])
    assert config.warnings == ()
    assert config.server.bind_address == "0.0.0.0"
    assert {entry.key for entry in read_file(str(tmp_path / "client.conf"))} >= {"brokerServiceUrl", "webServiceUrl"}
    assert "#transactionCoordinatorEnabled=\n" in file_text("standalone.conf")
