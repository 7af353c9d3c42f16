"""Ages of acquisition: from hidden words to the age of each, on models and curves whose truth is known."""

import copy
import gzip
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import spearmanr

from embryo.evaluation.annotations.folders import read
from embryo.evaluation.asking import examine
from embryo.evaluation.evaluators import Asked, load_checkpoint
from embryo.evaluation.words.surprisals import surprisals, word_surprisals, words_to_ask
from embryo.evaluation.words.words import placed_words, word_hits
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import row_frame
from embryo.micro.made_up_ages import made_up_stages, made_up_surprisals
from embryo.models.given import open_series
from embryo.models.models import mlm_head
from embryo.results.acquisition.ages import STATES, ages, crossing, left_out, mean_ages, sigmoid, word_age
from embryo.results.acquisition.drawings import laid_out, relation_table, word_ages
from embryo.results.acquisition.families import ages_by_run, agreement, agreement_table, caption_of, word_pairs
from embryo.results.acquisition.relations import class_share, published_ages, relations, told_words
from embryo.results.acquisition.stages import divergences, stage_at, stages
from embryo.results.figures import draw, figures_of

STEPS = np.unique(np.logspace(1, 5, 20).astype(int))
LOG = np.log10(STEPS)


@pytest.fixture(scope="module")
def asked(lab):
    "The last checkpoint of the small series, and its test sentences."
    series = open_series(f"{lab['series']}/albert-english-s0")
    return load_checkpoint(series, 4), read(lab["data"] + "/probing_gum/test.jsonl.gz")


# ---- the pass


def test_surprisals_agree_with_a_plain_loop(asked):
    checkpoint, sentences = asked
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    words, wins = placed_words(model, tokenizer, sentences[:6])
    every = words_to_ask(words, contexts=1, pieces=0)
    got = word_surprisals(model, tokenizer, every, wins, max_tokens=64)
    assert (every["pieces"] > 1).any()
    for nats, w in zip(got, every.itertuples()):
        here = slice(w.start, w.start + w.pieces)
        ids = torch.tensor(wins[w.window])[None]
        gold = ids[0, here].clone()
        ids[0, here] = tokenizer.mask_token_id
        with torch.inference_mode():
            p = model.eval()(ids).logits[0, here].log_softmax(-1)
        assert nats == pytest.approx(-p.gather(1, gold[:, None]).sum().item(), abs=1e-4)


def test_a_model_without_preference_is_at_chance(asked):
    checkpoint, sentences = asked
    model = copy.deepcopy(checkpoint.model)
    with torch.no_grad():
        head = mlm_head(model)
        for p in (head.decoder.weight, head.decoder.bias, head.bias):
            p.zero_()
    rows = surprisals(model, checkpoint.tokenizer, sentences, contexts=8)
    level = rows.loc[rows["metric"] == "chance", "value"].item()
    assert level == pytest.approx(math.log(len(checkpoint.tokenizer)))
    assert rows.loc[rows["metric"] == "surprisal", "value"].to_numpy() == pytest.approx(level, abs=1e-4)


def test_evaluator_gives_a_line_a_word(asked, lab):
    checkpoint, sentences = asked
    given = Asked(sentences, split="s", options=dict(surprisals=dict(contexts=10, most=12)))
    rows = examine(checkpoint, given, ["surprisals"])
    own = rows[rows["metric"] == "surprisal"]
    assert own["group"].is_unique and own["n"].between(10, 12).all() and (rows["split"] == "s").all()
    hits = word_hits(checkpoint.model, checkpoint.tokenizer, sentences, True)
    one = hits[(hits["pieces"] == 1)].groupby("type").size()
    assert len(own) == (one >= 10).sum()


def test_word_hits_still_ask_every_word_once(asked):
    checkpoint, sentences = asked
    for masked in (False, True):
        hits = word_hits(checkpoint.model, checkpoint.tokenizer, sentences[:20], masked)
        other = word_hits(checkpoint.model, checkpoint.tokenizer, sentences[:20], masked, max_tokens=64)
        assert hits["hit"].notna().all()
        pd.testing.assert_frame_equal(hits, other)


# ---- the age


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("middle", [1.8, 3.0, 4.2])
def test_known_ages_are_recovered(noise, middle):
    rng = np.random.default_rng(0)
    clean = sigmoid(LOG, 9, 2, middle, 0.25)
    truth = crossing((9, 2, middle, 0.25), (9 + clean.min()) / 2)
    assert truth == pytest.approx(middle, abs=0.03)
    off = []
    for _ in range(10):
        found = word_age(STEPS, clean + noise * rng.standard_normal(len(LOG)), chance=9.0)
        assert found["state"] == "learned"
        off.append(found["age"] - truth)
    assert np.abs(off).max() < 0.02 + 0.3 * noise and abs(np.mean(off)) < 0.01 + 0.1 * noise


def test_untrained_surprisal_above_chance_does_not_move_the_cutoff():
    "The cutoff lies between chance and the lowest value, whatever the model said at first."
    y = sigmoid(LOG, 14, 2, 3.0, 0.25)
    found = word_age(STEPS, y, chance=10.0)
    assert found["cutoff"] == pytest.approx((10 + y.min()) / 2)
    assert found["age"] == pytest.approx(crossing((14, 2, 3.0, 0.25), found["cutoff"]), abs=1e-3)
    assert found["age"] > 3.0


def test_published_age_follows_from_its_fit():
    "The word `about` of Chang and Bergen's BERT (bits; vocabulary of 30,000)."
    fit = (18.2564144201504, 1.19500269938226, 3.14818248512224, 0.643321179271861)
    cutoff = (math.log2(30_000) + 1.16317868232727) / 2
    assert cutoff == pytest.approx(8.01792678129894, abs=1e-4)
    assert crossing(fit, cutoff) == pytest.approx(3.40928454132871, abs=1e-4)


@pytest.mark.parametrize(
    "state, curve",
    [
        ("flat", 9 + 0 * LOG),
        ("flat", sigmoid(LOG, 9, 8.6, 3, 0.25)),  # less than a bit
        ("flat", sigmoid(LOG, 4, 9, 3, 0.25)),  # it rises
        ("earlier", sigmoid(LOG, 9, 2, 0.3, 0.25)),  # hardly falls any more
        ("earlier", sigmoid(LOG, 9, 2, 0.8, 0.25)),
        ("later", sigmoid(LOG, 14, 8, 5.2, 0.15)),
    ],
)
def test_words_without_an_age(state, curve):
    found = word_age(STEPS, curve + 0.05 * np.random.default_rng(1).standard_normal(len(LOG)), chance=9.0)
    assert found["state"] == state and np.isnan(found["age"])


def test_flat_words_are_left_out_and_counted():
    rows, truth = made_up_surprisals(words=20, flat=4, seeds=2)
    found = ages(rows)
    assert left_out(found)[list(STATES)].to_numpy().tolist() == [[20, 4, 0, 0]] * 2
    each = mean_ages(found)
    assert set(each["word"]) == set(truth.index)
    assert (each["age"] - each["word"].map(truth)).abs().max() < 0.15


def test_a_word_needs_every_run():
    rows, truth = made_up_surprisals(words=8, flat=1, seeds=2)
    late = (rows["seed"] == 1) & (rows["group"] == truth.index[0]) & (rows["metric"] == "surprisal")
    rows.loc[late, "value"] = 9.0
    assert set(mean_ages(ages(rows))["word"]) == set(truth.index[1:])


def test_bad_rows_are_told():
    rows, _ = made_up_surprisals(words=3, flat=0, seeds=1)
    with pytest.raises(EmbryoError, match="no rows with evaluator=surprisals"):
        ages(row_frame([]))
    with pytest.raises(EmbryoError, match="a sigmoid needs 6"):
        ages(rows[rows["step"] < 40])


# ---- what goes with it


def test_relations_find_what_was_made():
    rows, truth = made_up_surprisals(words=50, flat=0, seeds=1)
    words = told_words(mean_ages(ages(rows)), published=truth)
    r = relations(words).set_index(["how", "what"])
    assert r.loc[("spearman", "frequency"), "high"] < -0.5
    assert r.loc[("spearman", "published"), "low"] > 0.95
    assert r.loc[("spearman", "length"), "low"] < 0 < r.loc[("spearman", "length"), "high"]
    assert r.loc[("coefficient", "frequency"), "high"] < -0.5
    shuffled = words.assign(age=np.random.default_rng(0).permutation(words["age"]))
    r = relations(shuffled).set_index(["how", "what"])
    assert r.loc[("spearman", "frequency"), "low"] < 0 < r.loc[("spearman", "frequency"), "high"]


def test_class_share_of_classes_that_mean_nothing():
    rng = np.random.default_rng(0)
    found = [class_share(rng.standard_normal(60), rng.integers(0, 4, 60)) for _ in range(300)]
    assert np.mean(found) == pytest.approx(0, abs=0.01)  # and not 3 / 59


def test_published_ages(tmp_path):
    table = "Token\tLmAoA\na\t2.88\nnone\t3.4\nNA\t3\nrooster\t6\n"
    (tmp_path / "bert_aoa.tsv.gz").write_bytes(gzip.compress(table.encode()))
    assert published_ages(tmp_path).to_dict() == {"a": 2.88, "none": 3.4, "NA": 3.0}
    with pytest.raises(EmbryoError, match="there are ages of bert"):
        published_ages(tmp_path, "gpt2")
    rows, truth = made_up_surprisals(words=12, flat=0, seeds=1)
    lines = "".join(f"{w}\t{a}\n" for w, a in truth.items())
    (tmp_path / "bert_aoa.tsv.gz").write_bytes(gzip.compress(f"Token\tLmAoA\n{lines}".encode()))
    assert word_ages(rows, published=tmp_path)["published"].notna().all()
    table = laid_out(relation_table(rows, published=tmp_path))
    assert "rank correlation with the published age" in set(table[""])


# ---- stages


def test_stages_are_recovered():
    d = divergences(made_up_stages(nearest=(200, 5000)))
    s = stages(d).set_index("reference")
    assert s.loc["unigram", "low"] < 200 < s.loc["unigram", "high"]
    assert s.loc["bigram", "low"] < 5000 < s.loc["bigram", "high"]
    assert [stage_at(k, stages(d)) for k in (50, 1000, 90_000)] == ["unigram", "bigram", "beyond"]
    begun = stages(d[d["step"] <= 100])
    assert begun["step"].isna().all() and stage_at(100, begun) == "unigram"


# ---- figures


# ---- two families


@pytest.fixture(scope="module")
def families():
    "Rows of four runs of the same words: two of BERT, two of ALBERT."
    rows, _ = made_up_surprisals(seeds=4, noise=0.4)
    return rows.assign(family=rows["family"].where(rows["seed"] < 2, "albert"))


def test_agreement_is_the_mean_over_pairs_of_runs(families):
    d = agreement_table(families).set_index("of")
    wide = ages(families).pivot_table(index="word", columns=["family", "seed"], values="age").dropna()
    by_hand = lambda a, b: spearmanr(wide[a], wide[b]).statistic
    bert, albert = [("bert", 0), ("bert", 1)], [("albert", 2), ("albert", 3)]
    between = np.mean([by_hand(a, b) for a in bert for b in albert])
    within = [by_hand(*bert), by_hand(*albert)]
    assert d.loc[["bert", "albert"], "value"].tolist() == pytest.approx(within)
    assert d.loc["between", "value"] == pytest.approx(between) and d.loc["between", "pairs"] == 4
    assert d.loc["corrected", "value"] == pytest.approx(between / np.sqrt(within[0] * within[1]))
    assert set(d["n"]) == {len(wide)} and (d["low"] < d["value"]).all() and (d["value"] < d["high"]).all()


def test_a_word_that_one_run_did_not_learn_is_left_out(families):
    found = ages(families)
    word = found.loc[found["state"] == "learned", "word"].iloc[0]
    lost = found.assign(age=found["age"].mask((found["word"] == word) & (found["seed"] == 3)))
    assert len(ages_by_run(lost)) == len(ages_by_run(found)) - 1
    assert word in set(word_pairs(families)["word"])


def test_agreement_says_what_it_cannot(families):
    one = families[families["seed"] > 0]  # one BERT: nothing is known of its seeds
    assert agreement_table(one)["of"].tolist() == ["albert", "between", "albert held", "between held"]
    few = ages_by_run(ages(families)).head(5)
    assert agreement(few, pd.Series(dtype=float))["value"].isna().all()
    with pytest.raises(EmbryoError, match="bert asked, bert to be compared; expected two of those asked"):
        word_pairs(families[families["family"] == "bert"])
    three = pd.concat([families, families.assign(family="electra")])
    with pytest.raises(EmbryoError, match="albert, bert, electra asked"):
        agreement_table(three)
    assert "ALBERT: " in caption_of(word_pairs(three, families=("albert", "electra")))


def test_every_figure_is_drawn(tmp_path, families):
    rows = pd.concat([made_up_surprisals()[0], made_up_stages()], ignore_index=True)
    for name in figures_of("x_ages"):
        of_two = name in ("x_ages_fig4", "x_ages_table3")
        draw(name, families if of_two else rows, tmp_path, "Made-up rows")
    plt.close("all")
    made = {p.name for p in tmp_path.iterdir()}
    assert {"x_ages_fig1.png", "x_ages_fig2.csv", "x_ages_fig3.pdf", "x_ages_table1.md", "x_ages_table2.tex"} <= made
    assert {"x_ages_fig4.png", "x_ages_table3.md"} <= made
