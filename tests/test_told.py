"""What is said beside figures that carry no claim: on other rows each says the opposite."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from committed import committed, densest

import embryo.results.page  # noqa: F401 - declares all that is told
from embryo.ground.profiles import read_profile
from embryo.ground.rows import row_frame
from embryo.micro.made_up import made_up_p1
from embryo.micro.made_up_p2 import made_up_p2
from embryo.results.claims.verdicts import CLAIMS
from embryo.results.p1.losses import P1_FORMS
from embryo.results.phases.drawings import main_curves
from embryo.results.told.sentences import NOT_MEASURED, OF_SETTINGS, ONE_SEED, TOLD, paragraph, told_beside

ROOT = Path(__file__).parents[1]
P1 = [
    f"p1_{x}"
    for x in "fig2a fig4 fig7b fig9b fig10 fig11a fig11b fig11c fig12 fig13a fig13b fig14 table1 table8".split()
]
P1 += [*(f"p1_table{k}" for k in (3, 5, 6, 8, 9)), "p1_frequency", "p1_history", "p1_fig6_bert", "p1_selectivity"]
P2 = [
    "p2_fig1",
    "p2_fig3",
    "p2_losses",
    "p2_gain",
    "p2_overlap",
    "p2_transplants",
    "p2_table3",
    "p2_table4",
    "p2_claims",
]
SETTINGS = ["p1_table2", "p1_table7", "p2_table2", "p2_table5"]
SHOWN = ["p2_fig2"]  # made for the figure, whatever was measured
NO_FIGURE = {"p1_selectivity"}  # a table that its appendix makes
GROWN = (
    "x_probe_cost x_ages_fig2 x_ages_fig3 x_phases_fig1 x_phases_fig2 x_phases_fig3".split()
)  # tried in their notebooks
GROWN += "x_minimal_fig1 x_syntaxgym_fig1 x_tasks x_treebanks".split()
MADE_FORMS = ("V", "V-ed", "V-ing", "V-en", "V-es")  # the order in which the made-up rows learn them


def knowledge(curve, relations=("P140", "P103", "P36"), majority=0.3, n=400, family="albert"):
    "Rows of relations that all follow one curve."
    out = []
    for relation in relations:
        for step, v in zip(range(0, 100_000, 100), curve):
            where = dict(evaluator="knowledge", group=relation, step=step, n=n)
            for task in ("vocabulary", "common"):
                out.append(dict(where, task=task, metric="p@1", value=v, stderr=(v * (1 - v) / n) ** 0.5))
            out.append(dict(where, task="vocabulary", metric="asked", value=n))
            out.append(dict(where, task="vocabulary", metric="majority", value=majority))
    return row_frame(out, family=family, l1="english", seed=0)


def completions(answer="it"):
    "Rows of one sentence at two steps; at the last all that is visible is said back."
    pieces = ["nokia", "lumia", "was", "produced", "by", "<mask>"]
    said = {0: ["the"] * 6, 100: [*pieces[:5], answer]}
    out = [
        dict(step=step, group=f"{i} {piece} {words[i]}", value=0.1)
        for step, words in said.items()
        for i, piece in enumerate(pieces)
    ]
    about = dict(task="Nokia Lumia 800 was produced by [MASK] .", split="lama", metric="probability", seed=0)
    return row_frame(out, evaluator="complete", family="albert", l1="english", **about)


def stated(gain=0.3, n=400):
    "Rows of facts by how often they are stated, at two steps."
    out = []
    for step, top in ((0, 0.0), (100, gain)):
        for group, more in (("0", 0.0), ("64+", top)):
            where = dict(step=step, group=group, value=0.1 + more, n=n, stderr=0.01)
            out += [dict(where, mode=mode, metric="p@1") for mode in ("corrected", "published")]
    return row_frame(out, evaluator="knowledge", task="by-count", family="albert", l1="english", seed=0)


def heads():
    "Attention rows of a head of each of four layers that comes to look at the token before."
    out = []
    for layer in (1, 2, 3, 4):
        for step in (0, 10, 20):
            seen = dict(near=0.1 + step / 50, self=0.03, previous=0.03 + step / 50, next=0.03)
            at = dict(step=step, layer=layer, group="1", task="attention-map", n=400, stderr=0.001)
            out += [dict(at, metric=metric, value=value) for metric, value in seen.items()]
    return row_frame(out, evaluator="attention", family="albert", l1="english", seed=0)


@pytest.fixture(scope="module")
def p1():
    known = [knowledge((0.0, 0.2, 0.5, 0.6), family=family) for family in ("albert", "bert")]
    rows = [made_up_p1(), *known, completions(), stated(), heads()]
    return pd.concat(rows, ignore_index=True)


@pytest.fixture(scope="module")
def p2():
    return made_up_p2()


def agreement(rows, figure):
    return told_beside(rows, figure).split("*Agreement:* ")[1].split(" *What")[0]


def at(rows, evaluator, value, **where):
    "The same rows with other values of one evaluator."
    some = rows["evaluator"] == evaluator
    for k, v in where.items():
        some &= rows[k] == v
    return rows.assign(value=rows["value"].mask(some, value))


def test_every_figure_is_told_once():
    "Either a claim is told beside a figure, or the figure itself; the appendices ask for all of them."
    ours = {n for n in TOLD if n.startswith("x_")}  # what these say is held in files of their own
    assert set(TOLD) - ours == {*P1, *P2, *SETTINGS, *SHOWN} and set(OF_SETTINGS) - ours == set(SETTINGS)
    assert not set(TOLD) & {c.figures[0] for c in CLAIMS.values()}
    files = ("p1_embryology.ipynb", "p2_transfer.ipynb", "x_grown.ipynb")
    sources = [(ROOT / "nbs/appendix" / f).read_text() for f in files]
    for names, source in zip((P1 + SETTINGS[:2], P2 + SETTINGS[2:] + SHOWN, GROWN), sources):
        assert [n for n in names if f'page.tell(\\"{n}\\"' not in source] == []
    studies = "".join(p.read_text() for p in (ROOT / "nbs/appendix").glob("x_*.ipynb"))
    assert [n for n in sorted(ours) if f'page.tell(\\"{n}\\"' not in studies] == []


@pytest.mark.parametrize("figure", P1 + P2)
def test_it_says_so_where_nothing_was_measured(figure, p1, p2):
    rows = p1 if figure in P1 else p2
    assert NOT_MEASURED not in told_beside(rows, figure)
    # losses are what pretraining says of itself
    of_losses = {"p1_fig2a": "probe", "p2_table3": "finetune", "p2_losses": "finetune"}
    other = rows["evaluator"] == of_losses.get(figure, "pretrain")
    for none in (rows[:0], rows[other]):
        said = told_beside(none, figure)
        assert said.endswith(f"*Here:* {NOT_MEASURED}") and "*Agreement:*" not in said


@pytest.mark.parametrize("figure", P1 + P2)
def test_it_has_four_parts_and_no_holes(figure, p1, p2):
    said = told_beside(p1 if figure in P1 else p2, figure)
    places = [said.index(x) for x in ("*The paper (", "*Here:*", "*Agreement:*", "*What cannot be told:*") if x in said]
    assert places == sorted(places) and len(places) >= 3
    assert not [x for x in ("nan", "None", "..", "-0.00", " ,", "  ") if x in said.replace("None ends", "")], said


@pytest.mark.parametrize("figure", SETTINGS)
def test_settings_are_as_printed_or_not(figure, p1, p2):
    rows = p1 if figure < "p2" else p2
    ours, printed = (
        told_beside(rows, figure, read_profile(x)) for x in ("micro", "paper-p1" if figure < "p2" else "paper")
    )
    assert "Ours over the printed: " in ours and "*Agreement:* Not in " in ours
    differ = int(re.search(r"Not in (\d+) of|All as there", printed)[1] or 0)
    assert differ < int(re.search(r"Not in (\d+) of", ours)[1])


def test_facts_that_are_stated_often_are_known_or_not(p1):
    assert "(+0.30 ± 0." in told_beside(p1, "p1_history")
    assert "(+0.00 ± 0." in told_beside(stated(gain=0.0), "p1_history")


def test_english_works_as_a_control_or_not(p2):
    assert agreement(p2, "p2_claims").startswith("Yes: the printed gain is +0.18")
    lost = at(p2, "finetune", 0.0, l1="english")
    assert agreement(lost, "p2_claims").startswith("No") and "without a control" in told_beside(lost, "p2_claims")


def test_verb_forms_follow_their_frequency_or_not(p1):
    exact = p1.assign(stderr=p1["stderr"] / 10)
    named = {
        k: exact.assign(group=exact["group"].replace(dict(zip(MADE_FORMS, v))))
        for k, v in (
            ("Yes", P1_FORMS),
            ("No", P1_FORMS[::-1]),
        )
    }
    for answer, rows in named.items():
        assert agreement(rows, "p1_fig7b").startswith(f"{answer}: of 10 pairs")
    vague = p1.assign(stderr=0.2)
    assert "a last value not surely above 0" not in told_beside(exact, "p1_fig7b")
    assert agreement(vague, "p1_fig7b").startswith("Cannot be told")


@pytest.mark.parametrize("figure, noun", [("p1_fig7b", "form"), ("p1_fig9b", "class")])
def test_guessing_the_most_frequent_word_is_the_level(p1, figure, noun):
    words = p1[(p1["evaluator"] == "mask_predict") & (p1["step"] == 0)]
    for level, side, doubt in ((0.01, "Surely above always answering", False), (0.99, "; surely below: none", True)):
        most = words.assign(metric="majority", value=level).drop_duplicates(["family", "task", "group", "mode"])
        said = told_beside(pd.concat([p1, most]), figure)
        assert (side in said) != doubt and ("may be those of a single word" in said) == doubt
    assert f"most frequent word of the {noun} scores was not measured" in told_beside(p1, figure)


def test_a_sentence_ends_in_its_object_or_not():
    for answer, agrees, n in (("nokia", "Yes", 1), ("it", "No", 0)):
        said = told_beside(completions(answer), "p1_table9")
        assert "said back: 0% at step 0 (n = 5), 100% at step 100 (n = 5)." in said
        assert f"named in {n} of 1 cases" in said
        assert agreement(completions(answer), "p1_table9").startswith(agrees)


def test_bert_is_faster_slower_or_one_seed(p1):
    twice = pd.concat([p1, p1.assign(seed=1)])
    bert = twice["family"] == "bert"
    for factor, answer in ((0.01, "Yes"), (100, "No"), (1, "Cannot be told")):
        rows = twice.assign(step=twice["step"].where(~bert, twice["step"] * factor))
        assert agreement(rows, "p1_fig9b") == f"{answer}, as to fewer steps."
    assert "no difference of families" in agreement(p1, "p1_fig9b")
    assert "ALBERT was not asked" in agreement(p1[p1["family"] != "albert"], "p1_fig9b")


def seen_late(rows):
    "Rows of which BERT has no checkpoint but two, both near the end."
    steps = rows.loc[(rows["family"] == "bert") & rows["step"].notna(), "step"]
    last = sorted(steps.unique())[-2:]
    return rows[(rows["family"] != "bert") | rows["step"].isna() | rows["step"].isin(last)]


def test_two_late_checkpoints_date_nothing(p1):
    "What was there at the first of two looks may have been there long before."
    late = seen_late(pd.concat([p1, p1.assign(seed=1)]))
    words = told_beside(late, "p1_fig9b")
    assert "Nothing has a date: seen at 2 checkpoints only" in words
    assert not [x for x in ("First at 90%", "surely later in", "Kendall") if x in words]
    assert agreement(late, "p1_fig9b").startswith("Cannot be told: BERT was seen at 2 checkpoints only")
    assert "none has a verdict" in told_beside(seen_late(knowledge((0, 0.2, 0.5, 0.6), family="bert")), "p1_fig6_bert")


def test_late_checkpoints_of_committed_rows_are_no_pretraining():
    "Of `grown-long`, whose BERTs were looked at after 33,000 and 42,000 of 42,000 updates."
    rows = committed("grown-long")
    assert "seen at 2 checkpoints only, steps 33,000 and 42,000" in told_beside(rows, "p1_fig9b")
    probes = told_beside(rows, "p1_fig11b")
    assert "constituents 2.9 times" in probes and "2.9 to 2.9" not in probes
    assert "at step 42,000 (first seen at step 33,000, so what pretraining adds cannot be told)" in probes
    assert "How scores move over pretraining: seen at 2" in told_beside(rows, "p1_fig13a")
    assert "from the first checkpoint (step 0) to the last (step 42,000)" in told_beside(rows, "p1_fig11a")


def test_layers_start_below_and_overtake_or_not(p1):
    deep = (p1["evaluator"] == "probe") & (p1["layer"] == 12) & (p1["metric"] == "micro_f1")
    first, later = deep & (p1["step"] == 0), deep & (p1["step"] > 0)
    value = p1["value"].mask(first, 0.1).mask(later, 0.99)
    assert agreement(p1.assign(value=value), "p1_fig10").startswith("Yes")
    assert agreement(p1.assign(value=p1["value"].mask(later, 0.99)), "p1_fig10").startswith("In part")
    assert agreement(p1.assign(value=p1["value"].mask(first, 0.99)), "p1_fig10").startswith("No")


@pytest.mark.parametrize("letter, family", zip("abc", ("albert", "bert", "electra")))
def test_probes_rise_stay_or_fall(p1, letter, family):
    figure = f"p1_fig11{letter}"
    assert "Surely above the untrained model: SRL, POS, constituents, coreference; surely below: none" in told_beside(
        p1, figure
    )
    probe = (p1["evaluator"] == "probe") & (p1["group"] == "probe")
    down = p1.assign(value=p1["value"].mask(probe & (p1["step"] > 0), 0.1))
    assert "Surely above the untrained model: none; surely below: SRL" in told_beside(down, figure)
    assert "At the end surely above their control task, whose labels carry no linguistics: none" in told_beside(
        down, figure
    )
    later = told_beside(p1[p1["step"] > 0], figure)
    assert "was not probed" in later and "Surely above the untrained" not in later
    if family == "bert":
        assert agreement(p1, figure).startswith("Yes") and agreement(down, figure).startswith("No")


@pytest.mark.parametrize("figure", ["p1_fig12", "p1_fig13a", "p1_fig13b"])
def test_tasks_above_what_needs_no_model_or_below(p1, figure):
    level = "the best predictor without a model, word overlap included"
    assert f"Surely above {level}: CoLA, MNLI" in told_beside(p1, figure)
    poor = at(p1, "finetune", 0.0)
    assert f"Surely above {level}: none; surely below: MNLI" in told_beside(poor, figure)
    assert "surely above it: none; surely below: none" in told_beside(poor, figure)  # of the untrained model
    unheld = told_beside(p1[p1["evaluator"] != "trivial"], figure)
    assert "No predictor without a model was scored" in unheld
    assert "No task was scored on the untrained model" in told_beside(
        p1[p1["step"] != 0].dropna(subset="value"), figure
    )


def test_tasks_end_where_the_paper_does_or_not(p1):
    assert agreement(at(p1, "finetune", 0.0), "p1_fig13a").startswith("No, as to the ends: surely below the paper's: C")
    assert agreement(at(p1, "finetune", 0.8236), "p1_fig13a").startswith("In part")
    assert "figure 5" in agreement(p1, "p1_fig12")


def test_relations_are_forgotten_or_kept():
    kept, lost = knowledge((0.0, 0.2, 0.5, 0.6)), knowledge((0.0, 0.6, 0.3, 0.0))
    assert agreement(kept, "p1_fig14").startswith("No: none")
    assert agreement(lost, "p1_fig14").startswith("Yes: ALBERT's P140, P103, P36")
    guessed = knowledge((0.0, 0.6, 0.3, 0.0), majority=0.7)
    assert "Whether these fell" in told_beside(guessed, "p1_fig14")
    assert "Whether these fell" not in told_beside(lost, "p1_fig14")
    for figure in ("p1_fig14", "p1_table1", "p1_table8"):
        assert "Surely above always giving the answer that is most often right at the end: P" in told_beside(
            kept, figure
        )
        assert "None ends surely above" in told_beside(lost, figure)
        assert NOT_MEASURED in told_beside(kept[kept["step"] == 0], figure)


def test_probes_are_selective_or_not(p1):
    assert "Surely above its control task: SRL, POS, constituents, coreference;" in told_beside(p1, "p1_selectivity")
    useless = p1.assign(value=p1["value"].mask(p1["group"] == "selectivity", 0.0))
    assert "Surely above its control task: none;" in told_beside(useless, "p1_selectivity")


def test_what_else_grows_is_told_of_what_was_asked():
    "Of committed rows: every figure of the appendix has a reading, and two of its numbers are the figure's own."
    rows = densest("grown")
    main = main_curves(rows, "albert")
    of = dict.fromkeys(("x_ages_fig2", "x_ages_fig3", "x_phases_fig2", "x_phases_fig3"), dict(family="albert"))
    said = {n: told_beside(main if n == "x_phases_fig1" else rows, n, **of.get(n, {})) for n in GROWN}
    assert not [name for name, text in said.items() if NOT_MEASURED in text]
    relations = pd.read_csv(ROOT / "figures/grown/x_ages_table1.csv").set_index(["how", "what"])
    assert f"log frequency {relations.loc[('spearman', 'frequency'), 'value']:.2f} (" in said["x_ages_fig2"]
    kinds = pd.read_csv(ROOT / "figures/grown/x_phases_table2.csv")
    assert f"{kinds['rise'].sum()} of {kinds['curves'].sum()} curves rise" in said["x_phases_fig1"]


def test_forms_of_windows_are_told_of_committed_rows():
    "The fourth ALBERT of `grown-long`: pairs in windows of 64 were cheaper before windows grew, other forms were not."
    said = told_beside(densest("grown-long"), "x_windows_fig1")
    before = said.split("Cheaper before ")[1].split(" (of 9 forms)")[0]
    assert "neighbours, half swapped, windows of 64 (3.84 after 33,000 updates)" in before
    assert "running text, windows of 64" not in before and "windows of 128" not in before


def test_gains_follow_the_printed_order_or_not(p2):
    from embryo.results.told.transfer import mean_gains, said_printed

    d = mean_gains(p2)
    assert said_printed(d.assign(gain=d["printed"])).startswith("Yes")
    assert said_printed(d.assign(gain=-d["printed"])).startswith("No")
    trained = p2.assign(value=p2["value"].mask((p2["evaluator"] == "finetune") & (p2["l1"] != "none"), 0.0))
    assert "Surely above 0: none" in told_beside(trained, "p2_gain")
    assert "Surely above 0: none" not in told_beside(p2, "p2_gain")
    one = p2[p2["seed"].isna() | (p2["seed"] == p2["seed"].min())]
    assert "One seed in a comparison: every L1" in told_beside(one, "p2_gain")
    assert "One seed" not in told_beside(p2, "p2_gain")


def test_overlap_is_passed_or_not(p2):
    assert "0 lie surely above it" in told_beside(at(p2, "finetune", 0.0), "p2_overlap")
    high = told_beside(at(p2, "finetune", 0.99), "p2_overlap")
    assert "0 surely below, 0 are not told from it" in high
    assert agreement(at(p2, "finetune", 0.0), "p2_overlap").startswith("No")


def test_transplants_do_what_the_papers_say_or_not(p2):
    from embryo.results.told.transfer import said_expected, transplanted

    d = transplanted(p2)[:1]
    for l1, yes, no in (
        ("nesting-50+substitute", "above", "below"),
        ("nesting-zipf+body-only", "below", "above"),
        ("amino-acid+substitute", "below", "above"),
    ):
        assert said_expected(d.assign(l1=l1, side=yes)).startswith(f"Yes: as said: {l1}")
        assert said_expected(d.assign(l1=l1, side=no)).startswith("No")
        assert said_expected(d.assign(l1=l1, side="open")).startswith("Cannot be told")
    assert "the papers say nothing" in said_expected(d.assign(l1="zipf+shuffled", side="above"))


def test_one_seed_is_said(p1):
    twice = pd.concat([p1, p1.assign(seed=1)])
    of_data = {"p1_table3", "p1_table5", "p1_table6", "p1_frequency"}  # of which no model is asked
    always = {"p1_fig4"}  # the maps of one
    for figure in set(P1) - {"p1_fig9b"} - of_data - always:
        assert ONE_SEED in told_beside(p1, figure) and ONE_SEED not in told_beside(twice, figure)


def test_names_cannot_break_out(p2):
    "Names come from rows, which others may have written."
    rows = p2.assign(l1=p2["l1"].replace("english", "<img src=x>"))
    assert "<img" not in told_beside(rows, "p2_gain")
    assert "\n" not in paragraph("a", "b", lambda r: None, rows)


@pytest.mark.parametrize("profile, figures", [("open", P1 + P2), ("transfer", P2)])
def test_sentences_hold_of_what_is_drawn(profile, figures):
    "Of committed rows: nothing is missing that a figure shows, and two numbers are those of the committed table."
    rows = committed(profile)
    absent = {f for f in figures if NOT_MEASURED in told_beside(rows, f)}
    drawn = {p.stem for p in (ROOT / "figures" / profile).glob("p*.csv")}
    assert absent == {f for f in figures if f not in drawn | NO_FIGURE}
    overlap = pd.read_csv(ROOT / "figures" / profile / "p2_overlap.csv")
    above = int((overlap["low"] > 0).sum())
    assert f"Of {len(overlap)} cells (a model on a task) {above} lie surely" in told_beside(rows, "p2_overlap")
    gain = pd.read_csv(ROOT / "figures" / profile / "p2_gain.csv").query("task == 'mean'")
    top = gain.loc[gain["gain"].idxmax()]
    assert np.isclose(gain["gain"].max(), top["gain"]) and f"most for {top['l1']} ({top['gain']:+.2f}" in told_beside(
        rows, "p2_gain"
    )
