"""Pretraining throughput: our loop against transformers' Trainer with DataCollatorForLanguageModeling, and against what
the machine can do.

Same model, data, precision, optimizer and thread count; the two alternate in one process, and the table gives
tokens/s and the ratio pair by pair. The share is that of the roofline: the seconds that the matrix products of one of
our updates take alone (each shape timed apart, in its precision, forward and both products of the backward pass; the
last layer and the head at selected positions only, as we compute them) over the seconds of the update. What is left is
everything else: softmax, GELU, LayerNorm, the loss, the optimizer, casts, and starting some thousand small operations.
Muon has products of its own, which no other optimizer needs; a second share counts them too.

    python benchmarks/pretrain.py [--rounds 3] [--steps 8] [--layers 4] [--hidden 128] [--vocab 8000] [--batch 32]
            [--length 128] [--threads 1] [--optimizer adamw] [--dropout 0.1] [--only bf16]
    python benchmarks/pretrain.py --shapes      # a table: narrow and wide, short and long, small and large vocabulary
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for k, v in dict(rounds=3, steps=8, layers=4, hidden=128, vocab=8000, batch=32, length=128, threads=1).items():
    a.add_argument(f"--{k}", type=int, default=v)
a.add_argument("--optimizer", default="adamw", choices=["adamw", "muon"], help="ours; the Trainer's is AdamW")
a.add_argument("--dropout", type=float, default=0.1)
a.add_argument("--only", default="", choices=["", "fp32", "bf16"], help="one precision; default: both")
a.add_argument("--shapes", action="store_true", help="every shape of the table, each in a process of its own")
a = a.parse_args()
os.environ["OMP_NUM_THREADS"] = str(a.threads)
SHAPES = (  # layers, hidden, vocabulary, batch, length, optimizer
    (2, 128, 2000, 32, 32, "adamw"),
    (2, 128, 2000, 32, 32, "muon"),
    (4, 128, 8000, 32, 128, "adamw"),
    (4, 256, 8000, 32, 64, "adamw"),
    (6, 512, 16000, 8, 128, "adamw"),
    (6, 512, 16000, 8, 128, "muon"),
)
LONG = 10_000  # updates of the training whose first are made: on a GPU the layers of long ones are compiled
LARGE = ((12, 768, 50000, 150, 128, "adamw"),)  # base size; where there is a GPU
if a.shapes:
    import torch

    for shape in SHAPES + LARGE * torch.cuda.is_available():
        names = ("layers", "hidden", "vocab", "batch", "length", "optimizer")
        given = [x for name, v in zip(names, shape) for x in (f"--{name}", str(v))]
        same = ["--rounds", str(a.rounds), "--steps", str(a.steps), "--threads", str(a.threads), "--dropout", "0"]
        subprocess.run([sys.executable, __file__, *given, *same], check=True)
    sys.exit()
import numpy as np
import torch
import transformers
from datasets import Dataset

from embryo.corpora.laws import check_law, unstructured
from embryo.corpora.tokens import SPECIALS
from embryo.ground.machine import device, has_bf16, provenance
from embryo.models.models import build
from embryo.pretraining.batches import examples
from embryo.pretraining.settings import PretrainConfig
from embryo.pretraining.training.loop import pretrain

torch.set_num_threads(a.threads)
dev = device()
transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore")

net = dict(
    hidden_size=a.hidden,
    num_hidden_layers=a.layers,
    num_attention_heads=max(1, a.hidden // 64),
    intermediate_size=4 * a.hidden,
    hidden_dropout_prob=a.dropout,
    attention_probs_dropout_prob=a.dropout,
)
fresh = lambda: build("roberta", a.vocab, a.length, **net)
law = 1 / torch.arange(1, a.vocab - 4).double().numpy()
corpus = unstructured(
    a.batch * a.length * (a.steps + 4) * 2, check_law(law, a.vocab - 5), a.vocab - 5, line=(a.length - 2, a.length - 2)
)
corpus.header["pack"] = "line"
rows = examples(corpus, np.arange(len(corpus)), a.length)
data = Dataset.from_dict(dict(input_ids=rows.tolist()))


def ours(bf16, steps, where):
    cfg = PretrainConfig(
        steps=LONG,
        batch=a.batch,
        length=a.length,
        lr=1e-3,
        warmup=0,
        save=[],
        state_every=10**9,
        bf16=bf16,
        optimizer=a.optimizer,
    )
    t = time.perf_counter()
    folder = Path(where) / f"ours{time.perf_counter()}"
    pretrain(corpus, None, fresh(), None, cfg, folder, progress=False, stop_after=steps)
    return time.perf_counter() - t


def theirs(bf16, steps, where, tok):
    args = transformers.TrainingArguments(
        where,
        max_steps=steps,
        per_device_train_batch_size=a.batch,
        learning_rate=1e-3,
        bf16=bf16,
        save_strategy="no",
        report_to=[],
        logging_steps=10**9,
        disable_tqdm=True,
        optim="adamw_torch_fused",
        weight_decay=0.01,
        use_cpu=not torch.cuda.is_available(),
        dataloader_num_workers=0,
    )
    t = transformers.Trainer(
        model=fresh(),
        args=args,
        train_dataset=data,
        data_collator=transformers.DataCollatorForLanguageModeling(tok, mlm_probability=0.15),
    )
    t.remove_callback(transformers.PrinterCallback)
    t0 = time.perf_counter()
    t.train()
    return time.perf_counter() - t0


def median_seconds(job, rounds=9):
    "Seconds of a job, the first time left out."

    def whole():
        job()
        if dev.type == "cuda":
            torch.cuda.synchronize()

    whole()
    taken = []
    for _ in range(rounds):
        t = time.perf_counter()
        whole()
        taken.append(time.perf_counter() - t)
    return statistics.median(taken)


def product(rows, ins, outs, kind):
    "The three products of a linear layer: forward, gradient of the input, gradient of the weights."
    x, w, g = (torch.randn(shape, device=dev).to(kind) for shape in ((rows, ins), (outs, ins), (rows, outs)))
    return lambda: (torch.nn.functional.linear(x, w), g @ w, g.t() @ x)


def attention(kind):
    "The six products of attention in one layer."
    heads = net["num_attention_heads"]
    q, k, v = (torch.randn(a.batch * heads, a.length, a.hidden // heads, device=dev).to(kind) for _ in range(3))
    p = torch.randn(a.batch * heads, a.length, a.length, device=dev).to(kind)
    return lambda: (q @ k.mT, p @ v, p @ k, p.mT @ q, q @ v.mT, p.mT @ v)


def linear_layers():
    "Shapes of the products of one update: {(rows, ins, outs): how often}."
    every = a.batch * a.length
    some = round(0.15 * every)  # selected positions
    H, V = a.hidden, a.vocab
    return {
        (every, H, H): 4 * (a.layers - 1) + 2,
        (every, H, 4 * H): a.layers - 1,
        (every, 4 * H, H): a.layers - 1,
        (some, H, H): 3,  # queries and output of the last layer, and the head's own
        (some, H, 4 * H): 1,
        (some, 4 * H, H): 1,
        (some, H, V): 1,
    }


def operations():
    "Of the products of one update, forward and backward."
    linear = sum(6 * n * rows * ins * outs for (rows, ins, outs), n in linear_layers().items())
    return linear + 12 * a.layers * a.batch * a.length**2 * a.hidden


def roofline(bf16):
    "Seconds that the products of one update take alone."
    kind = torch.bfloat16 if bf16 else torch.float32
    seconds = sum(n * median_seconds(product(*shape, kind)) for shape, n in linear_layers().items())
    return seconds + a.layers * median_seconds(attention(kind))


def iteration(rows, columns, kind):
    "The three products of an iteration of Muon for one matrix."
    x, gram = (torch.randn(rows, n, device=dev).to(kind) for n in (columns, rows))
    return lambda: (x @ x.mT, torch.addmm(gram, gram, gram), torch.addmm(x, gram, x))


def muon_seconds():
    "Seconds that the products of Muon take alone in an update, in the precision in which they are made here."
    kind = torch.bfloat16 if has_bf16(dev) else torch.float32
    square, wide = (median_seconds(iteration(a.hidden, columns, kind)) for columns in (a.hidden, 4 * a.hidden))
    return PretrainConfig().muon_steps * a.layers * (4 * square + 2 * wide)


def tokenizer():
    from tokenizers import Tokenizer, models

    vocab = {s: i for i, s in enumerate(SPECIALS)} | {f"w{i}": i for i in range(5, a.vocab)}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(vocab, unk_token="<unk>")),
        cls_token="<s>",
        pad_token="<pad>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


tok = tokenizer()
small = 2
print(
    f"roberta {a.layers} x {a.hidden}, vocabulary {a.vocab}, batch {a.batch} x {a.length}, {a.optimizer}, dropout"
    f" {a.dropout:g}, {a.threads} thread(s), {provenance()['device']}, torch {torch.__version__}"
)
print(f"{operations():.3g} operations in the matrix products of an update")
print(f"{'precision':10s} {'round':>5s} {'Trainer tok/s':>14s} {'ours tok/s':>12s} {'ratio':>6s} {'share':>6s}")
for bf16 in [False] + [True] * has_bf16():
    if a.only and a.only != ("bf16" if bf16 else "fp32"):
        continue
    ratios = []
    shares = []
    with_muon = []
    rates = []
    with tempfile.TemporaryDirectory() as where:
        # the difference of a long and a short run: set-up, first-step and final-save costs cancel
        for r in range(a.rounds + 1):
            n = a.batch * a.length * a.steps
            th = theirs(bf16, a.steps + small, where, tok) - theirs(bf16, small, where, tok)
            us = ours(bf16, a.steps + small, where) - ours(bf16, small, where)
            if r == 0:
                continue  # warm-up
            ratios.append(th / us)
            alone = roofline(bf16)
            shares.append(alone * a.steps / us)
            if a.optimizer == "muon":
                with_muon.append((alone + muon_seconds()) * a.steps / us)
            rates.append(operations() * a.steps / us / 1e12)
            told = f"{n / th:14,.0f} {n / us:12,.0f} {th / us:6.2f} {shares[-1]:6.2f}"
            print(f"{'bf16' if bf16 else 'fp32':10s} {r:5d} {told}", flush=True)
    middle = (
        f"ratio {statistics.median(ratios):.2f}, share of the roofline {statistics.median(shares):.2f}, ours"
        f" {statistics.median(rates):.3g} TFLOP/s"
    )
    if with_muon:
        middle += f", share with the products of Muon {statistics.median(with_muon):.2f}"
    print(f"{'bf16' if bf16 else 'fp32':10s} median {middle}")
