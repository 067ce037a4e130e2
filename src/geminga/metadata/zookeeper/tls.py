"""The TLS context of a connection to ZooKeeper, and one that follows its files."""

from __future__ import annotations

import ssl

from geminga.metadata.core.zookeeper_tls import KEY_PASSWORD, KEY_STORE, TRUST_STORE, ZooKeeperTls
from geminga.model.errors import ConfigurationError
from geminga.runtime.tls.contexts import Made
from geminga.runtime.tls.following import FollowedContext


def tls_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """TLS 1.2 or newer, servers verified. Raises ConfigurationError that names property and file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.checks_hostname
    if tls.trust_store:
        # These alone: whoever names them trusts no other authority.
        try:
            context.load_verify_locations(tls.trust_store)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{TRUST_STORE}={tls.trust_store}: {_reason(error)}; expected a PEM file of certificates"
            ) from error
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if tls.key_store:
        # Without a password OpenSSL would ask at the terminal.
        password = tls.key_password.encode()
        try:
            context.load_cert_chain(tls.key_store, password=lambda: password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(
                f"{KEY_STORE}={tls.key_store}: {_reason(error)}; expected a PEM file of a key and its certificates, "
                f"and the key's password in {KEY_PASSWORD} if it has one"
            ) from error
    return context


def followed_tls(tls: ZooKeeperTls) -> FollowedContext:
    """The same, read again by a connection that finds other files; raises ConfigurationError now, and later never.

    A ZooKeeper is connected to for as long as it lives, so that files are looked at when another server is taken.
    """
    return FollowedContext(
        "TLS to ZooKeeper",
        [tls.trust_store, tls.key_store],
        lambda: Made(tls_context(tls), None),
        at_each=True,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(getattr(error, "strerror", None) or error)
