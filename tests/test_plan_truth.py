"The plan against what was measured: the record of a machine, what a batch says at its end, budgets."

import csv
import json
import os
import threading
from dataclasses import replace

import crash
import numpy as np
import pandas as pd
import pytest
from conftest import ROOT

from embryo.batch.budget import Budget, budget_lines, choices, cut_section, section_names, wall_seconds
from embryo.batch.cluster.jobs import Cluster, resources
from embryo.batch.costs.cost import cost
from embryo.batch.costs.past import arithmetic, factor, processor, read_past, taken
from embryo.batch.costs.seconds import STARTUP_S, looking_seconds, model_of, training_seconds
from embryo.batch.graph.results import checkpoint_nodes
from embryo.batch.graph.series import corpus_nodes, series_nodes
from embryo.batch.graph.study import read_study
from embryo.batch.plan import Plan, agreement, comparison, measured, node_table
from embryo.batch.run import cpu_clock
from embryo.ground.files import read_json, write_json
from embryo.ground.profiles import profiles

CHAIN = (
    'profile = "truth"'
    + crash.SIZES
    + """
[results.one]
template = "chain"
family = ["roberta"]
l1 = ["zipf:1k"]
[results.two]
template = "chain"
family = ["roberta"]
l1 = ["zipf:1k", "english:1k"]
seed = [0, 1]
"""
)


@pytest.fixture
def profile(tmp_path):
    "A profile of a few short chains."
    (tmp_path / "klingon.txt").write_text(crash.KLINGON)
    (tmp_path / "truth.toml").write_text(CHAIN)
    return tmp_path / "truth.toml"


@pytest.fixture(scope="module")
def micro(tmp_path_factory):
    return Plan("micro", root=tmp_path_factory.mktemp("micro"), on="cpu")


REAL = ("grown", "grown-long", "grown-pairs", "grown-plain", "open", "transfer")


@pytest.mark.parametrize("name", REAL)
def test_jobs_ask_for_the_memory_that_nodes_took(name, monkeypatch, tmp_path):
    "Today's plan for a processor with bf16, on which the committed batches ran: enough for each node, seldom too much."
    for room in ("cost", "seconds"):
        monkeypatch.setattr(f"embryo.batch.costs.{room}.precision", lambda on: "bf16")
    plan = Plan(name, root=tmp_path, dry=True, on="cpu")
    nodes = (
        pd.read_csv(ROOT / f"papermill_runs/{name}/nodes.csv").dropna(subset=["taken_mb"]).set_index("node")["taken_mb"]
    )
    took = {k: mb for k, mb in nodes.items() if k in plan.nodes}
    assert len(took) > 0.9 * len(nodes)
    for k, mb in took.items():
        assert mb <= resources([plan.nodes[k]], Cluster())["mem_mb"], k
    ratios = [mb / plan.nodes[k].cost["memory_mb"] for k, mb in took.items()]
    assert np.mean([0.4 < r < 1.5 for r in ratios]) > 0.9 and 0.5 < np.median(ratios) < 1.25


# ---- after a run ----


def test_a_batch_is_compared_with_its_plan_and_corrects_the_next(run, profile, tmp_path, monkeypatch):
    """One line at the end, a table node by node, measured beside planned, and the next estimate follows the past; but a
    toy like this one has nothing to tell.
    """
    profile.write_text(CHAIN[: CHAIN.index("[results.two]")])  # five nodes: in seconds
    before = Plan(profile, root=tmp_path, on="cpu")
    assert not before.past and "nothing is corrected" in str(before)
    raw = {k: n.cost["raw"] for k, n in before.nodes.items()}

    code, out, err = run("embryo_run", "--profile", profile, "--cores", "2", timeout=900)
    assert code == 0, err
    lines = [line for line in out.splitlines() if "nodes within a factor of 1.5" in line]
    assert len(lines) == 1 and lines[0].startswith("planned ") and f"of {len(raw)} nodes" in lines[0], out

    runs = tmp_path / "papermill_runs" / "truth"
    batch = read_json(runs / "batch.json")
    assert list(batch["nodes"]) == list(raw) and batch["seconds"] == agreement(batch["nodes"])
    for name, x in batch["nodes"].items():
        one = read_json(runs / "runs" / name / "run.json")
        assert x["planned"] == one["planned"] and x["planned"]["raw"] == x["planned"]["seconds"]
        assert x["planned"]["raw"] == pytest.approx(raw[name], rel=0.5)  # each plan tries the machine anew
        assert x["seconds"] == taken(one) == one["cpu_s"] > 0 and one["on"] == "cpu" and one["processor"]

    # the same as a table to be committed: a node a line, by name
    nodes = runs / "nodes.csv"
    with open(nodes, newline="") as f:
        record = {r["node"]: r for r in csv.DictReader(f)}
    assert list(record) == sorted(raw)
    for name, r in record.items():
        one = read_json(runs / "runs" / name / "run.json")
        assert float(r["planned_s"]) == pytest.approx(one["planned"]["seconds"], abs=0.006)
        assert float(r["taken_s"]) == pytest.approx(one["cpu_s"], abs=0.006) and r["revision"] == one["git"]
        assert float(r["ratio"]) == pytest.approx(float(r["taken_s"]) / float(r["planned_s"]), abs=0.006)
        assert r["machine"] == one["processor"] and r["threads"] == "1" and r["kind"] == name.split("/")[0]
        assert int(r["planned_mb"]) == before.nodes[name].cost["memory_mb"]
        assert 100 < int(r["taken_mb"]) == one["memory_mb"] < 10_000

    assert not Plan(profile, root=tmp_path, on="cpu").past
    monkeypatch.setattr("embryo.batch.costs.past.LEAST_S", 0.0)
    after = Plan(profile, root=tmp_path, on="cpu")
    assert {k: n.key for k, n in after.nodes.items()} == {k: n.key for k, n in before.nodes.items()}
    assert not after.todo() and lines[0] in str(after) and "corrected by the past of this machine" in str(after)
    chain = [x["seconds"] / x["planned"]["raw"] for k, x in batch["nodes"].items() if k.startswith("chain/")]
    assert after.past["chain"] == pytest.approx(chain)

    # another profile in the same folder is planned with what this one took
    other = profile.with_name("other.toml")
    other.write_text(profile.read_text().replace('profile = "truth"', 'profile = "other"'))
    next = Plan(other, root=tmp_path, on="cpu")
    for n in next.nodes.values():
        assert n.cost["raw"] == raw[n.name]
        assert n.cost["seconds"] == pytest.approx(raw[n.name] * factor(n.template, after.past), rel=1e-3, abs=1e-3)
    assert next.nodes["chain/roberta-zipf:1k-s0"].cost["seconds"] != raw["chain/roberta-zipf:1k-s0"]

    # a second run has nothing to do and nothing to say
    stamps = [(runs / f).stat().st_mtime_ns for f in ("batch.json", "nodes.csv")]
    code, out, err = run("embryo_run", "--profile", profile, timeout=600)
    assert code == 0 and out.startswith("0 of ") and "factor" not in out
    assert [(runs / f).stat().st_mtime_ns for f in ("batch.json", "nodes.csv")] == stamps

    # what a batch did not come to write, or somebody cut, the next one makes up for
    (runs / "batch.json").write_text('{"nodes')
    code, out, err = run("embryo_run", "--profile", profile, timeout=600)
    assert code == 0 and read_json(runs / "batch.json")["nodes"] == batch["nodes"], err

    # some run again: their lines are new, those of the others stay, also of one whose run.json says nothing any more
    lines = nodes.read_text().splitlines()
    chain = "chain/roberta-zipf:1k-s0"
    (runs / "runs" / chain / "rows.parquet").unlink()
    silent = runs / "runs/corpus/zipf/run.json"
    write_json(silent, {k: v for k, v in read_json(silent).items() if k != "planned"})
    nodes.write_text("\n".join([*lines, lines[1].replace(lines[1].split(",")[0], "corpus/that-is-no-more")]) + "\n")
    code, out, err = run("embryo_run", "--profile", profile, timeout=600)
    assert code == 0 and not out.startswith("0 of "), (out, err)
    again = nodes.read_text().splitlines()
    assert [l.split(",")[0] for l in again] == [l.split(",")[0] for l in lines]
    changed = {l.split(",")[0] for l, m in zip(again, lines) if l != m}
    assert chain in changed and not [k for k in changed if k.startswith("corpus/")], changed


def test_a_batch_that_fails_leaves_the_record_of_what_it_made(run, profile, tmp_path):
    "Its next run adds the rest."
    text = CHAIN[: CHAIN.index("[results.two]")]
    (tmp_path / "moody.py").write_text(
        "def moody(model, tokenizer, sentences):\n    raise ValueError('in a bad mood')\n"
    )
    profile.write_text(
        text
        + """
[examine]
max_sentences = 10
[evaluators.moody]
function = "moody.py:moody"
[results.words]
template = "examine"
family = ["roberta"]
l1 = ["none"]
step = "last"
evaluators = ["moody"]
"""
    )
    nodes = tmp_path / "papermill_runs/truth/nodes.csv"
    code, out, err = run("embryo_run", "--profile", profile, "--cores", "1", timeout=900)
    assert code == 2 and "in a bad mood" in err, (out, err)
    first = nodes.read_text().splitlines()
    assert "chain/roberta-zipf:1k-s0" in {l.split(",")[0] for l in first} and "examine/" not in nodes.read_text()
    (tmp_path / "moody.py").write_text(
        "def moody(model, tokenizer, sentences):\n    return [dict(metric='mood', value=1.0, n=1)]\n"
    )
    code, out, err = run("embryo_run", "--profile", profile, "--cores", "1", timeout=900)
    assert code == 0, (out, err)
    assert set(first) < set(nodes.read_text().splitlines()) and "examine/roberta-none-s0" in nodes.read_text()


def test_what_was_there_before_says_nothing(run, profile, tmp_path, monkeypatch):
    "A series that goes on after a stop took less than it costs; the record leaves it out."
    code, out, err = run("embryo_corpus", "zipf", "--profile", profile, timeout=600)
    assert code == 0, err
    note = tmp_path / "papermill_runs/truth/runs/corpus/zipf/run.json"
    first = read_json(note)
    assert first["cpu_s"] > 0 and first["planned"]["by"] == arithmetic()
    (note.parent / "rows.parquet").unlink()  # the ids stay
    code, out, err = run("embryo_corpus", "zipf", "--profile", profile, timeout=600)
    assert code == 0, err
    again = read_json(note)
    assert again["cpu_s"] is None and again["seconds"] > 0 and taken(again) is None
    monkeypatch.setattr("embryo.batch.costs.past.LEAST_S", 0.0)
    plan = Plan(profile, root=tmp_path, on="cpu")
    assert len(plan.past["corpus"]) == 1  # that of English
    table = measured(plan.nodes.values())
    assert table["corpus/zipf"]["seconds"] is None and "corpus/zipf" not in list(node_table(table)["node"])
    assert " of 2 nodes within a factor of 1.5" in comparison(table)[0]
    assert comparison(table)[0].endswith("; not counted: 1 that went on after a stop")


def test_children_count():
    "A kernel and training processes are children."
    before = cpu_clock()
    pid = os.fork()
    if not pid:
        sum(i * i for i in range(3_000_000))
        os._exit(0)
    os.waitpid(pid, 0)
    assert cpu_clock() - before > 0.05


# ---- the record ----


def note(folder, name, ratio, **changed):
    planned = dict(raw=10.0, seconds=10.0, by=arithmetic())
    run = dict(seconds=99.0, cpu_s=10.0 * ratio, on="cpu", processor="here", planned=planned) | changed
    write_json(folder / "papermill_runs" / "p" / "runs" / name / "run.json", run)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1, 2]",
        "null",
        '{"planned": 3}',
        '{"planned": {"raw": "ten"}}',
        json.dumps(dict(processor="here", cpu_s=5, planned=dict(raw=0, by="BY"))),
        json.dumps(dict(processor="here", cpu_s=-5, planned=dict(raw=10, by="BY"))),
        json.dumps(dict(processor="here", cpu_s="5", planned=dict(raw=10, by="BY"))),
        json.dumps(dict(processor="here", cpu_s=float("nan"), planned=dict(raw=10, by="BY"))),
        json.dumps(dict(processor="here", cpu_s=5, planned=dict(raw=float("nan"), by="BY"))),
    ],
)
def test_a_bad_record_is_passed_over(tmp_path, text):
    note(tmp_path, "chain/a", 2)
    bad = tmp_path / "papermill_runs/p/runs/chain/b/run.json"
    bad.parent.mkdir()
    bad.write_text(text.replace("BY", arithmetic()))
    assert read_past(tmp_path / "papermill_runs", "here") == {"chain": [2]}


def test_what_cannot_be_read_is_passed_over(tmp_path):
    "A folder in place of a file, bytes that are no text, a record that was changed after it was sealed."
    note(tmp_path, "chain/a", 2)
    top = tmp_path / "papermill_runs/p/runs/chain"
    (top / "b/run.json").mkdir(parents=True)
    (top / "c").mkdir()
    (top / "c/run.json").write_bytes(b"\xff\xfe{}")
    note(tmp_path, "chain/d", 3)
    (top / "d/run.json").write_text((top / "d/run.json").read_text().replace("30.0", "90.0"))
    assert read_past(tmp_path / "papermill_runs", "here") == {"chain": [2]}


@pytest.mark.parametrize("planned", [3, {"raw": 1}, {"raw": 1, "seconds": 0}, {}])
def test_a_bad_record_of_its_own_does_not_disturb_a_plan(profile, tmp_path, planned):
    "Nor does that of an older revision, which says nothing of what was planned."
    n = Plan(profile, root=tmp_path, on="cpu").nodes["rows/all"]
    n.folder.mkdir(parents=True)
    n.rows.touch()
    run = dict(name=n.name, key=n.key, files={}, inputs={}, seconds=7.0, cpu_s=5.0, planned=planned)
    write_json(n.folder / "run.json", run)
    again = Plan(profile, root=tmp_path, on="cpu")
    assert again.nodes[n.name].state() == "done" and again.nodes[n.name].cost["seconds"] == 5
    assert n.name in str(again) and not measured(again.nodes.values()) and not again.past


def test_another_machine_and_another_arithmetic_are_no_past(tmp_path):
    note(tmp_path, "chain/a", 2, processor="elsewhere")
    note(tmp_path, "chain/b", 3, planned=dict(raw=10.0, seconds=10.0, by="older"))
    assert read_past(tmp_path / "papermill_runs", "here") == {}
    assert factor("chain", {}) == 1 and factor("chain", {"examine": [3.0]}) == 1


def test_two_processors_of_one_name_are_two(tmp_path, monkeypatch):
    "A rented machine may be called AMD EPYC with AVX-512 and without it."
    for capability in ("AVX2", "AVX512"):
        monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda c=capability: c)
        name = processor.__wrapped__("cpu")
        assert name.endswith(f", {capability}") and read_past(tmp_path / "papermill_runs", name) == {}
        note(tmp_path, "chain/a", 2, processor=name)
        assert read_past(tmp_path / "papermill_runs", name) == {"chain": [2]}


@pytest.mark.parametrize("raw,took", [(0.1, 9.0), (4.9, 9.0), (9.0, 4.9), (0.1, 0.3)])
def test_a_toy_is_no_past(tmp_path, raw, took):
    "Planned or done in less than five seconds: such a ratio is that of start-ups."
    note(tmp_path, "chain/toy", 1, planned=dict(raw=raw, seconds=raw, by=arithmetic()), cpu_s=took)
    assert read_past(tmp_path / "papermill_runs", "here") == {}
    note(tmp_path, "chain/a", 3)
    assert read_past(tmp_path / "papermill_runs", "here") == {"chain": [3]}


def test_few_nodes_correct_little():
    "What one node says is believed by a fifth; five of a kind are believed."
    factors = [factor("chain", {"chain": [8.0] * n}) for n in range(1, 8)]
    assert factors == sorted(factors) and factors[4:] == [8.0] * 3
    assert factors[0] == pytest.approx(8 ** (1 / 5))
    assert [factor("chain", {"chain": [1 / 8] * n}) for n in (1, 5)] == pytest.approx([8 ** (-1 / 5), 1 / 8])


def test_the_newest_of_each_kind_count(tmp_path, monkeypatch):
    "Many nodes of one kind do not push out another; what another machine left meanwhile does not, either."
    monkeypatch.setattr("embryo.batch.costs.past.NEWEST", 3)
    names = ["corpus/0", *(f"chain/{i}" for i in range(6))]
    for when, name in enumerate(names):
        note(tmp_path, name, 1 + when)  # ten seconds and more
        os.utime(tmp_path / f"papermill_runs/p/runs/{name}/run.json", (1000 + when, 1000 + when))
    for i in range(4):
        note(tmp_path, f"chain/elsewhere-{i}", 9, processor="elsewhere")
    assert read_past(tmp_path / "papermill_runs", "here") == {"corpus": [1], "chain": [7, 6, 5]}


def test_a_batch_beside_does_not_disturb(tmp_path):
    "While run.json files come and go, reading gives whole records or none."
    for i in range(5):
        note(tmp_path, f"chain/{i}", 2)
    stop = threading.Event()

    def write():
        while not stop.is_set():
            for i in range(5):
                (tmp_path / f"papermill_runs/p/runs/chain/{i}/run.json").unlink(missing_ok=True)
                note(tmp_path, f"chain/{i}", 2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [read_past(tmp_path / "papermill_runs", "here").get("chain", []) for _ in range(50)]
    finally:
        stop.set()
        writer.join()
    assert all(set(ratios) <= {2} for ratios in seen) and any(seen)


# ---- the arithmetic ----


def test_an_estimate_follows_what_is_done(micro, monkeypatch):
    "What the old one left out: Muon, the masking rate, two models of ELECTRA, held-out losses, the second fine-tuning."
    m = model_of(micro.nodes["pretrain/roberta-english-s0"], micro.study)
    monkeypatch.setattr("embryo.batch.costs.seconds.rate", lambda on, kind: 1e11)  # whatever else this machine does

    def training(**changed):
        return training_seconds(replace(m, training=replace(m.training, **changed)), "cpu")

    assert training(optimizer="muon") > 1.05 * training()
    assert training(mask_rate=0.6) > training(mask_rate=0.15)
    # a small batch is not free: by operations alone it would be a 64th
    assert m.training.batch == 64 and training(batch=1) > 0.25 * training()
    often = replace(m, training=replace(m.training, curve_every=10))
    assert looking_seconds(often, "cpu") > 10 * looking_seconds(m, "cpu")
    spec = dict(template="finetune", task=["MNLI", "RTE"])
    once, twice = (
        cost(checkpoint_nodes(micro.study, "x", spec | more, "bert", "english", 0)[-1], micro.study)["seconds"]
        for more in ({}, dict(intermediate="MNLI"))
    )
    assert twice > 1.3 * once


def test_text_is_as_long_as_the_manifest_says(tmp_path, lab):
    (tmp_path / "text.toml").write_text('profile = "text"\n[tokenizer]\nvocab_size = 300\n')
    study = read_study(tmp_path / "text.toml", data=lab["data"], root=tmp_path)
    node = corpus_nodes(study, "kannada")[-1]
    listed = [f for e in json.loads((study.data / "MANIFEST.json").read_text()) for f in e["files"]]
    mb = sum(f["raw_bytes"] for f in listed if f["path"].startswith("wiki_kn/")) / 2**20
    assert node.files and mb > 0
    assert cost(node, study)["seconds"] == pytest.approx(STARTUP_S + mb * (1 / 4 + 1 / 2))
    away = read_study(tmp_path / "text.toml", root=tmp_path, dry=True)
    assert cost(corpus_nodes(away, "kannada")[-1], away)["seconds"] > 20  # nothing is known of it


def test_a_second_of_the_past_is_no_part_of_a_key(micro, monkeypatch):
    monkeypatch.setattr("embryo.batch.plan.read_past", lambda *_: {"pretrain": [7.0] * 5, "corpus": [0.1] * 5})
    slow = Plan("micro", root=micro.study.root, on="cpu")
    assert {k: n.key for k, n in slow.nodes.items()} == {k: n.key for k, n in micro.nodes.items()}
    name = "pretrain/roberta-zipf-s0"
    assert slow.nodes[name].cost["seconds"] == pytest.approx(7 * micro.nodes[name].cost["seconds"])


# ---- a budget ----


def test_time_on_several_cores_lies_between_its_bounds(micro):
    nodes = list(micro.nodes.values())
    total = sum(n.cost["seconds"] for n in nodes)
    longest = {}
    for n in nodes:
        longest[n.name] = n.cost["seconds"] + max((longest[k] for k in n.needs), default=0)
    assert wall_seconds(nodes, 1) == pytest.approx(total)
    assert wall_seconds(nodes, len(nodes)) == pytest.approx(max(longest.values()))
    for cores in (2, 3, 8):
        seconds = wall_seconds(nodes, cores)
        assert max(total / cores, max(longest.values())) - 1e-6 <= seconds <= total


@pytest.mark.parametrize("hours", [0.02, 0.08, 0.15, 5])
def test_what_fits_does_fit_and_what_does_not_does_not(micro, hours):
    lines = budget_lines(micro, hours, 2)
    results = list(micro.study.profile["results"])
    shown = [line.split("  ")[-1].strip() for line in lines[1 : 1 + len(results)]]
    assert [s.split(":")[0] for s in shown] == results
    budget = Budget(micro, 3600 * hours, 2)
    missing = [s.split(":")[0] for s in shown if ":" in s]
    for result, line in zip(results, shown):
        waits = [r for r in micro.study.profile["results"][result].get("needs", []) if r in missing]
        assert line.partition(": waits for ")[2] == ", ".join(waits)
        if waits:
            budget.left[result] = ""
            continue
        new = budget.new(section_names(micro.study, result))
        assert (": does not fit; " in line) == (not budget.fits(new, result)), line
        # whoever has time for all that an appendix draws has time to draw it
        assert ": does not fit; " not in line or micro.study.profile["results"][result]["template"] != "appendix"
        if ": does not fit" not in line:
            budget.take(result)
            continue
        if "fits with " in line and " and " not in line:
            for way in line.split("fits with ")[1].split(", or with "):
                n, what, _, _, of = way.split()
                key = dict(seed="seed", seeds="seed", L1="l1", L1s="l1", family="family", families="family")[what]
                assert int(n) < int(of)
                assert budget.fits(budget.new(cut_section(micro.study, result, {key: int(n)})), result)
                if int(n) + 1 < int(of):
                    assert not budget.fits(budget.new(cut_section(micro.study, result, {key: int(n) + 1})), result)
        budget.left[result] = ""
    assert budget.end([]) <= 3600 * hours
    out = len(missing)
    assert lines[-1].startswith(f"{len(results) - out} of {len(results)} results fit into {hours:g} h on 2 cores")
    assert (out == 0) == (hours == 5)


@pytest.mark.parametrize("name", profiles())
def test_a_cut_asks_for_nodes_of_the_plan(name, tmp_path):
    "What a shorter result needs is a part of what the whole one needs, whatever the profile."
    study = read_study(name, root=tmp_path, dry=True)
    for result, spec in study.profile["results"].items():
        if spec["template"] != "appendix":
            whole = {*section_names(study, result)}
            for key in choices(spec):
                less = {*cut_section(study, result, {key: 1})}
                assert less < whole, (result, key)


def test_an_appendix_without_its_results_does_not_fit(profile, tmp_path):
    "It draws whatever is there, but is not counted as made; without `needs` it wants all that stands above it."
    for needs, waits in (("", "two"), ('needs = ["two"]', "two"), ('needs = ["one"]', "")):
        appendix = f'[results.x_nursery]\ntemplate = "appendix"\n{needs}\n'
        profile.write_text(CHAIN.replace("seed = [0, 1]", f"seed = {[*range(20)]}") + appendix)
        plan = Plan(profile, root=tmp_path, on="cpu")
        one = wall_seconds([plan.nodes[k] for k in section_names(plan.study, "one")], 1)
        drawn = sum(plan.nodes[k].cost["seconds"] for k in section_names(plan.study, "x_nursery"))
        *_, first, second, third, _, _, last = budget_lines(plan, (one + drawn + 1) / 3600, 1)
        assert ": " not in first and "two: does not fit; " in second, (first, second)
        assert third.strip() == "x_nursery: waits for two" if waits else third.endswith("  x_nursery"), third
        assert last.startswith(f"{1 if waits else 2} of 3 results fit"), last


def test_shared_nodes_are_counted_once(profile, tmp_path):
    plan = Plan(profile, root=tmp_path, on="cpu")
    budget = Budget(plan, 1e9, 1)
    first = budget.new(section_names(plan.study, "one"))
    budget.take("one")
    second = budget.new(section_names(plan.study, "two"))
    assert not {*first} & {*second} and second and {*first} < {*section_names(plan.study, "two")}
    assert [n.name for n in series_nodes(plan.study, "roberta", "zipf:1k", 0)][-1] in first


def test_the_budget_of_a_command(run, profile):
    code, out, err = run("embryo_plan", "--profile", profile, "--hours", "8", "--cores", "2", "--device", "cpu")
    assert code == 0 and "2 of 2 results fit into 8 h on 2 cores" in out.splitlines()[-1], (out, err)
    code, out, err = run("embryo_plan", "--profile", profile, "--hours", "0.0001", "--cores", "1", "--device", "cpu")
    assert code == 0 and "0 of 2 results fit" in out and "the first that does not is one" in out, (out, err)


@pytest.mark.parametrize(
    "option,value,sentence",
    [
        ("--hours", "0", "--hours is '0'; expected a number of hours above 0"),
        ("--hours", "eight", "--hours is 'eight'; expected a number of hours above 0"),
        ("--hours", "inf", "--hours is 'inf'; expected"),
        ("--cores", "-1", "--cores is -1; expected 1 or more"),
    ],
)
def test_a_budget_that_is_none(run, option, value, sentence):
    code, out, err = run("embryo_plan", f"{option}={value}")
    assert code == 2 and sentence in err and len(err.strip().splitlines()) == 1 and not out, err
