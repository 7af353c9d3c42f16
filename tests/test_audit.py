"""The audit finds what was planted, and what is read is refused before it is used. pytest -s prints the matrix."""

import json
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from test_objectives import checkpoint, hub  # noqa: F401 (a fixture: a stand-in for the hub)

from embryo.corpora.l1s import make
from embryo.corpora.tokens import open_ids, open_tokenizer, train_tokenizer
from embryo.ground.data import damaged
from embryo.ground.errors import EmbryoError
from embryo.ground.files import read_json, write_json
from embryo.ground.rows import read_rows, row_frame, write_rows
from embryo.ground.seeds import sha256
from embryo.models.audits import audit, audit_data, audit_ids, audit_run, embryo_audit
from embryo.models.given import open_series
from embryo.models.paths import explain, path_shape, read_step
from embryo.models.series import step_damage
from embryo.models.states import read_state, state_damage
from embryo.pretraining.chains import chain_run
from embryo.pretraining.runs import pretrain_run

# (thing, fault): planted, found, refused before use
MATRIX = defaultdict(lambda: [0, 0, 0])
HOW = {"flipped bit": 4, "truncated": 1, "emptied": 1, "deleted": 1}
NET = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, positions=34)
STEPS = [0, 6, 12, 18, 24, 30, 36, 42, 48]


def train(lab, out, family="roberta", seed=0, **training):
    net = dict(NET, embedding_size=16) if family in ("albert", "electra") else NET
    return pretrain_run(
        family,
        "english",
        seed,
        lab["corpora"],
        out,
        net,
        dict(
            dict(steps=48, save=6, keep_state_every=4, batch=4, length=32, lr=2e-3, warmup=6, heldout_batches=1),
            **training,
        ),
        progress=False,
    )


@pytest.fixture(scope="module")
def base(lab, tmp_path_factory):
    "A series of ours of nine steps, and one of another seed."
    root = tmp_path_factory.mktemp("base")
    yield tuple(train(lab, root / f"s{seed}", seed=seed).folder for seed in (0, 1))
    if not MATRIX:
        return
    print("\nfound and refused before use, of planted")
    # faults of files, faults of steps
    for kinds in (list(HOW), sorted({b for _, b in MATRIX} - {*HOW})):
        rows = sorted({a for a, b in MATRIX if b in kinds})
        t = pd.DataFrame(
            {
                b: {a: "{1} and {2} of {0}".format(*MATRIX[a, b]) if (a, b) in MATRIX else "" for a in rows}
                for b in kinds
            }
        )
        print("\n" + (t if kinds == list(HOW) else t.T).to_markdown())


def ours(base, to):
    shutil.copytree(base[0], to, ignore=shutil.ignore_patterns("tensorboard"))
    return to


def foreign(base, to):
    "The same as others leave it."
    shutil.copytree(base[0], to, ignore=shutil.ignore_patterns("tensorboard", "series.json", "state"))
    return to


def flip(f, rng, place=None):
    "One bit. A flip that leaves the JSON value as it was (a digit beyond a number's precision) is none."
    old = f.read_bytes()
    while True:
        new = bytearray(old)
        i = rng.randrange(len(old)) if place is None else place
        new[i] ^= 1 << rng.randrange(8)
        if f.suffix != ".json":
            break
        try:
            if json.loads(old) != json.loads(bytes(new)):
                break
        except ValueError:
            break
    f.write_bytes(bytes(new))


def harm(how, f, rng):
    if how == "flipped bit":
        flip(f, rng)
    if how == "truncated":
        f.write_bytes(f.read_bytes()[: rng.randrange(1, f.stat().st_size)])
    if how == "emptied":
        f.write_bytes(b"")
    if how == "deleted":
        f.unlink()


def put_back(f, content):
    f.write_bytes(content)


def told(found, *words):
    return any(all(w in d for w in words) for d in found.loc[found["severity"] == "fault", "detail"])


def refuses(f, name=""):
    "Does opening it end in one sentence that names the file?"
    try:
        f()
    except EmbryoError as e:
        assert name in str(e), (name, str(e))
        return True
    return False


def count(thing, fault, found, refused):
    n = MATRIX[thing, fault]
    n[0] += 1
    n[1] += bool(found)
    n[2] += bool(refused)
    return found, refused


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json"])
def test_files_of_a_step_of_ours(base, tmp_path, name):
    "Any change of any file of a step is found, named, and refused by whoever opens the step."
    rng = random.Random(name)
    d = ours(base, tmp_path / "s")
    for how, times in HOW.items():
        for _ in range(times):
            step = rng.choice(STEPS)
            f = d / f"step{step}" / name
            good = f.read_bytes()
            harm(how, f, rng)
            s = open_series(d)
            assert any(str(f) in x for x in step_damage(s.path(step), s.entries[step]))
            assert all(
                count(
                    f"step of ours: {name}",
                    how,
                    told(s.audit(), f"step{step}/{name}"),
                    refuses(lambda: s.load(step), f"step{step}"),
                )
            ), (how, step)
            put_back(f, good)
    assert open_series(d).audit().empty


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_files_of_a_foreign_step(base, tmp_path, name):
    "Without records: what cannot be read is refused, what differs from the other steps is found."
    rng = random.Random(name)
    d = foreign(base, tmp_path / "f")
    for how, times in HOW.items():
        if how == "flipped bit" and name == "model.safetensors":
            continue  # see below
        for _ in range(times):
            step = rng.choice(STEPS)
            f = d / f"step{step}" / name
            good = f.read_bytes()
            harm(how, f, rng)
            found = told(open_series(d).audit(), f"step{step}")
            refused = refuses(lambda: open_series(d).load(step))
            assert count(f"foreign step: {name}", how, found, refused)[0], (how, step)
            assert refused or how == "flipped bit", (how, step)
            put_back(f, good)
    assert open_series(d).audit().empty


def test_flipped_bits_in_foreign_weights(base, tmp_path):
    """In the header, or in the highest bits of the exponent, a flip is found; in the mantissa nothing can tell it from
    a weight."""
    rng = random.Random(0)
    d = foreign(base, tmp_path / "f")
    for where in ("header", "exponent"):
        for _ in range(4):
            step = rng.choice(STEPS)
            f = d / f"step{step}" / "model.safetensors"
            good = f.read_bytes()
            n = 8 + int.from_bytes(good[:8], "little")
            if where == "header":
                flip(f, rng, rng.randrange(8, 8 + len(good[8:n].rstrip())))
            else:
                t = load_file(f)
                k = rng.choice([k for k in t if t[k].dim() == 2])
                x = t[k].view(torch.int32).flatten()
                # a small number's highest bit
                i = rng.choice((t[k].abs().flatten() > 1e-3).nonzero().flatten().tolist())
                x[i] ^= 1 << 30
                save_file(t, f, {"format": "pt"})
            assert count(
                "foreign step: model.safetensors",
                f"flipped bit, {where}",
                told(open_series(d).audit(), f"step{step}"),
                refuses(lambda: open_series(d).load(step)),
            )[0], (where, step)
            put_back(f, good)


@pytest.mark.parametrize("name", ["series.json", "state/step48/state.safetensors", "state/step48/state.json"])
def test_index_and_state(base, tmp_path, name):
    rng = random.Random(name)
    d = ours(base, tmp_path / "s")

    # stands for a model and an optimizer
    class Takes:
        param_groups = [dict()]

        def load_state_dict(self, *a, **k):
            pass

        def state_dict(self):
            return dict(param_groups=[dict()] * 2)

    f = d / name
    good = f.read_bytes()
    assert read_state(d, Takes(), Takes())[0] == 48
    for how, times in HOW.items():
        for _ in range(2 * times):
            harm(how, f, rng)
            found = (
                next(audit(d))[2]
                if name == "series.json" or (how, times) == ("truncated", 1)
                else pd.DataFrame(dict(severity="fault", detail=state_damage(d)))
            )
            # the older state serves
            refused = (
                refuses(lambda: open_series(d), "series.json")
                if name == "series.json"
                else read_state(d, Takes(), Takes())[0] == 24
            )
            f.unlink(missing_ok=True)
            put_back(f, good)
            count(
                f"series of ours: {Path(name).name}",
                how,
                told(found, "series.json" if name == "series.json" else "state/step48"),
                refused,
            )
            assert told(found, Path(name).name) and refused, (how, found["detail"].tolist())


def rewrite(d, step, **facts):
    "Enter what a step holds now in series.json, as somebody would who wants it to pass."
    info = read_json(d / "series.json")
    for e in info["steps"]:
        if e["step"] == step:
            e.update(
                sha256=sha256(d / f"step{step}" / "model.safetensors"),
                files={f.name: sha256(f) for f in (d / f"step{step}").iterdir()},
                **facts,
            )
    write_json(d / "series.json", info)


def swap(d, a, b):
    (d / f"step{a}").rename(d / "x")
    (d / f"step{b}").rename(d / f"step{a}")
    (d / "x").rename(d / f"step{b}")


def tensors(d, step, change):
    f = d / f"step{step}" / "model.safetensors"
    t = load_file(f)
    change(t)
    save_file(t, f, {"format": "pt"})


def noise(t):
    g = torch.Generator().manual_seed(0)
    for v in t.values():
        v += 0.05 * torch.randn(v.shape, generator=g)


def nan(t):
    next(v for v in t.values() if v.dim() == 2)[3, 4] = float("nan")


def other_tokenizer(d, step):
    train_tokenizer(["a few other words"] * 9, 40).save_pretrained(d / f"step{step}")


def replace(d, step, source):
    shutil.rmtree(d / f"step{step}")
    shutil.copytree(source, d / f"step{step}")


SWAPS = [(18, 24), (0, 6), (42, 48), (12, 36), (0, 48)]


def plants(base):
    "name -> (change of a folder, steps, kind of the finding, does a record refuse it)."
    for a, b in SWAPS:
        yield "two steps swapped", (lambda d, a=a, b=b: swap(d, a, b)), (a, b), "swapped steps", True
    for a, b in ((12, 30), (42, 48), (0, 6)):
        yield (
            "one step copied over another",
            (lambda d, a=a, b=b: replace(d, b, d / f"step{a}")),
            (b,),
            "identical steps",
            True,
        )
    for k in (0, 6, 24, 42, 48):
        yield (
            "step of another seed",
            (lambda d, k=k: replace(d, k, base[1] / f"step{k}")),
            (k,),
            "off the trajectory",
            True,
        )
    for k in (6, 30, 48):
        yield "noise added to one step", (lambda d, k=k: tensors(d, k, noise)), (k,), "off the trajectory", True
    for k in (0, 36):
        yield "NaN in one tensor", (lambda d, k=k: tensors(d, k, nan)), (k,), "non-finite tensors", True
    for k in (0, 18):
        yield "tokenizer of another vocabulary", (lambda d, k=k: other_tokenizer(d, k)), (k,), "does not fit", True
    for k in (6, 24):
        yield (
            "a tensor less",
            (lambda d, k=k: tensors(d, k, lambda t: t.pop(next(n for n in t if "attention" in n)))),
            (k,),
            "tensors differ",
            True,
        )
    for k in (18,):
        yield "step dropped", (lambda d, k=k: shutil.rmtree(d / f"step{k}")), (k,), "missing", True


def test_steps_by_their_records(base, tmp_path):
    "Ours: every such fault is found by its step and refused when the step is loaded."
    for n, (fault, change, steps, _, _) in enumerate(plants(base)):
        d = ours(base, tmp_path / str(n))
        change(d)
        s = open_series(d)
        f = s.audit()
        found = set(steps) <= set(f.loc[f["severity"] == "fault", "step"].dropna())
        assert all(count("series of ours", fault, found, all(refuses(lambda: s.load(k), f"step{k}") for k in steps))), (
            fault,
            steps,
            f.values.tolist(),
        )
        if fault == "two steps swapped":
            assert told(f, f"step{steps[0]}", f"recorded for step {steps[1]}") and told(
                f, f"step{steps[1]}", f"recorded for step {steps[0]}"
            )


@pytest.mark.parametrize("who", ["a series of ours with its entries changed, too", "a foreign series"])
def test_steps_by_their_geometry(base, tmp_path, who):
    "Where no record helps, the shape of the path does; nothing else is accused."
    for n, (fault, change, steps, kind, _) in enumerate(plants(base)):
        mine = who.startswith("a series of ours")
        d = ours(base, tmp_path / str(n)) if mine else foreign(base, tmp_path / str(n))
        change(d)
        if mine and fault == "step dropped":
            info = read_json(d / "series.json")
            info["steps"] = [e for e in info["steps"] if e["step"] not in steps]
            write_json(d / "series.json", info)
        elif mine:
            for k in steps:
                rewrite(d, k)
        s = open_series(d)
        f = s.audit()
        named = f[f["kind"].str.startswith(kind)]
        if fault == "step dropped" and not mine:
            found = (f["kind"] == "missing step").any() and "between steps 12 and 24" in f["detail"].iloc[0]
        elif fault == "one step copied over another":
            found = set(named["step"]) & {*steps, 12, 42, 0}
        else:
            found = set(named["step"]) == set(steps)
        count(who, fault, found, all(refuses(lambda: s.load(k)) for k in steps))
        assert found, (fault, steps, f.values.tolist())
        innocent = set(f.loc[f["severity"] == "fault", "step"].dropna()) - set(steps)
        assert not innocent or fault == "one step copied over another", (fault, steps, f.values.tolist())


def test_swapped_entries(base, tmp_path):
    """Two entries of series.json that changed their step: records agree with the files' places, and tokens run
    backwards."""
    d = ours(base, tmp_path / "s")
    swap(d, 12, 30)
    info = read_json(d / "series.json")
    for e in info["steps"]:
        e["step"] = {12: 30, 30: 12}.get(e["step"], e["step"])
    write_json(d / "series.json", info)
    f = open_series(d).audit()
    assert told(f, "tokens falls") and {12, 30} <= set(f.loc[f["kind"] == "swapped steps", "step"])
    count("series of ours", "two steps and their entries swapped", True, False)


SCHEDULES = dict(
    even=dict(steps=48, save=6),
    dense=dict(steps=60, save=[[4, 12], [16, 60]]),
    log=dict(steps=64, save={"log": 7}),
    few=dict(steps=30, save={"at": [1, 4]}),
)


@pytest.mark.parametrize(
    "family,schedule",
    [("albert", "log"), ("bert", "dense"), ("electra", "even"), ("roberta", "few"), ("albert", "even")],
)
def test_healthy_series_have_no_faults(lab, tmp_path, family, schedule):
    s = train(lab, tmp_path, family, seed=3, **SCHEDULES[schedule])
    assert s.audit().empty
    for x in ("state", "tensorboard", "series.json"):
        shutil.rmtree(s.folder / x) if (s.folder / x).is_dir() else (s.folder / x).unlink(missing_ok=True)
    assert open_series(s.folder).audit().empty


# ---- chains of stages ----

STAY = dict(save=6, batch=4, length=32, lr=2e-3, warmup=6, heldout_batches=1)
DENSE = [0, 6, 12, 18, 24, 30, 36, 42, 48, 54, 60, 66, 72]  # the border is at 24
ARMS = ["", "body-only", "embeddings-only", "shuffled", "substitute", "layer-norm-only"]


@pytest.fixture(scope="module")
def corpora(lab, tmp_path_factory):
    "Two L1s."
    out = tmp_path_factory.mktemp("corpora") / "c"
    shutil.copytree(lab["corpora"], out)
    for split in ("train", "heldout"):
        make(
            "nesting-zipf",
            lab["data"],
            out,
            split=split,
            tokenizer=open_tokenizer(out / "tokenizer"),
            n_tokens=8000,
            heldout_tokens=800,
            line=[30, 30],
        )
    return out


def train_chain(corpora, out, arm="", seed=0, l1="nesting-zipf:3.1k{},english:6.2k", **training):
    l1 = l1.format(f"+{arm}" if arm else "")
    return chain_run(
        "roberta", l1, seed, corpora, out, NET, [dict(STAY, **training)] * (l1.count(",") + 1), progress=False
    )


@pytest.fixture(scope="module")
def chains(corpora, tmp_path_factory):
    "Dense series of a chain without and with a transplant, two seeds of each."
    out = tmp_path_factory.mktemp("chains")
    return {(arm, seed): train_chain(corpora, out, arm, seed).folder for arm in ("", "body-only") for seed in (0, 1)}


def faults(f):
    return f[f["severity"] == "fault"]


@pytest.mark.parametrize("arm", ARMS)
def test_healthy_chains_have_no_faults(corpora, tmp_path, arm):
    """A border is where it was planned, and a transplant at it is no fault; with few steps it is said that little can
    be told."""
    s = train_chain(corpora, tmp_path, arm)
    assert s.steps == DENSE and s.audit().empty
    few = train_chain(corpora, tmp_path / "few", arm, save=[], curve_every=4)
    f = few.audit()
    assert (
        few.steps == [0, 24, 72]
        and faults(f).empty
        and set(f["kind"]) <= {"too few steps to tell"}
        and len(f) == 2 * bool(arm)
    )


SETTINGS = dict(
    states_kept=dict(keep_state_every=2, state_every=5),
    curve=dict(curve_every=4),
    carried=dict(moments="carried"),
    uneven=dict(save=[[2, 6], [6, 24], [24, 48]]),
    log=dict(save={"log": 5}),
)


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_a_chain_make_no_faults(corpora, tmp_path, name):
    assert faults(train_chain(corpora, tmp_path, "body-only", **SETTINGS[name]).audit()).empty


def test_chains_that_begin_alike_have_no_faults(corpora, tmp_path):
    "The first stays are copied with their record; so is a chain of three with two transplants."
    start = train_chain(corpora, tmp_path, l1="nesting-zipf:3.1k")
    two = train_chain(corpora, tmp_path, "body-only")
    # seconds, too: it was not trained again
    assert start.entries == {k: two.entries[k] for k in start.steps}
    three = train_chain(corpora, tmp_path, l1="nesting-zipf:3.1k+shuffled,english:3.1k+body-only,nesting-zipf:3.1k")
    for s in (start, two, three):
        assert s.audit().empty
    # states need not be kept
    shutil.rmtree(two.folder / "state")
    assert open_series(two.folder).audit().empty


def test_a_chain_that_was_stopped(corpora, tmp_path):
    "It is said where it ends and where it was to end: in steps of the whole chain."
    s = train_chain(corpora, tmp_path, l1="nesting-zipf:3.1k+body-only,english:6.2k")
    info = read_json(s.folder / "series.json")
    info["steps"] = [e for e in info["steps"] if e["step"] < 72]
    write_json(s.folder / "series.json", info)
    shutil.rmtree(s.path(72))
    f = open_series(s.folder).audit()
    assert faults(f).empty and "ends at step 66 of 72" in f["detail"].iloc[0]


@pytest.mark.parametrize("arm", ["", "body-only"])
def test_faults_of_a_chain_by_their_records(chains, tmp_path, arm):
    fresh = (tmp_path / str(n) for n in range(99))

    def hurt(change):
        d = shutil.copytree(chains[arm, 0], next(fresh), ignore=shutil.ignore_patterns("tensorboard"))
        change(d)
        return d, faults(open_series(d).audit())

    # a border, one behind it, the last
    for k in (24, 42, 72):
        _, f = hurt(lambda d: shutil.rmtree(d / f"step{k}"))
        assert count("chain", "step dropped", list(f["step"]) == [k], True)[0], f.values.tolist()

    def unlist(d):
        info = read_json(d / "series.json")
        info["steps"] = [e for e in info["steps"] if e["step"] not in (24, 60)]
        write_json(d / "series.json", info)

    assert list(hurt(unlist)[1]["step"]) == [24, 60]
    # before the border, behind it, across it, and its two sides
    for a, b in ((6, 18), (36, 60), (18, 48), (24, 30)):
        d, f = hurt(lambda d: swap(d, a, b))
        assert count(
            "chain",
            "two steps swapped",
            set(f.loc[f["kind"] == "swapped steps", "step"]) == {a, b} == set(f["step"]),
            refuses(lambda: open_series(d).load(a)),
        )[0], f.values.tolist()
    for k in (0, 24, 30, 72):
        d, f = hurt(lambda d: replace(d, k, chains[arm, 1] / f"step{k}"))
        assert count("chain", "step of another seed", k in set(f["step"]), refuses(lambda: open_series(d).load(k)))[0]


@pytest.mark.parametrize("arm", ["", "body-only"])
def test_faults_of_a_chain_by_their_geometry(chains, tmp_path, arm):
    "The record was rewritten, too: the path on either side of a transplant tells, and nothing else is accused."
    plants = [
        ((a, b), lambda d, a=a, b=b: swap(d, a, b))
        for a, b in ((6, 18), (12, 18), (36, 60), (42, 48), (66, 72), (18, 48), (12, 60), (24, 30))
    ]
    plants += [((k,), lambda d, k=k: replace(d, k, chains[arm, 1] / f"step{k}")) for k in (0, 12, 24, 30, 48, 72)]
    for n, (steps, change) in enumerate(plants):
        d = shutil.copytree(chains[arm, 0], tmp_path / str(n), ignore=shutil.ignore_patterns("tensorboard"))
        change(d)
        for k in steps:
            rewrite(d, k)
        f = open_series(d).audit()
        named = set(f.loc[f["kind"].isin(["swapped steps", "off the trajectory"]), "step"].dropna())
        # the two sides of a jump: what lies behind it has one neighbour only
        found = {24} if arm and steps == (24, 30) else set(steps)
        assert count(
            "chain with its entries changed, too",
            "two steps swapped" if steps[1:] else "step of another seed",
            named == found,
            False,
        )[0], (steps, f.values.tolist())


def test_a_step_that_was_made_again(base, lab, tmp_path, monkeypatch):
    "On a slower machine it took longer than those behind it; its seconds say nothing about its place."
    from embryo.pretraining.training import run

    class Slow:
        perf_counter = staticmethod(lambda clock=run.time.perf_counter: 1000 * clock())
        process_time = run.time.process_time

    d = ours(base, tmp_path / "roberta-english-s0")
    shutil.rmtree(d / "step6")
    monkeypatch.setattr(run, "time", Slow)
    s = train(lab, tmp_path)
    assert s.steps == STEPS and s.entries[6]["wall_s"] > s.entries[12]["wall_s"] and s.audit().empty


def test_too_few_steps_is_said(lab, tmp_path):
    s = train(lab, tmp_path, steps=2, save=2)
    assert list(s.audit()["kind"]) == ["too few steps to tell"] and list(s.audit()["severity"]) == ["warning"]


def test_what_a_killed_run_leaves(base, tmp_path):
    d = ours(base, tmp_path / "s")
    (d / ".step54.tmp999999").mkdir()
    shutil.copytree(d / "step6", d / "step7")
    (d / "step6" / "added_tokens.json").write_text("{}")
    f = open_series(d).audit()
    assert set(f["severity"]) == {"warning", "fault"} and all(
        any(w in x for x in f["detail"]) for w in (".step54.tmp999999", "step7", "step6/added_tokens.json")
    )


def test_distances_against_a_loop(base):
    "The sampled geometry is that of all weights."
    s = open_series(base[0])
    x = [read_step(s.path(k)) for k in s.steps]
    D2, L = path_shape(np.stack([i["sample"] for i in x]), np.stack([i["centred"] for i in x]))
    w = [load_file(s.path(k) / "model.safetensors") for k in s.steps]
    for i in (0, 3, 8):
        for j in (1, 5):
            d = sum(((w[i][n].double() - w[j][n].double()) ** 2).sum() for n in w[i])
            assert abs(D2[i, j] / float(d) - 1) < 1e-4
            a, b = (np.concatenate([(w[k][n] - w[k][n].mean()).flatten().numpy() for n in w[k]]) for k in (i, j))
            assert abs(L[i, j] - float(a @ b / np.sqrt((a @ a) * (b @ b)))) < 1e-4


def test_order_of_a_random_walk():
    "Random walks and straight paths of any length are left alone; every swap in them is found."
    rng = np.random.default_rng(1)
    for K in (4, 5, 9, 20):
        X = (
            rng.normal(size=4000) * 20
            + rng.normal(size=(K, 4000)).cumsum(0)
            + np.arange(K)[:, None] * rng.normal(size=4000) * 0.3
        ).astype(np.float32)
        assert explain(*path_shape(X, X), list(range(K))) == []
        for _ in range(10):
            i, j = sorted(rng.choice(K, 2, replace=False))
            order = list(range(K))
            order[i], order[j] = j, i
            ((kind, p, why),) = explain(*path_shape(X[order], X[order]), list(range(K)))
            assert kind == "swapped steps" and (
                p == (i, j) or K < 6 and f"or {i} and {j} (the same path backwards)" in why
            ), (K, i, j)


def before_a_batch(d):
    "A batch does not begin on damaged data."
    if bad := damaged(d):
        raise EmbryoError(bad[0])


@pytest.fixture(scope="module")
def written(lab, tmp_path_factory):
    "Ids, a data folder and a run, as they are written."
    root = tmp_path_factory.mktemp("written")
    shutil.copytree(Path(lab["corpora"]) / "english" / "heldout", root / "ids")
    shutil.copytree(lab["data"], root / "data")
    df = row_frame(
        [dict(step=i, value=i / 7, n=9, stderr=0.01) for i in range(200)],
        family="albert",
        evaluator="x",
        task="t",
        metric="m",
    )
    write_rows(df, root / "run" / "rows.parquet")
    write_json(
        root / "run" / "run.json",
        dict(name="x/y", key="k", files={"runs/x/y/rows.parquet": sha256(root / "run" / "rows.parquet")}),
    )
    return root


@pytest.mark.parametrize(
    "what,name,look,use",
    [
        ("ids", "ids.bin", audit_ids, open_ids),
        ("ids", "offsets.bin", audit_ids, open_ids),
        ("ids", "header.json", audit_ids, open_ids),
        ("data", "MANIFEST.json", audit_data, before_a_batch),
        ("data", "glue/RTE/train.tsv.gz", audit_data, before_a_batch),
        ("run", "rows.parquet", audit_run, lambda d: read_rows(d / "rows.parquet")),
        ("run", "run.json", audit_run, lambda d: read_json(d / "run.json")),
    ],
)
def test_everything_else(written, tmp_path, what, name, look, use):
    rng = random.Random(name)
    d = tmp_path / what
    shutil.copytree(written / what, d)
    assert look(d).empty, look(d)["detail"].tolist()
    f = d / name
    if not f.is_file():
        f = next(d.rglob(Path(name).name.split(".")[0] + ".*"))
        name = f.name
    good = f.read_bytes()
    rows = read_rows(f) if name == "rows.parquet" else None
    for how, times in HOW.items():
        for _ in range(2 * times):
            harm(how, f, rng)
            found = look(d)
            refused = refuses(lambda: use(d), f.name)
            harmed = told(found, f.name) or how == "deleted" and found["detail"].str.contains(f.name).any()
            # the bit was in what holds no value: padding, statistics, the seal's own name
            same = name == "rows.parquet" and not refused and read_rows(f).equals(rows)
            put_back(f, good)
            count(f"{what}: {f.name}", how, harmed, refused or same)
            assert harmed, (how, found["detail"].tolist())
            assert refused or same or (how, name) in (("deleted", "MANIFEST.json"),), (how, name)


def test_a_seal_under_another_name(base, written, tmp_path):
    """A flip in the word `seal` itself harms no number, but takes the protection away: the index refuses, elsewhere it
    is a warning."""
    d = ours(base, tmp_path / "s")
    shutil.copytree(written / "ids", tmp_path / "ids")
    for f, look in ((d / "series.json", None), (tmp_path / "ids" / "header.json", audit_ids)):
        good = f.read_bytes()
        at = good.index(b'"seal"') + 1
        for k in range(4):
            flip(f, random.Random(k), at + k)
            if look is None:
                assert refuses(lambda: open_series(d), "series.json")
            else:
                assert len(look(f.parent)), f.read_text()[-200:]
            put_back(f, good)


def test_hub_and_a_damaged_cache(hub, tmp_path):  # noqa: F811 (the fixture)
    "Checkpoints on the hub are fetched and looked at; a file of the cache that is not what its name says is named."
    for k in (0, 20, 40):
        checkpoint(hub.root / f"google/multiberts-seed_0-step_{k}k/main", 0)
    ((kind, place, f),) = audit("google/multiberts-seed_0-step_{0,20,40}k")
    assert kind == "series" and {20_000, 40_000} == set(f.loc[f["kind"] == "identical steps", "step"])
    ((_, _, f),) = audit("google/multiberts-seed_0-step_20k")
    assert list(f["kind"]) == ["too few steps to tell"]
    d = tmp_path / "cache" / "step10"
    d.mkdir(parents=True)
    checkpoint(tmp_path / "plain", 0)
    for x in (tmp_path / "plain").iterdir():
        x.rename(b := tmp_path / sha256(x))
        (d / x.name).symlink_to(b)
    assert not (open_series([str(d)]).audit()["severity"] == "fault").any()
    flip((d / "model.safetensors").resolve(), random.Random(1), -40)
    assert told(open_series([str(d)]).audit(), "model.safetensors", "not what the hub sent")


def test_the_command(base, lab, tmp_path, capsys):
    "A whole folder in one go: a line for each thing, a table, and the exit code."
    whole = tmp_path / "papermill_runs" / "tiny"
    d = ours(base, whole / "series" / "roberta-english-s0")
    for name in ("tokenizer", "english"):  # other tests may have made more L1s
        shutil.copytree(Path(lab["corpora"]) / name, whole / "corpora" / name)
    shutil.copytree(lab["data"], whole / "data")

    def command(*args):  # Exit code and what it printed
        capsys.readouterr()
        with pytest.raises(SystemExit) if args[0] != [str(whole)] or hurt else nullcontext() as e:
            embryo_audit(*args)
        return e.value.code if e else 0, *capsys.readouterr()

    hurt = False
    code, out, err = command([str(whole)])
    assert code == 0 and out.splitlines()[-1] == "0 faults, 0 warnings in 5 things looked at", (out, err)
    hurt = True
    swap(d, 12, 30)
    flip(whole / "corpora" / "english" / "train" / "ids.bin", random.Random(0))
    assert command([str(whole)])[0] == 1
    code, out, err = command([str(tmp_path / "nothing")])
    assert code == 2 and "no such series" in err
    (tmp_path / "run.py").write_text(
        "from embryo.models.audits import embryo_audit\nif __name__=='__main__': embryo_audit()\n"
    )
    p = subprocess.run(
        [
            sys.executable,
            str(tmp_path / "run.py"),
            str(whole / "corpora"),
            str(d),
            "--out",
            str(tmp_path / "found.csv"),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (
        p.returncode == 1
        and "faults, 0 warnings in 4 things looked at" in p.stdout.splitlines()[-1]
        and "Traceback" not in p.stderr
    ), (p.stdout, p.stderr)
    t = pd.read_csv(tmp_path / "found.csv")
    assert set(t.loc[t["kind"] == "swapped steps", "step"]) == {12, 30} and t["detail"].str.contains("ids.bin").any()
