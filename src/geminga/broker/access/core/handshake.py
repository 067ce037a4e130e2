"""The handshake of a connection as a state machine: who is there is settled before anything else is taken.

::

    WAITING --CONNECT--> VERIFYING --known--> CONNECTED --before they expire--> RENEWING_CHALLENGED
                          |     ^                ^                                |        ^
                 challenge|     |AUTH_RESPONSE   |known, the same one             |        |challenge
                          v     |                |               AUTH_RESPONSE    v        |
                        CHALLENGED               +-------------------------- RENEWING_VERIFYING

Each event gives at most one step, which the connection carries out. Whatever goes wrong ends it: a command out of order
(:class:`Violate`), credentials that are refused or not there in time (:class:`Refuse`). What somebody who is not known
yet can make a broker hold is bounded: one exchange, ``rounds_max`` challenges, ``limit_s`` seconds, and frames of the
handshake's size. Times are seconds of a monotonic clock.

The rules are Pulsar's: a proxy is known by its role and names for whom it asks; a second identity is verified in one
round; credentials that expire are challenged anew where the client knows how, and the answer must be of the same role.
Beyond Pulsar, which looks once in ``authenticationRefreshCheckSeconds``, the challenge comes before they expire, and
the connection ends when they do: nobody is let in longer than its token says.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple, TypeAlias

from geminga.broker.access.core.principal import ANONYMOUS, Principal

#: What an AUTH_CHALLENGE holds that asks for new credentials, as in Pulsar.
REFRESH: Final = b"PulsarAuthRefresh"


@dataclass(frozen=True, slots=True)
class Credentials:
    """What somebody brings to say who they are."""

    #: Pulsar's name of the method; empty: none was named.
    method: str = ""
    data: bytes = field(default=b"", repr=False)
    #: The certificate that the peer of the connection showed and TLS verified, DER; None: none.
    certificate: bytes | None = field(default=None, repr=False)


class Hello(NamedTuple):
    """What CONNECT says of the one who sends it."""

    credentials: Credentials = Credentials()
    #: For whom a proxy asks, by name and by what that one brought; empty and None: for itself.
    original_principal: str = ""
    original: Credentials | None = None
    #: Whether it answers when its credentials expire.
    can_refresh: bool = False


class HandshakeRules(NamedTuple):
    """How handshakes are held at a broker."""

    #: Seconds from the connection's beginning until it must be done.
    limit_s: float
    #: Challenges until somebody must be known.
    rounds_max: int = 16
    #: Seconds before credentials expire that new ones are asked for.
    refresh_s: float = 60.0
    #: Roles that ask in the names of others.
    proxy_roles: frozenset[str] = frozenset()
    #: Whether what a proxy passes on of another's credentials is verified too.
    verifies_original: bool = False
    #: Whether who is no proxy may name itself as the one it asks for: in Pulsar in HTTP, and not on the binary port.
    may_name_itself: bool = False


# ---- what is found out about credentials


class Known(NamedTuple):
    """They are good."""

    #: Empty: anonymous.
    role: str = ""
    #: When they expire; None: never.
    until_s: float | None = None
    #: Seconds after that in which they, or new ones, are taken still: clocks differ.
    grace_s: float = 0.0
    #: All that a token names, where they are asked for; None: the one above.
    roles: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """More must be said first."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Rejected:
    """They are not good."""

    #: Told to the client.
    reason: str


Verdict: TypeAlias = Known | Challenge | Rejected


# ---- what is to be done


class Whose(Enum):
    """Whose credentials."""

    PEER = auto()
    #: Of whom a proxy asks for.
    ORIGINAL = auto()


class Verify(NamedTuple):
    """Find out about credentials; :meth:`HandshakeMachine.verdict` is told."""

    whose: Whose
    credentials: Credentials


@dataclass(frozen=True, slots=True)
class SendChallenge:
    """Send AUTH_CHALLENGE."""

    method: str
    data: bytes = field(repr=False)


class Accept(NamedTuple):
    """It is this one: answer CONNECTED, and take other commands."""

    principal: Principal


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer AuthenticationError, and close."""

    reason: str
    #: Somebody is known, and may not ask for whom it does: Pulsar's answer is AuthorizationError then.
    is_of_roles: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Violate:
    """Close: this is not the protocol."""

    reason: str


Step: TypeAlias = Verify | SendChallenge | Accept | Refuse | Violate


class State(Enum):
    """How far a handshake is."""

    WAITING = auto()
    VERIFYING = auto()
    CHALLENGED = auto()
    CONNECTED = auto()
    RENEWING_CHALLENGED = auto()
    RENEWING_VERIFYING = auto()
    ENDED = auto()


_AFTER_ACCEPT: Final = (State.CONNECTED, State.RENEWING_CHALLENGED, State.RENEWING_VERIFYING)
_NOT_PASSED_ON: Final = (
    "the proxy names for whom it asks, and passes on nothing that shows it, which authenticateOriginalAuthData=true "
    "asks for: expected forwardAuthorizationCredentials=true of the proxy"
)
#: Seconds before the end in which nobody is asked once more who answered with what will expire.
_LAST_S: Final = 2.0


class HandshakeMachine:
    """See the module; one for each connection."""

    __slots__ = (
        "_deadline_s",
        "_end_s",
        "_hello",
        "_renewed",
        "_role",
        "_roles",
        "_rounds",
        "_rules",
        "_whose",
        "certificate",
        "principal",
        "state",
    )

    def __init__(self, rules: HandshakeRules, now_s: float) -> None:
        """``now_s``: when the connection began."""
        self._rules = rules
        self.state = State.WAITING
        #: What TLS verified of the peer; whoever accepts the connection sets it before the first command.
        self.certificate: bytes | None = None
        #: Who it is, once that is settled.
        self.principal = ANONYMOUS
        self._hello = Hello()
        #: Whose credentials are verified, and after that are renewed: of whom a proxy asks for, if they were verified.
        self._whose = Whose.PEER
        #: The peer's own role, once known.
        self._role = ""
        self._roles: frozenset[str] | None = None
        #: What is known of the credentials that are renewed.
        self._renewed = Known()
        #: When it ends whatever is renewed: a proxy's own credentials expire, and those of another are renewed.
        self._end_s: float | None = None
        self._rounds = 0
        self._deadline_s: float | None = now_s + rules.limit_s

    @property
    def is_connected(self) -> bool:
        """Whether other commands are taken."""
        return self.state in _AFTER_ACCEPT

    @property
    def deadline_s(self) -> float | None:
        """When :meth:`time_passed` is to be called at the latest; None: nothing is waited for."""
        return self._deadline_s

    def connect(self, hello: Hello) -> Step:
        """CONNECT came."""
        if self.is_connected:
            return self._end(Violate("CONNECT on a connection that is connected already"))
        if self.state is not State.WAITING:
            return self._end(Violate("a second CONNECT"))
        # A blank name is none, as in Pulsar.
        self._hello = hello if hello.original_principal.strip() else hello._replace(original_principal="")
        self.state = State.VERIFYING
        return self._verify_peer(hello.credentials)

    def answer(self, credentials: Credentials) -> Step | None:
        """AUTH_RESPONSE came; None: nobody asked, and it says nothing."""
        if self.state is State.CHALLENGED:
            self.state = State.VERIFYING
        elif self.state is State.RENEWING_CHALLENGED:
            self.state = State.RENEWING_VERIFYING
        elif self.state is State.CONNECTED:
            return None
        else:
            before = "CONNECT" if self.state is State.WAITING else "a challenge"
            return self._end(Violate(f"AUTH_RESPONSE before {before}"))
        method, original = self._hello.credentials.method, self._hello.original
        if self._whose is Whose.ORIGINAL and original is not None:
            # A proxy may name its own method, or that of the one whose answer it passes on.
            if credentials.method in (method, original.method):
                return Verify(Whose.ORIGINAL, replace(credentials, method=original.method))
            method = original.method
        if credentials.method != method:
            return self._end(Refuse(f"the answer is of the method {credentials.method}, not {method}"))
        return self._verify_peer(credentials)

    def other_command(self, name: str) -> Step | None:
        """Any other command came; None: it is taken."""
        if self.is_connected:
            return None
        return self._end(Violate(f"{name} before CONNECT"))

    def verdict(self, verdict: Verdict, now_s: float) -> Step | None:
        """What was found out about the credentials last asked about; None: all goes on as it is."""
        if self.state is State.VERIFYING:
            if isinstance(verdict, Rejected):
                is_missing = self._whose is Whose.ORIGINAL and self._hello.original is None
                return self._end(Refuse(_NOT_PASSED_ON if is_missing else verdict.reason))
            if isinstance(verdict, Challenge):
                return self._challenge(verdict, State.CHALLENGED)
            return self._known(verdict, now_s)
        if self.state is State.RENEWING_VERIFYING:
            if isinstance(verdict, Rejected):
                return self._end(Refuse(verdict.reason))
            if isinstance(verdict, Challenge):
                return self._challenge(verdict, State.RENEWING_CHALLENGED)
            if (verdict.role, verdict.roles) != (self._renewed.role, self._renewed.roles):
                # What was allowed on the old roles is asked for again, by who comes back with the new ones.
                return self._end(Refuse("new credentials must be of the same role"))
            self._renewed = verdict
            self._await_expiry(now_s)
        return None  # nobody waits for it any more

    def renewed_unasked(self, verdict: Verdict, now_s: float) -> Step | None:
        """What was found out about credentials that somebody else had asked for: a broker behind a proxy.

        None: it goes on, until these expire.
        """
        if not self.is_connected:
            return None
        self.state = State.RENEWING_VERIFYING
        return self.verdict(verdict, now_s)

    def time_passed(self, now_s: float) -> Step | None:
        """It is ``now_s``; None: nothing is due."""
        if self._deadline_s is None or now_s < self._deadline_s:
            return None
        if not self.is_connected:
            return (
                None
                if self.state is State.ENDED
                else self._end(Violate("no handshake within gemingaHandshakeTimeoutSeconds"))
            )
        if self.state is not State.CONNECTED:
            return self._end(Refuse("no new credentials in time"))
        over_s = self._over_s()
        if not self._can_renew or over_s is None or now_s >= over_s:
            return self._end(Refuse("the credentials have expired"))
        self._rounds = 0
        self._deadline_s = over_s
        return self._challenge(Challenge(REFRESH), State.RENEWING_CHALLENGED)

    def _verify_peer(self, credentials: Credentials) -> Verify:
        shown = credentials if self.certificate is None else replace(credentials, certificate=self.certificate)
        return Verify(Whose.PEER, shown)

    def _challenge(self, challenge: Challenge, state: State) -> Step:
        self._rounds += 1
        if self._whose is Whose.ORIGINAL and state is State.CHALLENGED:
            return self._end(Refuse("what a proxy passes on can not be challenged"))
        if self._rounds > self._rules.rounds_max:
            return self._end(Refuse(f"more than {self._rules.rounds_max} challenges"))
        self.state = state
        return SendChallenge(self._hello.credentials.method, challenge.data)

    def _known(self, known: Known, now_s: float) -> Step:
        hello, peer = self._hello, self._renewed
        self._renewed = known
        if self._whose is Whose.ORIGINAL:
            self._end_s = None if peer.until_s is None else peer.until_s + peer.grace_s
            return self._accept(Principal(self._role, known.role, self._roles, known.roles), now_s)
        self._role, self._roles = known.role, known.roles
        if not known.role:
            # Nobody is asked who it is, so that nobody can speak for another either.
            return self._accept(ANONYMOUS, now_s)
        is_proxy = known.role in self._rules.proxy_roles
        if is_proxy and self._rules.verifies_original and (hello.original is not None or hello.original_principal):
            # What a proxy says of who asks is no proof: without anything that is verified he is anonymous, or nobody.
            self._whose = Whose.ORIGINAL
            return Verify(Whose.ORIGINAL, hello.original or Credentials())
        is_itself = self._rules.may_name_itself and hello.original_principal == known.role
        refusal = _proxy_refusal(known.role, "" if is_itself else hello.original_principal, self._rules.proxy_roles)
        if refusal:
            return self._end(Refuse(refusal, is_of_roles=True))
        return self._accept(Principal(known.role, hello.original_principal if is_proxy else "", known.roles), now_s)

    def _accept(self, principal: Principal, now_s: float) -> Step:
        if principal.original and principal.original in self._rules.proxy_roles:
            return self._end(Refuse("a proxy can not ask for another proxy", is_of_roles=True))
        if principal.role in self._rules.proxy_roles and not principal.original:
            return self._end(Refuse("a proxy must say for whom it asks", is_of_roles=True))
        self.principal = principal
        self._await_expiry(now_s)
        return Accept(principal)

    # ---- credentials that expire

    @property
    def _can_renew(self) -> bool:
        """Whether somebody answers a challenge. Behind a proxy that passed on no data nobody does, as in Pulsar."""
        is_answered = self._whose is Whose.ORIGINAL or not self.principal.original
        return self._hello.can_refresh and is_answered

    def _over_s(self) -> float | None:
        """When it ends, if nothing is renewed; None: never."""
        until_s, grace_s = self._renewed.until_s, self._renewed.grace_s
        return _sooner(None if until_s is None else until_s + grace_s, self._end_s)

    def _await_expiry(self, now_s: float) -> None:
        self.state = State.CONNECTED
        self._rounds = 0
        until_s, over_s = self._renewed.until_s, self._over_s()
        if until_s is None:
            self._deadline_s = over_s
        elif self._can_renew:
            asked_s = _asked_again_s(now_s, until_s, self._renewed.grace_s, self._rules.refresh_s)
            self._deadline_s = _sooner(asked_s, over_s)
        else:
            # Who came when they had expired, and clocks may differ so much, stays as long as they may.
            self._deadline_s = _sooner(until_s if until_s > now_s else None, over_s)

    def _end(self, step: Step) -> Step:
        self.state = State.ENDED
        self._deadline_s = None
        return step


def _asked_again_s(now_s: float, until_s: float, grace_s: float, refresh_s: float) -> float | None:
    """When new credentials are asked for; None: not any more.

    Who answers with what it had is asked again after half of what is left, and once when it has expired if new ones are
    taken then: some clients get a new token only when the old one is over. That is less than ten times for each.
    """
    left_s = until_s - now_s
    if left_s >= _LAST_S:
        return until_s - min(refresh_s, left_s / 2)
    return until_s if left_s > 0 and grace_s > 0 else None


def _proxy_refusal(role: str, original: str, proxy_roles: frozenset[str]) -> str:
    """Why ``role`` may not ask for ``original``; empty: it may."""
    is_for_itself = not original
    return "" if role in proxy_roles or is_for_itself else "who is no proxy asks for itself alone"


def _sooner(one_s: float | None, other_s: float | None) -> float | None:
    times_s = [time_s for time_s in (one_s, other_s) if time_s is not None]
    return min(times_s, default=None)
