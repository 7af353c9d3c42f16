"""Averaged attention maps, held against a slow loop that knows nothing of windows, batches or fp64."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from embryo.corpora.tokens import open_tokenizer
from embryo.evaluation.attention import (
    METRICS,
    NEAR,
    attention_rows,
    full_windows,
    maps,
    near_rows,
    observe,
    read_maps,
    save_gif,
    write_maps,
)
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import COLUMNS, read_rows, write_rows
from embryo.models.given import open_series
from embryo.results.p1.attention import PLACES, head_frames, map_data, onset, plot_maps, plot_near, with_near


@pytest.fixture(scope="module")
def series(lab):
    return open_series(Path(lab["series"]) / "albert-english-s0")


@pytest.fixture(scope="module")
def tok(lab):
    return open_tokenizer(Path(lab["corpora"]) / "tokenizer")


@pytest.fixture(scope="module")
def texts(lab):
    from embryo.corpora.text import read_documents, text_files

    return [p for d in read_documents(text_files(lab["data"], ["wiki_en"], "heldout")) for p in d]


def network(kind, vocab):
    torch.manual_seed(0)
    more = dict(embedding_size=8) if kind in ("Albert", "Electra") else {}
    cfg = getattr(transformers, kind + "Config")(
        vocab_size=vocab,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=66,
        pad_token_id=1,
        initializer_range=0.3,
        **more,
    )
    return getattr(transformers, kind + "ForMaskedLM")(cfg)


@pytest.mark.parametrize("kind", ["Albert", "Roberta", "Bert", "Electra"])
def test_maps_equal_a_loop_over_sentences(kind, tok, texts):
    """Sentences of at least 64 tokens, one by one through the tokenizer's own truncation, the whole model and a
    running mean."""
    m = network(kind, len(tok))
    long = [t for t in ((a + " " + b) for a, b in zip(texts[::2], texts[1::2])) if len(tok(t)["input_ids"]) >= 64][:20]
    assert len(long) >= 10
    slow = 0.0
    n = 0
    m.eval().set_attn_implementation("eager")
    for t in long:
        x = tok(t, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
        assert x.shape == (1, 64)
        with torch.no_grad():
            slow = slow + np.stack([a[0].double().numpy() for a in m(input_ids=x, output_attentions=True).attentions])
            n = n + 1
    m.train().set_attn_implementation("sdpa")
    fast = maps(m, tok, long, batch=7)
    assert fast.shape == (3, 2, 64, 64) and np.abs(fast - slow / n).max() < 1e-6
    assert m.training and m.config._attn_implementation == "sdpa"


def test_short_sentences_are_packed_from_sentence_starts(tok, texts):
    ids = [tok(t, add_special_tokens=False)["input_ids"] for t in texts]
    k = 0
    for w in itertools.islice(full_windows(tok, texts, 64), 10):
        held = []
        while len(held) < 62:
            held = held + ids[k]
            k = k + 1
        assert w == [tok.cls_token_id, *held[:62], tok.sep_token_id]


def test_only_what_is_needed_is_read(tok, texts):
    "An endless text: memory and time depend on the number of windows alone."
    r = attention_rows(network("Bert", len(tok)), tok, itertools.cycle(texts), most=9, length=20, batch=4)
    assert set(r["n"]) == {9} and list(r) == list(COLUMNS)


def test_scores_and_errors_are_those_of_single_windows(tok, texts):
    m = network("Albert", len(tok))
    wins = list(itertools.islice(full_windows(tok, texts, 16), 12))
    m.eval().set_attn_implementation("eager")
    each = []
    for w in wins:
        with torch.no_grad():
            a = m(input_ids=torch.tensor([w]), output_attentions=True).attentions[2][0, 1].tolist()
        near = np.mean([sum(a[i][j] for j in (i - 1, i, i + 1) if 0 <= j < 16) for i in range(16)])
        before = [a[i][i - 1] for i in range(1, 16)]
        behind = [a[i][i + 1] for i in range(15)]
        each.append((np.mean([a[i][i] for i in range(16)]), np.mean(before), np.mean(behind), near))
    r = attention_rows(m, tok, texts, length=16, most=12, batch=5).query("layer==3 and group=='2'").set_index("metric")
    for k, metric in enumerate(("self", "previous", "next", "near")):
        v = np.array([e[k] for e in each])
        np.testing.assert_allclose(
            [r.loc[metric, "value"], r.loc[metric, "stderr"]], [v.mean(), v.std(ddof=1) / 12**0.5], rtol=1e-5
        )


def test_a_half_precision_model_is_left_alone(tok, texts):
    m = network("Roberta", len(tok)).bfloat16()
    a = maps(m, tok, texts, length=16, most=4)
    np.testing.assert_allclose(a.sum(-1), 1, atol=1e-5)
    assert m.dtype == torch.bfloat16 and m.config._attn_implementation == "sdpa"


def test_a_failing_pass_restores_the_model(tok, texts):
    m = network("Bert", len(tok))
    m.bert.encoder.layer[1].forward = lambda *a, **k: 1 / 0
    with pytest.raises(ZeroDivisionError):
        maps(m, tok, texts, length=16)
    assert m.training and m.config._attn_implementation == "sdpa"


def test_a_series_to_figure_and_animation(series, tok, texts, tmp_path):
    by_step = {}
    rows = []
    for s in series.steps:
        m, t = series.load(s)
        by_step[s], scores = observe(m, t, texts, length=32, most=30)
        rows.append(near_rows(scores, 32, family="albert", l1="english", seed=0, step=s, split="heldout"))
    import pandas as pd

    rows = read_rows(write_rows(pd.concat(rows), tmp_path / "rows.parquet"))
    assert len(rows) == 3 * (2 * 3 * 4 + 1) and rows.query("metric=='floor'")["value"].eq(1 / 32).all()
    o = onset(rows)
    assert set(o["layer"]) == {1, 2} and o["step"].dropna().between(0, 4).all()
    again = read_maps(write_maps(tmp_path / "maps.npz", by_step))
    assert list(again) == [0, 2, 4] and np.abs(again[4] - by_step[4]).max() < 1e-7
    d = map_data(again, layers=[1, 2], head=2)
    assert len(d) == 2 * 3 * 32 * 32
    fig = plot_maps(d)
    panels = [a for a in fig.axes if a.images and a.get_label() != "<colorbar>"]
    # one scale within a row
    for row in (panels[:3], panels[3:]):
        assert len({a.images[0].get_clim() for a in row}) == 1
    np.testing.assert_allclose(panels[1].images[0].get_array(), again[2][0, 1], rtol=1e-6)
    drawn = plot_near(rows).axes
    assert [a.get_ylabel() for a in drawn[::2]] == list(PLACES.values())
    assert [a.get_title() for a in drawn[:2]] == ["mean over heads", "head 2"]
    for a in drawn:
        curves = [x for x in a.lines if len(x.get_xdata()) == 3]
        assert (
            len({(x.get_color(), x.get_linestyle()) for x in curves}) == len({x.get_linestyle() for x in curves}) == 2
        )
    one = rows.query("metric=='near' and group=='2' and layer==1").sort_values("step")
    np.testing.assert_allclose(drawn[1].lines[0].get_ydata(), one["value"])
    with Image.open(save_gif(head_frames(again, 2, 2), tmp_path / "a.gif", ms=200)) as g:
        assert g.n_frames == 3 and g.info["duration"] == 200
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbryoError, match="cannot write"):
        save_gif(head_frames(again, 2, 2), tmp_path / "file" / "a.gif")


def test_a_head_that_turns_from_itself_to_the_next_stays_near():
    """Half way the token itself loses what the next one wins: `self` falls, `near` does not move, and rows without
    `near` say the same."""
    T = 16
    steps = range(0, 100, 10)
    parts = []
    noise = 0.02 * np.random.default_rng(0).normal(size=(20, 1, 1, 3))
    for s in steps:
        moved = min(1, s / 50)
        parts.append(
            near_rows(
                noise + [0.92 - 0.9 * moved, 0.02, 0.01 + 0.9 * moved * T / (T - 1)],
                T,
                family="albert",
                l1="english",
                seed=0,
                step=s,
            )
        )
    import pandas as pd

    rows = pd.concat(parts)
    v = {m: rows.query(f"metric=='{m}' and group=='1'")["value"].to_numpy() for m in METRICS}
    assert v["self"][0] - v["self"][-1] > 0.8 and v["next"][-1] - v["next"][0] > 0.8 and np.ptp(v["near"]) < 1e-9
    assert onset(rows, "self")["step"].item() == pytest.approx(25, abs=2) and np.isnan(onset(rows)["step"].item())
    old = rows[rows["metric"] != "near"]
    key = ["step", "layer", "group"]
    new, kept = (r[r["metric"] == "near"].set_index(key).sort_index() for r in (with_near(old), rows))
    np.testing.assert_allclose(new["value"].astype(float), kept["value"].astype(float), rtol=1e-12)
    three = old[old["metric"].isin(NEAR)].groupby(key)["stderr"].sum().sort_index()
    assert (new["stderr"] >= kept["stderr"]).all() and (new["stderr"] <= three).all() and (new["n"] == 20).all()
    mixed = pd.concat([old[old["step"] < 50], rows[rows["step"] >= 50]])
    assert (with_near(mixed)["metric"] == "near").sum() == (rows["metric"] == "near").sum()
    # a part is missing: nothing to add
    assert len(with_near(old[old["metric"] != "next"])) == len(old[old["metric"] != "next"])
    with pytest.raises(EmbryoError, match="unknown metric of attention 'diagonal'"):
        onset(rows, "diagonal")


def test_onset_orders_layers_and_widens_with_seeds():

    from embryo.ground.rows import row_frame

    ramp = lambda layer, turn, seed: [
        dict(layer=layer, step=s, seed=seed, value=0.1 + 0.3 * (s >= turn), stderr=0.001, group="all")
        for s in range(0, 100, 10)
    ]
    rows = row_frame(
        [r for l, t in ((1, 70), (2, 50), (8, 20)) for seed in range(3) for r in ramp(l, t + 10 * (seed == 2), seed)],
        evaluator="attention",
        metric="near",
        family="albert",
        l1="english",
    )
    o = onset(rows)
    assert o["layer"].tolist() == [8, 2, 1] and o["seeds"].tolist() == [3, 3, 3]
    np.testing.assert_allclose(o["step"], [15 + 10 / 3, 45 + 10 / 3, 65 + 10 / 3])
    assert ((o["low"] < o["step"]) & (o["step"] < o["high"])).all() and (o["low"] >= 0).all()
    one = onset(rows[rows["seed"] == 0])
    # one seed: of the windows alone
    assert ((one["low"] < one["step"]) & (one["step"] < one["high"])).all() and (
        one["high"] - one["low"] < (o["high"] - o["low"])
    ).all()
    with pytest.raises(EmbryoError, match="at least two steps"):
        onset(rows, group="7")
