"""Fine-tuning time: our loop against transformers' text-classification recipe (run_glue.py: Trainer, every example
padded to --length, plain shuffle).

Same checkpoint, examples, batch, learning rate and schedule, weight decay, dropout, precision, passes and thread
count. The two alternate in one process; a time is that of the whole job: load the checkpoint, tokenise, train,
score the dev set. The recipe may score it in batches of 64, as we do (its own default is 8). The seed of a round
goes to both, but their orders and heads are drawn differently, so the scores agree within the noise of seeds and of
the dev set.

    python benchmarks/finetune.py [--data FOLDER] [--tasks SST-2,MRPC] [--precisions fp32,bf16] [--rounds 3]
            [--max_train 2000] [--epochs 1] [--lr 5e-4] [--batch 32] [--length 128] [--layers 4] [--hidden 256]
            [--vocab 8000] [--threads 1]

Without --data the tasks are those of a small micro world, made first.
"""

import argparse
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for k, v in dict(
    data="",
    tasks="SST-2,MRPC",
    precisions="fp32,bf16",
    rounds=3,
    max_train=2000,
    epochs=1.0,
    lr=5e-4,
    batch=32,
    length=128,
    layers=4,
    hidden=256,
    vocab=8000,
    threads=1,
).items():
    a.add_argument(f"--{k}", type=type(v), default=v)
a = a.parse_args()
os.environ["OMP_NUM_THREADS"] = str(a.threads)
import datasets
import numpy as np
import torch
import transformers

from embryo.corpora.tokens import train_tokenizer
from embryo.evaluation.tasks.batches import encode, length_batches, padding_share
from embryo.evaluation.tasks.finetune import finetune
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.scores import score_rows
from embryo.evaluation.tasks.settings import FinetuneConfig, plan
from embryo.ground.machine import device, has_bf16, provenance
from embryo.micro.world import write_world
from embryo.models.models import build

torch.set_num_threads(a.threads)
transformers.logging.set_verbosity_error()
datasets.disable_progress_bars()
datasets.disable_caching()
warnings.filterwarnings("ignore")


def ours(checkpoint, task, data, config, seed):
    rows = finetune(checkpoint, task, data, config, seed=seed)
    # a task's first metric is the one that tables print
    return rows[(rows["split"] == "dev") & (rows["group"] == "final")].iloc[0]["value"]


def theirs(checkpoint, task, data, config, seed, where):
    transformers.set_seed(seed)
    tok = transformers.AutoTokenizer.from_pretrained(checkpoint)
    net = transformers.AutoModelForSequenceClassification.from_pretrained(
        checkpoint,
        num_labels=2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        classifier_dropout=config.classifier_dropout,
    )

    def tokenised(df):
        columns = ["text1", "text2"] if df["text2"].notna().all() else ["text1"]
        d = datasets.Dataset.from_dict({c: df[c].tolist() for c in [*columns, "label"]})
        return d.map(
            lambda x: tok(
                *(x[c] for c in columns), padding="max_length", max_length=config.max_length, truncation=True
            ),
            batched=True,
        )

    train = tokenised(data["train"])
    dev = tokenised(data["dev"])
    args = transformers.TrainingArguments(
        where,
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch,
        per_device_eval_batch_size=64,
        learning_rate=config.lr,
        warmup_steps=plan(config, len(train))[2],
        weight_decay=config.weight_decay,
        max_grad_norm=config.clip,
        bf16=config.bf16,
        seed=seed,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        use_cpu=device().type == "cpu",
    )
    trainer = transformers.Trainer(
        model=net, args=args, train_dataset=train, eval_dataset=dev, data_collator=transformers.default_data_collator
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    said = trainer.predict(dev).predictions.argmax(1)
    return score_rows(task, data["dev"]["label"].to_numpy(), said)[0]["value"]


def timed(job):
    t = time.perf_counter()
    c = time.process_time()
    score = job()
    return time.perf_counter() - t, time.process_time() - c, score


with tempfile.TemporaryDirectory() as where:
    where = Path(where)
    glue = (
        Path(
            a.data
            or write_world(
                where / "data", words=6000, heldout_words=1500, books_words=1500, probing=(40, 20, 20), l1s=0.01
            )
        )
        / "glue"
    )
    tasks = {}
    for t in a.tasks.split(","):
        d = read_task(glue, t)
        tasks[t] = dict(
            train=d["train"]
            .sample(min(a.max_train or len(d["train"]), len(d["train"])), random_state=0)
            .reset_index(drop=True),
            dev=d["dev"],
        )
    tok = train_tokenizer(
        (x for d in tasks.values() for c in ("text1", "text2") for x in d["train"][c].dropna()),
        a.vocab,
        max_length=a.length,
    )
    net = build(
        "roberta",
        len(tok),
        a.length,
        hidden_size=a.hidden,
        num_hidden_layers=a.layers,
        num_attention_heads=max(1, a.hidden // 64),
        intermediate_size=4 * a.hidden,
    )
    net.save_pretrained(where / "net")
    tok.save_pretrained(where / "net")
    print(
        f"roberta {a.layers} x {a.hidden}, vocabulary {len(tok)}, untrained; batch {a.batch}, length {a.length}, lr"
        f" {a.lr:g}, {a.epochs:g} pass(es), {a.threads} thread(s), {provenance()['device']}, torch {torch.__version__},"
        f" transformers {transformers.__version__}; {'data: ' + a.data if a.data else 'micro world'}",
        flush=True,
    )
    table = []
    for t, data in tasks.items():
        lengths = np.array([len(i) for i, _ in encode(data["train"], tok, net.config, a.length)])
        for precision in a.precisions.split(","):
            if precision == "bf16" and not has_bf16():
                print("bf16: left out, this device does not compute in it")
                continue
            config = FinetuneConfig(
                lr=a.lr, batch=a.batch, epochs=a.epochs, max_length=a.length, bf16=precision == "bf16"
            )
            few = {s: d.head(2 * a.batch) for s, d in data.items()}
            got = []
            # warm-up
            ours(where / "net", t, few, config, 0)
            theirs(where / "net", t, few, config, 0, where / "out")
            for r in range(a.rounds):
                jobs = dict(
                    ours=lambda: ours(where / "net", t, data, config, r),
                    theirs=lambda: theirs(where / "net", t, data, config, r, where / "out"),
                )
                got.append({k: timed(jobs[k]) for k in (("ours", "theirs") if r % 2 else ("theirs", "ours"))})
                us = got[-1]["ours"]
                th = got[-1]["theirs"]
                print(
                    f"  {t} {precision} round {r}: ours {us[0]:.1f} s, recipe {th[0]:.1f} s, ratio {th[0] / us[0]:.2f};"
                    f" CPU time {us[1]:.1f} s, {th[1]:.1f} s, ratio {th[1] / us[1]:.2f}",
                    flush=True,
                )
            b = length_batches(lengths, a.batch)
            score = {}
            for k in ("ours", "theirs"):
                v = np.array([g[k][2] for g in got])
                score[k] = f"{v.mean():.3f} ± {v.std(ddof=1) / len(v) ** 0.5 if len(v) > 1 else np.nan:.3f}"
            ratio = [statistics.median(g["theirs"][i] / g["ours"][i] for g in got) for i in (0, 1)]
            table.append(
                (
                    t,
                    len(lengths),
                    len(data["dev"]),
                    precision,
                    *(statistics.median(g[k][0] for g in got) for k in ("ours", "theirs")),
                    *ratio,
                    *score.values(),
                    padding_share(lengths, b),
                    padding_share(lengths, b, a.length),
                )
            )
print(
    f"{'task':6s} {'train':>6s} {'dev':>5s} {'prec.':6s} {'ours s':>7s} {'recipe s':>8s} {'ratio':>6s} {'of CPU':>6s} "
    f" {'dev ours':15s} {'dev recipe':15s} {'padding ours':>12s} {'recipe':>7s}"
)
for t, n, m, p, us, th, r, c, s1, s2, p1, p2 in table:
    print(f"{t:6s} {n:6d} {m:5d} {p:6s} {us:7.1f} {th:8.1f} {r:6.2f} {c:6.2f}  {s1:15s} {s2:15s} {p1:12.1%} {p2:7.1%}")
print(
    "ratio: recipe / ours, median over rounds; of CPU: the same of CPU time, which other jobs on the machine disturb"
    " less (no measure on a GPU)"
)
print("dev: the task's main metric, mean over rounds ± its standard error over seeds")
