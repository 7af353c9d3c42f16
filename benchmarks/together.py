"""What a GPU makes of our updates: are they the same bits twice, and how many do several trainings make at once?

    python benchmarks/together.py same [--updates 60]    # ALBERT, BERT and ELECTRA: plain, in `same_bits`, and recorded
    python benchmarks/together.py many [--processes 7] [--seconds 6] [--plain]  # of a BERT; again beside an MPS daemon
            [--layers 8] [--hidden 512] [--vocab 16000] [--batch 128] [--length 128]

Of `same`: losses that two trainings from one seed have in common, the largest difference of their weights, updates a
second (the first 16, in which recordings are made, left out). `many` starts its processes, lets them warm up, and
counts the updates of all of them over the same seconds, with recorded updates or, for comparison, plain ones.
"""

import argparse
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import torch

from embryo.corpora.laws import check_law, unstructured
from embryo.ground.machine import device, has_bf16, provenance, same_bits
from embryo.models.models import build
from embryo.pretraining.batches import training_batch
from embryo.pretraining.settings import PretrainConfig, make_optimizer
from embryo.pretraining.training.recorded import Recordings
from embryo.pretraining.training.run import update_once

OBJECTIVES = dict(albert="mlm+sop", bert="mlm+nsp", electra="rtd")
WARM_UP = 16  # updates before those that are counted: the first 15 have help, and a recording of their own
IMPORTS_S = 60  # seconds in which all processes have come so far, layers compiled


class Training:
    "Updates of a fresh model on made-up text."

    def __init__(self, family, objective, a, recorded=False):
        lines = (a.length - 2, a.length - 2)
        law = check_law(1 / np.arange(1, a.vocab - 4), a.vocab - 5)
        self.corpus = unstructured(24 * a.batch * a.length, law, a.vocab - 5, line=lines)
        self.corpus.header["pack"] = "line"
        helped = dict(start=0.0025, attention_bias="neighbours")  # help for the first 15 updates
        sizes = dict(batch=a.batch, length=a.length, steps=6000, warmup=50)
        self.cfg = PretrainConfig(objective=objective, mask_rate=0.3, lr=5e-4, **sizes, **helped)
        still = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        heads = max(1, a.hidden // 64)
        net = dict(hidden_size=a.hidden, num_hidden_layers=a.layers, num_attention_heads=heads)
        net |= dict(intermediate_size=4 * a.hidden, pairs=objective in ("mlm+sop", "mlm+nsp"), **still)
        self.model = build(family, a.vocab, a.length, **net).to(device()).train()
        self.model.set_attn_implementation("sdpa" if device().type == "cuda" else "eager")
        self.opt = make_optimizer(self.model, self.cfg)
        self.recordings = Recordings(self.model, self.cfg, has_bf16()) if recorded else None
        self.done = 0

    def update(self):
        "One more; its loss."
        batch = training_batch(self.corpus, self.cfg, self.done)
        how = dict(bf16=has_bf16(), dev=device(), recordings=self.recordings)
        loss, _ = update_once(self.model, self.opt, batch, self.cfg, self.done, self.done, **how)
        self.done += 1
        return loss


def wait():
    "Until the device has done what it was given."
    if device().type == "cuda":
        torch.cuda.synchronize()


def trained(family, a, recorded):
    "Losses, weights and updates a second of one training."
    t = Training(family, OBJECTIVES[family], a, recorded)
    losses = [t.update() for _ in range(WARM_UP)]
    wait()
    begun = time.perf_counter()
    losses += [t.update() for _ in range(a.updates - WARM_UP)]
    wait()
    rate = (a.updates - WARM_UP) / (time.perf_counter() - begun)
    return torch.stack(losses).cpu(), torch.cat([p.detach().flatten() for p in t.model.parameters()]).cpu(), rate


def compare(a):
    "Every family twice: plain, in `same_bits`, and recorded in `same_bits`."
    print(f"{'':10s} {'family':8s} {'same losses':>12s} {'weights differ by':>18s} {'updates/s':>10s}")
    ways = [("plain", nullcontext), ("same_bits", lambda: same_bits(device()))]
    if device().type == "cuda":
        ways.append(("recorded", lambda: same_bits(device())))
    for name, block in ways:
        for family in OBJECTIVES:
            with block():
                one, two = (trained(family, a, name == "recorded") for _ in range(2))
            same = f"{int((one[0] == two[0]).sum())} of {a.updates}"
            print(
                f"{name:10s} {family:8s} {same:>12s} {(one[1] - two[1]).abs().max():18.2g} {two[2]:10.1f}", flush=True
            )


def count(a):
    "One of several processes: updates a second in the same seconds as the others'."
    recorded = device().type == "cuda" and not a.plain
    t = Training("bert", "mlm", a, recorded)
    with same_bits(device()):
        count_updates(t, a)


def count_updates(t, a):
    "Print the updates a second of a training, from a moment on that all processes share."
    for _ in range(WARM_UP):
        t.update()
    wait()
    if time.time() > a.at:
        sys.exit(f"together: a process warmed up {time.time() - a.at:.0f} s too late; give a larger --patience")
    time.sleep(max(0.0, a.at - time.time()))
    while time.time() < a.at + a.seconds:
        t.update()
        if t.done % 10 == 0:
            wait()
    wait()
    print((t.done - WARM_UP) / (time.time() - a.at))


def count_all(a):
    "Start the processes and add up."
    at = time.time() + a.patience
    given = [x for k, v in vars(a).items() if k not in ("what", "at", "plain") for x in (f"--{k}", str(v))]
    command = [sys.executable, __file__, "one", *given, "--at", str(at), *["--plain"] * a.plain]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(a.processes)]
    each = [float(p.communicate()[0] or "nan") for p in started]
    tokens = sum(each) * a.batch * a.length
    apart = ", ".join(f"{x:.1f}" for x in each)
    print(f"{a.processes} at once: {sum(each):.1f} updates/s, {tokens:,.0f} tokens/s ({apart})")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("what", choices=["same", "many", "one"])
    sizes = dict(layers=8, hidden=512, vocab=16_000, batch=128, length=128, updates=60, processes=7)
    for name, default in sizes.items():
        a.add_argument(f"--{name}", type=int, default=default)
    for name, default in dict(seconds=6.0, patience=IMPORTS_S, at=0.0).items():
        a.add_argument(f"--{name}", type=float, default=default)
    a.add_argument("--plain", action="store_true", help="kernel by kernel, without recordings")
    a = a.parse_args()
    torch.set_num_threads(1)
    if a.what != "one":
        shape = f"{a.layers} x {a.hidden}, vocabulary {a.vocab}, {a.batch} x {a.length}"
        print(f"{shape}, {provenance()['device']}, torch {torch.__version__}")
    dict(same=compare, many=count_all, one=count)[a.what](a)


if __name__ == "__main__":
    main()
