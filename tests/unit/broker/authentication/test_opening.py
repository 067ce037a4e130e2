"""Authentication out of a configuration: what is wrong is said at the start, and files are looked at again."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from geminga import sim
from geminga.app.configuration.config import load_config
from geminga.broker.access.core.handshake import Credentials, Known, Rejected, Verdict
from geminga.broker.authentication.config import AuthenticationConfig
from geminga.broker.authentication.files import FILE_BYTES_MAX
from geminga.broker.authentication.opening import OpenedAuthentication
from geminga.model.errors import ConfigurationError
from geminga.runtime import Runtime
from geminga.security.keys import secret_key
from geminga.security.token_rules import create_token
from support.house.signing import OTHER_SECRET, SECRET, in_text, token_of

PACKAGE = "org.apache.pulsar.broker.authentication."
TOKEN, BASIC, TLS = (f"{PACKAGE}AuthenticationProvider{name}" for name in ("Token", "Basic", "Tls"))
USERS = b"jane:ab7Wl3zw4JrNg\n"
EC_KEY = ec.generate_private_key(ec.SECP256R1()).public_key()


def spki(key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def config_of(*texts: str) -> AuthenticationConfig:
    found = load_config(overrides=["authenticationEnabled=true", *texts]).authentication
    assert found is not None
    return found


def in_world(scenario: Callable[[Runtime], Awaitable[None]]) -> None:
    async def main(world: sim.SimWorld) -> None:
        node = world.node("broker")
        node.inline_threads = True

        async def on_node(node: sim.SimNode) -> None:
            await node.runtime.disk.make_dirs("conf")
            await scenario(node.runtime)

        await node.run(on_node)

    sim.run(main)


def verdict(opened: OpenedAuthentication, method: str, data: bytes, *, in_http: bool = False) -> Verdict:
    answer = opened.authentication.begin("/127.0.0.1", in_http=in_http).answer(Credentials(method, data))
    assert isinstance(answer, Known | Rejected)
    return answer


def test_keys_of_an_operators_file_make_what_they_name() -> None:
    async def scenario(runtime: Runtime) -> None:
        await runtime.disk.write_file("conf/secret.key", SECRET)
        await runtime.disk.write_file("conf/.htpasswd", b"jane:ab7Wl3zw4JrNg\n")
        config = config_of(
            f"authenticationProviders={TOKEN},{BASIC},{TLS}",
            "tokenSecretKey=file:conf/secret.key",
            "basicAuthConf=conf/.htpasswd",
            "proxyRoles=gate, door",
            "authenticateOriginalAuthData=true",
            "anonymousUserRole=nobody",
            "authenticationRefreshCheckSeconds=7",
            "authenticateMetricsEndpoint=true",
            "tokenAllowedClockSkewSeconds=3",
        )
        opened = OpenedAuthentication(runtime, config)
        access = await opened.open()
        assert [(one.name, one.method) for one in opened.authentication.providers] == [
            ("AuthenticationProviderToken", "token"),
            ("AuthenticationProviderBasic", "basic"),
            ("AuthenticationProviderTls", "tls"),
        ]
        assert access.proxy_roles == {"gate", "door"}
        rules = access.handshake_rules(1.0)
        assert (rules.verifies_original, rules.refresh_s) == (True, 7)
        assert access.authenticates_metrics
        assert verdict(opened, "token", token_of("jane")) == Known("jane")
        assert verdict(opened, "sasl", b"") == Known("nobody")
        now_s = runtime.clock.wall_ms() / 1000
        known = verdict(opened, "token", token_of("jane", exp=now_s + 10))
        assert isinstance(known, Known)
        assert known.until_s == pytest.approx(runtime.clock.monotonic() + 10, abs=0.01)
        assert known.grace_s == 3.0

    in_world(scenario)


@pytest.mark.parametrize(
    ("text", "public"),
    [
        (in_text(SECRET), False),
        (base64.b64encode(SECRET).decode(), False),
        ("conf/secret.key", False),
        ("file:conf/secret.key", False),
        (in_text(spki(EC_KEY)), True),
    ],
)
def test_forms_of_keys_are_those_of_pulsar(text: str, public: bool) -> None:
    async def scenario(runtime: Runtime) -> None:
        await runtime.disk.write_file("conf/secret.key", SECRET)
        key = f"tokenPublicKey={text}" if public else f"tokenSecretKey={text}"
        opened = OpenedAuthentication(
            runtime, config_of(f"authenticationProviders={TOKEN}", key, "tokenPublicAlg=ES256")
        )
        await opened.open()
        refused = verdict(opened, "token", token_of("jane"))
        assert refused == Known("jane") if not public else isinstance(refused, Rejected)

    in_world(scenario)


WEAK = in_text(spki(rsa.generate_private_key(65537, 1024).public_key()))


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([], "authenticationProviders is empty: nobody could prove who they are; expected org.apache.pulsar"),
        (
            [f"authenticationProviders={PACKAGE}AuthenticationProviderSasl"],
            "Sasl: SASL and Kerberos are not built; expec",
        ),
        ([f"authenticationProviders={PACKAGE}AuthenticationProviderAthenz"], "Athenz is not built"),
        (["authenticationProviders=com.acme.Own"], "com.acme.Own: no such provider is known"),
        ([f"authenticationProviders={BASIC}"], "basicAuthConf is not set"),
        ([f"authenticationProviders={TOKEN}"], "neither tokenSecretKey nor tokenPublicKey is set"),
        (
            [f"authenticationProviders={TLS}", "anonymousUserRole=gate", "proxyRoles=gate"],
            "anonymousUserRole=gate: it is one of proxyRoles",
        ),
        ([TOKEN, "tokenSecretKey=x", "tokenAudienceClaim=aud"], "tokenAudience is not set"),
        ([TOKEN, "tokenSecretKey=x", "tokenPublicAlg=HS256"], "tokenPublicAlg=HS256: it has no public keys"),
        ([TOKEN, "tokenSecretKey=x", "tokenPublicAlg=RSA"], "tokenPublicAlg: 'RSA' is no algorithm of signatures"),
        ([TOKEN, "tokenSecretKey=x", "tokenSettingPrefix=my"], "tokenSettingPrefix=my: keys of other names"),
        ([TOKEN, "tokenSecretKey=x", "tokenAllowedClockSkewSeconds=-1"], "tokenAllowedClockSkewSeconds=-1"),
    ],
)
def test_what_can_not_be_is_refused_before_any_file_is_read(texts: list[str], told: str) -> None:
    if texts and texts[0] == TOKEN:
        texts = [f"authenticationProviders={TOKEN}", *texts[1:]]
    with pytest.raises(ConfigurationError, match=told):
        config_of(*texts)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        (["tokenSecretKey=file:///etc/none.key"], "tokenSecretKey: /etc/none.key: there is no such file"),
        (["tokenSecretKey=./none.key"], "tokenSecretKey: ./none.key: there is no such file"),
        # These could be the secret itself.
        (["tokenSecretKey=conf/s3cr3t.key"], "tokenSecretKey: its value, which is no base64 either: there is no such"),
        (
            [f"tokenSecretKey=/s3cr3t{'a/b' * 20}xx"],
            "tokenSecretKey: its value, which is no base64 either: there is no",
        ),
        (["tokenSecretKey=./empty.key"], "tokenSecretKey: ./empty.key is empty, or no ordinary file"),
        (["tokenSecretKey=s3cr3t!word"], "tokenSecretKey: its value, which is no base64 either: there is no such file"),
        (["tokenSecretKey=file:"], "tokenSecretKey: file: without a path"),
        (["tokenSecretKey=data:;base64,!"], "tokenSecretKey: data: whose data are not base64"),
        (
            [f"tokenSecretKey={in_text(SECRET[:31])}"],
            "tokenSecretKey: its value: the key has 248 bits; expected at least",
        ),
        (["tokenSecretKey=file:conf/short.key"], "tokenSecretKey: conf/short.key: the key has 24 bits"),
        ([f"tokenSecretKey={in_text(spki(EC_KEY))}"], "tokenSecretKey: .*not to be used as a secret"),
        (
            ["tokenSecretKey=file:conf/large.key"],
            f"conf/large.key has .* at most {FILE_BYTES_MAX} are read",
        ),
        (["tokenPublicKey=file:conf/short.key"], "tokenPublicKey: conf/short.key: not a public key"),
        ([f"tokenPublicKey={WEAK}"], "tokenPublicKey: its value: the key has 1024 bits; expected 2048"),
        (
            [f"tokenPublicKey={in_text(spki(EC_KEY))}"],
            "is a key of an elliptic curve, and tokenPublicAlg=RS256; expected tokenPublicAlg to be one of ES256",
        ),
        (
            [f"tokenSecretKey={in_text(SECRET)}", "gemingaTokenSecondPublicKey=file:conf/none.key"],
            "gemingaTokenSecondPublicKey: conf/none.key: there is no such file",
        ),
    ],
)
def test_key_that_can_not_be_used_is_told_with_its_file(texts: list[str], told: str) -> None:
    async def scenario(runtime: Runtime) -> None:
        await runtime.disk.write_file("conf/short.key", b"abc")
        await runtime.disk.write_file("empty.key", b"")
        await runtime.disk.write_file("conf/large.key", bytes(FILE_BYTES_MAX + 1))
        with pytest.raises(ConfigurationError, match=told) as raised:
            await OpenedAuthentication(runtime, config_of(f"authenticationProviders={TOKEN}", *texts)).open()
        assert "s3cr3t" not in str(raised.value)

    in_world(scenario)


def test_password_file_that_can_not_be_used_is_told_with_its_line() -> None:
    async def scenario(runtime: Runtime) -> None:
        await runtime.disk.write_file("conf/.htpasswd", b"jane:secret\n")
        config = config_of(f"authenticationProviders={BASIC}", "basicAuthConf=file:conf/.htpasswd")
        with pytest.raises(ConfigurationError, match=r"basicAuthConf: conf/.htpasswd: line 1, user 'jane': not a hash"):
            await OpenedAuthentication(runtime, config).open()

    in_world(scenario)


def test_second_key_is_taken_beside_the_first() -> None:
    async def scenario(runtime: Runtime) -> None:
        config = config_of(
            f"authenticationProviders={TOKEN}",
            f"tokenSecretKey={in_text(SECRET)}",
            f"gemingaTokenSecondSecretKey={in_text(OTHER_SECRET)}",
        )
        opened = OpenedAuthentication(runtime, config)
        await opened.open()
        assert verdict(opened, "token", token_of("jane")) == Known("jane")
        assert verdict(opened, "token", token_of("joe", secret=OTHER_SECRET)) == Known("joe")

    in_world(scenario)


def test_secret_comes_before_the_public_key_and_that_is_said() -> None:
    texts = [f"authenticationProviders={TOKEN}", f"tokenSecretKey={in_text(SECRET)}", "tokenPublicKey=conf/none.key"]
    loaded = load_config(overrides=["authenticationEnabled=true", *texts, "tokenAudience=east"])
    assert [line.partition(",")[0] for line in loaded.warnings] == [
        "tokenPublicKey is not used",
        "tokenAudience is not looked at",
    ]

    async def scenario(runtime: Runtime) -> None:
        assert loaded.authentication is not None
        await OpenedAuthentication(runtime, loaded.authentication).open()

    in_world(scenario)


def test_values_of_secret_keys_are_shown_nowhere() -> None:
    secret = in_text(SECRET)
    texts = [f"authenticationProviders={TOKEN},{BASIC}", f"tokenSecretKey={secret}", f"basicAuthConf={secret}"]
    config = load_config(overrides=["authenticationEnabled=true", *texts, f"gemingaTokenSecondSecretKey={secret}"])
    assert config.values()["tokenSecretKey"] == "......"
    for shape in (repr(config), str(config.values()), str(config.authentication)):
        assert secret not in shape
        assert secret.partition(",")[2] not in shape


def test_file_that_changes_is_read_again_and_one_that_can_not_be_used_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(runtime: Runtime) -> None:
        disk = runtime.disk
        await disk.write_file("conf/secret.key", SECRET)
        config = config_of(
            f"authenticationProviders={TOKEN}",
            "tokenSecretKey=file:conf/secret.key",
            "gemingaCredentialFilesRefreshSeconds=10",
        )
        opened = OpenedAuthentication(runtime, config)
        await opened.open()
        opened.start()
        await disk.write_file("conf/secret.key", b"short")
        await pass_s(25)
        assert verdict(opened, "token", token_of("jane")) == Known("jane")
        lines = [record.getMessage() for record in caplog.records]
        assert lines == [
            "tokenSecretKey: conf/secret.key: the key has 40 bits; expected at least 256; what was read before holds"
        ]
        await disk.write_file("conf/secret.key", OTHER_SECRET)
        await pass_s(11)
        assert isinstance(verdict(opened, "token", token_of("jane")), Rejected)
        assert verdict(opened, "token", token_of("jane", secret=OTHER_SECRET)) == Known("jane")
        await opened.close()
        await disk.write_file("conf/secret.key", SECRET)
        await pass_s(25)
        assert isinstance(verdict(opened, "token", token_of("jane")), Rejected)

    in_world(scenario)


def test_files_are_read_when_an_operator_says_so_and_what_is_wrong_is_said_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")

    async def scenario(runtime: Runtime) -> None:
        disk = runtime.disk
        await disk.write_file("conf/secret.key", SECRET)
        await disk.write_file("conf/users", b"jane:ab7Wl3zw4JrNg\n")
        config = config_of(
            f"authenticationProviders={TOKEN},{BASIC}",
            "tokenSecretKey=conf/secret.key",
            "basicAuthConf=conf/users",
            "gemingaCredentialFilesRefreshSeconds=0",
        )
        opened = OpenedAuthentication(runtime, config)
        await opened.open()
        opened.start()
        await disk.write_file("conf/secret.key", OTHER_SECRET)
        await pass_s(1000)
        assert verdict(opened, "token", token_of("jane")) == Known("jane")
        await opened.refresh(again=True)
        assert verdict(opened, "token", token_of("jane", secret=OTHER_SECRET)) == Known("jane")
        # One file that is broken: neither is taken.
        await disk.write_file("conf/users", b"jane\n")
        await disk.write_file("conf/secret.key", SECRET)
        for _ in range(2):
            await opened.refresh(again=True)
        assert verdict(opened, "token", token_of("jane", secret=OTHER_SECRET)) == Known("jane")
        await disk.write_file("conf/users", b"jim:ab7Wl3zw4JrNg\n")
        await opened.refresh(again=True)
        await opened.refresh(again=True)
        assert verdict(opened, "token", token_of("jane")) == Known("jane")

    in_world(scenario)
    lines = [record.getMessage().split(":")[0] for record in caplog.records]
    assert lines == ["read again", "basicAuthConf", "basicAuthConf", "read again", "nothing new"]


def test_token_gives_all_its_roles_where_they_are_asked_for() -> None:
    async def scenario(runtime: Runtime) -> None:
        config = config_of(
            f"authenticationProviders={TOKEN},{BASIC}",
            f"tokenSecretKey={in_text(SECRET)}",
            f"basicAuthConf={in_text(USERS)}",
            "tokenAuthClaim=roles",
        )
        one, all_of_them = (OpenedAuthentication(runtime, config, takes_all_roles=takes) for takes in (False, True))
        token = create_token(secret_key(SECRET), "HS256", {"roles": ["jane", "team"]}, {}).encode()
        for opened, roles in ((one, None), (all_of_them, frozenset({"jane", "team"}))):
            await opened.open()
            assert verdict(opened, "token", token) == Known("jane", roles=roles)
        # Also after the files were read again.
        await all_of_them.refresh()
        assert verdict(all_of_them, "token", token) == Known("jane", roles=frozenset({"jane", "team"}))

    in_world(scenario)


async def pass_s(seconds: float) -> None:
    from geminga.runtime import wait_ms

    await wait_ms(seconds * 1000)
