"""Series that others made: a folder, a list in braces, one line in a profile; everything runs on them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

from embryo.batch.plan import Plan
from embryo.corpora.tokens import open_tokenizer
from embryo.ground.errors import EmbryoError
from embryo.models.given import open_series
from embryo.models.models import build


@pytest.fixture(scope="module")
def theirs(lab, tmp_path_factory):
    "Three BERT checkpoints as somebody else would leave them: plain transformers folders, no series.json."
    root = tmp_path_factory.mktemp("theirs")
    tok = open_tokenizer(Path(lab["corpora"]) / "tokenizer")
    for k in (0, 20, 40):
        m = build(
            "bert",
            len(tok),
            64,
            seed=k,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
        )
        m.save_pretrained(root / f"bert-seed_0-step_{k}k")
        tok.save_pretrained(root / f"bert-seed_0-step_{k}k")
    return root


def test_steps_are_read_from_names(theirs):
    s = open_series(f"{theirs}/bert-seed_0-step_{{0,20,40}}k")
    assert s.steps == [0, 20_000, 40_000]
    assert not torch.equal(
        s.load(0)[0].base_model.embeddings.word_embeddings.weight,
        s.load(40_000)[0].base_model.embeddings.word_embeddings.weight,
    )


def test_the_command_asks_them_everything(run, theirs, lab, tmp_path):
    code, out, err = run(
        "embryo_examine",
        f"{theirs}/bert-seed_0-step_{{0,40}}k",
        lab["data"] + "/probing_gum/test.jsonl.gz",
        "--data",
        lab["data"],
        "--evaluators",
        "reconstruct,attention,knowledge",
        "--max_sentences",
        "10",
        "--out",
        tmp_path / "r.csv",
    )
    assert code == 0, err
    r = pd.read_csv(tmp_path / "r.csv")
    assert set(r["step"].dropna()) == {0, 40_000} and {"reconstruct", "attention", "knowledge"} <= set(r["evaluator"])


def test_one_line_in_a_profile(run, theirs, tiny, tmp_path):
    text = tiny.read_text()
    tiny.write_text(
        text[: text.index("[results.p2_table1]")]
        + f"""
[series]
multi = "{theirs}/bert-seed_0-step_{{0..40..20}}k"
[examine]
max_sentences = 10
[results.given]
template = "examine"
family = ["multi"]
step = [0, 40000]
evaluators = ["mask_predict"]
[results.tuned]
template = "finetune"
family = ["multi"]
task = ["STS-B"]
"""
    )
    p = Plan(tiny, root=tmp_path)
    assert [n for n in p.nodes if not n.startswith("world")] == [
        "examine/multi-english-s0-step0",
        "examine/multi-english-s0-step40000",
        "finetune/multi-english-s0",
        "rows/all",
    ]
    assert p.nodes["finetune/multi-english-s0"].params["step"] == 40_000
    code, out, err = run("embryo_run", "--profile", tiny, timeout=300)
    assert code == 0, err
    r = pd.read_parquet(tmp_path / "papermill_runs/tiny/runs/examine/multi-english-s0-step40000/rows.parquet")
    assert set(r["family"]) == {"multi"} and (r["evaluator"] == "mask_predict").any()
    tiny.write_text(tiny.read_text().replace("step = [0, 40000]", "step = [0, 30000]"))
    with pytest.raises(EmbryoError, match="step 30000 of multi-english is not saved; it has 0, 20000, 40000"):
        Plan(tiny, root=tmp_path)


def test_a_repeated_and_a_missing_step(theirs, tmp_path):
    shutil.copytree(theirs / "bert-seed_0-step_20k", tmp_path / "again-step_20k")
    with pytest.raises(EmbryoError, match="20000"):
        open_series([str(theirs / "bert-seed_0-step_20k"), str(tmp_path / "again-step_20k")])
    two = tmp_path / "two"
    for n in ("a-step_20k", "b-step_20k", "c-step_40k"):
        shutil.copytree(theirs / "bert-seed_0-step_20k", two / n)
    with pytest.raises(EmbryoError, match="a-step_20k and b-step_20k are both step 20000"):
        open_series(two)
    shutil.rmtree(two / "b-step_20k")
    assert open_series(two).steps == [20_000, 40_000]
    with pytest.raises(EmbryoError, match="step_30k"):
        open_series(f"{theirs}/bert-seed_0-step_{{0,30}}k").load(30_000)


def test_a_checkpoint_without_a_head_is_refused(theirs, lab, tmp_path):
    from transformers import BertModel

    d = tmp_path / "body-step_1"
    shutil.copytree(theirs / "bert-seed_0-step_20k", d)
    BertModel.from_pretrained(d).save_pretrained(d)
    with pytest.raises(EmbryoError, match="head"):
        open_series([str(d)]).load(1)
    assert open_series([str(d)]).load(1, head=False)[0].base_model.embeddings.word_embeddings.weight.shape[1] == 32


def test_another_architecture_is_named_with_its_place(theirs, tmp_path):
    d = tmp_path / "distil-5"
    shutil.copytree(theirs / "bert-seed_0-step_20k", d)
    (d / "config.json").write_text(
        (d / "config.json").read_text().replace('"model_type": "bert"', '"model_type": "distilbert"')
    )
    with pytest.raises(EmbryoError, match="distil-5: a model of type 'distilbert'"):
        open_series([str(d)]).load(5)


def test_every_series_has_its_audit():
    "In a fresh process, in which nothing but the door was imported."
    code = "from embryo.models.given import Series, open_series; print(Series.audit.__name__)"
    p = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (p.returncode, p.stdout) == (0, "audit\n"), p.stderr
