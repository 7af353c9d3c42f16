import os, subprocess, sys
from pathlib import Path
import pytest
import crash

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
os.environ.setdefault("OMP_NUM_THREADS", "1")

def pytest_addoption(parser): parser.addoption("--long", action="store_true", help="the long forms of the crash and fuzz tests")

@pytest.fixture(scope="session")
def long(request): return request.config.getoption("--long")

@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    "A micro world, its tokenizer and ids, and the series albert-english-s0 of three steps."
    from embryo.toy import toy_lab
    return toy_lab(tmp_path_factory.mktemp("lab")/"lab")

def in_fork(name, args, cwd, out, err):
    "What a console script does, in a fork of a process that has imported everything."
    for fd,f in enumerate((os.devnull, out, err)): os.dup2(os.open(f, os.O_RDWR|os.O_CREAT), fd)
    os.environ["EMBRYO_OUT"] = str(cwd)
    os.chdir(cwd)
    crash.command(name, *args)

@pytest.fixture
def run(tmp_path, tmp_path_factory):
    "Run one of the project's commands; (exit code, stdout, stderr). With variables of the environment it is a process of its own."
    def f(command, *args, timeout=120, **env):
        if env:
            p = subprocess.run([str(BIN/command), *map(str, args)], capture_output=True, text=True, timeout=timeout, cwd=tmp_path, env={**os.environ, "EMBRYO_OUT": str(tmp_path), **env})
            return p.returncode, p.stdout, p.stderr
        said = [tmp_path_factory.mktemp("said")/k for k in ("out", "err")]
        p = crash.forkserver().Process(target=in_fork, args=(command, args, tmp_path, *map(str, said)))
        p.start(); p.join(timeout)
        if p.exitcode is None: p.kill(); raise AssertionError(f"{command} takes more than {timeout} s")
        return p.exitcode, *(f.read_text() for f in said)
    return f

TINY = """
profile = "tiny"
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
path = "KLINGON"
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
heldout_batches = 2
[pretrain.english-stage]
steps = 4
[finetune.default]
epochs = 1
max_length = 64
[results.p2_table1]
template = "finetune"
family = ["roberta"]
l1 = ["none", "zipf", "klingon", "zipf+english"]
task = ["STS-B"]
[results.p2_transfer]
template = "appendix"
needs = ["p2_table1"]
"""

@pytest.fixture
def tiny(tmp_path):
    "A profile that runs in a minute."
    (tmp_path/"klingon.txt").write_text("\n\n".join(f"nuqneH jup {i%7}\nQapla' jup {i%5} Qapla'" for i in range(400)))
    (tmp_path/"tiny.toml").write_text(TINY.replace("KLINGON", str(tmp_path/"klingon.txt")))
    return tmp_path/"tiny.toml"
