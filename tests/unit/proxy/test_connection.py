"""A client at the proxy, in virtual time: who it is, what is answered, where it may go, and when it ends."""

from __future__ import annotations

import pytest

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.core.handshake import REFRESH, Credentials, Known, Verdict
from geminga.broker.access.ports import Access
from geminga.model.errors import ServerError, UnavailableError
from geminga.proxy.connection import TURN_FRAMES_MAX
from geminga.proxy.core.targets import AllowedTargets, Target
from geminga.runtime import wait_ms
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands
from support.worlds.proxy_world import BROKER, ROLES, ProxyWorld, Roles, Type, frame_of, in_world, let_in
from support.worlds.scripted_broker import polite

TOPIC = "persistent://public/default/t"


class Recording:
    """A broker that answers politely, and keeps what it was told."""

    def __init__(self, **answers: list[bytes]) -> None:
        self.told: list[pb.BaseCommand] = []
        #: Name of a command -> what is answered instead.
        self.answers = answers

    def __call__(self, command: pb.BaseCommand) -> list[bytes]:
        self.told.append(command)
        return self.answers.get(Type.Type.Name(command.type), polite(command))

    def connects(self) -> list[pb.CommandConnect]:
        return [command.connect for command in self.told if command.type == Type.CONNECT]


class Own:
    """The proxy's credentials at brokers."""

    method_name = "token"

    def data(self) -> bytes:
        return b"proxy"


def guarded(world, **config) -> ProxyWorld:
    return ProxyWorld(world, ROLES, authentication=Own(), **config)


def test_a_lookup_is_answered_with_the_broker_behind_the_proxy() -> None:
    broker = Recording()

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect()
        welcome = (await client.next()).connected
        assert (welcome.server_version, welcome.feature_flags.supports_topic_watchers) == ("proxy", False)
        client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=1 << 63)
        assert (await client.next()).partitionMetadataResponse.request_id == 1 << 63
        client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        answer = (await client.next()).lookupTopicResponse
        assert (answer.request_id, answer.brokerServiceUrl) == (7, f"pulsar://{BROKER}")
        assert answer.brokerServiceUrlTls == answer.brokerServiceUrl
        assert answer.proxy_through_service_url
        assert len(broker.connects()) == 1, "one link for both requests"
        assert proxy.counters["pulsar_proxy_lookup_requests"] == 1

    in_world(story, broker)


def test_bytes_pass_unread_in_both_directions_behind_connected() -> None:
    garbage = bytes(range(256)) * 50

    def script(command: pb.BaseCommand) -> list[bytes]:
        return [garbage] if command.type == Type.FLOW else polite(command)

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(to=BROKER)
        welcome = await client.next()
        assert welcome.connected.server_version == "scripted", "what the broker said, not the proxy"
        begin = len(client.raw)
        client.is_raw = True
        client.say(Type.FLOW, consumer_id=1, messagePermits=1)
        while len(client.raw) - begin < len(garbage):
            await proxy.world.sleep(0.01)
        assert bytes(client.raw[begin:]) == garbage
        assert proxy.counters["pulsar_proxy_binary_bytes"] == len(garbage) + len(
            frame_of(Type.FLOW, consumer_id=1, messagePermits=1)
        )

    in_world(story, script)


def test_what_comes_behind_connect_is_kept_for_the_broker() -> None:
    broker = Recording()

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(to=BROKER)
        client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=5)
        assert (await client.next()).HasField("connected")
        assert (await client.next()).partitionMetadataResponse.request_id == 5

    in_world(story, broker)


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("proxy:22", "brokerProxyAllowedTargetPorts"),
        ("other:6650", "brokerProxyAllowedHostNames"),
        ("proxy-2:6650", "brokerProxyAllowedIPAddresses"),
        ("http://proxy:6650", "expected host:port"),
        ("proxy:7000", "can not be connected to"),
        ("proxy-3:6650", "has no address"),
    ],
)
def test_a_client_gets_nowhere_but_where_it_may(to: str, told: str) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        if host == "proxy-3":
            raise OSError(2, "no such name")
        return {"proxy": ["10.0.0.1"], "proxy-2": ["169.254.169.254"]}[host]

    def make(world) -> ProxyWorld:
        return ProxyWorld(world, resolve=resolve, allowed=AllowedTargets(["proxy*"], ["10.0.0.0/8"], ["6650", "7000"]))

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(to=to)
        error = (await client.next()).error
        assert error.error == ServerError.SERVICE_NOT_READY
        assert told in error.message
        await client.lost.wait()

    in_world(story, None, make=make)


def test_the_connection_goes_to_an_address_that_was_looked_at() -> None:
    broker = Recording()
    resolved = []

    async def resolve(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["169.254.169.254", "proxy"]

    class Names(AllowedTargets):
        def _has(self, text: str) -> bool:
            return text == "proxy"

    def make(world) -> ProxyWorld:
        return ProxyWorld(world, resolve=resolve, allowed=Names(["*"], [], ["*"]))

    async def story(proxy, new_client) -> None:
        await let_in(new_client, to="any.example:6650")
        assert resolved == ["any.example"], "once: a second answer could be another"

    in_world(story, broker, make=make)


def test_the_role_goes_along_and_the_clients_credentials_if_so_configured() -> None:
    for forwards in (False, True):
        broker = Recording()

        async def story(proxy, new_client) -> None:
            for to in ("", BROKER):
                client = await let_in(new_client, b"jane", to=to)
                if not to:
                    client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
                    await client.next()

        in_world(story, broker, make=lambda world, f=forwards: guarded(world, forwards_credentials=f))
        assert len(broker.connects()) == 2
        for connect in broker.connects():
            assert (connect.auth_method_name, connect.auth_data) == ("token", b"proxy")
            assert connect.original_principal == "jane"
            assert connect.original_auth_data == ("jane" if forwards else "")
            assert not connect.HasField("proxy_to_broker_url")


@pytest.mark.parametrize(
    ("data", "more", "code"),
    [
        (b"bad", {}, ServerError.AUTHENTICATION_ERROR),
        (b"", {}, ServerError.AUTHENTICATION_ERROR),
        (b"jane", {"original_principal": "root"}, ServerError.AUTHENTICATION_ERROR),
        (b"jane", {"proxy_version": "x"}, ServerError.NOT_ALLOWED_ERROR),
    ],
)
def test_who_is_not_known_or_speaks_for_others_gets_no_broker(data: bytes, more: dict, code: ServerError) -> None:
    broker = Recording()

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(data, to=BROKER, **more)
        assert (await client.next()).error.error == code
        await client.lost.wait()

    in_world(story, broker, make=guarded)
    assert broker.told == []


def test_a_command_before_connect_and_one_that_needs_a_broker_end_the_connection() -> None:
    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        await client.lost.wait()
        client = await let_in(new_client)
        client.say(Type.CLOSE_PRODUCER, producer_id=1, request_id=2)
        await client.lost.wait()
        client = await new_client()
        client.transport.write(b"GET / HTTP/1.1\r\n\r\n")
        await client.lost.wait()
        assert b"webServicePort" in client.raw

    in_world(story, polite)


def test_many_requests_at_once_are_all_answered_with_others_served_between() -> None:
    async def story(proxy, new_client) -> None:
        client, other = await new_client(), await new_client()
        for one in (client, other):
            one.connect()
            await one.next()
        asked = b"".join(
            frame_of(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=number) for number in range(5 * TURN_FRAMES_MAX)
        )
        client.transport.write(asked + frame_of(Type.PING))
        answers = [await client.next() for _ in range(5 * TURN_FRAMES_MAX + 1)]
        ids = {one.partitionMetadataResponse.request_id for one in answers if one.type != Type.PONG}
        assert ids == set(range(5 * TURN_FRAMES_MAX))
        client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=9999)
        assert (await client.next()).partitionMetadataResponse.request_id == 9999

    in_world(story, polite)


def test_what_comes_while_somebody_is_verified_waits_in_its_order() -> None:
    class Slowly(Roles):
        def answer(self, credentials: Credentials):
            async def later() -> Verdict:
                await waiting()
                return Roles.answer(self, credentials)

            return later()

    async def story(proxy, new_client) -> None:
        nonlocal waiting
        waiting = lambda: proxy.world.sleep(1)  # noqa: E731
        client = await new_client()
        client.connect(b"jane")
        for number in range(3):
            client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=number)
        assert (await client.next()).HasField("connected")
        assert [(await client.next()).partitionMetadataResponse.request_id for _ in range(3)] == [0, 1, 2]
        client = await new_client()
        client.connect(b"jane", to=BROKER)
        client.say(Type.PARTITIONED_METADATA, topic=TOPIC, request_id=7)
        assert (await client.next()).HasField("connected")
        assert (await client.next()).partitionMetadataResponse.request_id == 7
        client = await new_client()
        client.connect(b"bad", to=BROKER)
        client.transport.abort()

    waiting = None
    access = Access(authenticator=Slowly(), authorizer=ANONYMOUS_MAY)
    in_world(story, polite, make=lambda world: ProxyWorld(world, access))


def test_who_says_nothing_is_sent_away_in_time() -> None:
    async def story(proxy, new_client) -> None:
        begin_s = proxy.world.now
        silent, half = await new_client(), await new_client()
        half.transport.write(b"\0\0\0")
        await silent.lost.wait()
        await half.lost.wait()
        assert proxy.world.now - begin_s == pytest.approx(10, abs=1)

    in_world(story, polite)


def test_a_client_that_asks_for_topics_and_answers_no_ping_is_cut_off() -> None:
    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        begin_s = proxy.world.now
        await client.lost.wait()
        assert proxy.world.now - begin_s == pytest.approx(60, abs=1)

    in_world(story, polite)


def test_a_broker_that_does_not_answer_connect_is_given_up_in_time() -> None:
    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(to=BROKER)
        begin_s = proxy.world.now
        error = (await client.next()).error
        assert "brokerProxyConnectTimeoutMs=10000" in error.message
        assert proxy.world.now - begin_s == pytest.approx(10, abs=1)

    in_world(story, lambda command: [])


def test_what_a_broker_refuses_is_told_as_it_said_it() -> None:
    refusal = commands.error(commands.UNREQUESTED, ServerError.AUTHORIZATION_ERROR, "no proxy here")
    broker = Recording(CONNECT=[refusal])

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(to=BROKER)
        error = (await client.next()).error
        assert (error.error, error.message) == (ServerError.AUTHORIZATION_ERROR, "no proxy here")
        client = await let_in(new_client)
        client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        assert (await client.next()).lookupTopicResponse.error == ServerError.AUTHORIZATION_ERROR

    in_world(story, broker)


def test_a_client_is_challenged_before_its_credentials_expire_and_stays_with_new_ones() -> None:
    broker = Recording()

    async def story(proxy, new_client) -> None:
        client = await new_client()
        now_s = proxy.node.runtime.clock.monotonic()
        client.connect(f"jane@{now_s + 100}".encode())
        await client.next()
        assert (await client.next()).authChallenge.challenge.auth_data == REFRESH
        renewed = pb.AuthData(auth_method_name="token", auth_data=f"jane@{now_s + 500}".encode())
        client.say(Type.AUTH_RESPONSE, response=renewed)
        client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        await client.next()
        assert (await client.next()).authChallenge.challenge.auth_data == REFRESH
        assert proxy.node.runtime.clock.monotonic() - now_s == pytest.approx(440, abs=1)
        # Another role is none.
        client.say(Type.AUTH_RESPONSE, response=pb.AuthData(auth_method_name="token", auth_data=b"root"))
        assert (await client.next()).error.error == ServerError.AUTHENTICATION_ERROR
        await client.lost.wait()

    in_world(story, broker, make=lambda world: guarded(world, forwards_credentials=True))
    assert broker.connects()[0].original_auth_data.startswith("jane@")


def test_a_broker_that_asks_a_link_for_the_clients_new_credentials_gets_the_latest() -> None:
    challenge = pb.CommandAuthChallenge(challenge=pb.AuthData(auth_method_name="token", auth_data=REFRESH))
    broker = Recording(
        LOOKUP=[commands.encode_command(pb.BaseCommand(type=Type.AUTH_CHALLENGE, authChallenge=challenge))]
    )

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client, b"jane")
        client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        while not any(command.type == Type.AUTH_RESPONSE for command in broker.told):
            await proxy.world.sleep(0.01)

    for forwards, said in ((True, b"jane"), (False, b"proxy")):
        broker.told.clear()
        in_world(story, broker, make=lambda world, f=forwards: guarded(world, forwards_credentials=f))
        answers = [command.authResponse.response for command in broker.told if command.type == Type.AUTH_RESPONSE]
        assert [Credentials(one.auth_method_name, one.auth_data) for one in answers] == [Credentials("token", said)]


@pytest.mark.parametrize("forwards", [False, True])
def test_a_relayed_connection_ends_with_its_credentials(*, forwards: bool) -> None:
    async def story(proxy, new_client) -> None:
        client = await new_client()
        now_s = proxy.node.runtime.clock.monotonic()
        client.connect(f"jane@{now_s + 50}".encode(), to=BROKER)
        await client.next()
        await client.lost.wait()
        assert proxy.node.runtime.clock.monotonic() - now_s == pytest.approx(50, abs=1)

    in_world(story, polite, make=lambda world: guarded(world, forwards_credentials=forwards))


def test_a_client_that_waits_for_its_broker_is_not_challenged_but_ended_in_time() -> None:
    async def story(proxy, new_client) -> None:
        client = await new_client()
        now_s = proxy.node.runtime.clock.monotonic()
        client.connect(f"jane@{now_s + 8}".encode(), to=BROKER)
        assert (await client.next()).error.error == ServerError.AUTHENTICATION_ERROR
        await client.lost.wait()
        assert proxy.node.runtime.clock.monotonic() - now_s == pytest.approx(8, abs=1)

    in_world(story, lambda command: [], make=guarded)


def test_a_relayed_connection_stays_as_long_as_the_answers_that_pass_are_good() -> None:
    broker = Recording()

    async def story(proxy, new_client) -> None:
        client = await new_client()
        clock = proxy.node.runtime.clock
        now_s = clock.monotonic()
        client.connect(f"jane@{now_s + 50}".encode(), to=BROKER)
        await client.next()

        def renew(data: str) -> None:
            client.say(Type.AUTH_RESPONSE, response=pb.AuthData(auth_method_name="token", auth_data=data.encode()))

        await proxy.world.sleep(40)
        renew(f"jane@{now_s + 120}")
        await proxy.world.sleep(60)
        assert not client.lost.is_set()
        renew(f"root@{now_s + 900}")
        await client.lost.wait()
        assert clock.monotonic() - now_s == pytest.approx(100, abs=1), "another role ends it at once"

    in_world(story, broker, make=lambda world: guarded(world, forwards_credentials=True, read_timeout_ms=0))
    assert sum(command.type == Type.AUTH_RESPONSE for command in broker.told) == 2, "and the broker heard them"


class Slow(Roles):
    """Looks at new credentials for a while; how many it looked at."""

    looks = 0

    def begin(self, source: str = "", *, in_http: bool = False) -> Roles:
        return Slow()

    def answer(self, credentials: Credentials) -> Verdict:
        if not credentials.data.startswith(b"new"):
            return super().answer(credentials)
        return self._later()  # type: ignore[return-value]

    async def _later(self) -> Verdict:
        Slow.looks += 1
        await wait_ms(1000)
        return Known("jane")


def test_new_credentials_are_looked_at_one_by_one() -> None:
    broker, Slow.looks = Recording(), 0

    async def story(proxy, new_client) -> None:
        client = await new_client()
        now_s = proxy.node.runtime.clock.monotonic()
        client.connect(f"jane@{now_s + 500}".encode(), to=BROKER)
        await client.next()
        renewed = pb.AuthData(auth_method_name="token", auth_data=b"new")
        for _ in range(3):
            client.say(Type.AUTH_RESPONSE, response=renewed)
            await proxy.world.sleep(2)
        assert (Slow.looks, client.lost.is_set()) == (3, False)
        for _ in range(1000):
            client.say(Type.AUTH_RESPONSE, response=renewed)
        await client.lost.wait()
        assert Slow.looks == 4
        await proxy.world.sleep(2)

    slow = Access(authenticator=Slow(), authorizer=ANONYMOUS_MAY)
    in_world(
        story,
        broker,
        make=lambda world: ProxyWorld(world, slow, authentication=Own(), forwards_credentials=True, read_timeout_ms=0),
    )


def test_a_silent_broker_ends_a_relay_and_one_that_speaks_keeps_it() -> None:
    async def story(proxy, new_client) -> None:
        client = await new_client()
        begin_s = proxy.world.now
        client.connect(to=BROKER)
        await client.next()
        for _ in range(5):
            await proxy.world.sleep(40)
            client.say(Type.PING)
        await client.lost.wait()
        assert 275 <= proxy.world.now - begin_s <= 355

    in_world(story, polite)


def test_too_many_connections_are_told_so() -> None:
    async def story(proxy, new_client) -> None:
        clients = [await new_client() for _ in range(3)]
        error = (await clients[2].next()).error
        assert "maxConcurrentInboundConnections=2" in error.message
        clients[0].transport.abort()
        await proxy.world.sleep(1)
        clients.append(await new_client())
        clients[3].connect()
        assert (await clients[3].next()).HasField("connected")
        assert proxy.counters["pulsar_proxy_rejected_connections"] == 1

    in_world(story, polite, make=lambda world: ProxyWorld(world, connections_max=2))


def test_requests_beyond_the_limit_are_told_to_come_back() -> None:
    broker = Recording(LOOKUP=[])

    async def story(proxy, new_client) -> None:
        clients = [await new_client() for _ in range(2)]
        for client in clients:
            client.connect()
            await client.next()
        for number in range(3):
            clients[0].say(Type.LOOKUP, topic=TOPIC, request_id=number)
        await proxy.world.sleep(1)
        clients[1].say(Type.LOOKUP, topic=TOPIC, request_id=9)
        assert (await clients[1].next()).lookupTopicResponse.error == ServerError.TOO_MANY_REQUESTS
        # No answer comes: each has its time, and the room is free again.
        failed = [(await clients[0].next()).lookupTopicResponse for _ in range(3)]
        assert {answer.error for answer in failed} == {ServerError.SERVICE_NOT_READY}
        assert proxy.counters["geminga_proxy_requests_under_way"] == 0

    in_world(story, broker, make=lambda world: ProxyWorld(world, requests_max=3))


def test_a_broker_that_is_not_registered_is_not_connected_to() -> None:
    class Registered:
        async def entry(self) -> Target:
            return Target("proxy", 6650)

        async def is_active(self, target: Target) -> bool:
            return target.host == "proxy"

        async def web_url(self) -> str:
            raise UnavailableError("none")

    async def story(proxy, new_client) -> None:
        client = await new_client()
        client.connect(to="gone:6650")
        assert "not registered" in (await client.next()).error.message
        client = await new_client()
        client.connect(to="gone:22")
        assert "brokerProxyAllowedTargetPorts" in (await client.next()).error.message
        client = await let_in(new_client, to=BROKER)

    in_world(story, polite, make=lambda world: ProxyWorld(world, directory=Registered(), checks_active=True))


def test_a_stop_answers_what_was_asked_and_ends_the_rest() -> None:
    async def story(proxy, new_client) -> None:
        asking, relayed, busy = [await new_client() for _ in range(3)]
        asking.connect()
        busy.connect()
        relayed.connect(to=BROKER)
        for client in (asking, relayed, busy):
            await client.next()
        proxy.world.network.set_delay(proxy.world.node("door"), proxy.world.node("proxy"), 1, 1)
        busy.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        await proxy.world.sleep(0.1)
        stopping = proxy.world.loop.create_task(proxy.service.stop(30))
        assert (await busy.next()).lookupTopicResponse.proxy_through_service_url
        await stopping
        for client in (asking, relayed, busy):
            await client.lost.wait()

    in_world(story, polite)


def test_lookups_follow_redirections_for_so_long() -> None:
    redirect = pb.CommandLookupTopicResponse(
        brokerServiceUrl=f"pulsar://{BROKER}", response=pb.CommandLookupTopicResponse.Redirect, request_id=1
    )
    answers = iter(range(1, 100))

    def script(command: pb.BaseCommand) -> list[bytes]:
        if command.type != Type.LOOKUP:
            return polite(command)
        redirect.request_id = command.lookupTopic.request_id
        if next(answers) == 3:
            return polite(command)
        return [commands.encode_command(pb.BaseCommand(type=Type.LOOKUP_RESPONSE, lookupTopicResponse=redirect))]

    async def story(proxy, new_client) -> None:
        client = await let_in(new_client)
        client.say(Type.LOOKUP, topic=TOPIC, request_id=7)
        assert (await client.next()).lookupTopicResponse.proxy_through_service_url
        client.say(Type.LOOKUP, topic=TOPIC, request_id=8)
        assert "more than 20 times" in (await client.next()).lookupTopicResponse.message

    in_world(story, script)
