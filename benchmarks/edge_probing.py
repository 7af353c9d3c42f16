"""Probing time: all layers and tasks of one checkpoint in one call, against a plain loop that goes the way of the
released script.

The plain loop: for each layer, task and split one forward pass over the sentences (--plain_batch at a time; the
released extractor takes 32) that writes one file of features, a pickled list of (label, vectors); then for each
layer and task one probe, fed by a DataLoader that collates the items of that list, with torch's Adam, looked at
every --every updates and scored on test.

Ours: `embryo.probe`. Same checkpoint, sentences, batch, learning rate,
number of updates of every probe and thread count; the number of probe updates is that of (layers x tasks), and the
control task is off unless --control 1: then ours does twice the updates in the time given, and the ratio counts
time only. Initialisations and orders differ, so scores agree within noise. A time is that of the whole job.
--plain_layers: with fewer than all layers, the plain loop is timed on those and scaled, as every layer costs it the
same.

    python benchmarks/edge_probing.py [--data FOLDER] [--sentences 400] [--layers 12] [--hidden 128] [--steps 300]
            [--every 100] [--plain_batch 32] [--plain_layers 13] [--control 0] [--threads 1] [--quick 1]

Without --data the sentences are those of a micro world, made first. Dev and test have a quarter of --sentences each.
"""

import argparse
import collections
import contextlib
import os
import pickle
import resource
import tempfile
import time
from pathlib import Path

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for k, v in dict(
    data="",
    sentences=400,
    layers=12,
    hidden=128,
    vocab=2000,
    positions=128,
    steps=300,
    every=100,
    lr=1e-2,
    plain_batch=32,
    plain_layers=0,
    control=0,
    threads=1,
    quick=0,
).items():
    a.add_argument(f"--{k}", type=type(v), default=v)
a = a.parse_args()
if a.quick:
    a.sentences = 60
    a.layers = 4
    a.steps = 40
    a.every = 20
    a.plain_layers = a.plain_layers or 1
os.environ["OMP_NUM_THREADS"] = str(a.threads)
import numpy as np
import torch
import transformers

from embryo.corpora.tokens import train_tokenizer
from embryo.evaluation.probing import probe as module
from embryo.evaluation.probing.probe import probe
from embryo.evaluation.probing.targets import SPLITS, ProbeConfig, read_tasks
from embryo.ground.machine import device, provenance
from embryo.micro.world import write_world
from embryo.models.models import build

torch.set_num_threads(a.threads)


class Clock(collections.Counter):
    @contextlib.contextmanager
    def __call__(self, name):
        t = time.perf_counter()
        try:
            yield
        finally:
            self[name] += time.perf_counter() - t


def ours(model, tok, tasks, clock):
    names = dict(
        lay_out="tokens and windows",
        span_table="forward and spans",
        fit_probes="training and dev",
        probe_answers="test",
        layer_scores="rows",
    )
    held = {}

    def timed(f, name):
        def g(*args, **kw):
            with clock(name):
                return f(*args, **kw)

        return g

    for k, name in names.items():
        held[k] = getattr(module, k)
        setattr(module, k, timed(held[k], name))
    try:
        rows = probe(
            model, tok, tasks, cfg=ProbeConfig(steps=a.steps, eval_every=a.every, lr=a.lr, control=bool(a.control))
        )
    finally:
        for k, f in held.items():
            setattr(module, k, f)
    return rows


class Items(torch.utils.data.Dataset):
    def __init__(self, path):
        with open(path, "rb") as f:
            self.items = pickle.load(f)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return (self.items[i][0], *map(torch.from_numpy, self.items[i][1:]))


def extract(model, tok, sentences, layer, number, path):
    "One layer of one split of one task: features to a file."
    coded = []
    for s in sentences:
        words = [tok(w, add_special_tokens=False)["input_ids"] for w in s["tokens"]]
        ids = sum(words, [])
        if len(ids) + 2 <= a.positions:
            coded.append(
                (
                    [tok.cls_token_id, *ids, tok.sep_token_id],
                    np.repeat(np.arange(len(words)), [len(w) for w in words]),
                    s["targets"],
                )
            )
    out = []
    for i in range(0, len(coded), a.plain_batch):
        some = coded[i : i + a.plain_batch]
        width = max(len(x) for x, _, _ in some)
        ids = torch.tensor([x + [tok.pad_token_id] * (width - len(x)) for x, _, _ in some], device=device())
        with torch.no_grad():
            h = (
                model.base_model(
                    input_ids=ids,
                    attention_mask=(
                        torch.arange(width, device=device())
                        < torch.tensor([[len(x)] for x, _, _ in some], device=device())
                    ).long(),
                    output_hidden_states=True,
                )
                .hidden_states[layer]
                .cpu()
                .numpy()
            )
        for (x, of, targets), states in zip(some, h):
            for t in targets:
                vectors = [
                    np.stack([states[1 + j] for w in range(*t[k]) for j in np.where(of == w)[0]]).mean(0)
                    for k in ("span1", "span2")
                    if k in t
                ]
                out.append((number.get(t["label"], -100), *vectors))
    with open(path, "wb") as f:
        pickle.dump(out, f)


def plain(model, tok, tasks, layers, clock, where):
    "Probe after probe; mean test accuracy."
    scores = []
    for layer in layers:
        for task, splits in tasks.items():
            number = {l: i for i, l in enumerate(sorted({t["label"] for s in splits["train"] for t in s["targets"]}))}
            with clock("forward and files"):
                for s in SPLITS:
                    extract(model, tok, splits[s], layer, number, where / s)
            with clock("training and dev"):
                load = {
                    s: torch.utils.data.DataLoader(Items(where / s), batch_size=1024, shuffle=s == "train")
                    for s in SPLITS
                }
                net = torch.nn.Linear(a.hidden * (len(load["train"].dataset.items[0]) - 1), len(number)).to(device())
                opt = torch.optim.Adam(net.parameters(), a.lr)
                it = iter(load["train"])
                said = lambda x: net(torch.cat([v.to(device()) for v in x[1:]], -1))

                def right(s):
                    with torch.no_grad():
                        return sum((said(x).argmax(-1).cpu() == x[0]).sum().item() for x in load[s]) / len(
                            load[s].dataset
                        )

                for step in range(a.steps):
                    x = next(it, None)
                    if x is None:
                        it = iter(load["train"])
                        x = next(it)
                    opt.zero_grad()
                    torch.nn.functional.cross_entropy(said(x), x[0].to(device())).backward()
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
                    opt.step()
                    if step % a.every == 0:
                        right("dev")
            with clock("test"):
                scores.append(right("test"))
    return np.mean(scores)


with tempfile.TemporaryDirectory() as where:
    where = Path(where)
    data = a.data or write_world(
        where / "data",
        words=6000,
        heldout_words=1500,
        books_words=1500,
        probing=(a.sentences, max(8, a.sentences // 4), max(8, a.sentences // 4)),
        tasks=0.03,
        l1s=0.01,
    )
    tasks = {
        t: {s: x[: a.sentences if s == "train" else max(8, a.sentences // 4)] for s, x in splits.items()}
        for t, splits in read_tasks(data).items()
    }
    tok = train_tokenizer(
        (" ".join(s["tokens"]) for t in ("pos", "srl") for s in tasks[t]["train"]), a.vocab, max_length=a.positions
    )
    model = build(
        "albert",
        len(tok),
        a.positions,
        hidden_size=a.hidden,
        num_hidden_layers=a.layers,
        num_attention_heads=max(1, a.hidden // 64),
        intermediate_size=4 * a.hidden,
        embedding_size=min(128, a.hidden),
    ).to(device())
    every = list(range(a.layers + 1))
    some = every[-a.plain_layers :] if a.plain_layers else every
    print(
        f"albert {a.layers} x {a.hidden}, vocabulary {len(tok)}, untrained; {a.sentences} training sentences a task,"
        f" {len(every) * len(tasks)} probes x {a.steps} updates, a look every {a.every}, control task"
        f" {'on' if a.control else 'off'}; {a.threads} thread(s), {provenance()['device']}, torch {torch.__version__},"
        f" transformers {transformers.__version__}; {'data: given' if a.data else 'micro world'}",
        flush=True,
    )

    def sync():
        if device().type == "cuda":
            torch.cuda.synchronize()

    few = {t: {s: x[:8] for s, x in splits.items()} for t, splits in tasks.items() if t == "pos"}
    probe(model, tok, few, cfg=ProbeConfig(steps=2))
    model.eval()  # warm-up
    us = Clock()
    them = Clock()
    rows = None
    scale = len(every) / len(some)
    c = [time.process_time()]
    with us("all"):
        rows = ours(model, tok, tasks, us)
        sync()
    c.append(time.process_time())
    with them("all"):
        acc = plain(model, tok, tasks, some, them, where)
        sync()
    c.append(time.process_time())
    for k in them:
        them[k] *= scale
    full = rows.query("group=='probe' and metric=='micro_f1' and mode=='corrected'")
    full = full[full["layer"].isin(some)]["value"].mean()
    for name, k in (("ours", us), ("plain", them)):
        rest = k["all"] - sum(v for x, v in k.items() if x != "all")
        print(
            f"{name:6s} {k['all']:8.1f} s: "
            + ", ".join(f"{x} {v:.1f} s ({v / k['all']:.0%})" for x, v in k.most_common() if x != "all")
            + f", rest {rest:.1f} s"
            + ("" if name == "ours" or scale == 1 else f"; measured on {len(some)} of {len(every)} layers and scaled")
        )
    print(
        f"ratio {them['all'] / us['all']:.1f} (of CPU time, which other jobs disturb less:"
        f" {(c[2] - c[1]) * scale / (c[1] - c[0]):.1f}); forward and features"
        f" {(them['forward and files']) / (us['forward and spans'] + us['tokens and windows']):.1f}, training"
        f" {them['training and dev'] / us['training and dev']:.1f};"
        f" {len(every) * len(tasks) * a.steps * (1 + a.control) / us['training and dev']:,.0f} probe updates/s in ours,"
        f" {len(every) * len(tasks) * a.steps / them['training and dev']:,.0f} in the plain loop"
    )
    print(f"mean test accuracy of the layers that both did: ours {full:.3f}, plain {acc:.3f}")
    pool = {}
    spans = set()
    for t, splits in tasks.items():
        for s, x in splits.items():
            for y in x:
                spans |= {
                    (pool.setdefault(tuple(y["tokens"]), len(pool)), *z[k])
                    for z in y["targets"]
                    for k in ("span1", "span2")
                    if k in z
                }
    per = len(spans) / len(pool)
    print(
        f"{len(pool)} different sentences, {per:.1f} different spans each: per 1,000 sentences"
        f" {per * 1000 * len(every) * a.hidden * 4 / 2**20:,.0f} MiB of features in fp32 here,"
        f" {per * 1000 * 13 * 768 * 4 / 2**20:,.0f} MiB at 13 x 768 (half in fp16; above ram_mb in a file); peak of"
        f" this process {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:,.0f} MiB"
    )
