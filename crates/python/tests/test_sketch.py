from collections import Counter

import numpy as np
import pytest
from twins import random_keys

import overbank


def test_counts_like_a_counter_if_there_is_room() -> None:
    keys = np.random.default_rng(1).zipf(1.5, 20_000).clip(max=5000).astype(np.uint64)
    sketch = overbank.Sketch(100, seed=3)
    twin: Counter[int] = Counter()
    reported: list[int] = []
    for some in np.array_split(keys, 50):
        hot = sketch.count(some)
        reported += some[hot].tolist()
        twin.update(some.tolist())
    asked = np.array(sorted(twin), np.uint64)
    counts = np.array([twin[key] for key in asked.tolist()])
    estimates = sketch.estimate(asked)
    # Never below; exact for nearly all, in rows with 65536 counters.
    assert (estimates >= counts).all() and (estimates == counts).mean() > 0.99
    assert sketch.samples == len(keys)
    # Each hot key once.
    assert sorted(reported) == [key for key in sorted(twin) if twin[key] >= 100]
    sketch.turn(threshold=5)
    assert (sketch.finished(asked) == estimates).all() and not sketch.estimate(asked).any()
    assert (sketch.epoch, sketch.samples, sketch.threshold) == (1, 0, 5)
    assert sketch.count(np.full(10, 7, np.uint64)).tolist() == [False] * 4 + [True] + [False] * 5


def test_text_and_samples() -> None:
    sketch = overbank.Sketch(2)
    assert sketch.count(["a", "b", b"a", "a"]).tolist() == [False, False, True, False]
    assert sketch.estimate(["a", "b", "c"]).tolist() == [3, 1, 0]
    assert sketch.finished(["a"]).tolist() == [0]
    assert sketch.count([]).tolist() == []
    sampled = overbank.Sketch(1, sample_log2=3, seed=9)
    sampled.count(random_keys(2, 80_000))
    assert 9_500 < sampled.samples < 10_500


def test_refuses_in_one_line() -> None:
    sketch = overbank.Sketch(1)
    for call, error, text in [
        (lambda: overbank.Sketch(0), ValueError, "threshold 0: must be between 1 and 65535"),
        (lambda: overbank.Sketch(1 << 16), ValueError, "threshold 65536"),
        (lambda: overbank.Sketch(1, counters_log2=40), ValueError, "counters_log2 40"),
        (lambda: overbank.Sketch(1, bloom_log2=1), ValueError, "bloom_log2 1"),
        (lambda: overbank.Sketch(1, sample_log2=33), ValueError, "sample_log2 33"),
        (lambda: sketch.count(np.zeros(3)), TypeError, "keys: dtype float64"),
        (lambda: sketch.turn(threshold=None, sample_log2="x"), TypeError, "sample_log2: str"),
    ]:
        with pytest.raises(error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)
    assert sketch.epoch == 0
