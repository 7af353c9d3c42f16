"""What is said beside the figures of what transfers: computed from rows, so that on other rows it says the opposite."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from committed import committed

import embryo.results.page  # noqa: F401 - declares all that is told
from embryo.ground.rows import row_frame
from embryo.micro.made_up_transfer import made_up_transfer
from embryo.results.told.sentences import NOT_MEASURED, TOLD, Seen, paragraph, told_beside

ROOT = Path(__file__).parents[1]
STUDY = [f"x_transfer_{x}" for x in ("fig1", "fig2", "fig3", "fig4", "table1", "table2")]
ENGLISH = [f"x_transfer_{x}" for x in ("fig5", "fig6", "table3")]
OF_THEIR_OWN = {  # figures whose sentences are older
    "x_transfer_fig7": "print(said_emergence(page.rows))",
    "x_transfer_fig8": "print(said_respelled(page.rows))",
}
CHAIN = "nesting-zipf:2M,english:4M"


def scored(l1, seed, value, step=9, family="roberta"):
    "A row of STS-B."
    about = dict(evaluator="finetune", task="STS-B", group="final", split="dev", metric="spearman", n=1500, stderr=0.02)
    return dict(about, l1=l1, seed=seed, step=step, family=family, value=value)


def chained(seed, scores, times):
    "Rows of a chain: nothing learned, where its last language begins, its end."
    about = dict(l1=CHAIN, seed=seed, family="roberta")
    stages = (("1 nesting-zipf", 0.0), ("2 english", 2e6))
    lines = [dict(about, step=9, evaluator="chain", metric="begins", group=g, value=v) for g, v in stages]
    for step, tokens, score, share in zip((0, 3, 9), (0.0, 2e6, 6e6), scores, times):
        at = dict(about, step=step)
        heads = dict(at, evaluator="equality", task="STS-B", split="before", n=500)
        lines += [dict(at, evaluator="chain", metric="tokens", value=tokens), scored(CHAIN, seed, score, step)]
        lines += [dict(heads, metric="floor", group="uniform", value=0.05)]
        lines += [dict(heads, metric="equal", layer=1, group="1", value=0.05 * share)]
    return lines


def english(seeds=3, scores=(0.1, 0.6, 0.1), times=(1, 9, 3), bodies=(6.4, 6.0, 6.2, 5.0), given=(0.5, 0.1)):
    "Rows of a chain, of frozen bodies, and of models of English."
    lines = []
    for seed in range(seeds):
        more = 0.01 * seed
        lines += chained(seed, [s + more for s in scores], [t + more for t in times])
        for l1, loss in zip(("none", "nesting-closed", "nesting-either", "english"), bodies):
            body = dict(l1=f"{l1}+english", seed=seed, step=9, family="roberta", evaluator="pretrain", task="mlm")
            lines.append(dict(body, metric="loss", split="heldout", value=loss + more, n=900, stderr=0.01))
            lines.append(dict(body, metric="plateau", value=6.3))
        for family, score in zip(("bert", "roberta"), given):
            lines += [scored("none", seed, 0.1 + more, 0, family), scored("english", seed, score + more, 9, family)]
    trivial = dict(evaluator="trivial", task="STS-B", metric="spearman", split="dev", seed=0, n=1500, stderr=0.01)
    lines += [dict(trivial, group="overlap-7", value=0.7), dict(trivial, group="constant", value=0.0)]
    return row_frame(lines, profile="made up")


def study(seeds=3):
    "The made-up study, in which no two trainings have the same heads."
    rows = made_up_transfer(seeds)
    heads = rows["evaluator"].eq("equality") & rows["metric"].eq("equal")
    return rows.assign(value=rows["value"].mask(heads, rows["value"] * (1 + 0.01 * rows["seed"])))


@pytest.fixture(scope="module")
def rows():
    return {**dict.fromkeys(STUDY, study()), **dict.fromkeys(ENGLISH, english())}


def swapped(rows, evaluator, a="nesting-zipf", b="nesting-other"):
    "The same rows with what one evaluator says of two languages exchanged."
    some = rows["evaluator"] == evaluator
    return rows.assign(l1=rows["l1"].mask(some, rows["l1"].replace({a: b, b: a})))


def set_to(rows, value, **where):
    "The same rows with other values of some."
    some = np.logical_and.reduce([rows[k] == v for k, v in where.items()])
    return rows.assign(value=rows["value"].mask(some, value))


def told(rows, name):
    return told_beside(rows, f"x_transfer_{name}")


def test_every_figure_is_told_beneath_it():
    "In the appendix the reading follows its figure; two have sentences of their own."
    assert {n for n in TOLD if n.startswith("x_transfer_")} == {*STUDY, *ENGLISH}
    cells = json.loads((ROOT / "nbs/appendix/x_transfer.ipynb").read_text())["cells"]
    code = ["".join(c["source"]) for c in cells if c["cell_type"] == "code"]
    shown = [c.split('"')[1] for c in code if c.startswith("page.show(")]
    for name in shown:
        after = code[code.index(f'page.show("{name}")') + 1]
        assert after == OF_THEIR_OWN.get(name, f'page.tell("{name}")')
    assert set(shown) == {*STUDY, *ENGLISH, *OF_THEIR_OWN}


def test_a_figure_without_a_paper_is_asked():
    see = lambda rows: Seen("3 of 4.")
    assert paragraph("", "Are words learned?", see, None) == "*Asked:* Are words learned? *Here:* 3 of 4."
    assert paragraph("figure 1", "Words are.", see, None).startswith("*The paper (figure 1):* Words are.")


@pytest.mark.parametrize("figure", STUDY + ENGLISH)
def test_it_says_so_where_nothing_was_measured(figure, rows):
    said = told_beside(rows[figure], figure)
    assert NOT_MEASURED not in said
    other = rows[figure]["evaluator"] == "trivial"
    for none in (rows[figure][:0], rows[figure][other]):
        assert told_beside(none, figure).endswith(f"*Here:* {NOT_MEASURED}")


@pytest.mark.parametrize("figure", STUDY + ENGLISH)
def test_it_has_its_parts_and_no_holes(figure, rows):
    said = told_beside(rows[figure], figure)
    places = [said.index(x) for x in ("*Asked:*", "*Here:*", "*What cannot be told:*")]
    assert places == sorted(places) and places[0] == 0 and "*The paper" not in said
    assert not [x for x in ("nan", "None ", "..", "-0.00", " ,", "  ", ": .", "()") if x in said.replace("None is", "")]


@pytest.mark.parametrize("figure", STUDY + ENGLISH)
def test_one_seed_is_said(figure, rows):
    one = study(1) if figure in STUDY else english(1)
    said = told_beside(one, figure)
    assert any(x in said for x in ("One seed", "Of one training")), said
    assert not any(x in told_beside(rows[figure], figure) for x in ("One seed", "Of one training"))


@pytest.mark.parametrize("figure", STUDY + ENGLISH)
def test_names_cannot_break_out(figure, rows):
    bad = rows[figure].assign(l1=rows[figure]["l1"].replace({"nesting-zipf": "<b>zipf", "english": "<b>english"}))
    assert "<" not in told_beside(bad, figure)


def test_equal_partners_in_trees_score_more_less_or_it_cannot_be_told():
    rows = study()
    assert "equal partners in trees score more than other ids in trees" in told(rows, "fig1")
    turned = told(swapped(rows, "finetune"), "fig1")
    assert "equal partners in trees score less than other ids in trees" in turned
    assert "another id, by tree (`nesting-other`, 78% learned) +0.58" in turned.split("cannot be told")[0]
    tuned = rows["evaluator"].eq("finetune") & rows["task"].eq("STS-B")
    vague = rows.assign(value=rows["value"].where(~tuned, 0.1 + 0.3 * rows["seed"]))
    assert "whether equal partners in trees score more than other ids in trees cannot be told" in told(vague, "fig1")
    assert "surely above: none" in told(vague, "fig1")


def test_a_score_below_what_reads_nothing_is_no_gain():
    "On QNLI no pretraining may be below a coin; what is above the one and not the other tells nothing."
    low = set_to(study(), 0.40, evaluator="finetune", task="QNLI", l1="none")
    assert "none on QNLI" in told(set_to(low, 0.48, evaluator="finetune", task="QNLI", l1="nesting-zipf"), "fig1")
    assert "on QNLI 1 of 4 languages (most: `nesting-zipf`" in told(study(), "fig1")


def test_trees_are_learned_as_well_or_not():
    rows = study()
    assert "other ids (`nesting-other`) were learned less than equal ones (`nesting-zipf`)" in told(rows, "table1")
    turned = swapped(rows, "pretrain")
    assert "other ids (`nesting-other`) were learned more than equal ones" in told(turned, "table1")


@pytest.mark.parametrize("slope, answer", [(0.5, "rise with it"), (-0.5, "fall with it"), (0, "it cannot be told")])
def test_scores_go_with_the_share_or_not(slope, answer):
    rows = study()
    own = rows[rows["l1"] == "nesting-zipf"]
    parts = [rows]
    for k, l1 in enumerate(("nesting-50", "nesting-500", "nesting-5000", "flat", "pairs", "nesting-uniform")):
        part = set_to(own.assign(l1=l1), 4.0 - 0.3 * k, evaluator="pretrain", metric="loss")
        score = 0.3 + slope * 0.1 * k + 0.02 * (k % 2)
        parts.append(set_to(part, score, evaluator="finetune", task="STS-B"))
    parts[0] = set_to(rows, 0.3 + slope * 0.9, evaluator="finetune", task="STS-B", l1="nesting-zipf")
    said = told(pd.concat(parts, ignore_index=True), "table1")
    assert f"have to be found by comparing {'they ' * bool(slope)}{answer}" in said


def test_no_model_is_passed_or_not():
    rows = study()
    assert "surely above what needs no model (STS-B 0.76, QNLI 0.74): none." in told(rows, "table1")
    high = set_to(rows, 0.9, evaluator="finetune", l1="zipf", task="QNLI")
    assert "(STS-B 0.76, QNLI 0.74): `zipf` (QNLI)." in told(high, "table1")


def test_one_difference_counts_and_turns():
    rows = study()
    assert "surely more in 4, surely less in 0; 2 cannot be told" in told(rows, "table2")
    assert "(`nesting-either` - `none`): +0.00 [-0.02, +0.03], cannot be told" in told(rows, "table2")
    turned = swapped(rows, "finetune", "nesting-either", "nesting-either+partners")
    assert "(`nesting-either+partners` - `nesting-either`): -0.36" in told(turned, "table2")
    assert "the first scores less (taken singly, on: STS-B, QNLI)" in told(turned, "table2")


def test_twins_are_solved_or_not():
    rows = study()
    assert "of 4 L1s 0 surely above, 2 surely below, 2 cannot be told" in told(rows, "fig2")
    assert "on the task itself: 3 of 4 on QNLI." in told(rows, "fig2")
    assert "itself, `nesting-zipf`: 0 surely above, 1 surely below" in told(rows, "fig2")
    won = told(set_to(rows, 0.9, evaluator="finetune", split="QNLI-Adv"), "fig2")
    assert "4 surely above, 0 surely below" in won and "`nesting-zipf`: 1 surely above" in won
    poor = set_to(rows, 0.3, evaluator="finetune", task="QNLI", split="dev")
    assert "None is surely above who answers without reading on QNLI itself" in told(poor, "fig2")


def test_heads_compare_or_not():
    rows = study()
    assert "surely more: `nesting-zipf` 8.1" in told(rows, "fig3")
    assert "surely more: `nesting-other` 8.1" in told(swapped(rows, "equality"), "fig3")
    of_none = told(swapped(rows, "equality", "nesting-zipf", "none"), "fig3")
    assert "surely more: none; surely less: `" in of_none
    assert "cannot be told: `nesting-zipf`, " in told(study(1), "fig3") and "surely more: none" in told(
        study(1), "fig3"
    )


def test_fine_tuning_makes_heads_or_not():
    rows = study()
    looks = rows["evaluator"].eq("equality") & rows["metric"].eq("equal") & rows["l1"].eq("zipf")
    for split, word in (("dev", "surely up: `zipf`"), ("before", "surely down: `zipf`")):
        some = looks & rows["split"].eq(split)
        changed = rows.assign(value=rows["value"].mask(some, rows["value"] * 4 * (1 + 0.001 * rows["seed"])))
        assert word in told(changed, "fig3")


def test_scores_hang_on_heads_or_not():
    rows = study()
    said = told(rows, "fig4")
    assert "STS-B, 1 off: `nesting-other`" in said and "Surely less" not in said
    assert "`nesting-zipf` +0.38 [+0.38, +0.38]" in said
    group = rows["group"].astype(str).where(rows["evaluator"] == "ablation", "")
    equal, other = group.str.startswith("equal-"), group.str.startswith("other-")
    turned = rows.assign(value=rows["value"].mask(equal, 0.1 + 0.001 * rows["seed"]).mask(other, 0.0))
    assert "(3 seeds): none. Surely less: STS-B, 1 off: `nesting-other` -0.10" in told(turned, "fig4")
    vague = rows.assign(value=rows["value"].mask(equal, 0.3 * rows["seed"]))
    assert "(3 seeds): none. Of the other 4 of 4 comparisons it cannot be told." in told(vague, "fig4")


def test_english_takes_away_adds_or_it_cannot_be_told():
    said = told(english(), "fig5")
    assert "While english is learned, last of `nesting-zipf:2M,english:4M`: STS-B from 0.61 to 0.11 (-0.50" in said
    assert "surely down; 3 seeds), beside the untrained model at the end +0.00" in said
    assert "STS-B from 0.11 to 0.61 (+0.50" in told(english(scores=(0.1, 0.1, 0.6)), "fig5")
    assert "surely up; 3 seeds)" in told(english(scores=(0.1, 0.1, 0.6)), "fig5")
    assert "cannot be told; 1 seed" in told(english(seeds=1), "fig5")
    assert "After nesting-zipf only english was learned" in said
    second = english().assign(l1=lambda d: d["l1"].replace(CHAIN, "nesting-zipf:2M,zipf:4M"))
    both = pd.concat([english(), second], ignore_index=True)
    assert "was not asked" not in told(both, "fig5")


def test_frozen_bodies_are_of_use_or_not():
    said = told(english(), "fig6")
    assert "(6.30 nats; n = 900, 3 seeds): surely worse: `none` 6.41" in said
    assert "surely better: `english`, `nesting-closed`, `nesting-either`; surely worse: none" in said
    assert "better with equal ones" in said
    worse = told(english(bodies=(6.0, 6.4, 6.2, 6.5)), "fig6")
    assert "surely better: none; surely worse: `nesting-either`, `nesting-closed`, `english`" in worse
    assert "better with other ids" in worse
    assert "`nesting-closed` minus `nesting-either`): +0.00" in told(english(bodies=(6, 6, 6, 6)), "fig6")
    assert "cannot be told: `english`, `nesting-closed`, `nesting-either`" in told(english(bodies=(6, 6, 6, 6)), "fig6")


def test_english_transfers_or_not():
    said = told(english(), "table3")
    assert "surely above: bert `english` (STS-B +0.40" in said and "above what needs no model: none." in said
    assert "above what needs no model: bert `english` (STS-B)." in told(english(given=(0.9, 0.1)), "table3")
    lost = told(english(given=(-0.3, 0.1)), "table3")
    assert "surely above: none. Surely below: bert `english` (STS-B -0.40" in lost
    assert "surely above: none. The other 3 of 3" in told(english(given=(0.1, 0.1)), "table3")


def test_sentences_hold_of_what_is_drawn():
    "Of committed rows: every reading has something to say, with the numbers of the committed figures."
    rows = committed("transfer")
    said = {name: told_beside(rows, name) for name in STUDY + ENGLISH}
    assert not [name for name, text in said.items() if NOT_MEASURED in text]
    drawn = {x: pd.read_csv(ROOT / f"figures/transfer/x_transfer_{x}.csv") for x in ("fig4", "fig6")}
    for e in drawn["fig6"].itertuples():
        sure = e.low > e.plateau or e.high < e.plateau
        number = f" {e.value:.2f} [{e.low:.2f}, {e.high:.2f}]" if sure else ""
        assert f"`{e.l1}`{number}" in said["x_transfer_fig6"]
    lost = drawn["fig4"].query("which == 'difference'")
    sure = lost[(lost["low"] > 0) | (lost["high"] < 0)]
    assert f"the other {len(lost) - len(sure)} of {len(lost)} comparisons" in said["x_transfer_fig4"]
    for e in sure.itertuples():
        assert f"`{e.l1}` {e.value:+.2f} [{e.low:+.2f}, {e.high:+.2f}]" in said["x_transfer_fig4"]
