"""Which provider is asked, what becomes of its answer, and what is counted and told of it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable

import pytest

from geminga.broker.access.core.handshake import Credentials, Known, Rejected, Verdict
from geminga.broker.authentication.authentication import (
    LOOK_S_MAX,
    OWN_ROLE_S,
    UNKNOWN_S,
    Authentication,
    OwnRole,
)
from geminga.broker.authentication.certificates import CertificateProvider
from geminga.broker.authentication.outcomes import LINES_MAX, SOURCES_MAX, Outcomes
from geminga.broker.authentication.passwords import CHECKS_MAX, CHECKS_OF_ONE_MAX, PasswordProvider
from geminga.broker.authentication.ports import Provider
from geminga.broker.authentication.tokens import TokenProvider
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import next_turn, wait_ms
from geminga.security.htpasswd import REFUSAL, parse_password_file
from geminga.security.keys import secret_key
from geminga.security.token_rules import TokenRules
from geminga.sim import SimNode, SimWorld, run
from support.house.signing import OTHER_SECRET, SECRET, certificate_of, token_of

#: Password ``hello:wörld`` by DES.
USERS = parse_password_file(b"jane:ab7Wl3zw4JrNg\n")
PASSWORD = "hello:wörld".encode()


#: What is told of tokens before one was taken that ends.
LEFT_NOTHING = {
    ("expired_token_total",): 0,
    **{("expiring_token_minutes_bucket", bound): 0 for bound in ("5.0", "10.0", "60.0", "240.0", "+Inf")},
    ("expiring_token_minutes_sum",): 0,
    ("expiring_token_minutes_count",): 0,
}


class HandClock:
    """Is moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int((self.now_s + 1_000_000) * 1000)


async def at_once(work: Callable[[], bool]) -> bool:
    return work()


class World:
    def __init__(self, *, anonymous_role: str = "", is_strict: bool = False, second_secret: bool = False) -> None:
        self.clock = HandClock()
        self.passwords = PasswordProvider(USERS, at_once)
        rules = TokenRules(keys=[secret_key(SECRET)], audience_claim="aud", audiences=frozenset({"east"}))
        providers: list[Provider] = [TokenProvider(rules, self.clock), self.passwords, CertificateProvider()]
        if second_secret:
            providers.append(TokenProvider(TokenRules(keys=[secret_key(OTHER_SECRET)]), self.clock))
        self.outcomes = Outcomes(self.clock)
        self.authentication = Authentication(
            providers, self.outcomes, anonymous_role=anonymous_role, is_strict=is_strict
        )

    def asked(
        self,
        method: str,
        data: bytes = b"",
        *,
        in_http: bool = False,
        certificate: bytes | None = None,
        source: str = "/a",
    ) -> Verdict:
        answer = self.authentication.begin(source, in_http=in_http).answer(Credentials(method, data, certificate))
        return answer if isinstance(answer, Known | Rejected) else asyncio.run(_awaited(answer))

    @property
    def counts(self) -> dict[tuple[str, ...], float]:
        return {
            (name.removeprefix("pulsar_"), *(value for _, value in labels)): count
            for labels, values in self.authentication.metrics()
            for name, count in values.items()
        }


async def _awaited(answer) -> Verdict:
    return await answer


def basic(text: bytes) -> bytes:
    return b"Basic " + base64.b64encode(text)


def good_token(role: str = "jane") -> bytes:
    return token_of(role, aud="east")


def test_how_long_tokens_last_is_counted_in_pulsars_buckets() -> None:
    world = World()
    now_s = world.clock.wall_ms() / 1000
    for minutes in (1, 5, 7, 200, 100_000):
        assert isinstance(world.asked("token", token_of("jane", aud="east", exp=now_s + 60 * minutes)), Known)
    world.asked("token", token_of("jane", aud="east", exp=now_s - 1))
    told = {key: count for key, count in world.counts.items() if key in LEFT_NOTHING}
    name = "expiring_token_minutes"
    assert told == {
        ("expired_token_total",): 1,
        (f"{name}_bucket", "5.0"): 2,
        (f"{name}_bucket", "10.0"): 3,
        (f"{name}_bucket", "60.0"): 3,
        (f"{name}_bucket", "240.0"): 4,
        (f"{name}_bucket", "+Inf"): 5,
        (f"{name}_sum",): pytest.approx(100_213),
        (f"{name}_count",): 5,
    }


def test_named_method_is_the_one_that_is_asked() -> None:
    world = World(anonymous_role="nobody")
    assert world.asked("token", good_token()) == Known("jane")
    assert world.asked("basic", b"jane:" + PASSWORD) == Known("jane")
    assert world.asked("tls", certificate=certificate_of("joe")) == Known("joe")
    # A certificate proves nothing to who names another method, and nobody falls back to being anonymous.
    assert isinstance(world.asked("token", b"x.y.z", certificate=certificate_of("joe")), Rejected)
    assert isinstance(world.asked("tls", good_token()), Rejected)
    assert isinstance(world.asked("basic", b"jane:no"), Rejected)
    assert world.counts == {
        ("authentication_success_total", "AuthenticationProviderToken", "token"): 1,
        ("authentication_success_total", "AuthenticationProviderBasic", "basic"): 1,
        ("authentication_success_total", "AuthenticationProviderTls", "tls"): 1,
        ("authentication_failures_total", "AuthenticationProviderToken", "token", "INVALID_TOKEN"): 1,
        ("authentication_failures_total", "AuthenticationProviderTls", "tls", "INVALID_CERTS"): 1,
        ("authentication_failures_total", "AuthenticationProviderBasic", "basic", "INVALID_TOKEN"): 1,
        **LEFT_NOTHING,
    }


@pytest.mark.parametrize("method", ["", "none", "sasl"])
def test_method_that_is_not_there_is_anonymous_where_that_is_a_role(method: str) -> None:
    assert World(anonymous_role="nobody").asked(method, good_token()) == Known("nobody")
    refused = World().asked(method, good_token())
    assert refused == Rejected("No anonymous role, and no authentication provider configured")


@pytest.mark.parametrize(
    ("method", "data", "role"),
    [
        ("token", b"Bearer " + good_token(), "jane"),
        ("", b"Bearer " + good_token(), "jane"),
        ("basic", basic(b"jane:" + PASSWORD), "jane"),
        ("", basic(b"jane:" + PASSWORD), "jane"),
        ("", b"bAsIc " + base64.b64encode(b"jane:" + PASSWORD), "jane"),
        ("token", good_token(), None),
        ("token", basic(b"jane:" + PASSWORD), None),
        ("basic", b"Bearer " + good_token(), None),
        ("basic", b"Basic", None),
        ("basic", b"Basic !!!", None),
        ("basic", basic(b"jane"), None),
        ("basic", basic(b"\xff:a"), None),
        ("sasl", b"", None),
        ("", b"", None),
        ("", b"Bearer wrong", None),
        ("", b"Digest x", None),
    ],
)
def test_http_brings_it_in_a_header(method: str, data: bytes, role: str | None) -> None:
    found = World().asked(method, data, in_http=True)
    assert found == Known(role) if role is not None else isinstance(found, Rejected)
    # As in Pulsar: who names no method, or one that fails, is anonymous; who names one stands by it.
    otherwise = World(anonymous_role="nobody").asked(method, data, in_http=True)
    if role is None and method == "":
        assert otherwise == Known("nobody")
    else:
        assert otherwise == found


def test_certificate_is_enough_in_http() -> None:
    shown = certificate_of("joe")
    assert World().asked("", in_http=True, certificate=shown) == Known("joe")
    # The order is that of the providers: a token says more.
    assert World().asked("", b"Bearer " + good_token(), in_http=True, certificate=shown) == Known("jane")
    assert World().asked("", b"Bearer wrong", in_http=True, certificate=shown) == Known("joe")
    assert World().asked("tls", in_http=True, certificate=certificate_of("")) == Rejected(
        "Client unable to authenticate with TLS certificate: its subject has no common name (CN)"
    )
    assert isinstance(World().asked("tls", in_http=True, certificate=b"none"), Rejected)


def test_strict_means_that_http_names_its_method() -> None:
    world = World(anonymous_role="nobody", is_strict=True)
    assert isinstance(world.asked("", b"Bearer " + good_token(), in_http=True), Rejected)
    assert isinstance(world.asked("", b"", in_http=True), Rejected)
    assert world.asked("token", b"Bearer " + good_token(), in_http=True) == Known("jane")


def test_several_providers_of_one_method_are_asked_in_turn() -> None:
    world = World(second_secret=True)
    assert world.asked("token", token_of("joe", secret=OTHER_SECRET)) == Known("joe")
    refused = world.asked("token", token_of("joe", secret=bytes(32)))
    assert isinstance(refused, Rejected)
    name = "AuthenticationProviderToken"
    assert world.counts[("authentication_failures_total", name, "token", "INVALID_TOKEN")] == 2


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"", "No token credentials passed"),
        (b"\xff", "it is not ASCII"),
        (b"s3cr3t.w0rd", "2 parts"),
        (token_of("jane", aud="east", exp=1000.0), "the token expired on 1970-01-01T00:16:40Z"),
        (token_of("jane", aud="west"), "meant for another audience"),
        (token_of("jane", aud="east", secret=OTHER_SECRET), "of another key"),
        (token_of("", aud="east"), "names no role"),
    ],
)
def test_token_is_refused_with_the_reason_and_without_the_token(
    token: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    refused = world.asked("token", token)
    assert isinstance(refused, Rejected)
    assert told in refused.reason
    assert told in caplog.text
    assert not token or token.decode("latin-1") not in caplog.text + refused.reason
    assert world.counts[("expired_token_total",)] == ("expired" in told)


# ---- passwords


def test_wrong_password_and_unknown_user_are_told_the_same() -> None:
    world = World()
    assert world.asked("basic", b"jane:wrong") == world.asked("basic", b"joe:" + PASSWORD)


def test_password_that_was_right_is_known_again_until_the_file_changes() -> None:
    world = World()
    computed = 0

    async def counted(work: Callable[[], bool]) -> bool:
        nonlocal computed
        computed += 1
        return work()

    world.passwords._compute = counted
    for _ in range(3):
        assert world.asked("basic", b"jane:" + PASSWORD) == Known("jane")
    assert computed == 1
    assert isinstance(world.asked("basic", b"jane:wrong"), Rejected)
    assert computed == 2
    # Now of the password ``other``.
    world.passwords.users = parse_password_file(b"jane:{SHA}0JQeaNqPOBUf+Gph/Fn3xc+fyqI=\n")
    assert isinstance(world.asked("basic", b"jane:" + PASSWORD), Rejected)
    assert world.asked("basic", b"jane:other") == Known("jane")


def test_file_that_changes_while_a_password_is_computed_does_not_keep_it() -> None:
    world = World()

    async def changed_meanwhile(work: Callable[[], bool]) -> bool:
        is_right = work()
        world.passwords.users = parse_password_file(b"joe:ab7Wl3zw4JrNg\n")
        return is_right

    world.passwords._compute = changed_meanwhile
    assert world.asked("basic", b"jane:" + PASSWORD) == Known("jane")
    world.passwords._compute = at_once
    assert isinstance(world.asked("basic", b"jane:" + PASSWORD), Rejected)


def test_guesses_of_one_address_leave_room_for_others_and_all_have_a_bound() -> None:
    world = World()

    async def scenario() -> None:
        gate = asyncio.Event()

        async def held(work: Callable[[], bool]) -> bool:
            await gate.wait()
            return work()

        world.passwords._compute = held
        begin = world.authentication.begin

        async def told(source: str) -> str:
            answer = begin(source).answer(Credentials("basic", b"jane:wrong"))
            verdict = answer if isinstance(answer, Known | Rejected) else await answer
            assert isinstance(verdict, Rejected)
            return verdict.reason

        async def refused_at_once(sources: list[str]) -> tuple[int, list[asyncio.Task[str]]]:
            tasks = [asyncio.ensure_future(told(source)) for source in sources]
            await asyncio.sleep(0)  # noqa: TID251  # a turn of the loop, not time
            waiting = [task for task in tasks if not task.done()]
            assert all("too many" in task.result() for task in tasks if task.done())
            return len(tasks) - len(waiting), waiting

        refused, waiting = await refused_at_once(["/attacker"] * 100)
        assert refused == 100 - CHECKS_OF_ONE_MAX
        refused, others = await refused_at_once([f"/{number % 30}" for number in range(300)])
        assert refused == 300 + CHECKS_OF_ONE_MAX - CHECKS_MAX
        gate.set()
        assert {*await asyncio.gather(*waiting, *others)} == {REFUSAL}
        gate.clear()
        # All of it is over: there is room again.
        refused, waiting = await refused_at_once(["/attacker"] * 100)
        assert refused == 100 - CHECKS_OF_ONE_MAX
        gate.set()
        await asyncio.gather(*waiting)

    asyncio.run(scenario())


# ---- what the log says


def test_log_has_a_line_a_second_of_each_address(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for _ in range(5):
        world.asked("token", b"x", source="/a")
    world.asked("token", b"x", source="/b")
    assert len(caplog.records) == 2
    world.clock.now_s += 1.0
    world.asked("token", b"x", source="/a")
    assert len(caplog.records) == 3
    text = caplog.records[-1].getMessage()
    assert text.startswith(
        "authentication of /a by token failed: Failed to authentication token: the token has 1 parts"
    )
    assert "more failures" in caplog.records[1].getMessage()


def test_log_of_many_addresses_has_a_bound_too_and_so_has_what_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for second in range(SOURCES_MAX // LINES_MAX + 2):
        for number in range(LINES_MAX + 5):
            world.asked("token", b"x", source=f"/{second}.{number}")
        world.clock.now_s += 1.0
    assert len(caplog.records) == (SOURCES_MAX // LINES_MAX + 2) * LINES_MAX
    assert len(world.outcomes._written_s) == SOURCES_MAX


def test_names_of_methods_that_strangers_make_up_are_no_labels(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    for number in range(50):
        world.asked(f"m{number}\n" + "x" * 1000, in_http=number % 2 == 0)
    assert [key for key in world.counts if key[0] == "authentication_failures_total"] == [
        ("authentication_failures_total", "none", "none", "UNSUPPORTED_METHOD")
    ]
    assert all("\n" not in record.getMessage() and len(record.getMessage()) < 400 for record in caplog.records)


def test_a_broker_is_who_its_own_credentials_say_for_a_minute() -> None:
    """Asked by whomever: one look at a time, and none while the last one holds."""
    world, looks = World(), list[Credentials | None]()
    shown: list[Credentials | None] = [
        Credentials("token", token_of("broker", aud="east")),
        Credentials("basic", b"jane:" + PASSWORD),
        Credentials("tls", certificate=certificate_of("by-certificate")),
        Credentials("token", token_of("broker", secret=OTHER_SECRET)),
        None,
    ]

    async def credentials() -> Credentials | None:
        await next_turn()
        looks.append(shown[len(looks)])
        return looks[-1]

    async def scenario() -> None:
        own = OwnRole(world.authentication, credentials, world.clock.monotonic)
        found = []
        for number in range(len(shown)):
            roles = set(await asyncio.gather(*(own() for _ in range(3))))
            world.clock.now_s += OWN_ROLE_S - 1
            assert {await own()} == roles
            assert len(looks) == number + 1
            world.clock.now_s += 1
            found += roles
        assert found == ["broker", "jane", "by-certificate", "", ""]

    asyncio.run(scenario())


def test_own_credentials_that_can_not_be_had_hold_up_nobody_and_tell_no_client_why() -> None:
    """An issuer that hangs, or a file that is gone: rights of all others are looked at behind that."""
    looks = 0

    async def scenario(world: SimWorld) -> None:
        async def on_node(node: SimNode) -> None:
            monotonic = node.runtime.clock.monotonic

            async def hangs() -> Credentials | None:
                nonlocal looks
                looks += 1
                await asyncio.Event().wait()
                raise AssertionError

            async def fails() -> Credentials | None:
                nonlocal looks
                looks += 1
                raise ConfigurationError("/etc/secret.key: no such file")

            for credentials in (hangs, fails):
                own, looks_before, began_s = OwnRole(World().authentication, credentials, monotonic), looks, monotonic()
                for _ in range(100):
                    with pytest.raises(UnavailableError) as told:
                        await own()
                    assert "secret.key" not in str(told.value)
                assert looks == looks_before + 1
                assert monotonic() - began_s <= LOOK_S_MAX
                await wait_ms(int(UNKNOWN_S * 1000))
                with pytest.raises(UnavailableError):
                    await own()
                assert looks == looks_before + 2

        await world.node("broker").run(on_node)

    run(scenario)
