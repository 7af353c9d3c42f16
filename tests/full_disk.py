"""Fill the disk under every stage, then make space: one sentence with path and bytes, and the next start ends as if
nothing had happened.

    unshare -rm python tests/full_disk.py [--tries 3] [--seed 0]

Runs in a mount namespace of its own (Linux), where it may mount a small tmpfs; the machine's own disks are not
touched. In each try the stage has a drawn share of the space that it needs; after that the same folder is made
read-only; then there is room.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import crash


def mount(where, *options):
    subprocess.run(["mount", *options, str(where)], check=True)


def used(where):
    s = os.statvfs(where)
    return (s.f_blocks - s.f_bfree) * s.f_frsize


class SmallLab(crash.Lab):
    "The laboratory's folders on the disk; stages run on a tmpfs mounted at `work`."

    def fresh(self, stage):
        base = self.base(crash.NEEDS[stage])
        work = self.root / "work"
        if os.path.ismount(work):
            subprocess.run(["umount", "-l", str(work)], check=True)
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        mount(work, "-t", "tmpfs", "-o", "size=2g", "none")
        shutil.copytree(base, work, symlinks=True, dirs_exist_ok=True)
        (work / "log.txt").unlink(missing_ok=True)
        return work

    def resize(self, size):
        mount(self.root / "work", "-o", f"remount,rw,size={size}")


def attempt(lab, stage, out, log):
    "Run the stage; what it said and how it ended."
    p = crash.start(stage, out, log=log)
    code = p.wait(300)
    if code is None:
        p.send(signal.SIGKILL)
        raise AssertionError(f"{stage}: hangs\n{log.read_text()[-2000:]}")
    if stage == "batch":
        crash.wait_for_lock(out)
    return code, log.read_text() if log.exists() else ""


def refused(stage, code, said, words):
    assert code in (1, 2), f"{stage}: exit code {code}\n{said[-2000:]}"
    assert "Traceback" not in said, f"{stage}:\n{said[-3000:]}"
    sentence = [l for l in said.replace("\r", "\n").splitlines() if all(w in l for w in words)]
    assert sentence, f"{stage}: expected a sentence with {words}\n{said[-2000:]}"


def harness(lab, stage, tries, seed=0):
    rng = random.Random(f"{stage}-{seed}")
    t = time.time()
    out = lab.fresh(stage)
    before = used(out)
    code, said = attempt(lab, stage, out, lab.root / "whole.txt")
    assert code == 0, said[-2000:]
    after = used(out)
    reference = crash.snapshot(out)
    full = 0
    fitted = 0
    for i in range(tries):
        out = lab.fresh(stage)
        log = lab.root / f"log{i}.txt"
        log.unlink(missing_ok=True)
        lab.resize(int(before + (after - before) * rng.random()) + 4096)
        code, said = attempt(lab, stage, out, log)
        # what lies over is removed in the end: there was room enough
        if code == 0:
            fitted += 1
        else:
            refused(stage, code, said, ["No space left on device", "needs", "bytes", str(out)])
            full += 1
        half = [f for f in crash.leftovers(out) if not f.endswith("failed.ipynb")]
        assert not half or stage == "batch", half
        if code != 0:
            log.unlink(missing_ok=True)
            mount(out, "-o", "remount,ro")
            code, said = attempt(lab, stage, out, log)
            refused(stage, code, said, ["Read-only file system", str(out)])
        lab.resize("2g")
        log.unlink(missing_ok=True)
        code, said = attempt(lab, stage, out, log)
        assert code == 0, f"{stage}: does not go on after space was made\n{said[-2000:]}"
        now = crash.snapshot(out)
        wrong = [k for k in sorted(set(now) | set(reference)) if now.get(k) != reference.get(k)]
        assert not wrong, f"{stage}: differ from the undisturbed run: {wrong[:5]}"
        assert not crash.leftovers(out), crash.leftovers(out)
    subprocess.run(["umount", "-l", str(lab.root / "work")])
    return {
        "stage": stage,
        "disk full": full,
        "read-only": full,
        "went on": full,
        "fitted after all": fitted,
        "seconds": round(time.time() - t),
    }


if __name__ == "__main__":
    a = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    a.add_argument("--tries", type=int, default=3)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--stages", default=",".join(crash.NEEDS))
    a = a.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    lines = []
    with tempfile.TemporaryDirectory(prefix="embryo-full-", ignore_cleanup_errors=True) as d:
        lab = SmallLab(Path(d).resolve() / "lab")
        for s in a.stages.split(","):
            lines.append(harness(lab, s, a.tries, a.seed))
            print(crash.table(lines), flush=True)
