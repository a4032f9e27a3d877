"""`Fib.lookup` of a million keys, beside the same in Rust and a loop over a dict.

    taskset -c 1 python benches/fib.py RUST_PROGRAM [--entries N] [--turns N]

RUST_PROGRAM is `cargo build --release -p overbank --example lookup_all`; it and this program take
turns, each time with a new table of the same entries. Prints nanoseconds a key, the median of each
turn's repetitions, and ratios within a turn: their median, lowest and highest.
"""

import argparse
import json
import statistics
import subprocess
import time

import numpy as np

import overbank

KEYS = 1_000_000
REPETITIONS = 15


def nanoseconds(work, count: int, repetitions: int) -> float:
    """The median time of a key."""
    times = []
    for _ in range(repetitions):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / count


def table(entries: int) -> tuple[overbank.Fib, np.ndarray]:
    """Entries mix(0), mix(1), …, each with its number; every key looked up is there."""
    fib = overbank.Fib(entries, seed=1, max_bytes=1 << 34)
    numbers = np.arange(entries, dtype=np.uint64)
    fib.insert(overbank.mix(numbers), numbers)
    asked = overbank.mix(np.arange(KEYS, dtype=np.uint64)) % np.uint64(entries)
    return fib, overbank.mix(asked)


def python(entries: int) -> dict[str, float]:
    fib, keys = table(entries)
    out = np.empty(KEYS, np.uint64), np.empty(KEYS, bool)
    values, found = fib.lookup(keys, out=out)
    assert found.all()
    of = dict(zip(*(column.tolist() for column in fib.items())))
    asked = keys.tolist()

    def loop() -> None:
        """What people write: a dict of ints, a list of ints."""
        answers = []
        for key in asked:
            answers.append(of.get(key))

    return {
        "lookup": nanoseconds(lambda: fib.lookup(keys), KEYS, REPETITIONS),
        "lookup_out": nanoseconds(lambda: fib.lookup(keys, out=out), KEYS, REPETITIONS),
        "dict": nanoseconds(loop, KEYS, 3),
        "sum": int(values.sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rust", help="the Rust program")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    entries = arguments.entries
    rust, ours = [], []
    for _ in range(arguments.turns):
        command = [arguments.rust, str(entries), str(KEYS), str(REPETITIONS)]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        rust.append(json.loads(run.stdout))
        ours.append(python(entries))
    assert {one["sum"] for one in rust + ours} == {ours[0]["sum"]}, "different answers"
    pairs = list(zip(ours, rust))
    figures = {
        "rust": [one["lookup_all"] for one in rust],
        **{name: [one[name] for one in ours] for name in ("lookup", "lookup_out", "dict")},
        "lookup over rust": [one["lookup"] / of["lookup_all"] for one, of in pairs],
        "lookup_out over rust": [one["lookup_out"] / of["lookup_all"] for one, of in pairs],
        "dict over lookup": [one["dict"] / one["lookup"] for one in ours],
    }
    print(f"{entries} entries, {KEYS} keys, {arguments.turns} turns: median (lowest to highest)")
    for name, of in figures.items():
        print(f"{name:22} {statistics.median(of):8.2f} ({min(of):.2f} to {max(of):.2f})")


main()
