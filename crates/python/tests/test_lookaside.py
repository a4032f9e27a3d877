import inspect
import re
import threading
import time
from typing import Any

import numpy as np
import pytest
from twins import MASK, array, random_keys

import overbank


class Index:
    """A dict that is asked with arrays, and counts for how many keys."""

    def __init__(self, keys: np.ndarray, values: np.ndarray) -> None:
        self.map = dict(zip(keys.tolist(), values.tolist()))
        self.asked = 0

    def load(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.asked += len(keys)
        found = [key in self.map for key in keys.tolist()]
        values = [self.map.get(key, 0) for key in keys.tolist()]
        return np.array(values, np.uint64), np.array(found, bool)


def filled(entries: int, count: int) -> overbank.LookAside:
    """A table with room, that has key → key + 1 for the first keys, and knows that 1000 is absent."""
    table = overbank.LookAside(entries)
    keys = np.arange(count, dtype=np.uint64)
    tickets = table.lookup(np.append(keys, array(1000)))[2]
    found = np.append(np.ones(count, bool), False)
    assert table.fill(tickets, np.append(keys + np.uint64(1), array(0)), found) == count + 1
    return table


def state(table: overbank.LookAside, *keys: int) -> list[int | str]:
    """What the table says of keys, without filling it."""
    values, found, tickets = table.lookup(array(*keys))
    said: list[int | str] = [v if f else "absent" for v, f in zip(values.tolist(), found.tolist())]
    for place in tickets.places.tolist():
        said[place] = "unknown"
    return said


@pytest.mark.parametrize("entries", [1, 20, 5000])
def test_answers_are_those_of_the_dict(entries: int) -> None:
    """Lookups of both kinds, writes that keep, do not, or fail, ranges: tables far too small, too."""
    rng = np.random.default_rng(entries)
    pool = np.concatenate([random_keys(2, 1000), array(0, MASK)])
    index = Index(pool[:700], pool[:700] + np.uint64(1))
    table = overbank.LookAside(entries, seed=3)
    for turn in range(400):
        some = rng.choice(pool, rng.integers(0, 200))
        own = np.unique(some)
        values = rng.integers(0, MASK, len(own), dtype=np.uint64, endpoint=True)
        there = rng.random(len(own)) < 0.8
        match rng.integers(6):
            case 0 | 1:
                got = table.lookup_through(some, index.load)
            case 2 | 3:
                *got, tickets = table.lookup(some)
                answers = index.load(tickets.keys)
                assert table.fill(tickets, *answers) <= len(tickets)
                got[0][tickets.places], got[1][tickets.places] = answers
            case 4:
                with table.writing(own) as write:
                    for key, value, is_there in zip(own.tolist(), values.tolist(), there.tolist()):
                        index.map.pop(key, None)
                        if is_there:
                            index.map[key] = value
                    if turn % 2:
                        write.keep(values, there)
                continue
            case 5:
                with pytest.raises(ZeroDivisionError), table.writing(own) as write:
                    write.keep(values)
                    raise ZeroDivisionError
                if turn % 8 == 0:
                    with table.writing():
                        for key in some.tolist():
                            index.map.pop(key, None)
                continue
        expected = index.load(some)
        assert np.array_equal(got[0], expected[0]) and np.array_equal(got[1], expected[1])
    counters = table.counters
    assert counters["hits"] > 0 and counters["fills"] > 0 and 0 < table.hit_rate < 1, counters


def test_knows_found_absent_and_unknown() -> None:
    table = filled(3000, 50)
    keys = array(7, 2000, 1000, 49, 7)
    values, found, tickets = table.lookup(keys)
    assert values.tolist() == [8, 0, 0, 50, 8] and found.tolist() == [True, False, False, True, True]
    assert tickets.places.tolist() == [1] and tickets.keys.tolist() == [2000] and len(tickets) == 1
    assert (values.dtype, found.dtype) == (np.uint64, np.bool_)
    assert (tickets.keys.dtype, tickets.places.dtype) == (np.uint64, np.int64)
    # Bits of bools that are neither 0 nor 1 are true.
    odd = np.array([2], np.uint8).view(bool)
    assert table.fill(tickets, array(5), odd) == 1 and state(table, 2000) == [5]
    assert table.slots >= 3000 and table.nbytes == table.slots // 3 * 64
    assert repr(table) == f"<LookAside: {table.slots} slots, {table.nbytes} bytes>"


def test_lengths_around_a_burst() -> None:
    table = filled(30_000, 100)
    for length in [0, 1, 31, 32, 33, 64, 65, 200, 1023, 1024, 1025, 3000]:
        keys = np.arange(length, dtype=np.uint64)
        values, found, tickets = table.lookup(keys)
        assert np.array_equal(found, keys < 100)
        assert np.array_equal(values, np.where(found, keys + np.uint64(1), 0))
        unknown = [key for key in range(100, length) if key != 1000]
        assert tickets.places.tolist() == unknown
        assert tickets.keys.tolist() == unknown


def test_stale_tickets_fill_nothing() -> None:
    def tickets_of(table: overbank.LookAside) -> overbank.Tickets:
        tickets = table.lookup(array(2000, 2001))[2]
        assert len(tickets) == 2
        return tickets

    def write(table: overbank.LookAside) -> None:
        with table.writing(array(2000)):
            pass

    def range_write(table: overbank.LookAside) -> None:
        with table.writing():
            pass

    new = array(1, 2)
    for change, put_in in [
        (lambda table: None, 2),
        (write, 1),
        (range_write, 0),
        (lambda table: table.clear(), 0),
        (lambda table: table.writing(array(2000)), 2),
    ]:
        table = filled(3000, 10)
        tickets = tickets_of(table)
        change(table)
        assert table.fill(tickets, new) == put_in
        assert state(table, 2000, 2001) == ["unknown"] * (2 - put_in) + new.tolist()[2 - put_in :]
    # Those of another table, and those that were used.
    table, other = filled(3000, 10), filled(3000, 10)
    tickets = tickets_of(other)
    assert table.fill(tickets, new) == 0 and state(table, 2000, 2001) == ["unknown"] * 2
    with pytest.raises(ValueError, match="filled before"):
        other.fill(tickets, new)
    # While a write is inside, nothing is filled; lookups of its key then are void.
    tickets = tickets_of(table)
    with table.writing(array(2000)):
        assert table.fill(tickets, new) == 1
        void = table.lookup(array(2000))[2]
    assert table.fill(void, array(1)) == 0 and state(table, 2000, 2001) == ["unknown", 2]


def test_writes_keep_what_was_there() -> None:
    table = filled(30_000, 10)
    with table.writing(array(1, 2, 3, 1000, 5000)) as write:
        assert state(table, 1, 2, 3, 4) == ["unknown"] * 3 + [5]
        write.keep(array(9, 9, 9, 9, 9))
        write.keep(array(10, 0, 30, 40, 50), np.array([True, False, True, True, True]))
        assert state(table, 1) == ["unknown"]
    # The last call counts; a key without an entry gets none.
    assert state(table, 1, 2, 3, 1000, 5000) == [10, "absent", 30, 40, "unknown"]
    # Without keep, after an error, and with a key that is there twice, entries stay out.
    with table.writing(array(1)):
        pass
    with pytest.raises(ZeroDivisionError), table.writing(array(3)) as write:
        write.keep(array(31))
        raise ZeroDivisionError
    with table.writing(array(4, 4, 5)) as write:
        write.keep(array(1, 2, 6))
    assert state(table, 1, 3, 4, 5) == ["unknown"] * 3 + [6]
    # Of two keys in one bucket, the last one keeps.
    tiny = filled(3, 2)
    with tiny.writing(array(0, 1)) as write:
        write.keep(array(10, 11))
    assert state(tiny, 0, 1, 1000) == ["unknown", 11, "absent"]
    # So a write keeps one key of each bucket that it comes to: of few keys nearly all.
    large = filled(3000, 100)
    with large.writing(np.arange(100, dtype=np.uint64)) as write:
        write.keep(np.arange(100, dtype=np.uint64))
    assert large.lookup(np.arange(100, dtype=np.uint64))[1].sum() == 97
    # Nor is anything kept where another write was inside.
    with table.writing(array(6)) as outer, table.writing(array(6)) as inner:
        outer.keep(array(60))
        inner.keep(array(61))
    assert state(table, 6, 7) == ["unknown", 8]


def test_large_writes_and_those_of_any_keys_take_everything_out() -> None:
    many = np.arange(70_000, dtype=np.uint64)
    for entries, keys in [(60, many[:9000]), (90_000, many), (300, None)]:
        table = filled(entries, 5)
        tickets = table.lookup(array(2000))[2]
        with table.writing(keys) as write:
            assert state(table, 1, 1000) == ["unknown"] * 2
            inside = table.lookup(array(1))[2]
            if keys is not None:
                write.keep(keys)
        assert table.fill(tickets, array(1)) + table.fill(inside, array(1)) == 0
        assert state(table, 1, 1000, 2000) == ["unknown"] * 3
        # It works on afterwards.
        assert table.fill(table.lookup(array(1))[2], array(2)) == 1 and state(table, 1) == [2]


def test_a_write_is_used_once_and_leaves_when_it_is_forgotten() -> None:
    table = filled(300, 5)
    write = table.writing(array(1))
    for call in (lambda: write.keep(array(1)), lambda: write.__exit__(None, None, None)):
        with pytest.raises(ValueError, match="not entered"):
            call()
    with write:
        for keep, text in [
            ((array(1, 2),), "keys has 1 elements, values has 2"),
            ((array(1), np.ones(2, bool)), "keys has 1 elements, found has 2"),
        ]:
            with pytest.raises(ValueError, match=text):
                write.keep(*keep)
        with pytest.raises(ValueError, match="entered once"):
            write.__enter__()
    for call, text in [
        (lambda: write.keep(array(1)), "over"),
        (write.__enter__, "entered once"),
        (lambda: write.__exit__(None, None, None), "over"),
    ]:
        with pytest.raises(ValueError, match=text):
            call()
    with table.writing() as anything, pytest.raises(ValueError, match="no keys"):
        anything.keep(array())
    # One that is dropped inside does not shut its bucket.
    forgotten = table.writing(array(2))
    forgotten.__enter__()
    assert table.fill(table.lookup(array(2))[2], array(1)) == 0
    del forgotten
    assert table.fill(table.lookup(array(2))[2], array(1)) == 1
    # The array of the keys may change after writing.
    keys = array(3)
    write = table.writing(keys)
    keys[0] = 4
    with write:
        assert state(table, 3) == ["unknown"]
    names = list(inspect.signature(overbank.Writing.__exit__).parameters)
    assert names == ["self", "kind", "error", "trace"]
    assert repr(write) == "<Writing: 1 keys>" and repr(table.writing()) == "<Writing: any keys>"


def test_load_may_do_anything() -> None:
    index = Index(np.arange(100, dtype=np.uint64), np.arange(1, 101, dtype=np.uint64))
    table = overbank.LookAside(3000)
    keys = array(1, 2, 1, 500)
    assert [part.tolist() for part in table.lookup_through(keys, index.load)] == [
        [2, 3, 2, 0],
        [True, True, True, False],
    ]
    assert index.asked == 4 and state(table, 1, 2, 500) == [2, 3, "absent"]
    table.lookup_through(keys, index.load)
    table.lookup_through(keys, lambda _: pytest.fail("nothing is unknown"))
    assert index.asked == 4
    # Raise: nothing is filled.
    with pytest.raises(ZeroDivisionError):
        table.lookup_through(array(9), lambda keys: 1 / 0)
    # Answer nonsense.
    for answers, error, text in [
        (None, TypeError, "load returned NoneType; expected"),
        (array(1), TypeError, "load returned ndarray"),
        ((array(1), [True]), TypeError, "found: list"),
        ((array(1), array(1)), TypeError, "found: dtype uint64; expected bool"),
        ((array(1, 2), np.ones(2, bool)), ValueError, "keys of load has 1 elements, values has 2"),
        ((array(1), np.ones(2, bool)), ValueError, "keys of load has 1 elements, found has 2"),
        ((array(1).astype("i8"), np.ones(1, bool)), TypeError, "values: dtype int64"),
    ]:
        with pytest.raises(error, match=text) as caught:
            table.lookup_through(array(9), lambda keys: answers)
        assert "\n" not in str(caught.value)
    # Sort the keys, which would swap the answers.
    with pytest.raises(ValueError, match="read-only"):
        table.lookup_through(array(9, 8), lambda keys: (keys.sort(), index.load(keys))[1])
    assert state(table, 9, 8) == ["unknown"] * 2

    # Write what is asked for: the answer stays out, since it may be the old one.
    def writes(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        answers = index.load(keys)
        with table.writing(keys):
            index.map[9] = 90
        return answers

    assert table.lookup_through(array(9), writes)[0].tolist() == [10]
    assert table.lookup_through(array(9), index.load)[0].tolist() == [90]
    # Look up through the table; a value that load says is not there is 0.
    def nested(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return table.lookup_through(keys, lambda keys: (keys, np.zeros(len(keys), bool)))

    values, found = table.lookup_through(array(77), nested)
    assert (values.tolist(), found.tolist()) == ([0], [False]) and state(table, 77) == ["absent"]


def test_no_reader_sees_a_value_go_back() -> None:
    """Counters of an index that only grow, read through the table while two threads write."""
    table = overbank.LookAside(150)
    index, guard = np.zeros(100, np.uint64), threading.Lock()
    wrong: list[str] = []
    ended = threading.Event()

    def load(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with guard:
            return index[keys], np.ones(len(keys), bool)

    def read(seed: int) -> None:
        rng = np.random.default_rng(seed)
        seen = np.zeros(100, np.uint64)
        while not ended.is_set():
            keys = rng.permutation(100).astype(np.uint64)[:30].copy()
            values, found = table.lookup_through(keys, load)
            if not found.all() or not (values >= seen[keys]).all():
                wrong.append("a value went back")
                return
            seen[keys] = values

    def write(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for turn in range(2000):
            keys = rng.permutation(100).astype(np.uint64)[:3].copy()
            with table.writing(keys) as writing:
                with guard:
                    index[keys] += np.uint64(1)
                    values = index[keys]
                if turn % 3:
                    writing.keep(values)
            if turn % 500 == 0:
                table.clear()

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(2)]
    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(8, 10)]
    [one.start() for one in readers + writers]
    [one.join() for one in writers]
    ended.set()
    [one.join() for one in readers]
    assert not wrong and index.sum() == 12_000
    assert np.array_equal(table.lookup_through(np.arange(100, dtype=np.uint64), load)[0], index)


def test_steps_aside_where_it_does_not_pay() -> None:
    rng = np.random.default_rng(5)
    load = Index(array(), array()).load
    for costs, is_open, text in [
        ((10, 10, 1000), True, "open: "),
        ((100.0, 100.0, 1.0), False, "closed: "),
    ]:
        table = overbank.LookAside(30_000, costs=costs)
        assert table.is_open and table.report == "open: too few lookups to decide yet"
        for _ in range(30):
            table.lookup_through(rng.integers(0, 10_000, 10_000, dtype=np.uint64), load)
        assert table.is_open == is_open and table.report.startswith(text), table.report
        unknown = len(table.lookup(np.arange(10_000, dtype=np.uint64))[2])
        assert (unknown < 3000) if is_open else (unknown > 9000)
    assert overbank.LookAside(9).report == "open: it has no gate"


class Calls:
    """An index that has every key, and how many keys each call asked for."""

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds, self.calls = nanoseconds, list[int]()

    def load(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.calls.append(len(keys))
        end = time.perf_counter_ns() + len(keys) * self.nanoseconds
        while time.perf_counter_ns() < end:
            pass
        return keys, np.ones(len(keys), bool)


def front(kind: type) -> tuple[Any, Any]:
    """A table that measures, and what is looked up in."""
    table = kind(3000, measure=True)
    assert table.is_open and table.report == "open: costs are not measured yet"
    return table, table if kind is overbank.LookAside else table.latest()


def index_cost(report: str) -> float:
    found = re.search(r" instead of (\d+) ns, ", report)
    assert found, report
    return float(found[1])


KINDS = [overbank.LookAside, overbank.Versioned]


@pytest.mark.parametrize("kind", KINDS)
def test_measures_that_it_pays(kind: type) -> None:
    """Few keys before a slow index: calls 256 to 767 go around, with all of their keys."""
    table, view = front(kind)
    index, rng = Calls(200), np.random.default_rng(5)
    for _ in range(900):
        keys = rng.integers(0, 300, 512, dtype=np.uint64)
        values, found = view.lookup_through(keys, index.load)
        assert np.array_equal(values, keys) and found.all()
        assert len(view.lookup_through(array(), index.load)[0]) == 0
    # And the first call, with an empty table.
    assert index.calls.count(512) == 1 + 512 and 0 not in index.calls
    assert table.is_open and re.match(r"open: (9\d|100)\.", table.report), table.report
    assert 190 < index_cost(table.report) < 2000, table.report


@pytest.mark.parametrize("kind", KINDS)
def test_measures_that_it_does_not_pay(kind: type) -> None:
    """Keys that hardly come again before a fast index: it steps aside, and 15 calls of 16 do.

    What the caller does between calls counts as no cost.
    """
    table, view = front(kind)
    index, rng = Calls(0), np.random.default_rng(5)
    turns = 0
    while table.is_open and turns < 3000:
        keys = rng.integers(0, MASK, 512, dtype=np.uint64)
        values, found = view.lookup_through(keys, index.load)
        assert np.array_equal(values, keys) and found.all()
        # From the last calls before those around the table are timed.
        if turns > 630:
            time.sleep(0.001)
        turns += 1
    assert turns < 3000 and table.report.startswith("closed: "), table.report
    # 1 ms a call would be 1,953 ns a key.
    assert index_cost(table.report) < 600, table.report
    misses = table.counters["misses"]
    for _ in range(320):
        view.lookup_through(rng.integers(0, MASK, 512, dtype=np.uint64), index.load)
    # One key in 32 is counted, if it goes through the table.
    through = (table.counters["misses"] - misses) * 32 / 512
    assert not table.is_open and 12 < through < 30, through


def test_measures_calls_of_any_length_in_any_thread() -> None:
    """Threads at once, calls within calls, calls that fail, without keys, with many and few."""
    table = overbank.LookAside(3000, measure=True, costs=(10, 10, 1000))
    assert table.report == "open: too few lookups to decide yet"
    index = Index(np.arange(5000, dtype=np.uint64), np.arange(5000, dtype=np.uint64))
    wrong: list[str] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)

        def nested(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            if seed == 0 and rng.random() < 0.1:
                raise ZeroDivisionError
            return table.lookup_through(keys, index.load)

        for _ in range(1500):
            keys = rng.integers(0, 6000, rng.choice([0, 1, 30, 600, 3000]), dtype=np.uint64)
            try:
                values, found = table.lookup_through(keys, nested if seed < 2 else index.load)
            except ZeroDivisionError:
                continue
            if not np.array_equal(found, keys < 5000) or not np.array_equal(values[found], keys[found]):
                wrong.append(str(keys))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    [one.start() for one in threads]
    [one.join() for one in threads]
    assert not wrong and re.match(r"(open|closed): [\d.]+ % of lookups hit", table.report)
    # What load answers where the table is passed by is checked as well.
    for _ in range(300):
        table.lookup_through(np.arange(600, dtype=np.uint64), index.load)
    table = overbank.LookAside(300, measure=True)
    for _ in range(300):
        table.lookup_through(array(*range(512)), index.load)
    asked = index.asked
    for answers, error, text in [
        (None, TypeError, "load returned NoneType; expected"),
        ((array(1), np.ones(1, bool)), ValueError, "keys of load has 512 elements, values has 1"),
    ]:
        with pytest.raises(error, match=text):
            table.lookup_through(array(*range(512)), lambda keys: answers)
    with pytest.raises(ValueError, match="read-only"):
        table.lookup_through(array(*range(512)), lambda keys: (keys.sort(), index.load(keys))[1])
    with pytest.raises(TypeError, match="keys: dtype int64"):
        table.lookup_through(np.arange(512), index.load)
    # Absent keys have the value 0, whatever load says.
    values, found = table.lookup_through(array(*range(512)), lambda keys: (keys, keys % 2 == 0))
    assert index.asked == asked and values.sum() == sum(range(0, 512, 2)) and found.sum() == 256


def test_refuses_in_one_line() -> None:
    table = overbank.LookAside(100)
    keys = np.arange(3, dtype=np.uint64)
    tickets = table.lookup(keys)[2]
    for call, error, text in [
        (lambda: overbank.LookAside(0), ValueError, "entries 0: must be between 1"),
        (lambda: overbank.LookAside(-1), ValueError, "entries -1"),
        (lambda: overbank.LookAside(1e6), TypeError, "entries: float"),
        (lambda: overbank.LookAside(MASK, max_bytes=MASK), ValueError, "entries"),
        (lambda: overbank.LookAside(60_000_000), ValueError, "max_bytes=1073741824"),
        (lambda: overbank.LookAside(4, max_bytes=127), ValueError, "a table of 128 bytes"),
        (lambda: overbank.LookAside(9, seed=-1), ValueError, "seed -1"),
        (lambda: overbank.LookAside(9, measure=None), TypeError, "measure"),
        (lambda: overbank.LookAside(9, costs=3), TypeError, "costs: int; expected three"),
        (lambda: overbank.LookAside(9, costs=(1, 2)), TypeError, "costs: tuple"),
        (lambda: overbank.LookAside(9, costs=(1, -2, 3)), ValueError, "costs: miss -2: must be"),
        (lambda: overbank.LookAside(9, costs=(0, 0, 0)), ValueError, "costs: hit 0: must be above 0"),
        (lambda: overbank.LookAside(9, costs=(1, 0, 9)), ValueError, "costs: miss 0"),
        (lambda: overbank.LookAside(9, costs=(1, 2, 1e-60)), ValueError, "costs: index 0"),
        (lambda: overbank.LookAside(9, costs=(1, 2, 1e99)), ValueError, "costs: index inf"),
        (lambda: table.lookup(keys.astype("i8")), TypeError, "keys: dtype int64; expected uint64"),
        (lambda: table.lookup(keys[::2]), ValueError, "keys: not contiguous"),
        (lambda: table.lookup([1]), TypeError, "keys: list"),
        (lambda: table.lookup_through(keys, 3), TypeError, "load: int; expected a function"),
        (lambda: table.writing(keys.astype("f8")), TypeError, "keys: dtype float64"),
        (lambda: table.fill(keys, keys), TypeError, "tickets: ndarray; expected those of a lookup"),
        (lambda: table.fill(tickets, keys[1:]), ValueError, "tickets has 3 elements, values has 2"),
        (lambda: table.fill(tickets, keys, keys), TypeError, "found: dtype uint64; expected bool"),
        (
            lambda: table.fill(tickets, keys, np.ones(2, bool)),
            ValueError,
            "tickets has 3 elements, found has 2",
        ),
        (lambda: table.fill(tickets, keys.astype("u4")), TypeError, "values: dtype uint32"),
        (lambda: overbank.Tickets(), TypeError, "Tickets"),
    ]:
        with pytest.raises(error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)
    # What was refused has used no tickets.
    assert table.fill(tickets, keys) == 3
