"""embryo_fetch against a hub on this machine: the layout, what a kill leaves, what the network and the hub can do to
it."""

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embryo.corpora.fetching.fetch import fetch
from embryo.corpora.fetching.hub import Hub, Source, local_hub
from embryo.corpora.fetching.tasks import GLUE
from embryo.corpora.fetching.text import articles
from embryo.corpora.text import read_documents, text_files
from embryo.evaluation.annotations.folders import read_folder
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.tasks import TASKS
from embryo.ground.errors import EmbryoError
from embryo.ground.files import read_json
from embryo.ground.seeds import sha256

SMALL = dict(what="glue/RTE,wiki_en", wiki_mb=0.06, part_mb=0.01, progress=False)


def put(path, rows, names=(), **options):
    "A parquet file as the hub has them; `names` are those of the labels."
    table = pa.Table.from_pylist(rows)
    if names:
        table = table.replace_schema_metadata(
            {
                "huggingface": json.dumps(
                    {"info": {"features": {"label": {"names": list(names), "_type": "ClassLabel"}}}}
                )
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


def put_task(root, name, data):
    "Splits of `read_task` as parquet files with the hub's columns and label numbers."
    config, columns, words, files = GLUE[name]
    task = TASKS[name]
    columns = dict(c.split("=") for c in columns.split(","))
    for (_, split), frame in zip(files.items(), data.values()):
        rows = [
            {
                columns[task.text1]: a,
                **({columns[task.text2]: b} if task.text2 else {}),
                "label": words.index(task.labels[y]) if words else y,
                "idx": i,
            }
            for i, (a, b, y) in enumerate(frame.itertuples(index=False))
        ]
        put(root / f"nyu-mll/glue/{config}/{split}-00000-of-00001.parquet", rows, words)


def question(i, *starts):
    return dict(
        id=f"q{i}",
        title=f"A{i // 9}",
        context=f"The owl {i // 3}.",
        question=f"Who {i}?",
        answers=dict(text=["owl"] * len(starts), answer_start=list(starts)),
    )


@pytest.fixture(scope="module")
def repositories(lab, tmp_path_factory):
    "Eight tasks, questions, and two encyclopaedias in files of several row groups."
    root = tmp_path_factory.mktemp("hub")
    for name in GLUE:
        put_task(root, name, read_task(Path(lab["data"]) / "glue", name))
    for split, n in (("train", 40), ("validation", 12)):
        put(
            root / f"rajpurkar/squad_v2/squad_v2/{split}-00000-of-00001.parquet",
            [question(i, *([4] * (i % 3))) for i in range(n)],
        )
    for config, word in (("20231101.en", "owl"), ("20231101.kn", "ಗೂಬೆ")):
        for k in range(3):
            put(
                root / f"wikimedia/wikipedia/{config}/train-0000{k}-of-00003.parquet",
                row_group_size=20,
                rows=[
                    dict(
                        id=str(1000 * k + i),
                        url="u",
                        title=f"{word} {1000 * k + i}",
                        text="\n\n".join(f"{word} {1000 * k + i} {j} " * 9 for j in range(5)),
                    )
                    for i in range(100)
                ],
            )
    return root


@pytest.fixture
def hub(repositories, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with local_hub(repositories) as server:
        yield server


@pytest.fixture
def other(tmp_path, monkeypatch):
    "A hub to fill."
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with local_hub(tmp_path / "hub") as server:
        server.root = tmp_path / "hub"
        yield server


def command(tmp_path, *args, source="if __name__=='__main__': embryo_fetch()", **env):
    "Start the command, or other Python."
    (tmp_path / "run.py").write_text(f"from embryo.corpora.fetching.fetch import embryo_fetch, fetch\n{source}\n")
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "run.py"), *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "0", **env},
    )


def refused(p, *words):
    out, err = p.communicate(timeout=60)
    said = [l for l in err.splitlines() if l.startswith("embryo_fetch: ")]
    assert p.returncode == 2 and len(said) == 1 and "Traceback" not in err, (p.returncode, out, err)
    for w in words:
        assert w in said[0], (w, err)


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def test_layout(hub, lab, tmp_path):
    "All readers take it, nothing is lost on the way, and the manifest is true."
    out = fetch(
        tmp_path / "data", wiki_mb=0.1, kn_mb=0.05, part_mb=0.03, heldout=0.1, endpoint=hub.endpoint, progress=False
    )
    for name in TASKS:
        for split, frame in read_task(out / "glue", name).items():
            truth = read_task(Path(lab["data"]) / "glue", name)[split]
            assert list(frame["text1"]) == list(truth["text1"]) and frame["text2"].equals(truth["text2"]), name
            assert (frame["label"] - truth["label"]).abs().max() < 1e-6, name
    train, held = ([d[0] for d in read_documents(text_files(out, ["wiki_en"], s))] for s in ("train", "heldout"))
    assert train and held and not set(train) & set(held)
    assert next(iter(read_documents(text_files(out, ["wiki_kn"]))))[0].startswith("ಗೂಬೆ") and not [
        f for f in (out / "wiki_kn").iterdir() if "heldout" in f.name
    ]
    squad = json.loads(gzip.open(out / "squad2/dev-v2.0.json.gz").read())
    asked = [(p["context"], q) for a in squad["data"] for p in a["paragraphs"] for q in p["qas"]]
    assert (
        len(asked) == 12
        and all(q["is_impossible"] == (not q["answers"]) for _, q in asked)
        and all(c[a["answer_start"] :].startswith(a["text"]) for c, q in asked for a in q["answers"])
    )
    entries = read_json(out / "MANIFEST.json")
    assert {e["name"] for e in entries} == {f"glue/{t}" for t in TASKS} | {"squad2", "wiki_en", "wiki_kn"}
    assert {f["path"] for e in entries for f in e["files"]} == {p for p in content(out) if p != "MANIFEST.json"}
    for e in entries:
        assert (
            re.fullmatch("[0-9a-f]{40}", e["sources"][0]["commit"])
            and e["licence"]
            and e["totals"]["bytes"] == sum(f["bytes"] for f in e["files"])
        )
        for f in e["files"]:
            assert sha256(out / f["path"]) == f["sha256"] and (out / f["path"]).stat().st_size == f["bytes"]
    wiki = next(e for e in entries if e["name"] == "wiki_en")
    assert 1e5 <= wiki["totals"]["raw_bytes"] < 1.1e5 and wiki["totals"]["blocks"] == len(train) + len(held)
    before = content(out)
    n = len(hub.requests)
    fetch(out, wiki_mb=0.1, kn_mb=0.05, part_mb=0.03, heldout=0.1, endpoint=hub.endpoint, progress=False)
    assert len(hub.requests) == n and content(out) == before


@pytest.mark.parametrize("share,files", [(0.1, 0), (0.4, 1), (0.7, 2), (1.0, 6)])
def test_killed_and_resumed(hub, tmp_path, share, files):
    "kill -9 after a share of the requests: no manifest, and the next run ends with the bytes of an undisturbed one."
    whole = content(fetch(tmp_path / "whole", **SMALL, endpoint=hub.endpoint))
    first = len(hub.requests)
    children = []
    n = max(2, round(first * share))
    hub.on_request = lambda k: os.kill(children[0].pid, signal.SIGKILL) or 500 if k == first + n else 0
    children.append(command(tmp_path, source=f"fetch({str(tmp_path / 'data')!r}, **{SMALL})", HF_ENDPOINT=hub.endpoint))
    assert children[0].wait(60) == -signal.SIGKILL and not (tmp_path / "data/MANIFEST.json").exists()
    known = (
        {
            f["path"]: (tmp_path / "data" / f["path"]).stat().st_mtime_ns
            for e in read_json(tmp_path / "data/MANIFEST.partial.json")
            for f in e["files"]
        }
        if files
        else {}
    )
    hub.on_request = lambda k: 0
    assert content(fetch(tmp_path / "data", **SMALL, endpoint=hub.endpoint)) == whole
    assert {p: (tmp_path / "data" / p).stat().st_mtime_ns for p in known} == known and len(known) >= files


def test_hub_that_fails_and_comes_back(hub, tmp_path):
    "What was fetched before the failure is not fetched again."
    whole = content(fetch(tmp_path / "whole", **SMALL, endpoint=hub.endpoint))
    first = len(hub.requests)
    # the last piece does not come
    hub.on_request = lambda k: 403 if k > first + first - 1 else 0
    with pytest.raises(EmbryoError, match="cannot reach the hub for wikimedia/wikipedia.*goes on from there"):
        fetch(tmp_path / "data", **SMALL, endpoint=hub.endpoint)
    assert not (tmp_path / "data/MANIFEST.json").exists() and (tmp_path / "data/MANIFEST.partial.json").exists()
    hub.on_request = lambda k: 0
    failed = len(hub.requests)
    assert content(fetch(tmp_path / "data", **SMALL, endpoint=hub.endpoint)) == whole
    assert not any("glue" in r for r in hub.requests[failed:]) and len(hub.requests) - failed < first / 2
    # one file is damaged later: it alone is made again
    (tmp_path / "data/glue/RTE/dev.tsv.gz").write_bytes(b"damaged")
    failed = len(hub.requests)
    assert content(fetch(tmp_path / "data", **SMALL, endpoint=hub.endpoint)) == whole
    assert {r.split("/")[-1] for r in hub.requests[failed:] if "resolve" in r} == {"validation-00000-of-00001.parquet"}


def test_no_network(tmp_path, repositories):
    with local_hub(repositories) as gone:
        pass
    refused(
        command(tmp_path, tmp_path / "data", HF_ENDPOINT=gone.endpoint),
        "cannot reach the hub for nyu-mll/glue",
        gone.endpoint,
        "copy a data folder",
        "micro",
    )
    refused(
        command(tmp_path, tmp_path / "data", HF_HUB_OFFLINE="1"),
        "cannot reach the hub for nyu-mll/glue",
        "OfflineModeIsEnabled",
    )
    assert not (tmp_path / "data").exists()


def test_unusable_requests(tmp_path, repositories):
    refused(command(tmp_path, tmp_path / "data", "--what", "wiki_eng"), "did you mean wiki_en")
    with pytest.raises(EmbryoError, match="expected owner/name"):
        fetch(tmp_path / "data", sources={"glue": "../../glue"})
    with pytest.raises(EmbryoError, match="did you mean glue"):
        fetch(tmp_path / "data", sources={"gleu": "a/b"})
    with pytest.raises(EmbryoError, match="heldout=1"):
        fetch(tmp_path / "data", heldout=1)


@pytest.mark.parametrize(
    "name",
    [
        "../../evil.parquet",
        "rte/../../evil.parquet",
        "/etc/evil.parquet",
        "rte\\evil.parquet",
        "rte/train\n.parquet",
        "./rte/train.parquet",
    ],
)
def test_hostile_file_name(hub, tmp_path, name):
    hub.extra = [dict(rfilename=name, size=10)]
    with pytest.raises(EmbryoError, match="leads out of its folder; nothing of it is read"):
        fetch(tmp_path / "data", **SMALL, endpoint=hub.endpoint)
    assert not any("resolve" in r for r in hub.requests) and set(content(tmp_path)) == {"data/MANIFEST.partial.json"}


def test_hostile_commit(other, tmp_path, monkeypatch):
    "What becomes part of an address is a hash and nothing else."
    (other.root / "a/b").mkdir(parents=True)
    (other.root / "a/b/train.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr("hashlib.sha1", lambda b: type("H", (), {"hexdigest": lambda self: "../../x"})())
    with pytest.raises(EmbryoError, match="names no commit"):
        fetch(tmp_path / "d", "wiki_kn", {"wiki_kn": "a/b"}, endpoint=other.endpoint, progress=False)


def test_script_only(other, tmp_path):
    (other.root / "nyu-mll/glue").mkdir(parents=True)
    (other.root / "nyu-mll/glue/glue.py").write_text("raise SystemExit('I ran')")
    with pytest.raises(
        EmbryoError, match=r"only a loading script \(glue.py\), and scripts are never run.*refs/convert/parquet"
    ):
        fetch(tmp_path / "d", **SMALL, endpoint=other.endpoint)
    assert not any("glue.py" in r for r in other.requests)


def test_damaged_and_other_parquet(other, tmp_path):
    def refused(why):
        with pytest.raises(EmbryoError, match=why):
            fetch(tmp_path / "d", what="glue/RTE", endpoint=other.endpoint, progress=False)
        shutil.rmtree(tmp_path / "d")

    f = other.root / "nyu-mll/glue/rte/train-00000-of-00001.parquet"
    put(f, [dict(sentence1="a", sentence2="b", label=0, idx=0)] * 500)
    put(f.with_name("validation-00000-of-00001.parquet"), [dict(sentence1="a", sentence2="b", label=-1, idx=0)])
    good = f.read_bytes()
    f.write_bytes(good[:-20] + b"x" * 20)
    refused("file rte/train-00000-of-00001.parquet: not a parquet file")
    f.write_bytes(b"\0" * 60 + good[60:])
    refused("file rte/train-00000-of-00001.parquet: not a parquet file")
    put(f, [dict(sentence1="a", sentence2="b", label=0, idx=0)], ("not_entailment", "entailment"))
    refused("its labels are not_entailment, entailment; expected entailment, not_entailment")
    put(f, [dict(premise="a", sentence2="b", label=0, idx=0)])
    refused("no column sentence1; found: premise")
    put(f, [dict(sentence1="a", sentence2="b", label=0, idx=0)])
    refused("label -1 in row 0; expected 0 to 1")


def test_what_others_put_there_stays(hub, tmp_path):
    (tmp_path / "data/glue/RTE").mkdir(parents=True)
    (tmp_path / "data/glue/RTE/train.tsv").write_text("mine")
    with pytest.raises(EmbryoError, match="has files that embryo_fetch did not write"):
        fetch(tmp_path / "data", **SMALL, endpoint=hub.endpoint)
    entries = [dict(name="books_en", files=[dict(path="books_en/b.txt", bytes=1, sha256="0" * 64)])]
    (tmp_path / "data/MANIFEST.json").write_text(json.dumps(entries))
    (tmp_path / "data/glue/RTE/train.tsv").unlink()
    fetch(tmp_path / "data", **SMALL, endpoint=hub.endpoint)
    assert read_json(tmp_path / "data/MANIFEST.json")[0] == entries[0]


def test_pinned_to_a_commit(other, tmp_path):
    "When the hub moves on, a folder does not."
    rows = lambda n: [dict(title=f"t{i}", id=str(i), text=f"text {n} {i} " * 50) for i in range(50)]
    put(other.root / "me/kannada/data/train-00000.parquet", rows(1))
    options = dict(
        what="wiki_kn", sources={"wiki_kn": "me/kannada"}, part_mb=0.005, endpoint=other.endpoint, progress=False
    )
    fetch(tmp_path / "d", kn_mb=0.01, **options)
    old = read_json(tmp_path / "d/MANIFEST.json")[0]["sources"][0]["commit"]
    put(other.root / "me/kannada/data/train-00000.parquet", rows(2))
    # this hub forgets old commits; the real one keeps them
    with pytest.raises(EmbryoError, match="me/kannada"):
        fetch(tmp_path / "d", kn_mb=0.02, **options)
    assert read_json(tmp_path / "d/MANIFEST.json")[0]["sources"][0]["commit"] == old
    fetch(tmp_path / "new", kn_mb=0.02, **options)
    new = read_json(tmp_path / "new/MANIFEST.json")[0]["sources"][0]["commit"]
    assert new != old
    # named: the folder moves
    fetch(tmp_path / "d", kn_mb=0.02, **{**options, "sources": {"wiki_kn": f"me/kannada@{new}"}})
    assert {k: v for k, v in content(tmp_path / "d").items() if "MANIFEST" not in k} == {
        k: v for k, v in content(tmp_path / "new").items() if "MANIFEST" not in k
    }


def test_reads_only_what_it_needs(other):
    "A sample of one group in ten does not download the file."
    import random

    r = random.Random(0)
    put(
        other.root / "wikimedia/wikipedia/20231101.en/train-00000-of-00001.parquet",
        [dict(id=str(i), title="t", url="u" * 50, text=r.randbytes(2000).hex()) for i in range(400)],
        row_group_size=40,
    )
    hub = Hub(other.endpoint)
    stream = articles(hub, hub.pin(Source("wikimedia/wikipedia", "20231101.en")), 0)
    for _ in range(30):
        next(stream)
    file = hub.opened[0]
    assert file.received < 0.2 * file.size, (file.received, file.size)


def test_lama_from_hub_and_from_files(other, tmp_path):
    "Both ways give the same facts."
    facts = [
        dict(uuid=f"u{i}", obj_uri="Q1", obj_label="Paris", sub_uri=f"Q{i}", sub_label=f"S{i}", predicate_id=p)
        for p in ("P19", "P1001")
        for i in range(6)
    ]
    about = dict(template="[X] is [Y] .", label="l", description="d", type="N-1")
    put(
        other.root / "facebook/lama/trex/train/0000.parquet",
        [dict(f, **about, masked_sentence=f"[MASK] {k}") for f in facts for k in range(3)],
    )
    a = fetch(tmp_path / "a", "lama", endpoint=other.endpoint, progress=False)
    for p in ("P19", "P1001"):
        (tmp_path / "original/TREx").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"original/TREx/{p}.jsonl").write_text(
            "".join(json.dumps(dict(f, evidences=[])) + "\n" for f in facts if f["predicate_id"] == p)
        )
    (tmp_path / "original/relations.jsonl").write_text(
        "".join(json.dumps(dict(relation=p, **about)) + "\n" for p in ("P19", "P1001"))
    )
    n = len(other.requests)
    b = fetch(tmp_path / "b", "lama", {"lama": str(tmp_path / "original")}, endpoint=other.endpoint, progress=False)
    assert len(other.requests) == n
    files = [{k: gzip.decompress(v) for k, v in content(d).items() if "MANIFEST" not in k} for d in (a, b)]
    assert files[0] == files[1] and set(files[0]) == {
        "lama/relations.jsonl.gz",
        "lama/TREx/P19.jsonl.gz",
        "lama/TREx_other/P1001.jsonl.gz",
    }
    assert json.loads(files[0]["lama/TREx/P19.jsonl.gz"].splitlines()[0]) == facts[0]


TEMPLATES = [
    dict(relation=p, template="[X] is [Y] .", label="l", description="d", type="N-1") for p in ("P19", "P1001")
]
# the last uuid repeats the first
FACTS = [
    dict(
        uuid=f"u{i % 5}",
        obj_uri="Q1",
        obj_label="Paris",
        sub_uri=f"Q{i}",
        sub_label=f"S{i}",
        predicate_id=p,
        evidences=[dict(masked_sentence="x")],
    )
    for p in ("P19", "P1001")
    for i in range(6)
]


def lama_archive(path, facts=FACTS, templates=TEMPLATES, prefix="data/", **more):
    "An archive in the layout of LAMA's data.zip, with files of its other parts."
    lines = lambda rows: "".join(json.dumps(r) + "\n" for r in rows)
    files = {
        f"{prefix}relations.jsonl": lines(templates),
        f"{prefix}Google_RE/place_of_birth_test.jsonl": "{}\n",
        f"{prefix}Squad/test.jsonl": "{}\n",
    }
    for p in sorted({f["predicate_id"] for f in facts}):
        files[f"{prefix}TREx/{p}.jsonl"] = lines([f for f in facts if f["predicate_id"] == p])
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for n, text in {**files, **more}.items():
            z.writestr(n, text)
    return path


def fetch_lama(tmp_path, source, out="d"):
    return fetch(tmp_path / out, "lama", {"lama": str(source)}, progress=False)


def test_lama_archive(tmp_path):
    "The zip and its unpacked folder give the same files; every fact stays, with its fields."
    z = lama_archive(tmp_path / "data.zip")
    a = fetch_lama(tmp_path, z, "a")
    shutil.unpack_archive(z, tmp_path / "unpacked")
    b = fetch_lama(tmp_path, tmp_path / "unpacked", "b")
    texts = [{k: gzip.decompress(v) for k, v in content(d).items() if "MANIFEST" not in k} for d in (a, b)]
    assert texts[0] == texts[1] and set(texts[0]) == {
        "lama/relations.jsonl.gz",
        "lama/TREx/P19.jsonl.gz",
        "lama/TREx_other/P1001.jsonl.gz",
    }
    keep = ("predicate_id", "sub_label", "obj_label", "sub_uri", "obj_uri", "uuid")
    assert [json.loads(l) for l in texts[0]["lama/TREx/P19.jsonl.gz"].splitlines()] == [
        {k: f[k] for k in keep} for f in FACTS if f["predicate_id"] == "P19"
    ]
    e = read_json(a / "MANIFEST.json")[0]
    assert (
        e["totals"]["rows"] == len(FACTS) + 2
        and "BY-NC" in e["licence"]
        and e["sources"][0]["repository"] == "files of the user"
    )
    assert all(sha256(a / f["path"]) == f["sha256"] for f in e["files"])
    before = {p: (a / p).stat().st_mtime_ns for p in content(a)}
    fetch_lama(tmp_path, z, "a")
    assert {p: (a / p).stat().st_mtime_ns for p in content(a)} == before  # nothing is made again
    (a / "lama/TREx/P19.jsonl.gz").write_bytes(b"damaged")
    fetch_lama(tmp_path, z, "a")
    assert gzip.decompress((a / "lama/TREx/P19.jsonl.gz").read_bytes()) == texts[0]["lama/TREx/P19.jsonl.gz"]
    # another archive: another folder
    fetch_lama(tmp_path, lama_archive(z, FACTS[:3], TEMPLATES), "a")
    assert (
        read_json(a / "MANIFEST.json")[0]["totals"]["rows"] == 3 + 2
        and not (a / "lama/TREx_other").exists()
        or not list((a / "lama/TREx_other").iterdir())
    )


@pytest.mark.parametrize(
    "change,message",
    [
        (dict(obj_label=None), r"data.zip, data/TREx/P19.jsonl, line 2: obj_label is None; expected text"),
        (dict(sub_label=" "), "line 2: sub_label is ' '"),
        (dict(sub_uri=7), "line 2: sub_uri is 7; expected text or nothing"),
    ],
)
def test_lama_line_by_line(tmp_path, change, message):
    with pytest.raises(EmbryoError, match=message):
        fetch_lama(tmp_path, lama_archive(tmp_path / "data.zip", [FACTS[0], FACTS[1] | change]))
    assert not (tmp_path / "d/MANIFEST.json").exists() and not (tmp_path / "d/lama").exists()


@pytest.mark.parametrize(
    "more,message",
    [
        (
            {"data/TREx/P20.jsonl": json.dumps(FACTS[0]) + "\n"},
            "P20.jsonl, line 1: predicate_id 'P19' in the file of P20",
        ),
        ({"data/TREx/P20.jsonl": "[1]\n"}, "P20.jsonl, line 1: not a JSON object"),
        ({"data/TREx/P20.jsonl": '{"uuid": '}, "P20.jsonl, line 1: not JSON"),
        ({"data/TREx/P20.jsonl": b"\xff\n"}, "P20.jsonl, line 1: byte 0xff is not UTF-8"),
        ({"data/TREx/P20.jsonl": json.dumps(dict(FACTS[0], predicate_id="P20"))}, "facts of P20 without a template"),
        (
            {"data/relations.jsonl": '{"relation": "P19", "template": "[X]"}'},
            r"relations.jsonl, line 1: relation 'P19' with the template '\[X\]'",
        ),
        ({"data/TREx/../../P20.jsonl": "{}"}, "leads out of its folder"),
        ({"/etc/TREx/P20.jsonl": "{}"}, "leads out of its folder"),
        ({"data\\TREx\\..\\P20.jsonl": "{}"}, "leads out of its folder"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_lama_bad_archive(tmp_path, more, message):
    with pytest.raises(EmbryoError, match=message) as e:
        fetch_lama(tmp_path, lama_archive(tmp_path / "data.zip", **more))
    assert "\n" not in str(e.value) and not (tmp_path / "d/lama").exists() and not list(tmp_path.rglob("P20*"))


def test_lama_that_is_no_archive(tmp_path):
    whole = lama_archive(tmp_path / "data.zip").read_bytes()
    (tmp_path / "data.zip").write_bytes(whole[:-100])
    with pytest.raises(EmbryoError, match="data.zip: not a zip archive that can be read"):
        fetch_lama(tmp_path, tmp_path / "data.zip")
    at = whole.index(b"P19.jsonl") + 9
    (tmp_path / "data.zip").write_bytes(whole[:at] + bytes(20) + whole[at + 20 :])
    with pytest.raises(EmbryoError, match="TREx/P19.jsonl, after line 0: damaged"):
        fetch_lama(tmp_path, tmp_path / "data.zip")
    with pytest.raises(EmbryoError, match="none.zip: no such folder or archive"):
        fetch_lama(tmp_path, tmp_path / "none.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(EmbryoError, match="empty: expected TREx/P"):
        fetch_lama(tmp_path, tmp_path / "empty")


def gold(doc, words, end=True):
    return (
        f"#begin document ({doc}); part 000\n"
        + "".join(
            f"{doc}   0   {i}   {w}   NN   {'(TOP(NP*' if i == 0 else '*'}{'))' if i == len(words) - 1 else ''}   -   -"
            f"   -   -   *   {'(0)' if i == 0 else '-'}\n"
            for i, w in enumerate(words)
        )
        + ("\n#end document\n" if end else "")
    )


def ontonotes(root, languages=("english", "chinese")):
    for part in ("train", "development", "test", "conll-2012-test"):
        for language in languages:
            for k in range(3):
                f = root / f"v4/data/{part}/data/{language}/annotations/nw/a/{k}.v4_gold_conll"
                f.parent.mkdir(parents=True, exist_ok=True)
                f.write_text(gold(f"nw/a/{k}", [part, language, str(k)][: k + 1]))
                f.with_suffix(".v4_gold_skel").write_text("skeleton")
                f.with_suffix(".v4_auto_conll").write_text("automatic")
    return root


def fetch_ontonotes(tmp_path, source, out="d"):
    return fetch(tmp_path / out, "probing_ontonotes", {"probing_ontonotes": str(source)}, progress=False)


def test_ontonotes(tmp_path):
    "One file a part, nothing changed, and what the readers find there is what they find in the release."
    root = ontonotes(tmp_path / "release")
    out = fetch_ontonotes(tmp_path, root)
    assert set(content(out)) == {
        "MANIFEST.json",
        *(f"probing_ontonotes/{s}.conll.gz" for s in ("train", "dev", "test")),
    }
    files = sorted((root / "v4/data/development/data/english").rglob("*gold_conll"))
    assert gzip.decompress((out / "probing_ontonotes/dev.conll.gz").read_bytes()).decode() == "".join(
        f.read_text() for f in files
    )
    parts = read_folder(out / "probing_ontonotes")
    assert parts == read_folder(root) and [s["tokens"] for s in parts["test"]] == [
        ["test"],
        ["test", "english"],
        ["test", "english", "2"],
    ]
    e = read_json(out / "MANIFEST.json")[0]
    assert [{k: f[k] for k in ("path", "files", "documents", "rows", "words")} for f in e["files"]] == [
        dict(path=f"probing_ontonotes/{s}.conll.gz", files=3, documents=3, rows=3, words=6)
        for s in ("dev", "test", "train")
    ]
    assert (
        "LDC2013T19" in e["licence"]
        and "not to be passed on" in e["licence"]
        and all(sha256(out / f["path"]) == f["sha256"] for f in e["files"])
    )


def test_ontonotes_goes_on(tmp_path):
    "A part that cannot be used stops the work; the parts before it stay, and are not made again."
    root = ontonotes(tmp_path / "release")
    whole = content(fetch_ontonotes(tmp_path, root, "whole"))
    bad = next(iter(sorted((root / "v4/data/test/data/english").rglob("1.v4_gold_conll"))))
    good = bad.read_text()
    bad.write_text(gold("nw/a/1", ["test", "english"], end=False))
    with pytest.raises(
        EmbryoError, match=r"test/data/english/annotations/nw/a/1.v4_gold_conll: the document of .*line 1 does not end"
    ):
        fetch_ontonotes(tmp_path, root)
    assert {*content(tmp_path / "d")} == {
        "MANIFEST.partial.json",
        "probing_ontonotes/train.conll.gz",
        "probing_ontonotes/dev.conll.gz",
    }
    kept = {p: (tmp_path / "d" / p).stat().st_mtime_ns for p in content(tmp_path / "d") if "MANIFEST" not in p}
    bad.write_text(good)
    assert content(fetch_ontonotes(tmp_path, root)) == whole
    assert {p: (tmp_path / "d" / p).stat().st_mtime_ns for p in kept} == kept


@pytest.mark.parametrize(
    "text,message",
    [
        ("a 0 0 b c\n", "line 1: a word outside"),
        ("#begin document (a); part 000\na 0 0 b c\n", "line 2: 5 columns"),
        (gold("a", ["[WORD]"]), r"line 2: \[WORD\] in place of a word"),
        (gold("a", ["x"], end=False) + gold("b", ["y"]), "line 3: '#begin document .* inside the document of"),
    ],
)
def test_ontonotes_bad_file(tmp_path, text, message):
    root = ontonotes(tmp_path / "release")
    next(iter(sorted((root / "v4/data/train/data/english").rglob("*gold_conll")))).write_text(text)
    with pytest.raises(EmbryoError, match=f"0.v4_gold_conll, {message}") as e:
        fetch_ontonotes(tmp_path, root)
    assert "\n" not in str(e.value) and not (tmp_path / "d/probing_ontonotes").exists()


def test_ontonotes_without_a_folder(tmp_path):
    refused(
        command(tmp_path, tmp_path / "d", "--what", "probing_ontonotes"),
        "OntoNotes is licensed",
        "give your own folder",
    )
    root = ontonotes(tmp_path / "release")
    shutil.rmtree(root / "v4/data/development")
    with pytest.raises(EmbryoError, match=r"no \*gold_conll file below a folder development; found 9 others"):
        fetch_ontonotes(tmp_path, root)
    assert not (tmp_path / "d").exists()
