"""Each request that changes something has its line, refused ones too; who looks has none, but who looks at messages."""

from __future__ import annotations

import json

import pytest
from starlette.types import ASGIApp

from geminga.broker.access.audit import STRANGERS_MS, TEXT_MAX, Auditor, Entry
from geminga.broker.access.core.actions import Anyone, TopicOperation
from geminga.broker.rest.families import all_rows
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.worlds.broker_world import BrokerWorld, run_with_broker
from support.worlds.rest_world import Answer, ask, rest_application
from support.worlds.rights_world import ACCESS, NAMESPACE, TOPIC
from unit.broker.rest.test_doors import body_of, method_of, path_of


class Lines:
    """In memory."""

    def __init__(self) -> None:
        self.entries: list[dict[str, object]] = []

    def add(self, line: str) -> None:
        assert "\n" not in line
        self.entries.append(json.loads(line))


def audited(world: BrokerWorld, lines: Lines) -> ASGIApp:
    return rest_application(world.broker, audit=Auditor(lines, lambda: 1_795_000_000_123))


SETTINGS = {"authorization_enabled": True, "super_user_roles": ("root", "proxy")}


def test_line_says_who_did_what_from_where_and_with_what_outcome() -> None:
    lines = Lines()

    async def scenario(world: BrokerWorld) -> None:
        await ask(audited(world, lines), "POST", f"{NAMESPACE}/messageTTL?x=1", b"60", role="root")
        assert lines.entries == [
            {
                "time": "2026-11-18T11:06:40.123Z",
                "role": "root",
                "original": "",
                "peer": "10.0.0.7:51042",
                "method": "POST",
                "path": f"{NAMESPACE}/messageTTL?x=1",
                "action": "write ttl",
                "status": 204,
                "reason": "",
            }
        ]

    run_with_broker(scenario, access=ACCESS, **SETTINGS)


@pytest.mark.parametrize(
    ("method", "path", "who", "status", "reason"),
    [
        ("POST", f"{NAMESPACE}/messageTTL", {"role": "jane"}, 403, "Unauthorized to write ttl for jane"),
        ("PUT", "/admin/v2/tenants/acme", {"role": "jane"}, 401, "Unauthorized to create tenant for jane"),
        ("PUT", "/admin/v2/tenants/acme", {}, 401, "nothing was said"),
        ("DELETE", "/admin/v2/tenants/nobody", {"role": "root"}, 404, "Tenant doesn't exist"),
        ("PUT", "/admin/v2/tenants/a$", {"role": "root"}, 412, "Tenant name is not valid"),
        ("POST", "/admin/v2/namespaces/grantPermissionsOnTopics", {"role": "jane"}, 400, "the body must be"),
        ("POST", f"{NAMESPACE}/permissions/jim", {"role": "root"}, 400, "the body must be"),
    ],
)
def test_refused_and_failed_ones_have_their_line(method: str, path: str, who: dict[str, str], status, reason) -> None:
    lines = Lines()

    async def scenario(world: BrokerWorld) -> None:
        answer = await ask(audited(world, lines), method, path, b'{"a":1}', **who)
        assert answer.status == status
        (entry,) = lines.entries
        assert (entry["role"], entry["status"]) == (who.get("role", ""), status)
        assert reason in str(entry["reason"])

    run_with_broker(scenario, access=ACCESS, **SETTINGS)


def test_strangers_do_not_push_out_what_others_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files have a size, and whoever reaches the port may ask as often as it likes."""
    monkeypatch.setattr("geminga.broker.access.audit.STRANGERS_MAX", 20)
    lines, now_ms = Lines(), 1_795_000_000_000

    async def scenario(world: BrokerWorld) -> None:
        nonlocal now_ms
        application = rest_application(world.broker, audit=Auditor(lines, lambda: now_ms))
        # After the first round room for three has come, after the second the clock is set back.
        for passed_ms in (4 * STRANGERS_MS - 1, -10 * STRANGERS_MS, STRANGERS_MS):
            for _ in range(25):
                assert (await ask(application, "PUT", "/admin/v2/tenants/acme", b"{}")).status == 401
            assert (await ask(application, "PUT", "/admin/v2/tenants/acme", b"{}", role="jane")).status == 401
            now_ms += passed_ms
        assert [entry["role"] for entry in lines.entries] == [*[""] * 20, "jane", *[""] * 3, "jane", "jane"]
        assert [entry.get("leftOut") for entry in lines.entries if "leftOut" in entry] == [5]
        await ask(application, "PUT", "/admin/v2/tenants/acme", b"{}")
        assert lines.entries[-1]["leftOut"] == 22 + 25

    run_with_broker(scenario, access=ACCESS, **SETTINGS)


@pytest.mark.parametrize("key", ["brokerClientAuthenticationParameters", "brokerClient%41uthenticationParameters"])
@pytest.mark.parametrize("role", ["jane", "root"])
def test_value_of_a_setting_that_is_a_secret_is_not_kept(role: str, key: str) -> None:
    lines = Lines()

    async def scenario(world: BrokerWorld) -> None:
        path = f"/admin/v2/brokers/configuration/{key}/token:abc"
        await ask(audited(world, lines), "POST", path, role=role)
        await ask(audited(world, lines), "POST", "/admin/v2/brokers/configuration/loadManager/plain", role=role)
        secret, plain = lines.entries
        assert secret["path"] == f"/admin/v2/brokers/configuration/{key}/......"
        assert "abc" not in str(secret)
        assert str(plain["path"]).endswith("/loadManager/plain")

    run_with_broker(scenario, access=ACCESS, **SETTINGS)


@pytest.mark.parametrize("role", ["", "jane", "root"])
def test_every_row_that_changes_has_one_line_and_who_looks_has_none(role: str) -> None:
    """Of nobody, of who is refused, and of who may do everything: with the status that was answered."""
    lines = Lines()
    rows = [route for route in all_rows() if not isinstance(route.needs, Anyone)]
    assert len(rows) > 200
    told = 0

    async def scenario(world: BrokerWorld) -> None:
        nonlocal told
        application = audited(world, lines)
        for route in rows:
            lines.entries.clear()
            answer = await ask(application, method_of(route), path_of(route), body_of(route), role=role)
            is_change = method_of(route) != "GET"
            # Messages have no line either that come over the binary protocol.
            is_message = route.path.startswith("/topics/")
            is_kept = (is_change and not is_message) or route.needs is TopicOperation.PEEK_MESSAGES
            expected = [(method_of(route), role, answer.status)] if is_kept else []
            if is_change:
                assert (answer.status in (401, 403)) == (role != "root"), (route.path, answer)
            assert [(each["method"], each["role"], each["status"]) for each in lines.entries] == expected, route.path
            told += len(expected)

    run_with_broker(scenario, access=ACCESS, **SETTINGS)
    assert told > 150


def test_body_is_not_kept_and_texts_have_a_bound() -> None:
    entry = Entry("r", "", "peer", "PUT", "/" + "p" * 5000, "a", 500, "r" * 5000)
    kept = json.loads(entry.line(0))
    assert (len(kept["path"]), len(kept["reason"])) == (TEXT_MAX, TEXT_MAX)
    lines = Lines()

    async def scenario(world: BrokerWorld) -> None:
        await ask(audited(world, lines), "PUT", f"{NAMESPACE}/properties", b'{"key": "hunter2"}', role="root")
        assert len(lines.entries) == 1
        assert "hunter2" not in json.dumps(lines.entries)

    run_with_broker(scenario, access=ACCESS, **SETTINGS)


async def metrics(world: BrokerWorld) -> dict[str, float]:
    answer: Answer = await ask(rest_application(world.broker), "GET", "/metrics")
    found = [line.rpartition(" ") for line in answer.body.decode().splitlines() if line.startswith("geminga_auth")]
    return {name: float(value) for name, _, value in found}


def test_refusals_are_counted_by_kind() -> None:
    async def scenario(world: BrokerWorld) -> None:
        before = await metrics(world)
        assert set(before.values()) == {0.0}
        jane = await world.client("jane")
        jane.request_producer(TOPIC)
        assert (await jane.error()).error == pb.AuthorizationError
        application = rest_application(world.broker)
        for path in (f"{NAMESPACE}/messageTTL", f"{NAMESPACE}/retention", "/admin/v2/tenants", "/admin/v2/brokers"):
            await ask(application, "GET", path, role="jane")
        await ask(application, "GET", f"{NAMESPACE}/messageTTL", role="root")
        after = await metrics(world)
        assert {name.partition("kind=")[2].strip('"}'): value for name, value in after.items() if value} == {
            "topic": 1.0,
            "policy": 2.0,
            "tenant": 1.0,
            "broker": 1.0,
        }

    run_with_broker(scenario, access=ACCESS, **SETTINGS)
