"""Figures of the first paper: what they do to rows, against slow references; rows with holes; frequency bands."""

import json
import os
import re
from collections import Counter

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import embryo
from embryo.evaluation.squad.squad import TASK as SQUAD
from embryo.evaluation.tasks.finetune import AFTER_INTERMEDIATE
from embryo.ground.errors import EmbryoError
from embryo.ground.printed import P2_TASKS
from embryo.ground.profiles import profiles, read_profile, repo_root
from embryo.ground.rows import row_frame
from embryo.results.curves import POS_ORDER
from embryo.results.figures import caption, figures_of, save_figure
from embryo.results.levels import MAIN
from embryo.results.p1 import attention  # noqa: F401 - whose figures are declared by that
from embryo.results.p1.knowledge import knowledge_data
from embryo.results.p1.layers import layer_data, plot_probes, probe_data
from embryo.results.p1.losses import GLUE, P1_FORMS, PROBES, layer_at, parts_data, smooth
from embryo.results.p1.orders import (
    frequency_data,
    glue_beside,
    reach_data,
    selectivity_data,
    table_frequency,
    table_selectivity,
)
from embryo.results.p1.tables import table2, table4, table5, table6, table7
from embryo.results.p1.tasks.drawings import plot_average, plot_tasks
from embryo.results.p1.tasks.scores import average_data, glue_data, read_public, step_scores
from embryo.results.p1.words import FORM_ORDER, group_order, plot_words, word_data

STEPS = (0, 100, 300, 1000)
NEED = ("p1_fig1a", "p1_fig1b", "p1_fig6", "p1_fig14", "p1_history")  # refuse rows without theirs
MAPS = ("p1_fig4", "p1_fig4_near")  # tests/test_attention.py
FIGURES = {n: f for n, f in figures_of("p1").items() if f.plot and n not in (*NEED, *MAPS)}


def scores(family="albert", seeds=(0,), tasks=tuple(P2_TASKS), steps=STEPS, mode="corrected", seed=0):
    "Random fine-tuning rows."
    rng = np.random.default_rng(seed)
    out = [
        dict(
            evaluator="finetune",
            group="final",
            task=t,
            metric=(MAIN | {SQUAD: "mean"})[t],
            split=sp,
            step=s,
            seed=q,
            value=rng.random(),
            n=100,
            stderr=0.01 + 0.05 * rng.random(),
            mode=mode,
        )
        for t in tasks
        for sp in (["dev", "dev-mm"] if t == "MNLI" else ["dev"])
        for s in steps
        for q in seeds
    ]
    return row_frame(out, family=family, l1="english")


def grid(family="albert", layers=4, steps=STEPS, seeds=(0,)):
    "Random rows of every evaluator."
    rng = np.random.default_rng(len(family))
    out = []
    for q in seeds:
        for s in steps:
            for g in ("", "mlm", "sop"):
                out += [
                    dict(
                        evaluator="pretrain",
                        task="mlm",
                        metric="loss",
                        split=sp,
                        group=g,
                        step=s,
                        value=5 * rng.random(),
                        seed=q,
                    )
                    for sp in ("train", "heldout")
                ]
            out.append(
                dict(
                    evaluator="pretrain",
                    task="mlm",
                    metric="accuracy",
                    split="heldout",
                    group="mlm",
                    step=s,
                    value=rng.random(),
                    n=50,
                    stderr=0.1,
                    seed=q,
                )
            )
            for t in PROBES:
                for l in range(layers + 1):
                    for g, m in (
                        ("probe", "corrected"),
                        ("control", "corrected"),
                        ("probe", "published"),
                        ("control", "published"),
                    ):
                        out.append(
                            dict(
                                evaluator="probe",
                                task=t,
                                split="gum-test",
                                layer=l,
                                group=g,
                                mode=m,
                                metric="micro_f1",
                                step=s,
                                value=rng.random(),
                                n=60,
                                stderr=0.05,
                                seed=q,
                            )
                        )
                    a, b = (r["value"] for r in out[-4:-2])
                    out.append(
                        dict(
                            evaluator="probe",
                            task=t,
                            split="gum-test",
                            layer=l,
                            group="selectivity",
                            metric="micro_f1",
                            step=s,
                            value=a - b,
                            n=60,
                            stderr=0.04,
                            seed=q,
                        )
                    )
                    if t == "coref":
                        out.append(
                            dict(
                                evaluator="probe",
                                task=t,
                                split="gum-test",
                                layer=l,
                                group="probe",
                                metric="f1",
                                step=s,
                                value=rng.random(),
                                n=60,
                                stderr=0.05,
                                seed=q,
                            )
                        )
                for m in ("corrected", "published"):  # as `embryo.evaluation.probing` writes it: no layer
                    out.append(
                        dict(
                            evaluator="probe",
                            task=t,
                            split="gum-test",
                            group="majority",
                            mode=m,
                            metric="micro_f1",
                            step=s,
                            value=0.1 + 0.2 * list(PROBES).index(t),
                            n=60,
                            stderr=0.05,
                            seed=q,
                        )
                    )
                    if t == "coref":
                        out.append(
                            dict(
                                evaluator="probe",
                                task=t,
                                split="gum-test",
                                group="majority",
                                mode=m,
                                metric="f1",
                                step=s,
                                value=0.0,
                                n=60,
                                stderr=0.0,
                                seed=q,
                            )
                        )
            for e in ("reconstruct", "mask_predict"):
                for t, names in (
                    ("pos-class", POS_ORDER),
                    ("verb-form", FORM_ORDER),
                    ("freq-count", ("50-99", "300-349")),
                    ("freq-id", ("50-99",)),
                ):
                    out += [
                        dict(
                            evaluator=e,
                            task=t,
                            split="gum-test",
                            group=g,
                            metric="accuracy",
                            step=s,
                            value=rng.random(),
                            n=30,
                            stderr=0.05,
                            seed=q,
                        )
                        for g in names
                    ]
    out += [
        dict(evaluator="probe", task=t, split=f"gum-{sp}", group=g, metric="count", step=0, value=7, seed=0)
        for t in PROBES
        for sp in ("train", "test")
        for g in ("labels", "targets")
    ]
    out += [
        dict(evaluator="count", task="verb-form", group=g, metric=m, mode=k, value=5 + i, n=60, stderr=1.0)
        for i, g in enumerate(FORM_ORDER)
        for m, k in (("count", "corrected"), ("mean_rank", "corrected"), ("mean_rank", "published"))
    ]
    out += [
        dict(evaluator="trivial", task=t, group=g, split="dev", metric=(MAIN | {SQUAD: "mean"})[t], value=v, n=100)
        for t in GLUE
        for g, v in (("majority", 0.5), ("all-positive", 0.4))
    ]
    return pd.concat(
        [row_frame(out, family=family, l1="english"), scores(family, seeds, GLUE, steps)], ignore_index=True
    )


def test_smoothing_is_a_centred_mean():
    v = np.random.default_rng(0).random(11)
    want = [np.mean([v[j] for j in (i - 1, i, i + 1) if 0 <= j < len(v)]) for i in range(len(v))]
    assert smooth(v) == pytest.approx(want)
    assert smooth([1, 2]) == pytest.approx([1, 2])  # two are no curve: averaged, they would be one value twice


@pytest.mark.parametrize("depth, want", [(12, 8), (24, 16), (6, 4), (4, 3), (3, 2), (2, 1), (1, 1)])
def test_two_thirds(depth, want):
    assert layer_at(range(depth + 1)) == want


def test_layer_is_one_that_was_probed():
    # the lower of two equally near
    assert layer_at([0, 4, 12]) == 4 and layer_at([6, 10, 12]) == 6 and layer_at([0]) == 0
    assert [layer_at(range(13), k) for k in (2, 5, 8, 11)] == [2, 5, 8, 11]


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_average_by_hand(seeds):
    r = scores(seeds=seeds)
    d = glue_data(r)
    for s in STEPS:
        per = []
        for q in seeds:
            x = r[(r["step"] == s) & (r["seed"] == q)]
            per.append(
                (
                    np.mean([x[x["task"] == t]["value"].mean() for t in P2_TASKS]),
                    sum(
                        (np.sqrt((x[x["task"] == t]["stderr"] ** 2).sum()) / len(x[x["task"] == t])) ** 2
                        for t in P2_TASKS
                    )
                    ** 0.5
                    / 8,
                )
            )
        got = d[(d["task"] == "average") & (d["step"] == s)].iloc[0]
        assert (
            got["value"] == pytest.approx(np.mean([v for v, _ in per]))
            and got["tasks"] == 8
            and got["seeds"] == len(seeds)
        )
        if len(seeds) == 1:
            assert (got["high"] - got["low"]) / 2 == pytest.approx(1.959964 * per[0][1], rel=1e-5)
        # seeds add to it
        else:
            assert (got["high"] - got["low"]) / 2 > 1.95 * np.mean([e for _, e in per])
    assert d[(d["task"] == "MNLI") & (d["step"] == 0)]["value"].item() == pytest.approx(
        r[(r["task"] == "MNLI") & (r["step"] == 0)]["value"].mean()
    )


def test_best_is_marked_once_a_curve_or_not_at_all():
    r = pd.concat([scores(), scores(tasks=AFTER_INTERMEDIATE, mode="published", seed=5)])
    for trivial in (None, 0.5, 0.8):
        t = row_frame(
            [
                dict(evaluator="trivial", task=t, group="majority", split="dev", metric=MAIN[t], value=trivial, n=100)
                for t in P2_TASKS
                if trivial
            ]
        )
        d = glue_data(pd.concat([r, t]))
        marks = {}
        for k, g in d[d["step"].notna()].groupby(["mode", "task"]):
            v = dict(zip(g["step"], g["value"]))
            low = dict(zip(g["step"], g["low"]))
            at = max(v, key=v.get)
            marks[k] = [at] if v[at] > v[0] and low[at] > (trivial or -1) else []
            assert g[g["best"]]["step"].tolist() == marks[k]
        # both happen
        if trivial:
            assert [] in marks.values() and [] != max(marks.values())
        assert not d[d["step"].isna()]["best"].any()


def legend(fig):
    return [t.get_text() for ax in fig.axes if ax.get_legend() for t in ax.get_legend().get_texts()]


def curve(task, values, mode="corrected"):
    "Scores of one task at three checkpoints."
    return row_frame(
        [
            dict(
                evaluator="finetune",
                group="final",
                task=task,
                metric=(MAIN | {SQUAD: "mean"})[task],
                split="dev",
                step=s,
                seed=0,
                value=v,
                n=400,
                stderr=0.02,
                mode=mode,
            )
            for s, v in zip((0, 600, 2200), values)
        ],
        family="albert",
        l1="english",
    )


def test_no_mark_and_no_legend_of_it_where_nothing_was_learned():
    trivial = row_frame(
        [
            dict(evaluator="trivial", task=SQUAD, group="no-answer", split="dev", metric="mean", value=0.5, n=400),
            dict(evaluator="trivial", task="CoLA", group="majority", split="dev", metric="matthews", value=0.0, n=400),
        ],
        family="albert",
        l1="english",
    )
    crosses = lambda fig: sum(len(l.get_xdata()) for ax in fig.axes for l in ax.lines if l.get_marker() == "x")
    for rows, n in (
        (curve(SQUAD, (0.5, 0.5, 0.5)), 0),
        (curve(SQUAD, (0.4, 0.5, 0.45)), 0),
        (curve("CoLA", (0.3, 0.2, 0.3)), 0),
        (curve("CoLA", (0.2, 0.2, 0.3)), 1),
        (pd.concat([curve(SQUAD, (0.5, 0.5, 0.5)), curve("CoLA", (0.1, 0.2, 0.3))]), 1),
    ):
        d = glue_data(pd.concat([rows, trivial]), tasks=GLUE)
        fig = plot_tasks(d)
        assert (
            crosses(fig) == n
            and ("best checkpoint" in legend(fig)) == (n > 0)
            and ("by that too good" in caption("p1_fig12", d)) == (n > 0)
        )
        a = average_data(pd.concat([rows, trivial]), ["albert"])
        if (fig := plot_average(a)) is not None:
            assert crosses(fig) == int(a["best"].sum()) == n and ("best checkpoint" in legend(fig)) == (n > 0)
    plt.close("all")


def test_legend_names_what_did_start_from_mnli():
    r = pd.concat(
        [
            curve("STS-B", (0.2, 0.4, 0.3)),
            curve("CoLA", (0.2, 0.3, 0.4)),
            curve("MNLI", (0.3, 0.3, 0.4)),
            curve("STS-B", (0.3, 0.4, 0.5), "published"),
        ]
    )
    d = average_data(r, ["albert"])
    assert "ALBERT, STS-B from MNLI (3 tasks)" in legend(plot_average(d)) and "STS-B started from MNLI" in legend(
        plot_tasks(glue_data(r))
    )
    every = pd.concat([r, curve("RTE", (0.5, 0.5, 0.6)), curve("RTE", (0.5, 0.6, 0.6), "published")])
    assert "ALBERT, RTE, STS-B from MNLI (4 tasks)" in [
        l.replace("STS-B, RTE", "RTE, STS-B") for l in legend(plot_average(average_data(every, ["albert"])))
    ]
    assert not any("MNLI" in l for l in legend(plot_average(average_data(r[r["mode"] == "corrected"], ["albert"]))))
    plt.close("all")


def test_published_start_replaces_three_tasks_only():
    own = scores()
    from_mnli = scores(tasks=AFTER_INTERMEDIATE, mode="published", seed=5)
    s = step_scores(pd.concat([own, from_mnli])).set_index(["mode", "task", "step"])["value"]
    for t in P2_TASKS:
        for k in STEPS:
            assert (s["published", t, k] == s["corrected", t, k]) == (t not in AFTER_INTERMEDIATE)
    # no line where nothing was started so
    assert set(step_scores(own)["mode"]) == {"corrected"}
    extra = scores(tasks=("CoLA",), mode="published", seed=6)
    # CoLA does not start from MNLI
    assert set(step_scores(pd.concat([own, extra]))["mode"]) == {"corrected"}


def test_average_needs_all_tasks_of_its_series():
    r = scores()
    some = r[~((r["task"] == "RTE") & (r["step"] == 300))]
    d = glue_data(some)
    assert (
        d[d["task"] == "average"]["step"].tolist() == [0, 100, 1000] and 300 in d[d["task"] == "CoLA"]["step"].tolist()
    )
    # no checkpoint has all: those that all share
    none = r[~((r["task"] == "RTE") & (r["step"] < 300)) & ~((r["task"] == "CoLA") & (r["step"] >= 300))]
    a = glue_data(none)
    assert a[a["task"] == "average"]["tasks"].unique().tolist() == [6] and len(a[a["task"] == "average"]) == 4


def test_families_are_compared_on_shared_tasks():
    d = average_data(pd.concat([scores("albert"), scores("bert", tasks=("RTE", "CoLA"))]))
    assert set(d["of"]) == {"CoLA, RTE"} and set(d["family"].dropna()) == {"albert", "bert"}
    # nothing shared: each its own
    assert set(average_data(pd.concat([scores("albert", tasks=("MRPC",)), scores("bert", tasks=("RTE",))]))["of"]) == {
        "MRPC",
        "RTE",
    }


def test_trivial_is_the_best_of_those_that_do_not_read():
    d = glue_data(grid())
    assert d[d["mode"] == "trivial"]["value"].unique().tolist() == [0.5] and "average" in set(
        d[d["mode"] == "trivial"]["task"]
    )


def test_public(tmp_path):
    p = tmp_path / "public.csv"
    p.write_text("name,task,value\nx-base,RTE,0.7\nx-base,CoLA,0.5\ny,average,0.8\n")
    d = average_data(scores(tasks=("RTE", "CoLA")), ["albert"], public=read_public(p))
    assert d[d["mode"] == "public"].set_index("of")["value"].to_dict() == pytest.approx({"x-base": 0.6, "y": 0.8})
    for text, said in (
        ("name,task,value\nx,WNLI,0.5\n", "line 2: unknown task 'WNLI'"),
        ("name,task,value\nx,RTE,0.5\nx,RTE,high\n", "line 3: value high is not a number"),
        ("task,value\n", "no column name"),
    ):
        p.write_text(text)
        with pytest.raises(EmbryoError, match=said):
            read_public(p)
    with pytest.raises(EmbryoError, match="no such file"):
        read_public(tmp_path / "none.csv")


def cross(s, v, share):
    "The first crossing, by walking."
    for k in range(len(s)):
        if v[k] >= share * v[-1]:
            return s[0] if k == 0 else s[k - 1] + (share * v[-1] - v[k - 1]) / (v[k] - v[k - 1]) * (s[k] - s[k - 1])


def test_crossing_by_walking():
    from embryo.results.statistics import reach

    rng = np.random.default_rng(1)
    s = np.sort(rng.choice(1000, 9, replace=False))
    v = rng.random((50, 9)) + 0.01
    sure = np.zeros(9)
    assert [reach(s, x, sure)[0] for x in v] == pytest.approx([cross(s, x, 0.9) for x in v])
    up = np.sort(v, axis=1)
    assert [reach(s, x, sure, 0.5, "rise")[0] for x in up] == pytest.approx([cross(s, x - x[0], 0.5) for x in up])
    assert [reach(s, -x, sure, 0.5, "change")[0] for x in up] == pytest.approx([cross(s, x - x[0], 0.5) for x in up])
    assert np.isnan([reach(s, x, sure) for x in (-v[0], 0 * v[0])]).all()


def test_interval_of_a_crossing_grows_with_the_error_and_is_repeatable():
    r = lambda e: reach_data(
        pd.DataFrame(
            dict(
                task="pos",
                step=STEPS,
                value=[0, 0.5, 0.8, 1.0],
                low=np.array([0, 0.5, 0.8, 1.0]) - 1.96 * e,
                high=np.array([0, 0.5, 0.8, 1.0]) + 1.96 * e,
            )
        )
    ).iloc[0]
    assert r(0.0)["low"] == r(0.0)["high"] == r(0.0)["step"] == pytest.approx(650)
    assert (
        r(0.01)["high"] - r(0.01)["low"] < r(0.05)["high"] - r(0.05)["low"] and r(0.01)["low"] < 650 < r(0.01)["high"]
    )
    assert r(0.05).equals(r(0.05))


def test_selectivity_by_hand():
    r = grid(seeds=(0, 1))
    d = selectivity_data(r)
    s = d[d["metric"] == "micro_f1"].set_index(["task", "layer"])
    x = (
        r[
            (r["evaluator"] == "probe")
            & (r["metric"] == "micro_f1")
            & (r["mode"] == "corrected")
            & (r["task"] == "srl")
            & (r["layer"].fillna(-1) == 2)
            & (r["step"] == 1000)
        ]
        .groupby("group")["value"]
        .mean()
    )
    assert s.loc[("srl", 2), "selectivity"] == pytest.approx(x["probe"] - x["control"]) and len(s) == 4 * 5
    assert s["majority"].groupby(level=0).unique().map(list).to_dict() == {
        t: [pytest.approx(0.1 + 0.2 * i)] for i, t in enumerate(PROBES)
    }


def test_f1_of_coreference_is_shown():
    r = grid()
    f = selectivity_data(r)
    f = f[f["metric"] == "f1"].set_index("layer")
    x = r[
        (r["metric"] == "f1")
        & (r["task"] == "coref")
        & (r["group"] == "probe")
        & (r["step"] == 1000)
        & (r["evaluator"] == "probe")
    ].set_index("layer")["value"]
    assert (
        f["probe"].to_dict() == pytest.approx(x.to_dict())
        and f["selectivity"].isna().all()
        and set(f["task"]) == {"coref"}
        and set(f["majority"]) == {0.0}
    )
    assert (f["probe_high"] - f["probe"]).to_numpy() == pytest.approx(1.959964 * 0.05)
    view = table_selectivity(selectivity_data(r)).set_index("layer")
    assert view.loc["3", "coreference F1"] == f"{100 * x[3]:.1f} ± 9.8 (no control)" and view.loc[
        "[majority]"
    ].to_dict() == {
        "SRL": "10.0",
        "POS": "30.0",
        "constituents": "50.0",
        "coreference": "70.0",
        "coreference F1": "0.0",
    }
    control = r[(r["metric"] == "f1") & (r["group"] == "probe") & (r["evaluator"] == "probe")].assign(
        group="control", value=0.25
    )
    gain = control.assign(group="selectivity", value=[x[l] - 0.25 for l in control["layer"]], stderr=0.03)
    both = selectivity_data(pd.concat([r, control, gain]))
    both = both[both["metric"] == "f1"].set_index("layer")
    last = gain[gain["step"] == 1000].set_index("layer")["value"]
    # the paired error
    assert both["selectivity"].to_dict() == pytest.approx(last.to_dict()) and (
        both["high"] - both["selectivity"]
    ).to_numpy() == pytest.approx(1.959964 * 0.03)
    assert (
        " – 25.0 = "
        in table_selectivity(selectivity_data(pd.concat([r, control, gain])))
        .set_index("layer")
        .loc["3", "coreference F1"]
    )


@pytest.mark.parametrize("layers", [1, 4, 12])
def test_majority_is_drawn(layers):
    r = grid(layers=layers)
    d = probe_data(r)
    m = d[(d["group"] == "majority") & (d["mode"] == "corrected")]
    assert m["layer"].isna().all() and m.groupby("task").size().to_dict() == dict.fromkeys(PROBES, len(STEPS))
    assert set(d.loc[d["group"] == "probe", "layer"].dropna()) == {layer_at(range(layers + 1))}
    fig = plot_probes(d)
    stubs = [l.get_ydata()[0] for l in fig.axes[0].lines if list(l.get_xdata()) == [1.0, 1.025]]
    assert sorted(stubs) == pytest.approx([0.1, 0.3, 0.5, 0.7]) and "stub at the edge: majority class" in legend(fig)
    alone = r[~((r["task"] == "srl") & (r["group"].isin(["probe", "control"])))]
    # no probe, no stub
    assert "srl" not in set(probe_data(alone)["task"])
    plt.close(fig)


def test_probe_data_take_one_data_set():
    r = grid()
    other = r[(r["evaluator"] == "probe") & (r["step"] == 0)].assign(split="ewt-test", n=9999)
    # more steps win over more targets
    assert set(probe_data(pd.concat([r, other]))["split"].dropna()) == {"gum-test", "heldout"}


def test_depth_is_said():
    d = layer_data(grid(layers=2))
    assert sorted(d[d["shown"]]["layer"].unique()) == [1, 2]
    assert "The model has 2 layers" in caption("p1_fig3", d)


def test_losses_are_not_drawn_twice():
    r = grid()
    one = r[r["evaluator"] == "pretrain"].copy()
    same = one[one["group"] == "mlm"].assign(group="")
    d = parts_data(pd.concat([one[one["group"] != ""], same]))
    assert set(d["part"]) == {"mlm", "sop"}
    assert set(parts_data(same)["part"]) == {"mlm"}
    # a point of training and one held out between checkpoints
    assert len(parts_data(pd.concat([one, same.assign(step=999)]))) == len(parts_data(one)) + 2
    whole = pd.concat([one, one[one["group"] == "sop"].assign(group="total")])
    assert set(parts_data(whole)["part"]) == {"mlm", "sop", "total"}


def test_all_figures_are_drawn(tmp_path):
    r = pd.concat([grid("albert"), grid("bert", layers=2), grid("electra")])
    for name, f in FIGURES.items():
        d = f.data(r)
        fig = f.plot(d)
        assert fig is not None and fig.axes, name
        assert d["step"].notna().any() and (d["low"].isna() | (d["low"] <= d["high"])).all()
        if name == "p1_fig12":
            assert save_figure(fig, d, name, tmp_path, caption(name, d)).is_file()
        plt.close(fig)


def test_registry_holds_every_figure_and_table():
    embryo.figures()  # all rooms declare theirs
    every = figures_of("p1")
    assert {n for n, f in every.items() if not f.plot} == {"p1_frequency", *(f"p1_table{i}" for i in range(1, 10))}
    assert {"p1_fig1a", "p1_fig2b", "p1_fig4", "p1_fig10", "p1_fig13c", "p1_fig14", *FIGURES} <= set(every)
    assert knowledge_data in {f.data.func for n, f in every.items() if n in ("p1_fig6", "p1_fig14")}


def test_sections_of_the_appendix_are_those_of_the_registry():
    embryo.figures()
    cells = json.loads((repo_root() / "nbs" / "appendix" / "p1_embryology.ipynb").read_text())["cells"]
    headings = {l[3:].strip() for c in cells for l in c["source"] if c["cell_type"] == "markdown" and l[:3] == "## "}
    assert {f.title for f in figures_of("p1").values()} <= headings
    code = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    named = set(re.findall(r"p1_[a-z0-9_]+", code)) | {f"p1_fig{n}{x}" for n in (11, 13) for x in "abc"}
    assert set(figures_of("p1")) <= named


@pytest.mark.parametrize("name", NEED)
def test_what_to_run_is_said(name):
    with pytest.raises(EmbryoError, match="run the batch that measures them"):
        figures_of("p1")[name].data(row_frame([]))


def test_nothing_is_none():
    empty = row_frame([])
    for name, f in FIGURES.items():
        d = f.data(empty)
        assert d.empty and f.plot(d) is None and "Nothing was measured" in caption(name, d)
    for table in (table4, table5, table6):
        assert all(t.empty for t in table(empty))
    assert (
        selectivity_data(empty).empty
        and table_selectivity(selectivity_data(empty)).empty
        and frequency_data(empty).empty
        and table_frequency(frequency_data(empty)).empty
    )
    assert (
        reach_data(probe_data(empty)).empty
        and reach_data(word_data(empty)).empty
        and glue_beside(average_data(empty)).empty
    )


TRIALS = int(os.environ.get("EMBRYO_TRIALS", 6))  # of random holes


def test_holes_do_not_hurt():
    r = pd.concat([grid("albert", layers=3), grid("bert", layers=2), grid("electra", layers=1)], ignore_index=True)
    rng = np.random.default_rng(3)
    drawn = list(FIGURES.items())
    for trial in range(TRIALS):
        keep = np.ones(len(r), bool)
        for c in ("family", "step", "task", "layer", "group", "metric", "mode", "evaluator"):
            v = r[c].astype(object).where(r[c].notna(), "none")
            gone = [x for x in v.unique() if rng.random() < (0.3 if c in ("step", "task", "layer") else 0.1)]
            keep &= ~v.isin(gone).to_numpy()
        few = r[keep & (rng.random(len(r)) < (1, 0.7, 0.1)[trial % 3])]
        for k, (name, f) in enumerate(drawn):
            d = f.data(few)
            assert isinstance(caption(name, d), str)
            if k % TRIALS == trial and (fig := f.plot(d)) is not None:
                plt.close(fig)
        for f in (table4, table5, table6):
            f(few)
        reach_data(probe_data(few))
        reach_data(glue_data(few))
        table_selectivity(selectivity_data(few))
        table_frequency(frequency_data(few))
        glue_beside(average_data(few))
    plt.close("all")


def test_caption_names_what_is_missing():
    r = grid()
    c = caption("p1_fig5b", glue_data(r[~r["task"].isin(["RTE", "MNLI"])]))
    assert c.endswith("Not measured here: MNLI, RTE.") and "n = 100" in c
    assert "BERT, ELECTRA" in caption("p1_fig13c", average_data(r)).split("Not measured")[1]


def test_caption_names_bands():
    r = grid()
    said = lambda x: caption("p1_fig8", FIGURES["p1_fig8"].data(x)).split("Not measured here: ")[-1]
    assert said(r) == "300-349 by vocabulary index, 1550-1599."
    assert said(r[r["task"] != "freq-id"]) == "vocabulary index, 1550-1599."
    assert said(r[r["group"] != "50-99"]) == "vocabulary index, 50-99, 1550-1599."
    more = pd.concat(
        [
            r,
            r[r["group"] == "50-99"].assign(group="300-349"),
            r[r["task"].isin(["freq-id", "freq-count"]) & (r["group"] == "50-99")].assign(group="1550-1570"),
        ]
    )
    # cut by the end of the vocabulary: still that band
    assert "Not measured" not in said(more)


def test_groups_without_a_last_value_are_in_the_right_panel_only():
    r = grid()
    words = r["evaluator"].isin(["reconstruct", "mask_predict"]) & (r["step"] == max(STEPS))
    # surely above 0
    r.loc[words, "value"] = 0.9
    zero = r.assign(value=r["value"].where(~(words & (r["group"] == "V-ing")), 0.0))
    d = FIGURES["p1_fig7b"].data(zero)
    assert "above 0: V-ing." in caption("p1_fig7b", d) and "V-ing" in set(d["group"])
    for name, gone, said in (
        ("p1_fig7b", lambda d: d["group"] == "V-en", "V-en"),
        ("p1_fig8", lambda d: (d["task"] == "freq-count") & (d["group"] == "300-349"), "300-349"),
        ("p1_fig8", lambda d: d["task"] == "freq-id", "50-99 (vocabulary index)"),
        ("p1_fig7a", lambda d: d["step"] >= 0, ", ".join(FORM_ORDER)),
    ):
        d = FIGURES[name].data(r)
        left = d[~((d["scale"] == "rescaled") & gone(d))]
        fig = plot_words(left)
        groups = lambda ax: [t.get_text() for t in ax.get_legend().get_texts()]
        assert groups(fig.axes[1]) == group_order(d["group"])
        lines = len(d[["task", "group"]].drop_duplicates())
        assert sum(len(l.get_xdata()) == len(STEPS) for l in fig.axes[1].lines) == lines
        assert (
            sum(len(l.get_xdata()) == len(STEPS) for l in fig.axes[0].lines)
            == len(left.loc[left["scale"] == "rescaled", ["task", "group"]].drop_duplicates())
            < lines
        )
        assert f"Not in the left panel, for a last value not surely above 0: {said}." in caption(
            name, left
        ) and "left panel" not in caption(name, d)
        assert len(reach_data(left)) == len(reach_data(d))
        plt.close(fig)


def test_a_mean_of_fewer_tasks_is_not_set_beside_the_papers():
    every = average_data(scores())
    assert (
        glue_beside(every)["paper_k"].tolist() == [0, 100, 1000]
        and glue_beside(average_data(scores(tasks=[t for t in P2_TASKS if t != "RTE"]))).empty
    )
    two = average_data(scores("bert", tasks=("CoLA", "STS-B")), ["bert"])
    assert set(glue_beside(pd.concat([every, two]))["family"]) == {"albert"}


def test_windows_are_no_share_of_questions():
    r = grid()
    train = row_frame(
        [
            dict(
                evaluator="finetune",
                group="final",
                task=t,
                split="train",
                metric="train_loss",
                step=0,
                seed=0,
                value=1.0,
                n=2368,
            )
            for t in (SQUAD, "CoLA")
        ],
        family="albert",
        l1="english",
    )
    d, view = table6(pd.concat([r, train]))
    at = lambda x, c: x.set_index(["task", "split"])[c]
    assert (
        at(d, "ours")[SQUAD, "train"] == 2368
        and np.isnan(at(d, "share")[SQUAD, "train"])
        and at(view, "share")[SQUAD, "train"] == "–"
        and at(view, "here")[SQUAD, "train"] == "2,368 windows"
    )
    assert at(view, "share")["CoLA", "train"] == "28%" and at(d, "share")[SQUAD, "dev"] == pytest.approx(100 / 11873)


def test_only_step_zero_is_no_curve():
    r = grid(steps=(0,))
    for name in ("p1_fig7a", "p1_fig8", "p1_fig3", "p1_fig11a"):
        assert FIGURES[name].plot(FIGURES[name].data(r)) is None


@pytest.mark.parametrize("name", sorted(profiles()))
def test_hyperparameters_of_every_profile(name):
    p = read_profile(name)
    d, view = table2(p)
    assert (
        d.set_index("setting").loc["peak learning rate", "paper"] == 6.222539674e-4
        and d["ours"].notna().sum() > 8
        and len(view) == len(d)
    )
    d, _ = table7(p)
    assert d.set_index(["task", "setting"])["paper"].loc[
        [("SST-2", "updates"), ("SQuAD2.0", "batch"), ("RTE", "length")]
    ].tolist() == [20935, 48, 512]


def test_table5_shows_the_corrected_number():
    view = table5(grid())[1].set_index(["probe", "split"])
    assert (
        view.loc[("SRL", "test"), "targets"] == "7 (56,000 wrong, in fact 61,716)"
        and view.loc[("coreference", "test"), "targets"] == "7 (in fact 27,800)"
    )
    assert view.loc[("POS", "dev"), "targets"] == "– (290,000)"


def test_frequency_of_forms():
    f = frequency_data(grid())
    assert (
        f.sort_values("paper_order")["group"].tolist() == P1_FORMS
        and f.sort_values("rank_order")["group"].tolist() == FORM_ORDER
    )


# -- frequency bands, from a real (toy) corpus and checkpoint


@pytest.fixture(scope="module")
def checkpoint(lab):
    from embryo.corpora.tokens import open_ids
    from embryo.evaluation.annotations.folders import read
    from embryo.models.given import open_series

    s = open_series(lab["series"] + "/albert-english-s0")
    return (
        *s.load(s.steps[-1]),
        read(lab["data"] + "/probing_gum/test.jsonl.gz")[:20],
        open_ids(lab["corpora"] + "/english/train"),
    )


def test_ranks_against_a_counter(checkpoint):
    from embryo.evaluation.words.words import frequency_ranks

    ids = checkpoint[3]
    c = Counter(int(x) for line in range(len(ids)) for x in ids[line] if x >= 5)
    ranks = frequency_ranks(ids)
    assert [i for i, _ in sorted(c.items(), key=lambda x: (-x[1], x[0]))] == np.argsort(ranks)[5:][: len(c)].tolist()
    assert (
        (ranks[:5] == -1).all()
        and sorted(ranks[5:]) == list(range(len(ranks) - 5))
        and (frequency_ranks(ids.counts()) == ranks).all()
    )


def test_mask_predict_is_what_it_was(checkpoint):
    from embryo.evaluation.words.words import frequency_ranks, hit_rows, mask_predict, word_hits

    m, t, sentences, ids = checkpoint
    plain = mask_predict(m, t, sentences)
    banded = mask_predict(m, t, sentences, ranks=frequency_ranks(ids), bands=[(0, 9), (10, 40), (90_000, 90_010)])
    pd.testing.assert_frame_equal(plain, hit_rows(word_hits(m, t, sentences, True), "mask_predict"), check_exact=True)
    pd.testing.assert_frame_equal(plain, banded[: len(plain)], check_exact=True)
    extra = banded[len(plain) :]
    assert set(extra["task"]) <= {"freq-count", "freq-id"} and set(extra["group"]) == {"0-9", "10-40"}


def test_bands_word_by_word(checkpoint):
    from embryo.evaluation.words.words import band_rows, frequency_ranks, word_hits

    m, t, sentences, ids = checkpoint
    h = word_hits(m, t, sentences, True)
    ranks = frequency_ranks(ids)
    # an untrained model is right nowhere
    h["hit"] = (np.arange(len(h)) % 3 == 0).astype(float)
    got = band_rows(h, t, ranks, [(0, 9), (10, 40)]).query("metric=='accuracy'").set_index(["task", "group"])
    for task, of in (("freq-count", lambda i: ranks[i]), ("freq-id", lambda i: i)):
        for a, b in ((0, 9), (10, 40)):
            hits = [
                x.hit
                for x in h.itertuples()
                for p in [t(x.word, add_special_tokens=False)["input_ids"]]
                if len(p) == 1 and p[0] >= 5 and a <= of(p[0]) <= b
            ]
            if hits:
                assert (got.loc[(task, f"{a}-{b}"), "value"], got.loc[(task, f"{a}-{b}"), "n"]) == (
                    pytest.approx(np.mean(hits)),
                    len(hits),
                )
            else:
                assert (task, f"{a}-{b}") not in got.index


def test_class_frequency_word_by_word(checkpoint):
    from embryo.evaluation.words.windows import CLASSES
    from embryo.evaluation.words.words import class_frequency, frequency_ranks

    _, t, sentences, ids = checkpoint
    ranks = frequency_ranks(ids)
    counts = ids.counts()
    got = class_frequency(t, sentences, ids).set_index(["mode", "task", "group", "metric"])["value"]
    for mode, metric, value in (
        ("corrected", "mean_rank", ranks),
        ("corrected", "mean_count", counts),
        ("published", "mean_rank", np.arange(len(ranks))),
    ):
        tags = CLASSES[mode]["pos-class"]["noun"]
        want = [
            value[i]
            for s in sentences
            for w, x in zip(s["tokens"], s["tags"])
            if x in tags
            for i in t(w, add_special_tokens=False)["input_ids"]
            if i >= 5
        ]
        assert got[mode, "pos-class", "noun", metric] == pytest.approx(np.mean(want))


def test_ranks_of_another_vocabulary_are_refused(checkpoint):
    from embryo.evaluation.words.words import class_frequency, frequency_ranks, mask_predict

    m, t, sentences, ids = checkpoint
    with pytest.raises(EmbryoError, match="ranks of 9 ids for a tokenizer of"):
        mask_predict(m, t, sentences, ranks=np.arange(9))
    with pytest.raises(EmbryoError, match="ranks of 9 ids for a tokenizer of"):
        class_frequency(t, sentences, np.arange(9))
    with pytest.raises(EmbryoError, match=r"band \(5, 1\)"):
        mask_predict(m, t, sentences, ranks=frequency_ranks(ids), bands=[(5, 1)])
