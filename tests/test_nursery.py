"""Chains of L1s: borders, budgets, what chains share, and what the batch makes of a line in a profile."""

import re
import shutil
import tomllib
from dataclasses import replace

import crash
import numpy as np
import pandas as pd
import pytest
from committed import committed
from conftest import ROOT
from safetensors.torch import load_file

from embryo.batch.plan import Plan
from embryo.corpora.laws import unstructured
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import read_rows, row_frame
from embryo.models.given import open_series
from embryo.models.models import build
from embryo.pretraining.batches import training_batch
from embryo.pretraining.settings import PretrainConfig
from embryo.pretraining.training.loop import Stage, pretrain, pretrain_stages
from embryo.results.nursery.curves import at_best, best_settings, half_width, nursery_curves
from embryo.results.nursery.drawings import FEWEST, beside_fewest, fewest_alone, mean_curves, plot_nursery
from embryo.results.nursery.growth import in_shared_settings
from embryo.results.nursery.plateau import leaves_plateau, plateau_rows
from embryo.results.nursery.savings import (
    BELOW,
    at_equal_flops,
    difference,
    efficiency,
    savings,
    tokens_to,
)
from embryo.results.nursery.tables import table_end, table_savings
from embryo.results.nursery.tasks import table_tasks, task_changes, task_scores, trivial_seeds

SMALL = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
VARIANTS = """
[variants.wide]
model = {hidden_size = 64}
[variants.slow]
pretrain = {lr = 1e-4}
[results.chains]
template = "chain"
l1 = [%s]
seed = [0]
"""


@pytest.fixture
def profile(tmp_path):
    def f(*chains):
        (tmp_path / "p.toml").write_text('profile = "p"' + crash.SIZES + VARIANTS % ", ".join(map(repr, chains)))
        (tmp_path / "klingon.txt").write_text(crash.KLINGON)
        return tmp_path / "p.toml"

    return f


def ids(seed, probs=None):
    pair = [
        unstructured(n, vocab_size=20, probs=probs, line=(30, 30), seed=seed + k) for k, n in enumerate((20_000, 2000))
    ]
    for c in pair:
        c.header["pack"] = "line"
    return pair


def net(**kw):
    return build("roberta", 25, 32, **SMALL, **kw)


def facts(s):
    return [(e["step"], e["sha256"], e["loss"], e["tokens"]) for e in s.entries.values()], [
        {k: v for k, v in point.items() if k != "cpu_s"} for point in s.info.get("curve", [])
    ]


CFG = PretrainConfig(
    steps=12, batch=4, length=32, lr=5e-3, warmup=3, save=6, curve_every=4, state_every=1, heldout_batches=2, bf16=False
)


@pytest.mark.parametrize(
    "optimizer,moments,dropout",
    [("adamw", "fresh", 0.1), ("adamw", "carried", 0.0), ("lamb", "fresh", 0.0), ("lamb", "carried", 0.1)],
)
def test_borders_resume_bit_for_bit(tmp_path, optimizer, moments, dropout):
    "Stopped before, at and behind each border of three stages; the last begins with half of the model drawn anew."

    def forget(model):
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            torch.nn.init.normal_(model.get_input_embeddings().weight)
        return model

    new = lambda: net(hidden_dropout_prob=dropout)
    stages = [
        Stage(*ids(1), replace(CFG, optimizer=optimizer), "a"),
        Stage(*ids(2, 1 / np.arange(1, 21)), replace(CFG, optimizer=optimizer, moments=moments), "b"),
        Stage(*ids(3), replace(CFG, optimizer=optimizer, moments=moments, lr=1e-3), "c", arm="forget", enter=forget),
    ]
    whole = pretrain_stages(stages, new(), None, tmp_path / "whole", progress=False)
    assert whole.steps == [0, 6, 12, 18, 24, 30, 36]
    # all stops where moments are carried and something is drawn anew; else the two borders
    for k in (11, 12, 13, 24, 25) if moments == "carried" and dropout else (12, 24):
        pretrain_stages(stages, new(), None, tmp_path / f"k{k}", progress=False, stop_after=k)
        assert facts(pretrain_stages(stages, new(), None, tmp_path / f"k{k}", progress=False)) == facts(whole), k
    first = pretrain_stages(stages[:2], new(), None, tmp_path / "first", progress=False)
    grown = pretrain_stages(stages, new(), None, tmp_path / "grown", progress=False, start=first)
    assert facts(grown) == facts(whole)
    for step, name in ((30, "damaged"), (18, "damaged before the border")):
        w = tmp_path / "grown" / f"step{step}" / "model.safetensors"
        b = bytearray(w.read_bytes())
        b[-9] ^= 1
        w.write_bytes(b)
        assert facts(pretrain_stages(stages, new(), None, tmp_path / "grown", progress=False)) == facts(whole), name
    # without its state the first stages are trained again, to the same bytes
    shutil.rmtree(tmp_path / "first" / "state")
    assert facts(pretrain_stages(stages, new(), None, tmp_path / "again", progress=False, start=first)) == facts(whole)


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_a_stage_is_the_plain_run_that_begins_with_its_model(tmp_path, optimizer):
    "Own optimizer, own schedule, own batches: nothing of the other stage but the weights comes over the border."
    # dropout is seeded by the step in the whole chain
    still = lambda: net(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    a = Stage(*ids(1), replace(CFG, optimizer=optimizer, weight_decay=0.3, betas=(0.8, 0.9)), "a")
    b = Stage(*ids(2), replace(CFG, optimizer=optimizer, lr=1e-3, steps=20), "b")
    chain = pretrain_stages([a, b], still(), None, tmp_path / "chain", progress=False)
    first = pretrain(a.corpus, a.heldout, still(), None, a.cfg, tmp_path / "a", progress=False)
    assert [chain.entries[k]["sha256"] for k in (0, 6, 12)] == [first.entries[k]["sha256"] for k in (0, 6, 12)]
    model = still()
    model.load_state_dict(load_file(tmp_path / "a/step12/model.safetensors"), strict=False)
    second = pretrain(b.corpus, b.heldout, model, None, b.cfg, tmp_path / "b", progress=False)
    assert [chain.entries[12 + k]["sha256"] for k in (6, 12, 18, 20)] == [
        second.entries[k]["sha256"] for k in (6, 12, 18, 20)
    ]
    border = [{k: v for k, v in c.items() if k != "cpu_s"} for c in chain.info["curve"] if c["step"] == 12]
    assert border == [
        dict(
            step=12,
            stage=1,
            tokens=12 * 4 * 32,
            **{k: second.entries[0]["loss"][k] for k in ("heldout", "heldout_stderr", "heldout_n")},
        )
    ]


def test_carried_moments_take_the_settings_of_their_stage(tmp_path):
    a = Stage(*ids(1), CFG, "a")
    b = Stage(*ids(2), replace(CFG, moments="carried"), "b")
    ends = [
        pretrain_stages(
            [a, replace(b, cfg=replace(b.cfg, **kw))], net(), None, tmp_path / str(i), progress=False
        ).entries[24]["sha256"]
        for i, kw in enumerate(({}, dict(weight_decay=0.5), dict(betas=(0.5, 0.6)), dict(moments="fresh")))
    ]
    assert len(set(ends)) == 4


def test_an_l1_that_comes_again_goes_on(tmp_path):
    "Batches of a second stay are those after the first one's."
    c, h = ids(1)
    x = [training_batch(c, CFG, step, seen=seen)[0] for step, seen in ((12, 0), (0, 12))]
    assert (x[0] == x[1]).all() and (training_batch(c, CFG, 0)[0] != x[1]).any()
    # nothing is learned, at a rate far below what a weight can hold: only the data differ
    flat = replace(CFG, warmup=0, lr=1e-30, save=[])
    twice = pretrain_stages(
        [Stage(c, h, flat, "a"), Stage(c, h, flat, "b")], net(), None, tmp_path / "twice", progress=False
    )
    once = pretrain(c, h, net(), None, replace(flat, steps=24, save=12), tmp_path / "once", progress=False)
    assert twice.entries[24]["loss"]["train"] == once.entries[24]["loss"]["train"] != twice.entries[12]["loss"]["train"]


def test_one_stage_is_the_plain_run(tmp_path):
    c, h = ids(1)
    a = pretrain(c, h, net(), None, CFG, tmp_path / "a", dict(l1="x"), progress=False)
    b = pretrain_stages([Stage(c, h, CFG, "x")], net(), None, tmp_path / "b", dict(l1="x:2k"), progress=False)
    assert facts(a) == facts(b) and "stages" in b.info["run"] and "stages" not in a.info["run"]


def test_stages_that_do_not_go_together(tmp_path):
    c, h = ids(1)
    with pytest.raises(EmbryoError, match="a chain keeps its objective and its optimizer"):
        pretrain_stages(
            [Stage(c, h, CFG, "a"), Stage(c, h, replace(CFG, optimizer="lamb"), "b")], net(), None, tmp_path / "x"
        )
    other = pretrain_stages([Stage(c, h, replace(CFG, lr=1e-3), "a")], net(), None, tmp_path / "other", progress=False)
    with pytest.raises(EmbryoError, match="is not a finished run of the first stages"):
        pretrain_stages([Stage(c, h, CFG, "a"), Stage(c, h, CFG, "b")], net(), None, tmp_path / "y", start=other)
    assert not (tmp_path / "y").exists()


def test_chains_in_a_profile(run, profile, tmp_path):
    p = profile("{zipf,klingon}:1k,english:1k~slow", " zipf:1k , english:1k ", "zipf:1k~wide+body-only,english:1k")
    nodes = Plan(p, root=tmp_path).nodes
    assert [k[len("chain/roberta-") :] for k in nodes if k.startswith("chain/")] == [
        "zipf:1k-s0",
        "zipf:1k,english:1k~slow-s0",
        "klingon:1k-s0",
        "klingon:1k,english:1k~slow-s0",
        "zipf:1k,english:1k-s0",
        "zipf:1k~wide-s0",
        "zipf:1k~wide+body-only,english:1k-s0",
    ]
    wide = nodes["chain/roberta-zipf:1k~wide+body-only,english:1k-s0"]
    assert wide.params["model"]["hidden_size"] == 64 and set(wide.needs) == {
        "corpus/zipf",
        "corpus/english",
        "chain/roberta-zipf:1k~wide-s0",
    }
    assert (
        nodes["chain/roberta-zipf:1k,english:1k~slow-s0"].params["stages"][1]["lr"]
        == 1e-4
        != nodes["chain/roberta-zipf:1k,english:1k~slow-s0"].params["stages"][0].get("lr")
    )
    code, out, err = run("embryo_run", "--profile", p, timeout=400)
    assert code == 0, err
    series = tmp_path / "papermill_runs/p/series"
    a, b = (open_series(series / f"roberta-{k}-s0") for k in ("zipf:1k", "zipf:1k,english:1k~slow"))
    assert (
        {0, 8, 16} <= set(b.steps)
        and a.entries[8]["sha256"] == b.entries[8]["sha256"]
        and not b.audit().query("severity=='fault'").size
    )
    r = read_rows(tmp_path / "papermill_runs/p/runs")
    c = nursery_curves(r)
    assert set(c["arm"]) == {"zipf 1k", "klingon 1k", "zipf 1k+body-only"} and set(
        c.loc[c["setting"] != "", "setting"]
    ) == {"slow", "wide in zipf"}
    with pytest.raises(EmbryoError, match="no curve without a nursery"):
        savings(c)
    code, out, err = run("embryo_run", "--profile", p)
    assert code == 0 and out.startswith("0 of ")


@pytest.mark.parametrize(
    "chain,sentence",
    [
        ("zipf:1k,english:1k~wide", r"\[variants.wide\]: changes the model, which is built for the first stay"),
        ("zipf:1k~tall,english:1k", "unknown variant 'tall'"),
        ("zipf:1k,english", "'english' is no stay"),
        ("zipf:1,english:1k", "with its unit"),
        ("nowhere:1k,english:1k", "unknown L1 'nowhere'"),
        ("zipf:1k,english:1k+body-only", "behind the last stay|no chain"),
        ("english", "is no chain"),
    ],
)
def test_what_a_chain_may_not_say(run, profile, chain, sentence):
    code, out, err = run("embryo_plan", "--profile", profile(chain))
    assert code == 2 and re.search(sentence, err) and len(err.strip().splitlines()) == 1, err


def test_a_chain_is_examined_and_tuned(run, profile, tmp_path):
    p = profile("zipf:1k,english:1k")
    p.write_text(
        p.read_text()
        + '[results.words]\ntemplate = "examine"\nl1 = ["zipf:1k,english:1k"]\nstep = "last"\n[results.tuned]\ntemplate'
        ' = "finetune"\nl1 = ["zipf:1k,english:1k", "zipf:1k,english:1k+shuffled"]\ntask ='
        ' ["RTE"]\n[examine]\nmax_sentences = 5\n[results.alone]\ntemplate = "chain"\nl1 ='
        ' ["english:1k"]\n[results.x_nursery]\ntemplate = "appendix"\n'
    )
    code, out, err = run("embryo_run", "--profile", p, timeout=400)
    assert code == 0, err
    runs = tmp_path / "papermill_runs/p/runs"
    assert (tmp_path / "figures/p/x_nursery_table2.md").is_file()
    sizes = lambda: set(pd.read_csv(tmp_path / "figures/p/x_nursery_table1.csv")["size"])
    wide, deep = (tomllib.loads(p.read_text())["model"]["default"][k] for k in ("hidden_size", "num_hidden_layers"))
    assert sizes() == {f"{deep}x{wide}"}
    # drawn again from rows alone: with this profile's settings, not the default's
    code, out, err = run("embryo_figures", "--profile", p, timeout=200)
    assert code == 0 and sizes() == {f"{deep}x{wide}"}, err
    assert (runs / "finetune/roberta-zipf:1k,english:1k+shuffled-s0/rows.parquet").is_file() and (
        runs / "examine/roberta-zipf:1k,english:1k-s0-step16/rows.parquet"
    ).is_file()


def test_change_points_of_known_curves():
    """The change point is found where there is one, in noise of real curves' size, and before the fall; none is
    found where there is none."""
    t = np.linspace(0, 10, 60)
    rng = np.random.default_rng(0)
    for leave in (2.0, 4.0, 7.0):
        found = [
            leaves_plateau(
                t, 6 - 0.15 * np.maximum(0, t - leave) + 0.5 * np.exp(-t * 4) + 0.01 * rng.standard_normal(60), 6.0
            )
            for _ in range(20)
        ]
        assert abs(np.mean(found) - leave) < 0.3 and np.isfinite(found).all(), (leave, found)
    # as real curves are: they rest above the plateau, sink slowly, and fall ever faster
    for leave in (1.0, 3.0, 6.0):
        curve = 6.1 - 0.015 * t - 0.1 * np.maximum(0, t - leave) ** 2 + 0.5 * np.exp(-t * 4)
        found = [leaves_plateau(t, curve + 0.005 * rng.standard_normal(60), 6.0) for _ in range(20)]
        assert (
            np.isfinite(found).all()
            and leave - 0.2 < np.mean(found) < leave + 1
            and np.interp(found, t, curve).min() > 5.95
        ), (leave, found)
    never = [leaves_plateau(t, 6 + 0.5 * np.exp(-t * 4) + 0.01 * rng.standard_normal(60), 6.0) for _ in range(50)]
    assert np.isnan(never).all()
    # still on their way down to it
    slow = [
        leaves_plateau(t, 6 + a * np.exp(-t / tau) + 0.003 * rng.standard_normal(60), 6.0)
        for a, tau in ((0.1, 3), (0.3, 2), (0.5, 3), (0.09, 10))
    ]
    assert np.isnan(slow).all()


def test_committed_tables_are_those_of_the_committed_rows():
    "Rows, tables and the text's numbers are of one making."
    every = nursery_curves(committed("nursery"), size="2x128")
    drawn = pd.read_csv(ROOT / "figures/nursery/x_nursery_table1.csv", keep_default_na=False, na_values=[""])
    for s, end in ((savings(at_best(every)), ""), (savings(at_best(every), BELOW, alone=every), "_below")):
        both = s.merge(drawn, on=["family", "size", "budget", "arm"], suffixes=("", "_was"))
        assert len(both) == len(s) == len(drawn)
        for k in ("tokens", "tokens0", "saved", "low", "high", "efficiency"):
            np.testing.assert_allclose(both[k], both[f"{k}{end or '_was'}"], rtol=1e-5)


def test_the_baseline_that_savings_are_read_against_is_drawn():
    """English alone where it needs the fewest tokens stands in the curves' figure, also where another setting
    ends lower."""
    every = nursery_curves(committed("nursery"), size="2x128")
    fixed = savings(at_best(every), BELOW, alone=every)
    fewest = fewest_alone(every, fixed, "2x128")
    assert fewest["arm"].unique().tolist() == [FEWEST] and fewest["seed"].nunique() == 3
    reach = (
        fewest.sort_values("tokens")
        .groupby("seed")
        .apply(lambda d: tokens_to(d["tokens"], d["value"], fixed["level"].iloc[0]), include_groups=False)
    )
    assert reach.mean() == pytest.approx(fixed.loc[fixed["size"] == "2x128", "tokens0"].iloc[0])
    long = at_best(every).query("size=='2x128' and budget==16_000_000 and border=='whole model'")
    fig = plot_nursery(mean_curves(beside_fewest(long, fewest)))
    names = [x.get_text() for x in fig.axes[1].get_legend().get_texts()]
    assert [n.split(" [")[0] for n in names[:2]] == ["nothing", FEWEST] and names[0].split(" (")[0] != names[1].split(
        " ("
    )[0]
    black = [x for x in fig.axes[0].lines if x.get_color() == "black" and x.get_linewidth() == 2]
    assert len({x.get_linestyle() for x in black}) == 2


def test_sizes_are_compared_in_settings_that_all_of_them_have():
    "Of a size that was tried in many settings only those count that the others have, too."
    every = nursery_curves(committed("nursery"), size="2x128")
    alike = in_shared_settings(every)
    sizes = [
        set(g["setting"].str.replace("kept", "").str.strip())
        for _, g in alike[alike["nursery"] == "nothing"].groupby("size")
    ]
    assert len(sizes) == 3 and sizes[0] == sizes[1] == sizes[2]
    own = savings(at_best(every), BELOW, alone=every)
    shared = savings(at_best(alike), BELOW, alone=alike)
    at = lambda d: d[(d["arm"] == "nesting-zipf 2M") & (d["budget"] == 8_000_000)].set_index("size")["saved"]
    assert (
        at(shared)["2x128"] > at(own)["2x128"] + 1e6
        and at(shared)["4x128"] == at(own)["4x128"]
        and np.isnan(at(shared)["2x64"])
    )


def test_no_interval_of_width_0():
    """Seeds that are equal, or equal but for rounding, tell nothing of their spread; two seeds have Student's t
    with one degree of freedom."""
    for seeds in ([0.0] * 3, [0.3, 0.1 + 0.2], [5.4] * 2):
        assert (
            np.isnan(difference(seeds, seeds)[1:]).all()
            and np.isnan(efficiency(seeds, [3.3] * len(seeds), 0.1)[1:]).all()
        )
        assert np.isnan(half_width(np.std(seeds, ddof=1), len(seeds), np.mean(seeds)))
    assert half_width(np.std([1.0, 2.0], ddof=1), 2, 1.5) == pytest.approx(12.7062 * 0.5, rel=1e-4)
    every = at_best(nursery_curves(committed("nursery"), size="2x128"))
    one = every[(every["seed"] == 0) & (every["arm"] == "java 2M")]
    twice = pd.concat([one, one.assign(seed=1)])
    assert mean_curves(twice)["low"].isna().all() and plateau_rows(twice)[["low", "high"]].isna().all(axis=None)
    assert best_settings(twice)[["low", "high"]].isna().all(axis=None)


def overlap(who, values, stderr, task="STS-B", metric="spearman"):
    return [
        dict(
            profile="nursery",
            evaluator="trivial",
            task=task,
            split="dev",
            group=who,
            metric=metric,
            seed=s,
            value=v,
            n=1500,
            stderr=stderr,
        )
        for s, v in enumerate(values)
    ]


@pytest.mark.parametrize(
    "value,stderr,above", [(0.0, 0.0, True), (0.05, 0.001, True), (0.08, 0.03, False), (0.6, 0.01, False)]
)
def test_a_score_is_marked_only_above_every_trivial_predictor(value, stderr, above):
    """The error of the trivial predictor counts: .15 [.10, .20] lies above .08, but not above .08 with a standard
    error of .03."""
    r = committed("nursery")
    r = r[~r["group"].str.startswith("overlap")]
    said = task_scores(r, "roberta").set_index(["l1", "task"])
    nested = ("nesting-zipf:2M,english:16M~lr1~kept", "STS-B")
    assert said.loc[nested, "above"] and "overlap" not in " ".join(
        table_tasks(said.reset_index(), trivial_seeds(r, ["STS-B"]))["first"]
    )
    more = pd.concat(
        [r, row_frame(overlap("overlap-1", [value] * 3, stderr) + overlap("overlap-7", [value - 0.01, value], stderr))]
    )
    s = task_scores(more, "roberta").set_index(["l1", "task"])
    assert (
        s.loc[nested, "above"] == above
        and (s.loc[(slice(None), "CoLA"), "above"] == said.loc[(slice(None), "CoLA"), "above"]).all()
    )
    view = table_tasks(s.reset_index(), trivial_seeds(more, s.index.levels[1])).set_index("first")
    assert view.index.tolist()[-4:] == [
        "trivial: majority or constant",
        "trivial: all-positive",
        "trivial: overlap, 1 feature",
        "trivial: overlap, 7 features",
    ]
    assert (
        view.loc["trivial: overlap, 1 feature", "STS-B"].startswith(f"{value:.2f}")
        and view.loc["trivial: overlap, 1 feature", "CoLA"] == "–"
    )


def test_what_english_makes_of_the_nursery_alone():
    """The model at the border was fine-tuned in three seeds; it stands in the table as what it is, and its
    difference has an interval."""
    r = committed("nursery")
    c = task_changes(r, "roberta").set_index("task")
    c = c[c["start"] == "nesting-zipf:2M"]
    assert (
        set(c.index) == {"CoLA", "STS-B", "SST-2", "RTE", "MRPC"}
        and (c["seeds"] == 3).all()
        and (c["low"] < c["difference"]).all()
    )
    assert c.loc["STS-B", "value"] - c.loc["STS-B", "before"] == pytest.approx(c.loc["STS-B", "difference"])
    alone = task_scores(r, "roberta").set_index("l1").loc["nesting-zipf:2M"]
    assert set(alone["first"]) == {"nesting-zipf 2M"} and set(alone["then"]) == {"–"}


def test_tables_have_no_sentences():
    "Cells are numbers with intervals, counts, names; what they are stands in the heads and the caption."
    every = nursery_curves(committed("nursery"), size="2x128")
    best = at_best(every)
    fixed = savings(best, BELOW, alone=every)
    view = table_savings(fixed, plateau_rows(best), best_settings(every))
    end = table_end(savings(best), at_equal_flops(best, alone=every))
    for v in (view, end):
        cells = v.drop(columns=["first", "setting"], errors="ignore")
        assert cells.map(len).max().max() <= 22 and not cells.map(
            lambda x: bool(re.search(r"[a-z]{3,} [a-z]{2,}", x))
        ).any(axis=None)
    assert len(view) == len(fixed) and set(end["mid-course"]) <= {"alone", "nursery", "–"}
