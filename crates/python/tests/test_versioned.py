"""The table for databases with snapshots: beside lists of states, and in front of LMDB."""

import gc
import inspect
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import lmdb
import numpy as np
import pytest
from twins import MASK, array, random_keys

import overbank

State = dict[int, int]
Load = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def load_of(state: State) -> Load:
    def load(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [key in state for key in keys.tolist()]
        values = [state.get(key, 0) for key in keys.tolist()]
        return np.array(values, np.uint64), np.array(found, bool)

    return load


def said(view: overbank.View, *keys: int) -> list[int | str]:
    """What a view says of keys, without filling it."""
    values, found, tickets = view.lookup(array(*keys))
    answers: list[int | str] = [v if f else "absent" for v, f in zip(values.tolist(), found.tolist())]
    for place in tickets.places.tolist():
        answers[place] = "unknown"
    return answers


def filled(version: int, entries: int = 30_000) -> overbank.Versioned:
    """A table with room, as of a commit, that has key → key + 1 below 10, and 1000 as absent."""
    table = overbank.Versioned(entries)
    keys = np.arange(10, dtype=np.uint64)
    state = {key: key + 1 for key in range(10)}
    table.at(version).lookup_through(np.append(keys, array(1000)), load_of(state))
    assert said(table.at(version), 7, 1000, 2000) == [8, "absent", "unknown"]
    return table


class Reader:
    def __init__(self, view: overbank.View, state: State) -> None:
        self.view, self.state = view, state
        self.tickets: list[overbank.Tickets] = []


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("entries", [1, 20, 2000])
def test_answers_are_those_of_the_snapshots(entries: int, numbered: bool) -> None:
    """Random readers, old ones too, and commits that are published late, aborted, or raise.

    Readers use the numbers of their snapshots, and then some commits pass by the table; or the
    newest published one, taken before they begin.
    """
    rng = np.random.default_rng(entries + numbered)
    pool = np.concatenate([random_keys(2, 300), array(0, MASK)])
    history: list[State] = [{key: key >> 1 for key in pool[:200].tolist()}]
    table = overbank.Versioned(entries, seed=3)
    readers: list[Reader] = []
    early: overbank.View | None = None
    # The open commit, the state after it, and whether the database has committed.
    commit, state, done = None, history[0], False
    hits = 0
    for _ in range(3000):
        some = rng.choice(pool, rng.integers(0, 60))
        reader = readers[rng.integers(len(readers))] if readers else None
        match rng.integers(16):
            case 0 | 1:
                if numbered:
                    view = table.at(len(history) - 1)
                else:
                    view, early = early or table.latest(), None
                readers.append(Reader(view, history[-1]))
                del readers[: len(readers) - 6]
            case 2:
                early = early or table.latest()
            case 3 | 4 | 5 if reader:
                got = reader.view.lookup_through(some, load_of(reader.state))
                expected = load_of(reader.state)(some)
                assert np.array_equal(got[0], expected[0]) and np.array_equal(got[1], expected[1])
            case 6 | 7 if reader:
                values, found, tickets = reader.view.lookup(some)
                expected = load_of(reader.state)(some)
                known = np.ones(len(some), bool)
                known[tickets.places] = False
                hits += known.sum()
                assert np.array_equal(values[known], expected[0][known])
                assert np.array_equal(found[known], expected[1][known])
                reader.tickets.append(tickets)
            case 8 if reader and reader.tickets:
                tickets = reader.tickets.pop(rng.integers(len(reader.tickets)))
                answers = load_of(reader.state)(tickets.keys)
                assert reader.view.fill(tickets, *answers) <= len(tickets)
            case 9 if reader and reader.tickets:
                other = readers[rng.integers(len(readers))]
                if other.view.version != reader.view.version:
                    tickets = reader.tickets.pop()
                    assert other.view.fill(tickets, tickets.keys) == 0
            case 10 | 11 if commit is None:
                commit, state, done = table.commit(len(history)), dict(history[-1]), False
            case 12 | 13 if commit and not done:
                values = rng.integers(0, MASK, len(some), dtype=np.uint64, endpoint=True)
                there = rng.random(len(some)) < 0.8
                for key, value, is_there in zip(some.tolist(), values.tolist(), there.tolist()):
                    state.pop(key, None)
                    if is_there:
                        state[key] = value
                match rng.integers(20):
                    case 0:
                        state = {key: value for key, value in state.items() if key % 2}
                        commit.clear()
                    case 1 | 2 | 3:
                        commit.touch(some)
                    case _:
                        commit.change(some, values, there)
            case 14 if commit and not done:
                match rng.integers(5):
                    case 0:
                        commit.abort()
                        commit = None
                    case 1:
                        with pytest.raises(ZeroDivisionError), commit:
                            raise ZeroDivisionError
                        commit = None
                    case 2:
                        with commit:
                            commit.touch(some[:1])
                            history.append(state)
                            # A transaction that changes nothing has no number.
                            if len(some) == 0:
                                commit.publish()
                        commit = None
                    case _:
                        history.append(state)
                        done = True
            case 14 if commit:
                commit.publish()
                commit = None
            case 15 if commit is None and numbered and rng.random() < 0.1:
                # A commit past this table.
                history.append({**history[-1], int(pool[0]): len(history)})
            case 15 if rng.random() < 0.05:
                table.clear()
    assert len(history) > 30 and hits > 0 and table.counters["fills"] > 0, table.counters


def test_a_commit_publishes_when_its_block_ends() -> None:
    table = filled(4)
    old = table.at(4)
    with table.commit(5) as commit:
        commit.change(array(1, 2, 1000, 2000), array(20, 0, 40, 50), np.array([1, 0, 1, 1], bool))
        commit.touch(array(3))
        # The last word on a key counts.
        commit.change(array(4, 5, 5), array(400, 500, 501))
        commit.change(array(4), array(401))
        commit.touch(array(6))
        commit.change(array(6), array(600))
        commit.change(array(7), array(700))
        commit.touch(array(7))
        assert said(old, 1, 2, 3, 8) == ["unknown"] * 3 + [9]
        assert table.published == 4 and table.at(5).version == 0
        assert said(table.at(5), 1, 8) == ["unknown"] * 2
    assert table.published == 5 and commit.version == 5 and repr(commit) == "<Commit: 5>"
    new = table.latest()
    assert new.version == 5 and repr(new) == "<View: commit 5>"
    # What was there has its new value; the others are to be filled.
    assert said(new, 1, 2, 1000, 2000, 3, 8) == [20, "absent", 40, "unknown", "unknown", 9]
    assert said(new, 4, 5, 6, 7) == [401, 501, "unknown", "unknown"]
    assert said(old, 1, 2, 4, 8) == ["unknown"] * 3 + [9]
    # An older reader cannot fill what was changed, a new one can.
    tickets = old.lookup(array(3))[2]
    assert old.fill(tickets, array(4)) == 0 and said(new, 3) == ["unknown"]
    assert new.fill(new.lookup(array(3))[2], array(30)) == 1 and said(new, 3) == [30]


def test_a_commit_that_raises_is_aborted() -> None:
    table = filled(4)
    with pytest.raises(ZeroDivisionError), table.commit(5) as commit:
        commit.change(array(1), array(20))
        raise ZeroDivisionError
    assert table.published == 4 and said(table.latest(), 1, 2) == ["unknown", 3]
    with pytest.raises(ValueError, match="was aborted"):
        commit.publish()
    # Its number comes again, and what it said is forgotten.
    with table.commit(5) as commit:
        commit.change(array(2), array(30))
    assert said(table.at(5), 1, 2) == ["unknown", 30]


def test_a_commit_without_changes_is_not_published() -> None:
    """LMDB uses its number again."""
    table = filled(4)
    with table.commit(5) as commit:
        commit.change(array(), array())
        commit.touch(array())
    assert table.published == 4 and said(table.latest(), 1) == [2]
    with pytest.raises(ValueError, match="was aborted"):
        commit.touch(array(1))
    # Unless it says so: the transaction changed another table.
    other = filled(4)
    with table.commit() as commit, other.commit() as change:
        commit.begin(5)
        change.begin(5)
        change.change(array(1), array(20))
        commit.publish()
        change.publish()
    assert table.published == other.published == 5
    assert said(table.at(5), 1) == [2] and said(other.at(5), 1) == [20]
    for number, change in enumerate(
        [
            lambda commit: commit.touch(array(1)),
            lambda commit: commit.change(array(1), array(1)),
            lambda commit: commit.clear(),
        ],
        6,
    ):
        with table.commit(number) as commit:
            change(commit)
        assert table.published == number


def test_without_a_block() -> None:
    table = filled(4)
    commit = table.commit(5)
    commit.change(array(1), array(20))
    commit.abort()
    commit = table.commit(5)
    commit.change(array(2), array(30))
    commit.publish()
    assert said(table.at(5), 1, 2) == ["unknown", 30]
    # One that is forgotten is aborted; until then its number answers nothing.
    commit = table.commit(6)
    assert table.at(6).version == 0
    del commit
    gc.collect()
    assert said(table.latest(), 2) == [30] and table.at(6).version == 6


def test_a_commit_begins_once() -> None:
    table = filled(4)
    with table.commit() as commit:
        assert commit.version is None and repr(commit) == "<Commit>"
        for call in [
            lambda: commit.change(array(1), array(1)),
            lambda: commit.touch(array(1)),
            commit.clear,
            commit.publish,
            commit.abort,
        ]:
            with pytest.raises(ValueError, match="has no number yet"):
                call()
        with pytest.raises(ValueError, match="commit 4: must be above 4"):
            commit.begin(4)
        assert table.at(4).version == 4
        commit.begin(5)
        assert commit.version == 5 and table.at(5).version == 0
        with pytest.raises(ValueError, match="has begun; it has one number"):
            commit.begin(6)
        commit.change(array(1), array(20))
    assert table.published == 5 and said(table.latest(), 1, 2) == [20, 3]
    # Nothing has begun, so nothing is published; and the program is told.
    commit = table.commit()
    with pytest.raises(ValueError, match="ended without begin"), commit:
        pass
    with pytest.raises(ZeroDivisionError), table.commit() as other:
        raise ZeroDivisionError
    for ended in (commit, other):
        with pytest.raises(ValueError, match="was aborted"):
            ended.begin(6)
    assert table.published == 5 and said(table.latest(), 1, 2) == [20, 3]


def test_an_ended_commit_takes_nothing() -> None:
    for end, text in [
        (lambda commit: commit.publish(), "the commit was published; "),
        (lambda commit: commit.abort(), "the commit was aborted; "),
        (lambda commit: commit.__exit__(None, None, None), "the commit was aborted; "),
    ]:
        table = filled(4)
        with table.commit(5) as commit:
            end(commit)
            published = table.published
            for call in [
                lambda: commit.change(array(1), array(1)),
                lambda: commit.touch(array(1)),
                commit.clear,
                commit.publish,
                commit.abort,
                commit.__enter__,
                lambda: commit.begin(6),
            ]:
                with pytest.raises(ValueError, match=text) as caught:
                    call()
                assert "\n" not in str(caught.value)
        assert table.published == published and said(table.latest(), 1) == [2]
        with pytest.raises(ValueError, match=text):
            commit.publish()
    names = list(inspect.signature(overbank.Commit.__exit__).parameters)
    assert names == ["self", "kind", "error", "trace"]


def test_numbers_out_of_order() -> None:
    table = filled(4)
    for version in [0, 3, 4, 1 << 48, MASK]:
        text = f"commit {version}: must be above 4, the newest published, and below 2\\^48"
        with pytest.raises(ValueError, match=text):
            table.commit(version)
    assert said(table.latest(), 1) == [2]
    # A commit in place of one that is open: nothing is known about their order.
    first, second = table.commit(5), table.commit(5)
    first.change(array(1), array(20))
    second.change(array(2), array(30))
    second.publish()
    assert said(table.at(5), 1, 2, 3) == ["unknown", 30, 4]
    first.publish()
    assert said(table.at(5), 1, 2, 3) == ["unknown"] * 3
    # Gaps take everything out: of commits, and of snapshots.
    table = filled(4)
    old = table.latest()
    with table.commit(7) as commit:
        commit.touch(array(5000))
        assert said(old, 1) == ["unknown"] and table.published == 6
    table = filled(4)
    assert said(table.at(6), 1) == ["unknown"] and table.published == 6
    # A number above all answers nothing, and changes nothing.
    table = filled(4)
    for version in [1 << 48, MASK]:
        view = table.at(version)
        assert view.version == 0 and said(view, 1) == ["unknown"]
        assert view.fill(view.lookup(array(1))[2], array(5)) == 0
    assert said(table.latest(), 1) == [2]


def test_tickets_of_others_fill_nothing() -> None:
    table, other = filled(4), filled(4)
    with table.commit(5) as commit:
        commit.touch(array(3000))
    old, new = table.at(4), table.at(5)
    aside = overbank.LookAside(30_000)
    makers: list[overbank.View | overbank.LookAside] = [old, other.at(4), aside]
    for maker in makers:
        tickets = maker.lookup(array(2000))[2]
        assert new.fill(tickets, array(1)) == 0 and said(new, 2000) == ["unknown"]
        with pytest.raises(ValueError, match="filled before"):
            maker.fill(tickets, array(1))
    tickets = new.lookup(array(2000))[2]
    assert aside.fill(tickets, array(1)) == 0 and len(aside.lookup(array(2000))[2]) == 1
    # Those of the same snapshot do.
    assert table.at(5).fill(new.lookup(array(2000))[2], array(1)) == 1
    # After a clear, a view from before answers and takes nothing.
    tickets = new.lookup(array(2001))[2]
    table.clear()
    assert new.fill(tickets, array(1)) == 0 and said(new, 1, 2000) == ["unknown"] * 2
    assert new.fill(new.lookup(array(1))[2], array(1)) == 0
    assert table.at(5).fill(table.at(5).lookup(array(1))[2], array(1)) == 1


def test_a_clear_by_a_commit() -> None:
    table = filled(4)
    old = table.latest()
    with table.commit(5) as commit:
        commit.change(array(1), array(20))
        commit.clear()
        commit.change(array(2), array(30))
        assert said(old, 1, 8) == ["unknown"] * 2
    assert said(table.at(5), 1, 2, 8) == ["unknown"] * 3
    # Many changes, more than are kept.
    many = np.arange(70_000, dtype=np.uint64)
    table = overbank.Versioned(300_000)
    table.at(4).lookup_through(many, lambda keys: (keys, np.ones(len(keys), bool)))
    with table.commit(5) as commit:
        commit.change(many, many + np.uint64(1))
    values, found, tickets = table.at(5).lookup(many)
    assert np.array_equal(values[found], many[found] + np.uint64(1))
    assert found.sum() + len(tickets) == len(many) and 60_000 < found.sum() <= 1 << 16


def test_a_view_keeps_its_table() -> None:
    table = filled(4)
    view, commit = table.latest(), table.commit(5)
    assert repr(table) == f"<Versioned: {table.slots} slots, {table.nbytes} bytes, commit 4>"
    assert table.slots >= 30_000 and table.nbytes == table.slots // 3 * 64
    del table
    gc.collect()
    commit.change(array(2), array(9))
    commit.publish()
    assert said(view, 1, 2) == [2, "unknown"]


def test_refuses_in_one_line() -> None:
    table = filled(4)
    view, commit, keys = table.latest(), table.commit(5), np.arange(2000, 2003, dtype=np.uint64)
    tickets = view.lookup(keys)[2]
    two = np.ones(2, bool)
    for call, error, text in [
        (lambda: overbank.Versioned(0), ValueError, "entries 0: must be between 1"),
        (lambda: overbank.Versioned(4, max_bytes=127), ValueError, "a table of 128 bytes"),
        (lambda: overbank.Versioned(9, costs=(0, 0, 0)), ValueError, "costs: hit 0"),
        (lambda: overbank.Versioned(9, measure=1), TypeError, "measure"),
        (lambda: table.at(-1), ValueError, "version -1: must be between 0"),
        (lambda: table.at(1.5), TypeError, "version: float; expected an int"),
        (lambda: table.at(None), TypeError, "version: NoneType"),
        (lambda: table.commit("5"), TypeError, "version: str; expected an int"),
        (lambda: table.commit().begin(None), TypeError, "version: NoneType; expected an int"),
        (lambda: table.commit(1 << 64), ValueError, "version 18446744073709551616"),
        (lambda: view.lookup(keys.astype("i8")), TypeError, "keys: dtype int64; expected uint64"),
        (lambda: view.lookup_through(keys, 3), TypeError, "load: int; expected a function"),
        (lambda: view.fill(keys, keys), TypeError, "tickets: ndarray; expected those of a lookup"),
        (lambda: view.fill(tickets, keys[1:]), ValueError, "tickets has 3 elements, values has 2"),
        (lambda: commit.change(keys, keys[1:]), ValueError, "keys has 3 elements, values has 2"),
        (lambda: commit.change(keys, keys, two), ValueError, "keys has 3 elements, found has 2"),
        (lambda: commit.change(keys, keys, keys), TypeError, "found: dtype uint64; expected bool"),
        (lambda: commit.change(keys[::2], keys), ValueError, "keys: not contiguous"),
        (lambda: commit.change([1], keys), TypeError, "keys: list"),
        (lambda: commit.change(keys, keys.astype("f8")), TypeError, "values: dtype float64"),
        (lambda: commit.touch(keys.astype("u4")), TypeError, "keys: dtype uint32"),
        (lambda: commit.touch(keys.reshape(1, 3)), ValueError, "keys: 2 dimensions; expected 1"),
        (lambda: overbank.View(), TypeError, "View"),
        (lambda: overbank.Commit(), TypeError, "Commit"),
    ]:
        with pytest.raises(error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)
    # What was refused has changed nothing, and used no tickets.
    with commit:
        pass
    assert table.published == 4 and view.fill(tickets, keys) == 3


# In front of LMDB. Keys and values are 8 bytes.


def packed(number: int) -> bytes:
    return struct.pack("=Q", number)


def snapshot(txn: lmdb.Transaction) -> Load:
    """Asks a transaction."""

    def load(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = [txn.get(packed(key)) for key in keys.tolist()]
        values = np.array([struct.unpack("=Q", row or bytes(8))[0] for row in rows], np.uint64)
        return values, np.array([row is not None for row in rows], bool)

    return load


@pytest.fixture
def env(tmp_path: Path) -> Iterator[lmdb.Environment]:
    with lmdb.open(str(tmp_path), map_size=1 << 24, sync=False) as env:
        yield env


def put(env: lmdb.Environment, table: overbank.Versioned, entries: State) -> None:
    with table.commit() as commit, env.begin(write=True) as txn:
        commit.begin(txn.id())
        for key, value in entries.items():
            txn.put(packed(key), packed(value))
        commit.change(array(*entries), array(*entries.values()))


def test_in_front_of_lmdb(env: lmdb.Environment) -> None:
    table = overbank.Versioned(30_000)
    put(env, table, {1: 10, 2: 20})
    keys = array(1, 2, 3)

    def read(txn: lmdb.Transaction) -> list[int | str]:
        view = table.at(txn.id())
        assert view.version == txn.id()
        values, found = view.lookup_through(keys, snapshot(txn))
        return [v if f else "absent" for v, f in zip(values.tolist(), found.tolist())]

    with env.begin() as old:
        assert read(old) == [10, 20, "absent"]
        assert said(table.latest(), 1, 2, 3) == [10, 20, "absent"]
        put(env, table, {2: 21, 3: 30})
        # The answers of the newest are there without LMDB, those of old are as they were.
        assert said(table.latest(), 1, 2, 3) == [10, 21, 30]
        assert read(old) == [10, 20, "absent"]
        with env.begin() as new:
            assert read(new) == [10, 21, 30]
    # A transaction that fails is aborted in both; its number comes again.
    published = table.published
    with pytest.raises(lmdb.MapFullError), table.commit() as commit, env.begin(write=True) as txn:
        commit.begin(txn.id())
        commit.change(array(1), array(11))
        txn.put(packed(1), packed(11))
        txn.put(b"large", bytes(1 << 25))
    assert table.published == published
    # So does one without changes.
    with table.commit() as commit, env.begin(write=True) as txn:
        commit.begin(txn.id())
        assert not txn.delete(packed(9))
    with env.begin() as new:
        assert read(new) == [10, 21, 30] and new.id() == published
    put(env, table, {2: 22})
    assert table.published == published + 1
    # The key that the failed one named had no entry meanwhile.
    assert said(table.latest(), 1, 2, 3) == ["unknown", 22, 30]
    # A change that was named and not made: the number comes again, and is refused.
    with table.commit() as commit, env.begin(write=True) as txn:
        commit.begin(txn.id())
        assert not txn.delete(packed(9))
        commit.change(array(9), array(0), np.array([False]))
    with pytest.raises(ValueError, match="must be above") as caught:
        put(env, table, {2: 23})
    # Neither the table nor LMDB is held up by what was refused.
    assert said(table.latest(), 3) == [30] and caught.tb
    table = overbank.Versioned(30_000)
    put(env, table, {1: 10})
    # A commit past the table is noticed by its number.
    with env.begin(write=True) as txn:
        txn.put(packed(2), packed(23))
    view = table.at(env.info()["last_txnid"])
    assert said(view, 1, 2, 3) == ["unknown"] * 3
    with env.begin() as new:
        assert read(new) == [10, 23, 30] and new.id() == view.version


@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("numbered", [True, False])
def test_no_reader_sees_a_value_go_back(
    env: lmdb.Environment, numbered: bool, locked: bool
) -> None:
    """Counters in LMDB that only grow, read through the table while two threads write.

    Without a lock they may reach the table in another order than LMDB.
    """
    table = overbank.Versioned(60)
    wrong: list[str] = []
    ended, writing = threading.Event(), threading.Lock() if locked else nullcontext()
    put(env, table, dict.fromkeys(range(40), 0))

    def latest(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with env.begin() as txn:
            return snapshot(txn)(keys)

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        seen = np.zeros(40, np.uint64)
        while not ended.is_set():
            keys = rng.permutation(40).astype(np.uint64)[:20].copy()
            if numbered:
                with env.begin() as txn:
                    values, found = table.at(txn.id()).lookup_through(keys, snapshot(txn))
                    exact = np.array_equal(values, snapshot(txn)(keys)[0])
            else:
                values, found = table.latest().lookup_through(keys, latest)
                exact = True
            if not found.all() or not exact or not (values >= seen[keys]).all():
                wrong.append("a value went back, or is not the snapshot's")
                return
            seen[keys] = values

    def write(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for turn in range(500):
            keys = rng.permutation(40).astype(np.uint64)[:3].copy()
            try:
                with writing:
                    with table.commit() as commit, env.begin(write=True) as txn:
                        commit.begin(txn.id())
                        values = snapshot(txn)(keys)[0] + np.uint64(1)
                        for key, value in zip(keys.tolist(), values.tolist()):
                            txn.put(packed(key), packed(value))
                        commit.change(keys, values)
                        if turn % 5 == 0:
                            raise ZeroDivisionError
            except ZeroDivisionError:
                pass
            if turn % 100 == 0:
                table.clear()

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(8, 10)]
    [one.start() for one in readers + writers]
    [one.join() for one in writers]
    ended.set()
    [one.join() for one in readers]
    with env.begin() as txn:
        every = np.arange(40, dtype=np.uint64)
        values = snapshot(txn)(every)[0]
        assert not wrong and values.sum() == 2 * 400 * 3 and table.published == txn.id()
        assert np.array_equal(table.at(txn.id()).lookup_through(every, snapshot(txn))[0], values)
    assert table.counters["hits"] > 0
