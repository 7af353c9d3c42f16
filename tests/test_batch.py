"""The batch: it runs, survives a kill, repeats only what changed, and does nothing when all is there."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time

import crash
import pytest
from conftest import BIN

from embryo.batch.costs.cost import cost
from embryo.batch.costs.seconds import STARTUP_S
from embryo.batch.graph.results import checkpoint_nodes, collect, pick_steps
from embryo.batch.graph.series import corpus_nodes, saved_steps, series_nodes
from embryo.batch.graph.study import read_study
from embryo.batch.plan import Plan
from embryo.batch.templates import code_hash, modules_of
from embryo.ground.errors import EmbryoError
from embryo.ground.files import read_json, write_json


# run.json comes last
def done(out):
    return {
        str(p.parent.relative_to(out)): p.stat().st_mtime_ns
        for p in sorted((out / "papermill_runs/tiny/runs").rglob("rows.parquet"))
        if (p.parent / "run.json").is_file()
    }


def test_kill_resume_noop_and_change(run, tiny, tmp_path):
    env = {**os.environ, "EMBRYO_OUT": str(tmp_path)}
    p = subprocess.Popen(
        [str(BIN / "embryo_run"), "--profile", str(tiny)],
        env=env,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    t = time.time()
    while len(done(tmp_path)) < 3 and time.time() - t < 200:
        time.sleep(0.2)
    os.killpg(p.pid, signal.SIGKILL)
    p.wait()
    before = done(tmp_path)
    assert 3 <= len(before)

    # by a relative path; goes on where it was
    code, out, err = run("embryo_run", "--profile", tiny.name, timeout=400)
    assert code == 0, err
    after = done(tmp_path)
    assert all(after[k] == v for k, v in before.items()), "a finished node was run again"
    # the README's promise: a text file becomes a row of the table
    assert "klingon" in (tmp_path / "figures/tiny/p2_table1.md").read_text()
    assert (
        (tmp_path / "papermill_runs/tiny/rows.csv").is_file()
        and (tmp_path / "figures/tiny/p2_table1.png").is_file()
        and (tmp_path / "figures/tiny/p2_table6.md").is_file()
        and (tmp_path / "papermill_runs/tiny/appendix/p2_transfer.ipynb").is_file()
    )
    table = (tmp_path / "figures/tiny/p2_table1.csv").read_bytes()

    code, out, err = run("embryo_run", "--profile", tiny)  # nothing to do
    assert code == 0 and out.startswith("0 of "), out
    assert done(tmp_path) == after

    # damage is found before anything begins, and made again, and nothing else is
    whole = crash.snapshot(tmp_path)
    runs = tmp_path / "papermill_runs/tiny"
    for f in (runs / "corpora/zipf/train/ids.bin", runs / "series/roberta-none-s0/step0/model.safetensors"):
        b = bytearray(f.read_bytes())
        b[len(b) // 2] ^= 4
        f.write_bytes(b)
    (runs / "series/roberta-zipf-s0/series.json").write_text(
        (runs / "series/roberta-zipf-s0/series.json").read_text()[:-30]
    )
    (runs / "series/roberta-klingon-s0/series.json").unlink()
    shutil.rmtree(runs / "corpora/klingon/tokenizer")
    (runs / "appendix/p2_transfer.ipynb").unlink()
    (tmp_path / "figures/tiny/p2_table1.csv").write_bytes(table.replace(b"1", b"2", 1))
    (tmp_path / "figures/tiny/p2_table1.md").unlink()
    (runs / "mine.tmp").write_text("not ours")
    (runs / ".mine.tmpl").write_text("nor this")
    code, out, err = run("embryo_plan", "--profile", tiny)
    damaged = {
        "corpus/zipf",
        "corpus/klingon",
        "pretrain/roberta-none-s0",
        "pretrain/roberta-zipf-s0",
        "pretrain/roberta-klingon-s0",
        "p2_transfer/appendix",
    }
    assert {l.split()[-1] for l in out.splitlines() if l.startswith("damaged")} == damaged, out
    # a second batch is refused, and touches nothing
    with open(runs / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, out, err = run("embryo_run", "--profile", tiny)
        assert code == 2 and "another batch of this profile is running" in err and done(tmp_path) == after, err
    code, out, err = run("embryo_run", "--profile", tiny, timeout=400)
    assert code == 0 and out.startswith("6 of "), (out, err)
    again = done(tmp_path)
    assert {k[len("papermill_runs/tiny/runs/") :] for k in again if again[k] != after[k]} == damaged
    assert (runs / "mine.tmp").exists() and (runs / ".mine.tmpl").exists()
    (runs / "mine.tmp").unlink()
    (runs / ".mine.tmpl").unlink()
    assert crash.snapshot(tmp_path) == whole and (tmp_path / "figures/tiny/p2_table1.md").exists()
    after = again

    # a series that was mended on another machine has other last bits: what was measured on it is out of date
    note = runs / "runs/pretrain/roberta-zipf-s0/run.json"
    was = read_json(note)
    write_json(note, dict(was, made="other"))
    code, out, err = run("embryo_plan", "--profile", tiny)
    assert {l.split()[-1] for l in out.splitlines() if l.startswith("changed")} == {
        "transplant/roberta-zipf+english-s0",
        "finetune/roberta-zipf-s0",
        "rows/all",
    }, out
    write_json(note, was)

    tiny.write_text(tiny.read_text().replace("epochs = 1", "epochs = 2"))  # a longer fine-tuning
    code, out, err = run("embryo_plan", "--profile", tiny)
    changed = {l.split()[-1] for l in out.splitlines() if l.startswith("changed")}
    assert changed == {
        "finetune/roberta-none-s0",
        "finetune/roberta-zipf-s0",
        "finetune/roberta-klingon-s0",
        "finetune/roberta-zipf+english-s0",
        "rows/all",
        "p2_transfer/appendix",
    }, changed
    code, out, err = run("embryo_run", "--profile", tiny, timeout=400)
    assert code == 0, err
    again = done(tmp_path)
    assert {k[len("papermill_runs/tiny/runs/") :] for k in again if again[k] != after[k]} == changed
    assert (tmp_path / "figures/tiny/p2_table1.csv").read_bytes() != table


def test_unknown_parameter_is_an_error(run, tiny):
    tiny.write_text(tiny.read_text().replace('task = ["STS-B"]', 'task = ["STS-B"]\nepoch = 3'))
    code, out, err = run("embryo_run", "--profile", tiny)
    assert code == 2 and "unknown key 'epoch'" in err and "Traceback" not in err


# ---- the plan's functions, one by one ----


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return read_study("micro", root=tmp_path_factory.mktemp("micro"))


def test_steps_of_a_result():
    saved = [0, 50, 100, 200]
    assert pick_steps("all", saved) == saved and pick_steps("last", saved) == [200]
    assert pick_steps([[50, 100], [100, 200]], saved) == saved and pick_steps([200, 0], saved) == [200, 0]
    for wanted in ("first", [], 3, None, {"at": [1]}):
        with pytest.raises(EmbryoError, match="expected all, last, a list of steps, or of pairs"):
            pick_steps(wanted, saved)
    with pytest.raises(EmbryoError, match="step 7 of x is not saved; it has 0, 50"):
        pick_steps([50, 7], saved, "x")


def test_an_l1_comes_behind_english(study):
    nodes = corpus_nodes(study, "nesting-zipf")
    assert list(collect(nodes)) == ["world/micro", "corpus/english", "corpus/nesting-zipf"]
    assert nodes[-1].params["maker"]["n_tokens"] == study.profile["corpora"]["artificial"]["n_tokens"]
    assert corpus_nodes(study, "english")[-1].needs == ["world/micro"]


def test_the_same_call_gives_the_same_nodes(study):
    "No shared state: a list of nodes is a value."
    a, b = (series_nodes(study, "roberta", "zipf+english", 1) for _ in range(2))
    assert a == b and all(x is not y for x, y in zip(a, b))
    a[-1].params["seed"] = 9
    assert series_nodes(study, "roberta", "zipf+english", 1) == b
    assert a[-1].needs == ["pretrain/roberta-zipf-s1", "corpus/english"]


def test_steps_that_a_series_will_have(study):
    p = study.profile["pretrain"]
    assert saved_steps(study, "roberta", "none") == [0]
    assert saved_steps(study, "roberta", "zipf") == [0, p["zipf"]["steps"]]
    assert saved_steps(study, "roberta", "zipf+body-only") == [p["zipf"]["steps"]]
    assert saved_steps(study, "roberta", "zipf+english") == [0, p["english-stage"]["steps"]]
    assert saved_steps(study, "bert", "english")[-1] == p["bert-english"]["steps"]


def test_two_results_ask_one_node(study):
    "Tasks, settings and evaluators are joined, and nothing is asked twice."
    one, two = (dict(template="finetune", task=t) for t in (["CoLA", "RTE"], ["RTE", "STS-B"]))
    nodes = collect(checkpoint_nodes(study, "one", one, "bert", "english", 0))
    nodes = collect(checkpoint_nodes(study, "two", dict(two, intermediate="RTE"), "bert", "english", 0), nodes)
    n = nodes["finetune/bert-english-s0"]
    assert n.params["tasks"] == ["CoLA", "RTE", "STS-B"] == list(n.params["finetuning"])
    assert n.params["intermediate"] == "RTE" and len(nodes) == len(set(nodes))


def test_cost_grows_with_what_is_asked(study):
    def of(*evaluators):
        spec = dict(template="examine", step="last", evaluators=list(evaluators))
        return cost(checkpoint_nodes(study, "x", spec, "albert", "english", 0)[-1], study)["seconds"]

    words, both, nothing = of("reconstruct"), of("reconstruct", "mask_predict"), of()
    assert nothing == STARTUP_S < words < both
    # a sentence costs 80 tokens for the one and 600 for the other (embryo.evaluation.evaluators)
    assert (both - STARTUP_S) / (words - STARTUP_S) == pytest.approx(680 / 80)
    assert cost(corpus_nodes(study, "zipf")[-1], study)["memory_mb"] == 700


def test_a_plan_takes_in_more(study):
    plan = Plan("micro", root=study.root)
    n = len(plan.nodes)
    assert plan.add(series_nodes(plan.study, "bert", "zipf", 3)) == "pretrain/bert-zipf-s3"
    new = plan.nodes["pretrain/bert-zipf-s3"]
    assert len(plan.nodes) == n + 1 and new.key and new.cost["seconds"] > 0
    assert plan.before("pretrain/bert-zipf-s3") == ["world/micro", "corpus/english", "corpus/zipf"]


def test_the_fingerprint_follows_every_import(tmp_path, monkeypatch):
    "A changed module changes the fingerprint of each template that reaches it, by whatever import, and of no other."
    root = tmp_path / "checkout"
    for f, text in {
        "nbs/experiments/a.ipynb": "from embryo.low.deep import inner",
        "nbs/experiments/b.ipynb": "import embryo.low.plain as p",
        "nbs/experiments/c.ipynb": "def f():\n    from embryo.top import g",
        "embryo/low/deep/__init__.py": "",
        "embryo/low/__init__.py": "",
        "embryo/low/deep/inner.py": "from ... import far",
        "embryo/low/plain.py": "from .deep.inner import x",
        "embryo/far.py": "y = 1",
        "embryo/top.py": "from .low import plain",
    }.items():
        (root / f).parent.mkdir(parents=True, exist_ok=True)
        cells = [dict(cell_type="code", metadata={}, source=[text])]
        (root / f).write_text(json.dumps(dict(cells=cells)) if f.endswith("ipynb") else text)
    monkeypatch.setenv("EMBRYO_ROOT", str(root))
    assert set(modules_of("a")) == {"low.deep.__init__", "low.deep.inner", "far"}
    assert {"low.plain", "low.deep.inner", "far"} <= set(modules_of("b")) & set(modules_of("c"))

    def hashes():
        code_hash.cache_clear()
        return {t: code_hash(t) for t in "abc"}

    before = hashes()
    (root / "embryo/far.py").write_text("y = 1  # the same")
    assert hashes() == before
    (root / "embryo/far.py").write_text("y = 2")
    assert all(hashes()[t] != before[t] for t in "abc")
    (root / "embryo/top.py").write_text("from .low import plain\nz = 1")
    now = hashes()
    (root / "embryo/top.py").write_text("from .low import plain\nz = 2")
    assert [t for t in "abc" if hashes()[t] != now[t]] == ["c"]
    code_hash.cache_clear()


def test_no_node_is_left_to_the_laboratory_of_its_template(tmp_path):
    "That laboratory does not count for the fingerprint of a node, so no node may make one: its folders are all given."
    asked = dict(corpus="data", examine="series", finetune="series", transplant="series")
    asked |= dict(pretrain="corpora", chain="corpora")
    nodes = Plan("micro", root=tmp_path, dry=True, on="cpu").nodes.values()
    assert set(asked) <= {node.template for node in nodes}
    for node in nodes:
        if node.template in asked:
            assert node.params[asked[node.template]], node.name


def test_sizes_of_the_micro_tasks():
    "The plan knows them without importing the micro world."
    from embryo.batch.costs.sizes import MICRO_SIZES
    from embryo.micro.tasks.single import TASKS

    assert MICRO_SIZES == {task: {split: n for split, (_, n) in d.items()} for task, d in TASKS.items()}
