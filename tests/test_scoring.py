"""Honest scoring: fp32, ties, n, standard error and a trivial predictor beside every score - on models and logits
whose right scores are known by hand."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from embryo.evaluation.attention import attention_rows, near_rows
from embryo.evaluation.knowledge.facts import ask, fact_hits, rank_scores
from embryo.evaluation.knowledge.lama import read_lama, single_pieces
from embryo.evaluation.probing.probe import layer_scores, probe
from embryo.evaluation.probing.probes import probe_answers, probe_said
from embryo.evaluation.probing.targets import ProbeConfig, read_tasks
from embryo.evaluation.squad.reader import best_spans, finetune_squad, read_spans
from embryo.evaluation.squad.scores import squad_rows, trivial_squad
from embryo.evaluation.squad.squad import SquadConfig, read_squad_folder
from embryo.evaluation.squad.windows import squad_windows
from embryo.evaluation.tasks.batches import encode
from embryo.evaluation.tasks.finetune import finetune, load_body, new_classifier, predict, predict_logits
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.scores import (
    answers,
    cell_scores,
    confusion,
    measure,
    score_rows,
    standard_error,
    tie_rate,
)
from embryo.evaluation.tasks.settings import FinetuneConfig
from embryo.evaluation.tasks.tasks import METRICS, TASKS, Task
from embryo.evaluation.tasks.trivial import trivial_rows
from embryo.evaluation.words.windows import tokenize_words
from embryo.evaluation.words.words import hit_rows, mask_predict, reconstruct, top_share, word_hits
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import share_error
from embryo.models.models import mlm_head


@pytest.fixture(scope="module")
def made(lab):
    "Model, tokenizer and tagged sentences of the little laboratory."
    from embryo.evaluation.annotations.folders import read
    from embryo.models.given import open_series

    m, t = open_series(Path(lab["series"]) / "albert-english-s0").load(4)
    return m, t, read(Path(lab["data"]) / "probing_gum/test.jsonl.gz")


def constant(model, logits):
    "The same model, saying the same logits everywhere: no weights, only biases."
    import copy

    m = copy.deepcopy(model)
    head = mlm_head(m)
    with torch.no_grad():
        # no longer tied to the embeddings
        head.decoder.weight.data = torch.zeros_like(head.decoder.weight)
        for b in {id(b): b for b in (getattr(head, "bias", None), head.decoder.bias) if b is not None}.values():
            b.copy_(logits)
    return m


def draws(logits, right, n=20_000, seed=0):
    "Slow and independent: break ties by coins."
    rng = np.random.default_rng(seed)
    out = 0
    for _ in range(n):
        best = [i for i, x in enumerate(logits) if x == max(logits)]
        out += rng.choice(best) == right
    return out / n


# ---- ties
# --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "logits,right,score",
    [
        ([1, 2], 1, 1),
        ([2, 2], 0, 0.5),
        ([2, 2], 1, 0.5),
        ([2, 2, 2, 1], 2, 1 / 3),
        ([2, 2, 1], 2, 0),
        ([0, 0, 0, 0], 3, 0.25),
        ([5], 0, 1),
        ([1, 2], -1, 0),
        ([2, 2], -1, 0),
    ],
)
def test_a_tie_of_two_counts_one_half(logits, right, score):
    "Word for word by hand, and by coins; the same in words, probes, tasks and facts."
    said, share, tied = top_share(torch.tensor([logits], dtype=torch.float32), torch.tensor([right]))
    assert (
        share.item() == pytest.approx(score)
        and said.item() == logits.index(max(logits))
        and tied.item() == (logits.count(max(logits)) > 1)
    )
    if right < 0:
        return
    if 0 < score < 1:
        assert draws(logits, right) == pytest.approx(score, abs=0.02)
    assert answers(np.array([logits], float), Task("x", "", "", "", tuple(map(str, range(len(logits)))), "accuracy"))[
        0, right
    ] == pytest.approx(score)
    ahead = sum(x > logits[right] for x in logits)
    same = sum(x == logits[right] for x in logits) - 1
    assert rank_scores(np.array([ahead]), np.array([same]))["p@1"][0] == pytest.approx(score)


def test_top_share_leaves_its_logits():
    x = torch.randn(5, 7)
    before = x.clone()
    top_share(x, torch.zeros(5, dtype=torch.long))
    assert torch.equal(x, before)


def test_words_of_a_model_without_opinion(made):
    "All pieces tied: a word of k pieces is right with V**-k; published takes the first piece and is never right."
    m, tok, sentences = made
    h = word_hits(constant(m, torch.zeros(len(tok))), tok, sentences[:4], True)
    asked = h.dropna(subset="hit")
    assert (
        np.allclose(asked["hit"], float(len(tok)) ** -asked["pieces"])
        and (asked["tied"] == 1).all()
        and (asked["first"] == 0).all()
    )
    r = hit_rows(h, "mask_predict").set_index(["task", "mode", "group", "metric"])["value"]
    assert r["all-words", "corrected", "all", "tie_rate"] == 1 and r[
        "all-words", "corrected", "all", "accuracy"
    ] == pytest.approx(asked["hit"].mean())
    assert (r.xs("published", level="mode").xs("accuracy", level="metric") == 0).all()


def test_words_of_two_favourites(made):
    "The two commonest words of one piece, equally liked, are right half of the time each."
    m, tok, sentences = made
    ids = tokenize_words(tok, [w for s in sentences for w in s["tokens"]])
    common = pd.Series([tuple(ids[w]) for s in sentences for w in s["tokens"] if len(ids[w]) == 1]).value_counts()
    a = common.index[0][0]
    b = common.index[1][0]
    bias = torch.zeros(len(tok))
    bias[[a, b]] = 3.0
    h = word_hits(constant(m, bias), tok, sentences, False).dropna(subset="hit")
    favourite = h["word"].map(lambda w: tuple(ids[w]) in ((a,), (b,)))
    assert (h.loc[favourite, "hit"] == 0.5).all() and (h.loc[~favourite, "hit"] == 0).all()
    assert h["first"].sum() == h["word"].map(lambda w: tuple(ids[w]) == (min(a, b),)).sum()


def test_bf16_ties_that_fp32_has_not(made):
    "Two logits that bf16 cannot tell apart: the score is that of fp32, under autocast and with weights in bf16."
    m, tok, sentences = made
    ids = tokenize_words(tok, [w for s in sentences for w in s["tokens"]])
    first, second = [x for x in sorted({i[0] for i in ids.values() if len(i) == 1})][:2]
    bias = torch.zeros(len(tok))
    bias[first], bias[second] = 8.0, 8.0 + 2**-8  # bf16 has 8 bits
    assert bias.bfloat16()[first] == bias.bfloat16()[second]
    c = constant(m, bias)
    want = word_hits(c, tok, sentences, True)
    with torch.autocast("cpu", torch.bfloat16):
        got = word_hits(c, tok, sentences, True)
    pd.testing.assert_frame_equal(got, want)
    assert want["tied"].sum() == 0 and (word_hits(c, tok, sentences, True, bf16=True)["tied"].max() in (0.0, 1.0))
    facts = [
        dict(relation="r", sub_label="x", obj_label=tok.convert_ids_to_tokens(i))
        for i in (first, second)
        if tok.convert_ids_to_tokens(i).isalpha()
    ]
    if facts:
        with torch.autocast("cpu", torch.bfloat16):
            f = fact_hits(c, tok, facts, {"r": "[X] is [Y] ."})
        assert (f["tied vocabulary"].dropna() == 0).all()


def test_classifier_under_autocast_scores_in_fp32(made):
    m, tok, _ = made
    task = TASKS["RTE"]
    model = new_classifier(*load_body((m, tok))[:2], task, FinetuneConfig(), 0)
    with torch.no_grad():
        model.classifier.weight.zero_()
        model.classifier.bias.copy_(torch.tensor([8.0, 8.0 + 2**-8]))
    coded = encode(pd.DataFrame(dict(text1=["a man ."] * 3, text2=["the man ."] * 3, label=0)), tok, model.config, 32)
    with torch.autocast("cpu", torch.bfloat16):
        logits = predict_logits(model, coded)
    assert (
        logits.dtype == np.float32
        and answers(logits, task).tolist() == [[0, 1]] * 3
        and tie_rate(answers(logits, task)) == 0
    )


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_task_metrics_with_ties(metric):
    "Accuracy is the mean over all ways to break the ties; F1 and Matthews are those of the mean confusion table."
    y = np.array([0, 1, 1, 0, 1])
    logits = np.array([[1.0, 0], [0, 1], [2, 2], [3, 3], [0, 1]])
    p = answers(logits, TASKS["CoLA"])
    ways = [np.r_[0, 1, a, b, 1] for a, b in itertools.product((0, 1), repeat=2)]
    cells = np.mean([np.bincount(2 * y + w, minlength=4) for w in ways], 0)
    want = np.mean([np.mean(w == y) for w in ways]) if metric == "accuracy" else cell_scores(cells)[metric]
    assert measure(metric, y, p) == pytest.approx(float(want)) and np.allclose(confusion(y, p), cells)
    assert standard_error(metric, y, p) > 0


def test_constant_classifier_and_constant_scores():
    "Chance, no correlation, and a tie rate of one that says why; never nan."
    y = np.array([0, 1, 1, 0, 1, 1])
    r = {x["metric"]: x for x in score_rows("CoLA", y, answers(np.zeros((6, 2)), TASKS["CoLA"]))}
    assert (r["accuracy"]["value"], r["matthews"]["value"], r["tie_rate"]["value"]) == (0.5, 0, 1) and r["accuracy"][
        "stderr"
    ] == pytest.approx((0.25 / 6) ** 0.5)
    r = {x["metric"]: x for x in score_rows("STS-B", np.arange(6) / 2, np.full(6, 2.5))}
    assert (r["spearman"]["value"], r["pearson"]["value"], r["tie_rate"]["value"]) == (0, 0, 1)
    r = {x["metric"]: x for x in score_rows("STS-B", np.arange(4) / 2, np.array([1.0, 2, 2, 3]))}
    # average ranks
    assert r["tie_rate"]["value"] == 0.5 and r["spearman"]["value"] == pytest.approx(
        np.corrcoef([0, 1, 2, 3], [0, 1.5, 1.5, 3])[0, 1]
    )


def shuffles(f, y, p, draws=3000):
    "Slow and independent: the spread of a correlation when one side is shuffled."
    rng = np.random.default_rng(0)
    return np.std([f(y, rng.permutation(p)) for _ in range(draws)])


@pytest.mark.parametrize("metric", ["pearson", "spearman", "matthews"])
def test_error_of_no_correlation(metric):
    "Answers that are all alike are printed as 0, with the spread that any answers without connection have."
    rng = np.random.default_rng(1)
    y, p = rng.integers(0, 2, (2, 80)) if metric == "matthews" else rng.standard_normal((2, 80))
    spread = shuffles(METRICS[metric], y, p)
    for n in (2, 80):
        for same in (0, 1):
            assert measure(metric, y[:n], np.full(n, same)) == 0
            assert standard_error(metric, y[:n], np.full(n, same)) == pytest.approx((n - 1) ** -0.5)
            assert standard_error(metric, np.full(n, same), p[:n]) == pytest.approx((n - 1) ** -0.5)
    assert spread == pytest.approx(standard_error(metric, y, np.full(80, 1)), rel=0.05)
    # the mean of 80 is rounded
    odd = np.zeros(80, int) if metric == "matthews" else np.full(80, 2.27)
    assert standard_error(metric, y, odd) == pytest.approx(79**-0.5)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
@pytest.mark.parametrize("shares", [False, True])
def test_no_error_is_zero(metric, shares):
    "All right, all wrong, all negative, all positive; one class; one example; and where the answer is open, as before."
    y = np.array([0, 1, 1, 0, 1, 1, 0, 1])
    for labels in (y, y * 0, y * 0 + 1, y[:1]):
        for said in (labels, 1 - labels, labels * 0, labels * 0 + 1):
            e = standard_error(metric, labels, np.eye(2)[said] if shares else said)
            assert 0 < e <= 1, (labels, said, e)
    long = np.tile(y, 50)
    # 400 right answers are more than eight
    assert standard_error(metric, long, long) < 0.02


def test_error_of_a_proportion_of_none_or_all():
    "Two right and two wrong answers more; everything else is binomial."
    assert [share_error(k, 96) for k in (0, 1)] == pytest.approx([(0.02 * 0.98 / 100) ** 0.5] * 2)
    assert share_error(0.25, 100) == pytest.approx((0.25 * 0.75 / 100) ** 0.5)
    r = {x["metric"]: x for x in score_rows("CoLA", np.array([0, 1] * 48), np.eye(2)[[0, 1] * 48])}
    assert (r["tie_rate"]["value"], r["tie_rate"]["stderr"]) == (0, share_error(0, 96))
    assert r["accuracy"]["stderr"] == share_error(1, 96)


def test_squad_without_variation():
    "The predictor that never answers is all wrong on one half and all right on the other, and certain of neither."
    df = pd.DataFrame(dict(answers=[["red"]] * 30 + [[]] * 20))
    r = squad_rows(df, [""] * 50).set_index(["task", "metric"])["stderr"]
    for m in ("exact", "f1", "mean"):
        assert (r["SQuAD2.0-HasAns", m], r["SQuAD2.0-NoAns", m]) == (share_error(0, 30), share_error(1, 20))
        # and a little more, for fifty questions
        assert r["SQuAD2.0", m] == pytest.approx((0.4 * 0.6 / 49) ** 0.5, rel=0.03)
    coin = squad_rows(df, ["red"] * 50, [""] * 50, [True] * 50).set_index(["task", "metric"])["stderr"]
    assert coin["SQuAD2.0", "exact"] == share_error(0.5, 50) and coin["SQuAD2.0", "tie_rate"] == share_error(1, 50)


def test_majority_of_equally_frequent_classes():
    data = {
        s: pd.DataFrame(dict(text1="", text2="", label=y))
        for s, y in dict(train=[0, 1, 0, 1], dev=[1, 1, 1, 0]).items()
    }
    r = trivial_rows(data, "RTE").set_index(["group", "metric"])["value"]
    assert (r["majority", "accuracy"], r["all-positive", "accuracy"]) == (0.5, 0.75)


def test_probes_with_ties():
    "Probes whose weights are zero: every label tied; the published mode says the first."
    table = torch.randn(6, 2, 3)
    rows = torch.arange(6)[:, None]
    gold = torch.tensor([[0, 2], [1, 1], [2, 0], [0, 0], [1, -1], [2, 2]])
    said, share, tied = probe_answers(torch.zeros(2, 4, 2, 3), table, rows, gold)
    assert (
        said.shape == (6, 2, 2)
        and (said == 0).all()
        and tied.all()
        and np.allclose(share, np.where(gold.numpy()[:, None] < 0, 0, 1 / 3).repeat(2, 1))
    )
    r = layer_scores(said, gold.numpy(), np.arange(6), [0, 1], share=share, tied=tied).set_index(
        ["group", "layer", "metric"]
    )["value"]
    assert (
        r["probe", 0, "micro_f1"] == pytest.approx(1 / 3)
        and r["control", 1, "micro_f1"] == pytest.approx(5 / 18)
        and r["probe", 1, "tie_rate"] == 1
    )
    first = layer_scores(said, gold.numpy(), np.arange(6), [0, 1]).set_index(["group", "layer", "metric"])["value"]
    assert first["probe", 0, "micro_f1"] == pytest.approx(2 / 6) and ("probe", 0, "tie_rate") not in first.index
    p = torch.randn(2, 4, 2, 3)
    said, share, tied = probe_answers(p, table, rows, gold)
    assert (
        torch.equal(torch.from_numpy(said), probe_said(p, table, rows))
        and ((share == 1) == (said == gold.numpy()[:, None])).all()
        and not tied.any()
    )


def test_facts_with_ties(made):
    m, tok, _ = made
    words = [w for w, i in sorted(tok.get_vocab().items()) if w.isalpha() and len(w) > 2 and single_pieces(tok, [w])][
        :4
    ]
    facts = [dict(relation="r", sub_label=f"x{k}", obj_label=w) for k, w in enumerate(words)]
    r = ask(constant(m, torch.zeros(len(tok))), tok, facts, {"r": "[X] is [Y] ."}).set_index(
        ["task", "group", "metric"]
    )
    assert (
        r.loc[("vocabulary", "all", "p@1"), "value"] == pytest.approx(1 / len(tok))
        and r.loc[("common", "all", "p@1"), "value"] == pytest.approx(1 / 4)
        and r.loc[("common", "all", "tie_rate"), "value"] == 1
    )
    assert r.loc[("facts", "all", "majority"), "value"] == pytest.approx(1 / 4)


def test_span_and_no_answer_tied():
    "Half of the span's score and half of no answer's; the official script would answer."
    df = pd.DataFrame(dict(answers=[["red"], []]))
    r = squad_rows(df, ["red", "red"], ["", ""], [True, True]).set_index(["task", "metric"])["value"]
    assert [r[t, "exact"] for t in ("SQuAD2.0-HasAns", "SQuAD2.0-NoAns", "SQuAD2.0")] == [0.5, 0.5, 0.5] and r[
        "SQuAD2.0", "tie_rate"
    ] == 1
    score, first, last, many = best_spans(
        torch.zeros(2, 2, 6), torch.tensor([[False, True, True, True, False, False], [False] * 6]), 2
    )
    assert many[0] == 3 + 2 and (first[0], last[0]) == (1, 1) and score[1] == float("-inf")


class Flat(torch.nn.Module):
    "A reader that finds everything equally good, or one thing better."

    def __init__(self, tok, model, best=None):
        super().__init__()
        self.config = model.config
        self.device = torch.device("cpu")
        self.best = best

    def forward(self, input_ids, **_):
        from types import SimpleNamespace

        x = torch.zeros(2, *input_ids.shape)
        if self.best is not None:
            x[:, :, self.best] = 1.0
        return SimpleNamespace(start_logits=x[0], end_logits=x[1])


def test_reader_without_opinion(made):
    m, tok, _ = made
    df = pd.DataFrame(
        dict(id=["a"], question=["the man"], context=["the red house and the man"], answers=[["red"]], starts=[[4]])
    )
    config = SquadConfig(max_length=40, max_query=8, doc_stride=8)
    windows = squad_windows(df, tok, m.config, config)
    said = read_spans(Flat(tok, m), *windows, df)
    assert said["tied"].tolist() == [True] and said["margin"].tolist() == [0]
    said = read_spans(Flat(tok, m, int(windows[1]["at"][0])), *windows, df)  # one span, alone
    assert said["tied"].tolist() == [False] and said["margin"].tolist() == [2]


# ---- what cannot be scored
# ---------------------------------------------------------------------------------------------


def test_logits_that_are_no_numbers(made):
    "A model that diverged is refused, not scored: by ranks, nan would beat everything."
    m, tok, sentences = made
    broken = constant(m, torch.full((len(tok),), float("nan")))
    word = next(w for w in tok.get_vocab() if w.isalpha() and len(w) > 2 and single_pieces(tok, [w]))
    for f in (
        lambda: reconstruct(broken, tok, sentences[:2]),
        lambda: ask(broken, tok, [dict(relation="r", sub_label="x", obj_label=word)], {"r": "[X] is [Y] ."}),
        lambda: probe_answers(
            torch.full((1, 4, 1, 3), float("nan")),
            torch.randn(2, 1, 3),
            torch.arange(2)[:, None],
            torch.zeros(2, 1, dtype=torch.long),
        ),
    ):
        with pytest.raises(EmbryoError, match="logits are not finite"):
            f()
    model = new_classifier(*load_body((m, tok))[:2], TASKS["STS-B"], FinetuneConfig(), 0)
    with torch.no_grad():
        model.classifier.bias.fill_(float("nan"))
    with pytest.raises(EmbryoError, match="logits are not finite"):
        predict(
            model, encode(pd.DataFrame(dict(text1=["a"], text2=["b"], label=0)), tok, model.config, 16), TASKS["STS-B"]
        )


def test_no_example_and_one_example(made):
    "None is an error or no row; one has a score, n = 1, and a standard error that is unknown or not 0."
    m, tok, sentences = made
    with pytest.raises(EmbryoError, match="no examples"):
        score_rows("RTE", np.array([], int), np.array([], int))
    with pytest.raises(EmbryoError, match="no sentences"):
        reconstruct(m, tok, [])
    untagged = [dict(sentences[0], tags=[""] * len(sentences[0]["tokens"]))]
    assert set(reconstruct(m, tok, untagged)["metric"]) == {"skipped_words", "cut_sentences"}
    one = score_rows("RTE", np.array([1]), np.array([[0.0, 1.0]]))[0]
    assert (one["value"], one["n"]) == (1, 1) and one["stderr"] > 0
    r = reconstruct(m, tok, sentences[:1]).query("metric=='accuracy' and task=='all-words'").iloc[0]
    # one sentence: nothing is known about others
    assert r["n"] == sum(map(bool, sentences[0]["tags"])) and np.isnan(r["stderr"])
    near = near_rows(np.full((1, 2, 2, 3), 0.25), 8).query("metric=='self'")
    assert len(near) and (near["n"] == 1).all() and near["stderr"].isna().all()


# ---- n, standard error and a trivial predictor beside every metric
# -----------------------------------------------------


def rows_of(made, lab):
    "The rows of every evaluator on the little laboratory."
    m, tok, sentences = made
    tasks = read_tasks(lab["data"])
    read = read_task(Path(lab["data"]) / "glue", "RTE")
    quick = FinetuneConfig(steps=2, batch=4, max_length=32, bf16=False)
    facts, templates = read_lama(Path(lab["data"]) / "lama")
    questions = {k: v.head(12) for k, v in read_squad_folder(Path(lab["data"]) / "squad2").items()}
    return {
        "reconstruct": reconstruct(m, tok, sentences),
        "mask_predict": mask_predict(m, tok, sentences[:9]),
        "probe": probe(m, tok, tasks, cfg=ProbeConfig(steps=4, eval_every=2)),
        "attention": attention_rows(m, tok, sentences, length=32, most=8),
        "knowledge": ask(m, tok, facts, templates),
        "finetune": pd.concat([finetune((m, tok), "RTE", read, quick), trivial_rows(read, "RTE")]),
        "squad": pd.concat(
            [
                finetune_squad((m, tok), questions, SquadConfig(steps=2, batch=4, max_length=48, bf16=False)),
                trivial_squad(questions),
            ]
        ),
    }


# evaluator -> scored metrics, and how their trivial predictor is found: a metric, a group or an evaluator
TABLE = {
    "reconstruct": (["accuracy"], dict(metric="majority"), True),
    "mask_predict": (["accuracy"], dict(metric="majority"), True),
    "probe": (["micro_f1", "f1"], dict(group="majority"), True),
    "attention": (["near", "self", "previous", "next"], dict(metric="floor"), False),
    "knowledge": (["p@1", "p@10", "mrr"], dict(metric="majority"), True),
    "finetune": (["accuracy"], dict(evaluator="trivial"), True),
    "squad": (["exact", "f1", "mean"], dict(evaluator="trivial"), True),
}


def test_every_metric_has_n_stderr_ties_and_a_trivial_predictor(made, lab):
    for name, r in rows_of(made, lab).items():
        metrics, trivial, ties = TABLE[name]
        scored = r[r["metric"].isin(metrics)]
        assert set(metrics) <= set(r["metric"]), name
        assert (scored["n"] > 0).all() and scored["value"].notna().all(), name
        # of one sentence, one question, or a mean over such: nothing is known about others
        unknown = scored[scored["stderr"].isna()]
        few = (unknown["n"] == 1) | (unknown["group"] == "macro") if name == "knowledge" else unknown["n"] <= 60
        assert few.all() and len(unknown) < len(scored) * (0.9 if name == "knowledge" else 0.5), (name, unknown)
        beside = r[np.logical_and.reduce([r[k] == v for k, v in trivial.items()])]
        assert len(beside) and (beside["n"] > 0).all() and beside["value"].notna().all(), name
        if name in ("reconstruct", "mask_predict", "knowledge"):
            groups = set(scored.loc[scored["mode"] == "corrected", "group"])
            assert groups <= set(beside["group"]), (name, groups - set(beside["group"]))
        tied = r[r["metric"] == "tie_rate"]
        assert (len(tied) > 0) == ties and tied["value"].between(0, 1).all() and (tied["n"] > 0).all(), name


def test_majority_of_words_by_hand(made):
    "The commonest word of a group, by its pieces: `The` is `the`."
    m, tok, sentences = made
    ids = tokenize_words(tok, [w for s in sentences for w in s["tokens"]])
    r = reconstruct(m, tok, sentences).query("metric=='majority'").set_index(["task", "mode", "group"])
    for tag in ("DT", "NN", "IN"):
        of = pd.Series(
            [tuple(ids[w]) for s in sentences for w, t in zip(s["tokens"], s["tags"]) if t == tag and ids[w]]
        ).value_counts()
        assert (
            r.loc[("pos-tag", "corrected", tag), "value"] == pytest.approx(of.iloc[0] / of.sum())
            and r.loc[("pos-tag", "corrected", tag), "n"] == of.sum()
        )
