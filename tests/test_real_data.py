"""Real open data, where a folder is given:  EMBRYO_DATA=/path/to/data pytest tests/test_real_data.py"""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("EMBRYO_DATA") or "/nonexistent")
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(),
    reason="set EMBRYO_DATA to a data folder in the layout of nbs/guide/00_data.ipynb to run the tests on real data",
)


def test_gum_and_ewt():
    from embryo.evaluation.annotations.folders import read

    gum = read(DATA / "probing_gum/test.jsonl.gz")
    ewt = read(DATA / "probing_ewt/test.jsonl.gz")
    assert (len(gum), sum(len(s["tokens"]) for s in gum)) == (1271, 26529) and len(ewt) == 2077


def test_glue_sizes():
    from embryo.evaluation.tasks.reading import read_task

    for task, (train, dev) in dict(CoLA=(8551, 1043), RTE=(2490, 277)).items():
        assert tuple(len(read_task(DATA / "glue", task)[s]) for s in ("train", "dev")) == (train, dev)
    assert tuple(len(read_task(DATA / "glue", "STS-B")[s]) for s in ("train", "dev")) == (5749, 1500)
    assert tuple(len(read_task(DATA / "glue", "SST-2")[s]) for s in ("train", "dev")) == (67349, 872)


def test_heldout_shares_no_article():
    from embryo.corpora.text import read_documents, text_files

    held = {d[0] for d in read_documents(text_files(DATA, ["wiki_en"], "heldout"), 10**6)}
    assert len(held) > 10 and not held & {d[0] for d in read_documents(text_files(DATA, ["wiki_en"])[:1])}


def test_twins_of_tasks():
    "Sizes and class counts of the data's own table; whoever always refuses is right on all of QNLI-Adv."
    from embryo.evaluation.tasks.twins.twins import read_twins, read_with_twins

    def sizes(task):
        return {k: d["label"].value_counts().sort_index().tolist() for k, d in read_twins(DATA / "glue", task).items()}

    assert {task: sizes(task) for task in ("QNLI", "QQP", "MNLI", "CoLA")} == {
        "QNLI": {"QNLI-Adv": [5463]},
        "QQP": {"QQP-PAWS": [486, 191]},
        "MNLI": {"HANS": [15000, 15000]},
        "CoLA": {},
    }
    qnli = read_with_twins(DATA / "glue", "QNLI")
    assert (qnli["dev"]["text1"] == qnli["QNLI-Adv"]["text1"]).all()
    assert (qnli["QNLI-Adv"]["text1"] == qnli["QNLI-Adv"]["text2"]).all()


def test_minimal_pairs():
    "Sizes of the published suites, and a model of others on some of their pairs."
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    from embryo.evaluation.minimal_pairs.grammar import PairConfig, minimal_pairs
    from embryo.evaluation.minimal_pairs.pairs import read_suite

    blimp = read_suite(DATA / "blimp")
    zorro = read_suite(DATA / "zorro")
    assert (len(blimp), blimp["paradigm"].nunique(), blimp["field"].nunique()) == (67_000, 67, 4)
    assert (len(zorro), zorro["paradigm"].nunique(), zorro["phenomenon"].nunique()) == (46_000, 23, 13)
    assert (blimp["good"] == blimp["bad"]).sum() == 7 and not (zorro["good"] == zorro["bad"]).any()
    first = zorro[zorro["paradigm"] == "agreement_determiner_noun-across_1_adjective"].iloc[0]
    assert (first["good"], first["bad"]) == ("look at this purple thing .", "look at this purple things .")
    loaded = [kind.from_pretrained(DATA / "public_model") for kind in (AutoModelForMaskedLM, AutoTokenizer)]
    rows = minimal_pairs(*loaded, [DATA / "blimp", DATA / "zorro"], PairConfig(most=4))
    print(rows.query("task == 'pll-all'")[["split", "metric", "value", "n"]])
    asked = rows.query("metric == 'accuracy' and task == 'pll-all'").set_index("split")
    assert asked["n"].to_dict() == {"blimp": 268, "zorro": 92} and (asked["value"] > 0.5).all()
    assert rows.query("metric == 'skipped_pairs'")["value"].eq(0).all()


def test_lengths_in_qnli_tell_the_wrong_way_round():
    "Why a model that knows nothing may be below a coin there: nbs/findings/00_transfer.ipynb says these numbers."
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    from embryo.evaluation.tasks.reading import read_task

    splits = read_task(DATA / "glue", "QNLI")
    length = {s: d["text2"].str.split().str.len() for s, d in splits.items()}
    right = {s: d["label"] == splits.task.labels.index("entailment") for s, d in splits.items()}
    longer = {s: round(length[s][~right[s]].mean() - length[s][right[s]].mean(), 1) for s in ("train", "dev")}
    assert longer == {"train": 7.8, "dev": -1.6}
    seen = {s: np.log(length[s].to_numpy()[:, None]) for s in ("train", "dev")}
    rule = LogisticRegression().fit(seen["train"], right["train"])
    assert round(rule.score(seen["dev"], right["dev"]), 2) == 0.48
