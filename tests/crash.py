"""Kill every stage of the laboratory at random moments, start it again, and compare its end with an undisturbed run's.

    python tests/crash.py --kills 100 [--stages corpus,pretrain,...] [--seed 0] [--signals KILL,TERM,INT]

A stage runs in a fork of a process that has everything imported, so that a kill hits work and not imports. Half of
the kills come at a moment drawn from the undisturbed run's duration, half at a drawn file operation (opening for
writing, renaming, removing, making a folder), where a half-written thing would show.
After each kill: whatever has its final name is already final. In the end: the same files with the same content, nothing
temporary, no row lost, none twice, and nothing that was done before the kill was done again.
"""

import argparse
import faulthandler
import functools
import hashlib
import json
import multiprocessing
import os
import random
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

BIN = Path(sys.executable).parent
NODES = dict(examine="examine/roberta-english-s0-step6", finetune="finetune/roberta-english-s0")
SIZES = """
caption = "tiny"
[data]
provider = "microworld"
world = {words = 6000, heldout_words = 1500, books_words = 1500, probing = [40, 20, 20], tasks = 0.03, l1s = 0.01}
[tokenizer]
vocab_size = 300
[corpora.english]
folders = ["wiki_en", "books_en"]
[corpora.artificial]
n_tokens = 20000
heldout_tokens = 2000
line = [30, 30]
[corpora.klingon]
path = "klingon.txt"
[model.default]
hidden_size = 32
num_attention_heads = 2
num_hidden_layers = 2
intermediate_size = 64
positions = 64
[pretrain.default]
steps = 6
batch = 4
length = 32
warmup = 2
save = 3
state_every = 1
heldout_batches = 2
[finetune.default]
epochs = 1
max_length = 64
"""
PROFILE = (
    'profile = "crash"'
    + SIZES
    + """
[pretrain.chain]
curve_every = 2
save = 4
state_every = 1
[pretrain.albert]
steps = 60
save = [[5, 30], [10, 60]]
state_every = 4
[examine]
max_sentences = 10
[results.p2_table1]
template = "finetune"
family = ["roberta"]
l1 = ["none", "english", "zipf"]
task = ["STS-B"]
[results.words]
template = "examine"
family = ["roberta"]
step = [0, 6]
evaluators = ["reconstruct", "mask_predict"]
[results.p2_transfer]
template = "appendix"
needs = ["p2_table1"]
"""
)
KLINGON = "\n\n".join(f"nuqneH jup {i % 7}\nQapla' jup {i % 5} Qapla'" for i in range(400))


# ---- stages: called in a fork, with the folder that they fill
# -----------------------------------------------------------------------------------------------
def command(name, *args):
    "What the command line program does, in this process."
    sys.argv = [str(BIN / name), *map(str, args)]
    try:
        runpy.run_path(str(BIN / name), run_name="__main__")
    except SystemExit as e:
        if e.code:
            raise


def corpus(out):
    for l1 in ("zipf", "klingon"):
        command("embryo_corpus", l1, "--profile", out / "crash.toml")


def pretrain(out):
    command("embryo_pretrain", "--family", "albert", "--l1", "english", "--profile", out / "crash.toml")


def checkpoint(out):
    from embryo.pretraining.runs import pretrain_run

    net = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, positions=32)
    pretrain_run(
        "electra",
        "english",
        7,
        out / "papermill_runs/crash/corpora",
        out / "papermill_runs/crash/series",
        net,
        dict(steps=10, batch=4, length=32, warmup=2, save=1, state_every=1, heldout_batches=1),
        progress=False,
    )


def chain(out):
    command("embryo_pretrain", "--family", "roberta", "--l1", "zipf:1k,english:1k", "--profile", out / "crash.toml")


def node(name):
    def f(out):
        from embryo.batch.run import run_one

        run_one(str(out / "papermill_runs/crash/plan.json"), NODES[name], "here")

    return f


STAGES = dict(
    corpus=corpus,
    pretrain=pretrain,
    checkpoint=checkpoint,
    chain=chain,
    examine=node("examine"),
    finetune=node("finetune"),
    batch=None,
)
NEEDS = dict(
    corpus="profile",
    pretrain="corpora",
    checkpoint="corpora",
    chain="corpora",
    examine="series",
    finetune="series",
    batch="profile",
)


def child(stage, out, operation, seen, ready, log):
    "Run a stage; end at a file operation, if one is named; count them."
    os.setpgrp()
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.environ.update(EMBRYO_OUT=str(out), MPLBACKEND="agg")
    os.chdir(out)
    # whoever starts us in the background has it ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda n, _: sys.exit(128 + n))

    def hook(event, args):
        if event == "open":
            here = isinstance(args[1], str) and set(args[1]) & set("wax+")
        else:
            here = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
        if not here or str(out) not in os.path.abspath(str(args[0])):
            return
        seen.value += 1
        if seen.value == operation:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    faulthandler.register(signal.SIGUSR1)  # where it stands, into its log, if it does not end
    ready.value = 1
    try:
        STAGES[stage](Path(out))
    except KeyboardInterrupt:
        sys.exit(130)
    # stages that are no commands
    except ValueError as e:
        sys.exit(str(e)) if type(e).__name__ == "EmbryoError" else traceback.print_exc() or sys.exit(9)


@functools.cache
def forkserver():
    "Of a process that has everything imported: a second for what otherwise takes six."
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "torch",
            "embryo.batch.run",
            "embryo.corpora.l1s",
            "embryo.micro.world",
            "embryo.evaluation.words.words",
            "embryo.evaluation.tasks.finetune",
            "embryo.evaluation.squad.reader",
            "embryo.evaluation.attention",
            "embryo.evaluation.knowledge.verdicts",
            "papermill",
            "execnb.shell",
            "seaborn",
            "torch.utils.tensorboard",
        ]
    )
    return context


class Forked:
    "One run of a stage in a fork."

    def __init__(self, stage, out, operation=0, log=None):
        self.seen = forkserver().Value("i", 0, lock=False)
        ready = forkserver().Value("i", 0, lock=False)
        self.log = Path(log or Path(out) / "log.txt")
        self.p = forkserver().Process(target=child, args=(stage, str(out), operation, self.seen, ready, str(self.log)))
        self.p.start()
        # a signal should find the stage, not its fork
        while self.p.is_alive() and not ready.value:
            time.sleep(0.002)

    def wait(self, seconds=None):
        self.p.join(seconds)
        return self.p.exitcode

    def send(self, s):
        os.kill(self.p.pid, s)


class Batch:
    "One run of the whole batch, in a session of its own."

    def __init__(self, stage, out, operation=0, log=None):
        self.log = Path(log or Path(out) / "log.txt")
        self.p = subprocess.Popen(
            [str(BIN / "embryo_run"), "--profile", str(Path(out) / "crash.toml")],
            env={**os.environ, "EMBRYO_OUT": str(out)},
            stdout=open(self.log, "a"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def wait(self, seconds=None):
        try:
            return self.p.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    # Ctrl-C reaches the whole group
    def send(self, s):
        os.killpg(self.p.pid, s) if s != signal.SIGTERM else self.p.terminate()


def start(stage, out, operation=0, log=None):
    return (Batch if stage == "batch" else Forked)(stage, out, operation, log)


# ---- what a run leaves
# ----------------------------------------------------------------------------------------------------
# what may differ between two runs: times, the revision, and names of folders
TIMES = ("wall_s", "seconds", "cpu_s", "memory_mb", "planned", "provenance", "git", "key", "seal", "files", "figures")


def plain(d):
    return (
        {k: plain(v) for k, v in d.items() if k not in TIMES}
        if isinstance(d, dict)
        else [plain(x) for x in d]
        if isinstance(d, list)
        else d
    )


def content(f, out):
    "A file's content without times, hashed."
    if f.suffix == ".parquet":
        import pandas as pd

        d = pd.read_parquet(f)
        assert not d.duplicated([c for c in d if c not in ("value", "n", "stderr")]).any(), (
            f"{f}: a row stands there twice"
        )
        text = d[~d["metric"].isin(["wall_s", "cpu_s"])].to_csv(index=False)
    elif f.suffix == ".csv":
        text = "\n".join(l for l in f.read_text().splitlines() if ",wall_s," not in l and ",cpu_s," not in l)
    elif f.suffix == ".json":
        text = json.dumps(plain(json.loads(f.read_text())), sort_keys=True)
    else:
        return hashlib.sha256(f.read_bytes()).hexdigest()
    return hashlib.sha256(text.replace(str(out), "OUT").encode()).hexdigest()


# clocks, drawings with clocks, the engine's own
IGNORED = re.compile(
    r"/tensorboard/|/\.snakemake/|\.ipynb$|\.png$|\.pdf$|\.gif$|/state/|^log.txt$|/plan\.json$|/nodes\.csv$|/\.lock$|\.(md|tex)$"
)
LEFT = re.compile(r"\.tmp\d|\.running\.|\.old\b|failed\.ipynb|/state/\.")


def snapshot(out):
    return {
        r: content(f, out)
        for f in sorted(Path(out).rglob("*"))
        if f.is_file() and not IGNORED.search(r := str(f.relative_to(out))) and not LEFT.search(r)
    }


def leftovers(out):
    return [str(f) for f in Path(out).rglob("*") if LEFT.search(str(f.relative_to(out)))]


# written more than once; rows.csv of a batch comes once
GROWS = re.compile(r"series\.json$|header\.json$|manifest|run\.json$|rows\.csv$", re.I)


def finished(stage, out):
    "Times of things that need not be made again."
    out = Path(out) / "papermill_runs/crash"
    if stage in ("pretrain", "checkpoint", "chain"):
        names = [
            (f.parent, e["step"]) for f in out.glob("series/*/series.json") for e in json.loads(f.read_text())["steps"]
        ]
        return {
            str(d / f"step{k}" / "model.safetensors"): (d / f"step{k}" / "model.safetensors").stat().st_mtime_ns
            for d, k in names
        }
    if stage == "corpus":
        return {str(f): f.stat().st_mtime_ns for k in out.glob("corpora/**/key.json") for f in k.parent.glob("*.bin")}
    if stage == "batch":
        return {
            str(f): f.stat().st_mtime_ns for f in out.glob("runs/*/*/rows.parquet") if (f.parent / "run.json").is_file()
        }
    return {}


# ---- the harness
# ----------------------------------------------------------------------------------------------------
class Lab:
    "Folders in which stages begin: profile only, with corpora, with series and a plan."

    def __init__(self, root):
        self.root = Path(root)
        (self.root / "profile").mkdir(parents=True)
        (self.root / "profile/klingon.txt").write_text(KLINGON)
        (self.root / "profile/crash.toml").write_text(PROFILE)

    def base(self, name):
        if (self.root / name).is_dir():
            return self.root / name
        before = self.base({"corpora": "profile", "series": "corpora"}[name])
        # everything is made, and run, under this one name: plans hold absolute paths
        work = self.root / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(before, work, symlinks=True)
        if name == "corpora":
            run(lambda: Forked("corpus", work))
        else:
            run(lambda: Forked("prepare", work))
        os.rename(work, self.root / name)
        return self.root / name

    def fresh(self, stage):
        base = self.base(NEEDS[stage])
        work = self.root / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work, symlinks=True)
        (work / "log.txt").unlink(missing_ok=True)
        return work


def prepare(out):
    command("embryo_pretrain", "--family", "roberta", "--l1", "english", "--profile", out / "crash.toml")
    from embryo.batch.plan import Plan

    Plan(out / "crash.toml", root=out).save()


STAGES["prepare"] = prepare


def run(begin, limit=600):
    p = begin()
    code = p.wait(limit)
    if code is None:
        p.send(signal.SIGKILL)
    assert code == 0, f"exit code {code}\n{p.log.read_text()[-3000:]}"
    return p


LATE = 7


def harness(lab, stage, kills, seed=0, signals=("KILL",), progress=lambda *a: None):
    "Disturb a stage `kills` times; returns a line for the table."
    rng = random.Random(f"{stage}-{seed}")
    out = lab.fresh(stage)
    t = time.time()
    p = run(lambda: start(stage, out))
    took = time.time() - t
    operations = p.seen.value if stage != "batch" else 0
    reference = snapshot(out)
    assert not leftovers(out), leftovers(out)
    assert len(reference) > 1, reference
    count = {s: 0 for s in signals}
    runs = 0
    out = lab.fresh(stage)
    kept = {}
    late = 0
    new = True
    while True:
        left = sum(count.values()) < kills
        name = rng.choice(signals)
        at_operation = left and operations and name == "KILL" and (stage == "checkpoint" or rng.random() < 0.5)
        (out / "log.txt").unlink(missing_ok=True)
        # first the last operations, one by one: what they leave, nothing later sweeps
        last = at_operation and new and late < LATE
        p = start(stage, out, operations - late if last else rng.randint(1, operations) if at_operation else 0)
        late = late + bool(last)
        new = False
        if left and not at_operation:
            code = p.wait(max(0.01, rng.random() * took * 1.05))
            if code is None:
                p.send(getattr(signal, f"SIG{name}"))
        code = p.wait(300)
        if code is None:
            p.send(signal.SIGUSR1)
            time.sleep(1)
            p.send(signal.SIGKILL)
            raise AssertionError(f"{stage}: does not end after SIG{name}\n{p.log.read_text()[-8000:]}")
        if stage == "batch" and code != 0:
            wait_for_lock(out)
        said = p.log.read_text() if p.log.exists() else ""
        # it had finished and was about to leave
        if stage == "batch" and name != "KILL" and code < 0 and said.rstrip().rsplit("\n")[-1].startswith("rows:"):
            code = 0
        ended = {"KILL": -9, "TERM": 143, "INT": 130}[name]
        # it came to its end: is that the end it should come to?
        if code == 0:
            now = snapshot(out)
            wrong = [k for k in sorted(set(now) | set(reference)) if now.get(k) != reference.get(k)]
            assert not wrong, f"{stage}: differ from the undisturbed run: {wrong[:5]}"
            assert not leftovers(out), f"{stage}: left for good: {leftovers(out)[:5]}"
            again = [k for k, v in kept.items() if Path(k).stat().st_mtime_ns != v]
            assert not again, f"{stage}: was made again although it was done: {again[:3]}"
            runs += 1
            if not left:
                break
            out = lab.fresh(stage)
            kept = {}
            new = True
            continue
        # still importing: it just ends
        early = stage == "batch" and code < 0 and "nodes to run" not in said
        assert left and (code == ended or early), f"{stage}: exit code {code} after SIG{name}\n{said[-2000:]}"
        assert early or "Traceback" not in said, said[-2000:]
        if name != "KILL" and code == ended and stage in ("corpus", "pretrain", "batch") and said:
            assert "start the same command again" in said.splitlines()[-1], said[-500:]
        count[name] += 1
        now = snapshot(out)
        wrong = [k for k, v in now.items() if not GROWS.search(k) and k in reference and v != reference[k]]
        assert not wrong, f"{stage}: has its final name and is not final: {wrong[:5]}"
        kept.update(finished(stage, out))
        progress(stage, dict(count), runs)
    return dict(
        stage=stage,
        **{f"SIG{k}": v for k, v in count.items()},
        **{"ended as undisturbed": runs, "file operations": operations or "", "seconds": round(time.time() - t)},
    )


def wait_for_lock(out, limit=60):
    "A killed batch holds its lock until the last of its jobs is gone."
    import fcntl

    f = Path(out) / "papermill_runs/crash/.lock"
    t = time.time()
    while f.exists():
        with open(f) as h:
            try:
                fcntl.flock(h, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError:
                assert time.time() - t < limit, "the killed batch still holds its lock"
        time.sleep(0.1)


def table(lines):
    keys = list(lines[0])
    return "\n".join(
        "| " + " | ".join(str(x) for x in row) + " |"
        for row in [keys, ["---"] * len(keys), *([l[k] for k in keys] for l in lines)]
    )


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--kills", type=int, default=100, help="of each stage")
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--stages", default=",".join(NEEDS))
    a.add_argument("--signals", default="KILL", help="KILL, TERM, INT")
    a = a.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    lines = []
    with tempfile.TemporaryDirectory(prefix="embryo-crash-") as d:
        lab = Lab(Path(d).resolve() / "lab")
        for s in a.stages.split(","):
            lines.append(
                harness(
                    lab,
                    s,
                    a.kills,
                    a.seed,
                    a.signals.split(","),
                    lambda s, c, r: print(f"\r{s}: {c}, {r} whole runs", end="", file=sys.stderr),
                )
            )
            print("\n" + table(lines), flush=True)
