"""`Fib.lookup` of a million keys, beside the same in Rust and a loop over a dict.

    taskset -c 1 python benches/fib.py RUST_PROGRAM [--entries N] [--turns N]

RUST_PROGRAM is `cargo build --release -p overbank --example lookup_all`; it and this program take
turns, each time with a new table of the same entries. Prints nanoseconds a key as JSON: the median
of the turns' medians, the lowest and the highest, and ratios of the same turn.
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
    return {
        "lookup": nanoseconds(lambda: fib.lookup(keys), KEYS, REPETITIONS),
        "lookup_out": nanoseconds(lambda: fib.lookup(keys, out=out), KEYS, REPETITIONS),
        "sum": int(values.sum()),
    }


def loop(entries: int) -> float:
    """The loop that people write: a dict of ints, a list of ints."""
    fib, keys = table(entries)
    of = dict(zip(*(column.tolist() for column in fib.items())))
    asked = keys.tolist()

    def run() -> None:
        answers = []
        for key in asked:
            answers.append(of.get(key))

    return nanoseconds(run, KEYS, 5)


def spread(of: list[float]) -> dict[str, float]:
    rounded = [round(one, 3) for one in (statistics.median(of), min(of), max(of))]
    return dict(zip(("median", "min", "max"), rounded))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rust", help="the Rust program")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    entries = arguments.entries
    dicts, rust, ours = loop(entries), [], []
    for _ in range(arguments.turns):
        command = [arguments.rust, str(entries), str(KEYS), str(REPETITIONS)]
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        rust.append(json.loads(run.stdout))
        ours.append(python(entries))
    assert {one["sum"] for one in rust} == {one["sum"] for one in ours}, "different answers"
    result = {
        "entries": entries,
        "keys": KEYS,
        "turns": arguments.turns,
        "rust": spread([one["lookup_all"] for one in rust]),
        "lookup": spread([one["lookup"] for one in ours]),
        "lookup_out": spread([one["lookup_out"] for one in ours]),
        "dict": round(dicts, 1),
    }
    for name in ("lookup", "lookup_out"):
        pairs = zip(ours, rust)
        result[f"{name}_over_rust"] = spread([a[name] / b["lookup_all"] for a, b in pairs])
        result[f"dict_over_{name}"] = spread([dicts / one[name] for one in ours])
    print(json.dumps(result, indent=1))


main()
