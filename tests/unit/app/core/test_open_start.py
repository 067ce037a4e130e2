"""Which process starts where: bind address x authentication x gemingaAllowOpen, and what a refusal says."""

from __future__ import annotations

import asyncio
from itertools import product
from pathlib import Path

import pytest

from geminga import Standalone
from geminga.app.configuration.bookie_config import load_bookie_config
from geminga.app.configuration.bookie_tls_config import AUTH_FACTORY, FACTORY
from geminga.app.configuration.server_config import ServerConfig
from geminga.app.servers.autorecovery_process import load_autorecovery_config
from geminga.app.servers.bookie_server import BookieProcessServer, check_bookie_start
from geminga.app.servers.core.addresses import is_loopback
from geminga.app.servers.core.open_start import OF_BROKER, Opening, check_start
from geminga.app.servers.listeners import check_open_start
from geminga.model.errors import ConfigurationError, GemingaError

LOOPBACK = ("127.0.0.1", "127.9.9.9", "localhost", "::1")
OUTSIDE = ("0.0.0.0", "::", "*", "", "10.0.0.7", "broker.example.org", "127.example.org", "127.0.0.1.example.org")


@pytest.mark.parametrize("host", [*LOOPBACK, *OUTSIDE])
@pytest.mark.parametrize(("is_authenticated", "may_be_open"), [*product([False, True], repeat=2)])
def test_broker_starts_beyond_loopback_with_authentication_or_where_it_is_meant(
    host: str, is_authenticated: bool, may_be_open: bool
) -> None:
    """Standalone, broker of a cluster, brokers of one standalone: all look here first."""
    starts = host in LOOPBACK or is_authenticated or may_be_open
    assert is_loopback(host) == (host in LOOPBACK)
    for config in (
        ServerConfig(bind_address=host, authentication=is_authenticated, may_be_open=may_be_open),
        ServerConfig(
            bind_addresses=(f"far:http://{f'[{host}]' if ':' in host else host}:80",),
            authentication=is_authenticated,
            may_be_open=may_be_open,
        ),
    ):
        if config.bind_addresses and host in ("", "*"):
            continue  # no URL has such a host
        if starts:
            check_open_start(config)
        else:
            with pytest.raises(ConfigurationError, match="There is no authentication here"):
                check_open_start(config)


def test_refusal_says_which_keys_and_what_to_do() -> None:
    places = [Opening("bindAddress", "0.0.0.0", OF_BROKER), Opening("bindAddresses", "10.0.0.7", OF_BROKER)]
    with pytest.raises(ConfigurationError) as caught:
        check_start([*places, *places], is_authenticated=False, may_be_open=False)
    assert str(caught.value) == (
        "bindAddress=0.0.0.0: whoever reaches this machine can read, write and delete everything; "
        "bindAddresses=10.0.0.7: whoever reaches this machine can read, write and delete everything. "
        "There is no authentication here, so that "
        "this does not start; expected an address of this machine alone (127.0.0.1), authenticationEnabled=true, or "
        "gemingaAllowOpen=true where the network keeps strangers away"
    )


def test_standalone_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    settings = {"bindAddress": "0.0.0.0"}
    with pytest.raises(GemingaError, match=r"bindAddress=0\.0\.0\.0: whoever reaches"):
        Standalone(data_dir=tmp_path / "data", config=settings).__enter__()
    assert not [*tmp_path.glob("data/*")]


BOOKIE = {
    "bindAddress": "read all entries",
    "httpServerHost": "read metrics and state",
    "prometheusStatsHttpAddress": "read metrics and state",
}
HTTP = {
    "httpServerHost": ["httpServerEnabled=true"],
    "prometheusStatsHttpAddress": [
        "prometheusStatsHttpEnable=true",
        "statsProviderClass=org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider",
    ],
}


@pytest.mark.parametrize("key", BOOKIE)
def test_bookie_is_refused_beyond_loopback_unless_it_is_meant(key: str, tmp_path: Path) -> None:
    settings = [f"{key}=0.0.0.0", *HTTP.get(key, [])]
    config = load_bookie_config([], {}, settings)

    def on_fatal(part: str, error: BaseException) -> None:
        raise AssertionError(f"{part}: {error}")

    with pytest.raises(ConfigurationError, match=rf"{key}=0\.0\.0\.0: whoever reaches this machine can {BOOKIE[key]}"):
        asyncio.run(BookieProcessServer(config, str(tmp_path / "b"), on_fatal=on_fatal).start())
    assert not (tmp_path / "b").exists()


KNOWN_BY_CERTIFICATE = {
    "bindAddress": [
        f"tlsProviderFactoryClass={FACTORY}",
        f"bookieAuthProviderFactoryClass={AUTH_FACTORY}",
        "authorizedRoles=broker",
    ],
    **{key: [*HTTP[key], "httpServerTlsEnable=true", "httpServerTrustStorePath=/trust"] for key in HTTP},
}


@pytest.mark.parametrize("key", BOOKIE)
def test_bookie_that_knows_its_clients_starts_beyond_loopback(key: str) -> None:
    check_bookie_start(load_bookie_config([], {}, [f"{key}=0.0.0.0", *KNOWN_BY_CERTIFICATE[key]]))
    # TLS alone says nothing of who a client is.
    alone = [text for text in KNOWN_BY_CERTIFICATE[key] if not text.startswith(("book", "auth", "httpServerTrust"))]
    with pytest.raises(ConfigurationError, match=rf"{key}=0\.0\.0\.0: whoever reaches"):
        check_bookie_start(load_bookie_config([], {}, [f"{key}=0.0.0.0", *alone]))


@pytest.mark.parametrize("key", HTTP)
def test_autorecovery_is_refused_beyond_loopback_unless_it_is_meant(key: str) -> None:
    settings = ["metadataServiceUri=zk:127.0.0.1:2181", f"{key}=0.0.0.0", *HTTP[key]]
    with pytest.raises(ConfigurationError, match=rf"{key}=0\.0\.0\.0"):
        load_autorecovery_config([], {}, settings)
    config = load_autorecovery_config([], {}, [*settings, "gemingaAllowOpen=true"])
    assert config.http is not None
    assert config.http.host == "0.0.0.0"
    load_autorecovery_config([], {}, [*settings, *KNOWN_BY_CERTIFICATE[key]])
    # It listens nowhere else.
    load_autorecovery_config([], {}, ["metadataServiceUri=zk:127.0.0.1:2181", "bindAddress=0.0.0.0"])
