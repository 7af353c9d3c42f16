"An evaluator of the reader's own: about ten lines in a file outside the package, and its rows come out of `examine`."

import json
from pathlib import Path

import pytest
from conftest import ROOT

from embryo.evaluation.annotations.folders import read
from embryo.evaluation.asking import examine, find_evaluator
from embryo.evaluation.evaluators import EVALUATORS, Asked, Evaluator, evaluator, load_checkpoint
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import read_rows, row_frame
from embryo.models.given import open_series

MINE = """
import torch

def sure(model, tokenizer, sentences, most=10):
    "How much probability has the model's first answer, by length of the sentence?"
    rows = []
    for s in sentences[:most]:
        ids = tokenizer(s["text"], return_tensors="pt")["input_ids"][:, :60]
        p = model(input_ids=ids).logits.softmax(-1).max(-1).values.mean()
        rows.append(dict(group=str(len(s["tokens"])), metric="probability", value=p.item(), n=ids.shape[1]))
    return rows
"""


@pytest.fixture(scope="module")
def checkpoint(lab):
    return load_checkpoint(open_series(Path(lab["series"]) / "albert-english-s0"), 4)


@pytest.fixture(scope="module")
def asked(lab):
    return Asked(read(lab["data"] + "/probing_gum/test.jsonl.gz"), split="probing_gum-test")


def test_rows_of_an_own_evaluator_come_out_of_examine(checkpoint, asked, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    own = dict(sure=dict(function=f"{tmp_path}/mine.py:sure", most=4))
    rows = examine(checkpoint, asked, ["reconstruct", "sure"], own)
    mine = rows[rows["evaluator"] == "sure"]
    assert len(mine) == 4 and set(mine["split"]) == {"probing_gum-test"} and mine["value"].between(0, 1).all()
    assert list(rows.columns) == list(row_frame([]).columns)
    alone = examine(checkpoint, asked, ["reconstruct"])
    assert alone.equals(rows[rows["evaluator"] != "sure"].reset_index(drop=True))
    found = find_evaluator("sure", own)
    assert found.says.startswith("How much probability") and found.per_sentence > 0 and "sure" not in EVALUATORS


def test_an_own_evaluator_may_ask_the_checkpoint_itself(checkpoint, asked, tmp_path):
    (tmp_path / "mine.py").write_text(
        "def layers(checkpoint, asked):\n"
        "    n = checkpoint.model.config.num_hidden_layers\n"
        "    return [dict(metric='layers', value=n, n=len(asked.sentences))]\n"
    )
    own = dict(layers=dict(function=f"{tmp_path}/mine.py:layers"))
    row = examine(checkpoint, asked, ["layers"], own).iloc[0]
    assert (row["value"], row["n"], row["evaluator"]) == (2, len(asked.sentences), "layers")
    own["layers"]["most"] = 3
    with pytest.raises(EmbryoError, match="takes no settings"):
        find_evaluator("layers", own)


def run_template(lab, out, **parameters):
    "The code of the template `examine`, run in this process, so that what a test declares is known to it."
    cells = json.loads((ROOT / "nbs/experiments/examine.ipynb").read_text())["cells"]
    names = {}
    for c in cells:
        if c["cell_type"] != "code":
            continue
        exec("".join(c["source"]), names)
        if "parameters" in c["metadata"].get("tags", []):
            sentences = lab["data"] + "/probing_gum/test.jsonl.gz"
            names.update(dict(series=lab["series"], sentences=sentences, max_sentences=4, out=str(out)), **parameters)
    return read_rows(out / "rows.parquet")


def test_the_template_asks_whatever_is_wanted(lab, tmp_path, monkeypatch):
    "Also an evaluator that no section of it names: one that joined the table later, and one of the reader's file."

    def how_many(checkpoint, asked):
        "How many sentences?"
        return row_frame([dict(metric="sentences", value=len(asked.sentences))], evaluator="sixth")

    monkeypatch.setitem(EVALUATORS, "sixth", Evaluator("sixth", how_many))
    (tmp_path / "mine.py").write_text(MINE)
    own = dict(sure=dict(function=f"{tmp_path}/mine.py:sure", most=2))
    rows = run_template(lab, tmp_path, evaluators=["sixth", "reconstruct", "sure"], own=own, options={})
    assert set(rows["evaluator"]) == {"reconstruct", "count", "sixth", "sure"}


def test_a_taken_name_is_taken_within_a_module_too():
    def probe(checkpoint, asked):
        "Another one."

    probe.__module__ = EVALUATORS["probe"].run.__module__
    with pytest.raises(EmbryoError, match="evaluator 'probe' exists already"):
        evaluator("probe")(probe)
    before = EVALUATORS["probe"]
    evaluator("probe", before.reads, before.per_sentence, before.tokens, before.speaks)(before.run)  # a cell run twice
    assert EVALUATORS["probe"] == before


def test_one_declared_in_a_script_is_known_by_name(checkpoint, asked):
    @evaluator("words", per_sentence=1)
    def words(checkpoint, asked):
        "How many words?"
        return row_frame([dict(metric="words", value=sum(len(s["tokens"]) for s in asked.sentences))])

    try:
        assert EVALUATORS["words"].says == "How many words?"
        assert examine(checkpoint, asked, ["words"])["value"].item() > 100
    finally:
        del EVALUATORS["words"]


@pytest.mark.parametrize(
    "code, message",
    [
        ("def f(model, tokenizer, sentences): return 3", "returned 3; expected a DataFrame or a list"),
        ("def f(model, tokenizer, sentences): return [dict(value=1)]", "no 'metric'"),
        ("def f(model, tokenizer, sentences): return [dict(metric='m', value=1, hue=2)]", "no such columns: hue"),
        ("def f(model, tokenizer, sentences): return [dict(metric='m', value='high')]", "mine.py:f: "),
        ("def f(model, tokenizer, sentences):\n  return 1 / 0", "mine.py, line 2: ZeroDivisionError"),
        ("def f(words): return []", r"parameters are \(words\); expected \(model, tokenizer, sentences\)"),
        ("def g(model, tokenizer, sentences): return []", "unknown function 'f'"),
        ("def f(", "mine.py, line 1: SyntaxError"),
    ],
)
def test_what_is_wrong_with_an_own_evaluator_is_said(checkpoint, asked, tmp_path, code, message):
    (tmp_path / "mine.py").write_text(code + "\n")
    with pytest.raises(EmbryoError, match=message):
        examine(checkpoint, asked, ["f"], dict(f=dict(function=f"{tmp_path}/mine.py:f")))


def test_data_that_is_not_there_is_asked_for_before_the_work(checkpoint, asked):
    with pytest.raises(EmbryoError, match="probe reads probing, and there are none"):
        examine(checkpoint, asked, ["reconstruct", "probe"])
    with pytest.raises(EmbryoError, match="examine.options: unknown evaluator 'prob'"):
        examine(checkpoint, Asked(asked.sentences, options=dict(prob={})), ["reconstruct"])
