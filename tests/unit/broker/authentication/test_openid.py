"""Tokens of issuers: whose keys are read when they are needed, kept, and not asked for as often as a stranger likes."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from geminga import sim
from geminga.app.configuration.config import load_config
from geminga.broker.access.core.handshake import Credentials, Known
from geminga.broker.authentication.issuer_http import IssuerHttp
from geminga.broker.authentication.issuers import RETRY_S, Issuer, IssuerTimes
from geminga.broker.authentication.openid import OpenIdProvider
from geminga.broker.authentication.opening import OpenedAuthentication
from geminga.broker.authentication.ports import RefusedError
from geminga.model.errors import ConfigurationError, UnavailableError
from geminga.runtime import Runtime, real_runtime, wait_ms
from geminga.security.key_pairs import new_key_pair
from geminga.security.keys import PrivateSigner, private_key
from geminga.security.openid import DOCUMENT_BYTES_MAX, OpenIdRules
from geminga.security.token_rules import create_token
from support.house.signing import SECRET, in_text, web_key
from support.processes.certificates import Authority

ISSUER = "https://issuer.example"
TIMES = IssuerTimes(refresh_s=1000.0, expire_s=2000.0, miss_s=300.0)


class Realm:
    """What an issuer has, and who asked it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.pairs: dict[str, PrivateSigner] = {}
        self.asked: list[str] = []
        self.is_down = False
        self.add("one")
        issuer = Issuer(ISSUER, self.get, runtime.clock, TIMES, needs_https=True)
        rules = OpenIdRules(audiences=frozenset({"pulsar"}), skew_s=3.0)
        self.provider = OpenIdProvider({ISSUER: issuer}, rules, runtime.clock)

    def add(self, key_id: str) -> None:
        self.pairs[key_id] = private_key(new_key_pair("ES256")[0])

    async def get(self, url: str) -> bytes:
        self.asked.append(url)
        await wait_ms(50)
        if self.is_down:
            raise UnavailableError("down")
        if url.endswith("openid-configuration"):
            return json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode()
        keys = []
        for key_id, pair in self.pairs.items():
            assert isinstance(pair.key, ec.EllipticCurvePrivateKey)
            keys.append(web_key(pair.key.public_key(), key_id))
        return json.dumps({"keys": keys}).encode()

    @property
    def readings(self) -> int:
        return sum(url.endswith("/keys") for url in self.asked)

    def token(self, key_id: str = "one", signer: PrivateSigner | None = None, **claims: object) -> bytes:
        now_s = self.runtime.clock.wall_ms() / 1000
        said = {"iss": ISSUER, "sub": "jane", "aud": "pulsar", "iat": now_s, "exp": now_s + 100_000, **claims}
        key = signer or self.pairs[key_id]
        return create_token(key, "ES256", said, {"kid": key_id}).encode()

    async def proved(self, token: bytes) -> Known:
        found = self.provider.prove(Credentials("token", token), "/a", in_http=False)
        return found if isinstance(found, Known) else await found

    async def refused(self, token: bytes) -> str:
        with pytest.raises(RefusedError) as raised:
            await self.proved(token)
        return raised.value.code


def in_world(scenario: Callable[[Realm], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def on_node(node: sim.SimNode) -> None:
            realm = Realm(node.runtime)
            await scenario(realm)
            await realm.provider.close()

        await world.node("broker").run(on_node)

    sim.run(main)


async def pass_s(seconds: float) -> None:
    await wait_ms(seconds * 1000)


def test_keys_are_read_once_for_many_tokens_at_a_time_and_kept() -> None:
    async def scenario(realm: Realm) -> None:
        many = await asyncio.gather(*(realm.proved(realm.token()) for _ in range(20)))
        assert {known.role for known in many} == {"jane"}
        assert many[0].grace_s == 3.0
        assert isinstance(realm.provider.prove(Credentials("token", realm.token()), "/a", in_http=False), Known)
        assert realm.asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]

    in_world(scenario)


def test_old_keys_are_read_again_behind_the_scenes_and_too_old_ones_before_an_answer() -> None:
    async def scenario(realm: Realm) -> None:
        await realm.proved(realm.token())
        await pass_s(TIMES.refresh_s + 1)
        assert isinstance(realm.provider.prove(Credentials("token", realm.token()), "/a", in_http=False), Known)
        await pass_s(1)
        assert realm.readings == 2
        realm.is_down = True
        await pass_s(TIMES.expire_s - 100)
        assert (await realm.proved(realm.token())).role == "jane"
        await pass_s(101)
        assert await realm.refused(realm.token()) == "ERROR_RETRIEVING_PUBLIC_KEY"
        realm.is_down = False
        await pass_s(TIMES.miss_s)
        assert (await realm.proved(realm.token())).role == "jane"

    in_world(scenario)


def test_keys_are_read_again_when_an_operator_says_so() -> None:
    async def scenario(realm: Realm) -> None:
        realm.provider.read_again()
        # Nobody needed them until now.
        assert not realm.asked
        old = realm.token()
        await realm.proved(old)
        del realm.pairs["one"]
        realm.add("two")
        realm.provider.read_again()
        await wait_ms(200)
        assert realm.readings == 2
        assert (await realm.proved(realm.token("two"))).role == "jane"
        assert await realm.refused(old) == "INVALID_PUBLIC_KEY"

    in_world(scenario)


def test_new_key_is_found_and_a_made_up_one_makes_nobody_ask_again_and_again() -> None:
    """apache/pulsar #20338: refused for hours, or fetched at each try of an attacker."""

    async def scenario(realm: Realm) -> None:
        await realm.proved(realm.token())
        stranger = private_key(new_key_pair("ES256")[0])
        for second in range(0, 1000, 10):
            assert await realm.refused(realm.token(f"made-up-{second}", stranger)) == "INVALID_PUBLIC_KEY"
            await pass_s(10)
        assert realm.readings <= 1 + 1000 // TIMES.miss_s + 1
        realm.add("two")
        await pass_s(TIMES.miss_s)
        assert (await realm.proved(realm.token("two"))).role == "jane"

    in_world(scenario)


def test_issuer_that_does_not_answer_is_asked_again_after_a_while() -> None:
    async def scenario(realm: Realm) -> None:
        realm.is_down = True
        for _ in range(50):
            assert await realm.refused(realm.token()) == "ERROR_RETRIEVING_PUBLIC_KEY"
        assert len(realm.asked) == 1
        realm.is_down = False
        await pass_s(RETRY_S)
        assert (await realm.proved(realm.token())).role == "jane"

    in_world(scenario)


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"iss": "https://other.example"}, "UNSUPPORTED_ISSUER"),
        ({"iss": None}, "UNSUPPORTED_ISSUER"),
        ({"iss": [ISSUER]}, "UNSUPPORTED_ISSUER"),
        ({"aud": "other"}, "INVALID_JWT_CLAIM"),
        ({"exp": 1}, "EXPIRED_JWT"),
        ({"exp": None}, "INVALID_JWT_CLAIM"),
        ({"sub": 5}, "INVALID_JWT_CLAIM"),
    ],
)
def test_token_is_refused_with_pulsars_name_of_the_reason(claims: dict[str, object], code: str) -> None:
    async def scenario(realm: Realm) -> None:
        assert await realm.refused(realm.token(**claims)) == code
        # Nobody is asked for the keys of who is not trusted.
        assert realm.readings == (code != "UNSUPPORTED_ISSUER")

    in_world(scenario)


def test_token_of_a_secret_or_of_another_key_is_refused() -> None:
    async def scenario(realm: Realm) -> None:
        from geminga.security.keys import secret_key

        signed = create_token(secret_key(SECRET), "HS256", {"iss": ISSUER, "sub": "a"}, {"kid": "one"}).encode()
        assert await realm.refused(signed) == "UNSUPPORTED_ALGORITHM"
        stranger = private_key(new_key_pair("ES256")[0])
        assert await realm.refused(realm.token(signer=stranger)) == "ERROR_VERIFYING_JWT_SIGNATURE"
        assert await realm.refused(b"a.b") == "ERROR_DECODING_JWT"
        assert await realm.refused(b"") == "INVALID_AUTH_DATA"

    in_world(scenario)


@pytest.mark.parametrize("url", ["http://issuer.example/keys", "file:///etc/passwd"])
def test_keys_are_not_read_without_tls_where_that_is_asked_for(url: str) -> None:
    async def scenario(realm: Realm) -> None:
        async def get(asked: str) -> bytes:
            assert asked.endswith("openid-configuration")
            return json.dumps({"issuer": ISSUER, "jwks_uri": url}).encode()

        issuer = Issuer(ISSUER, get, realm.runtime.clock, TIMES, needs_https=True)
        with pytest.raises(UnavailableError, match="can not be read now"):
            await issuer.read()

    in_world(scenario)


# ---- the wire


#: More than is read at once.
LONG = bytes(range(256)) * 1000


class Server(asyncio.Protocol):
    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"GET /keys?a=1 HTTP/1.1\r\n")
        assert b"Host: issuer:80" in data
        if self.answer:
            self.transport.write(self.answer)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LONG) + LONG, None),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered 404"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", "answered 302"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(DOCUMENT_BYTES_MAX + 1), "has more than"),
        (b"\x16\x03\x01 not http\r\n\r\n", "issuer:80"),
        (b"", "no answer of .* within 10 s"),
    ],
)
def test_document_comes_in_bounds_of_time_and_size(answer: bytes, told: str | None) -> None:
    async def main(world: sim.SimWorld) -> None:
        async def serve(node: sim.SimNode) -> None:
            await node.runtime.network.listen(lambda: Server(answer), "issuer", 80)

        async def ask(node: sim.SimNode) -> None:
            http = IssuerHttp(node.runtime)
            if told is None:
                assert await http.get("http://issuer:80/keys?a=1") == LONG
            else:
                with pytest.raises(UnavailableError, match=told):
                    await http.get("http://issuer:80/keys?a=1")
            for wrong in ("ftp://issuer/", "https:///x", "nothing"):
                with pytest.raises(UnavailableError, match="expected https://host/path"):
                    await http.get(wrong)
            for wrong in ("http://issuer/a b", "http://issuer/\xe9", "http://[", "http://issuer:x/", "http://a..b/"):
                with pytest.raises(UnavailableError, match=r".+: .+"):
                    await http.get(wrong)

        await world.node("issuer").run(serve)
        await world.node("broker").run(ask)

    sim.run(main)


def test_issuers_may_change_who_signs_their_certificates(tmp_path) -> None:
    """The file was read at the start alone: from the change on every new token was refused."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    trust = tmp_path / "trust.pem"
    trust.write_bytes(old.certificate.read_bytes())

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nkeys")
        await writer.drain()
        writer.close()

    async def main() -> None:
        runtime = real_runtime(lambda part, error: pytest.fail(f"{part}: {error}"))
        http = IssuerHttp(runtime, str(trust))

        async def asked(authority: Authority) -> bytes:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(authority.store("issuer", "127.0.0.1"))
            server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
            async with server:
                return await http.get(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys")

        assert await asked(old) == b"keys"
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            await asked(new)
        trust.write_bytes(old.certificate.read_bytes() + new.certificate.read_bytes())
        assert await asked(new) == b"keys"
        trust.write_text("half of it")
        assert await asked(old) == b"keys"
        await runtime.disk.close()

    asyncio.run(main())


# ---- the configuration

OPENID = "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID"
TOKEN = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], "openIDAllowedTokenIssuers is not set"),
        (["openIDAllowedTokenIssuers=https://a"], "openIDAllowedAudiences is not set"),
        (["openIDAllowedTokenIssuers=http://a", "openIDAllowedAudiences=x"], "=http://a: expected https://"),
        (["openIDFallbackDiscoveryMode=KUBERNETES_DISCOVER_PUBLIC_KEYS"], "expected DISABLED: Kubernetes is not asked"),
    ],
)
def test_what_can_not_be_is_refused_at_the_start(texts: list[str], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        load_config(overrides=["authenticationEnabled=true", f"authenticationProviders={OPENID}", *texts])


def test_both_providers_of_tokens_stand_behind_one_method(tmp_path) -> None:
    texts = [
        "openIDAllowedTokenIssuers=https://a,https://b",
        "openIDAllowedAudiences=x",
        f"tokenSecretKey={in_text(SECRET)}",
    ]

    def config(*more: str):
        return load_config(
            overrides=["authenticationEnabled=true", f"authenticationProviders={TOKEN},{OPENID}", *texts, *more]
        ).authentication

    async def scenario(realm: Realm) -> None:
        opened = OpenedAuthentication(realm.runtime, config())
        await opened.open()
        assert [(one.name, one.method) for one in opened.authentication.providers] == [
            ("AuthenticationProviderToken", "token"),
            ("AuthenticationProviderOpenID", "token"),
        ]
        await opened.close()
        (tmp_path / "none.pem").write_text("nothing")
        for path, told in (
            (tmp_path / "none.pem", "not certificates in PEM|no certificate"),
            (tmp_path / "x", "No such"),
        ):
            with pytest.raises(ConfigurationError, match=f"openIDTokenIssuerTrustCertsFilePath: {path}: .*({told})"):
                await OpenedAuthentication(realm.runtime, config(f"openIDTokenIssuerTrustCertsFilePath={path}")).open()

    in_world(scenario)
