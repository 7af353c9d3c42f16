"""The race, as a stranger starts it: on a folder without corpora, and on tiny ones with a target reached at once."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
from conftest import ROOT

from embryo.results.plateau.race import MARKS, records


def race(*args):
    "Run the script; (exit status, what it said, what it said of errors)."
    command = [sys.executable, str(ROOT / "benchmarks" / "speedrun.py"), *map(str, args)]
    p = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    return p.returncode, p.stdout, p.stderr


def test_a_folder_without_corpora(tmp_path):
    "One sentence: what is missing, and how to make it."
    code, _, err = race(tmp_path)
    assert code == 1 and "Traceback" not in err and len(err.strip().splitlines()) == 1, err
    assert str(tmp_path) in err and "embryo_corpus english --profile open --data" in err


def test_all_three_arrive_on_a_tiny_corpus(lab, tmp_path):
    "Everybody is below 20 nats when first scored; the table of records can be read, and a second race is added to it."
    table = tmp_path / "records.csv"
    small = ("--layers", 1, "--hidden", 64, "--threads", 1, "--steps", 8, "--every", 0.002, "--target", 20)
    code, out, err = race(Path(lab["corpora"]), *small, "--seeds", 3, "--record", table)
    assert code == 0, err
    told = records(table)
    assert sorted(told["who"]) == ["old", "recipe", "trainer"] and told["reached"].all()
    assert (told["seed"] == 3).all() and (told["size"] == "1x64").all() and (told["tokens_M"] > 0).all()
    assert set(MARKS) < set(pd.read_csv(table)) and "trainer, seed 3" in out
    assert race(Path(lab["corpora"]), *small, "--who", "old", "--record", table)[0] == 0
    assert len(records(table)) == 4
