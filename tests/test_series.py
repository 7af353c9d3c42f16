"""A checkpoint series is plain transformers, and a killed run ends with the same bytes."""
import json, os, random, signal, subprocess, sys, time
from pathlib import Path
import pytest, torch
from transformers import AutoModelForMaskedLM, AutoTokenizer
from embryo.series import open_series

def test_every_step_loads_with_transformers(lab):
    "AutoModelForMaskedLM and AutoTokenizer open every step and give the logits that ours gives."
    s = open_series(Path(lab["series"])/"albert-english-s0")
    assert s.steps==[0, 2, 4]
    for step in s.steps:
        ours,tok = s.load(step)
        auto,autotok = AutoModelForMaskedLM.from_pretrained(s.path(step)).eval(), AutoTokenizer.from_pretrained(s.path(step))
        x = autotok("the man saw the red house .", return_tensors="pt")
        assert x["input_ids"].tolist()==tok("the man saw the red house .", return_tensors="pt")["input_ids"].tolist()
        with torch.inference_mode(): assert torch.equal(auto(x["input_ids"]).logits, ours(x["input_ids"]).logits)

RUN = """
import sys, torch
torch.set_num_threads(1)
from embryo.pretrain import pretrain_run
lab, out = sys.argv[1:3]
net = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, embedding_size=32, positions=32)
pretrain_run("albert", "english", 7, lab+"/corpora", out, net, dict(steps=60, batch=4, length=32, lr=1e-3, warmup=5, save=[[5, 30], [10, 60]], state_every=4, heldout_batches=2), progress=False)
"""
weights = lambda d: {p.parent.name: p.read_bytes() for p in sorted(Path(d).rglob("model.safetensors"))}
facts = lambda d: [{k: v for k,v in e.items() if k!="wall_s"} for e in json.loads((Path(d)/"albert-english-s7"/"series.json").read_text())["steps"]]

def start(lab, out): return subprocess.Popen([sys.executable, "-c", RUN, str(Path(lab["corpora"]).parent), str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

@pytest.mark.parametrize("how", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_killed_run_ends_with_the_same_bytes(lab, tmp_path, how):
    "Killed at random steps until it has been killed four times; the weights and losses of every step equal the uninterrupted run's."
    assert start(lab, tmp_path/"whole").wait()==0
    rng,kills,codes = random.Random(how), 0, []
    series = tmp_path/"killed"/"albert-english-s7"
    while True:
        p = start(lab, tmp_path/"killed")
        have = len(list(series.glob("step*")))
        if kills<4:                                                                      # wait for the first new checkpoint, then a random moment more
            t = time.time()
            while p.poll() is None and len(list(series.glob("step*")))<=have and time.time()-t<60: time.sleep(.005)
            time.sleep(rng.random()*.25)
        if kills<4 and p.poll() is None:
            p.send_signal(getattr(signal, how)); kills += 1
            codes.append(p.wait())
            continue
        assert p.wait()==0, p.stderr.read().decode()
        break
    assert kills>=2, "the run was over before it could be killed"
    if how=="SIGTERM": assert set(codes)<={143, 0, -15} and 143 in codes, codes         # -15: it came when training was over and the process about to leave
    assert weights(tmp_path/"killed")==weights(tmp_path/"whole") and facts(tmp_path/"killed")==facts(tmp_path/"whole")
    assert not [q for q in series.rglob(".*")], "a temporary file was left"

def test_identical_runs_identical_bytes(lab, tmp_path):
    a,b = start(lab, tmp_path/"a"), start(lab, tmp_path/"b")
    assert a.wait()==b.wait()==0 and weights(tmp_path/"a")==weights(tmp_path/"b")
