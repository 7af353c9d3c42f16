"""Pretraining throughput: our loop against transformers' Trainer with DataCollatorForLanguageModeling.

Same model, data, precision, optimizer and thread count; the two alternate in one process, and the table gives
tokens/s and the ratio pair by pair.

    python benchmarks/pretrain.py [--rounds 3] [--steps 8] [--layers 4] [--hidden 128] [--vocab 8000] [--batch 32]
            [--length 128] [--threads 1]
"""

import argparse
import os
import statistics
import tempfile
import time
import warnings
from pathlib import Path

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for k, v in dict(rounds=3, steps=8, layers=4, hidden=128, vocab=8000, batch=32, length=128, threads=1).items():
    a.add_argument(f"--{k}", type=int, default=v)
a = a.parse_args()
os.environ["OMP_NUM_THREADS"] = str(a.threads)
import numpy as np
import torch
import transformers
from datasets import Dataset

from embryo.corpora.laws import check_law, unstructured
from embryo.corpora.tokens import SPECIALS
from embryo.ground.machine import has_bf16, provenance
from embryo.models.models import build
from embryo.pretraining.batches import examples
from embryo.pretraining.settings import PretrainConfig
from embryo.pretraining.training.loop import pretrain

torch.set_num_threads(a.threads)
transformers.logging.set_verbosity_error()
warnings.filterwarnings("ignore")

net = dict(
    hidden_size=a.hidden,
    num_hidden_layers=a.layers,
    num_attention_heads=max(1, a.hidden // 64),
    intermediate_size=4 * a.hidden,
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
        steps=steps, batch=a.batch, length=a.length, lr=1e-3, warmup=0, save=[], state_every=10**9, bf16=bf16
    )
    t = time.perf_counter()
    pretrain(corpus, None, fresh(), None, cfg, Path(where) / f"ours{time.perf_counter()}", progress=False)
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
    t0 = time.perf_counter()
    t.train()
    return time.perf_counter() - t0


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
    f"roberta {a.layers} x {a.hidden}, vocabulary {a.vocab}, batch {a.batch} x {a.length}, {a.threads} thread(s),"
    f" {provenance()['device']}, torch {torch.__version__}"
)
print(f"{'precision':10s} {'round':>5s} {'Trainer tok/s':>14s} {'ours tok/s':>12s} {'ratio':>6s}")
for bf16 in [False] + [True] * has_bf16():
    ratios = []
    with tempfile.TemporaryDirectory() as where:
        # the difference of a long and a short run: set-up, first-step and final-save costs cancel
        for r in range(a.rounds + 1):
            n = a.batch * a.length * a.steps
            th = theirs(bf16, a.steps + small, where, tok) - theirs(bf16, small, where, tok)
            us = ours(bf16, a.steps + small, where) - ours(bf16, small, where)
            if r == 0:
                continue  # warm-up
            ratios.append(th / us)
            print(f"{'bf16' if bf16 else 'fp32':10s} {r:5d} {n / th:14,.0f} {n / us:12,.0f} {th / us:6.2f}", flush=True)
    print(f"{'bf16' if bf16 else 'fp32':10s} median ratio {statistics.median(ratios):.2f}")
