"A study that is run a seed at a time ends with the rows of one that is run at once."

import crash
import pandas as pd

from embryo.ground.rows import read_rows

PROFILE = (
    'profile = "two"'
    + crash.SIZES
    + """
[results.p2_table1]
template = "finetune"
family = ["roberta"]
l1 = ["none"]
seed = [0, 1]
task = ["STS-B"]
"""
)


def measured(table):
    "Rows without what a clock says."
    rows = read_rows(table)
    rows = rows[~rows["metric"].isin(["wall_s", "cpu_s"])]
    return rows.sort_values([*rows.columns], ignore_index=True)


def test_seeds_one_after_the_other(run, tmp_path):
    (tmp_path / "klingon.txt").write_text(crash.KLINGON)
    (tmp_path / "two.toml").write_text(PROFILE)
    table = tmp_path / "papermill_runs/two/rows.csv"

    code, out, err = run("embryo_plan", "--profile", "two.toml", "--seeds", "1")
    assert code == 0 and "finetune/roberta-none-s1" in out and "none-s0" not in out, err
    found = {}
    answered = {}
    for seeds in ("0", "1", ""):
        code, out, err = run("embryo_run", "--profile", "two.toml", "--seeds", seeds, timeout=300)
        assert code == 0, err
        found[seeds] = measured(table)
        code, answered[seeds], err = run("embryo_plan", "--profile", "two.toml", "--rows", table)
        assert code == 0, err
    assert answered["0"].splitlines() == [
        "finetune: 1 of 2 questions are answered",
        "missing: finetune roberta-none-s1: STS-B at step 0",
    ]
    assert answered["1"] == answered[""] == "finetune: 2 of 2 questions are answered\n"
    only = found["0"]
    assert set(only["seed"].dropna()) == {0} and set(found["1"]["seed"].dropna()) == {0, 1}
    kept = found["1"][found["1"]["seed"] != 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, only)
    # all nodes were there: the whole run only collects them
    assert "2 of " in out.splitlines()[0] or "1 of " in out.splitlines()[0], out
    pd.testing.assert_frame_equal(found[""], found["1"])


def test_a_seed_that_nobody_asks_for(run, tmp_path):
    (tmp_path / "two.toml").write_text(PROFILE)
    for seeds, says in (("7", "no result asks for seed 7; expected some of 0, 1"), ("one", "--seeds is 'one'")):
        code, out, err = run("embryo_run", "--profile", "two.toml", "--seeds", seeds)
        assert code == 2 and says in err and "Traceback" not in err
