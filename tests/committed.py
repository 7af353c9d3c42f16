"Rows of committed runs, read once a process; whoever changes a frame copies it first."

import functools

import pandas as pd

from embryo.ground.rows import read_rows
from embryo.results.statistics import densest_seeds


@functools.lru_cache(maxsize=None)
def committed(profile: str) -> pd.DataFrame:
    "All rows of a profile, as `papermill_runs` has them."
    from conftest import ROOT

    return read_rows(ROOT / f"papermill_runs/{profile}/rows.csv")


@functools.lru_cache(maxsize=None)
def densest(profile: str) -> pd.DataFrame:
    "The seeds of a profile that were asked most often."
    return densest_seeds(committed(profile))
