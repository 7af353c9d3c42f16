"""Crashes and full disks, in short (--long: in full). What is done and asserted: crash.py and full_disk.py."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import crash
import pytest

HERE = Path(__file__).resolve().parent
# the whole batch is killed in test_batch.py
SHORT = dict(corpus=3, pretrain=4, checkpoint=8, chain=4, examine=3, finetune=3)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory):
    return crash.Lab(tmp_path_factory.mktemp("crash") / "lab")


@pytest.mark.parametrize("stage", SHORT)
def test_killed(laboratory, stage, long):
    "SIGKILL, SIGTERM and Ctrl-C at random moments and file operations."
    if long:
        for signals in (("KILL",), ("TERM", "INT")):
            print(crash.table([crash.harness(laboratory, stage, 100, signals=signals)]))
        return
    # a checkpoint's harm shows at single file operations, and there only SIGKILL strikes
    signals = ("KILL",) if stage == "checkpoint" else ("KILL", "TERM", "INT")
    print(crash.table([crash.harness(laboratory, stage, SHORT[stage], signals=signals)]))


def test_the_batch_killed(laboratory, long):
    if not long:
        pytest.skip("the whole batch is killed a hundred times in the long form (--long); once in test_batch.py")
    for signals, kills in ((("KILL",), 100), (("TERM", "INT"), 20)):
        print(crash.table([crash.harness(laboratory, "batch", kills, signals=signals)]))


def test_full_disk_and_read_only(long):
    "Every stage on a tmpfs that is too small, then read-only, then large enough."
    if (
        not shutil.which("unshare")
        or subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/tmp"], capture_output=True).returncode
    ):
        pytest.skip("no mount namespace here (unshare -rm): a small disk cannot be made")
    args = [] if long else ["--tries", "1", "--stages", "corpus,pretrain,examine,finetune"]
    p = subprocess.run(
        ["unshare", "-rm", sys.executable, str(HERE / "full_disk.py"), *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])},
    )
    print(p.stdout)
    assert p.returncode == 0, p.stdout[-500:] + p.stderr[-3000:]
