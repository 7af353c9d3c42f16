"""What the front page, the findings and the guide say: their example runs, and their numbers are those of the rows."""

import json
import re

import crash
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from committed import committed, densest
from conftest import ROOT

import embryo
from embryo.batch.graph.recorded import held_against
from embryo.batch.graph.study import read_study
from embryo.batch.plan import Plan
from embryo.batch.run import run_node
from embryo.ground.profiles import read_profile
from embryo.results.grown.another import beside_another, beside_several, last_scores, scores_on_the_way
from embryo.results.grown.helped import dates_beside_help
from embryo.results.grown.tasks import gained_at, gained_from, task_curves
from embryo.results.grown.windows import window_data
from embryo.results.statistics import densest_seeds, over_first

TAU = "BERT's order as ALBERT's (tau)"


def said_in(page):
    "The text of a notebook below nbs, and what its cells print."
    cells = json.loads((ROOT / f"nbs/{page}.ipynb").read_text())["cells"]
    printed = [o.get("data", {}).get("text/markdown", "") for c in cells for o in c.get("outputs", [])]
    return "\n".join(["".join(x) for x in [*(c["source"] for c in cells if c["cell_type"] == "markdown"), *printed]])


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    "The example's profile, made small, and its mine.py."
    folder = tmp_path_factory.mktemp("mine")
    text = said_in("guide/01_own")
    settings = re.search(r"```toml\n(.*?)```", text, re.S)[1]
    table = re.search(r"\[results\.p2_table1\].*", settings)[0]
    small = crash.SIZES.replace('[corpora.klingon]\npath = "klingon.txt"\n', "")
    more = '\ntemplate = "finetune"\nfamily = ["roberta"]\ntask = ["STS-B"]'
    appendix = '[results.p2_transfer]\ntemplate = "appendix"\n[examine]\nmax_sentences = 10\n'
    appendix += '[results.words]\ntemplate = "examine"\nfamily = ["albert"]\nstep = "all"\n'
    profile = 'profile = "mine"\n' + small + settings.replace(table, table + more) + appendix
    (folder / "mine.toml").write_text(profile)
    (folder / "mine.py").write_text(re.search(r"```python\n(.*?)```", text, re.S)[1])
    (folder / "klingon.txt").write_text(crash.KLINGON)
    return folder


def test_what_the_front_page_shows_runs(home):
    plan = Plan(home / "mine.toml", root=home)
    for node in plan.nodes.values():
        run_node(node, here=True)
        assert node.state() == "done", node.name
    rows = pd.read_csv(home / "papermill_runs/mine/rows.csv")
    assert {"none", "english", "klingon", "palindromes"} == set(rows.loc[rows["evaluator"] == "finetune", "l1"])
    sure = rows[rows["evaluator"] == "sure"]
    assert sure["step"].nunique() > 1 and sure["value"].between(0, 1).all()
    parts = rows[(rows["evaluator"] == "pretrain") & (rows["l1"] == "palindromes")]["group"]
    assert {"mlm", "smooth"} <= set(parts)
    assert (home / "figures/mine/own_sureness.png").is_file()
    assert not Plan(home / "mine.toml", root=home).todo()


def test_ledger_of_the_front_page_is_that_of_the_rows():
    "The first paper's claims are held against the rows of `grown`, the second's against those of `transfer`."
    first, second = (embryo.claims(committed(p)) for p in ("grown", "transfer"))
    held = pd.concat([first.query("number <= 15"), second.query("number > 15")])
    table = embryo.short_claims(held).to_markdown(index=False)
    shown = (ROOT / "README.md").read_text()
    assert table.splitlines()[2] in shown and table in shown


def test_answer_on_transfer_is_that_of_the_rows():
    "The table of what transfers is that of the rows, and the numbers below it are means over seeds."
    import embryo
    from embryo.results.transfer.heads import loss_over_seeds, losses_without

    text = said_in("findings/00_transfer")
    rows = committed("transfer")
    assert embryo.short_arms(rows).to_markdown(index=False) in text
    asked = (rows["evaluator"] == "finetune") & (rows["split"] == "dev") & (rows["task"] == "STS-B")
    asked &= (rows["metric"] == "spearman") & (rows["group"] == "final") & (rows["family"] == "roberta")
    means = rows[asked & (rows["step"] != 0) | asked & (rows["l1"] == "none")]
    means = means.assign(
        l1=means["l1"].where(~means["l1"].str.contains(","), means["l1"] + " " + means["step"].astype(str))
    )
    means = means.groupby("l1")["value"].agg(["mean", "size"])
    said = ["nesting-50", "nesting-50+substitute"]
    said += [f"nesting-zipf+{part}" for part in ("body-only", "embeddings-only", "english")]
    said += [f"nesting-zipf:2M,english:4M {step}" for step in (1953, 3953)]
    for l1 in said:
        assert f"{means.loc[l1, 'mean']:.2f}" in text and means.loc[l1, "size"] >= 3, (l1, means.loc[l1])
    chains = means.loc[["english:4M,nesting-zipf:2M 5859", "nesting-zipf:3M~h8"], "mean"]
    assert all(f"{value:.2f}" in text for value in chains)
    lost = loss_over_seeds(losses_without(rows).query("l1 == 'nesting-zipf:3M~h8' and task == 'STS-B' and heads == 4"))
    lost = lost.set_index("which")
    for which in ("equal", "other"):
        assert f"{means.loc['nesting-zipf:3M~h8', 'mean'] - lost.loc[which, 'value']:.2f}" in text, which
    e = lost.loc["difference"]
    assert f"{e['value']:.2f}, {e['low']:.2f} to {e['high']:.2f}" in text
    tuned = rows[(rows["evaluator"] == "finetune") & (rows["group"] == "final") & (rows["task"] == "STS-B")]
    tuned = tuned[(tuned["metric"] == "spearman") & (tuned["split"] == "dev")].set_index("l1")["value"]
    for l1 in ("english:16M~w128", "english:16M~nsp~w64", "published BERT-tiny, tuned to retrieve"):
        assert f"{tuned.loc[l1]:.2f}" in text, l1
    grown = committed("grown")
    grown = grown[(grown["evaluator"] == "finetune") & (grown["group"] == "final") & (grown["split"] == "dev")]
    grown = grown[(grown["mode"] != "published") & (grown["step"] > 0)]
    grown = grown.groupby(["family", "task", "metric", "step"])["value"].mean()
    said = [("STS-B", "spearman", 16_000), ("QNLI", "accuracy", 16_000), ("QQP", "f1", 16_000)]
    bert, albert = ([f"{grown.loc[(family, *at)]:.2f}" for at in said] for family in ("bert", "albert"))
    early = grown.loc[("bert", "STS-B", "spearman", 4000)]
    assert f"have {early:.2f} on STS-B after 8 million tokens and {bert[0]} after 39 million, {bert[1]} on QNLI" in text
    assert f"and {bert[2]} on QQP" in text and "have {}, {} and {} (three trainings".format(*albert) in text


def test_the_clean_pair_on_the_front_page_is_that_of_the_rows():
    "What parts `nesting-closed` from `nesting-either`: scores, also around frozen bodies, and heads."
    from embryo.results.p2.gain import differences
    from embryo.results.transfer.arms import models_scored
    from embryo.results.transfer.heads import comparing, loss_over_seeds, losses_without

    text = said_in("findings/00_transfer")
    rows = committed("transfer")
    scored = models_scored(rows).query("twin == '' and task in ('STS-B', 'QNLI')")
    pairs = [(f"nesting-closed{arm}", f"nesting-either{arm}") for arm in ("", "+english")]
    found = differences(scored, pairs).set_index(["a", "task"])
    for (a, task), name in {
        (pairs[0][0], "STS-B"): "difference ",
        (pairs[0][0], "QNLI"): "",
        (pairs[1][0], "STS-B"): "",
    }.items():
        e = found.loc[(a, task)]
        assert f"{e['score_a']:.2f} and {e['score_b']:.2f} ({name}{e['difference']:.2f}, {e['low']:.2f} to" in text, (
            a,
            task,
        )
    respelled = differences(scored, [("nesting-either+partners", "nesting-closed+partners")]).set_index("task")
    sts, qnli = (respelled.loc[task] for task in ("STS-B", "QNLI"))
    assert f"has {sts['score_a']:.2f} on STS-B and {qnli['score_a']:.2f} on QNLI" in text
    interval = "{difference:.2f}, {low:.2f} to {high:.2f}".format
    said = f"has {sts['score_b']:.2f} and {qnli['score_b']:.2f} (differences from the first {interval(**sts)}, and"
    assert f"{said} {interval(**qnli)})" in text
    strange = scored[scored["l1"] == "nesting-either+strangers"].groupby("task")["value"].mean()
    assert f"drawn at random it has {strange['STS-B']:.2f} and {strange['QNLI']:.2f}" in text
    untrained = scored[scored["l1"] == "none+partners"].groupby("task")["value"].mean()
    assert f"an untrained model {untrained['STS-B']:.2f} and {untrained['QNLI']:.2f}" in text
    asked = "task == 'STS-B' and moment == 'before' and l1 == "
    low, high = (comparing(rows).query(f"{asked}'{l1}'")["times"] for l1 in ("nesting-either", "nesting-closed"))
    assert f"{high.min():.0f} to {high.max():.0f} times" in text and f"{low.min():.1f} to {low.max():.1f} times" in text
    lost = loss_over_seeds(losses_without(rows).query("l1 == 'nesting-closed' and task == 'STS-B' and heads == 1"))
    lost = lost[lost["split"] == "dev"].set_index("which")
    assert f"falls by {lost.loc['equal', 'value']:.2f}, without another one by {lost.loc['other', 'value']:.2f}" in text
    for which, name in (("difference", "difference"), ("within layer", "within its layer")):
        e = lost.loc[which]
        assert f"{name} {e['value']:.2f}, {e['low']:.2f} to {e['high']:.2f}" in text, which


def test_what_needs_no_trees_on_the_front_page_is_that_of_the_rows():
    "Partners and equal ids anywhere in a line, and the head that looks for partners."
    from embryo.results.p2.gain import differences
    from embryo.results.transfer.arms import models_scored
    from embryo.results.transfer.heads import comparing, loss_over_seeds, losses_without

    text = said_in("findings/00_transfer")
    rows = committed("transfer")
    scored = models_scored(rows).query("twin == ''")
    means = scored.groupby(["l1", "task"])["value"].mean()
    for l1 in ("flat-other+partners", "nesting-other+partners"):
        assert f"{means[l1, 'STS-B']:.2f} and {means[l1, 'QNLI']:.2f}" in text, l1
    roles = differences(scored, [("nesting-other+partners", "flat-other+partners")])
    assert set(roles["verdict"]) == {"not shown"}
    trees = differences(scored, [("nesting-either+partners", "flat-other+partners")]).set_index("task")
    interval = "{difference:.2f}, {low:.2f} to {high:.2f}".format
    assert f"(by {interval(**trees.loc['STS-B'])}, and {interval(**trees.loc['QNLI'])})" in text
    shares = scored.groupby("l1")["share"].mean()
    for l1, said in (
        ("flat-other", "learned to {:.0%}, has"),
        ("nesting-other", "(learned to {:.0%})"),
        ("nesting-either", "is learned to {:.0%} and shows no roles"),
    ):
        assert said.format(shares[l1]) in text, l1
    helped = scored.query("l1 == 'pairs:3M~equal' and task == 'STS-B'")
    gain = differences(scored, [("pairs:3M~equal", "none")]).set_index("task").loc["STS-B"]
    share = f"learn {helped['share'].min():.0%} to {helped['share'].max():.0%} and have {helped['value'].mean():.2f}"
    assert f"{share} ({gain['difference']:.2f} above no pretraining, {gain['low']:.2f} to {gain['high']:.2f})" in text
    assert f"never needs it, at {means['nesting-other:3M~equal', 'STS-B']:.2f}" in text
    partners = "l1 == 'nesting-either+partners' and task == 'STS-B'"
    times = comparing(rows).query(f"{partners} and moment == 'before'")["times"]
    assert f"at partners {times.min():.0f} to {times.max():.0f} times" in text
    lost = loss_over_seeds(losses_without(rows).query(f"{partners} and heads == 1"))
    lost = lost[lost["split"] == "dev"].set_index("which")
    all_of = means["nesting-either+partners", "STS-B"]
    without = "loses {:.2f} of {:.2f}, without another one {:.2f}"
    assert without.format(lost.loc["equal", "value"], all_of, lost.loc["other", "value"]) in text
    e = lost.loc["difference"]
    left = [f"{all_of - lost.loc[which, 'value']:.2f}" for which in ("equal", "other")]
    assert f"(difference {e['value']:.2f}, {e['low']:.2f} to {e['high']:.2f}): {' and '.join(left)} are left" in text


def test_trees_and_heads_on_the_front_page_itself():
    "Scores of the three respelled languages with how far each was learned, and what two heads carry."
    from embryo.results.p2.gain import differences
    from embryo.results.transfer.arms import models_scored
    from embryo.results.transfer.heads import loss_over_seeds, losses_without

    text = said_in("index")
    rows = committed("transfer")
    scored = models_scored(rows).query("twin == '' and task == 'STS-B'")
    means, shares = (scored.groupby("l1")[column].mean() for column in ("value", "share"))
    flat, first, second = ("flat-other", "nesting-either", "nesting-other")
    anywhere = f"have {means[f'{flat}+partners']:.2f}, and were learned to {shares[flat]:.0%} of their way"
    better = f"to {shares[first]:.0%} and {shares[second]:.0%}"
    two = [f"{means[f'{tree}+partners']:.2f}" for tree in (first, second)]
    surely = "has surely more, {}; whether the second, with {},".format(*two)
    assert anywhere in text and better in text and surely in text
    held = differences(scored, [(f"{tree}+partners", f"{flat}+partners") for tree in (first, second)])
    held = held.query("task == 'STS-B'").set_index("a")
    assert held.loc[f"{first}+partners", "low"] > 0 > held.loc[f"{second}+partners", "low"]
    lost = loss_over_seeds(losses_without(rows).query("l1 == 'nesting-closed' and task == 'STS-B' and heads == 2"))
    lost = lost[lost["split"] == "dev"].set_index("which")["value"]
    assert min(lost["equal"], lost["other"]) > 0.95 * means["nesting-closed"]


def test_what_is_learned_on_the_front_page_is_that_of_the_rows():
    "Words, probes, facts and tasks over the steps of `grown`, three trainings each."
    from embryo.results.curves import curve_data, reach_step

    text = said_in("findings/01_learned")
    rows = committed("grown")
    held = embryo.claims(rows).query("mode == 'corrected'").set_index("part")
    later, faster = held.loc["content after function words"], held.loc["ALBERT after BERT"]
    interval = "{effect:.1f} doublings of the step {} ({low:.1f} to {high:.1f})".format
    assert interval("later", **later) in text and interval("earlier", **faster) in text
    assert later["verdict"] == "supported" and later["seeds"] == 3
    ends = held.loc["ALBERT after BERT at 90% of the last"]
    assert "difference is {effect:.1f} doublings ({low:.1f} to {high:.1f})".format(**ends) in text
    assert ends["verdict"] == "not shown" and ends["low"] < 0 < faster["low"]
    assert f"(tau {held.loc[TAU, 'effect']:.2f} between" in text
    albert = rows[rows["family"] == "albert"]
    dates = [
        reach_step(curve_data(albert[albert["seed"] == seed], "reconstruct")).set_index("group")["step"]
        for seed in range(3)
    ]
    for classes in (["conj.", "pron.", "prep.", "det."], ["adv.", "adj.", "verb", "noun", "proper noun"]):
        steps = [step for d in dates for step in d[classes]]
        assert f"after {round(min(steps), -2):,.0f} to {round(max(steps), -2):,.0f}" in text
    probed = albert.query("evaluator == 'probe' and task == 'pos' and layer == 1 and metric == 'micro_f1'")
    probed = probed[probed["mode"] == "corrected"].groupby(["group", "step"])["value"].mean()
    start, quarter, end = (f"{probed.loc[('probe', k)]:.2f}" for k in (0, 4000, 16_000))
    assert f"{start} before pretraining, {quarter} after a quarter of it and {end} at the end" in text
    assert f"control task: {probed.loc[('control', 16_000)]:.2f}" in text
    alone = albert.query("evaluator == 'probe' and task == 'pos' and layer == 0 and metric == 'micro_f1'")
    alone = alone.query("group == 'probe' and step == 16_000 and mode == 'corrected'")["value"].mean()
    assert f"embeddings alone, which sees no neighbour, has {alone:.2f} at the end" in text
    left = held.loc["way left to the last POS score (between steps 1,000 and 2,000)"]
    assert left["verdict"] == "contradicted" and 0.2 < left["effect"] < 0.3  # a quarter of the way


def test_facts_on_the_front_page_are_those_of_the_rows():
    "How few are known, and the relation that one training alone had."
    text = said_in("findings/01_learned")
    rows = committed("grown").query("evaluator == 'knowledge'")
    most = rows.query("metric == 'majority' and task == 'facts'").groupby("group")["value"].mean()
    assert f"most frequent object is right in {most['all']:.2f}" in text and f"one, {most['P407']:.2f}" in text
    right = rows.query("family != 'electra' and group == 'P407' and metric == 'p@1' and mode == 'corrected'")
    among = right.query("task == 'relation' and step == 16_000").groupby(["family", "seed"])["value"].mean()
    assert len(among) == 8 and f"all eight end at {among.mean():.2f}" in text and among.std() < 0.005
    common = right[right["task"] == "common"].set_index(["family", "seed", "step"])["value"]
    comes = [common.loc["bert", seed].sort_index().tail(4) for seed in (1, 3)]
    said = [", ".join(f"{x:.2f}" for x in d) for d in comes]
    assert f"({said[0]} and {said[1]} at the last four checkpoints)" in text
    right = common.loc["albert"]
    assert f"{right.loc[(0, 8000)]:.2f} of the questions after half" in text
    assert f"in {right.loc[(0, 16_000)]:.2f} at the end" in text
    assert f"at most {right.loc[[1, 2]].max():.2f} at any step" in text


def test_comparing_on_the_front_page_is_that_of_the_rows():
    "STS-B of three BERTs and three ALBERTs, and what their tasks of sentence pairs came to."
    text = said_in("findings/01_learned")
    rows = committed("grown")
    tuned = rows.query("evaluator == 'finetune' and group == 'final' and split == 'dev' and task == 'STS-B'")
    tuned = tuned.query("metric == 'spearman' and mode != 'published'").set_index(["family", "step"])["value"]
    ends = {f: tuned.loc[(f, 16_000)].mean() for f in ("bert", "albert")}
    assert len(tuned.loc[("bert", 16_000)]) == len(tuned.loc[("albert", 16_000)]) == 3
    assert "in the end {bert:.2f}, ALBERTs {albert:.2f}".format(**ends) in text
    asked = rows.query("evaluator == 'finetune' and group == 'final' and split == 'dev' and task == 'STS-B'")
    gained = over_first(asked.query("metric == 'spearman' and step == [0, 16_000]")).set_index(["family", "step"])
    gained = gained[gained["mode"] != "published"]
    gains = {f: gained.loc[(f, 16_000), ["gain", "gain_low", "gain_high"]] for f in ends}
    said = "{:.2f} more ({:.2f} to {:.2f}) and {:.2f} ({:.2f} to {:.2f})"
    assert said.format(*gains["bert"], *gains["albert"]) in text
    last = rows.query("evaluator == 'pretrain' and split == 'heldout' and step == 16_000 and mode == 'corrected'")
    last = last.groupby(["family", "group", "metric"])["value"].mean()
    losses = (last.loc[("bert", "mlm", "loss")], last.loc[("albert", "mlm", "loss")])
    assert "{:.2f} and {:.2f} nats".format(*losses) in text
    pairs = (last.loc[("bert", "nsp", "accuracy")], last.loc[("albert", "sop", "accuracy")])
    assert "next sentence right in {:.2f}, ALBERTs the order of two in {:.2f}".format(*pairs) in text


def test_exchanged_questions_on_the_front_page_are_those_of_the_rows():
    "STS-B and masked words of the two trainings whose questions about pairs are exchanged, beside the others."
    front, text = said_in("index"), said_in("findings/01_learned")
    grown, exchanged = (committed(p) for p in ("grown", "grown-pairs"))
    beside = beside_another(grown, exchanged).set_index(["measure", "family"])
    assert set(beside["trainings"]) == {3, 5}
    tuned, nats = beside.loc["STS-B"], beside.loc["masked words (nats)"]
    assert tuned["outside"].to_dict() == dict(albert="above", bert="below")
    assert f"as ALBERTs are, has {tuned['other']['bert']:.2f}" in front
    assert f"whether one follows the other {tuned['other']['albert']:.2f} (one training each:" in front
    ranges = [f"{tuned['low'][f]:.2f} to {tuned['high'][f]:.2f}" for f in ("bert", "albert")]
    assert f"would ({', '.join(ranges)})" in text
    assert nats["outside"].to_dict() == dict(albert="above", bert="below")
    price = nats["other"] - nats["mean"]
    assert f"cost this ALBERT {price['albert']:.2f} nats more than others of its kind" in text
    assert f"this BERT, which is spared the question, {-price['bert']:.2f} less" in text
    right = beside.loc["masked words right"]
    assert right["outside"].to_dict() == dict(albert="below", bert="above")
    assert "({})".format(", ".join(f"{x.other:.2f} instead of {x.mean:.2f}" for x in right.itertuples())) in text


def rows_of(profile):
    "Committed rows, without the fourth ALBERT of `grown-long`: it has a page of its own."
    rows = committed(profile)
    return rows[rows["seed"] != 3] if profile == "grown-long" else rows


def test_what_longer_trainings_add_is_that_of_the_rows():
    "Three ALBERTs and three BERTs of 42,000 updates beside those of 16,000."
    front, text = said_in("index"), said_in("findings/01_learned")
    text = text[text.index("## What 2.6 times as many updates add") : text.index("## A larger model on a GPU")]
    grown, longer = rows_of("grown"), rows_of("grown-long")
    beside = beside_several(grown, longer).set_index(["measure", "family"])
    assert set(beside["others"]) == {3}
    nats = beside.loc["masked words (nats)"]
    less, low, high = -nats.loc["bert", ["difference", "high", "low"]]
    assert f"cost {less:.2f} nats less in BERTs ({low:.2f} to {high:.2f})" in text and low > 0
    assert f"in ALBERTs {-nats['difference']['albert']:.2f}, which is not told" in text and nats["high"]["albert"] > 0
    right = beside.loc["masked words right"]
    seen = "and {:.2f} of them are right, {:.2f} more".format(*right.loc["bert", ["other", "difference"]])
    assert seen in text
    told = beside[beside["p"] < 0.05]
    both = {"hidden words right (GUM)", "parts of speech, layer 1", "BLiMP"}
    berts = {"masked words (nats)", "masked words right", "visible words right", "question about pairs right"}
    told_of = {(m, f) for m in both for f in ("albert", "bert")} | {("roles, layer 1", "albert")}
    assert set(told.index) == told_of | {(m, "bert") for m in berts} and len(told) == 11
    more = beside["difference"].round(2)
    assert set(more["hidden words right (GUM)"]) == set(more["BLiMP"]) == {0.02}
    probed = [more["parts of speech, layer 1", f] for f in ("albert", "bert")] + [more["roles, layer 1", "albert"]]
    assert probed == [0.02, 0.01, 0.01]
    assert [more[m, "bert"] for m in ("visible words right", "question about pairs right")] == [0.01, 0.04]
    three = beside_several(grown[~grown["seed"].isin([3, 4])], longer).set_index(["measure", "family"])
    assert set(three.index[three["p"] < 0.05]) < set(told.index) and (three["p"] < 0.05).sum() == 6
    facts = beside.loc["facts, common objects"]
    four = facts.loc["bert", ["other", "mean", "low", "high"]]
    assert "BERTs name {:.2f} instead of {:.2f} ({:.2f} to {:.2f} more)".format(*four) in text
    assert "ALBERTs have {:.2f} and had {:.2f}".format(*facts.loc["albert", ["other", "mean"]]) in text

    ends = last_scores(longer).set_index(["measure", "family", "seed"])["value"].sort_index()
    each = {key: "{:.2f}, {:.2f} and {:.2f}".format(*d) for key, d in ends.groupby(["measure", "family"])}
    assert f"three BERTs have {each['STS-B', 'bert']}, three ALBERTs {each['STS-B', 'albert']}" in front
    assert f"(STS-B {each['STS-B', 'albert']}, their question" in text
    assert f"BERTs have {each['STS-B', 'bert']} on STS-B, where" in text and f"{each['QNLI', 'bert']} on QNLI" in text
    assert beside.loc["STS-B", "low"]["bert"] < 0 and beside.loc["QNLI", "low"]["bert"] < 0

    heldout = "evaluator == 'pretrain' and split == 'heldout' and group == 'mlm' and metric == 'loss'"
    loss = longer.query(heldout).set_index(["family", "step", "seed"])["value"].sort_index()
    of_three = {k: "{:.2f}, {:.2f} and {:.2f}".format(*d) for k, d in loss.groupby(["family", "step"]) if len(d) == 3}
    assert f"ALBERTs have {of_three['albert', 33_000]} nats on held-out windows of 64" in text
    assert f"after 36,000 they have {of_three['albert', 36_000]}, at the end {of_three['albert', 42_000]}" in text
    assert f"BERTs have {of_three['bert', 33_000]} before, and {of_three['bert', 42_000]} at the end" in text
    right = longer.query(heldout.replace("'loss'", "'accuracy'") + " and family == 'albert'")
    right = right.set_index(["step", "seed"])["value"].sort_index()
    said = ["{:.2f}, {:.2f} and {:.2f}".format(*right[step]) for step in (33_000, 42_000)]
    assert "ALBERTs have {} right before and {} at the end".format(*said) in text
    back = loss.xs(42_000, level="step") > loss.xs(33_000, level="step")
    assert back.groupby("family").sum().to_dict() == dict(albert=2, bert=1) and "two of three to the end" in text
    short = grown.query(heldout + " and family == 'albert'").set_index(["step", "seed"])["value"].sort_index()
    said = ["{:.2f}, {:.2f} and {:.2f}".format(*short[step]) for step in (12_000, 14_000)]
    assert "seen: {} nats after 12,000 updates, {} after 14,000".format(*said) in text


def at_first_and_last(rows, split):
    "Minimal pairs of BLiMP or Zorro that are right, {(family, step): share}."
    asked = rows.query(f"evaluator == 'minimal_pairs' and task == 'word-l2r-all' and split == '{split}'")
    return asked.query("metric == 'accuracy'").groupby(["family", "step"])["value"].mean()


def test_what_larger_models_add_is_that_of_the_rows():
    "One ALBERT, BERT and ELECTRA of 8 x 512, beside 4 x 128 on 39 and on 103 million tokens, and beside the rules."
    front, text = said_in("index"), said_in("findings/01_learned")
    text = text[text.index("## A larger model on a GPU") :]
    grown, longer, large = (rows_of(profile) for profile in ("grown", "grown-long", "grown-gpu"))
    tuned = task_curves(large)
    rule = tuned[tuned["step"].isna()].groupby("task")["value"].max()
    lines = tuned[tuned["step"].notna()].set_index(["task", "family", "step"])
    sts, qqp, mnli, qnli = (lines.loc[task] for task in ("STS-B", "QQP", "MNLI", "QNLI"))
    bert, electra = ("bert", 4500), ("electra", 3000)
    ends = last_scores(longer).set_index(["measure", "family", "seed"])["value"].sort_index()
    there = ends.groupby(["measure", "family"]).mean()
    each = {key: "{:.2f}, {:.2f} and {:.2f}".format(*d) for key, d in ends.groupby(["measure", "family"])}
    assert min(sts["low"][bert], sts["low"][electra]) > rule["STS-B"] > sts["low"]["bert", 2000]
    assert f"STS-B is {sts['value']['bert', 2000]:.2f} after a third of the updates, not above" in text
    assert f"and {sts['value'][bert]:.2f} after three quarters, above it; three of four layers" in text
    assert f"on 103 million tokens have {each['STS-B', 'bert']}" in text
    assert f"QNLI is {qnli['value'][bert]:.2f} ({each['QNLI', 'bert']} there, the rule {rule['QNLI']:.2f})" in text
    pair = f"QQP {qqp['value'][bert]:.2f} (F1; {each['QQP (F1)', 'bert']}, the rule {rule['QQP']:.2f})"
    assert f"{pair}, MNLI {mnli['value'][bert]:.2f} (0.47 in each, the rule {rule['MNLI']:.2f})" in text
    assert set(ends["MNLI", "bert"].round(2)) == {0.47}
    assert f"({each['STS-B', 'bert']} there), MNLI {mnli['value'][bert]:.2f} ({there['MNLI', 'bert']:.2f})" in front
    assert "on 103 million have {:.2f} and {:.2f}".format(*there["BLiMP"][["albert", "bert"]]) in front
    assert qqp["low"][bert] > rule["QQP"] and mnli["low"][bert] > rule["MNLI"]
    assert (
        f"from {sts['value']['electra', 1000]:.2f} after a third of its updates to {sts['value'][electra]:.2f}" in text
    )
    assert qnli["high"][electra] < rule["QNLI"] and f"near a coin ({qnli['value'][electra]:.2f})" in text
    assert qqp["low"][electra] < rule["QQP"] < qqp["high"][electra] and 0 < mnli["low"][electra] - rule["MNLI"] < 0.01
    two = [f"{x:.2f}" for x in (qqp["value"][electra], rule["QQP"], mnli["value"][electra], rule["MNLI"])]
    assert "on QQP ({}) not told from the rule ({}), and on MNLI hardly above it ({} and {})".format(*two) in text
    assert f"STS-B of the BERT is {sts['value'][bert]:.2f} after three quarters of the updates" in front
    assert f"has {sts['value'][electra]:.2f} on STS-B, above the rule on shared words, and a coin on QNLI" in front
    beside = beside_another(grown, large).set_index(["measure", "family"])
    new, mean = beside["other"], beside["mean"]
    outside = beside_another(longer, large).set_index(["measure", "family"])["outside"]
    assert set(outside["BLiMP"]) == {"above"} and set(outside["Zorro"]) == {""} and outside["STS-B", "albert"] == ""
    small_one = f"a small one on 20 million tokens: {mean['STS-B', 'electra']:.2f} and a coin"
    assert small_one in front and abs(mean["QNLI", "electra"] - 0.5) < 0.01
    assert f"the ALBERT has {new['STS-B', 'albert']:.2f}" in front
    asked = "question about pairs right"
    assert (
        f"sentences ({new[asked, 'albert']:.2f}), while BERT's" in text
        and f"right in {new[asked, 'bert']:.2f}." in text
    )
    right = ["{:.2f} (ALBERT) and {:.2f} (BERT) are right".format(*new["BLiMP"][["albert", "bert"]])] * 2
    assert right[0] in text and right[1] in front
    assert "of Zorro's {:.2f} both".format(*set(new["Zorro"][["albert", "bert"]].round(2))) in text
    small = [", ".join(f"{d[m, f]:.2f}" for f in ("albert", "bert")) for d in (mean, there) for m in ("BLiMP", "Zorro")]
    assert "smaller ones had {} and {}, and on 103 million {} and {}".format(*small) in text
    first = {s: at_first_and_last(large, s) for s in ("blimp", "zorro")}
    of = lambda family, step: " and ".join(f"{first[s][family, step]:.2f}" for s in first)
    assert f"this BERT has {of('bert', 0)}, this ELECTRA {of('electra', 0)}" in text


def test_larger_probes_are_held_against_their_controls():
    "What probes of the first layer find above their control tasks, and what facts are known."
    text = said_in("findings/01_learned")
    found = {}
    for profile in ("grown-long", "grown-gpu"):
        rows = rows_of(profile)
        d = rows.query("evaluator == 'probe' and layer == 1 and metric == 'micro_f1' and mode == 'corrected'")
        d = d[d["step"] == d.groupby("family")["step"].transform("max")]
        found[profile] = d.groupby(["task", "group", "family"])["value"].mean()
    smaller, larger = found["grown-long"], found["grown-gpu"]

    def change(task, family):
        about = task, "selectivity", family
        return f"from {smaller[about]:.2f} to {larger[about]:.2f}"

    assert f"for parts of speech {change('pos', 'albert')} in ALBERT and {change('pos', 'bert')} in BERT" in text
    assert f"for constituents {change('const', 'albert')} and {change('const', 'bert')}" in text
    assert f"For roles it rises, {change('srl', 'albert')} and {larger['srl', 'selectivity', 'bert']:.2f}" in text
    assert f"{smaller['srl', 'selectivity', 'bert']:.2f}" == f"{smaller['srl', 'selectivity', 'albert']:.2f}"
    gains = (larger - smaller).xs("probe", level="group").xs("albert", level="family")
    assert gains[["pos", "const"]].round(2).eq(0.01).all()
    known = rows.query("evaluator == 'knowledge' and task == 'relation' and group == 'all' and metric == 'p@1'")
    known = known.query("step == 6000").set_index("family")["value"]
    assert "{albert:.2f} and {bert:.2f} are right, where the most frequent".format(**known) in text
    answered = rows.query("evaluator == 'finetune' and family == 'bert' and step == 3000 and metric == 'mean'")
    answered = answered.query("group == 'final'").set_index("task")["value"]
    assert f"({answered['SQuAD2.0']:.2f} and 0.50 after half of the updates)" in text
    assert f"{answered['SQuAD2.0-HasAns']:.2f} of the questions that have an answer" in text


def test_when_tasks_are_gained_is_that_of_the_rows():
    "From which checkpoint on models are better than before pretraining, and than who reads nothing."
    text = said_in("findings/01_learned")
    rows = committed("grown")
    data = task_curves(densest_seeds(rows))
    blind = data[data["mode"] == "trivial"].set_index("task")["value"]
    lines = {k: line for k, line in data[data["step"].notna()].groupby(["task", "family"])}
    tasks = ("STS-B", "QNLI", "QQP", "SST-2", "MNLI")
    assert {len(lines[(t, f)]) for t in tasks for f in ("albert", "bert")} == {8}
    assert [lines["STS-B", f]["seeds"].max() for f in ("albert", "bert")] == [2, 1]
    assert len(lines["SQuAD2.0", "bert"]) == 8 and set(lines["SQuAD2.0", "bert"]["value"].round(2)) == {0.5}
    since = {k: gained_from(line, blind[k[0]]) for k, line in lines.items()}
    assert f"STS-B from {since['STS-B', 'bert']:,.0f} updates on" in text
    assert since["QQP", "bert"] == since["QNLI", "bert"]
    both = f"on QQP and QNLI from {since['QNLI', 'bert']:,.0f} (on QNLI in passing at 1,000 and 2,000)"
    assert f"{both}, and on MNLI from {since['MNLI', 'bert']:,.0f}" in text
    assert gained_at(lines["QNLI", "bert"], blind["QNLI"])[:2] == [1000, 2000]
    assert since["SST-2", "bert"] is None and not {since[t, "albert"] for t in tasks} - {None}
    mnli = lines["MNLI", "bert"].set_index("step")["value"]
    rule = data[(data["mode"] == "overlap") & (data["task"] == "MNLI")]["value"].iloc[0]
    said = "{:.2f} then, {:.2f} at the end, where a rule on shared words has {:.2f}"
    assert said.format(mnli[500], mnli[16_000], rule) in text
    assert "on MNLI four fifths are there after 500" in text
    assert 0.78 < (mnli[500] - mnli[0]) / (mnli[16_000] - mnli[0]) < 0.82
    alberts = [task_curves(rows[(rows["family"] == "albert") & (rows["seed"] == s)]) for s in (1, 2)]
    alberts = [d[(d["task"] == "MNLI") & d["step"].notna()].set_index("step")["value"] for d in alberts]
    said = "after 500 ({:.2f} and {:.2f}) and have lost it after 2,000 ({:.2f} and {:.2f})"
    assert said.format(*(d[step] for step in (500, 2000) for d in alberts)) in text
    assert "MNLI ({:.2f} to {:.2f}, {:.2f} to {:.2f})".format(*(d[x] for d in alberts for x in (0, 16_000))) in text
    small = rows.query("evaluator == 'finetune' and family == 'bert' and group == 'final' and seed == 1")
    small = small.set_index(["task", "metric", "step"])["value"]
    cola = [small.loc[("CoLA", "matthews", step)] for step in (0, 16_000)]
    assert "CoLA of this BERT is {:.2f} before pretraining and {:.2f} after".format(*cola) in text
    ends = [small.loc[(task, "accuracy", 16_000)] for task in ("MRPC", "RTE")]
    assert "MRPC {:.2f} and RTE {:.2f}, where".format(*ends) in text


def test_ages_and_divergence_of_the_findings_are_those_of_the_rows():
    "What goes with the age of words, and how far two trainings are apart."
    from embryo.results.acquisition.drawings import relation_table
    from embryo.results.phases.drawings import seed_divergence

    text = said_in("findings/01_learned")
    rows = densest("grown")
    ages = relation_table(rows, family="albert").set_index(["how", "what"])["value"]
    assert f"log frequency {ages.loc[('spearman', 'frequency')]:.2f}, 213 words" in text
    apart = seed_divergence(rows, family="albert").query("group == 'all'").set_index("step")["value"]
    said = "{:.2f} nats after 500 updates, {:.2f} after 2,000, {:.2f} at the end"
    assert said.format(*apart.loc[[500, 2000, 16_000]]) in text
    apart = seed_divergence(rows, family="bert").query("group == 'all'").set_index("step")["value"]
    said = "{:.2f} nats after 500 updates, the most after 1,000 ({:.2f}), {:.2f} at the end"
    assert said.format(*apart.loc[[500, 1000, 16_000]]) in text and apart.idxmax() == 1000


def test_ages_of_two_families_are_those_of_the_rows():
    "How far ALBERTs and BERTs agree on which words are early, on the front page and in the findings."
    from embryo.results.acquisition.families import agreement_table, word_pairs

    front, text = said_in("index"), said_in("findings/01_learned")
    rows = committed("grown")
    rows = rows[rows["evaluator"] == "surprisals"]
    d = agreement_table(rows).set_index("of")
    level = {of: f"{x['value']:.2f}" for of, x in d.iterrows()}
    said = "ranks of ages correlate by {between}, those of two seeds of one family by {albert} and {bert}"
    assert said.format(**level) in front and f"with frequency held {level['between held']} is left" in front
    value, low, high = d.loc["corrected", ["value", "low", "high"]]
    line = rf"over what seeds of a family agree in \| +{value:.3f} \| {low:.3f} to {high:.3f}"
    assert re.search(line, text) and "is just told from 1" in text
    assert 0.99 < high < 1 and d.loc["between held", "low"] > 0
    left = "{albert held} and {bert held} are left within a family and {between held} between the two"
    assert left.format(**level) in text and d.loc["corrected held", "value"] < value
    assert d.loc["corrected held", "high"] > 1
    pairs = word_pairs(rows)
    ages = {f: f"{10 ** pairs[f].median():,.0f}" for f in ("albert", "bert")}
    assert "the median age is {bert} updates, in ALBERTs {albert}".format(**ages) in text


def test_the_order_in_berts_is_that_of_the_rows():
    "Which kinds of ability surely change before hidden words in BERTs, and that none does in ALBERTs."
    from embryo.results.phases.drawings import kind_table, main_curves

    text = said_in("findings/01_learned")
    rows = densest("grown")
    kinds = {f: kind_table(main_curves(rows, f))[0].set_index("kind")["before"] for f in ("albert", "bert")}
    assert set(kinds["albert"]) == {""}
    sooner = kinds["bert"][kinds["bert"].str.contains("mask prediction")].index
    probes = {f"probe, {name}" for name in ("constituents", "parts of speech", "roles")}
    assert set(sooner) == {"reconstruction"} | probes and "surely change before words that are hidden" in text


def numbers_of(profile, name):
    "The numbers behind a committed figure or table."
    return pd.read_csv(ROOT / f"figures/{profile}/{name}.csv")


SCHEDULES = {"grown": (0, 1, 2), "grown-long": (3,), "grown-gpu": (0,)}  # profile -> the ALBERTs asked all along


def test_dates_of_three_schedules_are_those_of_the_rows():
    "When help ends, and what is dated before and behind it."
    text = said_in("findings/01_learned")
    dates = {}
    for profile, seeds in SCHEDULES.items():
        rows = committed(profile)
        asked = rows[rows["seed"].isin(seeds) | rows["seed"].isna()]
        ages = numbers_of(profile, "x_ages_fig2")["age"]
        dates[profile] = dates_beside_help(asked, read_profile(profile), ages)
        assert all(re.search(rf"\| {what} .*\| {said} ", text) for what, said in dates[profile].items())
    table = pd.DataFrame(dates)
    said = {what: tuple(table.loc[what]) for what in table.index}
    without = said["below frequencies, asked without"]
    assert "after {} of 16,000, {} of 42,000 and {} of 6,000".format(*without) in text
    assert "{} updates in the one and {} in the other".format(*said["ages of words, median"][:2]) in text
    steps = table.map(lambda x: float(x.replace(",", "").rstrip("%")))
    ratios = steps["grown-long"] / steps["grown"]
    ages, whole = ratios["ages of words, median"], ratios["updates"]
    assert (
        f"the ratio of the lengths ({ages:.1f} and {whole:.1f})" in text
        and f"after {ages:.1f} times as many" in said_in("index")
    )
    assert f"words are {ratios['visible words, median class']:.1f} times as late" in text
    assert f"words {ratios['hidden words, median class']:.1f} times" in text
    assert steps.loc["of these before the help ends", ["grown", "grown-long"]].min() > 50
    with_help = steps.loc["below frequencies, as trained"]
    assert f"after {with_help.min():,.0f} to {with_help.max():,.0f} updates" in text


def test_published_ages_are_told_of_every_profile():
    "With frequency held, a published BERT's ages are told of two sets of ALBERTs and of no other."
    text = said_in("findings/01_learned")
    of_all = {f"{p}{e}": p for p in (*SCHEDULES, "grown-plain") for e in ("", "_bert")}
    of_all = [x for x, p in of_all.items() if (ROOT / f"figures/{p}/x_ages_table1{x.removeprefix(p)}.csv").is_file()]
    assert len(of_all) == 6
    held = {}
    for one in of_all:
        profile = one.removesuffix("_bert")
        d = numbers_of(profile, f"x_ages_table1{one.removeprefix(profile)}").query("what == 'published'")
        held[one] = d.set_index("how").loc["partial"]
    assert [one for one, d in held.items() if d["low"] > 0] == ["grown", "grown-plain"]
    for one in ("grown-plain", "grown_bert", "grown-plain_bert"):
        d = held[one]
        assert f"{d['value']:.2f} ({d['low']:.2f} to {d['high']:.2f}, {d['n']} words)" in text
    for page in ("findings/01_learned", "index"):
        assert "of two of six sets of trainings, both" in said_in(page)
    tables = {p: numbers_of(p, "x_ages_table1").query("what == 'published'").set_index("how") for p in SCHEDULES}
    own, longer, large = (tables[p].loc["partial"] for p in SCHEDULES)
    assert f"({tables['grown'].loc['spearman', 'value']:.2f} over {own['n']} words)" in text
    assert own["low"] > 0 and f"with frequency held {own['value']:.2f} is left here" in text
    for one in (longer, large):
        assert one["low"] < 0 < one["high"]
        assert f"{one['value']:.2f} ({one['low']:.2f} to {one['high']:.2f}, {one['n']} words)" in text


def test_verdicts_of_three_schedules_are_those_of_their_ledgers():
    "Which claims have another verdict in a longer and in a larger training."
    text, front = said_in("findings/01_learned"), said_in("index")
    claims = {p: numbers_of(p, "p1_claims").query("mode == 'corrected'").set_index("number") for p in SCHEDULES}
    verdicts = pd.DataFrame({p: c["verdict"].groupby("number").first() for p, c in claims.items()})
    other = verdicts[verdicts.nunique(axis=1) > 1]
    tested = other[~other.eq("cannot be tested here").any(axis=1)]
    assert "verdicts in claims {}, {}, {}, {} and {} ".format(*tested.index) in front
    for number, line in other.iterrows():
        assert re.search(rf"\| +{number} \| .*" + r" *\| ".join(line), text)
    later = [c.loc[1, "effect"] for c in claims.values()]
    assert set(verdicts.loc[1]) == {"supported"} and "by {:.1f}, {:.1f} and {:.1f} doublings".format(*later) in text
    left = [c.loc[8].query("part.str.contains('POS')")["effect"].item() for c in claims.values()]
    assert "left of the way then is {:.2f}, {:.2f} and {:.2f}".format(*left) in text
    assert f"longer ALBERT {left[1]:.2f} of the way is left, in the larger one {left[2]:.2f}" in text


def test_syntaxgym_of_larger_and_smaller_models_is_that_of_the_rows():
    "A third measure of grammar, which does not agree with the two others."
    text = said_in("findings/01_learned")
    asked = [
        rows_of(p).query("evaluator == 'syntaxgym' and task == 'word-l2r-all' and metric == 'accuracy'")
        for p in ("grown-gpu", "grown-long")
    ]
    large, small = (d[d["step"] == d["step"].max()].set_index(["family", "seed"])["value"] for d in asked)
    two = [large.loc[(f, 0)] for f in ("albert", "bert")]
    six = [small.loc[(f, s)] for f in ("albert", "bert") for s in (0, 1, 2)]
    said = "ALBERT meets {:.2f} and BERT {:.2f}, the smaller ones on 103 million tokens {:.2f}, {:.2f}, {:.2f} and"
    assert (said + " {:.2f}, {:.2f}, {:.2f};").format(*two, *six) in text
    first = rows_of("grown").query("evaluator == 'syntaxgym' and task == 'word-l2r-all' and metric == 'accuracy'")
    first = first[first["step"] == 0]["value"]
    assert f"0.29 by chance ({first.min():.2f} to {first.max():.2f} before the first update)" in text


def test_ranks_of_facts_are_those_of_the_rows():
    "How far down the right object stands."
    text = said_in("findings/01_learned")
    rows = rows_of("grown").query("evaluator == 'knowledge' and group == 'all' and step == 16_000")
    means = rows.groupby(["family", "metric", "task"])["value"].mean().round(2)
    for family, metric in ((f, m) for f in ("albert", "bert") for m in ("mrr", "p@1", "p@10")):
        values = [f"{means[family, metric, task]:g}" for task in ("vocabulary", "common", "relation")]
        assert re.search(rf"\| {family} +\| {metric} +\| +" + r" +\| +".join(values) + r" +\|", text)


def test_what_more_english_adds_is_that_of_the_rows():
    "STS-B of the five trainings on 16 million tokens, in the order of the table, and CoLA of the deepest."
    text = said_in("findings/00_transfer")
    rows = committed("transfer")
    d = rows.query("evaluator == 'finetune' and split == 'dev' and group == 'final' and mode == 'corrected'")
    d = d[d["l1"].str.contains("english:16M")]
    by_l1 = d.query("task == 'STS-B' and metric == 'spearman'").set_index("l1")["value"]
    assert len(by_l1) == 5
    order = ("english:16M", "english:16M~nsp~w64", "nesting-zipf:2M~nsp~w64,english:16M~nsp~w64")
    order += ("english:16M~4x128~nsp~w64", "english:16M~w128")
    said = "from {:.2f} to {:.2f} with the pairs and their longer windows, to {:.2f} with the nursery before them"
    said += " and to {:.2f} with two more layers"
    assert said.format(*(by_l1[l1] for l1 in order[:4])) in text
    assert f"longer windows alone do not raise it ({by_l1[order[4]]:.2f})" in text
    cola = d.query("task == 'CoLA' and metric == 'matthews'").set_index("l1")["value"].sort_values()
    least, most, deepest = cola.iloc[0], cola.iloc[3], cola.iloc[4]
    assert f"(four layers {deepest:.2f}, the others {least:.2f} to {most:.2f})" in text
    coin = d.query("task == 'QNLI' and metric == 'accuracy'")["value"]
    assert len(coin) == 5 and (coin - 0.5).abs().max() < 0.03


def test_what_the_findings_say_was_asked_is_among_the_rows():
    "Which checkpoints of each training were examined, and what is missing at the end."
    text = said_in("findings/01_learned")
    held = {}
    for profile in ("grown", "grown-long", "grown-gpu"):
        rows = ROOT / f"papermill_runs/{profile}/rows.csv"
        held[profile] = held_against(read_study(profile, dry=True), rows)
        asked = held[profile].query("state != 'unasked'")
        for template, state in asked.groupby("template")["state"]:
            assert f"{(state == 'answered').sum():,} of {len(state):,}" in text, (profile, template)
    words = held["grown"].query("asked == 'mask_predict' and state == 'answered'")
    times = words.groupby(["family", "seed"])["step"].nunique()
    assert "looked at twelve times on the way, the third BERT seven times" in text
    assert times.drop([("electra", 0), ("bert", 2)]).eq(12).all() and times["bert", 2] == 7
    assert set(held["grown-long"]["state"]) == {"answered"}
    assert set(held["grown-gpu"].query("state == 'answered'")["seed"]) == {0}


def test_layers_of_the_findings_are_those_of_the_rows():
    "When layers are what they stay, and which of them two trainings share."
    from embryo.results.phases.drawings import layer_likeness
    from embryo.results.phases.said import settled

    text = said_in("findings/01_learned")
    rows = densest("grown")
    data = layer_likeness(rows, family="albert").set_index(["kind", "step", "layer"])["value"].sort_index()
    quarter = data.loc["last", 4000]
    said = "the embeddings are at {:.2f} after a quarter of the updates and the fourth layer at {:.2f}"
    assert said.format(quarter.loc[0], quarter.loc[4]) in text
    when = settled(layer_likeness(rows, family="albert"))
    assert f"0.9 is reached after {when[0]:,} and {when[4]:,}" in text
    ends = data.loc["seeds", 16_000]
    assert ends.idxmax() == 1 and ends.idxmin() == 4
    chance = data.loc["control", 16_000].max()
    said = "the most alike ({:.2f}), the fourth ones the least ({:.2f}); before the first update these have {:.2f} and"
    said += " {:.2f}"
    asked = rows.query("evaluator == 'alike' and metric == 'cka' and step == 0 and task.str.endswith('@0')")
    untrained = asked.set_index(["family", "layer"])["value"]
    assert said.format(ends.max(), ends.min(), untrained["albert", 1], untrained["albert", 4]) in text
    assert f"shuffled tokens {chance:.2f}" in text
    assert "untrained {:.2f} and {:.2f}, so".format(untrained["bert", 0], untrained["bert", 4]) in text
    of_berts = layer_likeness(rows, family="bert").set_index(["kind", "step", "layer"])["value"]
    more = [d.loc["seeds", 16_000, 4] - untrained[f, 4] for f, d in (("bert", of_berts), ("albert", data))]
    assert "come to be {:.2f} more alike, those of the ALBERTs {:.2f}".format(*more) in text


def test_twins_of_the_findings_are_those_of_the_rows():
    "What fine-tuned BERTs make of sentences whose shared words mislead."
    twins = committed("grown").query(
        "evaluator == 'finetune' and group == 'final' and family == 'bert' and step == 16_000"
    )
    of = {(split, metric): d["value"] for (split, metric), d in twins.groupby(["split", "metric"])}
    adv, hans, paws = of["QNLI-Adv", "accuracy"], of["HANS", "accuracy"], of["QQP-PAWS", "matthews"]
    text = said_in("findings/01_learned")
    assert f"the three BERTs have {adv.min():.2f} to {adv.max():.2f} right at the end" in text
    assert f"On HANS BERTs have {hans.min():.2f} to {hans.max():.2f}, a coin" in text
    whole = of["dev", "accuracy"][twins.query("task == 'QNLI'").index.intersection(of["dev", "accuracy"].index)]
    assert f"are no constant ({whole.min():.2f} to {whole.max():.2f})" in text
    assert f"a Matthews correlation of {paws.min():.2f} to {paws.max():.2f}" in text
    assert f"(QNLI-Adv: {adv.min():.2f} to {adv.max():.2f} right)" in said_in("index")
    asked = committed("grown").query("evaluator == 'finetune' and group == 'final' and split == 'QNLI-Adv'")
    asked = asked.query("metric == 'accuracy'").set_index(["family", "step"])["value"]
    untrained, alberts = asked.loc["bert", 0], asked.loc["albert", 16_000]
    assert f"before their first update ({untrained.min():.2f} to {untrained.max():.2f})" in text
    assert f"a coin on QNLI, have {alberts.min():.2f} to {alberts.max():.2f}" in text


def test_facts_that_are_stated_often_are_those_of_the_rows():
    "Among common objects: how much more is right of facts stated 64 times than of those never stated, over trainings."
    text = said_in("findings/01_learned")
    said = {}
    for profile in ("grown", "grown-long"):
        told = committed(profile).query("evaluator == 'knowledge' and task == 'by-count' and metric == 'p@1'")
        told = told[(told["mode"] == "corrected") & (told["step"] == told["step"].max())]
        wide = told.pivot(index=["family", "seed"], columns="group", values="value")
        gap = wide["64+"] - wide["0"]
        half = scipy.stats.t.ppf(0.975, len(gap) - 1) * gap.std() / len(gap) ** 0.5
        said[profile] = f"{gap.mean():.2f}", f"{gap.mean() - half:.2f} to {gap.mean() + half:.2f}"
    own, longer = said.values()
    assert f"({own[0]} between facts stated so often and never, {own[1]} over all eight)" in text
    assert f"a small one ({longer[0]}, {longer[1]})" in text


def test_untrained_models_on_minimal_pairs_are_those_of_the_rows():
    "What each family has right before its first update."
    text = said_in("findings/01_learned")
    asked = committed("grown").query("evaluator == 'minimal_pairs' and task == 'word-l2r-all' and metric == 'accuracy'")
    first = asked[asked["step"] == 0].set_index(["family", "split"])["value"].sort_index()
    ends = lambda d: f"{d.min():.2f} to {d.max():.2f}"
    assert f"ALBERTs are at chance ({ends(first.loc['albert'])} on both suites)" in text
    of = {suite: ends(first.loc["bert", suite]) for suite in ("blimp", "zorro")}
    assert f"BERTs are on BLiMP ({of['blimp']}), and on Zorro at chance or below ({of['zorro']})" in text


def test_what_electra_learned_on_the_front_page_is_that_of_the_rows():
    "The discriminator against a constant, its probes, and its score beside those of the others."
    text = said_in("findings/01_learned")
    rows = committed("grown")
    electra = rows[(rows["family"] == "electra") & (rows["seed"] == 0)]
    ends = electra.query("evaluator == 'pretrain' and split == 'heldout' and step == 8000").set_index(
        ["group", "metric"]
    )
    right, constant = (ends.loc[("rtd", metric), "value"] for metric in ("accuracy", "majority"))
    base = -sum(p * np.log(p) for p in (constant, 1 - constant))
    nats = ends.loc[("discriminator", "loss"), "value"]
    assert f"with {right:.2f}, where a constant has {constant:.2f} ({nats:.2f} nats and {base:.2f})" in text
    probed = electra.query("evaluator == 'probe' and task == 'pos' and metric == 'micro_f1' and group == 'probe'")
    probed = probed[probed["mode"] == "corrected"].set_index(["layer", "step"])["value"]
    assert f"parts of speech with {probed.loc[(1, 8000)]:.2f} at the end of its 8,000 updates" in text
    assert "({:.2f} to {:.2f}) and recovered ({:.2f})".format(*probed.loc[4].loc[[2000, 4000, 8000]]) in text
    tuned = rows.query("evaluator == 'finetune' and task == 'STS-B' and metric == 'spearman' and group == 'final'")
    tuned = tuned[(tuned["split"] == "dev") & (tuned["mode"] != "published") & (tuned["step"] == 8000)]
    tuned = tuned.groupby("family")["value"].mean()
    said = "On STS-B it has {:.2f}, BERTs after as many updates {:.2f}"
    assert said.format(*tuned.loc[["electra", "bert"]]) in text


@pytest.mark.parametrize(
    "section, page",
    [("What transfers", "findings/00_transfer"), ("What is learned, and when", "findings/01_learned")],
)
def test_the_front_page_says_what_the_findings_say(section, page):
    "Every number of a section's sentences stands on its page, which is held against the rows."
    text = (ROOT / "README.md").read_text().split(f"## {section}\n")[1].split("\n## ")[0]
    sentences = re.findall(r"^\*\*.+", text, re.M)
    numbers = {x for s in sentences for x in re.findall(r"\d[\d,.]*\d|\d+%", s)}
    assert len(sentences) >= 4 and numbers
    assert {x for x in numbers if x not in said_in(page)} == set()


def test_the_page_of_the_fourth_albert_is_that_of_the_rows():
    "What goes on after 39 million tokens, what was lost when windows grew, and what lies outside the three others."
    text = said_in("findings/03_along")
    longer = committed("grown-long")
    three, fourth = longer[longer["seed"] != 3], longer[longer["seed"] == 3]
    scores = scores_on_the_way(fourth).set_index(["measure", "step"])["value"]
    nats, right, hidden = "masked words (nats)", "masked words right", "hidden words right (GUM)"
    gain = scores.xs(33_000, level="step") - scores.xs(18_000, level="step")
    assert f"masked words get {-gain[nats]:.2f} nats cheaper, and {gain[hidden]:.2f} more of those hidden" in text
    assert gain[[m for m in gain.index if "layer 1" in m]].between(0, 0.0105).all()
    assert f"BLiMP gains {gain['BLiMP']:.2f}, Zorro {gain['Zorro']:.2f} and facts at most 0.02" in text
    asked = scores.unstack("step").loc[["BLiMP", "Zorro", "facts, common objects"], [12_000, 18_000, 24_000, 30_000]]
    assert (asked.diff(axis=1).abs().max(axis=1) >= gain[asked.index]).all()
    assert gain[[m for m in gain.index if "facts" in m]].max().round(2) == 0.02
    before, end = scores.xs(33_000, level="step"), scores.xs(42_000, level="step")
    assert f"cost {end[nats] - before[nats]:.2f} nats more at the end" in text
    at_36 = scores.xs(36_000, level="step")[right]
    assert f"{end[right]:.3f} of them are right, after 36,000 updates {at_36:.3f}, before {before[right]:.3f}" in text
    assert f"hidden in GUM {end[hidden]:.3f} and {before[hidden]:.3f}" in text
    common = "facts, common objects"
    assert f"among common objects go from {before[common]:.2f} to {end[common]:.2f}" in text
    others = scores_on_the_way(three).set_index(["measure", "family", "step", "seed"])["value"].sort_index()
    change = lambda measure, family: others[measure, family, 42_000] - others[measure, family, 33_000]
    assert (change(nats, "albert") < 0).sum() == 1 and change(right, "albert").abs().max() < 0.01
    assert change(nats, "bert").max().round(2) == 0.03
    beside = beside_another(three, fourth)
    outside = beside[beside["outside"] != ""]
    assert f"One of {len(beside)} lines lies outside" in text and len(outside) == 1
    own = outside.iloc[0]
    assert own["measure"] == "facts, objects of the relation"
    forms = window_data(fourth).set_index(["metric", "form", "length", "step"])["value"]
    loss, share = forms["loss"], forms["accuracy"]
    rise = {form: loss[form, 64, 42_000] - loss[form, 64, 33_000] for form in ("mlm+sop", "mlm+nsp")}
    assert f"cost {rise['mlm+sop']:.2f} nats more at the end" in text and f"({rise['mlm+nsp']:.2f} where half" in text
    assert f"the same ({loss['mlm', 64, 42_000]:.2f} and {loss['mlm', 64, 33_000]:.2f})" in text
    assert f"right ({share['mlm', 64, 42_000]:.3f}, before {share['mlm', 64, 33_000]:.3f})" in text
    assert f"cost {loss['mlm+sop', 128, 42_000]:.2f} and {share['mlm+sop', 128, 42_000]:.3f} are right" in text
    assert f"ends {loss['mlm', 32, 42_000] - loss['mlm', 32, 33_000]:.2f} dearer" in text
    assert f"cheaper ({loss['mlm+sop', 32, 33_000]:.2f}, {loss['mlm+sop', 32, 42_000]:.2f})" in text
    assert f"right in {own['other']:.2f} of the questions, the others in {own['mean']:.2f}" in text
    tuned = scores["STS-B"]
    first, last = (f"{scores['STS-B', step]:.2f}" for step in (0, 42_000))
    assert f"STS-B has {first} before the first update, {tuned.max():.2f} at most and {last} at the end" in text
    assert f"a coin ({end['QNLI']:.2f}), MNLI at {end['MNLI']:.2f}" in text
    assert f"before the first update ({scores['SST-2', 0]:.2f}, {end['SST-2']:.2f})" in text


def below_frequencies(rows, family, errors=0):
    "When each training's held-out loss is first below the plateau, by more than so many errors of the sample."
    asked = rows.query("evaluator == 'pretrain' and group == 'mlm' and metric == 'loss' and split == 'heldout'")
    plateau = rows.query("evaluator == 'pretrain' and metric == 'plateau'")["value"].iloc[0]
    below = asked[(asked["family"] == family) & (asked["value"] + errors * asked["stderr"] < plateau)]
    return below.groupby("seed")["step"].min()


def test_when_models_leave_the_plateau_without_help_is_that_of_the_rows():
    "Both ALBERTs before both BERTs, and the losses at the end."
    text, front = said_in("findings/04_unhelped"), said_in("index")
    recipes = {p: committed(p) for p in ("grown", "grown-plain")}
    left = {(p, f): below_frequencies(rows, f) for p, rows in recipes.items() for f in ("albert", "bert")}
    alberts, berts = (sorted(left["grown-plain", f]) for f in ("albert", "bert"))
    assert len(alberts) == len(berts) == 2 and alberts[1] < berts[0]
    assert "after {:,.0f} and {:,.0f} updates and after {:,.0f} and {:,.0f}. **The".format(*alberts, *berts) in text
    helped = left["grown", "albert"].unique(), (left["grown", "bert"].min(), left["grown", "bert"].max())
    said = "after {:,.0f} and {:,.0f} updates (helped ones after {:,.0f}) and after {:,.0f} and {:,.0f}"
    said += " ({:,.0f} to {:,.0f})"
    assert said.format(*alberts, *helped[0], *berts, *helped[1]) in front
    surely = [sorted(below_frequencies(recipes["grown-plain"], f, errors=2)) for f in ("albert", "bert")]
    said = "below it after {:,.0f} and {:,.0f} updates, BERTs after {:,.0f} and {:,.0f}"
    assert said.format(*surely[0], *surely[1]) in text
    assert all(late > first for first, late in zip([*alberts, *berts], [*surely[0], *surely[1]], strict=True))
    assert "at first by no more than twice the error of the sample" in front
    last = {}
    for p, rows in recipes.items():
        asked = rows.query("evaluator == 'pretrain' and group == 'mlm' and metric == 'loss' and split == 'heldout'")
        last[p] = asked[asked["step"] == 16_000].groupby("family")["value"].mean()
        late = asked[asked["step"] >= 2000].groupby(["family", "step"])["value"]
        last[p, "ends"] = late.max() if p == "grown" else late.min()
    end = (last[p][f] for f in ("bert", "albert") for p in ("grown-plain", "grown"))
    assert (
        "they have {:.2f} nats where helped ones have {:.2f}, ALBERTs {:.2f} where they have {:.2f}".format(*end)
        in text
    )
    both = pd.concat([last["grown", "ends"], last["grown-plain", "ends"]], axis=1).loc[["albert", "bert"]].dropna()
    assert (both.iloc[:, 0] < both.iloc[:, 1]).all()


def test_ages_of_words_without_help_are_those_of_the_rows():
    "How far they agree among models of one recipe and of two."
    from embryo.results.acquisition.ages import ages
    from embryo.results.acquisition.families import ages_by_run, agreement, agreement_table

    text, front = said_in("findings/04_unhelped"), said_in("index")
    recipes = {p: committed(p).query("l1 == 'english' or l1.isna()") for p in ("grown", "grown-plain")}
    held, median = {}, []
    for family in ("albert", "bert"):
        asked = dict(evaluator="surprisals", family=family)
        helped, never = (ages(d[(d[list(asked)] == pd.Series(asked)).all(axis=1)]) for d in recipes.values())
        found = pd.concat([helped, never.assign(family="never")])
        share = found.groupby("word")["share"].mean()
        d = agreement(ages_by_run(found), np.log10(share.where(share > 0))).set_index("of")
        held[family] = [d.loc[f"{of} held", "value"] for of in (family, "never", "between")]
        median += [10 ** ages_by_run(x).mean(axis=1).median() for x in (never, helped)]
        assert (d.loc["between held", "low"] < 0) == (family == "bert")
    said = "share {:.2f}, two that never were {:.2f}, and one of each {:.2f}; of BERTs {:.2f}, {:.2f}, and one of each"
    said += " {:.2f}"
    assert said.format(*held["albert"], *held["bert"]) in text
    turned = [*held["albert"][::-2], *held["bert"][::-2]]
    said = "({:.2f} and {:.2f}), and with those of helped BERTs not surely at all ({:.2f} and {:.2f})"
    assert said.format(*turned) in front
    both = [agreement_table(rows).set_index("of").loc["between held", "value"] for rows in recipes.values()]
    assert f"{both[0]:.2f}" == f"{both[1]:.2f}" and f"of one recipe share {both[0]:.2f}, whether" in text
    assert f"ALBERTs with BERTs as well as helped ones do ({both[0]:.2f})" in front
    albert, helped_albert, bert, helped_bert = median
    assert f"{albert:,.0f} and {bert:,.0f} updates instead of {helped_albert:,.0f} and {helped_bert:,.0f}" in text


def test_claims_without_help_are_those_of_the_rows():
    "What both say alone, and what is left of a way."
    text = said_in("findings/04_unhelped")
    plain = committed("grown-plain")
    alone = [embryo_ledger(plain[(plain["seed"] == s) | plain["seed"].isna()]) for s in (0, 1)]
    for number, verdict in {1: "supported", 2: "contradicted", 8: "contradicted", 9: "contradicted"}.items():
        assert all(d.loc[[number], "verdict"].unique().item() == verdict for d in alone)
    for number in (10, 11):
        assert all(d.loc[[number], "verdict"].unique().item() == "contradicted" for d in alone)
    claims = [
        numbers_of(p, "p1_claims").query("mode == 'corrected'").set_index("number") for p in ("grown-plain", "grown")
    ]
    first = [c.loc[1, "effect"] for c in claims]
    assert "by {:.1f} doublings of the step ({:.1f} with help)".format(*first) in text
    way = [c.loc[8].query("part.str.contains('POS')")["effect"].item() for c in (*alone, claims[1])]
    assert f"{way[0]:.2f}" == f"{way[1]:.2f}"
    assert f"{way[0]:.2f} of the way of parts of speech is left in both instead of {way[2]:.2f}" in text
    near = [-c.loc[11].query("part == 'layer 1 after layer 2'")["effect"].item() for c in (*alone, claims[1])]
    assert f"by {near[1]:.1f} doublings (seed 1; {near[2]:.1f} with help)" in text
    assert f"so that its {near[0]:.1f} is drawn between checkpoints" in text


def embryo_ledger(rows):
    "The first paper's claims, by number."
    from embryo.results.claims.ledger import ledger_data

    return ledger_data(rows, "p1").query("mode == 'corrected'").set_index("number")


def visible_dates():
    "When classes of visible words have 90% of their last accuracy: (first, for good), a column a training."
    from embryo.results.curves import curve_data, reach_step
    from embryo.results.p1.losses import chosen

    first, lasting = {}, {}
    for p in ("grown", "grown-plain"):
        asked = dict(evaluator="reconstruct", task="pos-class", metric="accuracy", l1="english")
        for (family, seed), d in chosen(committed(p), **asked).groupby(["family", "seed"]):
            curves = curve_data(d, "reconstruct").query("mode == 'corrected' and scale == 'accuracy'")
            at = p, family, int(seed)
            first[at] = reach_step(curves).set_index("group")["step"]
            kept = []
            for _, curve in curves.groupby("group"):
                curve = curve.sort_values("step")
                short = (curve["value"] < 0.9 * curve["value"].iloc[-1]).to_numpy()
                kept.append(curve.iloc[short.nonzero()[0].max() :])
            lasting[at] = reach_step(pd.concat(kept)).set_index("group")["step"]
    return pd.DataFrame(first), pd.DataFrame(lasting)


def test_visible_words_without_help_are_those_of_the_rows():
    "Training by training: with one seed content words are there for good earlier than in any that was helped."
    text = said_in("findings/04_unhelped")
    first, lasting = visible_dates()
    verbs, helped_verbs = (first[p].loc["verb"] for p in ("grown-plain", "grown"))
    said = f"of verbs once after {verbs.min():,.0f} to {verbs.max():,.0f} updates, where no helped one has before"
    assert f"{said} {helped_verbs[['albert', 'bert']].min():,.0f}" in text
    assert (lasting["grown-plain"].loc["verb"] > 1.5 * verbs).sum() == 3 and "in three of the four they fall" in text
    for family in ("albert", "bert"):
        helped, never = lasting["grown", family], lasting["grown-plain", family]
        for name in ("verb", "noun", "adj.", "proper noun"):
            assert never[1][name] < helped.loc[name].min()
        for name in ("verb", "noun", "adj."):
            assert never[0][name] > helped.loc[name].max()
        assert helped.loc["proper noun"].min() < never[0]["proper noun"] < helped.loc["proper noun"].max()
        assert f"{helped.loc['verb'].min():,.0f} to {helped.loc['verb'].max():,.0f}" in text


def test_an_order_within_one_gap_is_none():
    "Of two ALBERTs without help one turns both layers between the same two looks."
    from embryo.results.claims.p1_structure import diagonal_rows

    text = said_in("findings/04_unhelped")
    near = diagonal_rows(committed("grown-plain"), "corrected")
    turned = {}
    for (seed, layer), d in near.groupby(["seed", "layer"]):
        value = d.set_index("step")["value"].sort_index()
        turned[int(seed), int(layer)] = value.diff().idxmax()
    assert turned[0, 1] == turned[0, 2] == 6000 and "the same two looks, after 4,000 and 6,000 updates" in text
    both = numbers_of("grown-plain", "p1_claims").query("mode == 'corrected' and number == 11")
    assert set(both["verdict"]) == {"cannot be tested here"}


def test_agreement_over_the_same_words_is_that_of_the_rows():
    "Families agree as well without help as with it over the words that have an age in both comparisons."
    from embryo.results.acquisition.ages import ages
    from embryo.results.acquisition.drawings import runs_of
    from embryo.results.acquisition.families import ages_by_run, agreement

    found = {}
    for profile in ("grown", "grown-plain"):
        own = pd.concat([ages(runs_of(densest(profile), family, "english")) for family in ("albert", "bert")])
        share = own.groupby("word")["share"].mean()
        found[profile] = ages_by_run(own).dropna(), np.log10(share.where(share > 0))
    words = found["grown"][0].index.intersection(found["grown-plain"][0].index)
    held = [
        agreement(wide.loc[words], share.reindex(words)).set_index("of").loc["between held", "value"]
        for wide, share in found.values()
    ]
    said = "over the {} words that have an age in both comparisons {:.2f} with help and {:.2f} without"
    assert said.format(len(words), *held) in said_in("findings/04_unhelped")


def test_electra_after_mnli_and_larger_albert_are_those_of_the_rows():
    "STS-B of a model that was fine-tuned on MNLI first, and the discriminator of all trainings of one setting."
    text = said_in("findings/01_learned")
    said = {}
    for profile, family in (("grown-gpu", "albert"), ("grown", "albert"), ("grown-gpu", "electra")):
        d = committed(profile).query("evaluator == 'finetune' and task == 'STS-B' and metric == 'spearman'")
        d = d.query("group == 'final' and split == 'dev' and seed == 0").set_index(["family", "mode", "step"])["value"]
        after = d.loc[family, "published"]
        said[profile, family] = after.iloc[0], d.loc[family, "corrected", after.index[0]]
    (large, _), small, electra = said.values()
    assert f"first, as the paper does it, it has {large:.2f} on STS-B" in text
    assert "has {:.2f} so and {:.2f} without, the ELECTRA {:.2f} and {:.2f}".format(*small, *electra) in text
    rows = committed("electra").query("evaluator == 'chain' and group == 'rtd' and split == 'heldout'")
    chosen = rows[(rows["l1"] == "english:6M~small~first") & (rows["step"] == rows["step"].max())]
    right, constant = (chosen[chosen["metric"] == m].sort_values("seed")["value"] for m in ("accuracy", "majority"))
    assert (
        "({:.3f}, {:.3f} and {:.3f}, where constants have {:.3f}, {:.3f} and {:.3f};".format(*right, *constant) in text
    )


def test_plans_of_real_runs_are_those_of_their_records():
    "How many nodes came within a factor of 1.5 of their plan."
    from embryo.batch.costs.record import is_near

    said, counts = {}, []
    for profile in ("open", "grown", "grown-plain", "grown-long", "transfer", "grown-pairs", "grown-gpu"):
        nodes = pd.read_csv(ROOT / f"papermill_runs/{profile}/nodes.csv").dropna(subset=["planned_s", "taken_s"])
        near = sum(map(is_near, nodes["planned_s"], nodes["taken_s"]))
        said[profile] = f"{near} of {len(nodes)}" + " nodes" * (profile in ("open", "grown"))
        counts.append((near, len(nodes)))
    text = said_in("guide/03_runs")
    assert all(f"{said[p]} of `{p}`" in text for p in said)
    near, all_nodes = map(sum, zip(*counts))
    assert f"{near} of {all_nodes}, not nine of ten" in text and near < 0.9 * all_nodes
