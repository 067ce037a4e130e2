"""Providers out of the configuration: what is wrong with a key or a file is said before anything listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.ports import Access
from geminga.broker.authentication.authentication import Authentication
from geminga.broker.authentication.certificates import CertificateProvider
from geminga.broker.authentication.class_names import ProviderKind, kinds_of
from geminga.broker.authentication.config import AuthenticationConfig
from geminga.broker.authentication.files import Text, read_all, where
from geminga.broker.authentication.outcomes import Outcomes
from geminga.broker.authentication.passwords import LANE, Compute, PasswordProvider
from geminga.broker.authentication.ports import Provider
from geminga.broker.authentication.tokens import TokenProvider
from geminga.model.errors import ConfigurationError
from geminga.model.extras import MissingExtraError, check_installed
from geminga.runtime import Runtime, get_logger, spawn, wait_ms
from geminga.security.htpasswd import PasswordFile, parse_password_file
from geminga.security.keys import Verifier, public_key, secret_key
from geminga.security.token_rules import TokenRules

if TYPE_CHECKING:
    from geminga.broker.authentication.openid import OpenIdProvider

_log = get_logger(__name__)

T = TypeVar("T")

_SECRET_KEYS: Final = ("tokenSecretKey", "gemingaTokenSecondSecretKey")
_PUBLIC_KEYS: Final = ("tokenPublicKey", "gemingaTokenSecondPublicKey")
_PASSWORDS: Final = "basicAuthConf"


class OpenedAuthentication:
    """Providers, and the files that they were made of."""

    def __init__(
        self,
        runtime: Runtime,
        config: AuthenticationConfig,
        *,
        compute: Compute | None = None,
        takes_all_roles: bool = False,
    ) -> None:
        """``compute``: what is slow, elsewhere; None: on a thread of ``runtime``.

        ``takes_all_roles``: whether a token gives each role that its claim names, not the first alone.
        """
        self._takes_all_roles = takes_all_roles
        self._runtime = runtime
        self._config = config
        self._compute = compute or partial(runtime.threads.call, LANE)
        self._texts: Mapping[str, Text] = {}
        self._data: dict[str, bytes] = {}
        #: What the log said last of the files.
        self._told = ""
        self._tokens: TokenProvider | None = None
        self._passwords: PasswordProvider | None = None
        self._openid: OpenIdProvider | None = None
        self._looking: asyncio.Task[None] | None = None
        #: One reading at a time: an older one must not be the last word.
        self._reading = asyncio.Lock()
        #: Set by :meth:`open`.
        self.authentication: Authentication

    async def open(self) -> Access:
        """Read everything; who is let in may do everything. Raises ConfigurationError with key, file and reason."""
        config = self._config
        kinds = kinds_of(config.providers)
        self._texts = _named_by(config, kinds)
        self._data = await read_all(self._runtime.disk, self._texts)
        providers: list[Provider] = []
        for kind in kinds:
            if kind is ProviderKind.TOKEN:
                self._tokens = TokenProvider(self._token_rules(self._data), self._runtime.clock)
                providers.append(self._tokens)
            elif kind is ProviderKind.BASIC:
                self._passwords = PasswordProvider(password_file(self._data, self._texts), self._compute)
                providers.append(self._passwords)
            elif kind is ProviderKind.OPENID:
                self._openid = openid_provider(self._runtime, config, takes_all_roles=self._takes_all_roles)
                providers.append(self._openid)
            else:
                providers.append(CertificateProvider())
        self.authentication = Authentication(
            providers,
            Outcomes(self._runtime.clock),
            anonymous_role=config.anonymous_role,
            is_strict=config.strict_method,
        )
        return Access(
            authenticator=self.authentication,
            authorizer=ANONYMOUS_MAY,
            proxy_roles=frozenset(config.proxy_roles),
            verifies_original=config.verifies_original,
            refresh_s=config.refresh_check_s,
            authenticates_metrics=config.authenticates_metrics,
            metrics=self.authentication.metrics,
        )

    def start(self) -> None:
        """Look at the files again from now on."""
        if self._config.files_refresh_s and self._texts:
            self._looking = spawn(self._look_again(), name="files of credentials")

    async def close(self) -> None:
        """Look and ask no more."""
        if self._openid is not None:
            await self._openid.close()
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def refresh(self, *, again: bool = False) -> None:
        """Take what the files hold now, if it can be used; else say so.

        ``again``: an operator asks (SIGHUP). Then what is wrong is said though it was said before, that nothing changed
        is said, too, and keys of issuers are asked for anew.
        """
        if again and self._openid is not None:
            self._openid.read_again()
        async with self._reading:
            await self._refresh(again=again)

    async def _refresh(self, *, again: bool) -> None:
        try:
            data = await read_all(self._runtime.disk, self._texts)
            if data == self._data:
                self._told = ""
                if again and self._texts:
                    _log.info("nothing new: %s", ", ".join(self._texts))
                return
            rules = None if self._tokens is None else self._token_rules(data)
            users = None if self._passwords is None else password_file(data, self._texts)
        except (ConfigurationError, MissingExtraError) as error:
            told = f"{error}; what was read before holds"
            if told != self._told or again:
                self._told = told
                _log.error("%s", told)
            return
        changed = [key for key, value in data.items() if value != self._data[key]]
        self._data, self._told = data, ""
        if self._tokens is not None and rules is not None:
            self._tokens.rules = rules
        if self._passwords is not None and users is not None:
            self._passwords.users = users
        _log.info("read again: %s", ", ".join(changed))

    def _token_rules(self, data: Mapping[str, bytes]) -> TokenRules:
        rules = token_rules(self._config, data, self._texts)
        return replace(rules, takes_all_roles=self._takes_all_roles)

    async def _look_again(self) -> None:
        while True:
            await wait_ms(1000 * self._config.files_refresh_s)
            await self.refresh()


def token_rules(config: AuthenticationConfig, data: Mapping[str, bytes], texts: Mapping[str, Text]) -> TokenRules:
    """Rules with the keys in ``data``. Raises ConfigurationError."""
    keys: list[Verifier] = [_made(key, data, texts, secret_key) for key in _SECRET_KEYS if key in data]
    for key in _PUBLIC_KEYS:
        if key in data:
            made = _made(key, data, texts, public_key)
            if key == "tokenPublicKey" and made.family is not config.token_public_family():
                raise ConfigurationError(
                    f"{key}: {where(texts[key])} is a key of {made.family.value}, and tokenPublicAlg="
                    f"{config.token_public_algorithm}; expected tokenPublicAlg to be one of "
                    f"{', '.join(sorted(made.algorithms))}"
                )
            keys.append(made)
    return TokenRules(
        keys=tuple(keys),
        role_claim=config.token_auth_claim,
        audience_claim=config.token_audience_claim,
        audiences=frozenset({config.token_audience}),
        skew_s=config.token_skew_s,
    )


def openid_provider(runtime: Runtime, config: AuthenticationConfig, *, takes_all_roles: bool = False) -> OpenIdProvider:
    """With the issuers of the configuration, none of which was asked yet. Raises ConfigurationError."""
    # Not loaded by who has none.
    from geminga.broker.authentication.issuer_http import IssuerHttp
    from geminga.broker.authentication.issuers import Issuer, IssuerTimes
    from geminga.broker.authentication.openid import OpenIdProvider
    from geminga.security.openid import OpenIdRules

    check_installed("cryptography", "AuthenticationProviderOpenID")
    http = IssuerHttp(runtime, config.openid_trust_file)
    times = IssuerTimes(config.openid_cache_refresh_s, config.openid_cache_expire_s, config.openid_cache_miss_s)
    issuers = {
        name: Issuer(name, http.get, runtime.clock, times, needs_https=config.openid_requires_https)
        for name in config.openid_issuers
    }
    rules = OpenIdRules(
        audiences=frozenset(config.openid_audiences),
        role_claim=config.openid_role_claim,
        skew_s=config.openid_skew_s,
        takes_all_roles=takes_all_roles,
    )
    return OpenIdProvider(issuers, rules, runtime.clock)


def password_file(data: Mapping[str, bytes], texts: Mapping[str, Text]) -> PasswordFile:
    """Users. Raises ConfigurationError."""
    return _made(_PASSWORDS, data, texts, parse_password_file)


def _made(key: str, data: Mapping[str, bytes], texts: Mapping[str, Text], make: Callable[[bytes], T]) -> T:
    try:
        return make(data[key])
    except ValueError as error:
        raise ConfigurationError(f"{key}: {where(texts[key])}: {error}") from None


def _named_by(config: AuthenticationConfig, kinds: list[ProviderKind]) -> dict[str, Text]:
    """Configuration key -> value, of those whose bytes are used."""
    texts: dict[str, Text] = {}
    if ProviderKind.TOKEN in kinds:
        texts["tokenSecretKey"] = config.token_secret_key
        # Pulsar looks for the public key only where there is no secret.
        texts["tokenPublicKey"] = "" if config.token_secret_key else config.token_public_key
        texts["gemingaTokenSecondSecretKey"] = config.token_second_secret_key
        texts["gemingaTokenSecondPublicKey"] = config.token_second_public_key
    if ProviderKind.BASIC in kinds:
        texts[_PASSWORDS] = config.basic_auth_conf
    return {key: text for key, text in texts.items() if text}
