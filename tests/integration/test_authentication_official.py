"""Tokens and passwords with the official client, unchanged, against a process that asks who is there."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import ClassVar

import pulsar
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_der_public_key

import geminga
from geminga.model.errors import ConfigurationError
from geminga.security.key_pairs import new_key_pair
from geminga.security.keys import private_key
from geminga.security.token_rules import create_token
from support.house.signing import OTHER_SECRET, SECRET, in_text, token_of, web_key
from support.processes.official import quiet_client
from support.processes.web_answers import Answering, Served

pytestmark = pytest.mark.integration

PACKAGE = "org.apache.pulsar.broker.authentication."
#: Seconds that a token of one who renews it is good, and how often it is renewed here.
LIFE_S = 4.0
RENEWALS = 3
TOPIC = "persistent://public/default/known"


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[geminga.Standalone]:
    """A standalone with both providers; users by a file of Apache's htpasswd."""
    directory = tmp_path_factory.mktemp("asking")
    (directory / "secret.key").write_bytes(SECRET)
    # Password ``hello:wörld`` by apr1.
    (directory / ".htpasswd").write_text("joe:$apr1$r31.....$yUiqu3UQ5QvvGIpCWfh5y1\n")
    config = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{PACKAGE}AuthenticationProviderToken,{PACKAGE}AuthenticationProviderBasic",
        "tokenSecretKey": f"file://{directory}/secret.key",
        "tokenAllowedClockSkewSeconds": "1",
        "basicAuthConf": str(directory / ".htpasswd"),
    }
    with geminga.Standalone(directory / "data", config=config) as running:
        yield running


def good_token(_: object = None) -> str:
    return token_of("jane", exp=time.time() + 1000).decode()


GOOD = {
    "token": lambda: pulsar.AuthenticationToken(good_token()),
    "callable": lambda: pulsar.AuthenticationToken(good_token),
    "password": lambda: pulsar.AuthenticationBasic("joe", "hello:wörld"),
}
WRONG = {
    "foreign": lambda: pulsar.AuthenticationToken(token_of("jane", secret=OTHER_SECRET).decode()),
    "expired": lambda: pulsar.AuthenticationToken(token_of("jane", exp=1).decode()),
    "password": lambda: pulsar.AuthenticationBasic("joe", "wrong"),
    "unknown": lambda: pulsar.AuthenticationBasic("jane", "hello"),
}


@pytest.mark.parametrize("protocol", ["binary", "http"])
@pytest.mark.parametrize("how", GOOD)
def test_client_that_is_known_sends_and_receives(
    asking: geminga.Standalone, how: str, protocol: str, tmp_path: Path
) -> None:
    url = asking.service_url if protocol == "binary" else asking.web_service_url
    client = quiet_client(url, tmp_path, authentication=GOOD[how]())
    consumer = client.subscribe(TOPIC, f"{how}-{protocol}")
    client.create_producer(TOPIC).send(how.encode())
    assert consumer.receive(timeout_millis=10_000).data() == how.encode()
    client.close()


@pytest.mark.parametrize("how", WRONG)
def test_client_that_is_not_known_is_told_so(asking: geminga.Standalone, how: str, tmp_path: Path) -> None:
    client = quiet_client(asking.web_service_url, tmp_path, authentication=WRONG[how]())
    with pytest.raises((pulsar.exceptions.AuthenticationError, pulsar.exceptions.ConnectError)):
        client.create_producer("persistent://public/default/unknown")
    client.close()


@pytest.mark.parametrize("authentication", [None, WRONG["foreign"]])
def test_client_that_is_not_known_makes_nothing(asking: geminga.Standalone, authentication, tmp_path: Path) -> None:
    """Whatever it is told in the handshake, it tries again until its time is up."""
    more = {} if authentication is None else {"authentication": authentication()}
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, str(tmp_path / "client.log"))
    client = pulsar.Client(asking.service_url, logger=logger, operation_timeout_seconds=1, **more)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/default/unknown")
    client.close()
    listed = urllib.request.Request(
        f"{asking.web_service_url}/admin/v2/persistent/public/default",
        headers={"Authorization": f"Bearer {good_token()}"},
    )
    with urllib.request.urlopen(listed) as answer:
        assert b"unknown" not in answer.read()


def test_client_that_renews_its_token_keeps_its_connection(asking: geminga.Standalone, tmp_path: Path) -> None:
    """Its callable is asked again for each challenge, which comes before the end of the token before."""
    renewed, asked_s = threading.Event(), []

    def token() -> str:
        asked_s.append(time.monotonic())
        if len(asked_s) > RENEWALS:
            renewed.set()
        return token_of("jane", exp=time.time() + LIFE_S).decode()

    client = quiet_client(asking.service_url, tmp_path, authentication=pulsar.AuthenticationToken(token))
    consumer = client.subscribe(TOPIC, "renewed")
    producer = client.create_producer(TOPIC)
    assert renewed.wait(RENEWALS * LIFE_S * 2)
    # Not because it was cut and came again: that would be no sooner than each token's end.
    assert asked_s[-1] - asked_s[0] < RENEWALS * LIFE_S
    producer.send(b"after")
    assert consumer.receive(timeout_millis=10_000).data() == b"after"
    assert consumer.is_connected()
    client.close()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_tokens_of_a_private_key_are_verified_by_the_public_one(algorithm: str, tmp_path: Path) -> None:
    private, public = new_key_pair(algorithm)
    config = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{PACKAGE}AuthenticationProviderToken",
        "tokenPublicKey": in_text(public),
        "tokenPublicAlg": algorithm,
        "tokenAuthClaim": "role",
    }
    token = create_token(private_key(private), algorithm, {"role": "jane"}, {})
    with geminga.Standalone(tmp_path / "data", config=config) as running:
        client = quiet_client(running.service_url, tmp_path, authentication=pulsar.AuthenticationToken(token))
        client.create_producer(TOPIC).send(b"x")
        client.close()


class Issuer(Answering):
    """An issuer of OpenID Connect on this machine."""

    documents: ClassVar[dict[str, object]] = {}

    def do_GET(self) -> None:
        self.answer(json.dumps(self.documents[self.path]).encode())


def test_tokens_of_an_issuer_are_verified_by_the_keys_that_it_lists(tmp_path: Path) -> None:
    private, public = new_key_pair("ES256")
    issuer = Served(HTTPServer(("127.0.0.1", 0), Issuer))
    url = issuer.url
    key = load_der_public_key(public)
    assert isinstance(key, ec.EllipticCurvePublicKey)
    Issuer.documents = {
        "/.well-known/openid-configuration": {"issuer": url, "jwks_uri": f"{url}/keys"},
        "/keys": {"keys": [web_key(key, "one")]},
    }
    config = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{PACKAGE}AuthenticationProviderToken,{PACKAGE}oidc.AuthenticationProviderOpenID",
        "tokenSecretKey": in_text(SECRET),
        "openIDAllowedTokenIssuers": url,
        "openIDAllowedAudiences": "geminga",
        "openIDRequireIssuersUseHttps": "false",
    }
    now_s = time.time()
    claims = {"iss": url, "aud": "geminga", "sub": "jane", "iat": now_s, "exp": now_s + 1000}
    token = create_token(private_key(private), "ES256", claims, {"kid": "one"})
    with issuer, geminga.Standalone(tmp_path / "data", config=config) as running:
        for one in (token, good_token()):
            client = quiet_client(running.service_url, tmp_path, authentication=pulsar.AuthenticationToken(one))
            client.create_producer(TOPIC).send(b"x")
            client.close()


def test_start_with_a_key_that_is_not_there_says_which(tmp_path: Path) -> None:
    config = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{PACKAGE}AuthenticationProviderToken",
        "tokenSecretKey": f"file://{tmp_path}/none.key",
    }
    with pytest.raises(ConfigurationError, match=r"tokenSecretKey: .*/none\.key: there is no such file"):
        geminga.Standalone(tmp_path / "data", config=config).start()
