"""A batch on a real SLURM of one machine (slurm.py): ten nodes a job, what jobs ask for, a cancelled job, logs, Ctrl-C.

Where slurm-wlm and munge are not installed, only what jobs ask for is tested, and the rest is skipped with the reason.
Needs about two minutes of two quiet cores.
"""

import os
import re
import signal
import subprocess
import time
from math import ceil
from pathlib import Path

import crash
import pytest
import slurm
from conftest import in_fork

from embryo.batch.cluster.jobs import write_jobs
from embryo.batch.cluster.slurm import batch_name, read_cluster
from embryo.batch.plan import Plan
from embryo.ground.files import read_json
from embryo.ground.profiles import read_profile

PATIENCE_S = 900  # a busy machine is ten times slower than a quiet one
# twelve checkpoints, examined in two jobs of six; one evaluator is the reader's own, and fails when it is told to
PROFILE = (
    'profile = "queue"'
    + crash.SIZES
    + """
[pretrain.zipf]
steps = 11
save = 1
[examine]
max_sentences = 10
[evaluators.moody]
function = "moody.py:moody"
[results.words]
template = "examine"
family = ["roberta"]
l1 = ["zipf"]
step = "all"
evaluators = ["moody"]
"""
)
MOODY = """
import time
from pathlib import Path

def moody(model, tokenizer, sentences):
    here = Path(__file__).parent
    with open(here / "asked.txt", "a") as f:
        f.write("x")
    if (here / "slow").exists():
        time.sleep(float((here / "slow").read_text()))
    if (here / "broken").exists() and (here / "asked.txt").read_text() == "x":
        raise ValueError("in a bad mood")
    return [dict(metric="mood", value=1.0, n=1)]
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    why = slurm.why_not()
    if why:
        pytest.skip(why)
    with slurm.running(tmp_path_factory.mktemp("slurm"), cpus=4, gpus=2) as folder:
        yield folder


class Batch:
    "The batch of a small profile, whose series is made already."

    def __init__(self, out):
        self.out = out
        self.started = []
        self.runs = out / "papermill_runs/queue"
        (out / "klingon.txt").write_text(crash.KLINGON)
        (out / "moody.py").write_text(MOODY)
        (out / "queue.toml").write_text(PROFILE)
        made = self.wait(self.start("embryo_pretrain", "--family", "roberta", "--l1", "zipf"))
        assert made[0] == 0, made

    def start(self, command, *options):
        "One of the project's commands, in a fork of a process that has imported everything."
        said = [str(self.out / f"{k}.txt") for k in ("out", "err")]
        for f in said:
            Path(f).unlink(missing_ok=True)
        args = ("--profile", "queue.toml", *options)
        p = crash.forkserver().Process(target=in_fork, args=(command, args, self.out, *said))
        p.start()
        self.started.append(p)
        return p

    def end(self):
        "Of a test that failed half-way."
        for p in self.started:
            if p.is_alive():
                p.terminate()
                p.join(60)

    def on_cluster(self, *options):
        return self.start("embryo_run", "--cluster", "slurm", *options)

    def said(self):
        return [(self.out / f"{k}.txt").read_text() for k in ("out", "err")]

    def wait(self, process):
        process.join(PATIENCE_S)
        assert process.exitcode is not None and "Traceback" not in self.said()[1], self.said()
        return process.exitcode, *self.said()

    def done(self):
        return {
            f.parent.name: f.stat().st_mtime_ns
            for f in self.runs.glob("runs/*/*/rows.parquet")
            if (f.parent / "run.json").is_file()
        }


@pytest.fixture(scope="module")
def batch(cluster, tmp_path_factory):
    batch = Batch(tmp_path_factory.mktemp("batch"))
    yield batch
    batch.end()


def queue(batch):
    "Jobs of a batch that wait or run: [(id, state)]."
    lines = [line.split() for line in slurm.says("squeue", "-h", "-o", "%i %T %j").splitlines()]
    return [(number, state) for number, state, name in lines if name.startswith(batch_name(batch.runs))]


def watch(batch, process, until):
    "Look at the queue until something is true; the most jobs that were in it."
    most = 0
    end = time.time() + PATIENCE_S
    while not until():
        assert process.is_alive(), slurm.says("squeue", "--states=all")
        assert time.time() < end, slurm.says("squeue", "--states=all")
        most = max(most, len(queue(batch)))
        time.sleep(0.3)
    return most


def asked(job):
    "What a job has asked SLURM for, as scontrol tells it."
    return dict(re.findall(r"([\w/]+)=(\S+)", slurm.says("scontrol", "show", "job", job)))


# ---- what jobs ask for; without SLURM, too


@pytest.fixture
def planned(tmp_path):
    "The plan of twenty short examinations of one series, for a profile that asks for a GPU."
    (tmp_path / "klingon.txt").write_text(crash.KLINGON)
    (tmp_path / "moody.py").write_text(MOODY)
    profile = PROFILE.replace("steps = 11", "steps = 19") + "[cluster]\ngpus = 1\n"
    (tmp_path / "queue.toml").write_text(profile)
    return Plan(tmp_path / "queue.toml", root=tmp_path, on="cpu")


def jobs_of(plan, **asked):
    "The jobs of a batch, as the engine reads them: {first node: job}."
    cluster = read_cluster(read_profile(plan.study.profile["path"]), **asked)
    return {job["nodes"][0]: job for job in read_json(write_jobs(plan, cluster))["jobs"].values()}


def test_a_corpus_asks_for_no_gpu(planned):
    "[cluster] gpus = 1: what trains and examines asks for one, a corpus and the rows do not, nor anything without it."
    for name, job in jobs_of(planned).items():
        trains = name.startswith(("pretrain/", "examine/"))
        assert job["resources"].get("gpu", 0) == trains, name
        assert not trains or all(k.startswith(("pretrain/", "examine/")) for k in job["nodes"])
    assert any(name.startswith("corpus/") for name in jobs_of(planned)) and "rows/all" in jobs_of(planned)
    (planned.study.root / "plain.toml").write_text(PROFILE.replace('"queue"', '"plain"'))
    plain = Plan(planned.study.root / "plain.toml", root=planned.study.root, on="cpu")
    assert not any("gpu" in job["resources"] for job in jobs_of(plain).values())


def test_ten_short_nodes_are_one_job(planned):
    "Twenty that do not wait for each other are two jobs of ten, in order, with the memory of one and the time of ten."
    tens = [job for name, job in jobs_of(planned).items() if name.startswith("examine/")]
    steps = [[int(k.rsplit("step")[-1]) for k in job["nodes"]] for job in tens]
    assert steps == [[*range(10)], [*range(10, 20)]]
    assert all(job["needs"] == ["pretrain/roberta-zipf-s0"] for job in tens)
    one = planned.nodes["examine/roberta-zipf-s0-step0"]
    assert tens[0]["resources"]["mem_mb"] == ceil(1.5 * one.cost["memory_mb"] + 400)
    alone = [job for name, job in jobs_of(planned, together=1).items() if name.startswith("examine/")]
    assert [len(job["nodes"]) for job in alone] == [1] * 20
    assert [len(job["nodes"]) for job in jobs_of(planned, together=7).values()][-4:-1] == [7, 7, 6]


def test_the_time_of_a_job_comes_from_the_plan(planned):
    "Ten minutes at least; beyond that three times what is planned of all its nodes, up to what the partition grants."
    examined = [n for n in planned.nodes.values() if n.template == "examine"]
    name = examined[0].name
    for n in examined:
        n.cost["seconds"] = 10
    assert jobs_of(planned)[name]["resources"]["runtime"] == 10
    for n in examined:
        n.cost["seconds"] = 100
    assert jobs_of(planned)[name]["resources"]["runtime"] == 50  # ten times 100 s, three times
    assert jobs_of(planned, most_minutes=30)[name]["resources"]["runtime"] == 30
    examined[0].cost["seconds"] = 7200  # long: a job of its own
    assert jobs_of(planned)[name]["nodes"] == [name] and jobs_of(planned)[name]["resources"]["runtime"] == 360


# ---- on SLURM


def test_refused_before_anything_is_sent(batch):
    "An unknown partition, and jobs of an earlier batch that are left."
    code, out, err = batch.wait(batch.on_cluster("--partition", "gpu-shor"))
    assert code == 2 and "unknown partition 'gpu-shor'; did you mean gpu-short" in err, err
    name = f"--job-name={batch_name(batch.runs)}_left"
    left = subprocess.check_output(["sbatch", "--parsable", "--output=/dev/null", name, "--wrap=sleep 600"], text=True)
    code, out, err = batch.wait(batch.on_cluster())
    subprocess.run(["scancel", left.strip()], check=True)
    assert code == 2 and f"jobs {left.strip()} of an earlier batch" in err and "scancel " in err, err
    slurm.wait_until(lambda: not queue(batch), 60, "the queue is empty")


def test_what_slurm_does_not_take(batch):
    "More GPUs than any machine has: SLURM's own sentence."
    code, out, err = batch.wait(batch.on_cluster("--gpus", "9"))
    assert code not in (0, 2) and "SLURM did not take a job: sbatch: error:" in err, err
    assert not queue(batch)


def test_ctrl_c_leaves_no_job(batch, cluster):
    "Nothing is done yet: what runs is so slow that it is sent away in the middle of it."
    (batch.out / "slow").write_text("600")
    done = batch.done()
    p = batch.on_cluster()
    watch(batch, p, lambda: any(state == "RUNNING" for _, state in queue(batch)))
    os.kill(p.pid, signal.SIGINT)
    code, out, err = batch.wait(p)
    assert code == 130 and "start the same command again to go on from here" in err, err
    slurm.wait_until(lambda: not queue(batch), 60, "the queue is empty")
    slurm.end_strays((cluster / "name").read_text())
    assert batch.done() == done


def test_a_cancelled_job_is_taken_up_again(batch):
    "One job at a time; what it asks for comes from the plan; its log is named; what is done stays."
    (batch.out / "slow").write_text("3")
    series = batch.done()
    p = batch.on_cluster("--jobs", "1", "--gpus", "1", "--partition", "gpu-short")
    watch(batch, p, lambda: any(state == "RUNNING" for _, state in queue(batch)))
    (job, _), *others = queue(batch)
    assert not others
    want = asked(job)
    nodes = 6
    assert want["Partition"] == "gpu-short" and want["TresPerJob"] == "gres:gpu:1" and want["CPUs/Task"] == "1"
    # 1.5 times the plan's 700 MB and Snakemake; three times the planned seconds, at least ten minutes
    assert 1400 < int(want["MinMemoryNode"].removesuffix("M")) < 1600, want["MinMemoryNode"]
    assert want["TimeLimit"] == "00:10:00", want["TimeLimit"]
    most = watch(batch, p, lambda: len(batch.done()) > len(series))
    some = batch.done()
    subprocess.run(["scancel", job], check=True)
    code, out, err = batch.wait(p)
    assert code == 1 and most == 1, (code, most)
    found = re.search(rf"job {job} \((.*)\): cancelled; log: (\S+)", err)
    assert found and "examine/roberta-zipf-s0-step" in found[1], err
    assert "CANCELLED" in Path(found[2]).read_text() and "Traceback" not in Path(found[2]).read_text()
    # the other job of six was made all the same
    cancelled = batch.done()
    assert {k: cancelled[k] for k in some} == some and len(series) + nodes < len(cancelled) < len(series) + 12
    (batch.out / "slow").unlink()

    # one node fails once: the others of its job are made, and the message has its sentence
    (batch.out / "asked.txt").unlink()
    (batch.out / "broken").touch()
    code, out, err = batch.wait(batch.on_cluster())
    assert code == 2 and "failed: examine/roberta-zipf-s0-step" in err, err
    assert re.search(r"ValueError: in a bad mood \(code cell \d+ of ", err), err
    log = Path(re.search(r"; log: (\S+)", err)[1])
    assert "in a bad mood" in log.read_text()
    broken = batch.done()
    assert {k: broken[k] for k in cancelled} == cancelled and len(broken) == len(series) + 11
    (batch.out / "broken").unlink()

    code, out, err = batch.wait(batch.on_cluster())
    assert code == 0, err
    end = batch.done()
    assert {k: end[k] for k in broken} == broken and len(end) == len(series) + 13  # twelve, and the rows
    code, out, err = batch.wait(batch.on_cluster())
    assert code == 0 and out.startswith("0 of ") and batch.done() == end, out
