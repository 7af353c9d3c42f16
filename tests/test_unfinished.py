"""What a batch says when it cannot make everything: the failed cell, what waits for it, and how long the rest takes."""

import re

import crash
import pytest

from embryo.batch.nodes import Node
from embryo.batch.plan import Plan
from embryo.batch.progress import FAILED, LOCK, listed, time_left, under_way, unmade
from embryo.ground.rows import read_rows

PROFILE = (
    'profile = "moody"'
    + crash.SIZES
    + """
[examine]
max_sentences = 10
[evaluators.moody]
function = "moody.py:moody"
[results.words]
template = "examine"
family = ["roberta"]
l1 = ["zipf"]
step = [0, 6]
evaluators = ["moody"]
[results.chains]
template = "chain"
family = ["roberta"]
l1 = ["english:1k", "zipf:1k,english:1k"]
[results.x_nursery]
template = "appendix"
needs = ["chains"]
"""
)
MOODY = "def moody(model, tokenizer, sentences):\n    raise ValueError('in a bad mood')\n"


@pytest.fixture
def profile(tmp_path):
    (tmp_path / "klingon.txt").write_text(crash.KLINGON)
    (tmp_path / "moody.py").write_text(MOODY)
    (tmp_path / "moody.toml").write_text(PROFILE)
    return tmp_path / "moody.toml"


def test_a_failure_names_its_cell_and_what_waits_for_it(run, profile, tmp_path):
    code, out, err = run("embryo_run", "--profile", profile, "--cores", "1", timeout=900)
    assert code == 2, (out, err)
    failed = [f"examine/roberta-zipf-s0-step{k}" for k in (0, 6)]
    for name in failed:
        kept = tmp_path / "papermill_runs/moody/runs" / name / FAILED
        told = re.search(rf"{name}: .*ValueError: in a bad mood \(code cell (\d+) of (\S+)\)", err)
        assert told and told[2] == str(kept), err
        # the number that the failed notebook shows at its cell
        assert f'"execution_count": {told[1]},' in kept.read_text()
    lines = [line.removeprefix("embryo_run: ") for line in err.splitlines() if line.startswith("embryo_run: ")]
    assert lines == [
        f"result words is not whole: {', '.join(failed)} failed",
        f"result x_nursery is not whole: rows/all, x_nursery/appendix not made, waiting for {', '.join(failed)}",
        f"4 nodes are not done; failed: {', '.join(failed)}; mend the cause and run the same command again",
    ], err
    # what waits for nothing but the table of rows can be drawn meanwhile
    [there] = re.findall(
        r"^rows of the (\d+) nodes that are done: (\S+); to draw them: embryo_figures (.*)$", out, re.M
    )
    table = tmp_path / "papermill_runs/moody/rows-so-far.csv"
    assert there[1] == str(table) and set(read_rows(table)["evaluator"]) >= {"corpus", "pretrain"}
    assert not table.with_name("rows.csv").exists() and len(set(read_rows(table)["run"])) == int(there[0])
    code, out, err = run("embryo_figures", *there[2].split(), timeout=300)
    assert code == 0 and (tmp_path / "papermill_runs/moody/appendix/x_nursery.ipynb").is_file(), (out, err)


def test_a_node_that_is_killed_is_named(run, profile, tmp_path):
    "As the system does where memory is short: the node leaves no word."
    profile.write_text(PROFILE[: PROFILE.index("[results.chains]")].replace("step = [0, 6]", "step = [6]"))
    (tmp_path / "moody.py").write_text(
        MOODY.replace("raise ValueError('in a bad mood')", "import os; os.kill(os.getpid(), 9)")
    )
    code, out, err = run("embryo_run", "--profile", profile, "--cores", "1", timeout=900)
    killed = "examine/roberta-zipf-s0-step6"
    assert code == 1 and f"result words is not whole: {killed} failed" in err, (out, err)
    why = f"killed while running, as the system does where memory is short: {killed};"
    assert f"2 nodes are not done; {why}" in err, err
    # it is told when it happens, too, and counted
    assert f"{killed}: killed while running, as the system does where memory is short" in err.splitlines(), err
    assert re.search(rf"^\[\d of \d\] {killed}; 0 running, 1 failed", out, re.M), out


def test_many_are_cut_short(profile, tmp_path):
    "The first five are named, of what is missing and of what it waits for."
    text = PROFILE.replace(
        'l1 = ["english:1k", "zipf:1k,english:1k"]', 'l1 = ["zipf:1k"]\nseed = [0, 1, 2, 3, 4, 5, 6, 7]'
    )
    profile.write_text(text)
    plan = Plan(profile, root=tmp_path)
    chains = [name for name in plan.nodes if name.startswith("chain/")]
    said = {text.split()[1]: text.split(": ")[1] for text in unmade(plan, chains)}
    assert said["chains"] == f"{', '.join(chains[:5])} and 3 more failed"
    assert said["x_nursery"].endswith(f" not made, waiting for {', '.join(chains[:5])} and 3 more")
    wide = dict(plan.study.profile["results"], **{f"y{i}": plan.study.profile["results"]["chains"] for i in range(4)})
    plan.study.profile["results"] = wide
    *five, last = unmade(plan, chains)
    assert len(five) == 5 and last == "nor are y2, y3"
    assert listed(["a"] * 6) == "a, a, a, a, a and 1 more" and listed(["a"] * 5).count("a") == 5


def nodes_of(tmp_path, seconds):
    nodes = [Node(f"chain/{i}", {}, [], [], tmp_path / str(i), cost=dict(seconds=s)) for i, s in enumerate(seconds)]
    for n in nodes:
        n.folder.mkdir()
    return nodes


def test_a_first_tiny_node_does_not_stretch_a_day(tmp_path):
    "Twenty-two hours of one core on two: a node of half a second that took three does not make sixty of them."
    nodes = nodes_of(tmp_path, [0.5, *[3600] * 22])
    plan = 11 * 3600
    assert time_left(nodes, dict(done=nodes[:1], failed=[], killed=[]), 3, 2) == pytest.approx(plan, rel=0.01)
    # two hours later the two that run are seen, too
    running = nodes[1:3]
    for n in running:
        (n.folder / LOCK).touch()
    begun = running[0].folder.joinpath(LOCK).stat().st_mtime
    assert under_way(running, begun + 1800) == pytest.approx(3600, rel=0.01)
    assert under_way(running, begun + 9000) == 7200 and under_way(nodes[3:], begun) == 0
    left = time_left(nodes, dict(done=nodes[:1], failed=[], killed=[]), 1803, 2, going=3600)
    assert left == pytest.approx(plan - 1800, rel=0.01)


def test_what_was_seen_is_believed_in_the_end(tmp_path):
    "Three times as slow as planned: the time left comes near to that."
    nodes = nodes_of(tmp_path, [3600] * 20)
    real = [3 * 3600 * (20 - k) / 2 for k in range(1, 20)]
    told = [time_left(nodes, dict(done=nodes[:k], failed=[], killed=[]), 3 * 3600 * k / 2, 2) for k in range(1, 20)]
    off = [t / r for t, r in zip(told, real)]
    assert off == sorted(off) and off[0] > 1 / 3 and off[9] > 0.85 and off[-1] > 0.9
