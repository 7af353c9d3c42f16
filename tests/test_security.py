"""What SECURITY.md promises: each way in is handed a hostile input, and nothing is run, written or removed that
should not be."""

import ast
import gzip
import html
import io
import json
import lzma
import os
import pickle
import re
import shutil
import stat
import struct
import sys
import tarfile
import zipfile
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import ROOT

from embryo.ground.data import damaged, read_lines, read_manifest
from embryo.ground.errors import EmbryoError
from embryo.ground.files import sealed
from embryo.ground.seeds import sha256


def refuses(what, f, *args, **kwargs):
    "An EmbryoError of one sentence that says `what`."
    with pytest.raises(EmbryoError) as e:
        f(*args, **kwargs)
    assert what in str(e.value) and "\n" not in str(e.value), str(e.value)


@pytest.fixture
def canary(tmp_path):
    "A file that appears when code of the attacker is run; checked after the test."
    f = tmp_path / "RUN"
    yield f
    assert not f.exists(), "the attacker's code was run"


# ---- the source itself
# -------------------------------------------------------------------------------------------------

ALLOWED = {  # (file, name): why
    ("embryo/desk.py", "importlib.import_module"): "rooms of our own, named in its table",
    (
        "embryo/ground/profiles.py",
        "runpy.run_path",
    ): "what is the reader's own: `function` in a profile, which is code (SECURITY.md)",
    (
        "embryo/batch/worker.py",
        "importlib.import_module",
    ): "the waiting worker calls what its own batch asks over a socket that only its user can open",
    (
        "embryo/models/series.py",
        "importlib.import_module",
    ): "one room of our own, named in a constant: it makes a step that was not saved",
    (
        "embryo/pretraining/training/processes.py",
        "subprocess.Popen",
    ): "the command itself, as a list of arguments, once for each process",
    ("embryo/evaluation/attention.py", "np.load"): "attention maps; numpy reads no pickle unless told to",
    ("embryo/batch/run.py", "subprocess.Popen"): "snakemake, as a list of arguments",
    ("embryo/batch/cluster/slurm.py", "subprocess.run"): "squeue, sinfo, scancel, as a list of arguments",
    ("embryo/batch/worker.py", "subprocess.Popen"): "Python, as a list of arguments",
    ("embryo/ground/machine.py", "subprocess.run"): "git, as a list of arguments",
    ("embryo/results/page.py", "Markdown"): "what comes from rows has no tags (test_sentences_of_hostile_rows)",
}
FORBIDDEN = (
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "yaml",
    "tarfile",
    "shutil.unpack_archive",
    "torch.load",
    "torch.hub",
    "eval",
    "exec",
    "compile",
    "__import__",
    "os.system",
    "os.popen",
    "numpy.load",
    "np.load",
    "pd.read_pickle",
    "pandas.read_pickle",
    "runpy.run_path",
    "runpy.run_module",
    "importlib.import_module",
    "subprocess.run",
    "subprocess.Popen",
    "subprocess.call",
    "subprocess.check_output",
    "subprocess.check_call",
    "HTML",
    "Markdown",
    "Javascript",
    "Latex",
)


def dotted(n):
    "a.b.c of an attribute or name; '' for anything else."
    if isinstance(n, ast.Name):
        return n.id
    if isinstance(n, ast.Attribute):
        return f"{d}.{n.attr}" if (d := dotted(n.value)) else ""
    return ""


def forbidden(source, file):
    "What a source does that it must not."
    out = []
    for n in ast.walk(ast.parse(source)):
        names = (
            [a.name.split(".")[0] for a in n.names]
            if isinstance(n, ast.Import)
            else (
                [(n.module or "").split(".")[0], *(f"{n.module}.{a.name}" for a in n.names)]
                if isinstance(n, ast.ImportFrom) and not n.level
                else []
            )
        )
        if isinstance(n, ast.Call):
            names.append(dotted(n.func))
            given = {k.arg: k.value for k in n.keywords}
            for k in ("shell", "allow_pickle", "trust_remote_code", "weights_only"):
                v = given.get(k)
                if v is not None and not (isinstance(v, ast.Constant) and v.value is (k == "weights_only")):
                    out.append(f"{k}={ast.unparse(v)}")
            if (
                dotted(n.func).endswith("extractall")
                or dotted(n.func).endswith(".extract")
                and isinstance(n.func, ast.Attribute)
                and dotted(n.func.value) in ("z", "tar", "t")
            ):
                out.append(dotted(n.func))
            if (
                dotted(n.func).endswith("from_pretrained")
                and isinstance(given.get("trust_remote_code"), type(None))
                and not dotted(n.func).startswith("super")
            ):
                out.append(f"{dotted(n.func)} without trust_remote_code=False")
        out += [x for x in names if x in FORBIDDEN and (file, x) not in ALLOWED]
    return sorted(set(out))


SOURCES = [(p.relative_to(ROOT).as_posix(), p.read_text()) for p in sorted((ROOT / "embryo").rglob("*.py"))]
for p in sorted((ROOT / "nbs/experiments").glob("*.ipynb")) + sorted((ROOT / "nbs/appendix").glob("*.ipynb")):
    SOURCES.append(
        (
            p.name,
            "\n".join("".join(c["source"]) for c in json.loads(p.read_text())["cells"] if c["cell_type"] == "code"),
        )
    )


@pytest.mark.parametrize("file,source", SOURCES, ids=[n for n, _ in SOURCES])
def test_no_dangerous_call(file, source):
    assert not forbidden(source, file)


@pytest.mark.parametrize(
    "bad",
    [
        "import pickle",
        "from pickle import loads",
        "torch.load(f)",
        "eval(x)",
        "exec(x)",
        "subprocess.run(x, shell=True)",
        "f(trust_remote_code=True)",
        "np.load(f, allow_pickle=True)",
        "import yaml",
        "t.extractall(d)",
        "import tarfile",
        "display(HTML(x))",
        "os.system(x)",
        "AutoModel.from_pretrained(x)",
        "torch.load(f, weights_only=False)",
        "from shutil import unpack_archive",
    ],
)
def test_the_guard_sees_it(bad):
    assert forbidden(bad, "x.py")


def test_allowed_exceptions_are_used():
    for file, name in ALLOWED:
        assert name in forbidden(dict(SOURCES)[file], ""), f"{name} is no longer in {file}: take it off the list"


def test_snakefile_quotes_what_it_gives_to_a_shell():
    for line in re.findall(r'shell: """(.*)"""', (ROOT / "Snakefile").read_text()):
        fields = re.findall(r"\{([^}]*)\}", line)
        assert fields and all(f.endswith(":q") or f == "sys.executable" for f in fields), fields


# ---- checkpoints
# -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkpoint(lab):
    return Path(lab["series"]) / "albert-english-s0" / "step4"


def tamper(checkpoint, to, **config):
    "A copy with another config."
    shutil.copytree(checkpoint, to)
    (to / "config.json").write_text(json.dumps({**json.loads((to / "config.json").read_text()), **config}))
    return to


class Bomb:
    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return open, (str(self.canary), "w")


def both():  # The two ways in
    from embryo.evaluation.tasks.finetune import load_body
    from embryo.models.series import load_checkpoint

    return load_checkpoint, load_body


@pytest.mark.parametrize(
    "write",
    [
        lambda b, f: f.write_bytes(pickle.dumps(b)),
        lambda b, f: torch.save({"w": b}, f),
        lambda b, f: torch.save({"w": torch.zeros(1)}, f),
    ],
    ids=["pickle", "torch", "harmless"],
)
def test_pickled_weights_are_not_opened(checkpoint, tmp_path, canary, write):
    d = tamper(checkpoint, tmp_path / "c")
    (d / "model.safetensors").unlink()
    write(Bomb(canary), d / "pytorch_model.bin")
    for way in both():
        refuses("model.safetensors", way, d)


def test_code_in_a_checkpoint_is_not_run(checkpoint, tmp_path, canary, monkeypatch):
    "auto_map of model and tokenizer: passed over, without a question; another kind of model: refused."
    monkeypatch.setattr("builtins.input", lambda *a: pytest.fail("asked whether to run the code"))
    d = tamper(
        checkpoint,
        tmp_path / "c",
        auto_map={k: f"evil.{k}" for k in ("AutoConfig", "AutoModel", "AutoModelForMaskedLM")},
    )
    (d / "evil.py").write_text(
        f"open({str(canary)!r}, 'w')\nfrom transformers import AlbertConfig as AutoConfig, AlbertModel as AutoModel,"
        " AlbertForMaskedLM as AutoModelForMaskedLM, PreTrainedTokenizerFast as T\n"
    )
    t = json.loads((d / "tokenizer_config.json").read_text())
    (d / "tokenizer_config.json").write_text(
        json.dumps(dict(t, auto_map={"AutoTokenizer": ["evil.T", "evil.T"]}, tokenizer_class="T"))
    )
    for way in both():
        try:
            way(d)
        except EmbryoError as e:
            assert "\n" not in str(e)
    other = tamper(d, tmp_path / "other", model_type="evil")
    for way in both():
        refuses("a model of type 'evil'; known: albert", way, other)


@pytest.mark.parametrize(
    "config,said",
    [
        (dict(hidden_size=10**9), "hidden_size"),
        (dict(num_hidden_layers=10**7), "num_hidden_layers"),
        (dict(num_labels=10**9), "num_labels"),
        (dict(vocab_size=-1), "vocab_size"),
        (dict(max_position_embeddings=10**12), "max_position_embeddings"),
        (dict(num_attention_heads=0), "num_attention_heads"),
        (dict(num_attention_heads=7), "can open"),
        (dict(hidden_size="x"), "hidden_size"),
        (dict(hidden_size=None), "hidden_size"),
        (dict(hidden_act="__import__('os').system('true')"), "can open"),
        (dict(attn_implementation="someone/kernel"), "code from elsewhere"),
        (dict(_attn_implementation="someone/kernel@main:f"), "code from elsewhere"),
        (dict(transformers_weights="../other.safetensors"), "transformers_weights"),
        (dict(quantization_config={"quant_method": "bitsandbytes"}), "quantization_config"),
    ],
    ids=str,
)
def test_absurd_config(checkpoint, tmp_path, config, said):
    d = tamper(checkpoint, tmp_path / "c", **config)
    for way in both():
        refuses(said, way, d)


def test_adapter_of_a_model_elsewhere(checkpoint, tmp_path):
    d = tamper(checkpoint, tmp_path / "c")
    (d / "adapter_config.json").write_text('{"base_model_name_or_path": "someone/else"}')
    for way in both():
        refuses("adapter_config.json", way, d)


@pytest.mark.parametrize(
    "entry,said",
    [
        (dict(name="../../elsewhere"), "a step of a series lies in its folder"),
        (dict(source="someone/model@step-1"), "a step of a series lies in its folder"),
        (dict(step="../../elsewhere"), "whole number from 0"),
        (dict(step=-1), "whole number from 0"),
    ],
    ids=str,
)
def test_series_that_points_elsewhere(checkpoint, tmp_path, entry, said):
    from embryo.models.given import open_series

    shutil.copytree(checkpoint.parent, tmp_path / "s")
    info = {k: v for k, v in json.loads((tmp_path / "s/series.json").read_text()).items() if k != "seal"}
    info["steps"][0] |= entry
    (tmp_path / "s/series.json").write_text(json.dumps(info))
    refuses(said, open_series, tmp_path / "s")


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<Q", 2**62),
        struct.pack("<Q", 10) + b"x" * 10,
        struct.pack("<Q", 60)
        + json.dumps({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode().ljust(60),
    ],
    ids=["length", "garbage", "offsets"],
)
def test_hostile_safetensors(checkpoint, tmp_path, header):
    d = tamper(checkpoint, tmp_path / "c")
    (d / "model.safetensors").write_bytes(header)
    for way in both():
        refuses("c", way, d)


# ---- data folder and manifest
# ------------------------------------------------------------------------------------------

LINE = dict(bytes=1, sha256="0" * 64)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a\\..\\x", "a\0b", ""])
def test_manifest_path_that_leaves_the_folder(tmp_path, path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d/MANIFEST.json").write_text(json.dumps([dict(name="wiki_en", files=[dict(LINE, path=path)])]))
    for f in (read_manifest, damaged):
        refuses("leaves the folder", f, tmp_path / "d")


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[1]",
        '[{"name": 1, "files": []}]',
        '[{"name": "a", "files": [{"path": "x"}]}]',
        "[" * 10_000,
        '[{"name": "a", "files": [{"path": "x", "bytes": true, "sha256": "' + "0" * 64 + '"}]}]',
        "null",
        "\0",
    ],
)
def test_manifest_that_is_none(tmp_path, text):
    (tmp_path / "MANIFEST.json").write_text(text)
    refuses("MANIFEST.json", read_manifest, tmp_path)


@pytest.mark.parametrize("name", ["MANIFEST.json", "MANIFEST.partial.json"])
def test_fetch_removes_nothing_outside(tmp_path, name):
    "A manifest that claims, as its own and out of date, files elsewhere."
    from embryo.corpora.fetching.ledger import Ledger

    (tmp_path / "precious").write_text("x")
    (tmp_path / "d").mkdir()

    def plant(path, **more):
        (tmp_path / "d" / name).write_text(
            json.dumps(
                [
                    sealed(
                        dict(
                            dict(
                                name="wiki_en",
                                by="embryo_fetch",
                                sources=[dict(repository="a/b", commit="0" * 40)],
                                files=[dict(LINE, path=path, made="old")],
                            ),
                            **more,
                        )
                    )
                ]
            )
        )

    for path in ("../precious", str(tmp_path / "precious")):
        plant(path)
        refuses("leaves the folder", Ledger, tmp_path / "d")
    (tmp_path / "d/out").symlink_to(tmp_path)
    plant("out/precious")
    refuses("a link leads out", Ledger, tmp_path / "d")
    for more in (
        dict(sources=3),
        dict(sources=[{}]),
        dict(sources=[dict(repository="a/b", commit="../../x")]),
        dict(files=[dict(LINE, path="a")]),
    ):
        plant("a", **more)
        refuses("not as embryo_fetch writes it", Ledger, tmp_path / "d")
    assert (tmp_path / "precious").read_text() == "x"


def test_fetch_writes_nothing_through_a_link(tmp_path):
    from embryo.corpora.fetching.ledger import Ledger

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "d").mkdir()
    (tmp_path / "d/lama").symlink_to(tmp_path / "elsewhere")
    ledger = Ledger(tmp_path / "d")
    ledger.start("wiki_en", sources=[])
    refuses("a link leads out", ledger.put, "wiki_en", "made", {"lama/x.txt.gz": ("text", {})})
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_changed_manifest_is_seen(tmp_path):
    "What embryo_fetch wrote is sealed: nobody changes a hash unnoticed."
    from embryo.corpora.fetching.ledger import Ledger

    ledger = Ledger(tmp_path)
    ledger.start("wiki_en", sources=[dict(repository="a/b", commit="0" * 40)])
    ledger.put("wiki_en", "made", {"wiki_en/a.txt.xz": ("text\n", {})})
    ledger.finish({"wiki_en": ["made"]})
    assert not damaged(tmp_path)
    (tmp_path / "wiki_en/a.txt.xz").write_bytes(b"other")
    assert len(damaged(tmp_path)) == 1
    m = tmp_path / "MANIFEST.json"
    m.write_text(
        m.read_text().replace(read_manifest(tmp_path)[0]["files"][0]["sha256"], sha256(tmp_path / "wiki_en/a.txt.xz"))
    )
    refuses("does not agree with its seal", read_manifest, tmp_path)


@pytest.mark.parametrize("pack,end", [(gzip.compress, ".gz"), (lzma.compress, ".xz")])
def test_packed_line_that_fills_the_memory(tmp_path, monkeypatch, pack, end):
    monkeypatch.setattr("embryo.ground.data.LONGEST", 1000)
    (tmp_path / f"a.txt{end}").write_bytes(pack(b"short\n" + b"0" * 10**6))
    refuses("line 2: is longer than 1,000 bytes", lambda: list(read_lines(tmp_path / f"a.txt{end}")))


def test_task_names_that_leave_the_folder(tmp_path):
    from embryo.evaluation.tasks.reading import find_task

    for name in ("../x", "/etc", "a/b", "", "a\0b", ".", "..", 3):
        refuses("unknown task", find_task, tmp_path, name)


# ---- archives
# ----------------------------------------------------------------------------------------------------------


def fetch_lama(tmp_path, archive):
    from embryo.corpora.fetching.fetch import fetch

    return fetch(tmp_path / "out", "lama", {"lama": str(archive)}, progress=False)


RELATION = json.dumps(dict(relation="P19", template="[X] is [Y] .", label="l", description="d", type="N-1")) + "\n"
FACT = (
    json.dumps(dict(uuid="u", obj_uri="Q1", obj_label="Paris", sub_uri="Q2", sub_label="S", predicate_id="P19")) + "\n"
)


def archive(path, *more):
    "A whole LAMA, and members of the attacker's: (name or ZipInfo, bytes)."
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in (("data/relations.jsonl", RELATION), ("data/TREx/P19.jsonl", FACT), *more):
            z.writestr(name, data)
    return path


def special(name, kind):
    m = zipfile.ZipInfo(name)
    m.external_attr = (kind | 0o777) << 16
    return m


def test_a_good_archive(tmp_path):
    a = archive(tmp_path / "data.zip")
    assert read_manifest(fetch_lama(tmp_path, f"{a}#sha256={sha256(a)}"))[0]["totals"]["rows"] == 2


@pytest.mark.parametrize(
    "name",
    [
        "../TREx/P20.jsonl",
        "data/TREx/../../../P20.jsonl",
        "/TREx/P20.jsonl",
        "..\\TREx\\P20.jsonl",
        "C:/TREx/P20.jsonl",
        "TREx/P20.jsonl\n",
    ],
)
def test_archive_member_that_leaves(tmp_path, name):
    refuses("leads out of its folder", fetch_lama, tmp_path, archive(tmp_path / "data.zip", (name, FACT)))
    assert (
        not (tmp_path / "out/lama").exists()
        and not list(tmp_path.parent.glob("P20*"))
        and not list(tmp_path.rglob("P20*"))
    )


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_archive_member_that_is_no_file(tmp_path, kind):
    refuses(
        "a link or a device",
        fetch_lama,
        tmp_path,
        archive(tmp_path / "data.zip", (special("data/TREx/P20.jsonl", kind), "/etc/passwd")),
    )


def test_archive_bombs(tmp_path, monkeypatch):
    monkeypatch.setattr("embryo.corpora.fetching.text.MOST", 10**6)
    monkeypatch.setattr("embryo.corpora.fetching.text.LONGEST", 10**5)
    refuses(
        "bytes once unpacked; at most 1,000,000",
        fetch_lama,
        tmp_path,
        archive(tmp_path / "a.zip", ("data/TREx/P20.jsonl", b"0" * 2_000_000)),
    )
    refuses(
        "more than 100,000 bytes in a line",
        fetch_lama,
        tmp_path,
        archive(tmp_path / "b.zip", ("data/TREx/P20.jsonl", b"0" * 200_000)),
    )
    # a bomb in the bomb
    refuses(
        "or 1,000,000 in all",
        fetch_lama,
        tmp_path,
        archive(
            tmp_path / "c.zip", ("data/TREx/P20.jsonl.gz", gzip.compress(FACT.replace("P19", "P20").encode() * 20_000))
        ),
    )
    refuses("too deep", fetch_lama, tmp_path, archive(tmp_path / "d.zip", ("data/TREx/P20.jsonl", "[" * 90_000)))
    a = bytearray(archive(tmp_path / "e.zip").read_bytes())
    at = a.rindex(b"PK\x01\x02")
    # a way of packing that there is not
    a[at + 10 : at + 12] = a[a.rindex(b"PK\x03\x04") + 8 : a.rindex(b"PK\x03\x04") + 10] = (99).to_bytes(2, "little")
    (tmp_path / "e.zip").write_bytes(a)
    refuses("damaged", fetch_lama, tmp_path, tmp_path / "e.zip")
    assert not (tmp_path / "out/lama").exists()


def test_archive_of_another_hash(tmp_path):
    a = archive(tmp_path / "data.zip")
    refuses("it is not the archive that was meant", fetch_lama, tmp_path, f"{a}#sha256={'0' * 64}")
    refuses("expected 64 hexadecimal digits", fetch_lama, tmp_path, f"{a}#sha256=x")
    refuses("no such archive", fetch_lama, tmp_path, f"{tmp_path}/none.zip#sha256={'0' * 64}")
    assert not (tmp_path / "out/lama").exists()


@pytest.mark.parametrize("kind", ["../P20.jsonl", "link", "hardlink", "device"])
def test_tar_archives_are_not_opened(tmp_path, kind):
    with tarfile.open(tmp_path / "data.tar", "w") as t:
        m = tarfile.TarInfo(kind if "/" in kind else "TREx/P20.jsonl")
        if "/" not in kind:
            m.type, m.linkname = dict(
                link=(tarfile.SYMTYPE, "/etc/passwd"),
                hardlink=(tarfile.LNKTYPE, "/etc/passwd"),
                device=(tarfile.CHRTYPE, ""),
            )[kind]
        t.addfile(m, io.BytesIO())
    refuses("not a zip archive", fetch_lama, tmp_path, tmp_path / "data.tar")


def test_folder_with_a_link_out(tmp_path):
    (tmp_path / "lama/TREx").mkdir(parents=True)
    (tmp_path / "secret").write_text(FACT)
    (tmp_path / "lama/relations.jsonl").write_text(RELATION)
    (tmp_path / "lama/TREx/P19.jsonl").symlink_to(tmp_path / "secret")
    refuses("a link that leads out of its folder", fetch_lama, tmp_path, tmp_path / "lama")


def test_hub_repository_with_a_script(tmp_path, canary, monkeypatch):
    "A data set that is a program is not run; names that leave the folder are refused."
    from embryo.corpora.fetching.hub import Hub, Source, local_hub, read_source

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    (tmp_path / "hub/evil/data").mkdir(parents=True)
    (tmp_path / "hub/evil/data/data.py").write_text(f"open({str(canary)!r}, 'w')")
    with local_hub(tmp_path / "hub") as server:
        hub = Hub(server.endpoint)
        refuses("scripts are never run", lambda: hub.files(hub.pin(Source("evil/data")), "train"))
        for bad in ("../x.parquet", "/x.parquet", "a\\b.parquet", "a/./b.parquet"):
            server.extra = [dict(rfilename=bad, size=1)]
            hub = Hub(server.endpoint)
            refuses("leads out of its folder", lambda: hub.files(hub.pin(Source("evil/data")), "train"))
        for size in (None, -1, 0):
            server.extra = [dict(rfilename="train-0.parquet", size=size)]
            hub = Hub(server.endpoint)
            refuses("expected a whole number above 0", lambda: hub.files(hub.pin(Source("evil/data")), "train"))
    for bad in ("../x", "a/../b", "a/b@../../x", "a/b:../c", "/a/b", "a/b\n", "http://x/y"):
        refuses("is not the id of a data set", read_source, bad, Source("c/d"))


def test_local_data_set_with_a_script(tmp_path, canary):
    from embryo.corpora.text import stream_text

    (tmp_path / "set").mkdir()
    (tmp_path / "set/set.py").write_text(f"open({str(canary)!r}, 'w')")
    refuses("not a data set that can be read", lambda: next(stream_text(str(tmp_path / "set"))))


# ---- text that is shown
# ------------------------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "a | b",
    "a & b % _ # $x^2$ ~ {}",
    r"\input{/etc/passwd}\write18{touch RUN}",
    "a\nb",
    "[x](javascript:alert(1))",
    "=cmd|'/C calc'!A0",
    "$\\frac$",
    "\x1b[31m",
]


def test_html_of_a_notebook_is_escaped():
    "Tables are the only HTML that a notebook of ours makes."
    for shown in (
        pd.DataFrame({"text": HOSTILE, "<b>": 1}, index=HOSTILE),
        pd.DataFrame(1, index=[0], columns=HOSTILE),
    ):
        body = shown._repr_html_().split("</style>")[1]
        assert (
            set(re.findall(r"</?([a-z0-9]+)", body)) <= {"div", "table", "thead", "tbody", "tr", "th", "td", "p"}
            and html.escape(HOSTILE[0]) in body
        )


def test_tables_of_hostile_text(tmp_path):
    "Markdown keeps its columns and has no tags; LaTeX has no command of the data's."
    from embryo.results.figures import save_table

    d = pd.DataFrame({"label": HOSTILE, "<i>|": range(len(HOSTILE))})
    save_table(d, d.astype(str), "t", tmp_path, "caption <b> \\input{x}")
    lines = (tmp_path / "t.md").read_text().splitlines()
    assert (
        "<" not in "".join(lines)
        and len(lines) == 2 + len(HOSTILE) + 2
        and {len(re.findall(r"(?<!\\)\|", l)) for l in lines[:-2]} == {3}
    )
    tex = (tmp_path / "t.tex").read_text()
    commands = set(re.findall(r"\\([a-zA-Z]+)", tex))
    assert commands <= {
        "begin",
        "end",
        "hline",
        "caption",
        "textbackslash",
        "textasciicircum",
        "textasciitilde",
        "pm",
        "circ",
    } and not re.findall(r"(?<!\\)\$x", tex)
    assert pd.read_csv(tmp_path / "t.csv")["label"].tolist() == HOSTILE


def hostile(rows, column, tag):
    "The same rows with a tag before what a column says."
    named = rows[column].notna() & rows[column].astype(str).ne("")
    return rows.assign(**{column: rows[column].where(~named, tag + rows[column].astype(str))})


def test_sentences_of_hostile_rows():
    "What is told beside a figure, and shown as Markdown, has no tags, whatever rows call their groups, tasks and L1s."
    import embryo.results.page  # noqa: F401 - declares who speaks beside figures
    from embryo.ground.profiles import read_profile
    from embryo.micro.made_up import made_up_p1
    from embryo.micro.made_up_p2 import made_up_p2
    from embryo.results.claims.ledger import ledger_data
    from embryo.results.claims.text import told_at
    from embryo.results.claims.verdicts import CLAIMS
    from embryo.results.told.sentences import TOLD, told_beside

    tags = dict(group="<b>", task="<i>", l1="<u>")
    texts = []
    for paper, rows in (("p1", made_up_p1()), ("p2", made_up_p2())):
        mixed = pd.concat([rows, *(hostile(rows, *item) for item in tags.items())], ignore_index=True)
        texts += [told_beside(mixed, name, read_profile("micro")) for name in TOLD if name.startswith(paper)]
        held = ledger_data(mixed, paper)
        if len(held):
            held = held.assign(part="<s>" + held["part"], note="<s>" + held["note"].fillna(""))
            texts += [told_at(held, c.figures[0]) for c in CLAIMS.values()]
    assert texts and not [t for t in texts if "<" in t]
    for column in ("group", "l1"):  # of tasks only known names are said
        assert any(tags[column].replace("<", "&lt;") in t for t in texts), column


def test_figure_with_a_hostile_caption(tmp_path):
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    from embryo.results.figures import save_figure

    fig, _ = plt.subplots(figsize=(2, 1))
    assert save_figure(
        fig, pd.DataFrame(dict(a=[1])), "f", tmp_path, " ".join(h for h in HOSTILE if h.isprintable())
    ).is_file()


# ---- names and parameters
# ----------------------------------------------------------------------------------------------

NAMES = ["../x", "/x", "a/b", "", ".", "..", ".hidden", "a\0b", "a\nb", "x" * 300, "a;b", "$(x)"]


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_names_of_a_profile(tmp_path, name):
    "What becomes the name of a folder or a wildcard of the engine."
    from embryo.batch.plan import Plan

    key = json.dumps(name)
    for text in (
        f"profile = {key}\n",
        f'profile = "x"\n[corpora.{key}]\npath = "a.txt"\n',
        f'profile = "x"\n[series]\n{key} = "a/b-1"\n',
        f'profile = "x"\n[results.{key}]\ntemplate = "appendix"\n',
    ):
        (tmp_path / "p.toml").write_text(text + '[data]\nprovider = "microworld"\n')
        refuses(
            "expected the name of a folder" if text.startswith(f"profile = {key}") else "is no name for",
            Plan,
            tmp_path / "p.toml",
            root=tmp_path / "root",
        )
    assert not (tmp_path / "root").exists()


def test_parameters_stay_data():
    "papermill writes parameters into a notebook as Python: whatever a text holds, it comes back as the same text."
    from papermill.translators import PythonTranslator

    hard = [
        *HOSTILE,
        '"',
        "'",
        '"""',
        "\\",
        '\\"',
        "\\\\'",
        '"+__import__("os").system("touch RUN")+"',
        "\n__import__('os')",
        "{x}",
        "%s",
        "\u2028",
        "\ud7ff",
        "\0",
        "#",
        "x\r\ny",
        "é",
        "日",
    ]
    given = dict(
        text="".join(hard),
        each=hard,
        table={h: h for h in hard},
        nested=[{"a": [h, {h: None}]} for h in hard],
        number=1.5,
        no=None,
        yes=True,
    )
    got = {n.targets[0].id: ast.literal_eval(n.value) for n in ast.parse(PythonTranslator.codify(given)).body}
    assert got == given


def test_parameters_that_a_template_has_not():
    from embryo.batch.templates import check_parameters

    for name in ("__import__", "out\nimport os", "x"):
        refuses("unknown parameter", check_parameters, "corpus", {name: 1})


def test_function_of_a_profile_is_code_and_only_that(tmp_path, canary):
    "The one door that runs the reader's own code needs a .py file that is named; text and paths do not open it."
    from embryo.corpora.l1s import own_function

    (tmp_path / "evil.txt").write_text(f"open({str(canary)!r}, 'w')")
    for f in (f"{tmp_path}/evil.txt:f", f"{tmp_path}/evil.py", "os:system", f"{tmp_path}/none.py:f"):
        refuses("", own_function, f)


# ---- what is installed
# -------------------------------------------------------------------------------------------------


def pins():
    """(name, pinned version, installed version, required by, direct URL) of everything that the project pulls in here,
    and pins of which that is not so."""
    import tomllib
    from importlib.metadata import PackageNotFoundError, distribution, distributions

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name as plain

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {}
    for n, line in enumerate((ROOT / "constraints.txt").read_text().splitlines(), 1):
        r = Requirement(line)
        assert (
            [s.operator for s in r.specifier] == ["=="]
            and "*" not in str(r.specifier)
            and not r.url
            and plain(r.name) not in pinned
        ), f"constraints.txt, line {n}: {line}; expected one name==version, once"
        pinned[plain(r.name)] = next(iter(r.specifier)).version
    todo = [(Requirement(x), "embryo", "") for x in project["dependencies"]] + [
        (Requirement(x), "embryo[dev]", "") for x in project["optional-dependencies"]["dev"]
    ]
    here = {plain(d.name) for d in distributions()}
    # what `make` installs when it is asked for: all of a group, or none
    groups = {g: [Requirement(x) for x in xs] for g, xs in project["optional-dependencies"].items() if g != "dev"}
    away = {g for g, rs in groups.items() if not {plain(r.name) for r in rs} <= here}
    todo += [(r, f"embryo[{g}]", "") for g in set(groups) - away for r in groups[g]]
    by = {}
    seen = set()
    while todo:
        r, who, extra = todo.pop()
        if r.marker and not r.marker.evaluate({"extra": extra}):
            continue
        name = plain(r.name)
        by.setdefault(name, set()).add(who)
        for e in {"", *r.extras} - {e for n, e in seen if n == name}:
            seen.add((name, e))
            try:
                todo += [(Requirement(x), name, e) for x in distribution(name).requires or []]
            except PackageNotFoundError:
                pass
    out = []
    for name in sorted({*by, *pinned}):
        try:
            d = distribution(name)
        except PackageNotFoundError:
            d = None
        if away and d is None and name not in by:
            continue  # a pin of a group that is not installed here
        out.append(
            (
                name,
                pinned.get(name, ""),
                d.version if d else "",
                ", ".join(sorted(by.get(name, ()))),
                (d.read_text("direct_url.json") or "") if d else "",
            )
        )
    return out


def complaints(rows):
    """What is wrong with the pins, one sentence each.
    (What torch's CUDA build brings along is fixed by torch itself, and absent elsewhere.)"""
    # 2.13.0+cpu is a build of 2.13.0
    same = lambda a, b: a.split("+")[0] == b.split("+")[0]
    return [
        f"{n}: {what}"
        for n, pin, here, by, url in rows
        for what in [
            (
                "required by " + by + " and not pinned"
                if by and here and not pin and not n.startswith(("nvidia-", "cuda-", "triton"))
                else (
                    "required by " + by + " and not installed"
                    if by and not here and not n.startswith(("nvidia-", "cuda-", "triton"))
                    else (
                        f"pinned at {pin} and installed at {here}"
                        if pin and here and not same(pin, here)
                        else (
                            "pinned and required by nothing"
                            if pin and not by
                            else f"installed from {url}"
                            if by and url
                            else ""
                        )
                    )
                )
            )
        ]
        if what
    ]


def test_every_dependency_is_pinned(tmp_path):
    rows = pins()
    if os.environ.get("EMBRYO_SKIP_PINS"):
        pytest.skip("EMBRYO_SKIP_PINS is set: an environment that `make` did not install")
    assert len(rows) > 100 and not complaints(rows), "\n".join(complaints(rows))


def test_the_pin_report_sees_it():
    good = ("a", "1.0", "1.0+cpu", "embryo", "")
    assert not complaints([good])
    for bad, said in (
        (("a", "", "1.0", "b", ""), "not pinned"),
        (("a", "1.0", "1.1", "b", ""), "installed at 1.1"),
        (("a", "1.0", "1.0", "", ""), "required by nothing"),
        (("a", "1.0", "", "b", ""), "not installed"),
        (("a", "1.0", "1.0", "b", '{"url": "file:///x"}'), "installed from"),
    ):
        assert said in complaints([good, bad])[0]


if __name__ == "__main__":  # make audit-pins
    for n, pin, here, by, _ in pins():
        print(f"{n:40s} {pin:14s} {here:14s} {by}")
    wrong = complaints(pins())
    print(*wrong or ["every dependency is pinned at the version that is installed"], sep="\n")
    sys.exit(bool(wrong))
