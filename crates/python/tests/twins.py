"""What every test needs: seeds, keys, and the mixing of keys in Python."""

import numpy as np

MASK = (1 << 64) - 1


def mix(number: int) -> int:
    """The finaliser of SplitMix64, as overbank::hash::mix has it."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & MASK
    return number ^ number >> 31


def random_keys(seed: int, count: int, below: int = MASK) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, int(below), count, dtype=np.uint64, endpoint=True)


def array(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.uint64)
