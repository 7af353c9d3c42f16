"""Every stored printed value against copies of the papers' tables.

EMBRYO_PRINTED=/path/to/csv pytest tests/test_printed.py
"""

import csv
import hashlib
import os
from pathlib import Path

import pytest

from embryo.ground.printed import PRINTED, printed_table

COPIES = Path(os.environ.get("EMBRYO_PRINTED") or "/nonexistent")
at_hand = pytest.mark.skipif(
    not COPIES.is_dir(),
    reason="set EMBRYO_PRINTED to a folder with the papers' tables (p1_table1.csv ...) to compare each value",
)


@at_hand
@pytest.mark.parametrize("paper,table", [(p, t) for p, tables in PRINTED.items() for t in tables])
def test_every_printed_value(paper, table):
    "Cell by cell, as text; the names of a few columns are the project's."
    with open(COPIES / f"{paper}_{table}.csv", newline="") as f:
        lines = list(csv.reader(f))
    ours = printed_table(paper, table)
    assert len(ours.columns) == len(lines[0])
    assert ours.to_numpy().tolist() == lines[1:]


@at_hand
def test_no_table_is_missing():
    assert {f.stem for f in COPIES.glob("*.csv")} == {f"{p}_{t}" for p, tables in PRINTED.items() for t in tables}


def test_nothing_was_edited_since():
    "The cells that passed the comparison above, by their hash."
    cells = [(p, t, printed_table(p, t).to_numpy().tolist()) for p, tables in PRINTED.items() for t in tables]
    assert hashlib.sha256(repr(cells).encode()).hexdigest()[:16] == "640a7d50f3188046"
