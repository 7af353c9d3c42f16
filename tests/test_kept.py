"""Checkpoints that are in the repository: they are the listed ones, and asked again they answer as in the rows."""

import os
from pathlib import Path

import pandas as pd
import pytest
from conftest import ROOT

import embryo
from embryo.evaluation.annotations.folders import read
from embryo.evaluation.asking import examine
from embryo.evaluation.evaluators import Asked, load_checkpoint
from embryo.ground.profiles import read_profile
from embryo.models.audits import KEPT, audit, audit_checkpoints

DATA = Path(os.environ.get("EMBRYO_DATA") or "/nonexistent")
BATCH = ROOT / "papermill_runs/grown-long"
SERIES = "albert-english-s3"
STEPS = [1000, 4000, 12_000, 33_000, 42_000]
QUESTION = ["evaluator", "task", "split", "group", "metric", "mode"]


def test_they_are_the_listed_ones():
    series = embryo.open_series(str(BATCH / KEPT / SERIES))
    assert series.steps == STEPS
    ((kind, _, found),) = audit(BATCH / KEPT)
    assert kind == "series" and not (found["severity"] == "fault").any(), found
    found = audit_checkpoints(BATCH / "checkpoints.csv")
    assert not (found["severity"] == "fault").any(), found
    listed = pd.read_csv(BATCH / "checkpoints.csv").query(f"series == '{SERIES}'")
    assert len(listed) == 25 and set(STEPS) <= set(listed["step"])


def test_one_is_opened_and_speaks():
    model, tokenizer = embryo.open_series(str(BATCH / KEPT / SERIES)).load(33_000)
    ids = tokenizer("he was born in the united <mask> of america .", return_tensors="pt")["input_ids"]
    gap = ids[0].tolist().index(tokenizer.mask_token_id)
    assert tokenizer.decode(model(ids).logits[0, gap].argmax()).strip() == "states"


@pytest.mark.skipif(
    not all((DATA / x).is_dir() for x in ("blimp", "zorro", "probing_gum")),
    reason="set EMBRYO_DATA to a data folder with blimp/, zorro/ and probing_gum/",
)
def test_asked_again_one_answers_as_in_the_rows():
    "Minimal pairs, and words shown and hidden: this kind of machine may round otherwise, so that a few answers differ."
    step = 33_000
    settings = read_profile("grown-long")["examine"]
    asked = Asked(
        sentences=read(DATA / settings["sentences"]),
        split="probing_gum-test",
        pairs={suite: str(DATA / suite) for suite in settings["minimal_pairs"]["suites"]},
        options={"minimal_pairs": settings["minimal_pairs"]},
        seed=3,
    )
    checkpoint = load_checkpoint(embryo.open_series(str(BATCH / KEPT / SERIES)), step)
    again = examine(checkpoint, asked, ["reconstruct", "mask_predict", "minimal_pairs"])
    rows = embryo.read_rows(BATCH / "rows.csv").query(f"family == 'albert' and seed == 3 and step == {step}")
    both = again.merge(rows, on=QUESTION, suffixes=("", "_before"))
    both = both[both["metric"] == "accuracy"]
    assert {"reconstruct", "mask_predict", "minimal_pairs"} == set(both["evaluator"]) and len(both) > 200
    apart = (both["value"] - both["value_before"]).abs()
    assert (both["n"] == both["n_before"]).all() and (apart <= 2 / both["n"] + 0.002).all()
