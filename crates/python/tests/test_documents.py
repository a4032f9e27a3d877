"""Documents as the command wrote them: tests/documents, and the records of the repository."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import overbank

HERE = Path(__file__).parent
DOCUMENTS = HERE / "documents"
RECORDS = HERE.parents[2] / "docs" / "records"


def test_a_replay() -> None:
    replay = overbank.read(DOCUMENTS / "replay.json")
    assert isinstance(replay, overbank.Replay)
    whole = json.loads((DOCUMENTS / "replay.json").read_text())
    names = [one["design"] for one in whole["designs"]]
    assert [one.design for one in replay.designs] == names
    for one in whole["designs"]:
        design = replay[one["design"]]
        assert design.packets == one["packets"] and design.microflow == one["microflow"]
        # Without tier 1, there is no lookup in it.
        assert math.isnan(design.ns_lookup) == (one["ns_lookup"] is None)
        assert design.document == one
    rows = replay.array()
    assert rows["design"].tolist() == names
    assert rows["mpps"].tolist() == [one["mpps"] for one in whole["designs"]]
    assert replay.document == whole == overbank.read(whole).document
    assert replay.settings["rounds"] == 2 and not replay.interrupted


def test_an_advice() -> None:
    advice = overbank.read(str(DOCUMENTS / "advise.json"))
    assert isinstance(advice, overbank.Advice)
    whole = json.loads((DOCUMENTS / "advise.json").read_text())
    assert len(advice.cells) == len(whole["cells"]) > 50
    for row, cell in zip(advice.cells, whole["cells"]):
        for name in advice.cells.dtype.names:
            expected = cell[name]
            assert math.isnan(row[name]) if expected is None else row[name] == expected, name
    best = advice.recommendation
    chosen = advice.cells[
        (advice.cells["design"] == best["design"]) & (advice.cells["entries"] == best["entries"])
    ]
    assert len(chosen) == 1 and chosen["measured"] == best["hit_rate"]


def test_a_calculation_agrees_with_hit_rate() -> None:
    calculation = overbank.read(DOCUMENTS / "model.json")
    assert isinstance(calculation, overbank.Calculation)
    for row in calculation.rows:
        assert overbank.hit_rate(str(row["geometry"]), float(row["alpha"])) == row["hit_rate"]
        assert row["bound"] == row["geometry"].startswith("cuckoo")
        assert not math.isnan(row["simulated"])


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*/*.json")), ids=lambda path: path.stem)
def test_every_record(path: Path) -> None:
    record = overbank.read(path)
    assert isinstance(record, overbank.Experiment) and record.name and record.date
    whole = json.loads(path.read_text())
    assert [plot.title for plot in record.plots] == [plot["title"] for plot in whole["plots"]]
    for plot, of in zip(record.plots, whole["plots"]):
        for curve in of["series"]:
            series = plot[curve["name"]]
            assert np.array_equal(np.stack([series.x, series.y], 1).reshape(-1, 2), curve["points"])
            assert (series.low is None) == (not curve["ranges"])
    for table, of in zip(record.tables, whole["tables"]):
        assert table.rows == of["rows"]
        assert table.column(of["headings"][0]) == [row[0] for row in of["rows"]]
    assert [check.holds for check in record.checks] == [of["holds"] for of in whole["checks"]]


def test_there_are_records_with_curves_and_numbers() -> None:
    records = [overbank.read(path) for path in RECORDS.glob("*/*.json")]
    curves = [one for of in records for plot in of.plots for one in plot.series]
    assert len(records) > 10 and curves and any(one.low is not None for one in curves)
    table = overbank.Table("", ["x", "y"], [["a", "1.5"], ["b", "\N{MINUS SIGN}2"], ["c", "-"]])
    assert table.numbers("y")[:2].tolist() == [1.5, -2] and math.isnan(table.numbers("y")[2])
    with pytest.raises(KeyError, match=r"expected one of \['x', 'y'\]"):
        table.column("z")


def test_refuses_in_one_line(tmp_path) -> None:
    path = tmp_path / "some.json"
    good = json.loads((DOCUMENTS / "replay.json").read_text())
    for text, expected in [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("\udcff", "no JSON"),
        ("3", "schema None; expected one of overbank-replay/1"),
        ("{}", "schema None"),
        ('{"schema": []}', "schema \\[\\]"),
        ('{"schema": "overbank-replay/2"}', "schema 'overbank-replay/2'"),
        ('{"schema": "overbank-replay/1"}', "without the field 'machine'"),
        ('{"schema": "overbank-lab/1", "name": 1}', "without the field"),
        (json.dumps({**good, "designs": 7}), "no overbank-replay/1"),
        (json.dumps({**good, "designs": [{"design": "x", "hit_rate": "y"}]}), "no overbank-replay"),
    ]:
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(overbank.DocumentError, match=expected) as caught:
            overbank.read(path)
        assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(FileNotFoundError):
        overbank.read(tmp_path / "gone.json")
