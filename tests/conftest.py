import os
import subprocess
import sys
from pathlib import Path

import crash
import pytest

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="the long forms of the crash and fuzz tests")


@pytest.fixture(scope="session")
def long(request):
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    "A micro world, its tokenizer and ids, and the series albert-english-s0 of three steps."
    from embryo.micro.lab import toy_lab

    return toy_lab(tmp_path_factory.mktemp("lab") / "lab")


def in_fork(name, args, cwd, out, err):
    "What a console script does, in a fork of a process that has imported everything."
    for fd, f in enumerate((os.devnull, out, err)):
        os.dup2(os.open(f, os.O_RDWR | os.O_CREAT), fd)
    os.environ["EMBRYO_OUT"] = str(cwd)
    os.chdir(cwd)
    crash.command(name, *args)


@pytest.fixture
def run(tmp_path, tmp_path_factory):
    """Run one of the project's commands; (exit code, stdout, stderr). With variables of the environment it is a
    process of its own.
    """

    def f(command, *args, timeout=120, **env):
        if env:
            p = subprocess.run(
                [str(BIN / command), *map(str, args)],
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd=tmp_path,
                env={**os.environ, "EMBRYO_OUT": str(tmp_path), **env},
            )
            return p.returncode, p.stdout, p.stderr
        said = [tmp_path_factory.mktemp("said") / k for k in ("out", "err")]
        p = crash.forkserver().Process(target=in_fork, args=(command, args, tmp_path, *map(str, said)))
        p.start()
        p.join(timeout)
        if p.exitcode is None:
            p.kill()
            raise AssertionError(f"{command} takes more than {timeout} s")
        return p.exitcode, *(f.read_text() for f in said)

    return f


TINY = (
    'profile = "tiny"'
    + crash.SIZES
    + """
[pretrain.english-stage]
steps = 4
[results.p2_table1]
template = "finetune"
family = ["roberta"]
l1 = ["none", "zipf", "klingon", "zipf+english"]
task = ["STS-B"]
[results.p2_transfer]
template = "appendix"
needs = ["p2_table1"]
"""
)


@pytest.fixture
def tiny(tmp_path):
    "A profile that runs in a minute."
    (tmp_path / "klingon.txt").write_text(crash.KLINGON)
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path / "tiny.toml"
