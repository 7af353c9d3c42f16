"""Phases: change points of curves, their order, and what seeds and steps have in common."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from embryo.evaluation.alike.predictions import divergence, divergence_rows, word_divergences
from embryo.evaluation.alike.states import cka, cka_rows, token_states
from embryo.evaluation.annotations.folders import read
from embryo.evaluation.asking import examine
from embryo.evaluation.evaluators import Asked, load_checkpoint
from embryo.evaluation.words.words import placed_words
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import row_frame
from embryo.micro.made_up_ages import RISES, made_up_alike, made_up_curves
from embryo.models.given import open_series
from embryo.results.figures import draw, figures_of
from embryo.results.phases.changes import CHANCE, aligned, change_point, changes, orders, paired
from embryo.results.phases.drawings import layer_likeness, seed_divergence
from embryo.results.phases.seeds import between_seeds, between_steps, held_against

STEPS = np.unique(np.logspace(1, 5, 17).astype(int))


@pytest.fixture(scope="module")
def pair(lab):
    "The first and the last checkpoint of the small series, and its test sentences."
    series = open_series(f"{lab['series']}/albert-english-s0")
    return load_checkpoint(series, 4), load_checkpoint(series, 0), read(lab["data"] + "/probing_gum/test.jsonl.gz")


# ---- change points


@pytest.mark.parametrize("at", [40, 1500, 20_000])
@pytest.mark.parametrize("rise", [0.6, -0.6])
def test_known_change_is_found(at, rise):
    y = 0.3 + rise * (STEPS > at) + 0.05 * np.random.default_rng(0).standard_normal(len(STEPS))
    c = change_point(STEPS, y)
    assert c["left"] <= math.log10(at) < c["right"] and c["p"] <= CHANCE
    assert c["rise"] == pytest.approx(rise, abs=0.1)


def test_best_split_is_the_best_of_all():
    "On an even axis: what trying every place finds (and `ruptures`, Dynp with model l2, where it is installed)."
    rng = np.random.default_rng(0)
    steps = 10.0 ** np.arange(12)
    for _ in range(50):
        y = rng.standard_normal(12)
        squares = [y[:k].var() * k + y[k:].var() * (12 - k) for k in range(2, 11)]
        assert change_point(steps, y)["right"] == 2 + int(np.argmin(squares))


def test_a_dense_stretch_does_not_draw_the_change_to_itself():
    "A ramp over the log axis is divided in its middle, wherever the checkpoints lie."
    even = np.logspace(1, 5, 41)
    dense = np.sort(np.r_[np.logspace(1, 5, 17), np.logspace(4, 5, 60)])
    places = [change_point(s, np.log10(s))["place"] for s in (even, np.unique(dense))]
    assert places == pytest.approx([3, 3], abs=0.2)


def test_noise_does_not_change():
    rng = np.random.default_rng(0)
    called = [change_point(STEPS, rng.standard_normal(len(STEPS)))["p"] <= CHANCE for _ in range(200)]
    assert 0.01 <= np.mean(called) <= 0.1
    assert change_point(STEPS, np.full(len(STEPS), 0.5))["p"] == 1


def test_a_short_curve_can_be_told_to_change():
    "Ten checkpoints are enough for a change with three on either side; nine are refused."
    steps = 10.0 ** np.arange(10)
    noise = 0.01 * np.random.default_rng(0).standard_normal(10)
    found = [change_point(steps, (np.arange(10) >= k) + noise) for k in range(3, 8)]
    assert [c["right"] for c in found] == list(range(3, 8)) and all(c["p"] <= CHANCE for c in found)
    with pytest.raises(EmbryoError, match="a curve of 9 checkpoints behind step 0; at least 10"):
        change_point(steps[:9], noise[:9])


def test_one_odd_checkpoint_is_no_change():
    y = 0.5 + 0.01 * np.random.default_rng(0).standard_normal(len(STEPS))
    y[-1] = 0.9
    assert change_point(STEPS, y)["p"] > CHANCE


def test_change_points_over_seeds_hold_the_truth():
    found = changes(made_up_curves(seeds=4))
    a = aligned(found).set_index("group")
    for (_, group), (at, *_) in RISES.items():
        if at is None:
            assert np.isnan(a.loc[group, "place"]) and a.loc[group, "clear"] < 4
        else:
            assert a.loc[group, "low"] < math.log10(at) < a.loc[group, "high"]
            own = found[found["group"] == group]
            assert a.loc[group, "high"] - a.loc[group, "low"] >= (own["right"] - own["left"]).mean() - 1e-9


def test_step_zero_is_no_place():
    rows = made_up_curves(seeds=1)
    assert (rows["step"] == 0).any()
    pd.testing.assert_frame_equal(changes(rows), changes(rows[rows["step"] > 0]))


def test_order_is_told_where_it_is_sure():
    found = changes(made_up_curves(seeds=5))
    groups = aligned(found)["group"]
    told = {(groups[o.a], groups[o.b]): o.order for o in orders(found).itertuples()}
    told |= {(b, a): dict(before="after", after="before").get(o, o) for (a, b), o in told.items()}
    assert told["det.", "prep."] == "not told"
    assert told["det.", "noun"] == told["noun", "proper noun"] == "before" and told["proper noun", "prep."] == "after"
    assert set(orders(found[found["seed"] == 0])["order"]) == {"not told"}


def test_seeds_that_agree_on_a_coarse_grid_are_not_certain():
    "Two curves one gap apart in two seeds: no scatter between seeds, and still no order."
    steps = np.array([1, 10, 100, 1000, 10_000, 100_000, 1_000_000])
    made = [
        dict(group=g, seed=s, step=k, value=float(k > at), n=100)
        for g, at in (("a", 100), ("b", 1000))
        for s in (0, 1)
        for k in np.r_[steps, steps * 3]
    ]
    rows = row_frame(made, evaluator="mask_predict", task="pos-class", metric="accuracy", family="bert", l1="english")
    found = changes(rows)
    assert (found["p"] <= CHANCE).all() and found.groupby("group")["place"].nunique().tolist() == [1, 1]
    assert orders(found)["order"].tolist() == ["not told"]


def seen_between_checkpoints(places, width):
    "What is known of change points: the checkpoints around, and the middle of their gap."
    left = np.floor(places / width) * width
    return pd.DataFrame(dict(place=left + width / 2, left=left, right=left + width))


@pytest.mark.parametrize("seeds", [3, 5, 8])
@pytest.mark.parametrize("scatter", [0.01, 0.3])
def test_errors_that_seeds_share_are_within_the_interval(seeds, scatter):
    """Seeds are asked at the same checkpoints: where they scatter less than these lie apart, all are wrong alike. The
    interval holds the truth nonetheless, and equal places are not told apart more often than chance allows.
    """
    rng = np.random.default_rng(seeds)
    width = 0.3  # of a gap, log10: a checkpoint at each doubling
    studies = 200
    held = told = 0
    for apart in [*np.zeros(studies), *rng.uniform(0, 2 * width, studies)]:
        place = rng.uniform(0, width)
        pair = [at + scatter * rng.standard_normal(seeds) for at in (place, place + apart)]
        _, low, high, p, _ = paired(*(seen_between_checkpoints(x, width) for x in pair))
        held += low <= -apart <= high
        told += apart == 0 and p < 0.05
    assert held / (2 * studies) > 0.93 and told / studies < 0.09


# ---- seeds: predictions


def test_divergence_by_hand():
    p = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]).clamp_min(1e-30).log()
    q = torch.tensor([[0.25, 0.75, 0.0], [0.0, 0.0, 1.0]]).clamp_min(1e-30).log()
    kl, js = divergence(p, q)
    assert kl[0].item() == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3))
    assert js[1].item() == pytest.approx(math.log(2))
    assert divergence(q, p)[1].tolist() == pytest.approx(js.tolist())
    assert divergence(p, p + 3).abs().max() < 1e-6  # logits, not probabilities


def test_a_checkpoint_is_like_itself(pair):
    last, first, sentences = pair
    same = divergence_rows(word_divergences(last.model, last.model, last.tokenizer, sentences, words=100))
    assert same["value"].abs().max() < 1e-9
    moved = word_divergences(last.model, first.model, last.tokenizer, sentences, words=100)
    other = word_divergences(last.model, first.model, last.tokenizer, sentences, words=100, max_tokens=64)
    assert (moved["js"] > 0).all() and (moved["js"] < math.log(2)).all()
    np.testing.assert_allclose(moved[["kl", "js"]], other[["kl", "js"]], atol=1e-6)


# ---- seeds: layers


def test_cka_of_known_states():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3000, 12))
    turn = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    assert cka(x, x) == pytest.approx(1) and cka(x, 2 * x @ turn - 7) == pytest.approx(1)
    assert cka(x, rng.standard_normal((3000, 20))) < 0.02
    stretched = x * np.r_[10, np.ones(11)]
    assert cka(x, stretched) < 0.9  # not invariant to every linear map
    gram = lambda v: (v - v.mean(0)) @ (v - v.mean(0)).T
    a, b = x[:50], (x + rng.standard_normal(x.shape))[:50]
    by_grams = (gram(a) * gram(b)).sum() / np.sqrt((gram(a) ** 2).sum() * (gram(b) ** 2).sum())
    assert cka(a, b) == pytest.approx(by_grams)
    with pytest.raises(EmbryoError, match="the same tokens"):
        cka(x, x[:5])


def test_layers_of_a_checkpoint_are_like_themselves(pair):
    last, first, sentences = pair
    wins = placed_words(last.model, last.tokenizer, sentences)[1]
    a, b = (token_states(c.model, wins, last.tokenizer.pad_token_id) for c in (last, first))
    assert cka_rows(a, a).query("metric == 'cka'")["value"].to_numpy() == pytest.approx(1)
    wide = cka_rows(a, b).pivot(index="layer", columns="metric", values="value")
    assert (wide["cka"] < 1 - 1e-6).all() and (wide["cka"] > wide["cka_control"]).all()


def test_evaluator_alike(pair, lab):
    last, _, sentences = pair
    options = dict(alike=dict(others=[f"{lab['series']}/albert-english-s0"], steps=[0, 4], words=50))
    rows = examine(last, Asked(sentences, split="s", options=options), ["alike"])
    itself = rows[rows["task"] == "albert-english-s0@4"]
    assert itself.query("metric == 'cka'")["value"].to_numpy() == pytest.approx(1)
    assert itself.query("metric == 'js'")["value"].abs().max() < 1e-9
    assert rows.query("task == 'albert-english-s0@0' and metric == 'js'")["value"].min() > 0
    with pytest.raises(EmbryoError, match="alike: no other series"):
        examine(last, Asked(sentences), ["alike"])


def test_seeds_and_steps_are_told_apart():
    rows = made_up_alike()
    held = held_against(rows)
    assert set(held.loc[held["kind"] == "steps", "other"]) == {"bert-english-s0"}
    assert set(between_seeds(rows)["pairs"]) == {2}
    s = between_steps(rows)
    wide = s[s["layer"] == 0].pivot(index="step", columns="at", values="value")
    assert np.allclose(wide, wide.T) and np.allclose(np.diag(wide), 1)


# ---- figures


def test_figures_show_what_was_measured():
    rows = made_up_alike()
    assert set(layer_likeness(rows)["kind"]) == {"last", "seeds", "control"}
    own = rows[rows["task"].str.contains("-s0@")]
    assert set(layer_likeness(own)["kind"]) == {"last"}
    albert = rows.assign(family="albert", task=rows["task"].str.replace("bert", "albert"))
    two = pd.concat([rows, albert], ignore_index=True)
    with pytest.raises(EmbryoError, match="albert on english, bert on english; choose one"):
        seed_divergence(two)
    assert len(seed_divergence(two, family="albert")) == len(seed_divergence(rows))


def test_every_figure_is_drawn(tmp_path):
    rows = pd.concat([made_up_curves(), made_up_alike()], ignore_index=True)
    for name in figures_of("x_phases"):
        draw(name, rows, tmp_path, "Made-up rows")
    plt.close("all")
    made = {p.name for p in tmp_path.iterdir()}
    assert {"x_phases_fig1.png", "x_phases_fig2.csv", "x_phases_fig3.pdf", "x_phases_table1.md"} <= made
