"""Overlap of words as a trivial predictor: features and rules, whose examples it sees, and adding it to older rows."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import crash
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from sklearn.feature_extraction.text import CountVectorizer

from embryo.evaluation.tasks import finetune as finetuning
from embryo.evaluation.tasks import trivial
from embryo.evaluation.tasks.batches import encode as the_encode
from embryo.evaluation.tasks.finetune import finetune
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.settings import FinetuneConfig, drawn
from embryo.evaluation.tasks.tasks import TASKS
from embryo.evaluation.tasks.trivial import overlap_features, trivial_rows, word_weights, words
from embryo.evaluation.tasks.twins.twins import read_with_twins
from embryo.ground.rows import read_rows, row_frame, write_rows

BOTH = {"overlap-1", "overlap-7"}
PAIRS = ("STS-B", "RTE", "MRPC", "QQP", "QNLI", "MNLI")


@pytest.fixture(scope="module")
def glue(lab):
    return Path(lab["data"]) / "glue"


def scores(rows, metric="accuracy"):
    return rows[rows["metric"] == metric].set_index("group")["value"]


def rule(label, n=300, seed=0):
    "Pairs of two of six letters; `label` of the four letters is the class."
    rng = np.random.default_rng(seed)
    out = {}
    for split in ("train", "dev"):
        letters = [rng.choice(list("abcdef"), 4).tolist() for _ in range(n)]
        pairs = [(" ".join(x[:2]), " ".join(x[2:]), int(label(x))) for x in letters]
        out[split] = pd.DataFrame(pairs, columns=["text1", "text2", "label"])
    return out


# ---- features ---------------------------------------------------------------------------------------------------


def test_features_by_matrices(glue):
    "The same seven numbers from scikit-learn's word counts."
    train, dev = (read_task(glue, "QQP")[s] for s in ("train", "dev"))
    count = CountVectorizer(token_pattern=r"\w+", binary=True)
    seen = count.fit_transform([*train["text1"], *train["text2"]]).toarray()
    weight = np.log((1 + len(seen)) / (1 + seen.sum(0)))
    known = {x: weight[i] for x, i in count.vocabulary_.items()}
    for frame in (train, dev):
        found = CountVectorizer(token_pattern=r"\w+", binary=True).fit([*frame["text1"], *frame["text2"]])
        w = np.array([known.get(x, np.log(1 + len(seen))) for x in found.get_feature_names_out()])
        a, b = (found.transform(frame[k]).toarray() for k in ("text1", "text2"))
        both = a & b
        either = a | b
        shares = [both.sum(1) / either.sum(1), both @ w / (either @ w), both @ w / (a @ w), both @ w / (b @ w)]
        want = np.transpose([*shares, a.sum(1), b.sum(1), both.sum(1)])
        np.testing.assert_allclose(overlap_features(frame, word_weights(train)), want, rtol=1e-12)


def test_words_without_tokenizer():
    assert words("It's THE 2nd\tco-op, été_1 …") == {"it", "s", "the", "2nd", "co", "op", "été_1"}
    assert words("?! …") == set()


def test_sides_change_places(glue):
    "With the sentences exchanged, the features of the sides are, and nothing else."
    d = read_task(glue, "RTE")["train"]
    turned = d.rename(columns=dict(text1="text2", text2="text1"))
    f, g = (overlap_features(x, word_weights(d)) for x in (d, turned))
    assert (f[:, [0, 1, 3, 2, 5, 4, 6]] == g).all()


# ---- rules ------------------------------------------------------------------------------------------------------


def test_perfect_where_overlap_decides():
    r = scores(trivial_rows(rule(lambda x: not {*x[:2]} & {*x[2:]}), "RTE"))
    assert r["overlap-1"] == r["overlap-7"] == 1 > r["majority"]


def test_helpless_where_it_does_not():
    r = trivial_rows(rule(lambda x: x[0] in "abc", 1000), "RTE")
    assert (scores(r)[[*BOTH]] - 0.5).abs().max() < 0.06 and (r["stderr"] > 0).all()


def test_one_feature_is_chosen_on_the_training_file():
    "In training the second sentence's length tells the class, in the dev set the opposite: it is chosen all the same."
    d = rule(lambda x: x[0] == "a")
    for split, sign in (("train", 1), ("dev", 0)):
        d[split]["text2"] = ["x y z" if y == sign else "x" for y in d[split]["label"]]
    r = scores(trivial_rows(d, "RTE"))
    assert r["overlap-1"] == 0 and r["overlap-7"] < 0.1


def test_scores_are_ordered():
    d = rule(lambda x: len({*x[:2]} & {*x[2:]}))
    r = trivial_rows({s: f.astype(dict(label=float)) for s, f in d.items()}, "STS-B")
    assert set(scores(r, "spearman").index) == {"constant", *BOTH}
    assert scores(r, "spearman")["overlap-7"] > 0.99 and scores(r, "tie_rate")["overlap-1"] > 0.9


def test_classes_that_training_lacks():
    d = rule(lambda x: x[0] == "a")
    one = dict(d, train=d["train"].assign(label=2))
    # a third class, which the dev set does not have
    assert scores(trivial_rows(one, "MNLI"))["overlap-7"] == 0
    two = dict(d, train=d["train"].assign(label=d["train"]["label"] * 2))
    assert scores(trivial_rows(two, "MNLI")).notna().all()


def test_every_pair_task_and_no_other(glue):
    for task in TASKS:
        r = trivial_rows(read_task(glue, task), task)
        assert (set(r["group"]) & BOTH == BOTH) == (task in PAIRS), task
        assert (r["n"] > 0).all() and r["value"].notna().all() and (r["stderr"] > 0).all() and r["seed"].isna().all()
        metrics = {TASKS[task].metric, *TASKS[task].others, "tie_rate"}
        for g in set(r["group"]) & BOTH:
            assert set(r.loc[r["group"] == g, "metric"]) == metrics


def test_own_pair_task(tmp_path):
    (tmp_path / "Own").mkdir()
    for s, f in rule(lambda x: not {*x[:2]} & {*x[2:]}).items():
        f.columns = ["premise", "hypothesis", "label"]
        f.to_csv(tmp_path / "Own" / f"{s}.tsv", sep="\t", index=False)
    assert scores(trivial_rows(read_task(tmp_path, "Own"), "Own"))["overlap-7"] == 1


def test_the_order_of_sets_does_not_show(glue):
    "Two processes that order sets differently: the same rows to the last digit."
    code = f"""from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.settings import FinetuneConfig
from embryo.evaluation.tasks.trivial import trivial_rows
for t in ("STS-B", "MNLI"):
    rows = trivial_rows(read_task({str(glue)!r}, t), t, FinetuneConfig(max_train=40), 1)
    print(rows[["value", "stderr"]].values.tolist())"""

    def run(seed):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout

    assert run("1") == run("2") != ""


# ---- the examples of the run ------------------------------------------------------------------------------------


def test_the_examples_that_the_model_sees(lab, glue, monkeypatch):
    "With a cut training file, overlap is fitted on what fine-tuning of the same seed trains on."
    d = read_task(glue, "RTE")
    config = FinetuneConfig(max_train=30, steps=1, max_length=64, bf16=False)
    seen = []
    encode = the_encode
    weights = word_weights
    monkeypatch.setattr(finetuning, "encode", lambda df, *a: (seen.append(df), encode(df, *a))[1])
    monkeypatch.setattr(trivial, "word_weights", lambda df: (seen.append(df), weights(df))[1])
    for seed in (0, 1):
        seen.clear()
        finetune(Path(lab["series"]) / "albert-english-s0/step4", "RTE", d, config, seed=seed)
        trivial_rows(d, "RTE", config, seed)
        assert len(seen[0]) == 30 and seen[0].equals(seen[-1]) and not seen[0].equals(drawn(d["train"], config, 2))


def test_constants_do_not_depend_on_the_draw(glue):
    d = read_task(glue, "RTE")
    few = FinetuneConfig(max_train=12)
    a, b = (trivial_rows(d, "RTE", few, seed) for seed in (0, 1))
    constant = ~a["group"].isin(BOTH)
    pd.testing.assert_frame_equal(a[constant], b[constant])
    assert not a.equals(b)


# ---- tables of rows ---------------------------------------------------------------------------------------------


def collect(tmp_path, nodes):
    "The table that the template `rows` makes of {node: rows}."
    for name, r in nodes.items():
        write_rows(row_frame(r), tmp_path / "runs" / name / "rows.parquet")
    parameters = dict(runs=str(tmp_path / "runs"), nodes=list(nodes), table=str(tmp_path / "rows.csv"))
    at = {}
    for c in json.loads((ROOT / "nbs/experiments/rows.ipynb").read_text())["cells"]:
        if c["cell_type"] != "code":
            continue
        exec("".join(c["source"]), at)
        if "parameters" in c["metadata"].get("tags", []):
            at |= parameters
    return read_rows(tmp_path / "rows.csv")


def test_rows_keep_every_seed_once(tmp_path):
    nodes = {}
    for l1 in ("x", "y"):
        for s in (0, 1):
            same = dict(l1=l1, seed=s, task="QNLI", metric="accuracy", n=10)
            nodes[f"finetune/{l1}-s{s}"] = [
                dict(evaluator="finetune", value=0.6, **same),
                dict(evaluator="trivial", split="dev", group="majority", value=0.5, **same),
                dict(evaluator="trivial", split="dev", group="overlap-7", value=0.7 + s / 100, **same),
                dict(evaluator="count", l1=l1, seed=s, task="pos-class", group="noun", metric="count", value=5),
            ]
    r = collect(tmp_path, nodes)
    t = r[r["evaluator"] == "trivial"]
    assert t.groupby("group")["seed"].agg(list).to_dict() == {"majority": [0, 1], "overlap-7": [0, 1]}
    assert t.query("group=='overlap-7'")["value"].tolist() == [0.7, 0.71]
    assert len(r[r["evaluator"] == "count"]) == 1 and len(r[r["evaluator"] == "finetune"]) == 4


def test_rows_measured_twice_are_an_error(tmp_path):
    row = dict(evaluator="finetune", task="QNLI", l1="x", seed=0, metric="accuracy", value=0.6)
    with pytest.raises(AssertionError, match="measured twice"):
        collect(tmp_path, dict(a=[row], b=[row]))


# ---- rows that are older than a predictor -----------------------------------------------------------------------

PROFILE = 'profile = "old"' + crash.SIZES + "[finetune.RTE]\nmax_train = 25\n"


@pytest.fixture
def old(tmp_path, glue):
    "A profile and its rows: two seeds of three tasks; STS-B has no predictor, RTE constants for one seed, CoLA all."
    (tmp_path / "old.toml").write_text(PROFILE)
    rows = []
    final = dict(profile="old", evaluator="finetune", split="dev", group="final", value=0.25)
    for task, seeds in {"STS-B": (), "RTE": (0,), "CoLA": (0, 1)}.items():
        d = read_task(glue, task)
        t = trivial_rows(d, task)
        for s in (0, 1):
            same = dict(profile="old", family="roberta", l1="english", seed=s, run=f"finetune/s{s}")
            rows.append(final | dict(task=task, metric=TASKS[task].metric, n=len(d["dev"])) | same)
            if s in seeds:
                rows += [r | same for r in t[~t["group"].isin(BOTH)].to_dict("records")]
    rows.append(final | dict(task="SQuAD2.0-HasAns", metric="exact", n=4, seed=0))
    write_rows(row_frame(rows), tmp_path / "rows.csv")
    return tmp_path


def test_figures_add_what_is_missing(run, old, lab, glue):
    before = (old / "rows.csv").read_text().splitlines()
    call = "embryo_figures", "--profile", old / "old.toml", "--rows", old / "rows.csv"
    code, out, err = run(*call)
    assert code == 2 and "draws nothing" in err and (old / "rows.csv").read_text().splitlines() == before, out
    code, out, err = run(*call, "--data", lab["data"])
    assert code == 0, err
    after = (old / "rows.csv").read_text().splitlines()
    new = [l for l in after if l not in before]
    # nothing changed or lost
    assert [l for l in after if l in before] == before
    said = "rows added: all-positive, constant, majority, overlap-1, overlap-7 of RTE, STS-B"
    assert f"rows.csv: {len(new)} {said}" in out
    r = read_rows(old / "rows.csv")
    r = r[r["run"].str.startswith("trivial/")]
    assert len(r) == len(new) and set(r["profile"]) == {"old"} and set(r["run"]) == {"trivial/RTE", "trivial/STS-B"}
    assert set(r["family"]) | set(r["l1"]) == {""}
    every = {"constant", *BOTH}
    found = r.groupby(["task", "seed"])["group"].agg(set).to_dict()
    rte = {"majority", "all-positive", *BOTH}
    assert found == {("STS-B", 0): every, ("STS-B", 1): every, ("RTE", 0): BOTH, ("RTE", 1): rte}
    # the profile's settings
    cut = FinetuneConfig(max_train=25)
    for seed in (0, 1):
        want = trivial_rows(read_with_twins(glue, "RTE"), "RTE", cut, seed).query("group=='overlap-7'")
        got = r[(r["task"] == "RTE") & (r["group"] == "overlap-7") & (r["seed"] == seed)]
        np.testing.assert_allclose(sorted(got["value"]), sorted(want["value"]), rtol=1e-5)
    code, out, err = run(*call, "--data", lab["data"])
    assert code == 0 and "0 rows added, no trivial predictor was missing" in out
    assert (old / "rows.csv").read_text().splitlines() == after


def test_data_of_another_size_are_refused(run, old, lab, tmp_path):
    shutil.copytree(lab["data"] + "/glue", tmp_path / "data/glue")
    f = next((tmp_path / "data/glue/RTE").glob("dev.tsv*"))
    text = gzip.decompress(f.read_bytes()).decode().splitlines()
    f.write_bytes(gzip.compress("\n".join(text[:-1]).encode()))
    before = (old / "rows.csv").read_bytes()
    call = "embryo_figures", "--profile", old / "old.toml", "--rows", old / "rows.csv", "--data"
    for data, said in (("data", "in the split dev, but the rows were scored on"), ("nowhere", "no such folder")):
        code, out, err = run(*call, tmp_path / data)
        assert code == 2 and said in err and len(err.strip().splitlines()) == 1, err
        assert (old / "rows.csv").read_bytes() == before


# ---- real data --------------------------------------------------------------------------------------------------

DATA = Path(os.environ.get("EMBRYO_DATA") or "/nonexistent")


@pytest.mark.skipif(
    not DATA.is_dir(), reason="set EMBRYO_DATA to a data folder in the layout of nbs/guide/00_data.ipynb"
)
def test_what_overlap_scores_on_glue():
    "Scores of an independent implementation, within what words and features leave open."
    for task, want in {"STS-B": 0.760, "QNLI": 0.741, "QQP": 0.545, "MRPC": 0.818, "RTE": 0.592, "MNLI": 0.483}.items():
        r = trivial_rows(read_task(DATA / "glue", task), task).query("split=='dev'")
        assert abs(scores(r, TASKS[task].metric)["overlap-7"] - want) < 0.015, task
        if task == "STS-B":
            assert abs(scores(r, "spearman")["overlap-1"] - 0.741) < 0.005
        if task == "QQP":
            assert abs(scores(r)["overlap-7"] - 0.671) < 0.005
