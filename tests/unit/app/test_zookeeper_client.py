"""``metadataStoreConfigPath``: ZooKeeper's own client properties, and what is refused of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from geminga.app.configuration.bookie_config import load_bookie_config
from geminga.app.configuration.cluster_config import load_broker_config
from geminga.app.configuration.zookeeper_client import with_client_config
from geminga.metadata.core.zookeeper_address import ZooKeeperAddress
from geminga.metadata.core.zookeeper_credentials import Scheme, ZooKeeperCredentials
from geminga.metadata.core.zookeeper_tls import ZooKeeperTls
from geminga.metadata.zookeeper.tls import followed_tls
from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret
from support.processes.certificates import Authority

ADDRESS = ZooKeeperAddress(("h:1",))


def written(directory: Path, **lines: object) -> str:
    path = directory / "zookeeper.properties"
    path.write_text("".join(f"zookeeper.{key.replace('_', '.')}={value}\n" for key, value in lines.items()))
    return str(path)


def refusal(directory: Path, **lines: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        with_client_config(ADDRESS, written(directory, **lines))
    return str(caught.value)


def test_no_file_and_nothing_asked_for_is_a_plain_connection(tmp_path: Path) -> None:
    assert with_client_config(ADDRESS, "") == ADDRESS
    assert with_client_config(ADDRESS, written(tmp_path)) == ADDRESS
    assert with_client_config(ADDRESS, written(tmp_path, client_secure="false", ssl_crl="false")) == ADDRESS


def test_stores_and_names(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    store = authority.store("client", password="secret")
    (tmp_path / "password").write_text("secret\n")
    common = {"client_secure": "TRUE", "ssl_trustStore_location": authority.certificate, "ssl_keyStore_location": store}
    expected = ZooKeeperTls(str(authority.certificate), str(store), "secret")
    for more in ({"ssl_keyStore_password": "secret"}, {"ssl_keyStore_passwordPath": tmp_path / "password"}):
        found = with_client_config(ADDRESS, written(tmp_path, **common, **more))
        assert found.tls == expected
        assert "secret" not in f"{found} {found!r}"
    found = with_client_config(ADDRESS, written(tmp_path, client_secure="true", ssl_hostnameVerification="false"))
    assert found.tls == ZooKeeperTls(checks_hostname=False)


def test_what_is_refused_names_its_property_and_loses_no_protection(tmp_path: Path) -> None:
    assert "zookeeper.client.secure=perhaps: expected true or false" in refusal(tmp_path, client_secure="perhaps")
    # Stores without TLS: somebody believes that it is on.
    assert "expected zookeeper.client.secure=true" in refusal(tmp_path, ssl_trustStore_location="/t.pem")
    for name in ("store.jks", "store.p12", "store"):
        assert "expected a PEM file" in refusal(tmp_path, client_secure="true", ssl_keyStore_location=name)
    assert "expected a PEM file" in refusal(
        tmp_path, client_secure="true", ssl_keyStore_location="a.pem", ssl_keyStore_type="JKS"
    )
    for key in ("ssl_enabledProtocols", "ssl_ocsp", "cilent_secure"):
        assert f"zookeeper.{key.replace('_', '.')} is not known here; expected one of" in refusal(
            tmp_path, client_secure="true", **{key: "true"}
        )


def test_who_the_client_is_stands_in_files_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "zookeeper.properties"
    path.write_text(f"java.security.auth.login.config={tmp_path}/jaas.conf\nzookeeper.sasl.client.username=zk\n")
    with pytest.raises(ConfigurationError, match=r"java\.security\.auth\.login\.config=.*jaas\.conf: No such file"):
        with_client_config(ADDRESS, str(path))
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    (tmp_path / "jaas.conf").write_text(f'Client {{ {module} required username="jane" password="hidden1"; }};')
    found = with_client_config(ADDRESS, str(path))
    assert found.credentials == ZooKeeperCredentials(Scheme.SASL, "jane", Secret("hidden1"))
    assert found.tls is None
    (tmp_path / "jaas.conf").write_text("Client { x required; };")
    with pytest.raises(ConfigurationError, match=r"jaas\.conf: section Client: x is not known"):
        with_client_config(ADDRESS, str(path))
    path.write_text(f"geminga.zookeeper.digestPath={tmp_path}/digest\n")
    (tmp_path / "digest").write_text("jim:hidden2\n")
    found = with_client_config(ADDRESS, str(path))
    assert found.credentials == ZooKeeperCredentials(Scheme.DIGEST, "jim", Secret("hidden2"))
    assert "hidden2" not in f"{found} {found!r}"
    (tmp_path / "digest").write_bytes(b"hidden2\xff")
    with pytest.raises(ConfigurationError, match=r"digestPath=.*no text in UTF-8") as caught:
        with_client_config(ADDRESS, str(path))
    assert "hidden2" not in str(caught.value)


def test_files_that_can_not_be_used_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        with_client_config(ADDRESS, str(tmp_path / "nothing"))
    authority = Authority(tmp_path, "authority")
    store = authority.store("client", password="secret")
    (tmp_path / "empty.pem").write_text("")
    for lines, expected in (
        ({"ssl_trustStore_location": tmp_path / "none.pem"}, "none.pem: No such file"),
        ({"ssl_trustStore_location": tmp_path / "empty.pem"}, "empty.pem: "),
        ({"ssl_keyStore_location": authority.certificate}, "authority.pem: "),
        ({"ssl_keyStore_location": store}, "client.pem: "),
        ({"ssl_keyStore_location": store, "ssl_keyStore_password": "wrong"}, "client.pem: "),
        ({"ssl_keyStore_location": store, "ssl_keyStore_passwordPath": tmp_path / "none"}, "none: No such file"),
    ):
        told = refusal(tmp_path, client_secure="true", **lines)
        assert expected in told
        assert "expected a" in told
        assert "secret" not in told


def test_processes_take_it(tmp_path: Path) -> None:
    path = written(tmp_path, client_secure="true")
    bookie = load_bookie_config(overrides=["metadataServiceUri=zk:h:1", f"metadataStoreConfigPath={path}"])
    assert bookie.metadata is not None
    assert bookie.metadata.tls == ZooKeeperTls()
    assert bookie.warnings == ()
    broker = load_broker_config(
        overrides=[
            "metadataStoreUrl=zk:h:1",
            "bookkeeperMetadataServiceUri=zk+hierarchical://b:1/ledgers",
            f"metadataStoreConfigPath={path}",
        ]
    )
    assert broker.metadata.tls == broker.ledgers.tls == ZooKeeperTls()
    assert not any("metadataStoreConfigPath" in warning for warning in broker.config.warnings)


def test_next_connection_takes_the_files_that_are_there_then(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path, "authority")
    store = authority.store("client")
    followed = followed_tls(ZooKeeperTls(str(authority.certificate), str(store)))
    first = followed.context()
    assert followed.context() is first
    store.write_bytes(authority.store("renewed certificate").read_bytes())
    second = followed.context()
    assert second is not first
    store.write_text("half of it")
    assert followed.context() is second
    assert "TLS to ZooKeeper: zookeeper.ssl.keyStore.location=" in caplog.text
    with pytest.raises(ConfigurationError, match=r"zookeeper\.ssl\.keyStore\.location="):
        followed_tls(ZooKeeperTls(str(authority.certificate), str(store)))
