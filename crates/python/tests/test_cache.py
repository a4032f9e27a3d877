import threading

import numpy as np
import pytest
from twins import MASK, mix, random_keys

import overbank


def bucket_of(hash_: int, buckets: int) -> int:
    """The home bucket of overbank's set-associative caches: the high half of the hash, scaled."""
    return (hash_ >> 32) * buckets >> 32


class SetTwin:
    """A set-associative cache whose eviction is copied from the fast one: what may be there?"""

    def __init__(self, buckets: int, slots: int, seed: int) -> None:
        self.buckets, self.slots, self.seed = buckets, slots, seed
        self.table: list[list[int]] = [[] for _ in range(buckets)]

    def home(self, flow: int) -> list[int]:
        return self.table[bucket_of(mix(mix(self.seed) ^ flow), self.buckets)]


def test_a_set_associative_cache_step_by_step() -> None:
    """Each hit and miss of process is that of a naive table with the same evictions."""
    buckets, seed = 16, 9
    cache = overbank.Cache("set-4", 4 * buckets, value_bits=32, seed=seed)
    twin = SetTwin(buckets, 4, seed)
    flows = np.random.default_rng(4).integers(0, 120, 3000, dtype=np.uint32)
    held: set[int] = set()
    hits = evictions = 0
    for flow in flows.tolist():
        home = twin.home(flow)
        (hit,) = cache.process(np.array([flow], np.uint32)).tolist()
        assert hit == (flow in home), flow
        hits += hit
        if not hit:
            after = set(cache.items()[1].tolist())
            if len(home) == twin.slots:
                (gone,) = held - after
                home.remove(gone)
                evictions += 1
            home.append(flow)
            held = after
        assert len(held) == sum(map(len, twin.table))
    counters = cache.counters
    assert counters["lookups"] == len(flows) and counters["hits"] == hits
    assert counters["evictions"] == evictions > 0
    assert cache.hit_rate == hits / len(flows)
    assert held == {flow for bucket in twin.table for flow in bucket}


@pytest.mark.parametrize("design", overbank.Design.all(), ids=str)
def test_every_design_finds_what_fits(design: overbank.Design) -> None:
    cache = overbank.Cache(design, 4096, value_bits=32, seed=3)
    flows = np.arange(300, dtype=np.uint32)
    assert not cache.process(flows).any()
    assert cache.process(flows).sum() > 290 and len(cache) > 290
    # The same keys, verified by the entries that the values are indexes of.
    keys = flows.astype(np.uint64)
    values, found = cache.lookup(keys, keys)
    assert found.sum() > 290 and np.array_equal(values[found], flows[found])
    assert not values[~found].any()
    # In other entries, no value is right.
    values, found = cache.lookup(keys, keys + np.uint64(1))
    assert not found.any() and not values.any()
    # In entries that are too few, those beyond them are not.
    _, found = cache.lookup(keys, keys[:100])
    assert found[:100].sum() > 95 and not found[100:].any()
    assert cache.design == design and cache.design is not design


def test_batches_are_the_same_as_single_calls() -> None:
    """Counters and answers, for lengths around a burst of 32."""
    keys = random_keys(5, 70)
    entries = keys.copy()
    for length in [0, 1, 31, 32, 33, 64, 65, 70]:
        one = overbank.Cache("blp-2-16", 1024, seed=1)
        many = overbank.Cache("blp-2-16", 1024, seed=1)
        for cache in (one, many):
            cache.insert(keys[::3].copy(), np.arange(0, 70, 3, dtype=np.uint32))
        values, found = many.lookup(keys[:length], entries)
        single = [one.lookup(keys[i : i + 1], entries) for i in range(length)]
        assert values.tolist() == [int(v[0]) for v, _ in single]
        assert found.tolist() == [bool(f[0]) for _, f in single]
        assert found.tolist() == [i % 3 == 0 for i in range(length)]
        assert one.counters == many.counters


def test_hashes_are_those_of_the_crate() -> None:
    keys = np.array([0, 1, 42, MASK], np.uint64)
    assert overbank.mix(keys).tolist() == [mix(key) for key in keys.tolist()]
    assert mix(0) == 0xE220A8397B1DCDAF
    cache = overbank.Cache("set-8", 64, seed=6)
    hashes = cache.hash(keys)
    assert hashes.tolist() == [mix(mix(6) ^ key) for key in keys.tolist()]
    # Keys, and their hashes, are the same entries.
    cache.insert(keys, np.arange(4, dtype=np.uint32))
    values, found = cache.lookup_unverified(hashes, hashed=True)
    assert found.all() and values.tolist() == [0, 1, 2, 3]
    # The fingerprint is made of the low end of the hash.
    fingerprints, values = cache.items()
    assert sorted(values.tolist()) == [0, 1, 2, 3] and len(set(fingerprints.tolist())) == 4
    # XXH3 of the empty text and of "overbank" with a seed, as `overbank partition` has them.
    assert overbank.hash_bytes([b"", ""]).tolist() == [0x2D06800538D394C2] * 2
    assert overbank.hash_bytes(["overbank"], 1) != overbank.hash_bytes(["overbank"], 2)


def test_entries_are_replaced_and_removed() -> None:
    cache = overbank.Cache("set-4", 64)
    key, other = np.array([5], np.uint64), np.array([6], np.uint64)
    assert cache.insert(key, np.array([7], np.uint32)) == 0
    cache.insert(key, np.array([8], np.uint32))
    assert len(cache) == 1 and cache.counters["replacements"] == 1
    assert cache.lookup_unverified(key)[0].tolist() == [8]
    assert cache.remove(key, np.array([7], np.uint32)).tolist() == [False]
    assert cache.remove(other, np.array([8], np.uint32)).tolist() == [False]
    assert cache.remove(key, np.array([8], np.uint32)).tolist() == [True]
    assert len(cache) == 0
    cache.insert(key, np.array([7], np.uint32))
    cache.clear()
    cache.reset_counters()
    assert len(cache) == 0 and not any(cache.counters.values()) and cache.hit_rate == 0


def test_threads_take_turns() -> None:
    cache = overbank.Cache("cuckoo-2-16+half-bubble", 1 << 12, value_bits=32)
    flows = np.random.default_rng(8).integers(0, 5000, 50_000, dtype=np.uint32)
    counts: list[int] = []
    work = [
        threading.Thread(target=lambda: counts.append(int(cache.process(flows).sum())))
        for _ in range(4)
    ]
    [one.start() for one in work]
    [one.join() for one in work]
    assert cache.counters["lookups"] == 4 * len(flows) and cache.counters["hits"] == sum(counts)


def test_designs() -> None:
    names = [str(design) for design in overbank.Design.all()]
    assert len(names) == len(set(names)) > 20 and "blp-2-16+pblru" in names
    design = overbank.Design("blp-2-16+pblru")
    assert (design.geometry, design.policy) == ("blp-2-16", "pblru")
    assert (design.buckets, design.slots, repr(design)) == (2, 16, "Design('blp-2-16+pblru')")
    assert overbank.Design(design) == design != overbank.Design("set-4")
    assert hash(overbank.Design(str(design))) == hash(design)
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(design)) == design == copy.deepcopy(design)


def test_refuses_in_one_line() -> None:
    cache = overbank.Cache("set-4", 64)
    keys = np.arange(3, dtype=np.uint64)
    wide = np.array([1, 70_000, 2], np.uint32)
    for call, error, text in [
        (lambda: overbank.Cache("lru-4", 64), ValueError, 'design "lru-4": unknown geometry'),
        (lambda: overbank.Cache("blp-2-4+dc-bubble", 64), ValueError, "dc-bubble works on set-4"),
        (lambda: overbank.Cache(4, 64), TypeError, "design: int; expected a name"),
        (lambda: overbank.Cache("set-4", 0), ValueError, "entries 0"),
        (lambda: overbank.Cache("set-4", -1), ValueError, "entries -1"),
        (lambda: overbank.Cache("set-4", 1e6), TypeError, "entries: float"),
        (lambda: overbank.Cache("set-4", 300_000_000), ValueError, "max_bytes=1073741824"),
        (lambda: overbank.Cache("set-4", MASK, max_bytes=MASK), ValueError, "max_bytes"),
        (lambda: overbank.Cache("set-4", 64, value_bits=24), ValueError, "must be 16 or 32"),
        (lambda: overbank.Cache("set-4", 64, value_bits=8), ValueError, "value_bits 8"),
        (lambda: cache.insert(keys, wide), ValueError, r"values\[1\] = 70000: more than 65535"),
        (lambda: cache.process(wide), ValueError, r"flows\[1\] = 70000"),
        (lambda: cache.process(keys), TypeError, "flows: dtype uint64; expected uint32"),
        (lambda: cache.lookup(keys, keys.astype("i8")), TypeError, "entries: dtype int64"),
        (lambda: cache.lookup(3, keys), TypeError, "keys: int"),
        (lambda: overbank.mix([1]), TypeError, "keys: list"),
        (lambda: overbank.hash_bytes("abc"), TypeError, "expected a list of str or bytes"),
        (lambda: overbank.hash_bytes(["a", 1]), TypeError, r"keys\[1\]: int; expected str or"),
    ]:
        with pytest.raises(error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert len(cache) == 0
