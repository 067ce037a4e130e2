"""As whom a ZooKeeper is spoken to: JAAS files as Java's programs have them, and what is wrong with one."""

from __future__ import annotations

import pytest

from geminga.metadata.core.zookeeper_credentials import Scheme, ZooKeeperCredentials, parse_digest, parse_jaas
from geminga.metadata.core.zookeeper_tls import Property, parse_credentials
from geminga.model.errors import ConfigurationError
from geminga.model.secret import Secret

MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
JANE = ZooKeeperCredentials(Scheme.SASL, "jane", Secret("hidden1"))
SECTION = f'{MODULE} required username="jane" password="hidden1";'


@pytest.mark.parametrize(
    "text",
    [
        f"Client {{ {SECTION} }};",
        f"Server {{ {MODULE} required user_a=b; other.Module optional; }};\nClient {{\n{SECTION}\n}};\n",
        f"/* a }} comment */ Client{{{MODULE} REQUIRED\n# line\n username=jane // }}\n password = hidden1 ;}};",
    ],
)
def test_section_of_a_file_names_user_and_password(text: str) -> None:
    found = parse_jaas(text, "Client", "jaas.conf")
    assert found == JANE
    assert "hidden1" not in f"{found} {found!r}"


def test_quotes_hold_marks_and_escapes() -> None:
    text = f'Client {{ {MODULE} required username="a;}}=" password="x\\"//y"; }};'
    assert parse_jaas(text, "Client", "j") == ZooKeeperCredentials(Scheme.SASL, "a;}=", Secret('x"//y'))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is no section Client .*there are: none"),
        (f"Server {{ {SECTION} }};", "there is no section Client .*there are: Server"),
        ("Client", "what follows the name"),
        (f"Client {{ {SECTION} }}", "does not end with ;}"),
        (f"Client {{ {SECTION.rstrip(';')} }};", "does not end with ;}"),
        (f"Client {{ {SECTION} {SECTION} }};", "2 login modules; expected one"),
        ("Client { };", "0 login modules; expected one"),
        ("Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };", "Kerberos is not built"),
        ("Client { org.example.Mine required; };", "org.example.Mine is not known"),
        (f'Client {{ {MODULE} username="jane" password="hidden1"; }};', "no flag such as required"),
        (f'Client {{ {MODULE} required username="jane" password; }};', "an option is not key=value"),
        (f'Client {{ {MODULE} required username="jane"; }};', "username and password are needed"),
        (f'Client {{ {MODULE} required username="jane" password="hidden1; }};', "a quote that does not end"),
    ],
)
def test_what_is_wrong_is_told_without_the_password(text: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=f"jaas.conf: .*{told}") as caught:
        parse_jaas(text, "Client", "jaas.conf")
    assert "hidden1" not in str(caught.value)


def test_user_and_password_of_digest() -> None:
    assert parse_digest(" jane:hid:den1\n", "f") == ZooKeeperCredentials(Scheme.DIGEST, "jane", Secret("hid:den1"))
    for wrong in ("hidden1", ":hidden1", "jane:", ""):
        with pytest.raises(
            ConfigurationError, match=r"f, line 1: geminga\.zookeeper\.digest is not user:password"
        ) as told:
            parse_digest(wrong, "f, line 1")
        assert "hidden1" not in str(told.value)


def said(**lines: str) -> ZooKeeperCredentials | None:
    keys = {"jaas": "java.security.auth.login.config", "digest": "geminga.zookeeper.digest"}
    return parse_credentials(
        Property(keys.get(key, f"zookeeper.sasl.{key}"), text, f"of {key}") for key, text in lines.items()
    )


def test_properties_name_the_file_and_its_section() -> None:
    jaas = f"Client {{ {SECTION} }}; Other {{ {SECTION.replace('jane', 'jim')} }};"
    assert said() is None
    assert said(jaas=jaas) == JANE
    assert said(jaas=jaas, client="true", clientconfig="Other") == JANE._replace(user="jim")
    # As in ZooKeeper, it may be switched off.
    assert said(jaas=jaas, client="false", clientconfig="Other") is None
    assert said(client="false") is None
    assert said(digest="a:b") == ZooKeeperCredentials(Scheme.DIGEST, "a", Secret("b"))
    assert said(digest="a:b", jaas=jaas, client="false") == ZooKeeperCredentials(Scheme.DIGEST, "a", Secret("b"))
    for lines, told in (
        ({"client": "true"}, "of client: zookeeper.sasl.client is set, and java.security"),
        ({"clientconfig": "Client"}, "of clientconfig: zookeeper.sasl.clientconfig is set, and java.security"),
        ({"client": "perhaps", "jaas": jaas}, "expected true or false"),
        ({"digest": "a:b", "jaas": jaas}, "of digest: .*beside java.security.auth.login.config: expected one of them"),
    ):
        with pytest.raises(ConfigurationError, match=told):
            said(**lines)
