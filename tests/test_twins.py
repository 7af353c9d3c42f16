"""Twins of tasks: asked of the fine-tuned model, scored so that neither constants nor shared words can win."""

import numpy as np
import pytest

from embryo.evaluation.tasks.finetune import finetune
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.settings import FinetuneConfig
from embryo.evaluation.tasks.tasks import TASKS
from embryo.evaluation.tasks.trivial import trivial_rows
from embryo.evaluation.tasks.twins.twins import PAIRS, joint_rows, read_with_twins, split_scores
from embryo.models.given import open_series


@pytest.mark.parametrize("task", PAIRS)
def test_no_rule_on_shared_words_tells_the_labels_apart(task, lab):
    "The micro world's twins: constants and overlap are right in both of two lines as often as their ties allow."
    data = read_with_twins(lab["data"] + "/glue", task)
    rows = trivial_rows(data, task).query("metric == 'joint'")
    assert set(rows["group"]) >= {"overlap-1", "overlap-7"} and set(rows["split"]) == {f"{task}-roles"}
    chance = 0.5 if not TASKS[task].labels else 0.25
    assert (rows["value"] <= chance + 1e-9).all()


def test_a_model_is_asked_the_twins_of_its_task(lab):
    glue = lab["data"] + "/glue"
    series = open_series(f"{lab['series']}/albert-english-s0")
    start = series.load(series.steps[-1])
    config = FinetuneConfig(epochs=1, max_train=32, max_length=48)
    with_twins = finetune(start, "RTE", read_with_twins(glue, "RTE"), config)
    without = finetune(start, "RTE", read_task(glue, "RTE"), config)
    twin = with_twins[with_twins["split"] == "RTE-roles"]
    assert set(twin["metric"]) >= {"accuracy", "matthews", "joint"} and twin["value"].notna().all()
    # asking changes nothing in what is trained
    alike = with_twins[with_twins["split"] != "RTE-roles"].reset_index(drop=True)
    np.testing.assert_array_equal(alike["value"], without["value"])


def test_hans_counts_neutral_and_contradiction_as_one():
    y = np.array([0, 0, 1, 1])  # non-entailment, entailment
    neutral, entailment, contradiction = np.eye(3)
    said = np.array([neutral, contradiction, entailment, neutral])
    rows = {r["metric"]: r for r in split_scores(TASKS["MNLI"], "HANS", y, said)}
    row = rows["accuracy"]
    assert (row["value"], row["task"], row["split"]) == (0.75, "MNLI", "HANS")
    assert rows["matthews"]["value"] == pytest.approx(1 / np.sqrt(3))


def test_no_constant_wins_the_joint_score_of_qnli():
    rng = np.random.default_rng(0)
    dev = rng.integers(0, 2, 400)
    labels = {"dev": dev, "QNLI-Adv": np.zeros(400, int)}
    for answer in (0, 1):
        said = {split: np.full(400, answer) for split in labels}
        (row,) = joint_rows(TASKS["QNLI"], labels, said)
        assert row["value"] == 0 and row["n"] == dev.sum()
    (row,) = joint_rows(TASKS["QNLI"], labels, labels)
    assert row["value"] == 1
