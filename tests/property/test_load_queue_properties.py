"""Whatever is asked for and in whatever order: loads keep their limits, nobody is forgotten, and nobody is starved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.load_queue import CLIENTS_TURNS, SLOW_S, LoadQueue

AT_ONCE = 3
RUNNING = 6
WAITING = 12
STEP = st.one_of(
    st.tuples(st.just("wait"), st.integers(0, 40), st.booleans()),
    st.tuples(st.just("client"), st.integers(0, 40)),
    st.tuples(st.just("leave"), st.integers(0, 40)),
    st.tuples(st.just("end"), st.integers(0, 10)),
    st.tuples(st.just("begin"), st.integers(100, 103)),
    st.tuples(st.just("pass"), st.sampled_from([0.1, 1.0, SLOW_S])),
)


def namespace_of(key: str) -> str:
    """Few are in many namespaces, most in one."""
    number = int(key)
    return "large" if number % 4 else f"small-{number}"


class Model:
    """Lists, searched from one end to the other."""

    def __init__(self) -> None:
        #: (key, for a client), in the order in which they came.
        self.waiting: list[tuple[str, bool]] = []
        #: key to when it began.
        self.running: dict[str, float] = {}

    def quick(self, now_s: float) -> int:
        return sum(now_s - began_s < SLOW_S for began_s in self.running.values())

    def may_begin(self, now_s: float) -> bool:
        return bool(self.waiting) and self.quick(now_s) < AT_ONCE and len(self.running) < RUNNING

    def check_begins(self, key: str, passed_over: dict[str, int]) -> None:
        """``passed_over``: how often others began while the first of a namespace's line waited."""
        is_client = (key, True) in self.waiting
        assert is_client or (key, False) in self.waiting
        line = [one for one, client in self.waiting if client is is_client]
        assert next(one for one in line if namespace_of(one) == namespace_of(key)) == key, "not the first that came"
        passed_over.pop(f"{is_client} {namespace_of(key)}", None)
        for name in {f"{client} {namespace_of(one)}" for one, client in self.waiting if one != key}:
            passed_over[name] = passed_over.get(name, 0) + 1
        # A namespace waits for one turn of each other namespace, and these for the other line's.
        namespaces = len({namespace_of(one) for one, _ in self.waiting}) + 45
        assert max(passed_over.values(), default=0) <= (CLIENTS_TURNS + 1) * namespaces


@given(st.lists(STEP, max_size=150))
def test_queue_keeps_its_limits_its_order_and_everybody(steps: list[tuple[object, ...]]) -> None:
    queue, model, now_s = LoadQueue(AT_ONCE, waiting_max=WAITING), Model(), 0.0
    passed_over: dict[str, int] = {}
    for kind, *rest in steps:
        key = str(rest[0])
        waits = {one for one, _ in model.waiting}
        if kind == "wait" and key not in waits and key not in model.running:
            is_client = bool(rest[1])
            refused = queue.wait(key, namespace_of(key), is_for_client=is_client)
            model.waiting.append((key, is_client))
            assert (refused is None) is (len(model.waiting) <= WAITING)
            if refused is not None:
                looked_at = [one for one, client in model.waiting if not client]
                line = looked_at or [one for one, _ in model.waiting]
                of_it = [one for one in line if namespace_of(one) == namespace_of(refused)]
                assert refused == of_it[-1], "the last of them goes"
                for other in line:
                    assert sum(namespace_of(one) == namespace_of(other) for one in line) <= len(of_it)
                model.waiting = [one for one in model.waiting if one[0] != refused]
        elif kind == "client" and key in waits:
            queue.client_waits(key)
            if (key, False) in model.waiting:
                model.waiting.remove((key, False))
                model.waiting.append((key, True))
        elif kind == "leave":
            queue.leave(key)
            model.waiting = [one for one in model.waiting if one[0] != key]
        elif kind == "end" and model.running:
            ended = list(model.running)[int(key) % len(model.running)]
            del model.running[ended]
            queue.ended(ended)
        elif kind == "begin" and key not in model.running and key not in waits:
            queue.begin(key, now_s)
            model.running[key] = now_s
        elif kind == "pass":
            now_s += float(key)
        due_s = queue.due_s(RUNNING)
        while (begun := queue.next(now_s, RUNNING)) is not None:
            assert model.may_begin(now_s)
            model.check_begins(begun, passed_over)
            model.waiting = [one for one in model.waiting if one[0] != begun]
            model.running[begun] = now_s
        assert not model.may_begin(now_s), "something waits that might begin"
        assert len(queue) == len(model.waiting) <= WAITING
        assert queue.running == len(model.running)
        assert all(queue.is_waiting(one) for one, _ in model.waiting)
        if kind == "pass" and due_s is not None:
            assert queue.due_s(RUNNING) != due_s or now_s < due_s, "who looks again when it is due finds something done"


def filled(**namespaces: int) -> LoadQueue:
    queue = LoadQueue(1)
    for name, count in namespaces.items():
        for number in range(count):
            queue.wait(f"{name}-{number}", name, is_for_client=True)
    return queue


def order_of(queue: LoadQueue) -> list[str]:
    found: list[str] = []
    while (key := queue.next(0.0, RUNNING)) is not None:
        found.append(key)
        queue.ended(key)
    return found


@given(st.integers(1, 300), st.integers(1, 4))
def test_namespace_of_many_topics_holds_up_no_other(many: int, few: int) -> None:
    order = order_of(filled(large=many, small=few, single=1))
    assert order.index("single-0") <= 2
    assert max(order.index(f"small-{number}") for number in range(few)) <= 3 * few


@given(st.integers(1, 100), st.integers(1, 20))
def test_topics_that_clients_wait_for_come_first_and_the_others_come_too(clients: int, others: int) -> None:
    queue = LoadQueue(1)
    for number in range(others):
        queue.wait(f"other-{number}", "ns", is_for_client=False)
    for number in range(clients):
        queue.wait(f"client-{number}", "ns", is_for_client=True)
    order = order_of(queue)
    assert len(order) == clients + others
    assert order[: min(clients, CLIENTS_TURNS)] == [f"client-{n}" for n in range(min(clients, CLIENTS_TURNS))]
    looked_at = [place for place, key in enumerate(order) if key.startswith("other")]
    assert looked_at[0] == min(clients, CLIENTS_TURNS)
    last_client = order.index(f"client-{clients - 1}")
    assert last_client - clients < 1 + clients // CLIENTS_TURNS, "one turn in nine is the others'"


def test_load_that_takes_long_makes_room_but_not_beyond_the_limit_of_all() -> None:
    queue = LoadQueue(1)
    for name in ("stuck", "stuck too", "waits"):
        queue.wait(name, "ns", is_for_client=True)
    assert queue.next(0.0, 2) == "stuck"
    assert queue.next(SLOW_S - 0.1, 2) is None
    assert queue.due_s(2) == SLOW_S
    assert queue.next(SLOW_S, 2) == "stuck too"
    assert queue.next(3 * SLOW_S, 2) is None, "as many run as may"
    assert queue.due_s(2) is None
    queue.ended("stuck")
    assert queue.next(3 * SLOW_S, 2) == "waits"
