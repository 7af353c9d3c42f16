"""Numbers that a change of the code must not change: bytes where all machines agree, losses where they round."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from embryo.corpora.artificial import floor
from embryo.corpora.l1s import make
from embryo.corpora.tokens import open_ids, open_tokenizer
from embryo.micro.world import write_world
from embryo.pretraining.batches import l1_marks, training_batch
from embryo.pretraining.runs import pretrain_run
from embryo.pretraining.settings import PretrainConfig

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
FLOORS = ("uniform", "zipf", "nesting-zipf", "nesting-50", "flat", "flat-4", "shuffle-8", "bigram")
OBJECTIVES = dict(albert="mlm+sop", bert="mlm+nsp", electra="rtd", roberta="mlm")
L1S = ("uniform", "zipf", "nesting-uniform", "nesting-zipf", "nesting-50", "flat-4", "shuffle-8", "bigram")
NET = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, positions=64)


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def corpus_digest(ids):
    return digest(ids.ids.tobytes(), ids.offsets.tobytes())


def batch_digest(batch):
    return digest(*(b"none" if x is None else x.numpy().tobytes() for x in batch))


@pytest.fixture(scope="module")
def english(lab):
    return open_ids(Path(lab["corpora"]) / "english" / "train"), l1_marks(lab["corpora"], "english")


def test_the_micro_world(tmp_path):
    sizes = dict(words=6000, heldout_words=1500, books_words=1500, probing=(40, 20, 20), tasks=0.03, l1s=0.01)
    data = write_world(tmp_path / "data", **sizes)
    files = sorted(f for f in data.rglob("*") if f.is_file())
    assert digest(*(f.relative_to(data).as_posix().encode() + f.read_bytes() for f in files)) == GOLDEN["world"]


@pytest.mark.parametrize("name", L1S)
def test_an_artificial_l1(name, lab, tmp_path):
    shutil.copytree(lab["corpora"], tmp_path / "corpora")  # laws of frequency are counted on its English
    tok = open_tokenizer(tmp_path / "corpora" / "tokenizer")
    made = make(name, lab["data"], tmp_path / "corpora", split="train", seed=3, tokenizer=tok, n_tokens=20_000)
    assert corpus_digest(made) == GOLDEN["l1"][name]


def test_english_ids(english):
    assert corpus_digest(english[0]) == GOLDEN["l1"]["english"]


@pytest.mark.parametrize("name", FLOORS)
def test_a_floor(name):
    law = 1 / np.arange(1, 401)
    more = {} if name in ("uniform", "bigram") else dict(probs=law / law.sum())
    assert floor(name, vocab_size=400, **more)["all"] == pytest.approx(GOLDEN["floor"][name], rel=1e-9)


@pytest.mark.parametrize("masking", ("token", "word", "ngram"))
@pytest.mark.parametrize("objective", OBJECTIVES.values())
def test_a_batch(objective, masking, english):
    cfg = PretrainConfig(batch=8, length=64, objective=objective, masking=masking)
    batch = training_batch(english[0], cfg, 3, marks=english[1])
    assert batch_digest(batch) == GOLDEN["batch"][f"{objective}/{masking}"]


@pytest.mark.parametrize("family", OBJECTIVES)
def test_sixty_updates(family, lab, tmp_path):
    "Bytes of weights are those of one machine; their loss is that of any, to three digits."
    more = dict(embedding_size=32) if family in ("albert", "electra") else {}
    optimizer = "lamb" if family == "albert" else "adamw"
    training = dict(steps=60, batch=8, length=32, lr=1e-3, warmup=5, save=60, heldout_batches=2)
    training |= dict(objective=OBJECTIVES[family], optimizer=optimizer)
    s = pretrain_run(family, "english", 0, lab["corpora"], tmp_path, NET | more, training, progress=False)
    assert s.entries[60]["loss"]["heldout"] == pytest.approx(GOLDEN["loss"][family], rel=1e-3)
