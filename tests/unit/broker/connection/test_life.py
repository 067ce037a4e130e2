"""Handshakes of real connections: challenges, refusals, new credentials, and what strangers can not do."""

from __future__ import annotations

import pytest

from geminga.broker.access.core.actions import TopicOperation
from geminga.broker.access.core.handshake import REFRESH
from geminga.broker.access.core.principal import Principal
from geminga.broker.access.ports import Access
from geminga.broker.connection.back_pressure import HANDSHAKE_BYTES_MAX
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import encode_command
from support.house.deciding import Denying, Secrets
from support.worlds.broker_world import TOPIC, BrokerWorld, Client, Type, run_with_broker
from support.worlds.policy_levels import seconds

WORDS = {b"open": "jane", b"gate": "proxy", b"sesame": "joe"}


def access_of(secrets: Secrets, denying: Denying | None = None) -> Access:
    return Access(
        authenticator=secrets,
        authorizer=denying or Denying(),
        proxy_roles=frozenset({"proxy"}),
        verifies_original=True,
    )


def connect_command(word: bytes = b"open", *, can_refresh: bool = True, **fields: object) -> pb.BaseCommand:
    flags = pb.FeatureFlags(supports_auth_refresh=can_refresh)
    connect = pb.CommandConnect(
        client_version="t", protocol_version=21, auth_method_name="word", auth_data=word, feature_flags=flags, **fields
    )
    return pb.BaseCommand(type=Type.CONNECT, connect=connect)


def response(word: bytes, method: str = "word") -> pb.BaseCommand:
    data = pb.AuthData(auth_method_name=method, auth_data=word)
    return pb.BaseCommand(type=Type.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse(response=data))


@pytest.mark.parametrize("is_slow", [False, True])
def test_challenge_comes_before_connected_and_decisions_are_about_who_answered(is_slow: bool) -> None:
    denying = Denying((TopicOperation.PRODUCE,))
    secrets = Secrets(WORDS, challenges=True, is_slow=is_slow)

    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send(connect_command())
        challenge = (await client.expect(Type.AUTH_CHALLENGE)).authChallenge.challenge
        assert (challenge.auth_method_name, challenge.auth_data) == ("word", b"which word?")
        assert not client.connection.is_connected
        client.send(response(b"sesame"))
        await client.expect(Type.CONNECTED)
        client.request_producer()
        assert (await client.error()).error == pb.AuthorizationError
        assert denying.asked[-1][0] == Principal("joe")
        assert client.connection.principal == Principal("joe")
        assert secrets.begun == 1

    run_with_broker(scenario, access=access_of(secrets, denying))


@pytest.mark.parametrize("is_slow", [False, True])
def test_wrong_word_is_answered_with_the_error_for_it_and_closed(is_slow: bool) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send(connect_command(b"wrong"))
        error = await client.error()
        assert (error.error, error.message) == (pb.AuthenticationError, "a wrong word")
        assert client.is_closed
        await seconds(1)
        assert not world.broker.connections.open

    run_with_broker(scenario, access=access_of(Secrets(WORDS, is_slow=is_slow)))


def test_commands_behind_connect_wait_until_it_is_known_who_sends_them() -> None:
    """All in one read, as clients may send them that do not wait for CONNECTED."""
    denying = Denying()

    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        lookup = pb.CommandLookupTopic(topic=TOPIC, request_id=1)
        asked = pb.BaseCommand(type=Type.LOOKUP, lookupTopic=lookup)
        client.send_bytes(encode_command(connect_command()) + encode_command(asked))
        assert not denying.asked
        await client.expect(Type.CONNECTED)
        await client.expect(Type.LOOKUP_RESPONSE)
        assert [who for who, _, _ in denying.asked] == [Principal("jane")]

    run_with_broker(scenario, access=access_of(Secrets(WORDS, is_slow=True), denying))


def test_commands_behind_connect_wait_while_one_question_leads_to_another() -> None:
    """The proxy's own word is verified, then that of whom it asks for: the end of the first was taken for the end."""
    denying = Denying()

    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        hello = connect_command(b"gate", original_auth_data="sesame", original_auth_method="word")
        asked = pb.BaseCommand(type=Type.LOOKUP, lookupTopic=pb.CommandLookupTopic(topic=TOPIC, request_id=1))
        client.send_bytes(encode_command(hello) + encode_command(asked))
        await client.expect(Type.CONNECTED)
        await client.expect(Type.LOOKUP_RESPONSE)
        assert [who for who, _, _ in denying.asked] == [Principal("proxy", "joe")]

    run_with_broker(scenario, access=access_of(Secrets(WORDS, is_slow=True), denying))


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ([response(b"open")], "AUTH_RESPONSE before CONNECT"),
        ([connect_command(), connect_command()], "a second CONNECT"),
        ([connect_command(), pb.BaseCommand(type=Type.PING, ping=pb.CommandPing())], "PING before CONNECT"),
        ([connect_command(), response(b"open", "other")], "the answer is of the method other, not word"),
    ],
)
def test_command_out_of_order_ends_the_connection(
    commands: list[pb.BaseCommand], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        for command in commands:
            client.send(command)
        assert client.is_closed
        assert reason in caplog.text
        assert not client.connection.is_connected

    run_with_broker(scenario, access=access_of(Secrets(WORDS, challenges=True)))


def test_who_is_challenged_and_says_nothing_has_no_longer_than_others() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send(connect_command())
        await client.expect(Type.AUTH_CHALLENGE)
        await seconds(2.9)
        assert not client.is_closed
        await seconds(0.2)
        assert client.is_closed

    run_with_broker(scenario, access=access_of(Secrets(WORDS, challenges=True)), handshake_timeout_s=3)


def test_who_is_challenged_can_not_make_the_broker_hold_more_than_a_handshake() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send(connect_command())
        await client.expect(Type.AUTH_CHALLENGE)
        client.send_bytes((2 * HANDSHAKE_BYTES_MAX).to_bytes(4, "big") + b"\0" * 1000)
        assert client.is_closed

    run_with_broker(scenario, access=access_of(Secrets(WORDS, challenges=True)))


def test_proxy_asks_for_the_one_whose_word_it_passes_on() -> None:
    async def scenario(world: BrokerWorld) -> None:
        client = Client(world.broker)
        client.send(connect_command(b"gate", original_auth_data="sesame", original_auth_method="word"))
        await client.expect(Type.CONNECTED)
        assert client.connection.principal == Principal("proxy", "joe")
        # Where that is asked for, a name alone is no word.
        named = Client(world.broker)
        named.send(connect_command(b"gate", original_principal="jim"))
        assert (await named.error()).error == pb.AuthenticationError
        assert named.is_closed
        liar = Client(world.broker)
        liar.send(connect_command(b"open", original_principal="joe"))
        error = await liar.error()
        assert error.error == pb.AuthorizationError
        assert error.message == "Invalid roles. (who is no proxy asks for itself alone)"
        assert liar.is_closed

    run_with_broker(scenario, access=access_of(Secrets(WORDS)))


def test_credentials_that_expire_are_asked_for_and_messages_go_on() -> None:
    secrets = Secrets(WORDS, until_s=50.0)

    async def scenario(world: BrokerWorld) -> None:
        began_s = world.runtime.clock.monotonic()
        secrets.until_s = began_s + 50.0  # asked for after half of it, since that is less than a minute before
        client = Client(world.broker)
        client.send(connect_command())
        await client.expect(Type.CONNECTED)
        await client.create_producer()
        challenge = (await client.expect(Type.AUTH_CHALLENGE)).authChallenge.challenge
        assert challenge.auth_data == REFRESH
        assert 25.0 <= world.runtime.clock.monotonic() - began_s < 26.0
        await client.publish(0)
        secrets.until_s = began_s + 100_000.0
        client.send(response(b"open"))
        await client.publish(1)
        await seconds(300)
        assert not client.is_closed

    run_with_broker(scenario, access=access_of(secrets), keep_alive_interval_s=3600)


@pytest.mark.parametrize("can_refresh", [False, True])
def test_who_brings_no_new_credentials_is_sent_away(can_refresh: bool) -> None:
    secrets = Secrets(WORDS)

    async def scenario(world: BrokerWorld) -> None:
        secrets.until_s = world.runtime.clock.monotonic() + 50.0
        client = Client(world.broker)
        client.send(connect_command(can_refresh=can_refresh))
        await client.expect(Type.CONNECTED)
        await seconds(49.9)
        assert not client.is_closed
        await seconds(0.2)
        error = await client.error()
        told = "no new credentials in time" if can_refresh else "the credentials have expired"
        assert (error.error, error.message) == (pb.AuthenticationError, told)
        assert client.is_closed

    run_with_broker(scenario, access=access_of(secrets), keep_alive_interval_s=3600)
