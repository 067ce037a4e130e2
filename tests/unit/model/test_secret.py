"""A secret shows its text to nobody who does not ask for it by name."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from geminga.model.secret import DOTS, Secret, names_secret, shown, shown_path

TEXT = "s3cr3t-of-jane"


@dataclasses.dataclass(frozen=True)
class Config:
    key: Secret


def test_whatever_prints_it_prints_dots() -> None:
    secret = Secret(TEXT)
    error = ValueError("wrong", secret)
    shapes = [
        repr(secret),
        str(secret),
        f"{secret:>30}",
        f"{secret!r}",
        "%s %r" % (secret, secret),  # noqa: UP031
        repr({"key": [secret]}),
        repr(Config(secret)),
        str(dataclasses.asdict(Config(secret))),
        str(error),
        repr(error),
    ]
    assert all(DOTS in shape and TEXT not in shape for shape in shapes)
    assert secret.reveal() == TEXT


def test_it_is_not_pickled() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(Config(Secret(TEXT)), protocol)


def test_copies_are_as_hidden_and_equal() -> None:
    secret = Secret(TEXT)
    assert copy.copy(secret) is secret
    assert copy.deepcopy({"a": secret})["a"] is secret
    assert secret == Secret(TEXT)
    assert hash(secret) == hash(Secret(TEXT))
    assert secret != Secret("other")
    assert secret != TEXT


def test_empty_one_is_none() -> None:
    assert not Secret("")
    assert str(Secret("")) == ""
    assert Secret(TEXT)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/admin/v2/brokers/configuration/brokerClientAuthenticationParameters/token:a/b", None),
        ("/admin/v2/brokers/configuration/brokerClient%41uthenticationParameters/token:a", None),
        ("/admin/v2/brokers/configuration/brokerClientAuthenticationParameters", ""),
        ("/admin/v2/brokers/configuration/maxTenants/7", ""),
        ("/admin/v2/brokers/configuration/values", ""),
        ("/admin/v2/tenants/token", ""),
    ],
)
def test_path_that_has_a_secret_is_shown_without(path: str, told: str | None) -> None:
    assert shown_path(path) == (path if told == "" else f"{path[: path.index('/token:')]}/{DOTS}")


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("tokenSecretKey", True),
        ("gemingaTokenSecondSecretKey", True),
        ("tlsKeyStorePassword", True),
        ("basicAuthConf", True),
        ("brokerClientAuthenticationParameters", True),
        ("PULSAR_TOKEN", True),
        ("tokenPublicKey", False),
        ("tokenAudience", False),
        ("openIDAllowedTokenIssuers", False),
        ("clusterName", False),
    ],
)
def test_keys_of_secrets_are_known_by_their_names(key: str, is_secret: bool) -> None:
    assert names_secret(key) is is_secret
    assert shown([(key, TEXT)]) == {key: DOTS if is_secret else TEXT}
    assert shown([(key, "")]) == {key: ""}
