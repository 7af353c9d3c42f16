"""Pretraining throughput of several processes that train one run, against one process.

Same model, data, global batch and precision; every process has --threads threads of its own, so the ratio is what a
second core (or GPU) is worth. Each round starts one process, then several; the table gives tokens/s of the whole run
and the ratio round by round, the share of an update that goes into adding up the gradients (waiting for the slower
process included), and `work`: the processor seconds of all processes over those of one, which tells on a busy machine,
too, what is done twice.

    python benchmarks/processes.py [--processes 2] [--rounds 3] [--steps 8] [--layers 4] [--hidden 128] [--vocab 8000]
            [--batch 32] [--length 128] [--threads 1]
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
sizes = dict(processes=2, rounds=3, steps=8, layers=4, hidden=128, vocab=8000, batch=32, length=128, threads=1)
for k, v in sizes.items():
    a.add_argument(f"--{k}", type=int, default=v)
a.add_argument("--child", default="", help=argparse.SUPPRESS)  # file for what was measured
a = a.parse_args()
os.environ["OMP_NUM_THREADS"] = str(a.threads)
import torch

from embryo.ground.machine import device, has_bf16, provenance
from embryo.pretraining.training.processes import processes, start_processes


def train(steps, where, bf16):
    "(seconds, processor seconds of the updates in all processes) of a run, from nothing to its last checkpoint."
    from embryo.corpora.laws import check_law, unstructured
    from embryo.models.models import build
    from embryo.pretraining.settings import PretrainConfig
    from embryo.pretraining.training.loop import pretrain

    net = dict(hidden_size=a.hidden, num_hidden_layers=a.layers, num_attention_heads=max(1, a.hidden // 64))
    model = build("roberta", a.vocab, a.length, intermediate_size=4 * a.hidden, **net)
    law = check_law(1 / torch.arange(1, a.vocab - 4).double().numpy(), a.vocab - 5)
    lines = (a.length - 2, a.length - 2)
    corpus = unstructured(a.batch * a.length * (a.steps + 4) * 2, law, a.vocab - 5, line=lines)
    corpus.header["pack"] = "line"
    quiet = dict(warmup=0, save=[], state_every=10**9)
    cfg = PretrainConfig(steps=steps, batch=a.batch, length=a.length, lr=1e-3, bf16=bf16, **quiet)
    begun = time.perf_counter()
    made = pretrain(corpus, None, model, None, cfg, where, progress=False)
    return time.perf_counter() - begun, made.entries[steps]["cpu_s"]


def measure():
    "In one of the processes: tokens/s, share of adding up and processor seconds, for each precision."
    from embryo.pretraining.training import run

    torch.set_num_threads(a.threads)
    adding = [0.0]
    add_up = run.add_up

    def timed(*args):
        begun = time.perf_counter()
        added = add_up(*args)
        adding[0] += time.perf_counter() - begun
        return added

    run.add_up = timed
    few = 2
    found = {}
    for bf16 in [False] + [True] * has_bf16():
        train(few, f"{a.child}-{bf16}-warm", bf16)
        # the difference of a long and a short run: set-up and saving cancel
        short, short_cpu = train(few, f"{a.child}-{bf16}-short", bf16)
        adding[0] = 0.0
        long, long_cpu = train(a.steps + few, f"{a.child}-{bf16}-long", bf16)
        seconds = long - short
        adds = adding[0] * a.steps / (a.steps + few) / seconds
        found["bf16" if bf16 else "fp32"] = [a.batch * a.length * a.steps / seconds, adds, long_cpu - short_cpu]
    if processes().leads:
        Path(a.child).write_text(json.dumps(found))


def in_processes(n, where):
    "What `measure` finds in n processes."
    out = Path(where) / f"{n}-{time.perf_counter()}"
    code = start_processes(n, [sys.executable, *sys.argv, "--child", str(out)])
    return json.loads(out.read_text()) if not code else sys.exit(code)


if a.child:
    measure()
    sys.exit()
print(
    f"roberta {a.layers} x {a.hidden}, vocabulary {a.vocab}, batch {a.batch} x {a.length}, {a.threads} thread(s) a"
    f" process, {os.cpu_count()} cores, {provenance()['device']}, {'nccl' if device().type == 'cuda' else 'gloo'},"
    f" torch {torch.__version__}"
)
several = f"{a.processes} tok/s"
print(f"{'precision':10s} {'round':>5s} {'1 tok/s':>12s} {several:>12s} {'ratio':>6s} {'adding up':>10s} {'work':>6s}")
ratios = {}
with tempfile.TemporaryDirectory() as where:
    for r in range(a.rounds):
        one = in_processes(1, where)
        more = in_processes(a.processes, where)
        for precision, (speed, adding, cpu) in more.items():
            alone, _, alone_cpu = one[precision]
            ratios.setdefault(precision, []).append(speed / alone)
            print(
                f"{precision:10s} {r + 1:5d} {alone:12,.0f} {speed:12,.0f} {speed / alone:6.2f} {adding:10.1%}"
                f" {cpu / alone_cpu:6.2f}",
                flush=True,
            )
for precision, found in ratios.items():
    print(f"{precision:10s} median ratio {statistics.median(found):.2f} of {a.processes}")
