"""Tables of software data planes, on numpy arrays; hit rates by calculation; what Overbank measured.

- Cache: flow caches that keep fingerprints and evict. Design: their designs, by name.
- Fib: an exact map that any number of threads read while one writes.
- Partition, PartitionReplica: which part a key belongs to, without the keys.
- LookAside: answers of an index, kept in front of it. Tickets, Writing: what keeps them right.
- Versioned: the same for a database with snapshots. View: one snapshot. Commit: a transaction.
- Tree: an ordered map with hints of where keys were found last.
- Sketch: which keys are hot, in fixed memory.
- hit_rate: the final hit rate of a geometry, by a model.
- read: the JSON documents of `overbank replay`, `advise`, `lab run` and `lab model`.

Arrays are taken as they are: one dimension, contiguous, of the dtype that the call names. Calls on
arrays release the GIL, and every object may be used from several threads. No array that a call
reads may be written meanwhile.
"""

import numpy as _numpy  # First, for a clear error without it.


from ._overbank import (
    Cache,
    Commit,
    Design,
    Fib,
    ImageError,
    LookAside,
    Partition,
    PartitionReplica,
    Sketch,
    TableFull,
    Tickets,
    Tree,
    Versioned,
    View,
    Writing,
    __version__,
    hash_bytes,
    hit_rate,
    mix,
)
from .documents import (
    Advice,
    Calculation,
    Check,
    DocumentError,
    Experiment,
    Plot,
    Replay,
    Replayed,
    Series,
    Table,
    read,
)

__all__ = [
    "Advice",
    "Cache",
    "Calculation",
    "Check",
    "Commit",
    "Design",
    "DocumentError",
    "Experiment",
    "Fib",
    "ImageError",
    "LookAside",
    "Partition",
    "PartitionReplica",
    "Plot",
    "Replay",
    "Replayed",
    "Series",
    "Sketch",
    "Table",
    "TableFull",
    "Tickets",
    "Tree",
    "Versioned",
    "View",
    "Writing",
    "__version__",
    "hash_bytes",
    "hit_rate",
    "mix",
    "read",
]
