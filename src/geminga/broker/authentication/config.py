"""Settings of authentication: Pulsar's keys and defaults, those of ``ServiceConfiguration`` and of its providers."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.broker.authentication.class_names import KINDS, ProviderKind, kinds_of
from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret
from geminga.model.settings import setting
from geminga.security.algorithms import Family, algorithm_named

_BYTES_PLACE = "a file's path, file:///path, data:;base64,... or base64"


@dataclass(frozen=True, slots=True)
class AuthenticationConfig:
    """How peers prove who they are."""

    providers: tuple[str, ...] = setting("authenticationProviders", (), "class names of Pulsar's providers")
    #: The role of who brings no credentials, or a method that is not there; empty: nobody is anonymous.
    anonymous_role: str = setting("anonymousUserRole", "", "a role")
    proxy_roles: tuple[str, ...] = setting("proxyRoles", (), "roles, comma separated")
    verifies_original: bool = setting("authenticateOriginalAuthData", False, "true or false")
    #: HTTP requests must name their method.
    strict_method: bool = setting("strictAuthMethod", False, "true or false")
    authenticates_metrics: bool = setting("authenticateMetricsEndpoint", False, "true or false")
    #: So long before credentials expire new ones are asked for.
    refresh_check_s: int = setting("authenticationRefreshCheckSeconds", 60, "seconds > 0", minimum=1)
    #: Geminga's own: how often files of keys and passwords are looked at again; 0: never.
    files_refresh_s: int = setting("gemingaCredentialFilesRefreshSeconds", 60, "seconds >= 0, 0: never", minimum=0)

    # ---- tokens
    token_secret_key: Secret = setting("tokenSecretKey", Secret(""), _BYTES_PLACE)
    token_public_key: str = setting("tokenPublicKey", "", _BYTES_PLACE)
    #: Geminga's own: keys that are taken beside the two above, while one of them is replaced.
    token_second_secret_key: Secret = setting("gemingaTokenSecondSecretKey", Secret(""), _BYTES_PLACE)
    token_second_public_key: str = setting("gemingaTokenSecondPublicKey", "", _BYTES_PLACE)
    token_public_algorithm: str = setting(
        "tokenPublicAlg", "RS256", "an algorithm of key pairs: RS256 to RS512, PS256 to PS512, ES256 to ES512, EdDSA"
    )
    token_auth_claim: str = setting("tokenAuthClaim", "sub", "the name of a claim")
    token_audience_claim: str = setting("tokenAudienceClaim", "", "the name of a claim")
    token_audience: str = setting("tokenAudience", "", "a text")
    token_skew_s: int = setting("tokenAllowedClockSkewSeconds", 0, "seconds >= 0", minimum=0, maximum=86_400)
    token_setting_prefix: str = setting("tokenSettingPrefix", "", "nothing: other names of these keys are not read")

    # ---- passwords
    basic_auth_conf: Secret = setting("basicAuthConf", Secret(""), _BYTES_PLACE)

    # ---- OpenID Connect
    openid_issuers: tuple[str, ...] = setting("openIDAllowedTokenIssuers", (), "issuers' URLs, comma separated")
    openid_audiences: tuple[str, ...] = setting("openIDAllowedAudiences", (), "audiences, comma separated")
    openid_trust_file: str = setting("openIDTokenIssuerTrustCertsFilePath", "", "a file of certificates in PEM")
    openid_role_claim: str = setting("openIDRoleClaim", "sub", "the name of a claim")
    openid_skew_s: int = setting("openIDAcceptedTimeLeewaySeconds", 0, "seconds >= 0", minimum=0, maximum=86_400)
    openid_cache_refresh_s: int = setting("openIDCacheRefreshAfterWriteSeconds", 64_800, "seconds > 0", minimum=1)
    openid_cache_expire_s: int = setting("openIDCacheExpirationSeconds", 86_400, "seconds > 0", minimum=1)
    openid_cache_miss_s: int = setting("openIDKeyIdCacheMissRefreshSeconds", 300, "seconds >= 0", minimum=0)
    openid_requires_https: bool = setting("openIDRequireIssuersUseHttps", True, "true or false")
    openid_discovery_mode: str = setting(
        "openIDFallbackDiscoveryMode", "DISABLED", "DISABLED: Kubernetes is not asked", choices=("DISABLED",)
    )

    def check(self) -> tuple[str, ...]:
        """What to warn of; raises ConfigurationError for a provider that is not there, and keys that lack another."""
        kinds = kinds_of(self.providers)
        if not kinds and not self.anonymous_role:
            raise ConfigurationError(
                "authenticationEnabled=true, and authenticationProviders is empty: nobody could prove who they are; "
                f"expected {', '.join(KINDS)}"
            )
        if self.anonymous_role and self.anonymous_role in self.proxy_roles:
            raise ConfigurationError(
                f"anonymousUserRole={self.anonymous_role}: it is one of proxyRoles, so that anybody could ask in "
                "everybody's name"
            )
        if ProviderKind.BASIC in kinds and not self.basic_auth_conf:
            raise ConfigurationError("basicAuthConf is not set; expected the file of AuthenticationProviderBasic")
        if ProviderKind.OPENID in kinds:
            self._check_openid()
        return self._check_tokens() if ProviderKind.TOKEN in kinds else ()

    def token_public_family(self) -> Family:
        """What kind of key ``tokenPublicKey`` is, as ``tokenPublicAlg`` says. Raises ConfigurationError."""
        try:
            family = algorithm_named(self.token_public_algorithm).family
        except ValueError as error:
            raise ConfigurationError(f"tokenPublicAlg: {error}") from None
        if family is Family.SECRET:
            raise ConfigurationError(
                f"tokenPublicAlg={self.token_public_algorithm}: it has no public keys; expected RS256 or another of "
                "key pairs. A secret is tokenSecretKey"
            )
        return family

    def _check_openid(self) -> None:
        for key, values in (
            ("openIDAllowedTokenIssuers", self.openid_issuers),
            ("openIDAllowedAudiences", self.openid_audiences),
        ):
            if not values:
                raise ConfigurationError(f"{key} is not set; expected those of AuthenticationProviderOpenID")
        schemes = ("https://",) if self.openid_requires_https else ("https://", "http://")
        for issuer in self.openid_issuers:
            if not issuer.startswith(schemes):
                raise ConfigurationError(
                    f"openIDAllowedTokenIssuers={issuer}: expected {' or '.join(schemes)}..."
                    + ("; openIDRequireIssuersUseHttps=false takes http, too" if self.openid_requires_https else "")
                )

    def _check_tokens(self) -> tuple[str, ...]:
        warnings = []
        if self.token_setting_prefix:
            raise ConfigurationError(
                f"tokenSettingPrefix={self.token_setting_prefix}: keys of other names are not read; expected nothing"
            )
        if not self.token_secret_key and not self.token_public_key:
            raise ConfigurationError(
                "neither tokenSecretKey nor tokenPublicKey is set; expected the key of AuthenticationProviderToken"
            )
        self.token_public_family()
        if self.token_secret_key and self.token_public_key:
            warnings.append(
                "tokenPublicKey is not used, since tokenSecretKey is set, as in Pulsar; gemingaTokenSecondPublicKey is "
                "taken beside it"
            )
        if self.token_audience_claim and not self.token_audience:
            raise ConfigurationError(
                f"tokenAudienceClaim={self.token_audience_claim}: tokenAudience is not set; expected what tokens for "
                "this cluster say there"
            )
        if self.token_audience and not self.token_audience_claim:
            warnings.append("tokenAudience is not looked at, since tokenAudienceClaim is not set, as in Pulsar")
        return tuple(warnings)
