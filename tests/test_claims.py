"""The ledger of claims: each claim can come out in each way, on rows made for it, and intervals cover what they say."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from committed import committed

import embryo
from embryo.ground.rows import row_frame
from embryo.results.claims import p1_words
from embryo.results.claims.ledger import held, ledger_data, said_claims, said_effect, short_claims, table_claims
from embryo.results.claims.replicates import FEW, FLAT, replicated
from embryo.results.claims.text import said_claim
from embryo.results.claims.verdicts import CLAIMS, VERDICTS, Claim, corrected, judged, largest, part

ROOT = Path(__file__).parents[1]
STEPS = (0, *(2**k for k in range(3, 13)))  # the last is 4096: a quarter of it is among them
FUNCTION = ("det.", "conj.", "prep.")
CONTENT = ("verb", "adv.", "adj.", "noun", "proper noun")
FORMS = ("V-es", "V-ed", "V", "V-en", "V-ing")


def curve(middle, first=0.0, last=0.9, drop=0.0):
    "Values at STEPS: half of the way after `middle` doublings; what is lost again between step 1024 and the end."
    at = np.log2(np.maximum(STEPS, 1))
    way = 1 / (1 + np.exp(-3 * (at - middle)))
    return np.where(np.array(STEPS) > 0, first + (last - first) * way, first) - drop * np.clip((at - 10) / 2, 0, 1)


def rows_of(curves, n, seeds=1, jitter=0.0, **where):
    "Rows without noise, whose errors are those of n examples; `curves` has (columns, values)."
    out = []
    for seed in range(seeds):
        for columns, values in curves:
            for step, v in zip(STEPS, values):
                v = float(np.clip(v + jitter * (seed - (seeds - 1) / 2), 0, 1))
                e = max(1e-4, v * (1 - v) / n) ** 0.5
                out.append(dict(columns, step=step, value=v, n=n, stderr=e, seed=seed))
    return row_frame(out, **{"family": "albert", "l1": "english"} | where)


def words(middles, n=3000, evaluator="reconstruct", task="pos-class", last=0.9, both=True, **where):
    "Words in groups, each learned after so many doublings."
    curves = [(dict(group=g), curve(m, last=last)) for g, m in middles.items()]
    modes = ("corrected", "published") if both else ("corrected",)
    made = dict(evaluator=evaluator, task=task, metric="accuracy", split="test")
    return pd.concat([rows_of(curves, n, mode=m, **made, **where) for m in modes])


def classes(function, content, **where):
    return words({**dict.fromkeys(FUNCTION, function), **dict(zip(CONTENT, content))}, **where)


def forms(middles):
    "Verb forms, whose pieces are as frequent as in the paper's order."
    ranks = [
        dict(group=g, metric="mean_rank", mode=mode, value=100.0 * (i + 1), n=50, stderr=3)
        for i, g in enumerate(FORMS)
        for mode in ("corrected", "published")
    ]
    counted = row_frame(ranks, evaluator="count", task="verb-form", family="albert", l1="english")
    return pd.concat([words(dict(zip(FORMS, middles)), task="verb-form"), counted])


BANDS = ("50-99", "300-349", "1550-1599")


def bands(middles, n=3000, last=0.9):
    return words(dict(zip(BANDS, middles)), evaluator="mask_predict", task="freq-count", both=False, n=n, last=last)


def never(names, n=3000):
    "Bands of frequency that are never learned."
    return bands([6.0] * 3, n=n, last=0.0).query("group in @names")


def in_order(first, **where):
    "Eight classes, function words first, each half a doubling behind the one before."
    return words(dict(zip((*FUNCTION, *CONTENT), first + np.arange(8) / 2)), **where)


def two_families(albert, bert, turned=False):
    many = dict(seeds=3, jitter=0.004)
    other = in_order(bert, family="bert", **many)
    if turned:  # function words first, and the order within each kind turned around
        names = dict(zip((*FUNCTION, *CONTENT), (*FUNCTION[::-1], *CONTENT[::-1])))
        other = other.assign(group=other["group"].map(names))
    return pd.concat([in_order(albert, **many), other])


def probes(n=20_000, layers=(8,), **tasks):
    "Probes of some tasks; a value is a middle, or the options of `curve`, or a function of the layer."
    curves = []
    for task, how in tasks.items():
        for layer in layers:
            at = how(layer) if callable(how) else how
            options = at if isinstance(at, dict) else dict(middle=at)
            curves.append((dict(task=task, layer=layer), curve(**dict(first=0.4) | options)))
    made = dict(evaluator="probe", group="probe", metric="micro_f1", split="test")
    return pd.concat([rows_of(curves, n, mode=m, **made) for m in ("corrected", "published")])


def all_layers(upper, lower):
    "Three tasks at twelve layers; the upper third and the others."
    how = lambda layer: upper if layer > 8 else lower
    return probes(layers=range(1, 13), pos=how, srl=how, const=how)


def attention(middles):
    curves = [(dict(layer=k), curve(middles.get(k, 7.0), first=0.1, last=0.7)) for k in range(1, 13)]
    return rows_of(curves, 3000, evaluator="attention", task="attention-map", metric="near", group="all", split="test")


def tuned(tasks, n=20_000, family="albert", seeds=1, jitter=0.0):
    "Fine-tuning scores: first, after a quarter, last."
    out = []
    for task, values in tasks.items():
        metric = "spearman" if task == "STS-B" else "accuracy"
        for seed in range(seeds):
            for step, v in zip((0, 1024, 4096), values):
                value = v + jitter * (seed - 1)
                error = (v * (1 - v) / n) ** 0.5
                cell = dict(task=task, metric=metric, step=step, seed=seed, value=value, n=n, stderr=error)
                out += [dict(cell, mode=mode) for mode in ("corrected", "published")]
    return row_frame(out, evaluator="finetune", group="final", split="dev", family=family, l1="english")


def three_families(**quarters):
    "How much of its way each family has made after a quarter."
    return pd.concat(
        [tuned(dict(RTE=(0.5, 0.5 + 0.3 * q, 0.8)), family=f, seeds=3, jitter=0.004) for f, q in quarters.items()]
    )


def facts(last, n=4000):
    "Two relations and their mean; one rises all the time, one goes to `last`."
    out = []
    for step, v in ((0, 0.0), (100, 0.2), (200, 0.3), (400, 0.28), (800, last)):
        values = {"P19": 0.02 + step * 1e-4, "P36": v}
        values["macro"] = sum(values.values()) / 2
        for group, value in values.items():
            error = (max(value, 0.01) * (1 - value) / n) ** 0.5
            out.append(dict(group=group, step=step, value=value, n=n, stderr=error, seed=0))
    where = dict(evaluator="knowledge", metric="p@1", family="albert", l1="english", split="lama")
    return pd.concat(
        [row_frame(out, task=t, mode=m, **where) for t, m in (("common", "corrected"), ("vocabulary", "published"))]
    )


def l1s(jitter=0.004, seeds=3, **values):
    "Fine-tuned L1s, three seeds each, on one task; names with _ for -, and __ for +."
    out = []
    for name, v in values.items():
        l1 = name.replace("__", "+").replace("_", "-")
        for seed in range(seeds):
            out.append(dict(l1=l1, seed=seed, value=v + jitter * (seed - 1), n=5000, stderr=0.004, step=6000))
    where = dict(evaluator="finetune", group="final", split="dev", task="RTE", metric="accuracy")
    return row_frame(out, family="roberta", **where)


def vocabulary(low, middle, high, recovered, amino, **options):
    names = dict(nesting_50=low, nesting_500=middle, nesting_5000=high, nesting_50__substitute=recovered)
    return l1s(**names, amino_acid=0.5, amino_acid__substitute=amino, **options)


def stage(java, others, **options):
    "Gains by an English stage."
    base = dict(java=0.5, zipf=0.5, none=0.5)
    after = {f"{k}__english": v + (java if k == "java" else others) for k, v in base.items()}
    return l1s(**base, **after, **options)


MASKED = dict(evaluator="mask_predict", last=0.5)
ORDER = (7.0, 7.5, 8.0, 8.5, 9.0)
LATE = (7.5, 8.0, 8.5, 9.0, 9.5)
UPPER = dict(middle=7.0, last=0.95, drop=0.08)
# number -> rows that support it, contradict it, leave it open
MADE = {
    1: (classes(5.0, [7.0] * 5), classes(7.0, [5.0] * 5), classes(6.0, [6.0] * 5)),
    2: (classes(5.0, ORDER), classes(5.0, ORDER[::-1]), classes(5.0, [7.0] * 5)),
    3: (
        pd.concat([classes(5.0, ORDER), classes(5.5, LATE, **MASKED)]),
        pd.concat([classes(5.5, LATE), classes(5.0, ORDER, evaluator="mask_predict")]),
        pd.concat([classes(5.0, ORDER), classes(5.0, ORDER, evaluator="mask_predict")]),
    ),
    4: (forms(ORDER), forms(ORDER[::-1]), forms([7.0] * 5)),
    5: (bands((5.0, 6.0, 7.0)), bands((7.0, 6.0, 5.0)), bands((6.0, 6.0, 6.0))),
    6: (two_families(6.0, 5.0), two_families(5.0, 6.0), two_families(5.0, 5.0)),
    7: (
        probes(pos=6.0, const=6.0, srl=6.1, coref=6.1),
        probes(pos=5.0, const=5.0, srl=7.0, coref=7.0),
        probes(n=150, pos=6.0, const=6.0, srl=6.4, coref=6.4),
    ),
    8: (probes(pos=6.0, const=6.0), probes(pos=9.5, const=9.5), probes(n=60, pos=7.5, const=7.5)),
    9: (probes(srl=dict(middle=6, drop=0.1)), probes(srl=10.5), probes(srl=5.0)),
    10: (
        all_layers(UPPER, dict(middle=5.0, last=0.8)),
        all_layers(dict(middle=4.0, last=0.7), dict(middle=6.0, last=0.9)),
        all_layers(dict(middle=5.0), dict(middle=5.0)),
    ),
    11: (attention({8: 5.0, 2: 6.0, 1: 7.0}), attention({1: 5.0, 2: 6.0, 8: 7.0}), attention({})),
    12: (
        tuned(dict(RTE=(0.5, 0.9, 0.9))),
        tuned(dict(RTE=(0.5, 0.6, 0.9))),
        tuned(dict(RTE=(0.5, 0.864, 0.9)), n=200),
    ),
    13: (
        tuned(dict(MNLI=(0.4, 0.7, 0.8), QNLI=(0.5, 0.7, 0.8))),
        tuned(dict(MNLI=(0.4, 0.8, 0.7), QNLI=(0.5, 0.7, 0.8))),
        tuned(dict(MNLI=(0.4, 0.8, 0.8), QNLI=(0.5, 0.7, 0.8))),
    ),
    14: (
        three_families(albert=0.9, bert=0.5, electra=0.6),
        three_families(albert=0.5, bert=0.9, electra=0.4),
        three_families(albert=0.5, bert=0.5, electra=0.5),
    ),
    15: (facts(0.05), facts(0.4), facts(0.05, n=25)),
    16: (
        l1s(none=0.5, uniform=0.6, zipf=0.6),
        l1s(none=0.5, uniform=0.4, zipf=0.6),
        l1s(none=0.5, uniform=0.5, zipf=0.6),
    ),
    17: (
        l1s(none=0.5, amino_acid=0.5, java=0.48),
        l1s(none=0.5, amino_acid=0.6, java=0.5),
        l1s(none=0.5, amino_acid=0.5, java=0.5, jitter=0.05),
    ),
    18: (
        l1s(kannada=0.6, nesting_zipf=0.6, nesting_uniform=0.7),
        l1s(kannada=0.6, nesting_zipf=0.5, nesting_uniform=0.6),
        l1s(kannada=0.6, nesting_zipf=0.6, nesting_uniform=0.6, jitter=0.05),
    ),
    19: (
        l1s(nesting_zipf=0.6, nesting_uniform=0.6),
        l1s(nesting_zipf=0.6, nesting_uniform=0.5),
        l1s(nesting_zipf=0.6, nesting_uniform=0.6, jitter=0.05),
    ),
    20: (
        vocabulary(0.5, 0.6, 0.7, 0.65, 0.5),
        vocabulary(0.5, 0.6, 0.7, 0.65, 0.6),
        vocabulary(0.5, 0.6, 0.6, 0.65, 0.5),
    ),
    21: (stage(0.07, 0.01, jitter=0.001), stage(-0.05, -0.06), stage(0.02, 0.02)),
    22: (
        l1s(nesting_zipf=0.6, flat=0.61),
        l1s(nesting_zipf=0.6, flat=0.5),
        l1s(nesting_zipf=0.6, flat=0.6, jitter=0.05),
    ),
}
CASES = [(k, mode) for k in sorted(CLAIMS) for mode in CLAIMS[k].modes]


def told(number, rows, mode="corrected"):
    "A claim held against rows, alone."
    c = CLAIMS[number]
    return judged(c, mode, c.parts(rows, mode, np.random.default_rng(number)))


def test_registry_has_all_claims():
    assert sorted(CLAIMS) == sorted(MADE) == list(range(1, 23))
    drawn = set(embryo.figures())
    for c in CLAIMS.values():
        assert set(c.figures) <= drawn, c.number
        assert c.paper in ("p1", "p2", "follow-up") and c.sentence.endswith(".") and c.place
        assert len(c.short) < 80


@pytest.mark.parametrize("number, mode", CASES)
def test_every_claim_gives_each_verdict(number, mode):
    supports, contradicts, open_ = MADE[number]
    for rows, verdict in ((supports, "supported"), (contradicts, "contradicted"), (open_, "not shown")):
        r = told(number, rows, mode)
        assert r.verdict == verdict, [(p.what, p.effect, p.low, p.high, p.p_for, p.p_against) for p in r.parts]
        assert r.decides is not None and r.decides.low <= r.decides.effect <= r.decides.high
        assert r.decides.detectable > 0 or r.decides.low == r.decides.high
    gone = told(number, supports[:0], mode)
    assert gone.verdict == "cannot be tested here" and gone.note.startswith("not asked: ") and gone.decides is None
    assert {p.reason for p in gone.parts} == {"not asked"}


@pytest.mark.parametrize("number", [k for k, c in CLAIMS.items() if c.trainings])
def test_one_seed_decides_nothing_about_trainings(number):
    for rows in MADE[number][:2]:
        one = rows[rows["seed"] == 0]
        r = told(number, one)
        assert r.verdict == "cannot be tested here" and np.isnan(r.p) and r.note == "one seed"
        d = ledger_data(one, "p1" if CLAIMS[number].paper == "p1" else "p2")
        d = d[d["number"] == number]
        view = table_claims(d).iloc[0]
        assert view["verdict"] == "cannot be tested here" and view["would be seen"] == "nothing: one seed"
        assert re.search(r"one model: [+-]\d\.\d+ \[.*; one seed$", view["effect [95%]"])
        assert "Why: one seed." in said_claim(d)


def test_a_part_that_is_not_measured_leaves_a_claim_open():
    half = MADE[16][0]
    r = told(16, half[half["l1"] != "zipf"])
    assert r.verdict == "cannot be tested here" and r.note == "not asked: zipf – none"
    against = MADE[16][1]  # uniform is below none
    assert told(16, against[against["l1"] != "zipf"]).verdict == "contradicted"


def test_why_there_is_no_effect_is_said():
    "Not asked, asked and not learned, too few checkpoints: a reader can tell them apart."
    rows = MADE[2][0]
    is_noun = rows["group"] == "noun"
    flat = pd.concat([rows[~is_noun], rows[is_noun].assign(value=0.0)])
    few = rows[rows["step"].isin([0, 4096])]
    unasked = rows[~is_noun]
    said = {}
    for name, some in dict(flat=flat, few=few, unasked=unasked).items():
        said[name] = told(2, some).parts[2].reason
        assert said[name] in said_claim(ledger_data(some, "p1").query("number == 2"))
    assert said["flat"] == f"noun {FLAT}" and said["unasked"] == "noun not asked" and said["few"].endswith(FEW)
    no_quarter = told(13, MADE[13][0].query("step != 1024 and task == 'MNLI'"))
    assert [p.reason for p in no_quarter.parts] == [f"{FEW} (none at a quarter)", "not asked"]
    falls_back = attention({8: 5.0, 2: 6.0, 1: 7.0})
    at_end = (falls_back["layer"] == 8) & (falls_back["step"] == 4096)
    r = told(11, falls_back.assign(value=falls_back["value"].where(~at_end, 0.1)))
    assert r.parts[0].what == "layer 2 after layer 8" and r.parts[0].reason == f"layer 8 {FLAT}"
    assert "not asked" not in r.note and "not measured" not in r.note


def test_a_band_that_is_never_learned_comes_later():
    first = bands((5.0, 6.0, 7.0)).query("group == '50-99'")
    r = told(5, pd.concat([first, never(BANDS[1:])]))
    assert r.verdict == "supported" and [p.what for p in r.parts] == [
        f"{b} (never learned) after 50-99" for b in ("1550-1599", "300-349")
    ]
    assert all(abs(p.effect - 7) < 0.1 for p in r.parts)  # 4096 steps are 12 doublings
    r = told(5, pd.concat([first, bands((5.0, 4.0, 7.0)).query("group == '300-349'"), never(BANDS[2:])]))
    assert r.verdict == "contradicted" and r.decides.what == "300-349 after 50-99"
    # of a dozen words nothing is known, and so nothing is shown
    few = told(5, pd.concat([first, bands((5.0, 5.0, 5.0), n=12, last=0.08).query("group == '300-349'")]))
    assert few.verdict == "not shown" and few.parts[0].high - few.parts[0].low > 1
    # where the first band is not learned there is nothing to be later than
    r = told(5, pd.concat([never(BANDS[:1]), bands((5.0, 6.0, 7.0)).query("group != '50-99'")]))
    assert r.verdict == "cannot be tested here" and r.parts[0].reason == f"50-99 {FLAT}"


def test_a_stuck_model_is_named():
    where = dict(evaluator="pretrain", metric="stuck", group="stuck", family="roberta", task="mlm", step=6000, seed=0)
    r = told(17, pd.concat([MADE[17][0], row_frame([dict(where, l1="java", value=1.0)])]))
    assert [p.what for p in r.parts] == ["amino-acid – none", "java – none (java stuck)"]


def mean_hits(between, hard):
    "Share of right answers over all seeds and examples of `covered`."
    z = np.random.default_rng(0).standard_normal(400_000)
    return float(np.mean(1 / (1 + np.exp(-(0.5 + np.hypot(between, hard) * z)))))


def covered(seeds, between, hard, studies=150, n=300):
    "How often the interval of a part holds the truth: single examples, as hard as they are for all seeds of a study."
    rng = np.random.default_rng(seeds)
    truth = mean_hits(between, hard)
    inside = 0
    for _ in range(studies):
        logit = 0.5 + between * rng.standard_normal((seeds, 1)) + hard * rng.standard_normal(n)
        right = rng.random((seeds, n)) < 1 / (1 + np.exp(-logit))
        scores = [
            dict(seed=s, step=0, value=hits.mean(), n=n, stderr=hits.std(ddof=1) / n**0.5)
            for s, hits in enumerate(right)
        ]
        x = replicated(dict(one=row_frame(scores)), ["step"], rng, 400)[0]["one"][0].to_numpy()
        p = part("accuracy", x, seeds)
        inside += p.low <= truth <= p.high
    return inside / studies


@pytest.mark.parametrize("seeds", [3, 4, 5])
def test_interval_of_crossed_seeds_and_examples_covers(seeds):
    assert 0.91 <= covered(seeds, between=1.0, hard=8.0) <= 0.99


def test_interval_errs_on_the_wide_side():
    "Where an answer is mostly a seed's luck, its chance is counted in the seeds and in the examples."
    assert covered(3, between=0.25, hard=1.0) >= 0.95


def test_what_would_be_seen_is_seen():
    "Three seeds whose effect is just `detectable`: seen in about eight of ten runs; half of it in clearly fewer."
    rng = np.random.default_rng(1)

    def seen(effect):
        found = 0
        for _ in range(300):
            x = effect + 0.01 * rng.standard_normal(1) + 0.01 * np.r_[0.0, rng.standard_normal(1000)]
            found += part("", x, 1, above=0).low > 0
        return found / 300

    d = part("", 0.01 * np.r_[0.0, rng.standard_normal(40_000)], 1, above=0).detectable
    assert 0.72 < seen(d) < 0.88 and seen(d / 2) < 0.4


@pytest.mark.parametrize("tail", ["long", "short"])
@pytest.mark.parametrize("among", [1, 15])
def test_what_would_be_seen_faces_the_edge(tail, among):
    "Skewed chance, in a table of tested claims: an effect just `detectable` inside is seen in eight of ten runs."
    rng = np.random.default_rng(3)
    sign = -1 if tail == "long" else 1  # where the long tail lies, seen from the edge
    chance = lambda size: sign * (rng.exponential(1.0, size) - 1)
    toy = Claim(0, "p1", "", "toy", "Toy.", (), None)
    null = judged(toy, "corrected", [part("", np.r_[0.0, rng.standard_normal(4000)], 1, above=0)])

    def held_among(effect, again):
        one = judged(toy, "corrected", [part("", np.r_[effect, again], 1, above=0)])
        return corrected([one] + [null] * (among - 1))[0][0]

    d = held_among(0.0, chance(40_000)).parts[0].detectable
    seen = 0
    for _ in range(100):
        effect = d + chance(1)[0]
        seen += held_among(effect, effect + chance(4000)).verdict == "supported"
    assert 0.68 < seen / 100 < 0.92, (d, seen)
    mirrored = part("", np.r_[0.0, -chance(40_000)], 1, below=0)  # the same, seen from above
    if among == 1:
        assert abs(mirrored.detectable - d) < 0.1


def test_roles_peak_at_15_percent_and_then_fall():
    "A later peak is not one at 15%, and a flat top is no later peak."
    done = np.array([0, 0.05, 0.1, 0.15, 0.25, 0.4, 0.5, 0.6, 0.8, 1])

    def held_at(values):
        cells = [dict(task="srl", layer=8, step=round(4000 * d), value=v) for d, v in zip(done, values)]
        where = dict(evaluator="probe", group="probe", metric="micro_f1", split="test", n=20_000, stderr=0.003, seed=0)
        r = told(9, row_frame(cells, family="albert", l1="english", **where))
        return r.verdict, r.decides.what

    at_15 = [0.1, 0.7, 0.85, 0.9, 0.9, 0.88, 0.87, 0.86, 0.85, 0.84]
    at_60 = [0, 0.2, 0.4, 0.6, 0.9, 0.95, 0.98, 1.0, 0.8, 0.5]
    flat_top = [0.1, 0.7, 0.85, 0.9, 0.9, 0.905, 0.91, 0.9, 0.88, 0.85]
    at_half = [0.1, 0.4, 0.6, 0.75, 0.9, 0.95, 1.0, 0.97, 0.93, 0.9]
    no_decay = [0.1, 0.7, 0.85, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    assert held_at(at_15)[0] == held_at(flat_top)[0] == "supported"
    assert held_at(no_decay)[0] == "not shown"
    # these decay, and the last score may be above that at 15% or below: what is wrong is the place
    assert held_at(at_60) == ("contradicted", "SRL from 15% to step 2,400")
    assert held_at(at_half) == ("contradicted", "SRL from 15% to step 2,000")


def test_the_sentence_and_the_test_are_the_same():
    "BERT's order counts; one margin for what a substitution recovers; 98% is not asked to be exceeded."
    r = told(6, two_families(6.0, 5.0, turned=True))
    tau = next(p for p in r.parts if "(tau)" in p.what)
    assert r.verdict == "contradicted" and r.decides is tau and r.parts[0].low > 0
    fifty = lambda gain: vocabulary(0.5, 0.6, 0.7, 0.5 + gain, 0.5, jitter=0.001)
    assert [told(20, fifty(g)).verdict for g in (0.08, 0.005)] == ["supported", "contradicted"]
    recovered, amino = told(20, fifty(0.08)).parts[2:]
    assert recovered.above == amino.below == 0.03
    paper = told(12, tuned(dict(RTE=(0.6, 0.8023, 0.8150)), n=9000))
    assert paper.verdict == "supported" and paper.parts[0].above == pytest.approx(0.96) and paper.parts[0].low < 0.98


def test_why_there_is_no_verdict_as_published(tmp_path):
    "The reason stands once below the table, and a table without such verdicts has no such column."
    from embryo.results.figures import draw

    rows = pd.concat([MADE[k][0] for k in (1, 9, 16)])
    text = {}
    for paper in ("p1", "p2"):
        draw(f"claims_{paper}", rows, tmp_path, "made-up", name=f"{paper}_claims")
        text[paper] = (tmp_path / f"{paper}_claims.md").read_text()
    assert text["p1"].count("the released code computes the same (claims 5, 11, 13)") == 1
    assert "not like for like (claim 14)" in text["p1"] and "as published" in text["p1"]
    assert "as published" not in text["p2"] and text["p2"].count("the released code computes the same") == 1


def tau_covered(gap, exchanged, n=100, studies=40):
    "How often the interval of claim 3's tau holds the truth: eight classes of n words, some neighbours exchanged."
    rng = np.random.default_rng(5)
    order = np.arange(8)
    for k in exchanged:
        order[[k, k + 1]] = order[[k + 1, k]]
    inside = 0
    for _ in range(studies):
        rows = []
        for evaluator, first, places in (("reconstruct", 4, np.arange(8)), ("mask_predict", 5, order)):
            for group, k in zip((*FUNCTION, *CONTENT), places):
                values = rng.binomial(n, curve(first + gap * k)) / n
                where = dict(evaluator=evaluator, task="pos-class", metric="accuracy", split="test", mode="corrected")
                rows.append(rows_of([(dict(group=group), values)], n, **where))
        p = CLAIMS[3].parts(pd.concat(rows), "corrected", rng)[2]
        inside += p.low - 1e-9 <= 1 - 2 * len(exchanged) / 28 <= p.high + 1e-9
    return inside / studies


@pytest.mark.parametrize("gap, exchanged", [(0.3, ()), (0.5, ()), (0.3, (1, 4))])
def test_interval_of_an_order_covers(gap, exchanged, monkeypatch):
    "Chance makes orders less alike, so that plain quantiles miss a tau of 1 (0.13 and 0.97 covered at these gaps)."
    monkeypatch.setattr(p1_words, "replicated", partial(replicated, draws=400))
    assert tau_covered(gap, exchanged) >= 0.88


def noisy_order(n):
    "Masked words in the same order as visible ones, of so few words that it could not be seen."
    return pd.concat([classes(5.0, ORDER, n=n), classes(5.5, LATE, n=n, **MASKED)])


def test_what_no_run_could_have_seen_is_said():
    "Where tau would have to be above 1 no size is named, as if it could be seen."
    among = pd.concat([noisy_order(25), MADE[7][2], MADE[12][2]])
    results = {r.claim.number: r for r, _ in held(among, "p1", "corrected")}
    tested = sum(np.isfinite(r.p) for r in results.values())
    assert tested > 3
    tau = results[3].parts[2]
    assert tau.what.endswith("(tau)") and tau.above + tau.detectable > 1 and not tau.can_support
    assert tau.detectable > told(3, among).parts[2].detectable  # Holm's first step asks for more than 5%
    assert not results[7].parts[0].can_support and not results[12].parts[0].can_support
    d = ledger_data(among, "p1")
    for number, name in ((3, "same order (tau)"), (7, "semantic after"), (12, "GLUE mean at a quarter")):
        g = d[d["number"] == number]
        assert "could not have been supported here" in said_claim(g) and f"({name}" in said_claim(g), said_claim(g)
        assert "beyond what is asked" not in said_claim(g)
        assert table_claims(g)["would be seen"].iloc[0].startswith(("no support", "nothing"))
    # what can be seen is named with its size
    g = d[d["number"] == 1]
    assert g["can_support"].all() and float(table_claims(g)["would be seen"].iloc[0].split()[0]) > 0


def test_no_interval_leaves_the_measure():
    "A fall of precision at 1 by more than 1 cannot be."
    r = told(15, facts(0.0, n=12).assign(value=lambda d: d["value"].where(d["step"] != 200, 0.95)))
    assert all(-1 <= p.low <= p.effect <= p.high <= 1 for p in r.parts), r.parts
    x = np.vstack([[0.1, 0.97], 0.05 * np.random.default_rng(0).standard_normal((400, 2)) + [0.1, 0.97]])
    assert largest(["a", "b"], x, 1, above=0, span=(-1, 1)).high == 1 < largest(["a", "b"], x, 1, above=0).high


def test_none_of_many_is_above():
    "`largest` with `below`: contradicted by one surely above, supported where all are surely below."
    again = np.random.default_rng(4).standard_normal((1000, 20))
    low, one = np.full(20, -5.0), np.r_[np.full(19, -5.0), 8.0]
    for effects, supported in ((low, True), (one, False)):
        p = largest([str(i) for i in range(20)], np.vstack([effects, effects + again]), 1, below=0)
        assert (p.p_for < 0.01) == supported == (p.p_against > 0.9) and (p.high < 0) == supported
    assert p.what == "19" and p.p_against < 0.01


def test_the_largest_of_many_is_not_taken_for_an_effect():
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((1000, 60))
    for effects, verdict in ((np.linspace(-2, 2, 60), False), (np.r_[np.zeros(59), 6.0], True)):
        p = largest([str(i) for i in range(60)], np.vstack([effects, effects + noise]), 1, above=0)
        assert (p.p_for < 0.025) == verdict == (p.low > 0)
    assert p.what == "59"


def test_holm_within_a_table():
    "An effect that is shown alone is not among many."
    weak = l1s(none=0.5, uniform=0.56, zipf=0.56, jitter=0.02, java=0.5, amino_acid=0.5, kannada=0.5)
    rest = [l1s(nesting_zipf=0.5, nesting_uniform=0.5, flat=0.5, jitter=0.05)]
    alone = told(16, weak)
    rows = pd.concat([weak, *rest])
    among, p = next(x for x in held(rows, "p2", "corrected") if x[0].claim.number == 16)
    assert alone.verdict == "supported" and alone.p < 0.05 < p
    assert among.verdict == "not shown" and among.note == "supported if it were the only claim"


def test_the_ledger_is_computed(tmp_path):
    made = pd.concat([MADE[k][0] for k in (1, 9, 11, 15)] + [MADE[k][0] for k in (16, 17, 22)])
    d = ledger_data(made[~made.duplicated()], "p1")
    pd.testing.assert_frame_equal(d, ledger_data(made.sample(frac=1, random_state=0).drop_duplicates(), "p1"))
    view = table_claims(d)
    assert len(view) == 15 and view.shape[1] == 7
    verdicts = dict(zip(sorted(CLAIMS), view["verdict"]))
    assert verdicts[1] == verdicts[15] == "supported (this model)" and verdicts[7] == "cannot be tested here"
    assert set(d["verdict"]) <= set(VERDICTS)
    short = short_claims(d)
    assert list(short) == ["claim", "verdict", "effect that decides [95%]", "seeds", "what limits it", "figure"]
    assert short["effect that decides [95%]"][0].endswith("doublings of the step")
    assert short["claim"][0] == "1. function before content words"
    assert said_claims(d).startswith("Of 15 claims: ") and "supported" in said_claims(d)


def test_both_tables_can_be_drawn(tmp_path):
    from embryo.results.figures import draw

    rows = pd.concat([MADE[k][0] for k in (1, 9, 16)])
    for paper in ("p1", "p2"):
        draw(f"claims_{paper}", rows, tmp_path, "made-up", name=f"{paper}_claims")
        text = (tmp_path / f"{paper}_claims.md").read_text()
        assert "supported" in text and "Holm" in text and "Would be seen" in text
        assert (tmp_path / f"{paper}_claims.tex").is_file() and (tmp_path / f"{paper}_claims.csv").is_file()


def test_levels_are_what_effects_are_differences_of():
    "Of committed rows: an effect is the difference of its two levels, in doublings where they are steps."
    checked = 0
    read_back = pd.read_csv(ROOT / "figures/grown/p1_claims.csv")
    assert not [x.part for x in read_back.itertuples() if "nan" in said_effect(x)]
    for profile in ("grown", "transfer"):
        paper = "p1" if profile == "grown" else "p2"
        data = ledger_data(committed(profile), paper)
        for x in data[(data["levels"] != "") & ~data["unit"].isin(["of the way", "of the last"])].itertuples():
            a, b = (float(v.replace(",", "")) for v in re.findall(r" (?:at step )?([-\d.,]*\d)(?:, |$)", x.levels))
            gap = np.log2(a / b) if "at step" in x.levels else a - b
            assert abs(x.effect) == pytest.approx(abs(gap), abs=0.03 if "at step" in x.levels else 0.002), x.levels
            checked += 1
    assert checked > 20
