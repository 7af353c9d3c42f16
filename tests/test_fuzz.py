"""Damaged input for every reader: it is read right or refused in one sentence that names file and place; never a
traceback, a hang, a wrong silent result, or memory that grows.

`pytest tests/test_fuzz.py --long -s` mutates more than ten thousand files and prints what became of them. A case is
a file's seed text and a list of operations (name, a, b), so that a failure shrinks to few operations and can be
written down: those that failed once are in KNOWN. What is read is compared with a slow parser of the mutated bytes,
written here.
"""

import copy
import csv
import functools
import gzip
import io
import itertools
import json
import lzma
import math
import os
import re
import resource
import shutil
import signal
import tempfile
import threading
import time
import tomllib
import traceback
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import TINY
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from embryo.corpora.l1s import make, text_bounds, unigram_law
from embryo.corpora.text import read_documents, read_programs, read_sequences
from embryo.corpora.tokens import open_ids, pack_ids, train_tokenizer
from embryo.evaluation.annotations.folders import read as the_read
from embryo.evaluation.annotations.folders import read_split
from embryo.evaluation.knowledge.facts import read_history
from embryo.evaluation.knowledge.lama import read_lama
from embryo.evaluation.squad.squad import read_squad
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.tasks import TASKS
from embryo.ground.data import read_manifest
from embryo.ground.errors import EmbryoError
from embryo.ground.files import sealed
from embryo.ground.profiles import read_profile as the_read_profile
from embryo.ground.rows import COLUMNS, read_rows, row_frame, write_rows
from embryo.models.given import open_series

# for one file; growth of the peak over all files of a format
SECONDS = 5
MEGABYTES = 400

# ------------------------------------------------------------------------------------------------------------------
# seeds: small valid files


def tsv(*rows):
    return "".join("\t".join(map(str, r)) + "\n" for r in rows)


def jsonl(*ds):
    return "".join(json.dumps(d, ensure_ascii=False) + "\n" for d in ds)


RTE = tsv(
    ["index", "sentence1", "sentence2", "label"],
    [0, 'The owl "sees" a mouse.', "A mouse is seen.", "entailment"],
    [1, "No owl sleeps", "Owls sleep é", "not_entailment"],
    [2, "It rains", "'It' rains", "entailment"],
)
COLA = tsv(
    ["gj04", 1, "", "Our friends won't buy this."],
    ["gj04", 0, "*", "They drank the pub."],
    ["c_05", 1, "", 'Harry coughed "himself" into a fit.'],
)
STSB = tsv(
    ["index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score"],
    [0, "captions", "f", 2012, 1, "none", "none", "A plane", "An air plane", "5.000"],
    [1, "captions", "f", 2012, 4, "none", "none", "A man plays", "A man sings", 2.75],
    [2, "news", "g", 2014, 5, "x", "y", "No", "Yes", 0],
)
OWN = tsv(["sentence", "label"], ["good one", 1], ["bad one", 0], ["fair one", 1])
TOML = (
    'text1 = "sentence"\nlabel = "label"\nlabels = ["0", "1"]\nmetric = "f1"\nothers = ["accuracy"]\n[files]\ntrain ='
    ' "train*.tsv*"\ndev = "dev*.tsv*"\n'
)
CONTEXT = "It was the red fox. The fox – a “she” – ran."
SQUAD = json.dumps(
    dict(
        version="v2.0",
        data=[
            dict(
                title="Fox",
                paragraphs=[
                    dict(
                        context=CONTEXT,
                        qas=[
                            dict(
                                id="q1",
                                question="Who was it?",
                                answers=[
                                    dict(text="red fox", answer_start=11),
                                    dict(text="the red fox", answer_start=7),
                                ],
                                is_impossible=False,
                            ),
                            dict(
                                id="q2",
                                question="What did the owl do?",
                                answers=[],
                                is_impossible=True,
                                plausible_answers=[dict(text="ran", answer_start=40)],
                            ),
                        ],
                    )
                ],
            ),
            dict(
                title="Owl",
                paragraphs=[
                    dict(
                        context="An owl.",
                        qas=[dict(id="q3", question="What?", answers=[dict(text="owl", answer_start=3)])],
                    )
                ],
            ),
        ],
    ),
    ensure_ascii=False,
)
TREE = "(TOP (S (NP-SBJ (DT The) (NN owl)) (VP (VBZ sees) (NP (PRP it)))))"
SPANS = [[0, 2, "NP-SBJ"], [3, 4, "NP"], [2, 4, "VP"], [0, 4, "S"], [0, 4, "TOP"]]


def sentence(**more):
    return dict(
        dict(
            sent_id="s1",
            text="The owl sees it",
            tokens=["The", "owl", "sees", "it"],
            upos=["DET", "NOUN", "VERB", "PRON"],
            xpos=["DT", "NN", "VBZ", "PRP"],
            head=[2, 3, 0, 3],
            deprel=["det", "nsubj", "root", "obj"],
            tree=TREE,
            constituents=SPANS,
        ),
        **more,
    )


GUM = jsonl(
    dict(
        doc="d1",
        genre="news",
        license="x",
        sentences=[
            sentence(),
            sentence(sent_id="s2", constituents=None),
            sentence(sent_id="s3", tree=None, constituents=None),
        ],
        coref_ontogum=[[[0, 2], [4, 6]], [[3, 4], [7, 8], [11, 12]]],
        coref_gum=[[[0, 2], [8, 10]]],
    ),
    dict(doc="d2", sentences=[sentence()], coref_gum=[]),
)
EWT = jsonl(
    *(
        dict(
            sentence(sent_id=f"e{i}"),
            doc="e",
            srl=[dict(predicate=2, lemma="see", roleset="see.01", args=[[0, 2, "ARG0"], [2, 3, "V"], [3, 4, "ARG1"]])],
        )
        for i in range(2)
    ),
    dict(sentence(), srl=None, tree=None, constituents=None),
)
EDGE = jsonl(
    dict(
        text="The owl sees it",
        targets=[dict(span1=[0, 2], label="NP", info=dict(height=1)), dict(span1=[0, 4], label="S")],
        info=dict(document_id="d", sentence_id=1),
    ),
    dict(text="It rains", tokens=["It", "rains"], targets=[dict(span1=[0, 1], span2=[1, 2], label="A0")]),
    dict(text="No", targets=[]),
)
ROLES = jsonl(
    *(
        dict(
            text="The owl sees it",
            targets=[dict(span1=[2, 3], span2=[0, 2], label="ARG0"), dict(span1=[2, 3], span2=[3, 4], label="ARG1")],
            info=dict(document_id="d", sentence_id=i),
        )
        for i in range(2)
    )
)
TAGS = jsonl(
    *(
        dict(
            text="The owl sees it",
            targets=[dict(span1=[i, i + 1], label=t) for i, t in enumerate(("DT", "NN", "VBZ", "PRP"))],
            info=dict(document_id="d", sentence_id=i),
        )
        for i in range(2)
    )
)


def conll_rows(part):
    return [
        f"bc/x/00  {part}  {i}  {r}"
        for i, r in enumerate(
            (
                "The DT (TOP(S(NP* - - - A * (ARG0* (0",
                "owl NN *) - - - A * *) 0)",
                "sees VBZ (VP* see 01 1 A * (V*) -",
                "it PRP (NP*)))) - - - A * (ARG1*) (1)|(0)",
            )
        )
    ]


CONLL = (
    "#begin document (bc/x/00); part 000\n"
    + "\n".join(conll_rows(0))
    + "\n\n"
    + "bc/x/00  0  0  Yes  UH  (TOP(INTJ*))  -  -  -  B  *  (1)\n\n#end document\n#begin document (bc/x/00); part 001\n"
    + "\n".join(conll_rows(1))
    + "\n\n#end document\n"
)
FASTA = ">one first\nMVTA\nIIHG*\n>two\nmkvl\n\n>three\nAC\n"
CHAINS = tsv(["id", "source", "sequence"], ["a", "x", "MVTAIIHG"], ["b", "PDB", "mkvl"], ["c", "y", "AC*"])
JAVA = jsonl(
    dict(path="A.java", tokens="class a { }", n_tokens=4, comments=[[0, "unseen"]]),
    dict(text="x = 1"),
    dict(tokens="int é = 2 ;"),
)
TEXT = "The owl\nThe owl sees the mouse .\n\nThe mouse\nThe mouse is “small” .\nIt runs .\n\n\nThe end\n"
RELATIONS = jsonl(
    *(
        dict(relation=r, template=f"[X] is {w} [Y] .", label=w, description="", type=t)
        for r, w, t in (("P36", "the capital of", "1-1"), ("P19", "from", "N-1"), ("P47", "beside", "N-M"))
    )
)
FACTS = jsonl(
    *(
        dict(uuid=f"u{i}", predicate_id="P36", sub_uri="Q1", sub_label=s, obj_uri="Q2", obj_label=o)
        for i, (s, o) in enumerate((("Paris", "France"), ("Rome", "Italy"), ("São Tomé", "Tomé")))
    )
)
SERIES = json.dumps(
    dict(
        run=dict(family="albert", l1="english", seed=0),
        floor=dict(all=1.5),
        steps=[
            dict(step=k, tokens=k * 128, loss=dict(mlm=5.1), wall_s=0.5, sha256=f"{k:064x}", tensors=dict(norm=1.0))
            for k in (0, 2, 4)
        ],
    ),
    indent=1,
)
MANIFEST = json.dumps(
    [
        sealed(
            dict(
                name="wiki_en",
                sources=[dict(repository="x", commit="1")],
                files=[
                    dict(path="wiki_en/a.txt", bytes=10, sha256="a" * 64, words=50),
                    dict(path="wiki_en/heldout.txt", bytes=0, sha256="b" * 64, words=10),
                ],
            )
        ),
        dict(
            name="books_en",
            entropy=dict(text=2.0, masked_least=0.5, masked_least_stderr=0.01, tokens=120, words=100),
            files=[
                dict(path="books_en/b.txt", bytes=7, sha256="c" * 64, words=40),
                dict(path="books_en/heldout.txt", bytes=7, sha256="d" * 64, words=4),
            ],
        ),
    ],
    indent=1,
)
UNIGRAM = "id\ttoken\tcount\n" + "".join(f"{i}\tw{i}\t{30_000 - i}\n" for i in range(30_000))
HISTORY = jsonl(
    *(
        dict(
            relation="P36",
            sub_label=s,
            obj_label=o,
            timing="early",
            expected="learned",
            cause="often",
            count=3,
            first=1,
            last=9,
        )
        for s, o in (("Paris", "France"), ("Rome", "Italy"))
    )
)

# ------------------------------------------------------------------------------------------------------------------
# operations

DEEP = {n: f"@deep{n}@" for n in (900, 10_000, 100_000)}
ODD = [
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    2**31,
    2**63,
    -(2**63),
    10**400,
    1.5,
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    "",
    " ",
    "x",
    "0",
    "-1",
    "a\tb",
    "a\nb",
    "\x00",
    "\u2028",
    "\ud800",
    "\udc00x",
    "[X]",
    "(",
    "../x",
    "/etc/passwd",
    [],
    {},
    [[]],
    [None],
    {"a": 1},
    [0, 1],
    [1, 0],
    [-1, 1],
    [0, 10**6],
    [True, True],
    [0, 1, "X"],
    [0, 1, None],
    [0.0, 1.0],
    [[0, 1]],
    ["x"],
    "x" * 1_000_000,
    *DEEP.values(),
]
CHARS = [
    "\x00",
    "\ufeff",
    "\u2028",
    "\u2029",
    "\x85",
    "\x0b",
    "\x0c",
    "\x1c",
    "\xa0",
    "\u200b",
    "\r",
    "\r\n",
    "\n",
    "\n\n",
    "\t",
    " ",
    '"',
    "'",
    "\\",
    "(",
    ")",
    "*",
    "[",
    "]",
    "{",
    "}",
    "<",
    ">",
    "|",
    "-",
    "#",
    "=",
    ",",
    ".",
    "ß",
    "ﬁ",
    "ı",
    "é",
    "7",
    "Z",
    "[X]",
    "[Y]",
    "[WORD]",
    "NaN",
    "\n[x]\n",
]
BYTES = [
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\x80",
    b"\xe2\x80",
    b"\xf5\x80\x80\x80",
    b"\xef\xbb\xbf",
    b"\x00",
    b"\xff\xfe",
    b"\r",
]
NUMBERS = [
    "-1",
    "0",
    "1",
    "7",
    "99999999999999999999",
    "9" * 5000,
    "1e999",
    "NaN",
    "inf",
    "0x10",
    "1_0",
    "٣",
    "1.0",
    "+3",
    " 3",
    "",
    "01",
    "1e2",
    "-0.0",
    "2.5",
]
VALUES = [
    "true",
    "-1",
    "0",
    "1",
    "1.5",
    "nan",
    "inf",
    "9" * 5000,
    "10" * 200,
    '""',
    '"x"',
    '"all"',
    '"../x"',
    '"\\u2028"',
    "[]",
    "[1]",
    '["x"]',
    "[[1, 2]]",
    "[[1]]",
    "{}",
    '{at = ["x"]}',
    "{log = 0}",
    "1979-05-27",
    "[" * 10_000,
    "[" * 900 + "]" * 900,
    '"' + "x" * 100_000 + '"',
    "{a = {b = {}}}",
    "",
    "= 1",
]


def paths(v, at=()):
    "Places in a tree."
    kids = v.items() if isinstance(v, dict) else enumerate(v) if isinstance(v, list) else ()
    for k, x in kids:
        yield (*at, k)
        yield from paths(x, (*at, k))


def inside(v, path):
    for k in path:
        v = v[k]
    return v


def tree(v, how, a, b):
    "Change one place of a JSON tree."
    places = list(paths(v))
    if not places:
        return copy.deepcopy(ODD[b % len(ODD)])
    *up, k = places[a % len(places)]
    d = inside(v, up)
    if how == "set":
        d[k] = copy.deepcopy(ODD[b % len(ODD)])
    elif how == "drop":
        del d[k]
    elif how == "near":
        d[k] = (
            d[k] + (-1, 1, 2, -3)[b % 4]
            if type(d[k]) in (int, float)
            else (
                d[k] + CHARS[b % len(CHARS)]
                if isinstance(d[k], str)
                else list(d[k])[::-1]
                if isinstance(d[k], list)
                else {}
            )
        )
    elif how == "twice" and isinstance(d, list):
        d.insert(k, copy.deepcopy(d[k]))
    elif how == "twice":
        d[f"{k}@again@"] = copy.deepcopy(d[k]) if b % 2 else ODD[b % len(ODD)]
    elif how == "rename" and isinstance(d, dict):
        d[("extra", "", "label", "span2", "x" * 300, "a\nb\u2028")[b % 6]] = d.pop(k)
    elif how == "extra" and isinstance(d, dict):
        d["extra"] = ODD[b % len(ODD)]
    elif how == "extra":
        d.append(ODD[b % len(ODD)])
    elif how == "swap":
        *up2, k2 = places[b % len(places)]
        e = inside(v, up2)
        d[k], e[k2] = copy.deepcopy(e[k2]), copy.deepcopy(d[k])
    return v


def dumped(v, indent=None):
    s = json.dumps(
        v, ensure_ascii=any(0xD800 <= ord(c) < 0xE000 for c in repr(v)) or "\\ud" in repr(v), indent=indent
    ).replace('@again@"', '"')
    for n, mark in DEEP.items():
        s = s.replace(f'"{mark}"', "[" * n + "]" * n)
    return s


def change(kind, text, op, a, b):  # noqa: C901 (one branch an operation)
    "One operation on the text of a file; the text itself where it does not apply."
    how, _, name = op.partition(" ")
    lines = text.split("\n")
    i = a % len(lines)
    j = b % len(lines)
    if how == "json":
        try:
            if kind == "json":
                return dumped(tree(json.loads(text), name, a, b), indent=b % 2 or None)
            lines[i] = dumped(tree(json.loads(lines[i]), name, a // len(lines), b))
        except (ValueError, RecursionError, TypeError, IndexError, KeyError):
            return text
    elif how == "line":
        if name == "drop":
            del lines[i]
        elif name == "twice":
            lines.insert(j, lines[i])
        elif name == "swap":
            lines[i], lines[j] = lines[j], lines[i]
        elif name == "join":
            lines[i : i + 2] = ["".join(lines[i : i + 2])]
        elif name == "blank":
            lines.insert(i, ("", " ", "\u2028", "\t")[b % 4])
        elif name == "long":
            lines[i] += "xA" * 500_000
        elif name == "number":
            found = list(re.finditer(r"\d+(\.\d+)?", lines[i]))
            if found:
                m = found[(b // 97) % len(found)]
                lines[i] = lines[i][: m.start()] + NUMBERS[b % len(NUMBERS)] + lines[i][m.end() :]
    elif how == "field":
        sep = {"toml": " = ", "csv": ","}.get(kind, "\t" if "\t" in lines[i] else None)
        cells = lines[i].split(sep)
        sep = sep or " "
        k = b % len(cells) if cells else 0
        k2 = (b // len(cells)) % len(cells) if cells else 0
        if not cells:
            return text
        if name == "drop":
            del cells[k]
        elif name == "twice":
            cells.insert(k2, cells[k])
        elif name == "swap":
            cells[k], cells[k2] = cells[k2], cells[k]
        elif name == "empty":
            cells[k] = ""
        elif name == "set":
            cells[k] = (NUMBERS + CHARS)[(a + b) % len(NUMBERS + CHARS)]
        elif name == "value":
            cells[-1] = VALUES[b % len(VALUES)]
        elif name == "cross" and (c := lines[j].split(sep)) and len(c) > k:
            cells[k] = c[-1]
        lines[i] = sep.join(cells)
    elif how == "char":
        at = a % (len(text) + 1)
        c = CHARS[b % len(CHARS)]
        return text[:at] + c + text[at + (name == "set") :]
    elif how == "cut":
        return text[: a % (len(text) + 1)] if name == "end" else text[a % (len(text) + 1) :]
    elif how == "all":
        return {
            "empty": "",
            "crlf": text.replace("\n", "\r\n"),
            "mac": text.replace("\n", "\r"),
            "bom": "\ufeff" + text,
            "twice": text + text,
            "blank": "\n\n \n",
            "nul": "\x00" * 100,
            "other": (RTE, SQUAD, GUM, CONLL, FASTA, TEXT, "null\n", "[]", "{}\n", "0", '""')[b % 11],
        }[name]
    return "\n".join(lines)


def change_bytes(data, op, a, b):
    "One operation on bytes."
    n = len(data)
    i = a % (n + 1)
    j = b % (n + 1)
    if op == "flip" and n:
        i = a % n
        return data[:i] + bytes([data[i] ^ (1 << b % 8)]) + data[i + 1 :]
    if op == "insert":
        return data[:i] + BYTES[b % len(BYTES)] + data[i:]
    if op == "cut":
        return data[:i]
    if op == "hole":
        return data[: min(i, j)] + data[max(i, j) :]
    if op == "zeros":
        return data[:i] + bytes(b % 9) + data[i + b % 9 :]
    if op == "garbage":
        return data + (b"garbage", bytes(4), bytes(3), b"\xfd7zXZ\0", b"\x1f\x8b\x08")[b % 5]
    return data


def packed(data, end, how, a):
    "Bytes of the file: as its ending says, or not."
    pack = {".gz": lambda x: gzip.compress(x, 1, mtime=0), ".xz": lambda x: lzma.compress(x, preset=0)}.get(
        end, lambda x: x
    )
    k = a % (len(data) + 1)
    if how == "members" and end:
        return pack(data[:k]) + bytes(4 if end == ".xz" and a % 2 else 0) + pack(data[k:])
    if how == "plain":
        return data
    if how == "other" and end:
        return lzma.compress(data) if end == ".gz" else gzip.compress(data, mtime=0)
    if how == "twice" and end:
        return pack(pack(data))
    if how == "bomb" and end:
        return pack(data + (b"\n" * 10**6, bytes(16 << 20), b"A" * (16 << 20), b"A\n" * 500_000)[a % 4])
    if how == "alone" and end == ".xz":
        return lzma.compress(data, format=lzma.FORMAT_ALONE)
    return pack(data)


def unpacked(data, end):
    "What a whole and sound file holds; None if it is not."
    try:
        if end == ".gz":
            return gzip.decompress(data) if data else b""
        if end != ".xz":
            return data
        out = b""
        while True:
            d = lzma.LZMADecompressor(lzma.FORMAT_XZ)
            out += d.decompress(data)
            if not d.eof:
                return None
            data = d.unused_data.lstrip(b"\0")
            if not data:
                return out
    except Exception:
        return None


TREE_OPS = [f"json {x}" for x in ("set", "set", "set", "near", "near", "drop", "twice", "rename", "extra", "swap")]
LINE_OPS = [f"line {x}" for x in ("drop", "twice", "swap", "join", "blank", "long", "number", "number")]
FIELD_OPS = [f"field {x}" for x in ("drop", "twice", "swap", "empty", "set", "set", "cross")]
TEXT_OPS = [
    "char insert",
    "char insert",
    "char set",
    "cut end",
    "cut start",
    *(f"all {x}" for x in ("empty", "crlf", "mac", "bom", "twice", "blank", "nul", "other")),
]
OPS = dict(
    json=TREE_OPS * 3 + ["line number", *TEXT_OPS],
    jsonl=TREE_OPS * 3 + LINE_OPS + TEXT_OPS,
    tsv=FIELD_OPS * 2 + LINE_OPS + TEXT_OPS,
    columns=FIELD_OPS * 2 + LINE_OPS + TEXT_OPS,
    csv=FIELD_OPS * 2 + LINE_OPS + TEXT_OPS,
    lines=LINE_OPS + TEXT_OPS * 2,
    toml=["field value"] * 6 + ["field drop", "field swap", "field cross"] + LINE_OPS + TEXT_OPS,
    bytes=[],
)
NUMBER = st.integers(0, (1 << 24) - 1)


def cases(f):
    "Strategy: (ending, operations on the text, operations on its bytes, packing, operations on the packed bytes)."
    raw = st.tuples(st.sampled_from(["flip", "flip", "insert", "cut", "hole", "zeros"]), NUMBER, NUMBER)
    text = st.tuples(st.sampled_from(OPS[f.kind]), NUMBER, NUMBER) if OPS[f.kind] else raw
    few = lambda s, odds: st.integers(0, 19).flatmap(
        lambda k: st.lists(s, min_size=1, max_size=2) if k < odds else st.just([])
    )
    return st.tuples(
        st.sampled_from(f.ends),
        st.lists(text, min_size=1, max_size=3) if OPS[f.kind] else st.just([]),
        few(raw, 3 if OPS[f.kind] else 20),
        st.tuples(
            st.sampled_from(["sound"] * 8 + ["members", "members", "plain", "other", "twice", "bomb", "alone"]), NUMBER
        ),
        few(st.tuples(st.sampled_from(["flip", "cut", "hole", "zeros", "garbage", "garbage"]), NUMBER, NUMBER), 2),
    )


def mutated(f, case):
    "The bytes of the file of a case."
    end, text_ops, raw_ops, (how, a), packed_ops = case
    data = f.seed
    if text_ops:
        text = data.decode("utf-8")
        for op in text_ops:
            text = change(f.kind, text, *op)
        data = text.encode("utf-8", "surrogatepass")
    for op in raw_ops:
        data = change_bytes(data, *op)
    data = packed(data, end, how, a)
    for op in packed_ops if end else []:
        data = change_bytes(data, *op)
    return data


# ------------------------------------------------------------------------------------------------------------------
# slow parsers: what the mutated bytes say; any exception means that nobody may read them


def numbered(text):
    lines = text.split("\n")
    return [(n, l.rstrip("\r")) for n, l in enumerate(lines[:-1] if lines[-1] == "" else lines, 1)]


def strict(text):
    "JSON with every key once."

    def once(pairs):
        assert len({k for k, _ in pairs}) == len(pairs)
        return dict(pairs)

    return json.loads(text, object_pairs_hook=once)


def whole(v):
    assert type(v) is int
    return v


def text_(v):
    assert type(v) is str
    v.encode()
    return v


def score(x):
    assert re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", x)
    return float(x)


def check_glue(task, split="train"):
    def check(text, got):
        lines = numbered(text)
        header = list(task.header) or lines.pop(0)[1].split("\t")
        want = []
        for n, line in lines:
            d = line.split("\t")
            assert len(d) == len(header)
            d = {h: c for h, c in zip(header, d)}
            y = task.labels.index(d[task.label]) if task.labels else score(d[task.label])
            if not task.labels:
                assert 0 <= y <= 5
            want.append([d[task.text1].strip(), d[task.text2].strip() if task.text2 else None, y])
        have = [[a, b if task.text2 else None, y] for a, b, y in got[split].values.tolist()]
        assert have == want and want

    return check


def check_own(text, got):
    lines = [l.split("\t") for _, l in numbered(text)]
    header = lines[0]
    t = got.task
    assert all(len(l) == len(header) for l in lines) and len(got["train"]) == len(lines) - 1
    for l, (a, b, y) in zip(lines[1:], got["train"].values.tolist()):
        d = dict(zip(header, l))
        assert a == d[t.text1].strip() and (not t.text2 or b == d[t.text2].strip())
        assert (t.labels[int(y)] == d[t.label]) if t.labels else (score(d[t.label]) == y and math.isfinite(y))


def check_toml(text, got):
    said = tomllib.loads("\n".join(l for _, l in numbered(text)))
    for k, v in said.items():
        have = getattr(got.task, k)
        assert (dict(have) == v) if k == "files" else (have == tuple(v)) if isinstance(v, list) else have == v
    assert len(got.task.labels) != 1 and set(got) >= {"train", "dev"}
    if said.get("labels"):
        assert got["train"]["label"].isin(range(len(got.task.labels))).all()


def check_squad(text, got):
    want = [
        (
            text_(q["id"]),
            text_(a.get("title", "")),
            text_(q["question"]),
            text_(p["context"]),
            [text_(x["text"]) for x in q["answers"]],
            [whole(x["answer_start"]) for x in q["answers"]],
        )
        for a in strict(text)["data"]
        for p in a["paragraphs"]
        for q in p["qas"]
    ]
    assert [tuple(r) for r in got.values.tolist()] == want and len({w[0] for w in want}) == len(want)
    for _, _, _, context, answers, starts in want:
        for t, s in zip(answers, starts):
            assert s >= 0 and t.strip() and context[s : s + len(t)] == t
    assert all(
        bool(q.get("is_impossible", False)) != bool(q["answers"])
        for a in strict(text)["data"]
        for p in a["paragraphs"]
        for q in p["qas"]
    )


def check_spans(spans, n, kind=str):
    for i, j, label in spans:
        assert 0 <= whole(i) < whole(j) <= n and type(label) is kind


def bracketed(tree):
    "Constituents of a tree by recursion over its characters."
    out = []
    i = 0
    words = 0
    tokens = tree.replace("(", " ( ").replace(")", " ) ").split()

    def node():
        nonlocal i, words
        assert tokens[i] == "("
        i += 1
        start = words
        label = ""
        leaf = False
        if tokens[i] not in "()":
            label = tokens[i]
            i += 1
        while tokens[i] != ")":
            if tokens[i] == "(":
                node()
            else:
                words += 1
                i += 1
                leaf = True
        i += 1
        if not leaf:
            assert words > start
            out.append([start, words, label])

    node()
    assert i == len(tokens)
    return out, words


def check_sentence(s, d):
    n = len(d["tokens"])
    assert (
        s["tokens"] == d["tokens"]
        and all(text_(t).strip() for t in d["tokens"])
        and n
        and s["tags"] == d["xpos"]
        and len(d["xpos"]) == n
        and all(map(text_, d["xpos"])) is not None
        and s["text"] == text_(d["text"])
    )
    assert s.get("sent_id") == d.get("sent_id")
    if d.get("tree") is not None:
        found, words = bracketed(d["tree"])
        assert words == n and (d.get("constituents") is not None or s["constituents"] == found)
    if d.get("constituents") is not None:
        assert s["constituents"] == d["constituents"]
    check_spans(s.get("constituents", []), n)
    assert (s.get("srl") or None) == (d.get("srl") or None)
    for p in s.get("srl", []):
        assert 0 <= whole(p["predicate"]) < n
        check_spans(p["args"], n)


def check_gum(text, got):
    docs = [strict(l) for _, l in numbered(text) if l.strip()]
    got = iter(got)
    for d in docs:
        mine = list(itertools.islice(got, len(d["sentences"])))
        for s, x in zip(mine, d["sentences"], strict=True):
            check_sentence(s, x)
            assert s.get("doc") == d["doc"]
        clusters = d.get("coref_ontogum") or d.get("coref_gum") or []
        of = [(k, i) for k, s in enumerate(mine) for i in range(len(s["tokens"]))]
        want = Counter(
            (of[whole(a)][0], of[a][1], of[whole(b) - 1][1] + 1, k) for k, c in enumerate(clusters) for a, b in c
        )
        assert all(0 <= a < b and of[a][0] == of[b - 1][0] for c in clusters for a, b in c)
        assert want == Counter((k, a, b, c) for k, s in enumerate(mine) for a, b, c in s.get("mentions", []))
    assert next(got, None) is None


def check_ewt(text, got):
    for s, l in zip(got, [l for _, l in numbered(text) if l.strip()], strict=True):
        check_sentence(s, strict(l))
        assert s.get("doc") == strict(l).get("doc")


def check_edge(text, got):
    for s, l in zip(got, [l for _, l in numbered(text) if l.strip()], strict=True):
        d = strict(l)
        assert (
            s["text"] == d["text"]
            and s["targets"] == d["targets"]
            and s["tokens"] == d.get("tokens", d["text"].split())
            and all(text_(t).strip() for t in s["tokens"])
            and s["tokens"]
        )
        for t in s["targets"]:
            assert type(t["label"]) in (str, int)
            for k in ("span1", "span2"):
                if k in t:
                    a, b = t[k]
                    assert 0 <= whole(a) < whole(b) <= len(s["tokens"])


def check_roles(text, got):
    ds = [strict(l) for _, l in numbered(text) if l.strip()]
    assert Counter((*t["span1"], *t["span2"], str(t["label"])) for d in ds for t in d["targets"]) == Counter(
        (p["predicate"], next(t["span1"][1] for d in ds for t in d["targets"] if t["span1"][0] == p["predicate"]), *a)
        for s in got
        for p in s.get("srl", [])
        for a in p["args"]
    ) or any(t["span1"][1] - t["span1"][0] != 1 for d in ds for t in d["targets"])
    assert sum(len(d["targets"]) for d in ds) == sum(len(p["args"]) for s in got for p in s.get("srl", []))
    for s in got:
        for p in s.get("srl", []):
            assert 0 <= p["predicate"] < len(s["tokens"])
            check_spans(p["args"], len(s["tokens"]))


def check_conll(text, got):
    sents = []
    rows = []
    k = 0
    for _, l in [*numbered(text), (0, "")]:
        if l.strip() and not l.startswith("#"):
            rows.append(re.split(r"[ \t]+", l.strip(" \t")))
            continue
        if rows:
            sents.append((k, rows))
            rows = []
        k += l.startswith("#begin document")
    assert len(sents) == len(got)
    for (k, rows), s in zip(sents, got):
        n = len(rows)
        assert (
            s["tokens"] == [r[3] for r in rows]
            and [r[2] for r in rows] == [str(i) for i in range(n)]
            and len({len(r) for r in rows}) == 1
            and {s["doc"]} == {"/".join(r[:2]) for r in rows}
        )
        parsed = {r[5] for r in rows} != {"-"} and sum(r[5].count("(") for r in rows) > 1
        assert s["tags"] == [r[4] if parsed or r[4] not in ("XX", "VERB", "-") else "" for r in rows]
        if parsed:
            assert len(s["constituents"]) == sum(r[5].count("(") for r in rows) == sum(r[5].count(")") for r in rows)
            found, words = bracketed(" ".join(r[5].replace("(", " (").replace("*", " (X w)") for r in rows))
            assert words == n and sorted(found) == sorted(s["constituents"])
        check_spans(s.get("constituents", []), n)
        assert len(s["srl"]) == len(rows[0]) - 12
        for p in s["srl"]:
            assert 0 <= p["predicate"] < n
            check_spans(p["args"], n)
        assert sum(len(p["args"]) for p in s["srl"]) == sum(c.count("(") for r in rows for c in r[11:-1])
        check_spans(s.get("mentions", []), n, int)
        assert len(s.get("mentions", [])) == sum(r[-1].count("(") for r in rows) == sum(r[-1].count(")") for r in rows)
        for a, b, c in s.get("mentions", []):
            assert re.search(rf"\({c}\b", rows[a][-1]) and re.search(rf"\b{c}\)", rows[b - 1][-1])
    assert len({s["doc"] for s in got}) <= k


def check_annotated(text, got):
    "By the content, as the reader goes."
    first = next(l for _, l in numbered(text) if l.strip())
    (
        check_conll
        if first.startswith("#begin")
        else check_gum
        if "sentences" in strict(first)
        else check_ewt
        if "xpos" in strict(first)
        else check_edge
    )(text, got)


def check_fasta(text, got):
    lines = [l for _, l in numbered(text)]
    want = []
    parts = None
    for l in [*lines, ">"]:
        if l.startswith(">"):
            if parts is not None:
                want.append("".join(parts))
            parts = []
        elif l.strip():
            parts = [] if parts is None else parts
            parts.append(l.strip())
    assert got == [w.upper().removesuffix("*") for w in want] and all(re.fullmatch("[A-Za-z]+[*]?", w) for w in want)
    assert len(got) == sum(l.startswith(">") for l in lines) + (
        bool(lines) and bool([l for l in itertools.takewhile(lambda l: not l.startswith(">"), lines) if l.strip()])
    )


def check_chains(text, got):
    rows = [l.split("\t") for _, l in numbered(text) if l.strip()]
    assert (
        rows == []
        and got == []
        or rows[0][-1].strip() == "sequence"
        and all(len(r) == len(rows[0]) and re.fullmatch("[A-Za-z]+[*]?", r[-1].strip()) for r in rows[1:])
        and got == [r[-1].strip().upper().removesuffix("*") for r in rows[1:]]
    )


def check_programs(text, got):
    ds = [strict(l) for _, l in numbered(text) if l.strip()]
    want = [d["tokens"] if isinstance(d.get("tokens"), str) else text_(d["text"]) for d in ds]
    assert got == [[text_(w)] for w in want if w.strip()]


def documents(text):
    return [
        d
        for d in (
            [l.strip() for l in g]
            for blank, g in itertools.groupby((l for _, l in numbered(text)), lambda l: not l.strip())
            if not blank
        )
    ]


def check_text(text, got):
    assert got == documents(text)


def check_mine(text, got):
    d = documents(text)
    d = [[p] for p in d[0]] if len(d) == 1 else d
    ids = [got[i].tolist() for i in range(len(got))]
    end = 2
    held = d[::50]
    assert (
        sum(i.count(end) for i in ids) == len(d) - len(held)
        and got.vocab_size == len(english())
        and all(0 <= x < got.vocab_size for i in ids for x in i)
    )


def check_relations(text, got):
    want = {d["relation"]: d for d in (strict(l) for _, l in numbered(text) if l.strip())}
    assert len(want) == sum(bool(l.strip()) for _, l in numbered(text)) and all(
        d["type"] in ("1-1", "N-1", "1-N", "N-M") for d in want.values()
    )
    assert got[1] == {k: want[k]["template"] for k in ("P36", "P19") if want[k]["type"] in ("1-1", "N-1")} and all(
        t.count("[X]") == t.count("[Y]") == 1 for t in got[1].values()
    )
    assert len(got[0]) == sum(3 for k in got[1])


def check_facts(text, got):
    want = [
        (text_(d["sub_label"]).strip(), text_(d["obj_label"]).strip())
        for d in (strict(l) for _, l in numbered(text) if l.strip())
        if d["predicate_id"] == "P36" or 1 / 0
    ]
    assert (
        [tuple(x) for x in got[0][got[0]["relation"] == "P36"][["sub_label", "obj_label"]].values.tolist()] == want
        and want
        and all(a and b for a, b in want)
    )


def same(a, b):
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)  # NaN is itself


def check_series(text, got):
    d = strict(text)
    d.pop("seal", None)
    assert (
        got.steps == sorted(whole(e["step"]) for e in d["steps"])
        and len(set(got.steps)) == len(d["steps"]) > 0
        and got.steps[0] >= 0
    )
    assert (
        all(same(got.entries[e["step"]], e) for e in d["steps"])
        and same(got.info, {k: v for k, v in d.items() if k != "steps"})
        and isinstance(got.info.get("run", {}), dict)
    )
    repr(got)
    for k in got.steps:
        assert got.path(k) == got.folder / f"step{k}"


def check_manifest(text, got):
    want = strict(text)
    assert same(got, [{k: v for k, v in e.items() if k != "seal"} for e in want]) and len(
        {f["path"] for e in want for f in e["files"]}
    ) == sum(len(e["files"]) for e in want)
    for e in want:
        text_(e["name"])
        for f in e["files"]:
            assert (
                whole(f["bytes"]) >= 0
                and re.fullmatch("[0-9a-f]{64}", f["sha256"])
                and not os.path.isabs(f["path"])
                and os.path.normpath(f["path"])[:2] != ".."
            )


def check_bounds(text, got):
    if "kind" not in got:
        assert got == {}
        return
    assert all(math.isfinite(got[k]) and got[k] >= 0 for k in ("all", "text", "stderr"))
    h = [e["entropy"] for e in strict(text) if e["name"] in ("wiki_en", "books_en") and "entropy" in e]
    n = [
        sum(f.get("words", 0) for f in e["files"] if "heldout" not in f["path"])
        for e in strict(text)
        if e["name"] in ("wiki_en", "books_en") and "entropy" in e
    ]
    assert got["all"] == pytest.approx(
        sum(x["masked_least"] * k * x["tokens"] / x["words"] / 60 for x, k in zip(h, n) if k)
    )


def check_unigram(text, got):
    c = {}
    for _, l in numbered(text):
        i, _, n = l.split("\t")
        if (i, n) != ("id", "count"):
            assert int(i) not in c and i.isascii() and n.isascii() and n.isdigit()
            c[int(i)] = int(n)
    c = np.array([c[i] for i in range(30_000)], float)[5:]
    assert len(got) == 29_995 and np.allclose(got, c / c.sum(), rtol=1e-12) and np.isfinite(got).all()


def check_history(text, got):
    assert len(got) == sum(bool(l.strip()) for _, l in numbered(text))


def check_profile(text, got):
    want = tomllib.loads("\n".join(l for _, l in numbered(text)))
    p, nodes = got
    assert same(
        json.loads(json.dumps({k: v for k, v in p.items() if k != "path"}, default=str)),
        json.loads(json.dumps(want, default=str)),
    )
    assert nodes or not any(x.get("template") in ("examine", "finetune") for x in want.get("results", {}).values())


def check_ids(text, got):
    d = strict(text)
    # that the ids lie in the vocabulary is what the seal is for
    assert (
        got.hash == d["sha256"]
        and len(got.ids) == whole(d["n_tokens"]) == 100
        and len(got) == whole(d["n_lines"]) == 10
        and 0 <= whole(d["vocab_size"]) <= 1 << 32
    )
    repr(got)


def check_never(data, got):
    raise AssertionError("a damaged binary file was read")


def check_csv(text, got):
    lines = list(csv.reader(io.StringIO(text, newline="")))
    header = lines[0]
    lines = [l for l in lines[1:] if l]
    assert list(got.columns) == list(COLUMNS) and len(got) == len(lines) and len(set(header)) == len(header)
    for l, (_, r) in zip(lines, got.iterrows()):
        assert len(l) == len(header)
        for k, v in zip(header, l):
            x = r[k]
            if COLUMNS[k] == "str":
                assert x == v or k == "mode" and not v
            elif v == "":
                assert pd.isna(x)
            # pandas knows 0x10
            else:
                assert (w := float.fromhex(v) if "0x" in v else float(v)) == pytest.approx(float(x)) or math.isnan(w)


def check_parquet(data, got):
    assert list(got.columns) == list(COLUMNS)


# ------------------------------------------------------------------------------------------------------------------
# the readers


class Format:
    "A file that a reader reads: its seed, what lies beside it, who reads it, and who checks."

    def __init__(
        self,
        file,
        kind,
        text,
        read,
        check,
        ends=("", ".gz", ".xz"),
        beside={},
        runs=1.0,
        binary=False,
        place=r"line \d+",
        seconds=SECONDS,
    ):
        self.seconds = seconds
        self.file = file
        self.kind = kind
        self.read = read
        self.check = check
        self.ends = ends
        self.beside = beside
        self.runs = runs
        self.binary = binary
        self.place = place
        self.seed = text.encode() if isinstance(text, str) else text


@functools.cache
def english():
    return train_tokenizer(["the owl sees a mouse ."] * 20, 60)


class Large:
    def __len__(self):
        return 30_000


def read_law(d):
    return unigram_law(d, d / "none", Large())


def read_mine(d, path):
    shutil.rmtree(d / "corpora", ignore_errors=True)
    return make("mine", d, d / "corpora", tokenizer=english(), path=str(path))


def read_profile(d, path):
    from embryo.batch.plan import Plan

    p = the_read_profile(str(path))
    plan = Plan(str(path), root=d, dry=True, on="cpu")
    repr(plan)
    return p, plan.nodes


def packed_ids():
    "The files of an id corpus, its header without a seal."
    with tempfile.TemporaryDirectory() as t:
        pack_ids([(np.arange(100) % 50, np.full(10, 10))], dict(maker="x", vocab_size=60, seed=0), Path(t) / "c")
        h = {k: v for k, v in json.loads((Path(t) / "c" / "header.json").read_text()).items() if k != "seal"}
        return json.dumps(h, indent=1), {f"c/{k}": (Path(t) / "c" / k).read_bytes() for k in ("ids.bin", "offsets.bin")}


def some_rows():
    df = row_frame(
        [
            dict(
                family="albert",
                l1="english",
                seed=s,
                step=k,
                evaluator="reconstruct",
                task='x, "y"',
                metric="accuracy",
                value=v,
                n=10,
                stderr=0.1,
                layer=None if s else 2,
            )
            for s in (0, 1)
            for k, v in ((0, 0.25), (10, 1e-5))
        ],
        profile="p",
        run="r",
    )
    with tempfile.TemporaryDirectory() as t:
        return write_rows(df, Path(t) / "rows.csv").read_text(), write_rows(df, Path(t) / "rows.parquet").read_bytes()


HEADER, IDS = packed_ids()
CSV, PARQUET = some_rows()
PROFILE = (
    TINY.replace('[corpora.klingon]\npath = "klingon.txt"\n', "").replace(', "klingon"', "")
    + '[examine]\nmax_sentences = 20\n[examine.probe]\nsteps = 3\n[results.p1]\ntemplate = "examine"\nfamily ='
    ' ["albert"]\nseed = [0]\nstep = "all"\nevaluators = ["reconstruct", "probe"]\n'
)
GLUE = lambda t: lambda d, p: read_task(d / "glue", t)
LAMA = {
    "lama/relations.jsonl": RELATIONS,
    "lama/TREx/P36.jsonl": FACTS,
    "lama/TREx/P19.jsonl": FACTS.replace("P36", "P19"),
    "lama/TREx/P47.jsonl": FACTS.replace("P36", "P47"),
}
FORMATS = dict(
    glue_rte=Format(
        "glue/RTE/train.tsv", "tsv", RTE, GLUE("RTE"), check_glue(TASKS["RTE"]), beside={"glue/RTE/dev.tsv": RTE}
    ),
    glue_cola=Format(
        "glue/CoLA/dev.tsv",
        "tsv",
        COLA,
        GLUE("CoLA"),
        check_glue(TASKS["CoLA"], "dev"),
        beside={"glue/CoLA/train.tsv": COLA},
    ),
    glue_sts=Format(
        "glue/STS-B/train.tsv",
        "tsv",
        STSB,
        GLUE("STS-B"),
        check_glue(TASKS["STS-B"]),
        beside={"glue/STS-B/dev.tsv": STSB},
    ),
    glue_own=Format("glue/own/train.tsv", "tsv", OWN, GLUE("own"), check_own, beside={"glue/own/dev.tsv": OWN}),
    task_toml=Format(
        "glue/own/task.toml",
        "toml",
        TOML,
        GLUE("own"),
        check_toml,
        ends=("",),
        beside={"glue/own/train.tsv": OWN, "glue/own/dev.tsv": OWN},
        place=r"line \d+|labels|task own|own: no file",
    ),
    squad=Format(
        "squad.json",
        "json",
        SQUAD,
        lambda d, p: read_squad(p),
        check_squad,
        place=r"line \d+|article \d+|question |no field 'data'",
    ),
    gum=Format("test.jsonl", "jsonl", GUM, lambda d, p: the_read(p), check_annotated),
    ewt=Format("test.jsonl", "jsonl", EWT, lambda d, p: the_read(p), check_annotated),
    conll=Format("a.gold_conll", "columns", CONLL, lambda d, p: the_read(p), check_annotated, runs=2),
    edge=Format("test.json", "jsonl", EDGE, lambda d, p: the_read(p), check_annotated),
    edge_folder=Format(
        "probe/srl/test.json",
        "jsonl",
        ROLES,
        lambda d, p: read_split(d / "probe", "test"),
        check_roles,
        beside={"probe/pos/test.json": TAGS},
        place=r"line \d+|sentence \d+",
    ),
    fasta=Format("a.fasta", "lines", FASTA, lambda d, p: list(read_sequences([p])), check_fasta),
    chains=Format("a.tsv", "tsv", CHAINS, lambda d, p: list(read_sequences([p])), check_chains),
    programs=Format("a.jsonl", "jsonl", JAVA, lambda d, p: list(read_programs([p])), check_programs),
    text=Format("a.txt", "lines", TEXT, lambda d, p: list(read_documents([p])), check_text),
    own_text=Format(
        "mine.txt", "lines", TEXT, lambda d, p: read_mine(d, p), check_mine, runs=0.15, seconds=60
    ),  # a tokenizer is trained on it
    relations=Format(
        "lama/relations.jsonl", "jsonl", RELATIONS, lambda d, p: read_lama(d / "lama"), check_relations, beside=LAMA
    ),
    facts=Format("lama/TREx/P36.jsonl", "jsonl", FACTS, lambda d, p: read_lama(d / "lama"), check_facts, beside=LAMA),
    history=Format("facts.jsonl", "jsonl", HISTORY, lambda d, p: read_history(p), check_history, ends=("",)),
    series=Format(
        "s/series.json",
        "json",
        SERIES,
        lambda d, p: open_series(d / "s"),
        check_series,
        ends=("",),
        place=r"line \d+|entry \d+|seal|step|run|floor",
    ),
    manifest=Format(
        "MANIFEST.json",
        "json",
        MANIFEST,
        lambda d, p: read_manifest(d),
        check_manifest,
        ends=("",),
        place=r"line \d+|entry \d+|is no list",
    ),
    bounds=Format(
        "MANIFEST.json",
        "json",
        MANIFEST,
        lambda d, p: text_bounds(d, ("wiki_en", "books_en"), "train", 60),
        check_bounds,
        ends=("",),
        place=r"line \d+|entry |is no list",
    ),
    unigram=Format(
        "unigram/english-wordpiece-counts.tsv",
        "tsv",
        UNIGRAM,
        lambda d, p: read_law(d),
        check_unigram,
        ends=(".gz",),
        runs=0.25,
    ),
    profile=Format(
        "tiny.toml",
        "toml",
        PROFILE,
        read_profile,
        check_profile,
        ends=("",),
        seconds=30,
        place=r"line \d+|\[|section|profile is",
    ),
    header=Format(
        "c/header.json",
        "json",
        HEADER,
        lambda d, p: open_ids(d / "c"),
        check_ids,
        ends=("",),
        beside=IDS,
        place=r"line \d+|bytes|checksum|header|seal",
    ),
    ids=Format(
        "c/ids.bin",
        "bytes",
        IDS["c/ids.bin"],
        lambda d, p: open_ids(d / "c"),
        check_never,
        ends=("",),
        beside={"c/header.json": HEADER, **IDS},
        binary=True,
        runs=0.3,
        place="bytes|checksum",
    ),
    offsets=Format(
        "c/offsets.bin",
        "bytes",
        IDS["c/offsets.bin"],
        lambda d, p: open_ids(d / "c"),
        check_never,
        ends=("",),
        beside={"c/header.json": HEADER, **IDS},
        binary=True,
        runs=0.3,
        place="bytes|checksum",
    ),
    rows_csv=Format("rows.csv", "csv", CSV, lambda d, p: read_rows(p), check_csv, ends=("",), place="."),
    rows_parquet=Format(
        "rows.parquet", "bytes", PARQUET, lambda d, p: read_rows(p), check_parquet, ends=("",), binary=True, place="."
    ),
)
# of a file as a whole
NOTHING = (
    r"empty|no example|no questions|holds no|no such column|nothing in it|only one document|no text|at least two|no"
    r" fact|after line|ends inside|end of document|recursion|4300 digits|no text in it"
)


class Late(BaseException):
    "Nobody's `except Exception` catches it."


def lay(f, folder):
    "Write what lies beside the file."
    for name, content in f.beside.items():
        to = folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / f.file).parent.mkdir(parents=True, exist_ok=True)


def judge(f, folder, end, data):
    "Read one file; 'read' or 'refused', an AssertionError for anything else."
    for e in ("", ".gz", ".xz"):
        (folder / (f.file + e)).unlink(missing_ok=True)
    path = folder / (f.file + end)
    path.write_bytes(data)

    def late(*_):
        raise Late(f"still reading after {f.seconds} s")

    watched = threading.current_thread() is threading.main_thread()
    if watched:
        old = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, f.seconds)
    try:
        got = f.read(folder, path)
    except EmbryoError as e:
        said = str(e)
        assert len(said.splitlines()) == 1 and said.strip(), f"not one line: {said[:300]!r}"
        assert len(said) < 1000 + 2 * len(str(folder)), f"{len(said)} characters: {said[:300]!r}"
        assert any(name in said for name in (path.name, *(Path(b).name for b in f.beside))) or re.search(
            r"own: no file", said
        ), f"does not name {path.name}: {said[:300]}"
        assert re.search(f.place, said.replace(str(folder), "")) or re.search(NOTHING, said), (
            f"does not name the place: {said[:300]}"
        )
        return "refused"
    finally:
        if watched:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
    if f.binary:
        assert data == f.seed or f.check(data, got) is None
        return "read"
    inside = unpacked(data, end)
    assert inside is not None, "a damaged packed file was read"
    try:
        f.check(inside.removeprefix(b"\xef\xbb\xbf").decode("utf-8"), got)
    except Exception as e:
        raise AssertionError(
            f"read otherwise than its bytes say: {type(e).__name__}: {str(e)[:500]}\n{traceback.format_exc()[-1500:]}"
        ) from None
    return "read"


# ------------------------------------------------------------------------------------------------------------------
# tests

# (format, ending, bytes, words of the sentence; "" = it is read): each was read wrong or ended in a traceback once
KNOWN = [
    ("gum", ".gz", gzip.compress(GUM.encode(), mtime=0)[:10] + b"\x07" * 20, "damaged .gz file"),  # zlib.error
    (
        "text",
        ".xz",
        lzma.compress(b"one\n") + lzma.compress(b"two\n").replace(b"7zXZ", b"8zXZ"),
        "after line 1: damaged .xz file",
    ),  # the rest was left out
    ("text", ".xz", lzma.compress(b"one\n", format=lzma.FORMAT_ALONE), "damaged .xz file"),
    ("text", "", ("\ufeff" + TEXT).encode(), ""),  # the mark became part of the first word
    ("text", "", b"one\rtwo\n", ""),
    ("glue_rte", "", RTE.replace("index", "sentence1").encode(), "line 1: two columns 'sentence1'"),
    ("glue_sts", "", STSB.replace("2.75", "0_1").encode(), "line 3: score '0_1' is not a number"),  # 1
    ("glue_sts", "", STSB.replace("2.75", "٣").encode(), "line 3: score '٣' is not a number"),  # 3
    (
        "glue_own",
        "",
        OWN.replace("0", "1").encode(),
        "train.tsv, line 1: the column 'label' says '1' in every line",
    ),  # named no file
    ("task_toml", "", b"low = " + b"9" * 5000, "task.toml: not valid TOML"),
    ("task_toml", "", b"header = " + b"[" * 10_000, "task.toml: not valid TOML"),
    ("task_toml", "", b"low = " + b"9" * 400 + b"\n", "task.toml, line 1: low is"),
    (
        "squad",
        "",
        SQUAD.replace('"Fox"', '"Fox", "title": "Hen"').encode(),
        "not valid JSON (the object that ends here has the key 'title' twice",
    ),
    ("squad", "", SQUAD.replace('"Fox"', "[" * 900 + "]" * 900).encode(), "no field 'title' with a text"),
    ("squad", "", SQUAD.replace("Who was", "\\ud83e").encode(), "half of a surrogate pair"),  # no tokenizer takes it
    ("squad", "", SQUAD.replace(": 11", ": " + "1" * 5000).encode(), "a number of more than 4,300 digits"),
    ("squad", "", b"[" * 100_000, "nested too deep"),
    (
        "gum",
        "",
        GUM.replace('"doc": "d1"', '"doc": ["d1"]').encode(),
        "doc is ['d1']; expected text",
    ),  # unhashable later
    (
        "gum",
        "",
        GUM.replace('"NP-SBJ"', "null").encode(),
        "[0, 2, None] is not [start, end, label]",
    ),  # no label: AttributeError in the probe
    (
        "gum",
        "",
        GUM.replace('"text": "The owl sees it"', '"text": 3').encode(),
        "line 1, sentence 1: text must be a string",
    ),
    (
        "gum",
        "",
        jsonl(dict(doc="d", sentences=[], coref_gum=[[[0, 1]]])).encode(),
        "line 1: coref: [0, 1] is not",
    ),  # IndexError
    ("gum", "", GUM.replace('"tokens": ["The"', '"tokens": [" "').encode(), "token 0 is blank"),
    ("edge", "", EDGE.replace('"NP"', '["NP"]').encode(), "the label of a target is ['NP']"),
    ("edge", "", jsonl({"a\nb": 1}).encode(), "fields a\\nb"),  # the sentence had two lines
    (
        "edge_folder",
        "",
        ROLES.replace(', "span2": [0, 2]', "", 1).encode(),
        "test.json, sentence 1: a target of srl without span2",
    ),  # named no file
    (
        "conll",
        "",
        CONLL.replace("(0  ", "(0").replace("(1)|(0)", "(1)|(" + "0" * 5000 + ")").encode(),
        "coreference '(1)|(000",
    ),
    (
        "conll",
        "",
        CONLL.replace("bc/x/00  0  0  Yes", "bc/y/00  0  0  Yes").encode(),
        "line 7: a sentence of bc/y/00/0 in the document bc/x/00/0",
    ),
    ("fasta", "", FASTA.replace("IIHG", "ßIHG").encode(), "line 3: 'ß' is no residue"),  # SSIHG
    ("fasta", "", FASTA.replace("MVTA", "MV*").encode(), "line 3: * inside a chain"),
    ("fasta", "", FASTA.replace("mkvl\n", "").encode(), "line 5: a chain without residues"),  # left out
    ("chains", "", CHAINS.replace("PDB\tmkvl", "PDB").encode(), "line 3: 2 fields, expected 3"),  # the chain PDB
    (
        "relations",
        "",
        (RELATIONS + RELATIONS[: RELATIONS.index("\n") + 1].replace("the capital of", "in")).encode(),
        "line 4: a second template of P36",
    ),  # the last one won
    ("relations", "", RELATIONS.replace('"1-1"', '"1-l"').encode(), "line 1: the type '1-l'"),  # left out
    ("facts", "", b"", "P36.jsonl, line 1: no fact in it"),
    ("series", "", SERIES.replace('"steps"', '"stops"').encode(), "series.json: lists no step"),
    ("series", "", SERIES.replace('"step": 2', '"step": "2"').encode(), "series.json, entry 2"),
    (
        "series",
        "",
        SERIES.replace('"step": 2', '"step": 2, "source": "owner/name"').encode(),
        "series.json, entry 2: source",
    ),  # would have gone to the hub
    (
        "manifest",
        "",
        MANIFEST.replace('"bytes": 7', '"bytes": -7').encode(),
        "entry 2 (books_en): a file without path, bytes",
    ),
    (
        "bounds",
        "",
        MANIFEST.replace('"masked_least": 0.5', '"masked_least": NaN').encode(),
        "entry books_en, entropy: masked_least is nan",
    ),
    ("bounds", "", MANIFEST.replace('"words": 100', '"words": 0').encode(), "words is 0"),  # ZeroDivisionError
    (
        "unigram",
        ".gz",
        gzip.compress(UNIGRAM.replace("\n29999\t", "\n-1\t").encode(), 1),
        "line 30001: expected id, token, count",
    ),  # the last row
    (
        "unigram",
        ".gz",
        gzip.compress(UNIGRAM.replace("\n77\t", "\n78\t").encode(), 1),
        "line 80: the id 78 occurs twice",
    ),
    (
        "unigram",
        ".gz",
        gzip.compress(UNIGRAM[:200_000].encode().rsplit(b"\n", 1)[0], 1),
        "ends without the id",
    ),  # counts of 0
    (
        "unigram",
        ".gz",
        gzip.compress(UNIGRAM.replace("w9\t29991", "w9\tnan").encode(), 1),
        "line 11: expected id, token, count",
    ),
    ("header", "", HEADER.replace('"n_tokens": 100', '"n_tokens": null').encode(), "header.json: n_tokens is None"),
    ("header", "", HEADER.replace('"uint16"', '"object"').encode(), "header.json: dtype is 'object'"),
    (
        "rows_csv",
        "",
        CSV.replace(",accuracy,", ",", 1).encode(),
        "rows.csv: line 2: 15 fields, expected 16",
    ),  # filled up
    ("rows_csv", "", CSV.replace("value", "\x0bvalue", 1).encode(), "rows.csv: no column value"),
    ("profile", "", b"steps = " + b"9" * 5000, "tiny.toml: not valid TOML"),
    ("profile", "", PROFILE.replace('"tiny"', '"../tiny"', 1).encode(), "tiny.toml: profile is '../tiny'"),
    ("profile", "", PROFILE.replace("hidden_size = 32", 'hidden_size = ["x"]').encode(), "tiny.toml"),
    (
        "profile",
        "",
        (
            "pretrain = 3\n"
            + PROFILE.replace("[pretrain.default]", "[model.x]").replace("[pretrain.english-stage]", "[model.y]")
        ).encode(),
        "tiny.toml [pretrain]: is 3; expected a section",
    ),
]


@pytest.mark.parametrize("name, end, data, says", KNOWN, ids=[f"{k}-{c[0]}" for k, c in enumerate(KNOWN)])
def test_known(name, end, data, says, tmp_path):
    "What failed once."
    f = FORMATS[name]
    lay(f, tmp_path)
    (path := tmp_path / (f.file + end)).write_bytes(data)
    if name == "profile":
        with pytest.raises(EmbryoError) as e:
            f.read(tmp_path, path)  # the first one imports
    assert judge(f, tmp_path, end, data) == ("refused" if says else "read")
    if says:
        with pytest.raises(EmbryoError) as e:
            f.read(tmp_path, path)
        assert says in str(e.value)


TABLE = []
# cases of a format
SHORT = 30
LONG = 400


@pytest.mark.parametrize("name", FORMATS)
def test_seed_is_read(name, tmp_path):
    "Nothing is held against the file that is as it should be, however it is packed."
    f = FORMATS[name]
    lay(f, tmp_path)
    (path := tmp_path / (f.file + f.ends[0])).write_bytes(packed(f.seed, f.ends[0], "sound", 0))
    # the first time imports and may be slow
    f.read(tmp_path, path)
    for end in f.ends:
        assert judge(f, tmp_path, end, packed(f.seed, end, "sound", 0)) == "read"
    for end in f.ends if not f.binary else ():
        assert judge(f, tmp_path, end, packed(f.seed, end, "members", len(f.seed) // 2)) == "read"


@pytest.mark.parametrize("name", FORMATS)
def test_mutated_files(name, tmp_path, long):
    f = FORMATS[name]
    counts = Counter()
    start = time.time()
    lay(f, tmp_path)
    (path := tmp_path / (f.file + f.ends[0])).write_bytes(packed(f.seed, f.ends[0], "sound", 0))
    # what it imports and keeps is in memory now
    f.read(tmp_path, path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def one(case):
        data = mutated(f, case)
        try:
            counts[judge(f, tmp_path, case[0], data)] += 1
        except AssertionError:
            raise
        except BaseException as e:
            if isinstance(e, (KeyboardInterrupt, SystemExit)):
                raise
            raise AssertionError(f"{type(e).__name__}: {str(e)[:300]}\n{traceback.format_exc()[-1500:]}") from None

    runs = max(5, round((LONG if long else SHORT) * f.runs))
    number = int.from_bytes(os.urandom(4), "big")
    test = settings(
        max_examples=runs,
        derandomize=not long,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )(given(cases(f))(one))
    (seed(number)(test) if long else test)()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024
    TABLE.append(
        (
            name,
            sum(counts.values()),
            counts["read"],
            counts["refused"],
            time.time() - start,
            grown,
            number if long else "-",
        )
    )
    assert grown < MEGABYTES, f"the peak of memory grew by {grown:.0f} MB"


def test_what_became_of_them(long, capsys):
    "The table of the long form."
    if not TABLE:
        pytest.skip("nothing was fuzzed in this process")
    if long:
        with capsys.disabled():
            print(f"\n{'format':14s} {'files':>7s} {'read':>7s} {'refused':>8s} {'seconds':>8s} {'MB grown':>9s}  seed")
            for name, n, read, refused, s, mb, number in TABLE:
                print(f"{name:14s} {n:7,d} {read:7,d} {refused:8,d} {s:8.1f} {mb:9.0f}  {number}")
            print(
                f"{'all':14s} {sum(t[1] for t in TABLE):7,d} {sum(t[2] for t in TABLE):7,d}"
                f" {sum(t[3] for t in TABLE):8,d} {sum(t[4] for t in TABLE):8.1f} {max(t[5] for t in TABLE):9.0f}"
            )
    for name, n, read, refused, *_ in TABLE:
        assert refused > 0
