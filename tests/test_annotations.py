"""Annotations: CoNLL-2012 against expectations written by hand, the micro world there and back, folders, and what
is refused."""

import gzip
import json
import random
import re
from pathlib import Path

import pytest
from test_real_data import DATA

from embryo.evaluation.annotations.conll import column_spans, conll_mentions
from embryo.evaluation.annotations.folders import read, read_folder, read_split
from embryo.evaluation.annotations.sentences import tree_spans
from embryo.ground.errors import EmbryoError

# One document of two sentences, one without a parse, as the shared task writes them. Made by hand.
HAND = """\
#begin document (nw/demo/00/demo_0001); part 000
nw/demo/00/demo_0001   0    0     The    DT  (TOP(S(NP(NP*   -      -     -   -      *   (ARG1*            *         (3|(0
nw/demo/00/demo_0001   0    1     owl    NN              *)  -      -     1   -      *       *)            *            3)
nw/demo/00/demo_0001   0    2    that   WDT  (SBAR(WHNP*)    -      -     -   -      *   (R-ARG1*)         *             -
nw/demo/00/demo_0001   0    3     was   VBD       (S(VP*     be     03    -   -      *       *             *             -
nw/demo/00/demo_0001   0    4    seen   VBN     (VP*)))))    see    01    1   -      *       (V*)          *            0)
nw/demo/00/demo_0001   0    5   sleeps  VBZ          (VP*    sleep  01    1   -      *       *          (V*)             -
nw/demo/00/demo_0001   0    6    today   NN        (NP*))    -      -     -   -  (DATE)      *   (ARGM-TMP*)          (12)
nw/demo/00/demo_0001   0    7       .     .           *))    -      -     -   -      *       *             *             -

nw/demo/00/demo_0001   0    0    It     XX     (TOP*     -   -   -   -   *   (3)
nw/demo/00/demo_0001   0    1    eats   VERB       *     eat -   -   -   *     -
nw/demo/00/demo_0001   0    2    .      XX        *)     -   -   -   -   *     -

#end document
#begin document (nw/demo/00/demo_0001); part 001
nw/demo/00/demo_0001   1    0    Yes    UH     (TOP(INTJ*))     -   -   -   -   *   -
#end document
"""  # noqa: E501 (columns)


def conll_file(tmp_path, text=HAND, name="a.v4_gold_conll"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_by_hand(tmp_path):
    first, second, third = read(conll_file(tmp_path))
    assert (
        first["tokens"] == "The owl that was seen sleeps today .".split()
        and first["tags"] == "DT NN WDT VBD VBN VBZ NN .".split()
        and first["doc"] == "nw/demo/00/demo_0001/0"
    )
    assert (
        first["tree"]
        == "(TOP (S (NP (NP (DT The) (NN owl)) (SBAR (WHNP (WDT that)) (S (VP (VBD was) (VP (VBN seen)))))) (VP (VBZ"
        " sleeps) (NP (NN today))) (. .)))"
    )
    assert first["constituents"] == [
        [0, 2, "NP"],
        [2, 3, "WHNP"],
        [4, 5, "VP"],
        [3, 5, "VP"],
        [3, 5, "S"],
        [2, 5, "SBAR"],
        [0, 5, "NP"],
        [6, 7, "NP"],
        [5, 7, "VP"],
        [0, 8, "S"],
        [0, 8, "TOP"],
    ]
    assert first["srl"] == [
        dict(predicate=4, lemma="see", roleset="see.01", args=[[0, 2, "ARG1"], [2, 3, "R-ARG1"], [4, 5, "V"]]),
        dict(predicate=5, lemma="sleep", roleset="sleep.01", args=[[5, 6, "V"], [6, 7, "ARGM-TMP"]]),
    ]
    assert first["mentions"] == [[0, 2, 3], [0, 5, 0], [6, 7, 12]]
    assert (
        second["mentions"] == [[0, 1, 3]]
        and second["tags"] == [""] * 3
        and second["targets"] == []
        and "tree" not in second
        and "constituents" not in second
        and second["srl"] == []
    )
    # this document has no coreference at all
    assert (
        third["constituents"] == [[0, 1, "INTJ"], [0, 1, "TOP"]]
        and third["doc"].endswith("/1")
        and "mentions" not in third
    )


def test_continued_argument_and_crossing_mentions():
    at = ["f"] * 4
    assert sorted(column_spans(at, "a", ["(ARG1*)", "(V*)", "(C-ARG1*", "*)"])) == [
        [0, 1, "ARG1"],
        [1, 2, "V"],
        [2, 4, "C-ARG1"],
    ]
    assert conll_mentions(at, ["(1", "(2", "1)", "2)|(1)"]) == [[0, 3, 1], [1, 4, 2], [3, 4, 1]]


BAD = {  # what: (pattern, replacement, message)
    "over-closed tree": (
        r"\(NP\*\)\)    -",
        "(NP*)))  -",
        r"line 9: parse bit '\*\)\)' closes a bracket that is not open",
    ),
    "unclosed tree": (
        r"\(VP\*    sleep",
        "(VP(X*  sleep",
        r"line 2: parse bit: \(TOP is not closed before the sentence ends",
    ),
    "two trees": (r"\(TOP\(S\(NP\(NP\*", "(NP*)(NP(S(NP*", r"line 2: parse bit .*expected opened labels"),
    "no root": (
        r"\(TOP\(INTJ\*\)\)",
        "*",
        r"line 17: the parse bits of the sentence have no bracket around all of its 1 words",
    ),
    "unclosed argument": (
        r"\*\)            \*            3\)",
        "*            *            3)",
        r"line 2: argument column 1: \(ARG1 is not closed",
    ),
    "over-closed argument": (
        r"\(V\*\)          \*            0\)",
        "(V*))  * 0)",
        r"line 6: argument column 1 '\(V\*\)\)' closes",
    ),
    "unclosed mention": (r"3\)\n", "-\n", "line 2: coreference: the mention of cluster 3 is not closed"),
    "over-closed mention": (
        r"\(12\)",
        "12)",
        r"line 8: coreference '12\)' closes a mention of cluster 12 that is not open",
    ),
    "no such mention": (r"\(12\)", "(x)", r"line 8: coreference '\(x\)'; expected"),
    "a column more": (r"\(12\)", "* (12)", "line 8: 15 columns where the sentence began with 14"),
    "a column less": (r"\(DATE\)", "", "line 8: 13 columns where the sentence began with 14"),
    "a lost line": (r".*  that  .*\n", "", "line 4: word number 3 where 2 was expected"),
    "a lost blank line": (r"\n\nnw", "\nnw", "line 10: word number 0 where 8 was expected"),
    "another document": (
        r"demo_0001   0    4",
        "demo_0002   0    4",
        "line 6: a word of nw/demo/00/demo_0002/0 in a sentence of nw/demo/00/demo_0001/0",
    ),
    "no end": (r"#end document\n$", "", "line 17: ends inside a document"),
    "begins twice": (r"#end document\n#begin", "#begin", "line 15: a document begins before that of line 1 has ended"),
    "ends twice": (
        r"#end document\n$",
        "#end document\n#end document\n",
        "line 19: '#end document' without '#begin document'",
    ),
    "outside": (r"#end document\n$", "#end document\nnw/demo 0 0 a b c d e f g h i\n", "line 19: a word outside"),
    "skeleton": (r"owl ", "[WORD] ", "line 3: .WORD. in place of a word"),
}


@pytest.mark.parametrize("what", BAD)
def test_refused(tmp_path, what):
    old, new, message = BAD[what]
    assert re.search(old, HAND)
    with pytest.raises(EmbryoError, match=rf"a\.v4_gold_conll, {message}") as e:
        read(conll_file(tmp_path, re.sub(old, new, HAND, count=1)))
    assert "\n" not in str(e.value)


def as_conll(doc, sentences, clusters):
    "GUM or EWT sentences as CoNLL-2012, by another way than the reader's: each cell is collected on its own."
    out = [f"#begin document ({doc}); part 000"]
    base = 0
    for s in sentences:
        n = len(s["tokens"])
        tags = s["xpos"]
        opens = lambda spans, i: "".join("(" + l for a, b, l in sorted(spans, key=lambda x: -x[1]) if a == i)
        nested = lambda spans, i: opens(spans, i) + "*" + ")" * sum(b == i + 1 for _, b, _ in spans)
        parse = [opens_of + "*" + closes for opens_of, closes in bits(s["tree"])]
        columns = [p["args"] for p in s.get("srl", [])]
        frames = {p["predicate"]: p["roleset"].rsplit(".", 1) for p in s.get("srl", [])}
        for i in range(n):
            coref = [
                f"({k})" if (a, b) == (i, i + 1) else f"({k}"
                for k, c in enumerate(clusters)
                for a, b in ((a - base, b - base) for a, b in c)
                if a == i
            ]
            coref = [
                f"{k})"
                for k, c in enumerate(clusters)
                for a, b in ((a - base, b - base) for a, b in c)
                if b == i + 1 and a < i
            ] + coref
            out.append(
                "\t".join(
                    [
                        doc,
                        "0",
                        str(i),
                        s["tokens"][i],
                        tags[i],
                        parse[i],
                        *frames.get(i, ["-", "-"]),
                        "-",
                        "-",
                        "*",
                        *(nested(c, i) for c in columns),
                        "|".join(coref) or "-",
                    ]
                )
            )
        out.append("")
        base += n
    return "\n".join([*out, "#end document", ""])


def bits(tree):
    "What stands before and behind each word of a bracketed tree."
    return [
        (re.sub(r"\s+", "", before), re.sub(r"\s+", "", after))
        for before, after in re.findall(r"((?:\([^\s()]+\s+)*)\([^\s()]+ [^\s()]+\)((?:\s*\))*)", tree)
    ]


def test_micro_world_there_and_back(lab, tmp_path):
    "Trees, roles and coreference of the generated treebanks, written as CoNLL-2012 and read back."
    fields = ("tokens", "tags", "targets", "tree", "constituents", "srl", "mentions")
    for bank in ("gum", "ewt"):
        source = Path(lab["data"]) / f"probing_{bank}/test.jsonl.gz"
        raw = [json.loads(l) for l in gzip.open(source, "rt")]
        if bank == "gum":
            text = "".join(as_conll(d["doc"], d["sentences"], d["coref_ontogum"]) for d in raw)
        else:
            text = "".join(as_conll(f"s{i}", [s], []) for i, s in enumerate(raw))
        there = read(source)
        back = read(conll_file(tmp_path, text))
        assert len(there) == len(back) > 10
        for a, b in zip(there, back):
            wanted = {k: a[k] for k in fields if k in a} | ({"srl": []} if "srl" not in a else {})
            assert {k: b[k] for k in fields if k in b} == wanted
        if bank == "gum":
            assert sum(len(s["mentions"]) for s in back) > 20 and any(
                "-" in l for s in back for *_, l in s["constituents"]
            )
        else:
            assert sum(len(p["args"]) for s in back for p in s["srl"]) > 40


def test_column_spans_against_a_slow_reference():
    "Random well-formed columns; the reference counts depth for each bracket anew."
    r = random.Random(0)
    for _ in range(300):
        n = r.randint(1, 8)
        cells = []
        depth = 0
        for i in range(n):
            o = r.randint(0, 2)
            depth += o
            c = depth if i == n - 1 else r.randint(0, depth)
            depth -= c
            cells.append("".join(f"(L{r.randint(0, 9)}" for _ in range(o)) + "*" + ")" * c)
        flat = [(i, x) for i, cell in enumerate(cells) for x in re.findall(r"\(L\d|\*|\)", cell)]
        slow = []
        for k, (i, x) in enumerate(flat):
            if x[0] != "(":
                continue
            level = 0
            for j, y in flat[k:]:
                level += (y[0] == "(") - (y == ")")
                if level == 0:
                    break
            slow.append([i, j + 1, x[1:]])
        assert sorted(column_spans(["f"] * n, "c", cells)) == sorted(slow)


@pytest.mark.parametrize(
    "tree,message",
    [
        ("(TOP (NP (NN owl) (NN box))", "ends with 1 open brackets, the last of them \\(TOP"),
        ("(TOP (NP (NN owl) (NN box))))", "closed after 2 of 2 words, and more follows"),
        ("(TOP (NN owl)) (NN box)", "closed after 1 of 2 words"),
        ("(TOP (NP (NN owl)))", "tree has 1 words, the sentence 2 tokens"),
        ("owl box", "does not start with a bracket"),
        (7, "must be a bracketed string"),
        ("(TOP (NP (X (Y )) (NN owl) (NN box)))", "constituent without words"),
    ],
)
def test_bad_trees(tmp_path, tree, message):
    s = dict(text="owl box", tokens=["owl", "box"], xpos=["NN", "NN"], tree=tree)
    for name, line in dict(ewt=s, gum=dict(doc="d", sentences=[s])).items():
        (tmp_path / name).write_text(
            json.dumps(dict(s, tree=None) if name == "ewt" else dict(line, sentences=[dict(s, tree=None)]))
            + "\n"
            + json.dumps(line)
            + "\n"
        )
        with pytest.raises(EmbryoError, match=f"{name}, line 2.*{message}"):
            read(tmp_path / name)


@pytest.mark.parametrize(
    "field,value,message",
    [
        ("constituents", [[0, 3, "NP"]], "constituents: .*0 <= start < end <= 2"),
        ("srl", [dict(predicate=2, args=[])], "is not a predicate"),
        ("srl", [dict(predicate=0, args=[[1, 1, "V"]])], "srl"),
        ("mentions", [[1, 4, 0]], "mentions: "),
        ("tree", "(TOP (NN owl", "open brackets"),
    ],
)
def test_spans_out_of_range(tmp_path, field, value, message):
    "In a file that brings its own structure, the edge-probing schema included."
    (tmp_path / "f").write_text(json.dumps({"text": "owl box", "targets": [], field: value}) + "\n")
    with pytest.raises(EmbryoError, match=f"f, line 1: .*{message}"):
        read(tmp_path / "f")


def test_written_again(tmp_path):
    "A sentence with all its structure is a line of JSON, and comes back from it."
    there = read(conll_file(tmp_path))
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(s) + "\n" for s in there))
    assert read(tmp_path / "f.jsonl") == there


def release(root, languages=("english",), splits=("train", "development", "test")):
    for split in splits:
        for language in languages:
            for k in range(2):
                f = (
                    root
                    / f"conll-2012/v4/data/{split}/data/{language}/annotations/nw/demo/00/demo_000{k}.v4_gold_conll"
                )
                f.parent.mkdir(parents=True, exist_ok=True)
                f.write_text(HAND.replace("owl", f"{split}{k}" if language == "english" else "x"))
                f.with_suffix(".v4_auto_conll").write_text("not gold")


def test_folder_of_a_release(tmp_path):
    release(tmp_path, ("english", "chinese", "arabic"), ("train", "development", "test", "conll-2012-test"))
    parts = read_folder(tmp_path)
    assert {k: [s["tokens"][1] for s in v[::3]] for k, v in parts.items()} == dict(
        train=["train0", "train1"], dev=["development0", "development1"], test=["test0", "test1"]
    )
    assert read_split(tmp_path, "conll-2012-test")[0]["tokens"][1] == "conll-2012-test0"


def test_folder_of_a_micro_world(lab):
    for bank in ("gum", "ewt"):
        folder = Path(lab["data"]) / f"probing_{bank}"
        parts = read_folder(folder)
        assert [*parts] == ["train", "dev", "test"] and all(parts[s] == read(folder / f"{s}.jsonl.gz") for s in parts)


def test_folder_without_a_part(tmp_path):
    release(tmp_path, splits=("train", "test"))
    with pytest.raises(
        EmbryoError, match=r"no dev part; looked for dev\|development\.jsonl.*gold_conll.*pos.*srl, coref"
    ) as e:
        read_folder(tmp_path)
    assert "\n" not in str(e.value)
    with pytest.raises(EmbryoError, match="no such folder"):
        read_folder(tmp_path / "none")


def test_folder_of_tasks(tmp_path):
    "One document in the files of four tasks is what CoNLL-2012 says of it, as far as pairs can tell."
    doc = [s for s in read(conll_file(tmp_path)) if "tree" in s]
    info = lambda i: dict(text=" ".join(doc[i]["tokens"]), info=dict(document_id="d", sentence_id=i))
    lines = {
        "const/pos": [dict(info(i), targets=s["targets"]) for i, s in enumerate(doc)],
        "const/nonterminal": [
            dict(info(i), targets=[dict(span1=[a, b], label=l) for a, b, l in s["constituents"]])
            for i, s in enumerate(doc)
        ],
        "srl": [
            dict(
                info(i),
                targets=[
                    dict(span1=[p["predicate"], p["predicate"] + 1], span2=[a, b], label=l) for a, b, l in p["args"]
                ],
            )
            for i, s in enumerate(doc)
            for p in s["srl"]
        ],
        "coref": [
            dict(
                info(i),
                targets=[
                    dict(span1=m[:2], span2=o[:2], label=str(int(m[2] == o[2])))
                    for j, m in enumerate(s["mentions"])
                    for o in s["mentions"][j + 1 :]
                ],
            )
            for i, s in enumerate(doc)
            if len(s.get("mentions", [])) > 1
        ],
    }
    for task, ls in lines.items():
        for split in ("train", "development", "test"):
            (tmp_path / "edges" / task).mkdir(parents=True, exist_ok=True)
            (tmp_path / "edges" / task / f"{split}.json").write_text("".join(json.dumps(l) + "\n" for l in ls))
    parts = read_folder(tmp_path / "edges")
    assert len(parts["train"]) == len(parts["dev"]) == len(doc)
    for s, truth in zip(parts["test"], doc):
        assert (s["tokens"], s["tags"], s["targets"], s["constituents"]) == (
            truth["tokens"],
            truth["tags"],
            truth["targets"],
            truth["constituents"],
        )
        assert [(p["predicate"], p["args"]) for p in s.get("srl", [])] == [
            (p["predicate"], p["args"]) for p in truth["srl"]
        ]
        same = lambda ms: {(tuple(a[:2]), tuple(b[:2])): a[2] == b[2] for a in ms for b in ms}
        if "mentions" in truth:
            assert same(s["mentions"]) == same(truth["mentions"])


@pytest.mark.skipif(
    not DATA.is_dir(),
    reason="set EMBRYO_DATA to a data folder in the layout of nbs/guide/00_data.ipynb to run the tests on real data",
)
def test_real_trees_are_their_constituents():
    for bank, n in (("gum", 1271), ("ewt", 2077)):
        sentences = read(DATA / f"probing_{bank}/test.jsonl.gz")
        trees = [s for s in sentences if "tree" in s]
        assert len(sentences) == n and len(trees) > 0.98 * n
        assert all(tree_spans("f", s["tree"], len(s["tokens"])) == s["constituents"] for s in trees)
