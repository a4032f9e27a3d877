import threading

import numpy as np
import pytest
from twins import MASK, random_keys

import overbank


@pytest.mark.parametrize("hints", [None, 1, 3000])
def test_behaves_like_a_sorted_dict(hints: int | None) -> None:
    rng = np.random.default_rng(1)
    tree = overbank.Tree(2002, hints=hints, seed=7)
    twin: dict[int, int] = {}
    pool = np.concatenate([random_keys(2, 2000), np.array([0, MASK], np.uint64)])
    for _ in range(80):
        some = rng.choice(pool, rng.integers(0, 300))
        match rng.integers(5):
            case 0 | 1:
                values = rng.integers(0, MASK, len(some), dtype=np.uint64, endpoint=True)
                tree.insert(some, values)
                twin.update(zip(some.tolist(), values.tolist()))
            case 2:
                there = [twin.pop(one, None) is not None for one in some.tolist()]
                assert tree.remove(some).tolist() == there
            case 3:
                one, of = int(rng.choice(pool)), int(rng.integers(0, MASK, dtype=np.uint64))
                tree[one] = of
                twin[one] = of
                assert tree[one] == of and one in tree and tree.get(one) == of
            case 4:
                start, stop = sorted(int(end) for end in rng.choice(pool, 2))
                inside = [one for one in sorted(twin) if start <= one < stop]
                keys, values = tree.range(start, stop)
                assert keys.tolist() == inside and values.tolist() == [twin[one] for one in inside]
                assert tree.range(start, stop, limit=3)[0].tolist() == inside[:3]
                assert tree.range(stop=stop)[0].tolist() == [o for o in sorted(twin) if o < stop]
                if start < stop:
                    assert tree.range(stop, start)[0].tolist() == []
        assert len(tree) == len(twin) and bool(tree) == bool(twin)
        values, found = tree.lookup(pool)
        assert (values.dtype, found.dtype) == (np.uint64, np.bool_)
        assert found.tolist() == [one in twin for one in pool.tolist()]
        assert values.tolist() == [twin.get(one, 0) for one in pool.tolist()]
    assert list(tree) == sorted(twin)
    keys, values = tree.range()
    assert dict(zip(keys.tolist(), values.tolist())) == twin and keys.dtype == values.dtype == np.uint64
    one = next(iter(twin))
    del tree[one]
    assert one not in tree and tree.get(one) is None and tree.get(one, -1) == -1
    with pytest.raises(KeyError):
        tree[one]
    with pytest.raises(KeyError):
        del tree[one]
    if hints:
        assert 0 < tree.counters["hits"] < tree.counters["lookups"]
    else:
        assert not any(tree.counters.values())
    tree.clear()
    assert len(tree) == 0 and not tree and list(tree) == [] and not tree.lookup(pool)[1].any()


@pytest.mark.parametrize("hints", [None, 4000])
def test_lengths_around_bursts_and_passes(hints: int | None) -> None:
    tree = overbank.Tree(10_000, hints=hints)
    keys = np.arange(0, 20_000, 2, dtype=np.uint64)
    tree.insert(keys, keys + np.uint64(1))
    for length in [0, 1, 31, 32, 33, 1023, 1024, 1025, 12_345]:
        asked = np.arange(length, dtype=np.uint64)
        for _ in range(2):
            values, found = tree.lookup(asked)
            assert np.array_equal(found, asked % 2 == 0)
            assert np.array_equal(values, np.where(found, asked + np.uint64(1), 0))
    assert list(tree) == keys.tolist()


def test_hints_hit_and_change_no_answer() -> None:
    tree = overbank.Tree(10_000, hints=5000)
    keys = random_keys(3, 1000)
    tree.insert(keys, keys)
    tree.lookup(keys)
    before = tree.counters
    assert before["hits"] == 0 and before["inserts"] == 1000
    tree.lookup(keys)
    assert tree.counters["hits"] > 950
    # Entries move when others come and go.
    tree.insert(random_keys(4, 5000), random_keys(5, 5000))
    values, found = tree.lookup(keys)
    assert found.all() and np.array_equal(values, keys)


def test_iterates_while_it_changes() -> None:
    tree = overbank.Tree(10_000)
    keys = np.arange(0, 6000, 2, dtype=np.uint64)
    tree.insert(keys, keys)
    over = iter(tree)
    assert iter(over) is over and [next(over), next(over)] == [0, 2]
    tree.remove(np.arange(4000, 6000, dtype=np.uint64))
    tree.insert(np.array([1, 3999, 9999], np.uint64), np.zeros(3, np.uint64))
    rest = list(over)
    # What changed behind it is not seen, what lies ahead of its pass is.
    assert 1 not in rest and rest[-3:] == [3998, 3999, 9999] and rest == sorted(set(rest))
    tree[MASK] = 5
    assert list(over) == [] and list(tree)[-1] == MASK


def test_a_full_tree_says_how_far_it_came() -> None:
    tree = overbank.Tree(100)
    keys = np.arange(150, dtype=np.uint64)
    with pytest.raises(overbank.TableFull, match="100 of 150 keys were inserted") as caught:
        tree.insert(keys, keys)
    assert caught.value.inserted == 100 == len(tree) == tree.capacity
    assert tree.lookup(keys)[1].tolist() == [True] * 100 + [False] * 50
    with pytest.raises(overbank.TableFull):
        tree[200] = 1
    tree.insert(keys[:100], keys[50:].copy())
    assert tree[99] == 149


def test_threads_take_turns() -> None:
    tree = overbank.Tree(20_000, hints=3000)
    stays, comes = np.arange(10_000, dtype=np.uint64), np.arange(10_000, 18_000, dtype=np.uint64)
    tree.insert(stays, stays)
    wrong: list[str] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            values, found = tree.lookup(stays)
            if not found.all() or not ((values == stays) | (values == stays + 1)).all():
                wrong.append("a reader saw what was never there")
            if tree.range(stop=10_000)[0].tolist() != stays.tolist():
                wrong.append("a range lacks entries")

    readers = [threading.Thread(target=read) for _ in range(2)]
    [reader.start() for reader in readers]
    for turn in range(20):
        tree.insert(stays, stays + np.uint64(turn % 2))
        tree.insert(comes, comes)
        tree.remove(comes)
    ended.set()
    [reader.join() for reader in readers]
    assert not wrong


def test_refuses_in_one_line() -> None:
    tree = overbank.Tree(100)
    keys = np.arange(10, dtype=np.uint64)
    for call, error, text in [
        (lambda: overbank.Tree(0), ValueError, "capacity 0: must be between 1"),
        (lambda: overbank.Tree(1 << 32), ValueError, "capacity 4294967296"),
        (lambda: overbank.Tree("many"), TypeError, "capacity: str"),
        (lambda: overbank.Tree(40_000_000), ValueError, "more than max_bytes=1073741824"),
        (lambda: overbank.Tree(10, hints=1 << 60), ValueError, "max_bytes"),
        (lambda: overbank.Tree(10, hints=MASK, max_bytes=MASK), ValueError, "max_bytes"),
        (lambda: overbank.Tree(10, hints=1 << 40, max_bytes=MASK), ValueError, "hints of the tree"),
        (lambda: overbank.Tree(10, hints=-1), ValueError, "hints -1"),
        (lambda: overbank.Tree(10, seed=1.5), TypeError, "seed: float"),
        (lambda: tree.lookup([1, 2]), TypeError, "keys: list; expected a numpy array of uint64"),
        (lambda: tree.lookup(keys.astype("u4")), TypeError, "keys: dtype uint32; expected uint64"),
        (lambda: tree.remove(keys[::2]), ValueError, "keys: not contiguous"),
        (lambda: tree.insert(keys, keys[1:]), ValueError, "keys has 10 elements, values has 9"),
        (lambda: tree.insert(keys, keys.astype("f8")), TypeError, "values: dtype float64"),
        (lambda: tree.get(-1), ValueError, "key -1: must be between 0 and 18446744073709551615"),
        (lambda: tree.get("a"), TypeError, "key: str; expected an int"),
        (lambda: tree.__setitem__(1, 1 << 64), ValueError, "value 18446744073709551616"),
        (lambda: tree.range(-1), ValueError, "start -1"),
        (lambda: tree.range(0, 1 << 64), ValueError, "stop 18446744073709551616"),
        (lambda: tree.range(limit=-1), ValueError, "limit -1"),
    ]:
        with pytest.raises(error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert len(tree) == 0 and repr(tree) == f"<Tree: 0 entries of 100, {tree.nbytes} bytes>"
    # What is checked against max_bytes is what is taken, but for a page or two.
    for capacity, hints in [(1, 0), (100_000, 0), (100_000, 50_000)]:
        bytes_ = overbank.Tree(capacity, hints=hints).nbytes
        assert bytes_ < capacity * 35 + hints * 6 + 8192, bytes_
