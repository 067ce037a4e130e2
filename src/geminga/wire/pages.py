"""Which requests are refused because a page in somebody's browser may have sent them.

A browser sends a page's requests with the rights of the machine that it runs on: to an address of loopback, into a
private network. What they ask for they can do without being allowed to read the answer; and a name of the page's own
that is pointed at this server (DNS rebinding) lets them read it as well. Three headers tell, which no page can forge:

- ``Host``: the name that the browser believes it speaks to. An IP literal, ``localhost``, and the server's own and
  listed names pass, whatever the port; a rebound name is none of them.
- ``Origin``: whose page it is. One of this host, of loopback, of own or listed names passes.
- ``Sec-Fetch-Site``: how the page's site stands to this one, told where the browser trusts the connection (HTTPS,
  loopback).

Programs send neither of the last two. Where a browser sends neither either, ``Referer`` counts. A request that changes
something is refused to a foreign page; a question is answered, which the browser keeps from the page.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

#: The setting that lists further names.
HOSTS_KEY: Final = "gemingaHttpAllowedHosts"
#: In the list: everything passes.
ANY_HOST: Final = "*"
#: Methods that only ask, unless the path is one of :func:`_creates`.
_QUESTIONS: Final = frozenset({"GET", "HEAD"})
_LOCALHOST: Final = "localhost"
#: Of ``Sec-Fetch-Site``: the user's own doing, or this server's own page.
_OWN_SITES: Final = frozenset({"none", "same-origin"})
#: Characters of a header that are told.
_TOLD_MAX: Final = 200


class Names(NamedTuple):
    """Hosts that a server answers to, in lower case."""

    own: frozenset[str]
    #: By the operator; pages of these hosts may do what a program may.
    listed: frozenset[str]

    @property
    def takes_all(self) -> bool:
        """Nothing is looked at."""
        return ANY_HOST in self.listed


def names_of(own: Iterable[str], listed: Iterable[str]) -> Names:
    """From host names and URLs of the server itself, and the setting; empty ones are left out."""
    return Names(
        frozenset(_host_of_url(name) if "//" in name else _bare(name) for name in own) - {""},
        frozenset(_bare(name) for name in listed) - {""},
    )


def _nobody(_origin: str, _method: str) -> bool:
    """No page but this server's own."""
    return False


def refusal_of(
    names: Names,
    method: str,
    path: str,
    headers: Iterable[tuple[bytes, bytes]],
    admits: Callable[[str, str], bool] = _nobody,
) -> str:
    """Why the request is not served; empty: it is. ``path`` is decoded, names of headers are in lower case.

    ``admits``: whether pages of an origin may use a method though they are another's (:mod:`.cors`).
    """
    if names.takes_all:
        return ""
    found: dict[bytes, list[str]] = {}
    for name, value in headers:
        if name in (b"host", b"origin", b"referer", b"sec-fetch-site"):
            found.setdefault(name, []).append(value.decode("latin-1").strip())
    hosts = found.get(b"host", [])
    # None at all is HTTP/1.0, which no browser speaks.
    strange = next((host for host in hosts if host and not _answers_to(names, _host_of(host))), "")
    if strange:
        return (
            f"the Host {_quoted(strange)} is none of this server's names: expected an IP address, localhost, its own "
            f"name, or one that {HOSTS_KEY} lists"
        )
    if method == "OPTIONS" or (method in _QUESTIONS and not _creates(path)):
        return ""
    origins = found.get(b"origin", [])
    if len(origins) == 1 and admits(origins[0], method):
        return ""
    page = _foreign_page(names, _host_of(hosts[0]) if hosts else "", found)
    if not page:
        return ""
    return f"{page} may not do this here: expected a page of this server, or of a host that {HOSTS_KEY} lists"


def _creates(path: str) -> bool:
    """Whether a question may change something: official clients create partitioned topics by asking how many
    partitions they have, a lookup has a broker take the topic, a live tail takes one of so many places, and a
    WebSocket, which browsers open for any page and let it read, begins as a question."""
    whole = path.rstrip("/")
    return whole.endswith("/partitions") or whole.startswith(("/lookup/", "/topics/", "/ws/"))


def _foreign_page(names: Names, host: str, found: dict[bytes, list[str]]) -> str:
    """What foreign page sent the request, in words; empty: none is known to have."""
    origins = found.get(b"origin", [])
    if _all_in([_host_of_url(origin) for origin in origins], names.listed):
        return ""
    for origin in origins:
        if not _is_page_here(names, host, _host_of_url(origin)):
            return f"a page of {_quoted(origin)}"
    sites = [site.lower() for site in found.get(b"sec-fetch-site", [])]
    for site in sites:
        # Of the same site, but another port or subdomain: whose page it is says the origin alone.
        if site not in _OWN_SITES and not (site == "same-site" and origins):
            return f"a page of another site (Sec-Fetch-Site: {_quoted(site)})"
    if origins or sites:
        return ""
    for referer in found.get(b"referer", []):
        if referer and not _is_page_here(names, host, _host_of_url(referer)):
            return f"a page of {_quoted(referer)}"
    return ""


def _all_in(hosts: Sequence[str], known: frozenset[str]) -> bool:
    return bool(hosts) and all(host in known for host in hosts)


def _answers_to(names: Names, host: str) -> bool:
    return host == _LOCALHOST or host in names.own or host in names.listed or _is_address(host)


def _is_page_here(names: Names, host: str, page: str) -> bool:
    """Whether ``page`` is a host whose pages are this server's, or of programs beside the browser."""
    if not page:
        return False
    if page in (host, _LOCALHOST) or page in names.own or page in names.listed:
        return True
    # Anybody may have a page at an address of theirs.
    return _is_address(page) and ip_address(page).is_loopback


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _host_of(authority: str) -> str:
    """The host of ``host:port``; brackets of an IPv6 address are taken off."""
    if authority.startswith("["):
        return _bare(authority[1:].partition("]")[0])
    return _bare(authority.partition(":")[0])


def _host_of_url(url: str) -> str:
    """The host of an origin or a URL; empty for what is none, such as ``null``."""
    try:
        return _bare(urlsplit(url).hostname or "")
    except ValueError:
        return ""


def _bare(host: str) -> str:
    return host.strip().lower().removesuffix(".").strip("[]")


def _quoted(text: str) -> str:
    return json.dumps(text[:_TOLD_MAX])
