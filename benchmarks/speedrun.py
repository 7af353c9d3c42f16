"""A race that anyone can run: how soon does a masked language model come to a held-out loss of 3.0 nats a piece?

The English of profile `open`, vocabulary 2,000, standard masks (15%; 80% hidden, 10% random, 10% shown), windows of 32
positions; the held-out text is scored by one function for all, and the clocks stand still while it is scored. Three
run: the laboratory's recipe, AdamW with the settings that `open` had before it (`old`), and transformers' Trainer with
its defaults. All train a model of the same shape; initial width, batch, masks and rate belong to the settings, and ours
computes in bf16 where the device has it. Each has a schedule of its own, told in its line: a run that ends above the
target on a short schedule might reach it on a longer one.

    embryo_corpus english --profile open --data /path/to/data     # makes papermill_runs/open/corpora, once
    python benchmarks/speedrun.py papermill_runs/open/corpora [--who recipe old trainer] [--seeds 0] [--target 3.0]
            [--minutes 60] [--threads 2] [--layers 2] [--hidden 128] [--steps 0] [--record benchmarks/speedrun.csv]

One line a run: tokens, wall and CPU seconds until the target, or the loss at which the time was up. Wall seconds mean
something on an idle machine only; CPU seconds are those of all threads. `--record` adds the lines to a table of
records, which nbs/5_results/08_plateau/04_race.ipynb shows.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
import warnings

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
a.add_argument("corpora", help="folder with tokenizer/ and english/")
a.add_argument("--who", nargs="+", default=["recipe", "old", "trainer"], choices=["recipe", "old", "trainer"])
a.add_argument("--seeds", nargs="+", type=int, default=[0])
a.add_argument("--target", type=float, default=3.0, help="held-out loss, nats")
a.add_argument("--minutes", type=float, default=60, help="CPU minutes after which a run is given up")
a.add_argument("--threads", type=int, default=2)
a.add_argument("--layers", type=int, default=2)
a.add_argument("--hidden", type=int, default=128)
a.add_argument("--steps", type=int, default=0, help="updates of the schedule; 0: each contestant's own")
a.add_argument("--every", type=float, default=0.25, help="million tokens between two scores")
a.add_argument("--record", default="", help="table to add the lines to, .csv; empty: none")
a = a.parse_args()
os.environ["OMP_NUM_THREADS"] = str(a.threads)
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers
from datasets import Dataset

from embryo.corpora.tokens import open_ids, open_tokenizer
from embryo.ground.errors import EmbryoError
from embryo.ground.files import atomic
from embryo.ground.machine import has_bf16, provenance
from embryo.models.models import build
from embryo.pretraining.batches import examples, n_examples, training_batch
from embryo.pretraining.settings import PretrainConfig, make_optimizer
from embryo.pretraining.training.heldout import heldout_loss
from embryo.pretraining.training.run import update_once

torch.set_num_threads(a.threads)
transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore")

corpora = Path(a.corpora)
try:
    train, heldout = open_ids(corpora / "english" / "train"), open_ids(corpora / "english" / "heldout")
    tokenizer = open_tokenizer(corpora / "tokenizer")
except EmbryoError as e:
    sys.exit(
        f"speedrun.py: {e}; expected papermill_runs/open/corpora, which `embryo_corpus english --profile open --data"
        " /path/to/data` makes"
    )
NET = dict(
    hidden_size=a.hidden,
    num_hidden_layers=a.layers,
    num_attention_heads=max(1, a.hidden // 64),
    intermediate_size=4 * a.hidden,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
BF16 = has_bf16(torch.device("cpu"))  # as the loop does where the CPU has it; the Trainer's default is fp32
SCORED = PretrainConfig(batch=32, length=32, heldout_batches=60, bf16=False)  # how everybody is scored
OLD = replace(SCORED, steps=16_000, lr=1e-3, warmup=500)  # profile open before the recipe: English on 16M tokens
RECIPE = replace(  # profile plateau (LOG.md), on more tokens
    SCORED,
    steps=50_000,
    lr=2e-3,
    warmup=500,
    mask_rate=0.3,
    attention_bias="neighbours",
    bias_weight=1.0,
    start=0.2,
)
MARKS = (5.0, 4.0, 3.5)  # nats on the way: for those who do not arrive
WIDTH = dict(recipe=0.05, old=0.05, trainer=0.02)  # standard deviation of the first weights


class Clock:
    "Wall and CPU seconds that stand still while a model is scored, and the scores."

    def __init__(self):
        self.wall = self.cpu = 0.0
        self.points = []  # (tokens, loss, CPU seconds)
        self.schedule = float("nan")  # tokens until the rate is 0
        self.go_on()

    def go_on(self):
        self.began = time.perf_counter(), time.process_time()

    def score(self, model, tokens):
        "Is the race over? Scores the model."
        self.wall += time.perf_counter() - self.began[0]
        self.cpu += time.process_time() - self.began[1]
        loss = heldout_loss(model, heldout, SCORED)["heldout"]
        self.points.append((tokens, loss, self.cpu))
        print(f"  {tokens / 1e6:6.2f}M tokens {loss:.3f} nats {self.cpu:6.0f} CPU s", flush=True)
        self.go_on()
        return loss <= a.target or self.cpu > 60 * a.minutes

    def first_below(self, mark):
        "CPU seconds until a loss, NaN if it was not reached."
        return next((round(cpu) for _, loss, cpu in self.points if loss <= mark), float("nan"))


def model_of(who, seed):
    "The same model for all, but for the width of its first weights."
    return build("roberta", len(tokenizer), 64, seed=seed, initializer_range=WIDTH[who], **NET)


def ours(who, seed):
    "Train with one of our settings."
    cfg = replace(RECIPE if who == "recipe" else OLD, seed=seed)
    cfg = replace(cfg, steps=a.steps or cfg.steps)
    model = model_of(who, seed).train()
    model.set_attn_implementation("eager")  # as in the loop on a CPU
    opt = make_optimizer(model, cfg)
    each = max(1, round(a.every * 1e6 / (cfg.batch * 32)))
    clock = Clock()
    clock.schedule = cfg.steps * cfg.batch * 32
    for step in range(cfg.steps):
        update_once(model, opt, training_batch(train, cfg, step), cfg, step, step, BF16, torch.device("cpu"))
        if (step + 1) % each == 0 and clock.score(model, (step + 1) * cfg.batch * 32):
            break
    return clock


def trainer(who, seed):
    "Train with transformers' Trainer, its collator and its defaults."
    transformers.set_seed(seed)
    model = model_of(who, seed)
    rows = examples(train, np.arange(n_examples(train, 32)), 32)
    data = Dataset.from_dict(dict(input_ids=rows.astype(np.uint16)))
    quiet = dict(save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True)
    args = transformers.TrainingArguments(tempfile.mkdtemp(), use_cpu=True, seed=seed, **quiet)
    clock = Clock()
    each = max(1, round(a.every * 1e6 / (args.per_device_train_batch_size * 32)))

    class Score(transformers.TrainerCallback):
        def on_step_end(self, _, state, control, model=None, **kwargs):
            clock.schedule = state.max_steps * args.per_device_train_batch_size * 32
            if state.global_step % each == 0:
                tokens = state.global_step * args.per_device_train_batch_size * 32
                control.should_training_stop = clock.score(model, tokens)

    collate = transformers.DataCollatorForLanguageModeling(tokenizer)
    clock.go_on()
    transformers.Trainer(
        model, args, train_dataset=data, data_collator=collate, processing_class=tokenizer, callbacks=[Score()]
    ).train()
    return clock


def processor():
    "The CPU's name, where the system tells it."
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(": ")[2] for line in told.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


lines = []
for seed in a.seeds:
    for who in a.who:
        print(f"{who}, seed {seed}", flush=True)
        clock = (trainer if who == "trainer" else ours)(who, seed)
        tokens, loss, _ = clock.points[-1] if clock.points else (0, float("nan"), 0)
        schedule = round(clock.schedule / 1e6, 1)
        line = dict(who=who, seed=seed, schedule_M=schedule, reached=loss <= a.target, tokens_M=tokens / 1e6)
        line["loss"] = round(loss, 3)
        marks = {f"cpu_s_{mark:g}": clock.first_below(mark) for mark in MARKS}
        lines.append(dict(line, wall_s=round(clock.wall), cpu_s=round(clock.cpu), **marks))
where = provenance()
about = dict(
    date=date.today().isoformat(),
    revision=where["git"],
    cpu=processor(),
    threads=a.threads,
    size=f"{a.layers}x{a.hidden}",
    target=a.target,
)
made = pd.DataFrame([about | line for line in lines])
print(made.to_markdown(index=False))
if a.record:
    known = [pd.read_csv(a.record)] if Path(a.record).is_file() else []
    with atomic(Path(a.record)) as path:
        pd.concat([*known, made]).to_csv(path, index=False)
