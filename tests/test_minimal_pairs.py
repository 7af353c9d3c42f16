"""Minimal pairs: held against a plain loop and an outside scorer, ties, batches, intervals, the way into a batch."""

import copy
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

from embryo.evaluation.minimal_pairs.grammar import PairConfig, judge, minimal_pairs, pair_rows
from embryo.evaluation.minimal_pairs.pairs import PAIR_COLUMNS, read_blimp, read_suite
from embryo.evaluation.minimal_pairs.scoring import VARIANTS, encode, gap_scores, gaps_of, score_texts
from embryo.ground.errors import EmbryoError

DATA = Path(os.environ.get("EMBRYO_DATA") or "/nonexistent")
WORDS = "the a is are dog cat dogs cats sees see old . , sou ##ven ##ir".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def tokenizer():
    "A WordPiece that knows few words, so that most have several pieces."
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *WORDS, *LETTERS, *("##" + c for c in LETTERS)]
    t = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="<unk>"))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = dict(cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>")
    return PreTrainedTokenizerFast(tokenizer_object=t, **names)


def untrained(family, n, **more):
    "A model whose answers differ much."
    torch.manual_seed(3)
    size = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=n)
    size |= dict(pad_token_id=1, initializer_range=0.3, max_position_embeddings=120) | more
    if family == "albert":
        return AlbertForMaskedLM(AlbertConfig(embedding_size=16, **size))
    if family == "bert":
        return BertForMaskedLM(BertConfig(**size))
    return RobertaForMaskedLM(RobertaConfig(**size))


def table(good, bad):
    "Pairs of sentences as a suite of one paradigm."
    about = dict(suite="toy", field="syntax", phenomenon="agreement", paradigm="verb", pair=range(len(good)))
    return pd.DataFrame(dict(about, good=good, bad=bad))[PAIR_COLUMNS]


@pytest.fixture(scope="module")
def pairs():
    "200 made-up pairs of 2 to 9 words, the second with one word changed."
    rng = np.random.default_rng(7)
    words = "the a dog cat dogs is are sees souvenir old zebra quilt , .".split()
    good, bad = [], []
    for _ in range(200):
        one = rng.choice(words, rng.integers(2, 10)).tolist()
        two = list(one)
        two[rng.integers(len(two))] = str(rng.choice(words))
        good.append(" ".join(one))
        bad.append(" ".join(two))
    return table(good, bad)


def plain(model, tokenizer, text, variant):
    "The definition: one piece, one forward pass of the whole model, one term."
    model.eval()
    pieces = tokenizer.tokenize(text)
    ids = [0, *tokenizer.convert_tokens_to_ids(pieces), 2]
    total = 0.0
    for i, gold in enumerate(ids[1:-1], 1):
        x = torch.tensor([ids])
        x[0, i] = tokenizer.mask_token_id
        if variant == "word-l2r":
            for k in range(i + 1, len(ids) - 1):
                if not pieces[k - 1].startswith("##"):
                    break
                x[0, k] = tokenizer.mask_token_id
        with torch.no_grad():
            total += torch.log_softmax(model(input_ids=x).logits[0, i], -1)[gold].item()
    return total


@pytest.mark.parametrize("family", ["albert", "bert", "roberta"])
def test_equals_a_plain_loop_on_200_pairs(family, tokenizer, pairs):
    model = untrained(family, len(tokenizer))
    judged = judge(model, tokenizer, pairs)
    different = set()
    for variant in VARIANTS:
        d = judged[judged["variant"] == variant]
        for side in ("good", "bad"):
            want = [plain(model, tokenizer, text, variant) for text in pairs[side]]
            np.testing.assert_allclose(d[f"score_{side}"], want, atol=1e-4, rtol=0)
            different.add(round(sum(want), 3))
        same = (pairs["good"] == pairs["bad"]).to_numpy()
        assert (d["win"].to_numpy()[same] == 0.5).all() and same.any()
    assert len(different) == 4  # the variants differ, and so do the two sides


def scored_outside(model, tokenizer, texts, variant):
    "Pseudo-log-likelihoods by minicons (Misra 2022), nats."
    scorer = pytest.importorskip("minicons.scorer", reason="minicons, an outside scorer, is not installed")
    if not hasattr(tokenizer, "batch_encode_plus"):  # gone with transformers 5
        tokenizer.batch_encode_plus = tokenizer.__call__
    judge = scorer.MaskedLMScorer(model, "cpu", tokenizer=tokenizer)
    metric = {"pll": "original", "word-l2r": "within_word_l2r"}[variant]
    found = []
    for first in range(0, len(texts), 20):
        some = texts[first : first + 20]
        found += judge.sequence_score(some, reduction=lambda x: x.sum(0).item(), PLL_metric=metric)
    return np.array(found)


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_an_outside_scorer_on_made_up_pairs(variant, tokenizer, pairs):
    ends = [("<s>", 0), ("</s>", 2)]
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=ends
    )
    model = untrained("bert", len(tokenizer)).eval()
    texts = [*pairs["good"], *pairs["bad"]]
    theirs = scored_outside(model, tokenizer, texts, variant)
    assert np.abs(score_texts(model, tokenizer, texts, (variant,))[variant] - theirs).max() < 1e-3


@pytest.mark.skipif(
    not ((DATA / "blimp").is_dir() and (DATA / "public_model").is_dir()),
    reason="set EMBRYO_DATA to a data folder with blimp/ and public_model/",
)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_an_outside_scorer_on_201_pairs_of_blimp(variant):
    "Three pairs of each paradigm, and a BERT that others have trained."
    model = BertForMaskedLM.from_pretrained(DATA / "public_model").eval()
    tokenizer = AutoTokenizer.from_pretrained(DATA / "public_model")
    read = [pair for file in sorted((DATA / "blimp").glob("*.jsonl*")) for pair in read_blimp(file)[:3]]
    texts = [pair[which] for pair in read for which in ("good", "bad")]
    assert len(texts) == 402
    ours = score_texts(model, tokenizer, texts, (variant,))[variant].to_numpy()
    theirs = scored_outside(model, tokenizer, texts, variant)
    assert np.abs(ours - theirs).max() < 1e-3
    assert ((ours[::2] > ours[1::2]) == (theirs[::2] > theirs[1::2])).all()


def test_batch_size_has_no_influence(tokenizer, pairs):
    model = untrained("bert", len(tokenizer))
    some = pairs[::5]
    texts = [*some["good"], *some["bad"]]
    ids, words = encode(tokenizer, texts)
    longest = max(map(len, ids))
    for variant in VARIANTS:
        gaps = gaps_of(words, variant)
        alone, many = (gap_scores(model, tokenizer, ids, gaps, k * longest) for k in (1 / longest, 64))
        np.testing.assert_allclose(alone, many, atol=1e-5, rtol=0)
    small, large = (judge(model, tokenizer, some, max_tokens=k)["win"] for k in (1, 64 * longest))
    assert small.equals(large)


def test_the_rest_of_a_word_is_hidden_from_left_to_right(tokenizer):
    "A word of three pieces by hand: what stands hidden while each of them is asked for."
    ids, words = encode(tokenizer, ["The souvenir is old."])
    hidden = {(at, end) for _, at, end in gaps_of(words, "word-l2r")}
    assert tokenizer.convert_ids_to_tokens(ids[0].tolist())[2:5] == ["sou", "##ven", "##ir"]
    assert hidden == {(1, 2), (2, 5), (3, 5), (4, 5), (5, 6), (6, 7), (7, 8)}
    model = untrained("roberta", len(tokenizer)).eval()
    mask = tokenizer.mask_token_id
    total = 0.0
    for at, seen in ((2, []), (3, [2]), (4, [2, 3])):
        x = torch.tensor(ids[0])[None]
        x[0, [k for k in (2, 3, 4) if k not in seen]] = mask
        with torch.no_grad():
            total += torch.log_softmax(model(input_ids=x).logits[0, at], -1)[ids[0][at]].item()
    gaps = np.array([[0, 2, 5], [0, 3, 5], [0, 4, 5]])
    assert gap_scores(model, tokenizer, ids, gaps).sum() == pytest.approx(total, abs=1e-4)


def test_words_are_the_same_for_a_tokenizer_that_joins_punctuation():
    "A piece that begins with its space belongs to the word behind it; a full stop is a word of its own."
    from embryo.evaluation.minimal_pairs.scoring import word_numbers

    text = "He can't sleep ."
    assert word_numbers(text, [(0, 2), (2, 6), (6, 7), (7, 8), (8, 12), (12, 14), (14, 16)]).tolist() == [
        0, 1, 2, 3, 4, 4, 5,
    ]  # fmt: skip


def test_ties_count_half_and_are_counted(tokenizer, pairs):
    model = untrained("roberta", len(tokenizer))
    with torch.no_grad():
        for w in (model.lm_head.decoder.weight, model.lm_head.bias):
            w.zero_()
    alike = table(["the dog is old", "the cat sees a dog"], ["the dog are old", "the cat sees a souvenir"])
    rows = pair_rows(judge(model, tokenizer, alike, ("pll",))).query("task == 'pll-all'").set_index("metric")
    # all pieces are equally good: the first pair is a tie, of the second the sentence with fewer pieces wins
    assert rows.loc["accuracy", "value"] == 0.75 and rows.loc["tie_rate", "value"] == 0.5


def test_no_interval_is_without_width_and_levels_add_up(tokenizer, pairs):
    model = untrained("roberta", len(tokenizer))
    both = pd.concat([pairs, pairs.assign(paradigm="other", field="")])
    judged = judge(model, tokenizer, both, ("word-l2r",))
    rows = pair_rows(judged).query("metric == 'accuracy'").set_index(["task", "group"])
    assert (rows["stderr"] > 0).all()
    assert rows.loc[("word-l2r-field", "syntax"), "n"] == 200 and len(rows.loc["word-l2r-paradigm"]) == 2
    # the same pairs twice say nothing new
    once = rows.loc[("word-l2r-paradigm", "verb")]
    twice = rows.loc[("word-l2r-all", "all")]
    assert (twice["value"], twice["n"]) == (once["value"], 400)
    assert twice["stderr"] == pytest.approx(once["stderr"], rel=1e-6)


def test_a_sentence_that_does_not_fit_is_left_out_and_counted(tokenizer):
    model = untrained("bert", len(tokenizer), max_position_embeddings=8)
    long = table(["the dog is old", "the dog is old"], ["the dog are old", "the " * 9])
    rows = pair_rows(judge(model, tokenizer, long, ("pll",))).query("task == 'pll-all'").set_index("metric")
    assert rows.loc["skipped_pairs", "value"] == 1 and rows.loc["accuracy", "n"] == 1
    assert score_texts(model, tokenizer, ["the " * 9])["pll"].isna().all()


def test_a_half_precision_model_is_scored_in_fp32(tokenizer, pairs):
    model = untrained("bert", len(tokenizer)).bfloat16()
    texts = pairs["good"][:20].tolist()
    with torch.autocast("cpu", torch.bfloat16):
        found = score_texts(model, tokenizer, texts)
    want = score_texts(untrained("bert", len(tokenizer)).bfloat16().float(), tokenizer, texts)
    pd.testing.assert_frame_equal(found, want)


def test_the_micro_world_breaks_one_rule_a_pair(lab):
    "The generated suite: the layout of BLiMP, all pairs different, what is right never in the place of what is wrong."
    from embryo.micro.tasks.grammar import PARADIGMS

    pairs = read_suite(lab["data"] + "/blimp")
    assert set(pairs["paradigm"]) == set(PARADIGMS) and pairs["phenomenon"].nunique() == 6
    assert (pairs["good"] != pairs["bad"]).all() and not pairs.duplicated(["good", "bad"]).any()
    assert not set(pairs["good"]) & set(pairs["bad"])


def test_the_right_sentences_agree(lab):
    "By the numbers of the lexicon, not by how pairs are made: a verb in -s stands behind a singular."
    from embryo.micro.english.lexicon import nouns
    from embryo.micro.tasks.single import THIRD

    number = {n.sg: "s" for n in nouns} | {n.pl: "p" for n in nouns}
    pairs = read_suite(lab["data"] + "/blimp")
    pairs = pairs[pairs["phenomenon"] == "subject_verb_agreement"]
    assert len(pairs) == 4 * 8
    for p in pairs.itertuples():
        good, bad = p.good.split(), p.bad.split()
        (at,) = [i for i, (x, y) in enumerate(zip(good, bad)) if x != y]
        assert (good[at] in THIRD) == (number[good[1]] == "s") and (bad[at] in THIRD) != (good[at] in THIRD), p


def test_an_evaluator_by_its_name(lab):
    "Options of a profile reach it; a suite that is not there is named."
    from embryo.evaluation.asking import examine
    from embryo.evaluation.evaluators import Asked, load_checkpoint
    from embryo.models.given import open_series

    checkpoint = load_checkpoint(open_series(lab["series"] + "/albert-english-s0"), 4)
    asked = Asked(pairs=dict(blimp=lab["data"] + "/blimp"))
    asked.options = dict(minimal_pairs=dict(most=3, variants=["pll"]))
    rows = examine(checkpoint, asked, ["minimal_pairs"])
    assert set(rows["split"]) == {"blimp"} and set(rows["evaluator"]) == {"minimal_pairs"}
    assert rows.query("task == 'pll-all' and metric == 'accuracy'")["n"].item() == 3 * 12
    asked.options = dict(minimal_pairs=dict(suites=["zorro"]))
    with pytest.raises(EmbryoError, match="unknown suite of minimal pairs 'zorro'"):
        examine(checkpoint, asked, ["minimal_pairs"])
    asked.options = dict(minimal_pairs=dict(many=3))
    with pytest.raises(EmbryoError, match="unknown setting 'many'"):
        examine(checkpoint, asked, ["minimal_pairs"])
    with pytest.raises(EmbryoError, match="minimal_pairs reads pairs, and there are none"):
        examine(checkpoint, Asked(), ["minimal_pairs"])


def test_steps_of_a_series_from_the_command_line(lab, run, tmp_path):
    from embryo.ground.rows import read_rows

    series, sentences = lab["series"] + "/albert-english-s0", lab["data"] + "/probing_gum/test.jsonl.gz"
    out = tmp_path / "rows.csv"
    wanted = ("--evaluators", "minimal_pairs", "--out", out)
    code, _, err = run("embryo_examine", series, sentences, "--data", lab["data"], *wanted)
    assert code == 0, err
    rows = read_rows(out)
    assert rows["step"].nunique() == 3 and set(rows["evaluator"]) == {"minimal_pairs"}
    code, _, err = run("embryo_examine", series, sentences, *wanted)
    assert code and "blimp (minimal_pairs)" in err
    code, _, err = run("embryo_examine", series, sentences, "--data", lab["data"], "--suites", "zorro", *wanted)
    assert code and "zorro: no minimal pairs here" in err


def test_checkpoints_have_the_same_pairs(lab):
    "Which pairs are taken does not depend on the model."
    few = read_suite(lab["data"] + "/blimp", 3)
    again = read_suite(lab["data"] + "/blimp", 3)
    assert few.equals(again) and (few.groupby("paradigm").size() == 3).all()
    assert PairConfig().most == 200


def test_scores_of_a_lab_model_are_rows(lab):
    from embryo.models.given import open_series

    series = open_series(lab["series"] + "/albert-english-s0")
    rows = minimal_pairs(*series.load(4), [lab["data"] + "/blimp"])
    assert rows.query("metric == 'accuracy'")["value"].between(0, 1).all()
    assert set(rows["task"].str.rsplit("-", n=1).str[1]) == {"all", "field", "phenomenon", "paradigm"}


def test_a_batch_names_the_suites_to_those_who_are_asked_for_pairs(tmp_path):
    "Nodes without the evaluator are as they were, so that nothing of theirs is made again."
    from conftest import ROOT

    from embryo.batch.plan import Plan

    micro = (ROOT / "nbs/profiles/micro.toml").read_text()
    nodes = Plan("micro", root=tmp_path).nodes
    asked = nodes["examine/albert-english-s0-step1480"].params
    assert {k: v.rpartition("/")[2] for k, v in asked["pairs"].items()} == {"blimp": "blimp"}
    assert asked["options"]["minimal_pairs"] == {"suites": ["blimp"], "most": 60}
    (tmp_path / "less.toml").write_text(micro.replace(', "minimal_pairs"', ""))
    less = Plan(tmp_path / "less.toml", root=tmp_path).nodes["examine/albert-english-s0-step1480"].params
    assert "pairs" not in less
    (tmp_path / "wrong.toml").write_text(micro.replace('suites = ["blimp"]', 'suite = "blimp"'))
    with pytest.raises(EmbryoError, match=r"examine.minimal_pairs.*unknown setting 'suite'; did you mean suites"):
        Plan(tmp_path / "wrong.toml", root=tmp_path)


def test_the_figure_shows_chance_and_every_phenomenon():
    from embryo.ground.rows import row_frame
    from embryo.results.grown.minimal import grammar_data, plot_grammar

    about = dict(family="bert", l1="english", seed=0, split="blimp", metric="accuracy", n=100, stderr=0.05)
    made = [
        dict(about, task=task, group=group, step=step, value=0.5 + step / 1000)
        for step in (0, 100, 400)
        for task, group in (("pll-all", "all"), ("pll-phenomenon", "case"), ("pll-paradigm", "case_object"))
    ]
    data = grammar_data(row_frame(made, evaluator="minimal_pairs"))
    assert set(data["phenomenon"]) == {"all", "case"} and (data["high"] <= 1).all()
    fig = plot_grammar(data)
    assert [ax.get_title() for ax in fig.axes] == ["all", "case"]
    for ax in fig.axes:
        curve, chance = ax.lines
        assert curve.get_ydata().tolist() == [0.5, 0.6, 0.9] and set(chance.get_ydata()) == {0.5}
        assert len(ax.collections) == 1  # the band
