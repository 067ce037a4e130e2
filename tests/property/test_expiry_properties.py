"""Expiry by age, against an oracle that looks at every entry of every ledger."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from geminga.broker.core.expiry import LOOK_ENTRIES_MAX, ExpiryWalk, stored_ms
from geminga.managed_ledger.rules.positions import LedgerInfo, LedgerList
from geminga.model.position import Position

NOW = 1000
#: What clients say: the truth, a slow or a fast clock, nothing, the far past and the far future.
CLAIMS = st.one_of(st.integers(0, NOW), st.sampled_from([0, 1, -5, NOW * 100, (1 << 63) - 1]))


@st.composite
def logs(draw):
    """Ledgers with the claims of their entries; when each was made is known or not, the last is open or not."""
    count = draw(st.integers(1, 5))
    times = sorted(draw(st.lists(st.integers(1, NOW), min_size=count, max_size=count)))
    infos, claims = [], {}
    for i, closed_ms in enumerate(times):
        ledger_id = 3 * i + 2
        entries = draw(st.lists(CLAIMS, max_size=30))
        if i == count - 1 and draw(st.booleans()):
            closed_ms = 0
        opened_ms = draw(st.sampled_from([0, times[i - 1] if i else 0, closed_ms]))
        infos.append(LedgerInfo(ledger_id, len(entries), len(entries), closed_ms, opened_ms=opened_ms))
        claims |= {Position(ledger_id, e): claim for e, claim in enumerate(entries)}
    return LedgerList(infos), claims


def walked(ledgers, claims, acknowledged, mark_delete, limit_ms, read_max=LOOK_ENTRIES_MAX):
    """What the walk finds, and what it read for it."""
    walk = ExpiryWalk(ledgers, mark_delete, limit_ms=limit_ms, now_ms=NOW)
    read = []
    while (look := walk.next_look()) is not None:
        assert 1 <= look.entries_max <= LOOK_ENTRIES_MAX
        count = min(look.entries_max, read_max)
        positions = [Position(look.first.ledger_id, look.first.entry_id + i) for i in range(count)]
        read += positions
        walk.looked_at([(p, None if p in acknowledged else claims[p]) for p in positions])
    return walk.found, read


@given(logs(), st.data())
def test_only_the_oldest_entries_expire_and_each_by_its_own_time(log, data):
    ledgers, claims = log
    positions = sorted(claims)
    stood = data.draw(st.integers(0, len(positions)))
    mark_delete = positions[stood - 1] if stood else Position(-1, -1)
    acknowledged = set(data.draw(st.lists(st.sampled_from(positions), max_size=10))) if positions else set()
    limit_ms = data.draw(st.integers(0, NOW))
    found, read = walked(ledgers, claims, acknowledged, mark_delete, limit_ms, data.draw(st.integers(1, 9)))

    # The oracle: entry by entry, from what is known of the ledger it lies in.
    def is_old(position):
        info = ledgers.find(position.ledger_id)
        earlier = [i.closed_ms for i in ledgers.infos if i.ledger_id < position.ledger_id]
        earliest = max([info.opened_ms, *earlier[-1:]])
        latest = info.closed_ms or NOW
        return min(max(claims[position], earliest), max(latest, earliest)) < limit_ms

    gone = set()
    for position in (p for p in positions if p > mark_delete):
        if position not in acknowledged:
            if not is_old(position):
                break
            gone.add(position)
    after = {p for p in positions if mark_delete < p and found is not None and p <= found}
    assert after - acknowledged == gone
    # Closed ledgers that are wholly past the limit are not read, nor is anything twice.
    assert len(set(read)) == len(read)
    for position in read:
        info = ledgers.find(position.ledger_id)
        assert not info.closed_ms or max(info.closed_ms, info.opened_ms) >= limit_ms


@given(logs(), CLAIMS)
def test_no_claim_takes_an_entry_out_of_its_ledgers_time(log, claim):
    ledgers, _ = log
    closed_ms = 0
    for info in ledgers.infos:
        at_ms = stored_ms(ledgers, info, claim, NOW)
        assert closed_ms <= at_ms <= max(info.closed_ms or NOW, info.opened_ms)
        closed_ms = info.closed_ms


@given(logs(), st.integers(0, 200), st.integers(0, 40))
def test_ledgers_may_go_and_entries_come_while_it_looks(log, limit_ms, grown):
    ledgers, _ = log
    walk = ExpiryWalk(ledgers, Position(-1, -1), limit_ms=limit_ms, now_ms=NOW)
    looks = 0
    while (look := walk.next_look()) is not None:
        looks += 1
        assert looks < 100
        if looks == 1:
            gone = ledgers.infos[0].ledger_id
            if len(ledgers) > 1:
                ledgers.remove([gone])
            elif not ledgers.infos[0].closed_ms:
                ledgers.infos[0].entries += grown
        # What was trimmed meanwhile can not be read.
        info = ledgers.find(look.first.ledger_id)
        walk.looked_at(
            []
            if info is None
            else [(Position(look.first.ledger_id, look.first.entry_id + i), 0) for i in range(look.entries_max)]
        )
    assert walk.found is None or walk.found <= Position(1 << 62, 0)


def test_ten_million_entries_in_closed_ledgers_cost_no_reads_but_in_one():
    ledgers = LedgerList(LedgerInfo(i, 50_000, 50_000, closed_ms=i + 1) for i in range(200))

    class Every(dict):
        def __missing__(self, position):
            return position.ledger_id + position.entry_id / 50_000

    found, read = walked(ledgers, Every(), set(), Position(-1, -1), 150.5)
    assert found == Position(150, 24_999)
    assert {p.ledger_id for p in read} == {150}
    assert len(read) <= 25_000 + LOOK_ENTRIES_MAX
    # Nothing to expire: one short read.
    assert len(walked(ledgers, Every(), set(), found, 150.5)[1]) <= 8
    assert not walked(ledgers, Every(), set(), Position(160, 5), 150.5)[1]
