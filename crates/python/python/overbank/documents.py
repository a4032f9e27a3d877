"""The JSON documents of Overbank as objects: `read("replay.json")`.

The fields are those that docs/replay-json.md, advise-json.md and model-json.md describe; numbers
that belong together are numpy arrays. `document` is the whole of it, as the json module gives it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
T = TypeVar("T")

__all__ = [
    "Advice",
    "Calculation",
    "Check",
    "DocumentError",
    "Experiment",
    "Plot",
    "Replay",
    "Replayed",
    "Series",
    "Table",
    "read",
]


class DocumentError(ValueError):
    """A file is no document of Overbank, or lacks a field."""


@dataclass(frozen=True)
class Replayed:
    """A design of a replay. Rates that were not measured are nan."""

    design: str
    hit_rate: float
    mpps: float
    mpps_min: float
    mpps_max: float
    ns_per_packet: float
    ns_hit: float
    ns_miss: float
    ns_lookup: float
    table_bytes: int
    slots: int
    packets: int
    microflow: Json
    megaflow: Json
    document: Json = field(repr=False)

    @classmethod
    def _of(cls, of: Json) -> Replayed:
        def rate(name: str) -> float:
            return _number(of[name])

        return cls(
            design=of["design"],
            hit_rate=rate("hit_rate"),
            mpps=rate("mpps"),
            mpps_min=rate("mpps_min"),
            mpps_max=rate("mpps_max"),
            ns_per_packet=rate("ns_per_packet"),
            ns_hit=rate("ns_hit"),
            ns_miss=rate("ns_miss"),
            ns_lookup=rate("ns_lookup"),
            table_bytes=of["table_bytes"] or 0,
            slots=of["slots"] or 0,
            packets=of["packets"],
            microflow=of["microflow"],
            megaflow=of["megaflow"],
            document=of,
        )


@dataclass(frozen=True)
class Replay:
    """What `overbank replay --format json` printed."""

    machine: Json
    traffic: Json
    settings: Json
    interrupted: bool
    designs: list[Replayed]
    document: Json = field(repr=False)

    @classmethod
    def _of(cls, of: Json) -> Replay:
        return cls(
            machine=of["machine"],
            traffic=of["traffic"],
            settings=of["settings"],
            interrupted=of["interrupted"],
            designs=[Replayed._of(one) for one in of["designs"]],
            document=of,
        )

    def __getitem__(self, design: str) -> Replayed:
        """Returns a design by name: the first, if it ran with several instruction sets."""
        return _named(design, {one.design: one for one in reversed(self.designs)})

    def array(self) -> NDArray[np.void]:
        """Returns a row for each design: name, hit rate, rates and times."""
        rates = ("hit_rate", "mpps", "mpps_min", "mpps_max", "ns_per_packet", "ns_lookup")
        rows = (vars(one) for one in self.designs)
        return _array(rows, {"design": "U", **dict.fromkeys(rates, "f8")})


@dataclass(frozen=True)
class Advice:
    """What `overbank advise --format json` printed.

    cells has a row for each design and size: design, entries, table_bytes, alpha, predicted,
    tolerance, measured, lookup_ns, ns_per_packet (nan: none).
    """

    traffic: Json
    profile: Json
    costs: Json
    recommendation: Json
    model: Json
    interrupted: bool
    cells: NDArray[np.void]
    document: Json = field(repr=False)

    @classmethod
    def _of(cls, of: Json) -> Advice:
        columns = {
            "design": "U",
            "entries": "i8",
            "table_bytes": "i8",
            "alpha": "f8",
            "predicted": "f8",
            "tolerance": "f8",
            "measured": "f8",
            "lookup_ns": "f8",
            "ns_per_packet": "f8",
        }
        return cls(
            traffic=of["traffic"],
            profile=of["profile"],
            costs=of["costs"],
            recommendation=of["recommendation"],
            model=of["model"],
            interrupted=of["interrupted"],
            cells=_array(of["cells"], columns),
            document=of,
        )


@dataclass(frozen=True)
class Series:
    """A curve: x and y, and the lowest and highest y if there were several measurements."""

    name: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    model: bool

    @classmethod
    def _of(cls, of: Json) -> Series:
        x, y = _pairs(of["points"])
        low, high = _pairs(of["ranges"]) if of["ranges"] else (None, None)
        return cls(of["name"], x, y, low, high, of["model"])


@dataclass(frozen=True)
class Plot:
    """A figure of an experiment: its axes and its curves."""

    title: str
    x: str
    y: str
    log_x: bool
    log_y: bool
    series: list[Series]
    stated: list[Json]

    @classmethod
    def _of(cls, of: Json) -> Plot:
        series = [Series._of(one) for one in of["series"]]
        return cls(
            of["title"], of["x"], of["y"], of["log_x"], of["log_y"], series, list(of["stated"])
        )

    def __getitem__(self, name: str) -> Series:
        """Returns a curve by name: the first of that name."""
        return _named(name, {one.name: one for one in reversed(self.series)})


@dataclass(frozen=True)
class Table:
    """A table of an experiment; cells are text."""

    title: str
    headings: list[str]
    rows: list[list[str]]

    def column(self, heading: str) -> list[str]:
        """Returns the cells below a heading: the first of that name."""
        columns = {name: at for at, name in reversed(list(enumerate(self.headings)))}
        at = _named(heading, columns)
        return [row[at] for row in self.rows]

    def numbers(self, heading: str) -> NDArray[np.float64]:
        """Returns the cells below a heading as numbers; nan where a cell is none."""

        def number(cell: str) -> float:
            try:
                return float(cell.replace("\N{MINUS SIGN}", "-"))
            except ValueError:
                return np.nan

        return np.array([number(cell) for cell in self.column(heading)])


@dataclass(frozen=True)
class Check:
    """A claim of the paper, or a target, beside what was measured."""

    claim: str
    stated: str
    measured: str
    holds: bool
    reason: str


@dataclass(frozen=True)
class Experiment:
    """The record of an experiment of `overbank lab run`."""

    name: str
    title: str
    source: str
    date: str
    command: str
    machine: Json
    seed: int
    settings: dict[str, str]
    plots: list[Plot]
    tables: list[Table]
    checks: list[Check]
    notes: list[str]
    document: Json = field(repr=False)

    @classmethod
    def _of(cls, of: Json) -> Experiment:
        def check(one: Json) -> Check:
            claim, stated, measured = one["claim"], one["stated"], one["measured"]
            return Check(claim, stated, measured, one["holds"], one.get("reason", ""))

        return cls(
            name=of["name"],
            title=of["title"],
            source=of["source"],
            date=of["date"],
            command=of["command"],
            machine=of["machine"],
            seed=of["seed"],
            settings=dict(of["settings"]),
            plots=[Plot._of(one) for one in of["plots"]],
            tables=[Table(one["title"], one["headings"], one["rows"]) for one in of["tables"]],
            checks=[check(one) for one in of["checks"]],
            notes=list(of["notes"]),
            document=of,
        )


@dataclass(frozen=True)
class Calculation:
    """What `overbank lab model --format json` printed.

    rows has a row for each geometry and alpha: geometry, alpha, hit_rate, bound, occupied,
    simulated (nan: none).
    """

    simulation: Json | None
    interrupted: bool
    rows: NDArray[np.void]
    document: Json = field(repr=False)

    @classmethod
    def _of(cls, of: Json) -> Calculation:
        columns = {
            "geometry": "U",
            "alpha": "f8",
            "hit_rate": "f8",
            "bound": "?",
            "occupied": "f8",
            "simulated": "f8",
        }
        return cls(of["simulation"], of["interrupted"], _array(of["rows"], columns), of)


_KINDS: dict[str, Callable[[Json], Replay | Advice | Experiment | Calculation]] = {
    "overbank-replay/1": Replay._of,
    "overbank-advise/1": Advice._of,
    "overbank-lab/1": Experiment._of,
    "overbank-model/1": Calculation._of,
}


def read(
    source: str | os.PathLike[str] | Mapping[str, Any],
) -> Replay | Advice | Experiment | Calculation:
    """Reads a JSON document of Overbank: a file, or what the json module made of one.

    Its schema decides the kind. Raises DocumentError if it is none of them.
    """
    if isinstance(source, Mapping):
        name, of = "document", dict(source)
    else:
        name = os.fspath(source)
        with open(name, encoding="utf-8") as file:
            try:
                of = json.load(file)
            except (ValueError, RecursionError) as error:
                raise DocumentError(f"{name}: no JSON: {error}") from None
    schema = of.get("schema") if isinstance(of, dict) else None
    make = _KINDS.get(schema) if isinstance(schema, str) else None
    if make is None:
        raise DocumentError(f"{name}: schema {schema!r}; expected one of {', '.join(_KINDS)}")
    try:
        return make(of)
    except KeyError as error:
        raise DocumentError(f"{name}: {schema} without the field {error}") from None
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise DocumentError(f"{name}: no {schema}: {error}") from None


def _named(name: str, of: dict[str, T]) -> T:
    try:
        return of[name]
    except KeyError:
        raise KeyError(f"{name!r}: expected one of {list(reversed(of))}") from None


def _number(of: Any) -> float:
    return np.nan if of is None else float(of)


def _pairs(of: list[list[float]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    pairs = np.asarray(of, dtype=np.float64).reshape(len(of), 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def _array(rows: Iterable[Mapping[str, Any]], columns: dict[str, str]) -> NDArray[np.void]:
    """Makes a structured array, a row for each mapping; text columns are as wide as their texts."""
    rows = list(rows)

    def of(kind: str, cell: Any) -> Any:
        if kind == "f8":
            return _number(cell)
        if kind == "U" and not isinstance(cell, str):
            raise TypeError(f"{cell!r} is no text")
        return cell

    cells = [tuple(of(kind, row[name]) for name, kind in columns.items()) for row in rows]
    width = max((len(cell) for row in cells for cell in row if isinstance(cell, str)), default=1)
    kinds = [(name, f"U{width}" if kind == "U" else kind) for name, kind in columns.items()]
    return np.array(cells, dtype=kinds)
