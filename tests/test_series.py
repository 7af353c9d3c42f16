"""A checkpoint series is plain transformers, and two runs are the same bytes (killed ones: test_crash.py)."""

import subprocess
import sys
from pathlib import Path

import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer

from embryo.models.given import open_series


def test_every_step_loads_with_transformers(lab):
    "AutoModelForMaskedLM and AutoTokenizer open every step and give the logits that ours gives."
    s = open_series(Path(lab["series"]) / "albert-english-s0")
    assert s.steps == [0, 2, 4]
    for step in s.steps:
        ours, tok = s.load(step)
        auto = AutoModelForMaskedLM.from_pretrained(s.path(step)).eval()
        autotok = AutoTokenizer.from_pretrained(s.path(step))
        x = autotok("the man saw the red house .", return_tensors="pt")
        assert x["input_ids"].tolist() == tok("the man saw the red house .", return_tensors="pt")["input_ids"].tolist()
        with torch.inference_mode():
            assert torch.equal(auto(x["input_ids"]).logits, ours(x["input_ids"]).logits)


RUN = """
import sys, torch
torch.set_num_threads(1)
from embryo.pretraining.runs import pretrain_run
lab, out = sys.argv[1:3]
sizes = dict(hidden_size=32, intermediate_size=64, embedding_size=32, positions=32)
net = dict(sizes, num_hidden_layers=2, num_attention_heads=2)
training = dict(steps=60, batch=4, length=32, lr=1e-3, warmup=5, heldout_batches=2)
training |= dict(save=[[5, 30], [10, 60]], state_every=4)
pretrain_run("albert", "english", 7, lab+"/corpora", out, net, training, progress=False)
"""
weights = lambda d: {p.parent.name: p.read_bytes() for p in sorted(Path(d).rglob("model.safetensors"))}


def start(lab, out):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(Path(lab["corpora"]).parent), str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_identical_runs_identical_bytes(lab, tmp_path):
    a = start(lab, tmp_path / "a")
    b = start(lab, tmp_path / "b")
    assert a.wait() == b.wait() == 0 and weights(tmp_path / "a") == weights(tmp_path / "b")
