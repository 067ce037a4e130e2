"""Connections of a real broker that asks who is there: refused, let in, renewed, and ended when a token ends."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import pytest

from geminga.broker.access.core.handshake import REFRESH
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import Access
from geminga.broker.authentication.config import AuthenticationConfig
from geminga.broker.authentication.opening import OpenedAuthentication
from geminga.model.secret import Secret
from geminga.runtime import Runtime, wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from support.house.signing import OTHER_SECRET, SECRET, certificate_of, in_text, token_of
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker
from support.worlds.rest_world import ask, rest_application

PACKAGE = "org.apache.pulsar.broker.authentication."
#: Seconds that a clock may be off.
SKEW_S = 5
#: Password ``hello:wörld`` by DES.
USERS = b"joe:ab7Wl3zw4JrNg\n"
LIFE_S = 1000


def config(**settings: object) -> AuthenticationConfig:
    usual: dict[str, object] = {
        "providers": (f"{PACKAGE}AuthenticationProviderToken", f"{PACKAGE}AuthenticationProviderBasic"),
        "token_secret_key": Secret(in_text(SECRET)),
        "basic_auth_conf": Secret(in_text(USERS)),
        "token_skew_s": SKEW_S,
        "proxy_roles": ("gate",),
        "verifies_original": True,
    }
    return AuthenticationConfig(**{**usual, **settings})


def run(scenario: Callable[[BrokerWorld], Awaitable[None]], **settings: object) -> None:
    """With a broker whose providers are of ``settings``."""

    async def opened(world: BrokerWorld) -> None:
        world.access = await access_of(world.runtime, config(**settings))
        await world.restart()
        await scenario(world)

    run_with_broker(opened, keep_alive_interval_s=100_000)


async def access_of(runtime: Runtime, settings: AuthenticationConfig) -> Access:
    async def inline(work: Callable[[], bool]) -> bool:
        await wait_ms(1)
        return work()

    return await OpenedAuthentication(runtime, settings, compute=inline).open()


def connect(data: bytes, method: str = "token", *, can_refresh: bool = True, **original: str) -> pb.BaseCommand:
    flags = pb.FeatureFlags(supports_auth_refresh=can_refresh)
    command = pb.CommandConnect(
        client_version="t",
        protocol_version=21,
        auth_method_name=method,
        auth_data=data,
        feature_flags=flags,
        **original,
    )
    return pb.BaseCommand(type=Type.CONNECT, connect=command)


def answer(data: bytes, method: str = "token") -> pb.BaseCommand:
    said = pb.CommandAuthResponse(response=pb.AuthData(auth_method_name=method, auth_data=data))
    return pb.BaseCommand(type=Type.AUTH_RESPONSE, authResponse=said)


def token(world: BrokerWorld, role: str = "jane", life_s: float = LIFE_S) -> bytes:
    return token_of(role, exp=world.runtime.clock.wall_ms() / 1000 + life_s)


async def pass_s(seconds: float) -> None:
    await wait_ms(seconds * 1000)


async def connected(world: BrokerWorld, data: bytes, method: str = "token", **fields: object) -> Client:
    client = Client(world.broker)
    client.send(connect(data, method, **fields))
    await client.expect(Type.CONNECTED)
    return client


def test_role_is_that_of_the_token_or_of_the_password() -> None:
    async def scenario(world: BrokerWorld) -> None:
        assert (await connected(world, token_of("jane"))).connection.principal == Principal("jane")
        assert (await connected(world, "joe:hello:wörld".encode(), "basic")).connection.principal == Principal("joe")

    run(scenario)


@pytest.mark.parametrize("has_certificate", [False, True])
def test_role_is_that_of_the_certificate_which_tls_verified(has_certificate: bool) -> None:
    """Whoever accepts the connection hands it to the handshake; what CONNECT brings says nothing of it."""

    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        if has_certificate:
            client.connection.handshake.certificate = certificate_of("jim")
        client.send(connect(b"CN=admin", "tls"))
        if has_certificate:
            await client.expect(Type.CONNECTED)
            assert client.connection.principal == Principal("jim")
        else:
            assert (await client.error()).message == "Failed to get TLS certificates from client"

    run(scenario, providers=(f"{PACKAGE}AuthenticationProviderTls",))


WRONG = [
    ("token", b""),
    ("token", token_of("jane", secret=OTHER_SECRET)),
    ("token", token_of("jane", exp=1.0)),
    ("token", token_of("jane", nbf=1e12)),
    ("basic", b"joe:wrong"),
    ("basic", b"jane:hello"),
    ("tls", b""),
    ("", b""),
    ("sasl", b"x"),
]


@pytest.mark.parametrize(("method", "data"), WRONG)
def test_who_is_refused_has_made_nothing(method: str, data: bytes) -> None:
    """A lookup and a producer behind CONNECT, as clients send them that do not wait."""

    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send(connect(data, method))
        lookup = pb.CommandLookupTopic(topic=TOPIC, request_id=1)
        producer = pb.CommandProducer(topic=TOPIC, producer_id=1, request_id=2)
        client.send(pb.BaseCommand(type=Type.LOOKUP, lookupTopic=lookup))
        client.send(pb.BaseCommand(type=Type.PRODUCER, producer=producer))
        error = await client.error()
        assert error.error == pb.AuthenticationError
        await pass_s(1)
        assert client.is_closed
        assert not client.received
        assert not world.broker.topics
        assert not world.broker.connections.open
        tree = await world.metadata.children("/managed-ledgers/public/default/persistent")
        assert not tree

    run(scenario)


def test_client_that_answers_stays_over_many_tokens_and_is_asked_once_for_each() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await connected(world, token(world))
        await client.create_producer()
        began_s = world.runtime.clock.monotonic()
        asked_s = []
        for number in range(5):
            await pass_s(LIFE_S - 100)
            assert challenges(client) == 0
            challenge = (await client.expect(Type.AUTH_CHALLENGE)).authChallenge.challenge
            assert (challenge.auth_method_name, challenge.auth_data) == ("token", REFRESH)
            asked_s.append(world.runtime.clock.monotonic() - began_s)
            await client.publish(number)
            client.send(answer(token(world)))
            assert challenges(client) == 0
        # A minute before the end of each.
        steps_s = [later - before for before, later in zip([0.0, *asked_s], asked_s, strict=False)]
        assert all(LIFE_S - 61 <= step_s <= LIFE_S - 59 for step_s in steps_s)
        assert not client.is_closed

    run(scenario)


def test_client_that_does_not_answer_is_closed_when_its_token_and_the_skew_are_over() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await connected(world, token(world))
        await pass_s(LIFE_S + SKEW_S - 1)
        assert not client.is_closed
        await pass_s(1.1)
        assert client.is_closed
        assert await last_error(client) == "no new credentials in time"

    run(scenario)


def test_client_without_the_flag_is_closed_when_its_token_is_over() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await connected(world, token(world), can_refresh=False)
        await pass_s(LIFE_S - 0.5)
        assert not client.is_closed
        await pass_s(0.6)
        assert client.is_closed
        assert await last_error(client) == "the credentials have expired"

    run(scenario)


@pytest.mark.parametrize(
    ("role", "secret", "told"),
    [
        ("joe", SECRET, "new credentials must be of the same role"),
        ("jane", OTHER_SECRET, "of another key"),
    ],
)
def test_wrong_answer_ends_the_connection_at_once(role: str, secret: bytes, told: str) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await connected(world, token(world))
        await pass_s(LIFE_S - 50)
        client.send(answer(token_of(role, secret=secret)))
        assert client.is_closed
        assert told in await last_error(client)

    run(scenario)


def test_client_that_answers_with_the_same_token_is_asked_a_few_times_and_closed_with_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        same = token(world)
        client = await connected(world, same)
        asked = 0
        for _ in range(LIFE_S + SKEW_S + 1):
            await pass_s(1)
            while client.received:
                command, _ = client.received.popleft()
                if command.type == Type.AUTH_CHALLENGE:
                    asked += 1
                    client.send(answer(same))
        assert client.is_closed
        assert 2 <= asked <= 8

    run(scenario)


def test_what_a_proxy_passes_on_is_renewed_through_it() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await connected(
            world,
            token_of("gate"),
            original_auth_method="token",
            original_auth_data=token(world, "jane", 100).decode(),
        )
        assert client.connection.principal == Principal("gate", "jane")
        await pass_s(60)
        assert (await client.expect(Type.AUTH_CHALLENGE)).authChallenge.challenge.auth_data == REFRESH
        client.send(answer(token(world, "jane")))
        await pass_s(200)
        assert not client.is_closed
        await pass_s(LIFE_S)
        assert client.is_closed

    run(scenario)


def test_a_proxy_that_passes_nothing_on_is_not_taken_at_its_word_where_it_must() -> None:
    """``authenticateOriginalAuthData``, as in Pulsar: whoever has the proxy's token would be whomever he names."""

    async def refused(world: BrokerWorld, **original: str) -> str:
        client = Client(world.broker)
        client.send(connect(token_of("gate"), **original))
        error = await client.error()
        assert error.error == pb.AuthenticationError
        await pass_s(1)
        assert client.is_closed
        return error.message

    async def scenario(world: BrokerWorld) -> None:
        told = await refused(world, original_principal="root")
        assert "authenticateOriginalAuthData" in told
        assert "forwardAuthorizationCredentials=true" in told
        await refused(world, original_principal="root", original_auth_method="token")
        await refused(world, original_principal="root", original_auth_method="token", original_auth_data="bad")
        jane = token_of("jane").decode()
        client = await connected(
            world, token_of("gate"), original_principal="root", original_auth_method="token", original_auth_data=jane
        )
        # Who it is, what was passed on says.
        assert client.connection.principal == Principal("gate", "jane")

    run(scenario)


def test_who_brought_nothing_to_a_proxy_is_anonymous_where_that_may_be() -> None:
    async def scenario(world: BrokerWorld) -> None:
        for original in ({}, {"original_auth_method": "none", "original_auth_data": ""}):
            client = await connected(world, token_of("gate"), original_principal="root", **original)
            assert client.connection.principal == Principal("gate", "guest")

    run(scenario, anonymous_role="guest")


def test_a_proxy_is_taken_at_its_word_where_nothing_else_is_asked() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = await connected(world, token_of("gate"), original_principal="joe")
        assert client.connection.principal == Principal("gate", "joe")

    run(scenario, verifies_original=False)


def test_new_key_holds_for_open_connections_at_their_next_token() -> None:
    """Rotation: both keys for a while, then the new one alone; who renewed by then is never cut."""

    async def scenario(world: BrokerWorld) -> None:
        await world.runtime.disk.make_dirs("conf")
        await world.runtime.disk.write_file("conf/one.key", SECRET)
        await world.runtime.disk.write_file("conf/two.key", SECRET)
        settings = config(
            token_secret_key=Secret("file:conf/one.key"), token_second_secret_key=Secret("file:conf/two.key")
        )
        opened = OpenedAuthentication(world.runtime, settings)
        world.access = await opened.open()
        await world.restart()
        client = await connected(world, token(world))
        await world.runtime.disk.write_file("conf/two.key", OTHER_SECRET)
        await opened.refresh()
        await pass_s(LIFE_S - 50)
        assert (await client.expect(Type.AUTH_CHALLENGE)).type == Type.AUTH_CHALLENGE
        end_s = world.runtime.clock.wall_ms() / 1000 + 10_000
        client.send(answer(token_of("jane", secret=OTHER_SECRET, exp=end_s)))
        await world.runtime.disk.write_file("conf/one.key", OTHER_SECRET)
        await opened.refresh()
        await pass_s(LIFE_S)
        assert not client.is_closed
        late = Client(world.broker)
        late.send(connect(token_of("jane")))
        assert "of another key" in (await late.error()).message

    run(scenario)


def challenges(client: Client) -> int:
    return sum(command.type == Type.AUTH_CHALLENGE for command, _ in client.received)


async def last_error(client: Client) -> str:
    while client.received[0][0].type != Type.ERROR:
        client.received.popleft()
    error = await client.error()
    assert error.error == pb.AuthenticationError
    return error.message


# ---- HTTP


def test_requests_are_known_by_their_headers_and_refusals_make_nothing() -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        path, bearer = "/admin/v2/tenants/acme", "Bearer " + token_of("jane").decode()
        body = b'{"allowedClusters": ["standalone"]}'
        for headers in (
            {},
            {"authorization": "Bearer " + token_of("jane", secret=OTHER_SECRET).decode()},
            {"authorization": bearer, "x-pulsar-auth-method-name": "basic"},
            {"authorization": bearer, "x-pulsar-auth-method-name": "sasl"},
            {"authorization": bearer, "x-original-principal": "joe"},
            {"authorization": "Bearer " + token_of("gate").decode()},
            {"authorization": "Bearer " + token_of("gate").decode(), "x-original-principal": "gate"},
        ):
            assert (await ask(application, "PUT", path, body, headers=headers)).status == 401
        assert not await world.metadata.exists("/admin/policies/acme")
        for headers in (
            {"authorization": bearer},
            {"authorization": bearer, "x-pulsar-auth-method-name": "token"},
            {"authorization": bearer, "x-original-principal": "jane"},
            {"authorization": "Bearer " + token_of("gate").decode(), "x-original-principal": "joe"},
            {"authorization": "Basic " + base64.b64encode("joe:hello:wörld".encode()).decode()},
        ):
            assert (await ask(application, "GET", "/admin/v2/tenants", headers=headers)).status == 200
        assert (await ask(application, "PUT", path, body, headers={"authorization": bearer})).status == 204

    run(scenario)


@pytest.mark.parametrize("is_asked", [False, True])
def test_metrics_are_told_to_everybody_unless_the_key_says_otherwise(is_asked: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        application = rest_application(world.broker)
        assert (await ask(application, "GET", "/metrics")).status == (401 if is_asked else 200)
        good = {"authorization": "Bearer " + token_of("jane").decode()}
        await ask(application, "GET", "/admin/v2/tenants", headers=good)
        page = (await ask(application, "GET", "/metrics", headers=good)).body.decode()
        labels = 'cluster="standalone",provider_name="AuthenticationProviderToken",auth_method="token"'
        assert f"pulsar_authentication_success_total{{{labels}}} {1 + is_asked}" in page

    run(scenario, authenticates_metrics=is_asked)
