import re
import runpy
import sys
from pathlib import Path

import pytest

import overbank

ROOT = Path(__file__).parents[1]


def test_the_package_says_what_it_has() -> None:
    for name in overbank.__all__:
        thing = getattr(overbank, name)
        assert name == "__version__" or thing.__doc__, name
    tables = (overbank.Cache, overbank.Fib, overbank.Partition, overbank.Sketch)
    live = (overbank.LookAside, overbank.Tickets, overbank.Writing)
    numbered = (overbank.Versioned, overbank.View, overbank.Commit)
    for kind in (*tables, *live, *numbered, overbank.Tree):
        methods = [name for name in vars(kind) if not name.startswith("_")]
        assert all(getattr(kind, name).__doc__ for name in methods), kind
    assert overbank.__version__.count(".") == 2


def test_the_example_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a small size. Its measurements agree with the models, or it says so and fails."""
    picture = tmp_path / "hit_rate.png"
    monkeypatch.setattr(sys, "argv", ["hit_rate.py", "--entries", "4096", "-o", str(picture)])
    runpy.run_path(str(ROOT / "examples" / "hit_rate.py"), run_name="__main__")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


def test_the_examples_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT.parents[1])
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(blocks) > 4
    exec("\n".join(blocks), {})
