"""Several processes that train one run: that of one process but for rounding, written once, whole whatever ends it.

Most processes here are forks of one that has everything imported, with the variables that torchrun would give them;
torchrun itself, and the command that starts several, are tried at the end.
"""

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import crash
import psutil
import pytest
from conftest import BIN

AGAIN = "start the same command again"
TEXT = "the owls see the mouse . mice unseen by owls see the owl . the owls saw the unseen mouse ."
STILL = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TINY = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
# 5 sequences: 2 for one of two processes and 3 for the other
SHORT = dict(steps=10, batch=5, length=32, lr=2e-3, warmup=2, save=5, state_every=2, heldout_batches=2, bf16=False)


# ---- in a process of the run
# ---------------------------------------------------------------------------------------------
def story(out, family="roberta", net=STILL, stop_after=None, end_at=None, **settings):
    "Train on thirty copies of three sentences; end_at: (rank, step, signal) that this process sends to itself."
    import numpy as np

    from embryo.corpora.tokens import IdCorpus, train_tokenizer
    from embryo.models.models import build
    from embryo.pretraining.objectives import find_objective
    from embryo.pretraining.settings import PretrainConfig
    from embryo.pretraining.training import run
    from embryo.pretraining.training.loop import pretrain

    tok = train_tokenizer([TEXT] * 9, 44)
    ids = np.array(tok(TEXT, add_special_tokens=False)["input_ids"] * 30)
    header = dict(maker="english", pack="stream", vocab_size=len(tok), sha256="story")
    corpus = IdCorpus(ids, np.array([0, len(ids)]), header)
    cfg = replace(PretrainConfig(**SHORT), **settings)
    pairs = bool(find_objective(cfg.objective).pairs)
    no_third = dict(classifier_dropout_prob=0.0) if family == "albert" and net else {}
    reader = bool(settings.get("masked_first"))
    model = build(family, len(tok), 40, pairs=pairs, reader=reader, **TINY, **net, **no_third)
    update = run.update_once

    def update_and_end(*args):
        step, us = args[4], args[8]
        if end_at and (us.rank, step) == tuple(end_at[:2]):
            os.kill(os.getpid(), end_at[2])
        return update(*args)

    run.update_once = update_and_end
    pretrain(corpus, corpus, model, tok, cfg, out, stop_after=stop_after)


def led(out, **options):
    "The same as a command does it: the first process leads, the others follow."
    from embryo.ground.files import command
    from embryo.pretraining.training.processes import lead, together

    def trained():
        lead(lambda: shared(out, **options))

    # as at the top of a module: it is sent by its name
    shared = globals()["story"] = together(story)
    command(trained)()


def as_rank(rank, of, port, f, out, options, log):
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(fd, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    where = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True")
    numbers = dict(RANK=rank, WORLD_SIZE=of, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=of, TORCHELASTIC_RUN_ID="test")
    os.environ.update(where, **{k: str(v) for k, v in numbers.items()}, EMBRYO_DEVICE="cpu")
    import sys

    sys.argv = ["trained"]
    f(out, **options)


# ---- around them
# ---------------------------------------------------------------------------------------------------------
def start(of, out, f=story, log=None, **options):
    "Start so many processes; (processes, file that they write to)."
    import torch.distributed as dist

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    log = Path(log or f"{out}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    args = (of, store.port, f, Path(out), options, str(log))
    started = [crash.forkserver().Process(target=as_rank, args=(rank, *args)) for rank in range(of)]
    for p in started:
        p.start()
        p.store = store  # as long as they live
    return started, log


def codes(started, seconds=300):
    end = time.monotonic() + seconds
    for p in started:
        p.join(max(0, end - time.monotonic()))
    late = [p for p in started if p.exitcode is None]
    for p in late:
        p.kill()
    assert not late, "a process waits for ever"
    return [p.exitcode for p in started]


def train(of, out, **options):
    "A run to its end (or to stop_after)."
    started, log = start(of, out, **options)
    assert codes(started) == [0] * of, log.read_text()
    return Path(out)


def entries(out):
    return json.loads((Path(out) / "series.json").read_text())["steps"]


def shas(out):
    return [e["sha256"] for e in entries(out)]


def weights(out, step):
    from safetensors.torch import load_file

    files = sorted((Path(out) / f"step{step}").rglob("*.safetensors"))
    return {f"{f.parent.name}.{k}": v for f in files for k, v in load_file(f).items()}


def numbers(loss):
    "All numbers of a line's losses, in order."
    if isinstance(loss, dict):
        return [x for k in sorted(loss) for x in numbers(loss[k])]
    if isinstance(loss, list):
        return [x for v in loss for x in numbers(v)]
    return [] if loss is None else [loss]


def close(a, b, tolerance=5e-6, of_weights=5e-6):
    "The same losses and weights but for rounding, at every checkpoint."
    import torch

    for one, two in zip(entries(a), entries(b), strict=True):
        assert one["step"] == two["step"] and one["tokens"] == two["tokens"]
        assert numbers(one["loss"]) == pytest.approx(numbers(two["loss"]), abs=tolerance)
        for name, w in weights(a, one["step"]).items():
            far = (w - weights(b, one["step"])[name]).abs().max().item()
            assert far < of_weights, f"step {one['step']}, {name}: {far}"
            assert torch.isfinite(w).all()
    return True


def files(out):
    "What a series consists of, without tensorboard's names, which have a time."
    return sorted(f.relative_to(out).as_posix().split("events.out")[0] for f in Path(out).rglob("*"))


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def one(where):
    return train(1, where / "one")


@pytest.fixture(scope="module")
def two(where):
    return train(2, where / "two")


KINDS = {
    "muon, in pieces": dict(optimizer="muon", accumulate=4, batch=9),
    "pairs": dict(family="bert", objective="mlm+nsp", masking="word"),
    "albert, lamb": dict(family="albert", objective="mlm+sop", optimizer="lamb", length=[[24, 0.5], [40, 1]]),
    "electra": dict(family="electra", objective="rtd", curve_every=2, signs=True),
    "electra that reads": dict(family="electra", objective="rtd", masked_first=0.5, rtd_weight=1.0),
    # about one selected position in a share: where one has none, the batch is not divided
    "few": dict(mask_rate=0.03, batch=3),
}


def test_the_run_of_one_process(where, one, two):
    assert close(one, two) and shas(one) != shas(two)
    assert files(one) == files(two)
    assert (where / "two.log").read_text().count("0/10 [") == 1  # one bar
    assert [e.get("processes") for e in entries(two)] == [2, 2, 2]
    assert not any("processes" in e for e in entries(one))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_run(where, kind):
    runs = [train(n, where / f"{kind}{n}", **KINDS[kind]) for n in (1, 2)]
    # Muon makes its steps orthogonal in bf16, so rounding shows there
    assert close(*runs, of_weights=5e-4 if "muon" in kind else 5e-6)
    curves = [json.loads((out / "series.json").read_text()).get("curve", []) for out in runs]
    assert [c["heldout"] for c in curves[0]] == pytest.approx([c["heldout"] for c in curves[1]], abs=5e-6)
    assert len(curves[0]) == (4 if kind == "electra" else 0)


def test_shares_count_by_what_they_hold(where, two, monkeypatch):
    "The test above sees it if a loss is the mean of the shares' means."
    out = where / "means"
    started, log = start(2, out, f=mean_of_means)
    assert codes(started) == [0, 0], log.read_text()
    with pytest.raises(AssertionError):
        close(two, out)


def mean_of_means(out):
    from embryo.pretraining import objectives

    objectives.shares_of = lambda piece, batch: dict.fromkeys(objectives.OVER, 0.5)
    story(out)


def test_dropout_is_drawn_for_each_process(where):
    "With dropout the runs of one and of two differ, and two runs of two do not."
    runs = [train(n, where / f"dropout{i}", net={}) for i, n in enumerate((1, 2, 2))]
    assert shas(runs[1]) == shas(runs[2]) and shas(runs[0])[1:] != shas(runs[1])[1:]
    with pytest.raises(AssertionError):
        close(*runs[:2])


def test_another_number_of_processes_goes_on(where, one, two):
    "Two processes, then one, then two; and two that were stopped are bit for bit two that were not."
    mixed = where / "mixed"
    for n, stop_after in ((2, 3), (1, 4), (2, None)):
        train(n, mixed, stop_after=stop_after)
    assert close(one, mixed) and [e.get("processes") for e in entries(mixed)] == [2, None, 2]
    stopped = where / "stopped"
    for stop_after in (3, 4, None):
        train(2, stopped, stop_after=stop_after)
    assert shas(stopped) == shas(two) and shas(stopped) != shas(mixed)
    (stopped / "step5" / "model.safetensors").write_bytes(b"")
    train(2, stopped)
    assert shas(stopped) == shas(two)


@pytest.mark.parametrize("rank", [0, 1])
def test_killed(where, two, rank):
    "SIGKILL of either process ends the other with one sentence, and what comes next ends as if nothing had been."
    out = where / f"killed{rank}"
    started, log = start(2, out, f=led, end_at=(rank, 7, signal.SIGKILL))
    ended = codes(started)
    assert ended[rank] == -signal.SIGKILL and ended[1 - rank] == 1
    said = log.read_text()
    assert said.count(AGAIN) == 1 and "another process" in said and "Traceback" not in said, said
    started, log = start(2, out, f=led)
    assert codes(started) == [0, 0], log.read_text()
    assert shas(out) == shas(two) and set(files(out)) == set(files(two))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped(where, two, number):
    "A request to stop that reaches one process stops both at the same step, with one state and one sentence."
    out = where / f"asked{number}"
    started, log = start(2, out, f=led, end_at=(1, 3, number))
    assert codes(started) == [1, 1]
    said = log.read_text()
    assert said.count(AGAIN) == 1 and f"{out}: stopped at step 4 of 10" in said and "Traceback" not in said, said
    assert sorted(d.name for d in (out / "state").iterdir()) == ["series.json", "step4"]
    assert shas(train(2, out)) == shas(two)


def test_what_is_refused_is_said_once(where):
    started, log = start(3, where / "refused", f=led, batch=2)
    assert sorted(codes(started)) == [2, 2, 2]
    said = log.read_text()
    assert said.count("\n") == 1 and "3 processes share batches of 2 sequences; start at most 2 processes" in said, said


# ---- commands
# ------------------------------------------------------------------------------------------------------------
def series(root):
    return root / "papermill_runs/tiny/series/roberta-english-s0"


def embryo_pretrain(out, options):
    "The command, in a fork."
    os.environ["EMBRYO_OUT"] = str(out)
    os.chdir(out)
    crash.command("embryo_pretrain", *options)


def test_commands(tiny, run, tmp_path):
    """One process that torchrun started makes the files and bytes of the plain command. Two, one of them killed, end
    with one sentence, and torchrun goes on to the end.
    """
    options = ["--family", "roberta", "--profile", str(tiny)]
    made = tmp_path / "papermill_runs/tiny/runs/pretrain/roberta-english-s0"
    assert run("embryo_pretrain", *options)[0] == 0
    plain = shas(series(tmp_path)), files(series(tmp_path))
    shutil.rmtree(series(tmp_path))
    shutil.rmtree(made)
    log = tmp_path / "log.txt"
    started, _ = start(1, tmp_path, f=embryo_pretrain, log=log, options=options)
    assert codes(started) == [0] and (shas(series(tmp_path)), files(series(tmp_path))) == plain

    tiny.write_text(tiny.read_text().replace("steps = 6", "steps = 30"))
    log.unlink()
    started, _ = start(2, tmp_path, f=embryo_pretrain, log=log, options=options)
    while not list((series(tmp_path) / "state").glob("step1*")):
        assert started[0].is_alive(), log.read_text()
        time.sleep(0.01)
    started[1].kill()
    assert codes(started) == [1, -signal.SIGKILL]
    said = log.read_text()
    assert said.count(AGAIN) == 1 and "Traceback" not in said and not (made / "failed.ipynb").exists(), said

    command = [str(BIN / "torchrun"), "--nproc-per-node", "2", "--no-python", str(BIN / "embryo_pretrain"), *options]
    env = dict(os.environ, EMBRYO_OUT=str(tmp_path), EMBRYO_DEVICE="cpu", OMP_NUM_THREADS="1")
    p = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    assert p.stdout.splitlines() == ["pretrain/roberta-english-s0", str(made / "rows.parquet")]
    assert [e.get("processes") for e in entries(series(tmp_path))] == [2] * 11


def test_one_of_a_commands_processes_is_killed(tiny, tmp_path):
    "`--processes 2`: the command that started them says which one was lost, and how; the other one is silent."
    tiny.write_text(tiny.read_text().replace("steps = 6", "steps = 3000"))
    command = [str(BIN / "embryo_pretrain"), "--processes", "2", "--family", "roberta", "--profile", str(tiny)]
    env = dict(os.environ, EMBRYO_OUT=str(tmp_path), EMBRYO_DEVICE="cpu", OMP_NUM_THREADS="1")
    p = subprocess.Popen(command, env=env, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        while not list((series(tmp_path) / "state").glob("step[1-9]*")):
            assert p.poll() is None, p.stderr.read()
            time.sleep(0.05)
        [second] = [c for c in psutil.Process(p.pid).children() if c.environ().get("RANK") == "1"]
        second.kill()
        said = p.communicate(timeout=120)[1]
    finally:
        p.kill()
    lost = f"embryo_pretrain: process 1 of 2 was ended by SIGKILL, and the others with it; {AGAIN}"
    assert p.returncode == 128 + signal.SIGKILL and said.splitlines()[-1].startswith(lost), said
    assert "another process" not in said and "Traceback" not in said and said.count(AGAIN) == 1, said


def test_processes_of_a_command(run, tmp_path):
    "embryo_pretrain --processes 2 starts two, leaves the word to one of them, and ends with its code."
    code, _, said = run("embryo_pretrain", "--processes", 2, "--profile", tmp_path / "no.toml", EMBRYO_DEVICE="cpu")
    assert code == 2 and said.count("\n") == 1 and said.startswith("embryo_pretrain: ") and "no.toml" in said, said
    code, _, said = run("embryo_pretrain", "--processes", -1)
    assert code == 2 and "processes is -1; expected a whole number from 1" in said, said
