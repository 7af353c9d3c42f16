"""Description length held against slow loops: one layer, one label set, one target at a time."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from embryo.corpora.tokens import open_tokenizer
from embryo.evaluation.evaluators import Asked, load_checkpoint, run_probe
from embryo.evaluation.probing.codelength import (
    PORTIONS,
    code_order,
    dev_sample,
    frequency_bits,
    online_bits,
    portion_ends,
)
from embryo.evaluation.probing.probe import probe
from embryo.evaluation.probing.probes import minibatches
from embryo.evaluation.probing.targets import TASKS, ProbeConfig, read_tasks
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import COLUMNS
from embryo.models.given import open_series

QUICK = dict(steps=60, batch=128, lr=1e-2, eval_every=10, test_batch=128)


@pytest.fixture(scope="module")
def series(lab):
    return open_series(Path(lab["series"]) / "albert-english-s0")


@pytest.fixture(scope="module")
def tok(lab):
    return open_tokenizer(Path(lab["corpora"]) / "tokenizer")


@pytest.fixture(scope="module")
def tasks(lab):
    return read_tasks(lab["data"])


def toy(n, spans=1, labels=3, noise=0.5, dims=5, layers=2):
    "Vectors of which one layer nearly gives the labels away; a second set of labels is random."
    rng = np.random.default_rng(0)
    table = torch.from_numpy(rng.normal(size=(n + 80, layers, dims))).float()
    at = np.stack([rng.permutation(n + 80) for _ in range(spans)], 1)
    gold = (table[at[:, 0], 1, :labels].numpy() + noise * rng.normal(size=(n + 80, labels))).argmax(1)
    y = np.stack([gold, rng.integers(labels, size=n + 80)], 1)
    y[n, 0] = -1  # a development label that training lacks
    cut = lambda x: dict(train=x[:n], dev=x[n:])
    return table, cut(at), cut(y), labels


def slow_bits(net, x, y, labels):
    "Bits of each label, one after the other; of an unknown one those of the uniform code."
    out = []
    for vector, label in zip(x, y):
        p = torch.softmax(net(vector).double(), -1)
        out.append(-math.log2(p[label].item()) if label >= 0 else math.log2(labels))
    return out


def slow_online(table, at, y, labels, cfg, task, seed, layer, g):
    "The online code of one layer and one label set, with torch's layer, loss, clip and Adam."
    steps = max(1, round(cfg.code_steps * cfg.steps))
    vectors = lambda rows: torch.stack([torch.cat([table[r, layer] for r in row]) for row in rows])
    x = {s: vectors(at[s]) for s in at}
    some = dev_sample(at["dev"], np.arange(len(at["dev"]))[:, None], cfg, task, seed)[1][:, 0]
    n = len(x["train"])
    net = torch.nn.Linear(x["train"].shape[1], labels)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    kept = {k: v.clone() for k, v in net.state_dict().items()}
    dev_bits = lambda: np.mean(slow_bits(net, x["dev"][some], y["dev"][some, g], labels))
    shortest = dev_bits()
    total = []
    for i, end in enumerate(e for e in dict.fromkeys(max(1, math.floor(n * p / 100)) for p in PORTIONS)):
        begin = len(total)
        if i:
            opt = torch.optim.Adam(net.parameters(), cfg.lr)
            known = begin
            batches = minibatches(known, replace(cfg, steps=steps), f"code, {task}, {known}", seed)
            for t, batch in enumerate(batches, 1):
                opt.zero_grad()
                loss = torch.nn.functional.cross_entropy(net(x["train"][batch]), torch.from_numpy(y["train"][batch, g]))
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), cfg.clip)
                opt.step()
                if t in (1, 2, 4, 8, 16, 32, 64, steps):
                    found = dev_bits()
                    if found < shortest:
                        shortest = found
                        kept = {k: v.clone() for k, v in net.state_dict().items()}
            net.load_state_dict(kept)
        total += slow_bits(net, x["train"][begin:end], y["train"][begin:end, g], labels)
    return total


@pytest.mark.parametrize("spans,labels", [(1, 3), (2, 5), (1, 2)])
def test_the_online_code_against_a_slow_loop(spans, labels):
    table, at, y, labels = toy(700, spans, labels)
    cfg = ProbeConfig(steps=300, batch=64, lr=0.03, clip=0.5)
    bits = online_bits(table, at, y, labels, cfg, "pos", 4)
    assert bits.shape == (700, 2, 2)
    for layer in range(2):
        for g in range(2):
            slow = slow_online(table, at, y, labels, cfg, "pos", 4, layer, g)
            assert bits[:, layer, g].numpy() == pytest.approx(slow, rel=2e-3, abs=2e-4)
    assert math.log2(labels) / bits[:, 1, 0].mean() > 1.3


def test_limits():
    "Random labels cannot be compressed; labels that the states give away can; a single target is not learned from."
    cfg = ProbeConfig(steps=400, batch=256, lr=0.05)
    table, at, y, labels = toy(6000, labels=4, noise=0.0)
    table = 3 * table
    gain = 2 / online_bits(table, at, y, labels, cfg).mean(0)
    assert gain[1, 0] > 10
    assert gain[0].numpy() == pytest.approx(1, abs=0.05) and gain[1, 1] == pytest.approx(1, abs=0.05)
    one = {s: v[:1] for s, v in at.items()}, {s: v[:1] for s, v in y.items()}
    assert online_bits(table, *one, labels, cfg).tolist() == [[[2.0, 2.0]] * 2]
    # no development target has a label that is known: nothing can be kept, and the code is uniform
    blind = y | dict(dev=np.full_like(y["dev"], -1))
    assert set(online_bits(table, at, blind, labels, cfg).unique().tolist()) == {2.0}


def test_portions_and_their_order():
    assert PORTIONS == (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.25, 12.5, 25, 50, 100)
    for n in (1, 2, 7, 999, 1000, 599_123):
        ends = portion_ends(n)
        assert ends[-1] == n and (np.diff([0, *ends]) > 0).all()
        assert ends == sorted({max(1, math.floor(n * p / 100)) for p in PORTIONS})
    sentence = np.random.default_rng(0).integers(0, 50, 400)
    order = code_order(sentence, "pos", 1)
    sent = sentence[order]
    assert sorted(order) == list(range(400)) and (np.diff(sent) != 0).sum() == len(set(sentence)) - 1
    assert all((np.diff(order[sent == s]) > 0).all() for s in set(sentence))
    assert (order != code_order(sentence, "pos", 2)).any() and (order != code_order(sentence, "srl", 1)).any()


def test_frequencies_against_a_loop():
    y = np.random.default_rng(3).choice(5, (331, 2), p=[0.6, 0.2, 0.1, 0.06, 0.04])
    ours = frequency_bits(y, 5)
    ends = portion_ends(331)
    for g in range(2):
        for i, label in enumerate(y[:, g]):
            known = max([e for e in ends if e <= i], default=0)
            seen = [k for k in y[:known, g] if k == label]
            assert ours[i, g] == pytest.approx(-math.log2((len(seen) + 0.5) / (known + 2.5)))


def test_rows_of_a_checkpoint(series, tok, tasks, lab):
    "One row a task, layer and group; sums by hand; the same numbers however sentences are batched."
    m, _ = series.load(4)
    cfg = ProbeConfig(**QUICK)
    r = probe(m, tok, tasks, cfg=cfg, seed=5)
    c = r[r["metric"].isin(["codelength", "compression"])]
    assert list(r) == list(COLUMNS) and set(c["split"]) == {"train"} and set(c["mode"]) == {"corrected"}
    assert len(c) == len(TASKS) * 2 * (2 * 3 + 2) and c["stderr"].gt(0).all()
    used = r.query("metric=='count' and split=='train' and group=='used'").set_index("task")["value"]
    labels = r.query("metric=='count' and split=='train' and group=='labels'").set_index("task")["value"]
    v = c.set_index(["metric", "task", "group", "layer"])["value"]
    for x in c.itertuples():
        assert x.n == used[x.task]
        if x.metric == "codelength" and x.group == "probe":
            uniform = np.log2(labels[x.task])
            assert v["compression", x.task, "probe", x.layer] == pytest.approx(uniform / x.value)
    counted = c[c["group"].str.endswith("frequencies")]
    assert set(counted["group"]) == {"frequencies", "control-frequencies"} and counted["layer"].isna().all()
    assert r.equals(probe(m, tok, tasks, cfg=cfg, seed=5))
    for other in (dict(max_tokens=150), dict(max_tokens=5000)):
        again = probe(m, tok, tasks, cfg=replace(cfg, **other), seed=5)
        again = again[again["metric"].isin(["codelength", "compression"])]
        assert again["value"].to_numpy() == pytest.approx(c["value"].to_numpy(), rel=1e-4)
    alone = probe(m, tok, {"srl": tasks["srl"]}, layers=[2], cfg=cfg, seed=5).query("metric=='codelength' and layer==2")
    assert alone.set_index("group")["value"]["probe"] == pytest.approx(v["codelength", "srl", "probe", 2], rel=1e-5)


def test_switched_off_and_on(series, tok, tasks):
    "Nothing else changes with it, the published mode has none of it, and a control only if it is asked for."
    m, _ = series.load(4)
    few = {"pos": tasks["pos"]}
    ask = lambda **kw: probe(m, tok, few, cfg=ProbeConfig(**QUICK | kw))
    on = ask()
    is_code = on["metric"].isin(["codelength", "compression"])
    assert is_code.sum() == 16
    assert ask(code_steps=0).equals(on[~is_code].reset_index(drop=True))
    assert not set(ask(mode="published")["metric"]) & {"codelength", "compression"}
    alone = ask(control=False, mode="corrected")
    assert set(alone.query("metric=='codelength'")["group"]) == {"probe", "frequencies"}
    with pytest.raises(EmbryoError, match="code_steps is -1"):
        ProbeConfig(code_steps=-1)


def test_the_evaluator_names_the_training_set(lab):
    checkpoint = load_checkpoint(open_series(Path(lab["series"]) / "albert-english-s0"), 4)
    asked = Asked(probing=dict(pos=f"{lab['data']}/probing_gum"), options=dict(probe=dict(steps=10)))
    r = run_probe(checkpoint, asked).query("metric=='codelength'")
    assert set(r["split"]) == {"probing_gum-train"} and len(r) == 8


def test_training_shortens_the_code(lab, tmp_path):
    "Some hundred updates in the micro world: the trained model's code of tags is shorter, at each layer."
    from embryo.pretraining.runs import pretrain_run

    net = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, positions=32)
    training = dict(steps=800, batch=16, length=32, lr=5e-3, warmup=30, save=800, heldout_batches=2, objective="mlm")
    easier = dict(attention_bias="neighbours", start=0.2, mask_rate=0.3)
    pretrain_run("roberta", "english", 0, lab["corpora"], tmp_path, net, training | easier, progress=False)
    series = open_series(tmp_path / "roberta-english-s0")
    tasks = read_tasks(lab["data"], ("pos",))
    cfg = ProbeConfig(**QUICK | dict(steps=300, lr=3e-3, mode="corrected"))
    gain = {}
    for step in (0, 800):
        m, tok = series.load(step)
        r = probe(m, tok, tasks, cfg=cfg).query("metric=='compression' and layer>=0")
        gain[step] = r.set_index(["group", "layer"])["value"]
    more = gain[800] / gain[0]
    assert (more["probe"] > 1.04).all()
