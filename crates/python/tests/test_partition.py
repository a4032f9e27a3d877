import threading

import numpy as np
import pytest
from twins import random_keys

import overbank


def test_behaves_like_a_dict_and_so_do_replicas() -> None:
    rng = np.random.default_rng(1)
    keys = random_keys(2, 5000)
    parts = rng.integers(0, 16, len(keys), dtype=np.uint8)
    table = overbank.Partition(keys, parts, room=6000, seed=4)
    twin = dict(zip(keys.tolist(), parts.tolist()))
    replica = table.replica()
    assert (table.value_bits, len(table)) == (4, len(keys))
    for turn in range(10):
        # Some new, some with other parts, some twice, some as they were.
        some = np.concatenate([rng.choice(keys, 200), random_keys(100 + turn, 50)])
        of = rng.integers(0, 16, len(some), dtype=np.uint8)
        replica.apply(table.insert(some, of))
        twin.update(zip(some.tolist(), of.tolist()))
        known = np.array(list(twin), np.uint64)
        expected = list(twin.values())
        assert table.lookup(known).tolist() == expected
        assert replica.lookup(known).tolist() == expected
        assert len(table) == len(twin)
    gone = keys[:100]
    assert table.remove(gone).all() and not table.remove(gone).any()
    assert len(table) == len(twin) - 100
    assert table.insert(keys[200:201], table.lookup(keys[200:201])) == b""
    replica.apply(b"")


def test_takes_few_bits_a_key() -> None:
    keys = random_keys(3, 100_000)
    table = overbank.Partition(keys, (keys % np.uint64(4)).astype(np.uint8))
    assert table.value_bits == 2 and 2 < table.bits_per_key < 3
    assert np.array_equal(table.lookup(keys), keys % np.uint64(4))
    assert overbank.Partition(keys, np.zeros(len(keys), np.uint8)).value_bits == 1
    assert overbank.Partition(keys, np.full(len(keys), 255, np.uint8)).value_bits == 8
    empty = overbank.Partition(keys[:0], np.zeros(0, np.uint8))
    assert len(empty) == 0 and len(empty.lookup(keys)) == len(keys)


def test_files_are_those_of_the_command(tmp_path) -> None:
    """Text is hashed as `overbank partition` does, with the seed that is in the file."""
    names = [f"10.0.{i >> 8}.{i & 255}" for i in range(1000)]
    parts = (np.arange(1000) % 4).astype(np.uint8)
    table = overbank.Partition(names, parts, seed=77)
    assert table.lookup(names).tolist() == parts.tolist()
    assert table.lookup([name.encode() for name in names]).tolist() == parts.tolist()
    path = tmp_path / "keys.table"
    table.save(path)
    replica = overbank.PartitionReplica.load(path)
    assert replica.lookup(names).tolist() == parts.tolist()
    # The same hashes by hand.
    given = overbank.PartitionReplica.load(str(path), hashed=True)
    assert given.lookup(overbank.hash_bytes(names, 77)).tolist() == parts.tolist()
    replica.save(path)
    changes = table.insert(["10.9.9.9"], np.array([3], np.uint8)) if len(table) < 1000 else b""
    assert changes == b""
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(overbank.ImageError, match="keys.table"):
        overbank.PartitionReplica.load(path)
    with pytest.raises(FileNotFoundError):
        overbank.PartitionReplica.load(tmp_path / "gone")


def test_changes_come_once_and_in_order() -> None:
    keys = random_keys(4, 1000)
    parts = (keys % np.uint64(2)).astype(np.uint8)
    table = overbank.Partition(keys, parts)
    replica = table.replica()
    first = table.insert(keys[:10], 1 - parts[:10])
    second = table.insert(keys[10:20], 1 - parts[10:20])
    with pytest.raises(overbank.ImageError, match="is due"):
        replica.apply(second)
    replica.apply(first)
    with pytest.raises(overbank.ImageError, match="is due"):
        replica.apply(first)
    replica.apply(second)
    assert replica.lookup(keys).tolist() == table.lookup(keys).tolist()
    damaged = bytearray(table.insert(keys[:1], parts[:1]))
    damaged[20] ^= 1
    with pytest.raises(overbank.ImageError):
        replica.apply(bytes(damaged))
    other = overbank.Partition(keys, parts).replica()
    with pytest.raises(overbank.ImageError):
        other.apply(b"no changes")


def test_is_read_while_it_changes() -> None:
    keys = random_keys(5, 20_000)
    parts = (keys % np.uint64(2)).astype(np.uint8)
    table = overbank.Partition(keys, parts)
    moves, stays = slice(0, 2000), slice(2000, None)
    wrong: list[str] = []
    ended = threading.Event()

    def read() -> None:
        while not ended.is_set():
            if not np.array_equal(table.lookup(keys[stays]), parts[stays]):
                wrong.append("a key that stays was elsewhere")
                return

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(10):
        table.insert(keys[moves], parts[moves] ^ np.uint8(turn % 2))
    ended.set()
    reader.join()
    assert not wrong


def test_refuses_in_one_line() -> None:
    keys = random_keys(6, 100)
    parts = np.zeros(100, np.uint8)
    table = overbank.Partition(keys, parts, value_bits=2)
    twice = np.array([1, 1], np.uint64)
    for call, error, text in [
        (lambda: overbank.Partition(keys, parts[1:]), ValueError, "keys has 100 elements, parts"),
        (lambda: overbank.Partition(keys, parts.astype("i8")), TypeError, "parts: dtype int64"),
        (lambda: overbank.Partition([1, 2], parts[:2]), TypeError, r"keys\[0\]: int; expected"),
        (lambda: overbank.Partition(twice, np.array([0, 1], "u1")), ValueError, "has two values"),
        (lambda: overbank.Partition(keys, parts, value_bits=9), ValueError, "value_bits 9"),
        (lambda: overbank.Partition(keys, parts + 9, value_bits=2), ValueError, "more than 2 bits"),
        (lambda: overbank.Partition(keys, parts, room=99), ValueError, "room 99: must be between"),
        (lambda: overbank.Partition(keys, parts, room=1 << 33), ValueError, "max_bytes"),
        (lambda: table.insert(keys[:1], np.array([4], "u1")), ValueError, r"parts\[0\] = 4"),
        (lambda: table.lookup(keys.astype("u4")), TypeError, "keys: dtype uint32"),
        (lambda: table.replica().apply("text"), TypeError, "bytes"),
    ]:
        with pytest.raises(error, match=text) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(overbank.TableFull, match="0 of 1 keys were inserted"):
        table.insert(np.array([1], np.uint64), np.array([1], np.uint8))
    # A key that is there needs no room.
    assert table.insert(keys[:1], np.array([3], np.uint8)) != b""
