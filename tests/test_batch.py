"""The batch: it runs, survives a kill, repeats only what changed, and does nothing when all is there."""

import fcntl, os, re, shutil, signal, subprocess, time
from pathlib import Path
import crash
from conftest import BIN
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
