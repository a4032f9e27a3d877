"""What holds for every call: other threads run meanwhile, and no argument does harm."""

import itertools
import sys
import threading

import numpy as np
import pytest
from twins import random_keys

import overbank

KEYS = random_keys(1, 1_000_000)
NUMBERS = np.arange(len(KEYS), dtype=np.uint32)
FIB = overbank.Fib(len(KEYS))
CACHE = overbank.Cache("set-8", 1 << 14, value_bits=32)
PARTITION = overbank.Partition(KEYS[:1000], np.zeros(1000, np.uint8))
SKETCH = overbank.Sketch(100)
ASIDE = overbank.LookAside(1000)
VERSIONED = overbank.Versioned(1000)
COMMIT = VERSIONED.commit(1)
TREE = overbank.Tree(len(KEYS), hints=1000)


def fill() -> None:
    tickets = ASIDE.lookup(KEYS)[2]
    ASIDE.fill(tickets, tickets.keys)


def write() -> None:
    with ASIDE.writing(KEYS[:900]):
        pass


CALLS = {
    "Fib.lookup": lambda: FIB.lookup(KEYS),
    "Fib.insert": lambda: FIB.insert(KEYS, KEYS),
    "Fib.remove": lambda: FIB.remove(KEYS),
    "Cache.insert": lambda: CACHE.insert(KEYS, NUMBERS),
    "Cache.lookup": lambda: CACHE.lookup(KEYS, KEYS),
    "Cache.process": lambda: CACHE.process(NUMBERS),
    "Partition.lookup": lambda: PARTITION.lookup(KEYS),
    "PartitionReplica.lookup": (lambda of: lambda: of.lookup(KEYS))(PARTITION.replica()),
    "Sketch.count": lambda: SKETCH.count(KEYS),
    "Sketch.estimate": lambda: SKETCH.estimate(KEYS),
    "LookAside.lookup": lambda: ASIDE.lookup(KEYS),
    "LookAside.lookup_through": lambda: ASIDE.lookup_through(KEYS, FIB.lookup),
    "LookAside.fill": fill,
    "LookAside.writing": write,
    "Commit.change": lambda: COMMIT.change(KEYS, KEYS),
    "Commit.touch": lambda: COMMIT.touch(KEYS),
    "View.lookup": lambda: VERSIONED.latest().lookup(KEYS),
    "View.lookup_through": lambda: VERSIONED.latest().lookup_through(KEYS, FIB.lookup),
    "Tree.insert": lambda: TREE.insert(KEYS, KEYS),
    "Tree.lookup": lambda: TREE.lookup(KEYS),
    "Tree.range": lambda: TREE.range(),
    "Tree.remove": lambda: TREE.remove(KEYS),
    "mix": lambda: overbank.mix(KEYS),
    "hit_rate": lambda: overbank.hit_rate("set-8", np.full(1000, 0.9)),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_threads_run_meanwhile(name: str) -> None:
    """No thread gives the GIL up unasked here, so only a call that releases it lets another in."""
    call, busy, seen, rounds = CALLS[name], False, threading.Event(), 0

    def work() -> None:
        nonlocal busy, rounds
        while not seen.is_set() and rounds < 300:
            busy = True
            call()
            busy = False
            rounds += 1

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        worker = threading.Thread(target=work)
        worker.start()
        while worker.is_alive() and not seen.is_set():
            # Lets the worker in; back here while it is in a call, or when it has ended.
            worker.join(0)
            if busy:
                seen.set()
            else:
                worker.join(1e-6)
        worker.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen.is_set(), f"{rounds} calls, and the GIL was never free"


JUNK = [
    None, True, -1, 0, 3, 1 << 70, 1.5, float("nan"), "", "set-4", "\udc80", b"", b"x" * 60, [], (),
    [1], ["a"], ["\udc80"], [None], {}, object(), np.uint64(5), np.zeros(0, np.uint64),
    np.zeros(3, np.uint64), np.arange(6, dtype=np.uint64)[::-2], np.zeros((2, 2), np.uint64),
    np.zeros(3, np.uint32), np.full(3, 2**32 - 1, np.uint32), np.zeros(3, np.uint8),
    np.zeros(3, bool), np.full(2, np.nan), np.array(["a"]), np.array([object()]), np.array(1.0),
    np.zeros(3, "u8,u8"), np.zeros(3, "M8[s]"), np.broadcast_to(np.uint64(1), 1 << 40),
]  # fmt: skip


def test_no_argument_does_harm() -> None:
    """Every call with every pair of odd arguments: an answer, or an exception of one line."""
    table = overbank.Partition(KEYS[:100], np.zeros(100, np.uint8), value_bits=1, room=200)
    aside = overbank.LookAside(64)
    versioned = overbank.Versioned(64, measure=True)
    things = [
        overbank.Fib(64),
        overbank.Fib(64, key="u4", value="u2"),
        overbank.Cache("blp-2-4", 64),
        overbank.Cache("cuckoo-2-16+half-bubble", 64, value_bits=32),
        table,
        table.replica(),
        overbank.Sketch(2),
        aside,
        aside.lookup(KEYS[:3])[2],
        aside.writing(KEYS[:3]),
        versioned.latest(),
        versioned.commit(1),
        versioned,
        overbank.Tree(64, hints=64),
        overbank.Design("set-4"),
        overbank.Fib,
        overbank.Cache,
        overbank.Partition,
        overbank.Sketch,
        overbank.LookAside,
        overbank.Versioned,
        overbank.Tree,
        overbank.Design,
        overbank.hit_rate,
        overbank.mix,
        overbank.hash_bytes,
        overbank.read,
    ]
    # Those of files would write some.
    calls = [thing for thing in things if callable(thing)]
    for thing in things:
        names = [name for name in dir(thing) if not name.startswith("_") and name != "save"]
        names += [name for name in ("__getitem__", "__setitem__", "__exit__") if not isinstance(thing, type)]
        # After these a commit takes nothing.
        names.sort(key=lambda name: name in ("abort", "publish", "__exit__"))
        calls += [of for name in names if callable(of := getattr(thing, name, None))]
    refused = answered = 0
    for call in calls:
        single = ((one,) for one in JUNK)
        for arguments in itertools.chain([()], single, itertools.product(JUNK, JUNK)):
            try:
                call(*arguments)
                answered += 1
            # A panic of Rust is none of these.
            except Exception as error:
                refused += 1
                assert "panicked" not in str(error) and "\n" not in str(error), (call, arguments)
    assert refused > 10_000 and answered > 100
