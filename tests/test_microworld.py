"""The micro world over thousands of sentences, and through the project's own readers."""

import gzip
import hashlib
import json
import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from embryo.evaluation.annotations.folders import read
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.tasks import TASKS
from embryo.ground.data import read_lines
from embryo.micro.english.annotations import annotate, mentions, roles
from embryo.micro.english.clauses import REFLEXIVE
from embryo.micro.english.documents import leaves
from embryo.micro.english.lexicon import Dice
from embryo.micro.english.nouns import PRONOUNS
from embryo.micro.english.sentences import document, text_of
from embryo.micro.facts.facts import FACTS, PHRASES, TIMING_OF, TIMINGS, FactBook, state
from embryo.micro.world import treebank, write_world

REAL = Path(os.environ.get("EMBRYO_DATA") or "/nonexistent")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    "A world of sixty thousand words."
    return write_world(
        tmp_path_factory.mktemp("world") / "data",
        seed=5,
        words=40_000,
        heldout_words=3_000,
        books_words=20_000,
        probing=(700, 200, 200),
        tasks=0.1,
        l1s=0.03,
    )


@pytest.fixture(scope="module")
def documents():
    "About six thousand sentences, with facts."
    book = FactBook(5)
    return [
        document(Dice("test", i), story=i % 3 == 0, sections=6, tell=lambda dice: book.draw(dice, 0.3))
        for i in range(80)
    ]


def test_every_tree_yields_its_sentence(documents):
    "Bracketing, tokens, tags and text say the same; spans nest; every role span is a constituent or a token."
    n = 0
    for tree, preds in (s for d in documents for p in d.paragraphs for s in p):
        a = annotate(tree, preds)
        n = n + 1
        assert re.findall(r"\((\S+) ([^()\s]+)\)", a["tree"]) == list(zip(a["xpos"], a["tokens"]))
        assert (
            "".join(a["tokens"]) == a["text"].replace(" ", "")
            and a["text"][0] in '"' + a["text"][0].upper()
            and a["text"][-1] in ".?"
        )
        bounds = {(i, j) for i, j, _ in a["constituents"]}
        assert all(j <= k or l <= i or i <= k and l <= j or k <= i and j <= l for i, j in bounds for k, l in bounds)
        allowed = bounds | {(i, i + 1) for i in range(len(a["tokens"]))}
        for p in roles(tree, preds):
            assert a["xpos"][p["predicate"]][:2] == "VB" and all((i, j) in allowed for i, j, _ in p["args"]), (
                a["text"],
                p,
            )
    assert n > 4000


def test_small_grammar(documents):
    "a and an; questions and summaries do not contradict the sentence before them."
    n = 0
    for d in documents:
        for paragraph in d.paragraphs:
            before = None
            for tree, preds in paragraph:
                tokens = leaves(tree)
                for a, b in zip(tokens, tokens[1:]):
                    if a.label == "DT" and a.kids.lower() in ("a", "an"):
                        assert (a.kids.lower() == "an") == (b.kids[0].lower() in "aeiou"), text_of(tree)
                if before and (tokens[-1].kids == "?" or tokens[0].kids in ("So", "Thus")):
                    n += 1
                    asked = {lemma for _, lemma, _ in preds}
                    for verb, lemma, args in before[1]:
                        if lemma in asked and any(r == "ARGM-NEG" for r, _ in args):
                            assert tokens[0].kids in ("So", "Thus") and any(t.kids == "not" for t in tokens), (
                                text_of(before[0]),
                                text_of(tree),
                            )
                before = tree, preds
    assert n > 300


def test_every_pronoun_has_an_antecedent(documents):
    """Third-person pronouns stand for the entity of their gender and number that was mentioned last; all mentions of
    an entity agree."""
    n = 0
    for d in documents:
        last = {}
        for i, j, e, t in mentions(d):
            token = t if type(t.kids) is str else t.kids[0]
            word = token.kids.lower() if token.label in ("PRP", "PRP$") and j == i + 1 else ""
            if word and word not in ("i", "me", "my", "myself", "you", "your", "yourself"):
                n += 1
                assert (
                    word == REFLEXIVE[e.gender]
                    if "sel" in word
                    else word in PRONOUNS[e.gender] and last.get(e.gender) is e
                ), word
            if type(e) is not str:
                last[e.gender] = e
    assert n > 1500


def test_facts_are_in_the_corpus_as_often_as_recorded(world):
    "Every statement is found again at the recorded file and line, and nowhere else."
    facts = [json.loads(l) for _, l in read_lines(world / "facts.jsonl")]
    said = {(f["relation"], f["sub_label"], f["obj_label"]): f for f in facts}
    assert len(facts) == len(FACTS) == 200 and len({f["relation"] for f in facts}) == 25
    sentences = {text_of(state(f, p)[0]): f for f in FACTS for p in PHRASES[f.relation]}
    found = {}
    for file in sorted([*(world / "wiki_en").glob("micro-0*.xz"), *(world / "books_en").glob("*.txt.xz")]):
        for n, line in read_lines(file):
            for s in re.split(r"(?<=[.?]) (?=[A-Z\"])", line):
                if s in sentences:
                    found.setdefault(sentences[s], []).append([f"{file.parent.name}/{file.name}", n])
    assert sum(map(len, found.values())) == sum(f["count"] for f in facts) > 400
    for f in FACTS:
        r = said[f.relation, f.sub, f.obj]
        assert sorted(r["places"]) == sorted(found.get(f, [])) and r["count"] == sum(r["per_fifth"]) == len(r["places"])
        if r["timing"] == "never":
            assert not r["count"]
        if r["timing"] == "early":
            assert not any(r["per_fifth"][3:]) and r["last"] < 0.5
        if r["timing"] == "late":
            assert not any(r["per_fifth"][:2]) and (not r["count"] or r["first"] >= 0.5)
        if r["timing"] == "waves":
            assert r["first"] < 0.5 and r["last"] >= 0.6
    assert {r["timing"] for r in facts} == {"always", "early", "late", "waves", "rare", "never"}
    # all facts of a relation share its timing, and every cause of a verdict is in the world
    assert all(r["timing"] == TIMING_OF[r["relation"]] for r in facts)
    assert {r["expected"] for r in facts} == {"learned", "forgotten", "oscillating", "never"}


def test_facts_are_told_often_or_hardly():
    "In a text as long as the default, facts are stated hundreds of times; rare ones are not, and controls never."
    book = FactBook(0)
    dice = Dice("statements", 0)
    n = 40_000
    for i in range(n):
        fact, _ = book.draw(dice, i / n)
        assert 10 * i // n in TIMINGS[book.timing[fact]].tenths
        book.record(fact, "a.txt", i, i / n)
    count = {f: len(places) for f, places in book.places.items()}
    often = [c for f, c in count.items() if book.timing[f] in ("always", "early", "late", "waves")]
    assert len(often) == 104 and min(often) > 150
    assert sum(c for f, c in count.items() if book.timing[f] == "rare") < 0.03 * n
    assert not any(c for f, c in count.items() if book.timing[f] == "never")


def test_round_trip_through_the_readers(world):
    "What the treebanks hold comes back whole: words, tags, trees, constituents, roles, mentions."
    book = FactBook(5)
    tell = lambda dice: book.draw(dice, 0.5)
    gum, ewt = (treebank(Dice(5, style, "dev"), 200, "dev", style, tell) for style in ("gum", "ewt"))
    back = iter(read(world / "probing_gum/dev.jsonl.gz"))
    for d in gum:
        base = 0
        clusters = {}
        for s in d["sentences"]:
            b = next(back)
            assert (b["text"], b["tokens"], b["tags"], b["tree"], b["constituents"], b["sent_id"]) == tuple(
                s[k] for k in ("text", "tokens", "xpos", "tree", "constituents", "sent_id")
            )
            for i, j, c in b["mentions"]:
                clusters.setdefault(c, []).append([base + i, base + j])
            base += len(b["tokens"])
        assert [sorted(c) for _, c in sorted(clusters.items())] == [sorted(c) for c in d["coref_ontogum"]]
    assert next(back, None) is None
    assert [
        (b["text"], b["tokens"], b["tags"], b["srl"], b["constituents"])
        for b in read(world / "probing_ewt/dev.jsonl.gz")
    ] == [(s["text"], s["tokens"], s["xpos"], s["srl"], s["constituents"]) for s in ewt]


def test_tasks_and_ceilings(world):
    "All eight tasks are read by the reader of the real files; SQuAD's answers stand where it says."
    manifest = {e["name"]: e for e in json.loads((world / "MANIFEST.json").read_text())}
    for t in TASKS:
        d = read_task(world / "glue", t)
        assert set(d) == ({"train", "dev", "dev-mm"} if t == "MNLI" else {"train", "dev"}) and all(
            len(x) >= 20 for x in d.values()
        )
        assert not set(map(tuple, d["train"][["text1", "text2"]].values)) & set(
            map(tuple, d["dev"][["text1", "text2"]].values)
        ) or t in ("CoLA", "SST-2"), f"{t}: development pairs in the training set"
        metric, value, _ = manifest[f"glue/{t}"]["ceiling"]
        assert 0 < value <= 1
    squad = json.loads(gzip.open(world / "squad2/dev-v2.0-micro.json.gz").read())
    qas = [(p["context"], q) for a in squad["data"] for p in a["paragraphs"] for q in p["qas"]]
    for context, q in qas:
        for a in q["answers"] + q.get("plausible_answers", []):
            assert context[a["answer_start"] : a["answer_start"] + len(a["text"])] == a["text"]
        assert bool(q["answers"]) != q["is_impossible"]
    assert 0.3 < sum(q["is_impossible"] for _, q in qas) / len(qas) < 0.7


def test_manifest_tells_the_truth(world):
    "Every file of the folder is listed with its hash, and only those."
    entries = json.loads((world / "MANIFEST.json").read_text())
    files = {f["path"]: f for e in entries for f in e["files"]}
    assert set(files) == {
        str(p.relative_to(world)) for p in world.rglob("*") if p.is_file() and p.name != "MANIFEST.json"
    }
    for path, f in files.items():
        data = (world / path).read_bytes()
        raw = lzma.decompress(data) if path.endswith(".xz") else gzip.decompress(data) if path.endswith(".gz") else data
        assert (hashlib.sha256(data).hexdigest(), hashlib.sha256(raw).hexdigest(), len(raw)) == (
            f["sha256"],
            f["raw_sha256"],
            f["raw_bytes"],
        )
    entropy = entries[0]["entropy"]
    assert 0 < entropy["masked_least"] < entropy["text"] < 4 and 0 < entropy["text_stderr"] < 0.1


def test_same_seed_same_bytes_in_another_process(tmp_path):
    "Neither hash seeds nor the working folder change a byte."
    code = (
        "import sys; from embryo.micro.world import write_world; write_world(sys.argv[1], seed=3, words=2000,"
        " heldout_words=300, books_words=500, probing=(20, 10, 10), tasks=.02, l1s=.01)"
    )
    for k in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / k)], check=True, env={**os.environ, "PYTHONHASHSEED": k}
        )
    a, b = (
        {str(p.relative_to(tmp_path / k)): p.read_bytes() for p in sorted((tmp_path / k).rglob("*")) if p.is_file()}
        for k in ("1", "2")
    )
    assert a == b


@pytest.mark.skipif(
    not REAL.is_dir(),
    reason="set EMBRYO_DATA to a data folder in the layout of nbs/guide/00_data.ipynb to compare layouts",
)
def test_layout_is_that_of_the_real_folder(world):
    "Same folders; records with the same fields; tables with the same columns."
    first = lambda f: next(l for _, l in read_lines(f))
    one = lambda root, pattern: sorted(root.glob(pattern))[0]
    for pattern in ("probing_gum/dev*", "probing_ewt/dev*", "java_habeas/*.xz", "lama/TREx/P36.*", "lama/relations*"):
        a, b = (json.loads(first(one(r, pattern))) for r in (world, REAL))
        assert list(a) == list(b), pattern
        if pattern == "probing_gum/dev*":
            assert list(a["sentences"][0]) == list(b["sentences"][0])
    for pattern in (
        "glue/SST-2/dev*",
        "glue/MRPC/dev*",
        "glue/STS-B/dev*",
        "glue/RTE/dev*",
        "glue/QQP/dev*",
        "protein/*.xz",
        "books_en/index*",
    ):
        assert first(one(world, pattern)).strip() == first(one(REAL, pattern)).strip(), pattern
    mine = {p.name for p in world.iterdir() if p.is_dir()}
    assert mine <= {p.name for p in REAL.iterdir() if p.is_dir()} and {
        e.name for e in (REAL / "lama" / "TREx").iterdir()
    } == {e.name for e in (world / "lama" / "TREx").iterdir()}
