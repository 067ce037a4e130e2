"""The handshake against an oracle: a table of what each state takes, written down by hand, and its bounds."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from geminga.broker.access.core.handshake import (
    REFRESH,
    Accept,
    Challenge,
    Credentials,
    HandshakeMachine,
    HandshakeRules,
    Hello,
    Known,
    Refuse,
    Rejected,
    SendChallenge,
    State,
    Verify,
    Violate,
    Whose,
)
from geminga.broker.access.core.principal import ANONYMOUS, Principal

LIMIT_S, REFRESH_S, ROUNDS = 10.0, 60.0, 3
ROLES = ("", "jane", "joe", "proxy", "gate")
PROXIES = frozenset({"proxy", "gate"})
METHODS = ("", "token")

hellos = st.builds(
    Hello,
    credentials=st.builds(Credentials, st.sampled_from(METHODS)),
    original_principal=st.sampled_from(ROLES),
    original=st.none() | st.builds(Credentials, st.sampled_from(METHODS)),
    can_refresh=st.booleans(),
)
verdicts = st.one_of(
    st.builds(Known, st.sampled_from(ROLES), st.none() | st.floats(0, 500), st.sampled_from([0.0, 30.0])),
    st.just(Challenge(b"?")),
    st.just(Rejected("no")),
)
events = st.one_of(
    st.tuples(st.just("connect"), hellos),
    st.tuples(st.just("answer"), st.builds(Credentials, st.sampled_from(METHODS))),
    st.tuples(st.just("verdict"), verdicts),
    st.tuples(st.just("other"), st.just("PING")),
    st.tuples(st.just("time"), st.floats(0, 100)),
)
rules = st.builds(
    HandshakeRules,
    limit_s=st.just(LIMIT_S),
    rounds_max=st.just(ROUNDS),
    refresh_s=st.just(REFRESH_S),
    proxy_roles=st.sampled_from([frozenset(), PROXIES]),
    verifies_original=st.booleans(),
    may_name_itself=st.booleans(),
)


@given(rules, st.lists(events, max_size=25))
@example(HandshakeRules(LIMIT_S), [("connect", Hello()), ("verdict", Known()), ("other", "PING")])
def test_nothing_is_taken_before_it_is_known_who_is_there(
    held: HandshakeRules, story: list[tuple[str, object]]
) -> None:
    machine = HandshakeMachine(held, 0.0)
    now_s = 0.0
    hello: Hello | None = None
    asked: list[Whose] = []
    challenges = 0
    is_known = is_over = False
    for kind, value in story:
        before = machine.state
        if kind == "connect":
            step = machine.connect(value)
            # Once, and first.
            assert isinstance(step, Verify) == (before is State.WAITING)
            hello = value if before is State.WAITING else hello
        elif kind == "answer":
            step = machine.answer(value)
            is_asked = before in (State.CHALLENGED, State.RENEWING_CHALLENGED)
            assert isinstance(step, Verify) == (is_asked and value.method == hello.credentials.method)
            assert step is not None or before is State.CONNECTED
        elif kind == "verdict":
            step = machine.verdict(value, now_s)
            if before not in (State.VERIFYING, State.RENEWING_VERIFYING):
                assert step is None  # nobody asked, or it is over
                assert machine.state is before
        elif kind == "other":
            step = machine.other_command(value)
            assert (step is None) == is_known or is_over
            assert step is None or isinstance(step, Violate)
        else:
            now_s += value
            due_s = machine.deadline_s
            step = machine.time_passed(now_s)
            assert step is None or (due_s is not None and now_s >= due_s)
            if not is_known and not is_over:
                assert (step is not None) == (now_s >= LIMIT_S)
        if is_over:
            assert machine.state is State.ENDED
            assert not isinstance(step, Verify | SendChallenge | Accept)
            continue
        if isinstance(step, Verify):
            asked.append(step.whose)
        if isinstance(step, SendChallenge):
            challenges += 1
            assert challenges <= ROUNDS
        if isinstance(step, Accept):
            assert not is_known
            assert kind == "verdict"
            assert isinstance(value, Known)
            assert asked
            assert step.principal == machine.principal
            check_principal(held, hello, asked[-1], value, step.principal)
            is_known = True
        if isinstance(step, Refuse | Violate):
            is_over, is_known = True, False
        if machine.state is State.CONNECTED:
            challenges = 0
        assert machine.is_connected == is_known
        # Who is not known has a time limit, always.
        assert is_known or is_over or machine.deadline_s == LIMIT_S
        # Who was asked for new credentials has one, too.
        assert machine.state not in (State.RENEWING_CHALLENGED, State.RENEWING_VERIFYING) or machine.deadline_s


def check_principal(held: HandshakeRules, hello: Hello, whose: Whose, known: Known, principal: Principal) -> None:
    if whose is Whose.ORIGINAL:
        assert held.verifies_original
        assert principal.role in held.proxy_roles
        assert principal.original == known.role
    elif not known.role:
        assert principal == ANONYMOUS
    elif known.role in held.proxy_roles:
        assert principal == Principal(known.role, hello.original_principal)
    else:
        assert hello.original_principal in ("", known.role)
        assert principal == Principal(known.role)
    # Nobody speaks for a proxy, and a proxy never for itself.
    assert principal.original not in held.proxy_roles
    assert bool(principal.original) == (principal.role in held.proxy_roles)


@pytest.mark.parametrize("in_http", [False, True])
@pytest.mark.parametrize(
    ("role", "original", "found"),
    [
        ("jane", "", Accept(Principal("jane"))),
        ("jane", "jane", None),
        ("jane", "joe", Refuse("who is no proxy asks for itself alone")),
        ("jane", "proxy", Refuse("who is no proxy asks for itself alone")),
        ("jane", " ", Accept(Principal("jane"))),
        ("proxy", "", Refuse("a proxy must say for whom it asks")),
        ("proxy", " \t", Refuse("a proxy must say for whom it asks")),
        ("proxy", "jane", Accept(Principal("proxy", "jane"))),
        ("proxy", "proxy", Refuse("a proxy can not ask for another proxy")),
        ("proxy", "gate", Refuse("a proxy can not ask for another proxy")),
        ("gate", "jane", Accept(Principal("gate", "jane"))),
    ],
)
def test_who_may_ask_for_whom(role: str, original: str, found: Accept | Refuse | None, in_http: bool) -> None:
    """Roles, proxies and originals, as ``isValidOriginalPrincipal`` of Pulsar 4.2.4 decides about them."""
    machine = HandshakeMachine(HandshakeRules(LIMIT_S, proxy_roles=PROXIES, may_name_itself=in_http), 0.0)
    machine.connect(Hello(Credentials("token"), original))
    if found is None:  # itself: in HTTP alone
        found = Accept(Principal("jane")) if in_http else Refuse("who is no proxy asks for itself alone")
    assert machine.verdict(Known(role), 0.0) == found


def connected(until_s: float | None, *, grace_s: float = 0.0, can_refresh: bool = True) -> HandshakeMachine:
    machine = HandshakeMachine(HandshakeRules(LIMIT_S, rounds_max=ROUNDS, refresh_s=REFRESH_S), 0.0)
    machine.connect(Hello(Credentials("token", b"1"), can_refresh=can_refresh))
    assert machine.verdict(Known("jane", until_s, grace_s), 0.0) == Accept(Principal("jane"))
    return machine


def test_new_credentials_are_asked_for_before_the_old_expire_and_others_go_on_meanwhile() -> None:
    machine = connected(200.0)
    assert machine.time_passed(139.0) is None
    assert machine.time_passed(140.0) == SendChallenge("token", REFRESH)
    assert machine.other_command("PRODUCER") is None
    assert machine.answer(Credentials("token", b"2")) == Verify(Whose.PEER, Credentials("token", b"2"))
    assert machine.verdict(Known("jane", 1000.0), 141.0) is None
    assert (machine.state, machine.deadline_s) == (State.CONNECTED, 940.0)


def test_new_credentials_of_another_role_end_it() -> None:
    machine = connected(100.0)
    machine.time_passed(50.0)
    machine.answer(Credentials("token", b"2"))
    assert machine.verdict(Known("joe", 300.0), 51.0) == Refuse("new credentials must be of the same role")


def test_new_credentials_of_other_roles_beside_the_first_end_it_too() -> None:
    machine = HandshakeMachine(HandshakeRules(LIMIT_S), 0.0)
    machine.connect(Hello(Credentials("token", b"1"), can_refresh=True))
    first = Known("jane", 100.0, roles=frozenset({"jane", "team"}))
    assert machine.verdict(first, 0.0) == Accept(Principal("jane", roles=first.roles))
    for number, roles, step in (
        (1, {"team", "jane"}, None),
        (2, {"jane"}, Refuse("new credentials must be of the same role")),
    ):
        machine.time_passed(50.0 * number)
        machine.answer(Credentials("token", b"2"))
        assert machine.verdict(Known("jane", 50.0 * number + 100, roles=frozenset(roles)), 50.0 * number) == step


def test_roles_of_both_tokens_go_with_who_is_asked_for() -> None:
    held = HandshakeRules(LIMIT_S, proxy_roles=PROXIES, verifies_original=True)
    machine = HandshakeMachine(held, 0.0)
    machine.connect(Hello(Credentials("token", b"1"), "jane", Credentials("token", b"2")))
    assert machine.verdict(Known("proxy", roles=frozenset({"proxy"})), 0.0) == Verify(
        Whose.ORIGINAL, Credentials("token", b"2")
    )
    roles = frozenset({"jane", "team"})
    assert machine.verdict(Known("jane", roles=roles), 0.0) == Accept(
        Principal("proxy", "jane", frozenset({"proxy"}), roles)
    )


@pytest.mark.parametrize("grace_s", [0.0, 5.0])
def test_who_can_not_refresh_is_refused_when_they_expire_and_who_does_not_after_the_grace(grace_s: float) -> None:
    machine = connected(100.0, grace_s=grace_s, can_refresh=False)
    assert machine.time_passed(99.9) is None
    assert machine.time_passed(100.0) == Refuse("the credentials have expired")
    machine = connected(100.0, grace_s=grace_s)
    assert isinstance(machine.time_passed(50.0), SendChallenge)
    assert machine.time_passed(99.9 + grace_s) is None
    assert machine.time_passed(100.0 + grace_s) == Refuse("no new credentials in time")


def test_who_comes_within_the_grace_stays_until_it_ends() -> None:
    for can_refresh in (False, True):
        machine = connected(-1.0, grace_s=5.0, can_refresh=can_refresh)
        assert machine.deadline_s == 4.0
        assert machine.time_passed(4.0) == Refuse("the credentials have expired")


@given(st.floats(1, 1e5), st.sampled_from([0.0, 1.0, 60.0]), st.floats(0, 1))
def test_who_answers_with_what_will_expire_is_asked_a_few_times_and_then_sent_away(
    until_s: float, grace_s: float, answers_after_s: float
) -> None:
    """What is not newer is taken as long as it is good, and does not make a loop of challenges."""
    machine = connected(until_s, grace_s=grace_s)
    times: list[float] = []
    while True:
        now_s = machine.deadline_s
        assert now_s is not None
        step = machine.time_passed(now_s)
        if isinstance(step, Refuse):
            assert now_s == until_s + grace_s
            break
        times.append(now_s)
        answered_s = min(now_s + answers_after_s, machine.deadline_s)
        machine.answer(Credentials("token", b"1"))
        if answered_s > until_s + grace_s:
            assert isinstance(machine.verdict(Rejected("it expired"), answered_s), Refuse)
            break
        assert machine.verdict(Known("jane", until_s, grace_s), answered_s) is None
    assert len(times) <= 8
    assert times == sorted(times)
    # Where an answer after the end is taken, it is asked for then too: some have a new one only then.
    assert not grace_s or not times or until_s - times[-1] <= 2 * max(1.0, answers_after_s)


def of_proxy(*, original: Credentials | None, peer_until_s: float | None, until_s: float | None) -> HandshakeMachine:
    rules = HandshakeRules(LIMIT_S, refresh_s=REFRESH_S, proxy_roles=PROXIES, verifies_original=original is not None)
    machine = HandshakeMachine(rules, 0.0)
    machine.connect(Hello(Credentials("tls"), "joe", original, can_refresh=True))
    step = machine.verdict(Known("proxy", peer_until_s), 0.0)
    if original is not None:
        assert step == Verify(Whose.ORIGINAL, original)
        step = machine.verdict(Known("joe", until_s), 0.0)
    assert step == Accept(Principal("proxy", "joe"))
    return machine


@pytest.mark.parametrize("named", ["tls", "token"])
def test_credentials_that_a_proxy_passes_on_are_renewed_through_it(named: str) -> None:
    machine = of_proxy(original=Credentials("token", b"1"), peer_until_s=None, until_s=100.0)
    assert machine.time_passed(50.0) == SendChallenge("tls", REFRESH)
    assert machine.answer(Credentials(named, b"2")) == Verify(Whose.ORIGINAL, Credentials("token", b"2"))
    assert machine.verdict(Known("joe", 1000.0), 51.0) is None
    assert machine.deadline_s == 940.0
    machine.time_passed(940.0)
    machine.answer(Credentials(named, b"3"))
    assert machine.verdict(Known("proxy", None), 941.0) == Refuse("new credentials must be of the same role")


def test_proxy_stays_no_longer_than_its_own_credentials() -> None:
    machine = of_proxy(original=Credentials("token", b"1"), peer_until_s=70.0, until_s=1000.0)
    assert machine.deadline_s == 70.0
    assert machine.time_passed(70.0) == Refuse("the credentials have expired")


def test_behind_a_proxy_that_passed_on_no_data_nobody_is_challenged() -> None:
    machine = of_proxy(original=None, peer_until_s=70.0, until_s=None)
    assert machine.deadline_s == 70.0
    assert machine.time_passed(70.0) == Refuse("the credentials have expired")


def test_challenges_are_counted() -> None:
    machine = HandshakeMachine(HandshakeRules(LIMIT_S, rounds_max=ROUNDS), 0.0)
    machine.connect(Hello(Credentials("sasl")))
    for _ in range(ROUNDS):
        assert machine.verdict(Challenge(b"?"), 0.0) == SendChallenge("sasl", b"?")
        assert isinstance(machine.answer(Credentials("sasl")), Verify)
    assert machine.verdict(Challenge(b"?"), 0.0) == Refuse("more than 3 challenges")


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(Hello(Credentials("token", b"secret"), original=Credentials("token", b"secret")))


def test_certificate_of_the_connection_is_looked_at_with_each_answer_of_the_peer_and_of_no_other() -> None:
    rules = HandshakeRules(10.0, proxy_roles=frozenset({"proxy"}), verifies_original=True)
    machine = HandshakeMachine(rules, 0.0)
    machine.certificate = b"der"
    original = Credentials("token", b"other's")
    step = machine.connect(Hello(Credentials("tls"), "somebody", original))
    assert step == Verify(Whose.PEER, Credentials("tls", b"", b"der"))
    assert machine.verdict(Challenge(b"more"), 0.0) is not None
    assert machine.answer(Credentials("tls", b"x")) == Verify(Whose.PEER, Credentials("tls", b"x", b"der"))
    assert machine.verdict(Known("proxy"), 0.0) == Verify(Whose.ORIGINAL, original)
    assert "der" not in repr(step)
