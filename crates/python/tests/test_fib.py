import threading

import numpy as np
import pytest
from twins import random_keys

import overbank

TYPES = [(key, value) for key in ("u4", "u8") for value in ("u2", "u4", "u8")]


@pytest.mark.parametrize(("key", "value"), TYPES)
def test_behaves_like_a_dict(key: str, value: str) -> None:
    rng = np.random.default_rng(1)
    fib = overbank.Fib(3000, key=key, value=value, seed=7)
    twin: dict[int, int] = {}
    top = np.iinfo(value).max
    # Few keys, so that many are there; the largest ones too.
    ends = np.array([0, np.iinfo(key).max], np.uint64)
    pool = np.concatenate([random_keys(2, 2000, np.iinfo(key).max), ends]).astype(key)
    for _ in range(60):
        some = rng.choice(pool, rng.integers(0, 300))
        match rng.integers(4):
            case 0 | 1:
                values = rng.integers(0, top, len(some), dtype=value, endpoint=True)
                fib.insert(some, values)
                twin.update(zip(some.tolist(), values.tolist()))
            case 2:
                there = [twin.pop(one, None) is not None for one in some.tolist()]
                assert fib.remove(some).tolist() == there
            case 3:
                one, of = int(rng.choice(pool)), int(rng.integers(0, top, dtype=value, endpoint=True))
                fib[one] = of
                twin[one] = of
                assert fib[one] == of and one in fib and fib.get(one) == of
        assert len(fib) == len(twin)
        values, found = fib.lookup(pool)
        assert (values.dtype, found.dtype) == (np.dtype(value), np.dtype(bool))
        assert found.tolist() == [one in twin for one in pool.tolist()]
        assert values.tolist() == [twin.get(one, 0) for one in pool.tolist()]
    keys, values = fib.items()
    assert dict(zip(keys.tolist(), values.tolist())) == twin
    one = next(iter(twin))
    del fib[one]
    assert one not in fib and fib.get(one) is None and fib.get(one, -1) == -1
    with pytest.raises(KeyError):
        fib[one]
    with pytest.raises(KeyError):
        del fib[one]
    fib.clear()
    assert len(fib) == 0 and not fib and not fib.lookup(pool)[1].any()


def test_lengths_around_bursts_and_passes() -> None:
    fib = overbank.Fib(10_000)
    keys = np.arange(0, 20_000, 2, dtype=np.uint64)
    fib.insert(keys, keys + 1)
    for length in [0, 1, 63, 64, 65, 4095, 4096, 4097, 8192, 12_345]:
        asked = np.arange(length, dtype=np.uint64)
        values, found = fib.lookup(asked)
        assert np.array_equal(found, asked % 2 == 0)
        assert np.array_equal(values, np.where(found, asked + 1, 0))


def test_writes_the_arrays_that_it_is_given() -> None:
    fib = overbank.Fib(100, value="u4")
    keys = np.arange(50, dtype=np.uint64)
    fib.insert(keys, keys.astype("u4"))
    out = np.full(50, 9, "u4"), np.zeros(50, bool)
    values, found = fib.lookup(keys, out=out)
    assert values is out[0] and found is out[1] and found.all()
    assert np.array_equal(values, keys)
    for wrong, error in [
        ((np.zeros(50, "u8"), out[1]), TypeError),
        ((np.zeros(49, "u4"), out[1]), ValueError),
        ((out[0], np.zeros(50, "u1")), TypeError),
        ((np.zeros(100, "u4")[::2], out[1]), ValueError),
    ]:
        with pytest.raises(error, match="out"):
            fib.lookup(keys, out=wrong)
    fixed = np.zeros(50, "u4")
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="written"):
        fib.lookup(keys, out=(fixed, out[1]))
    # The keys as the place of the values: neither may change under the other.
    whole = overbank.Fib(100)
    with pytest.raises(ValueError, match="written"):
        whole.lookup(keys, out=(keys, out[1]))


def test_a_full_table_says_how_far_it_came() -> None:
    fib = overbank.Fib(100)
    keys = random_keys(3, 1000)
    with pytest.raises(overbank.TableFull, match="of 1000 keys were inserted") as caught:
        fib.insert(keys, keys)
    inserted = caught.value.inserted
    assert 100 <= inserted == len(fib) <= fib.slots
    assert fib.lookup(keys)[1].tolist() == [True] * inserted + [False] * (1000 - inserted)
    with pytest.raises(overbank.TableFull):
        fib[int(keys[inserted])] = 1


def test_comes_back_from_a_file(tmp_path) -> None:
    fib = overbank.Fib(1000, key="u4", value="u2", seed=5)
    keys = np.arange(900, dtype=np.uint32)
    fib.insert(keys, (keys % 7).astype("u2"))
    path = tmp_path / "table.fib"
    fib.save(path)
    again = overbank.Fib.load(path, key="u4", value="u2")
    assert len(again) == 900 and np.array_equal(again.lookup(keys)[0], keys % 7)
    with pytest.raises(overbank.ImageError, match="table.fib"):
        overbank.Fib.load(path)
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(overbank.ImageError):
        overbank.Fib.load(str(path), key="u4", value="u2")
    with pytest.raises(FileNotFoundError) as caught:
        overbank.Fib.load(tmp_path / "gone")
    assert caught.value.filename.endswith("gone")
    with pytest.raises(OSError):
        fib.save(tmp_path / "no" / "folder")


def test_is_read_by_threads_while_one_writes() -> None:
    """A key that stays is found with one of the two values that it ever has."""
    fib = overbank.Fib(20_000)
    stays, comes = np.arange(10_000, dtype=np.uint64), np.arange(10_000, 18_000, dtype=np.uint64)
    fib.insert(stays, stays)
    wrong: list[str] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            values, found = fib.lookup(stays)
            if not found.all() or not ((values == stays) | (values == stays + 1)).all():
                wrong.append("a reader saw what was never there")
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    [reader.start() for reader in readers]
    writers = [threading.Thread(target=fib.insert, args=(comes, comes)) for _ in range(2)]
    [writer.start() for writer in writers]
    for turn in range(20):
        fib.insert(stays, stays + np.uint64(turn % 2))
        fib.remove(comes)
    [writer.join() for writer in writers]
    ended.set()
    [reader.join() for reader in readers]
    assert not wrong


def test_refuses_in_one_line() -> None:
    fib = overbank.Fib(100, key="u4", value="u2")
    keys = np.arange(10, dtype=np.uint32)
    values = np.zeros(10, np.uint16)
    swapped = keys.astype(">u4")
    unaligned = np.frombuffer(bytes(41), dtype=np.uint8)[1:].view(np.uint32)
    for call, error, text in [
        (lambda: fib.lookup([1, 2]), TypeError, "keys: list; expected a numpy array of uint32"),
        (lambda: fib.lookup(keys.astype("i8")), TypeError, "keys: dtype int64; expected uint32"),
        (lambda: fib.lookup(swapped), TypeError, "keys: dtype >u4; expected uint32"),
        (lambda: fib.lookup(keys.astype("f8")), TypeError, "keys: dtype float64"),
        (lambda: fib.lookup(keys[::2]), ValueError, "keys: not contiguous"),
        (lambda: fib.lookup(keys.reshape(2, 5)), ValueError, "keys: 2 dimensions; expected 1"),
        (lambda: fib.lookup(unaligned), ValueError, "keys: not aligned"),
        (lambda: fib.insert(keys, values[1:]), ValueError, "keys has 10 elements, values has 9"),
        (lambda: fib.get(-1), ValueError, "key -1: must be between 0 and 4294967295"),
        (lambda: fib.get(1 << 32), ValueError, "key 4294967296"),
        (lambda: fib.get(1.5), TypeError, "key: float; expected an int"),
        (lambda: fib.__setitem__(1, 1 << 16), ValueError, "value 65536"),
        (lambda: overbank.Fib(0), ValueError, "entries 0: must be between 1"),
        (lambda: overbank.Fib(-5), ValueError, "entries -5"),
        (lambda: overbank.Fib(10**400), ValueError, "entries 1000000000000"),
        (lambda: overbank.Fib("many"), TypeError, "entries: str"),
        (lambda: overbank.Fib(float("nan")), TypeError, "entries: float"),
        (lambda: overbank.Fib(80_000_000), ValueError, "more than max_bytes=1073741824"),
        (lambda: overbank.Fib(10**13, max_bytes=1 << 62), ValueError, "entries"),
        (lambda: overbank.Fib(1 << 34, max_bytes=1 << 62), ValueError, "buckets"),
        (lambda: overbank.Fib(10, key="i4"), TypeError, "key int32, value uint64"),
        (lambda: overbank.Fib(10, value="u1"), TypeError, "key uint64, value uint8"),
        (lambda: overbank.Fib(10, seed=-1), ValueError, "seed -1"),
        (lambda: overbank.Fib(10, max_bytes=100), ValueError, "max_bytes=100"),
    ]:
        with pytest.raises(error, match=text.replace("[", r"\[")) as caught:
            call()
        assert "\n" not in str(caught.value)
    # What was refused has changed nothing.
    assert len(fib) == 0 and repr(fib).startswith("<Fib uint32 -> uint16: 0 entries")
