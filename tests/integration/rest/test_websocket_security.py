"""Who may have a WebSocket: tokens in headers and in queries, rights, and what the log has of it."""

from __future__ import annotations

import base64
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from geminga import Standalone
from support.house.signing import OTHER_SECRET, SECRET, token_of

pytestmark = pytest.mark.integration

TOPIC = "persistent/public/default/t"
WAIT_S = 10.0


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A standalone that asks for tokens and rights; jane may consume only, joe both, root everything."""
    directory = tmp_path_factory.mktemp("asking")
    config = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "superUserRoles": "root",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(SECRET).decode()}",
        "gemingaAuditLogFile": str(directory / "audit.log"),
    }
    with Standalone(config=config) as running:
        for role, rights in (("jane", ["consume"]), ("joe", ["produce", "consume"])):
            path = f"{running.web_service_url}/admin/v2/namespaces/public/default/permissions/{role}"
            headers = {"Authorization": f"Bearer {token('root')}", "Content-Type": "application/json"}
            request = urllib.request.Request(path, json.dumps(rights).encode(), headers, method="POST")
            urllib.request.urlopen(request).close()
        yield running


def token(role: str, **claims: object) -> str:
    return token_of(role, **claims).decode()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def opened(stack: ExitStack, broker: Standalone, path: str, bearer: str = "") -> ClientConnection:
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else None
    url = f"ws://127.0.0.1:{broker.web_port}/ws/v2/{path}"
    return stack.enter_context(connect(url, additional_headers=headers))


def refused(stack: ExitStack, broker: Standalone, path: str, bearer: str = "") -> int:
    with pytest.raises(InvalidStatus) as error:
        opened(stack, broker, path, bearer)
    return error.value.response.status_code


def test_token_is_taken_from_the_header_and_from_the_query(asking: Standalone, stack: ExitStack) -> None:
    producer = opened(stack, asking, f"producer/{TOPIC}", token("joe"))
    consumer = opened(stack, asking, f"consumer/{TOPIC}/s?token={token('jane')}")
    producer.send('{"payload":"YQ=="}')
    assert json.loads(producer.recv(timeout=WAIT_S))["result"] == "ok"
    assert json.loads(consumer.recv(timeout=WAIT_S))["payload"] == "YQ=="


def test_who_is_not_known_or_may_not_has_no_socket(asking: Standalone, stack: ExitStack) -> None:
    foreign = token_of("joe", secret=OTHER_SECRET).decode()
    for path in (f"producer/{TOPIC}", f"consumer/{TOPIC}/s", f"reader/{TOPIC}", "pingpong"):
        assert refused(stack, asking, path) == 401
        assert refused(stack, asking, f"{path}?token={foreign}") == 401
        assert refused(stack, asking, path, token("joe", exp=1)) == 401
    assert refused(stack, asking, f"producer/{TOPIC}", token("jane")) in (401, 403)
    assert refused(stack, asking, f"reader/{TOPIC}", token("nobody")) in (401, 403)
    # Who may consume alone sends no dead letters wherever it names.
    letters = (
        f"consumer/{TOPIC}/s?subscriptionType=Shared&maxRedeliverCount=1&deadLetterTopic=persistent://public/default/x"
    )
    assert refused(stack, asking, letters, token("jane")) in (401, 403)
    opened(stack, asking, letters, token("joe"))


def test_other_paths_take_no_token_from_the_query(asking: Standalone) -> None:
    url = f"{asking.web_service_url}/admin/v2/clusters?token={token('root')}"
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(url)
    assert error.value.code == 401
    error.value.close()


def test_several_topics_are_asked_about_one_by_one(asking: Standalone, stack: ExitStack) -> None:
    url = f"ws://127.0.0.1:{asking.web_port}/ws/v3/consumer/s?token={token('jane')}"
    stack.enter_context(connect(f"{url}&topics=persistent://public/default/a,persistent://public/default/b"))
    for query in (
        "topics=persistent://public/default/a,persistent://public/functions/b",
        "topicsPattern=persistent://public/functions/.*",
    ):
        with pytest.raises(InvalidStatus) as error:
            connect(f"{url}&{query}").__enter__()
        assert error.value.response.status_code in (401, 403)


def test_socket_ends_when_its_token_does(asking: Standalone, stack: ExitStack) -> None:
    producer = opened(stack, asking, f"producer/{TOPIC}?token={token('joe', exp=time.time() + 1)}")
    with pytest.raises(ConnectionClosed) as closed:
        producer.recv(timeout=WAIT_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4005


def test_token_of_a_query_is_in_no_log(
    asking: Standalone, stack: ExitStack, caplog: pytest.LogCaptureFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = token("joe", jti="in-a-query")
    with caplog.at_level(logging.DEBUG):
        opened(stack, asking, f"consumer/{TOPIC}/logged?token={secret}").close()
        refused(stack, asking, f"producer/{TOPIC}?token={secret}x")
        refused(stack, asking, f"consumer/{TOPIC}/logged?ackTimeoutMillis=x&token={secret}")
    kept = [path.read_text() for path in Path(tmp_path_factory.getbasetemp()).rglob("audit.log*")]
    signature = secret.rpartition(".")[2]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("websockets.client")]
    assert any("/ws/v2/" in line for line in ours)
    assert not [line for line in (*ours, *kept) if signature in line]
