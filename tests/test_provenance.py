"""The revision that a committed figure names is one that a reader can check out."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT

DRAWN = sorted(p.name for p in (ROOT / "figures").iterdir() if p.is_dir())
STAMP = re.compile(r"\[embryo ([0-9a-f]{7,40})\+?\]")  # of a caption
PRINTED = re.compile(r"'git': '([0-9a-f]{7,40})\+?'")  # of an executed appendix


def git(*args):
    "(exit status, output) of git in this checkout."
    p = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
    return p.returncode, p.stdout.strip()


@pytest.fixture(scope="module")
def history():
    "Skips where there is none to look into."
    if not shutil.which("git"):
        pytest.skip("git is not installed: no history to look into")
    if git("rev-parse", "--is-inside-work-tree") != (0, "true"):
        pytest.skip("not a git checkout: no history to look into")
    if git("rev-parse", "--is-shallow-repository")[1] == "true":
        pytest.skip("a shallow clone: git fetch --unshallow for its history")


def stamps(profile):
    "{revision: one file that names it} in the tables and executed appendices of a profile."
    found = {}
    for f in sorted((ROOT / "figures" / profile).glob("*.md")):
        found |= {revision: f for revision in STAMP.findall(f.read_text())}
    for f in sorted((ROOT / "papermill_runs" / profile / "appendix").glob("*.ipynb")):
        found |= {revision: f for revision in PRINTED.findall(f.read_text())}
    return found


@pytest.mark.parametrize("profile", DRAWN)
def test_figures_name_a_revision_that_is_here(history, profile):
    "An ancestor of what is checked out; after a history was rebuilt the figures are drawn again."
    named = stamps(profile)
    assert named, f"{profile}: no table or appendix names its revision"
    for revision, file in named.items():
        code, _ = git("merge-base", "--is-ancestor", revision, "HEAD")
        assert code == 0, (
            f"{file.relative_to(ROOT)} names {revision}, which is not in this history; make figures PROFILE={profile}"
        )
