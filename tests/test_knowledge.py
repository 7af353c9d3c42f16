"""What a checkpoint knows: `ask` against a slow reference, the folder of facts, verdicts on curves."""

import gzip
import json
import lzma
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from embryo.corpora.tokens import train_tokenizer
from embryo.evaluation.knowledge.facts import CANDIDATES, ask, fact_hits, history_rows, read_history, with_history
from embryo.evaluation.knowledge.lama import casing, read_lama, single_pieces
from embryo.evaluation.knowledge.verdicts import complete, complete_rows, examples, verdicts
from embryo.ground.errors import EmbryoError
from embryo.ground.printed import RELATIONS
from embryo.ground.rows import row_frame, write_rows
from embryo.micro.english.sentences import text_of
from embryo.micro.facts.facts import FACTS, PHRASES, FactBook, lama_files, state
from embryo.models.models import build, mlm_head

DATA = Path(os.environ.get("EMBRYO_DATA") or "/nonexistent")
NET = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, initializer_range=0.5)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    "Folder of questions, tokenizer, facts, templates."
    root = tmp_path_factory.mktemp("world")
    for path, text in lama_files(FactBook(0)).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    tok = train_tokenizer([text_of(state(f, p)[0]) for f in FACTS for p in PHRASES[f.relation]], vocab_size=900)
    return root / "lama", tok, *read_lama(root / "lama")


def model(family, tok, positions=40, seed=0):
    "An untrained model that answers jazz, so that some answers are right."
    m = build(family, len(tok), positions, seed, **NET, **(dict(embedding_size=16) if family == "albert" else {}))
    with torch.no_grad():
        mlm_head(m).decoder.bias[tok.convert_tokens_to_ids("jazz")] += 200
    return m


def slow(m, tok, facts, templates):
    """P@1, P@10 and MRR by hand: one fact, one forward pass of the whole model, one sorted list at a time; {(task,
    relation, metric): (value, n)}."""
    m.eval()
    found = {}
    known = {}
    for o in set(facts["obj_label"]):
        ids = tok(o, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tok.unk_token_id:
            known[o] = ids[0]
    for task in CANDIDATES:
        done = set()
        for r, s, o in facts[["relation", "sub_label", "obj_label"]].itertuples(index=False):
            if o not in known or (task != "vocabulary" and (r, s, o) in done):
                continue
            done.add((r, s, o))
            ids = tok(templates[r].replace("[X]", s).replace("[Y]", tok.mask_token))["input_ids"]
            if len(ids) > 40:
                continue
            with torch.no_grad():
                logits = m(torch.tensor([ids])).logits[0, ids.index(tok.mask_token_id)].tolist()
            cand = dict(
                vocabulary=range(len(tok)),
                common=set(known.values()),
                relation={known[x] for x in facts["obj_label"][facts["relation"] == r] if x in known},
            )[task]
            order = sorted(cand, key=lambda i: -logits[i])
            at = order.index(known[o]) + 1
            assert sum(logits[i] == logits[known[o]] for i in cand) == 1
            for metric, v in (("p@1", Fraction(at == 1)), ("p@10", Fraction(at <= 10)), ("mrr", Fraction(1, at))):
                found.setdefault((task, r, metric), []).append(v)
    return {k: (sum(v) / len(v), len(v)) for k, v in found.items()}


@pytest.mark.parametrize("family", ["roberta", "albert"])
def test_ask_is_the_slow_reference(world, family):
    """Every score and every n of every relation, in all three candidate sets; subjects with two objects and
    repeated lines included."""
    _, tok, facts, templates = world
    some = pd.concat(
        [
            facts.groupby("relation").head(6),
            facts[facts["relation"] == "P36"].head(2),
            pd.DataFrame([("P37", "Canada", "French"), ("P37", "Canada", "English")], columns=facts.columns),
        ],
        ignore_index=True,
    )
    m = model(family, tok)
    want = slow(m, tok, some, templates)
    rows = ask(m, tok, some, templates, max_tokens=90)
    got = rows[rows["metric"].isin(["p@1", "p@10", "mrr"]) & ~rows["group"].isin(["all", "macro"])].set_index(
        ["task", "group", "metric"]
    )
    assert set(got.index) == set(want)
    for k, (v, n) in want.items():
        assert (got.loc[k, "n"], got.loc[k, "value"]) == (n, pytest.approx(float(v), abs=1e-12)), k
    assert 0 < sum(v for (t, _, k), (v, _) in want.items() if (t, k) == ("vocabulary", "p@1"))
    assert set(zip(got.reset_index()["task"], got["mode"])) == set(CANDIDATES.items())
    pool = lambda task: (
        sum(v * n for (t, _, k), (v, n) in want.items() if (t, k) == (task, "p@1"))
        / sum(n for (t, _, k), (_, n) in want.items() if (t, k) == (task, "p@1"))
    )
    total = rows[rows["metric"] == "p@1"].set_index(["task", "group"])["value"]
    for task in CANDIDATES:
        assert total[task, "all"] == pytest.approx(float(pool(task)))
        assert total[task, "macro"] == pytest.approx(
            np.mean([float(v) for (t, _, k), (v, _) in want.items() if (t, k) == (task, "p@1")])
        )


def test_a_model_is_left_as_it_was(world):
    _, tok, facts, templates = world
    m = model("roberta", tok).bfloat16().train()
    r = ask(m, tok, facts, templates)
    assert m.training and m.dtype == torch.bfloat16 and len(r)
    # fp32: ranks do not depend on the batch
    pd.testing.assert_frame_equal(r, ask(m, tok, facts, templates, max_tokens=10**6))
    pd.testing.assert_frame_equal(r, ask(m, tok, facts.to_dict("records"), templates))


def test_folder_plain_and_packed(world, tmp_path):
    "The real folder is packed, the original LAMA is plain and its lines have more keys."
    folder, _, facts, templates = world
    for i, (end, opener) in enumerate(((".gz", gzip.open), (".xz", lzma.open), ("", open))):
        d = tmp_path / str(i)
        (d / "TREx").mkdir(parents=True)
        for p in [folder / "relations.jsonl", *(folder / "TREx").iterdir()]:
            more = lambda l: json.dumps(dict(json.loads(l), evidences=[{"masked_sentence": "x"}]))
            with opener(d / p.relative_to(folder).with_name(p.name + end), "wt") as f:
                f.write("\n".join(map(more, p.read_text().splitlines())) + "\n")
        f, t = read_lama(d)
        pd.testing.assert_frame_equal(f, facts)
        assert t == templates


REL = '{"relation": "P36", "template": "The capital of [X] is [Y] .", "type": "1-1"}\n'
FACT = '{"predicate_id": "P36", "sub_label": "France", "obj_label": "Paris"}\n'


@pytest.mark.parametrize(
    "relations, facts, message",
    [
        (REL, FACT + FACT[:30], "P36.jsonl, line 2: not a whole JSON object"),
        (REL, FACT + "\n" + FACT[:-3] + "\n", "P36.jsonl, line 3: not a whole JSON object"),
        (REL, FACT.replace('"Paris"', "null"), "P36.jsonl, line 1: no 'obj_label'"),
        (REL, FACT.replace('"France"', '" "'), "P36.jsonl, line 1: no 'sub_label'"),
        (REL, FACT + '["P36"]\n', "P36.jsonl, line 2: no 'predicate_id'"),
        (REL, FACT.replace("P36", "P37"), "P36.jsonl, line 1: a fact of P37 in the file of P36"),
        (REL.replace("P36", "P37"), FACT, "P36.jsonl, line 1: a fact of P36, for which"),
        (REL + REL[:50], FACT, "relations.jsonl, line 2: not a whole JSON object"),
        (REL.replace("[X]", "it"), FACT, "relations.jsonl, line 1: the template"),
        (REL.replace("template", "Template"), FACT, "relations.jsonl, line 1: no 'template'"),
        (None, FACT, "no relations.jsonl here"),
        (REL, None, "no TREx/*.jsonl here"),
    ],
)
def test_bad_folder(tmp_path, relations, facts, message):
    "One sentence with file and line."
    (tmp_path / "TREx").mkdir()
    if relations is not None:
        (tmp_path / "relations.jsonl").write_text(relations)
    if facts is not None:
        (tmp_path / "TREx" / "P36.jsonl").write_text(facts)
    with pytest.raises(EmbryoError) as e:
        read_lama(tmp_path)
    assert message in str(e.value) and "\n" not in str(e.value)


def test_cut_archive_and_history(tmp_path, world):
    folder = world[0]
    (tmp_path / "TREx").mkdir()
    (tmp_path / "relations.jsonl").write_text((folder / "relations.jsonl").read_text())
    packed = gzip.compress((folder / "TREx" / "P36.jsonl").read_bytes())
    (tmp_path / "TREx" / "P36.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(EmbryoError, match="P36.jsonl.gz.*damaged .gz file"):
        read_lama(tmp_path)
    text = FactBook(0).jsonl().splitlines()
    (tmp_path / "facts.jsonl").write_text("\n".join(text[:3]) + "\n" + text[3][:-20])
    with pytest.raises(EmbryoError, match="facts.jsonl, line 4: not a whole JSON object"):
        read_history(tmp_path / "facts.jsonl")
    (tmp_path / "facts.jsonl").write_text(text[0].replace('"count": 0', '"count": "no"'))
    with pytest.raises(EmbryoError, match="facts.jsonl, line 1: count is 'no'"):
        read_history(tmp_path / "facts.jsonl")


def test_bad_facts(world):
    _, tok, facts, templates = world
    m = model("roberta", tok)
    with pytest.raises(EmbryoError, match="relation 'P99' has no template"):
        ask(m, tok, [dict(relation="P99", sub_label="a", obj_label="b")], templates)
    with pytest.raises(EmbryoError, match="no facts"):
        ask(m, tok, facts[:0], templates)
    with pytest.raises(EmbryoError, match="it needs one of each"):
        ask(m, tok, facts[:1], {facts["relation"][0]: "Whose is [Y] ?"})
    # limiting case: nothing can be asked
    nothing = ask(m, tok, [dict(relation="P36", sub_label="France", obj_label="Xqzwvrt Bgh")], templates)
    assert set(nothing["task"]) == {"facts"} and nothing[nothing["metric"] == "asked"]["value"].tolist() == [0, 0]
    far = ask(
        model("roberta", tok), tok, [dict(relation="P36", sub_label="France " * 60, obj_label="Paris")], templates
    )
    assert far[far["metric"] == "too_long"]["value"].tolist() == [1, 1]


def test_casing_refuses(world):
    "The defect that the paper's BERT figure suggests: pretraining lower-cased, questions not, or the other way round."
    from tokenizers import normalizers
    from transformers import PreTrainedTokenizerFast

    _, tok, facts, templates = world
    cased = PreTrainedTokenizerFast(
        tokenizer_object=type(tok.backend_tokenizer).from_str(tok.backend_tokenizer.to_str()),
        unk_token="<unk>",
        mask_token="<mask>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
    )
    cased.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    with pytest.raises(EmbryoError, match="only in another case"):
        ask(model("roberta", tok), cased, facts, templates)
    lower = facts[facts["relation"].isin(["P279", "P361"])]
    # their common nouns survive, as in the figure
    assert "lost by case" not in set(casing(cased, lower)["state"])
    ids = single_pieces(tok, ["Paris"])
    counts = np.ones(len(tok), int)
    counts[ids["Paris"]] = 0
    assert casing(tok, facts, counts).set_index("obj_label")["seen"]["Paris"] == 0
    both = train_tokenizer(["Paris paris Rome rome"] * 9, vocab_size=60, strip_accents=False)
    both.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    both.add_tokens(["Paris"])
    # the vocabulary has both, the text had only one
    seen = np.zeros(len(both), int)
    seen[both.convert_tokens_to_ids("paris")] = 5
    with pytest.raises(EmbryoError, match="100%.*'Paris' is not the piece it learned, 'paris' is"):
        casing(both, [dict(relation="P36", sub_label="France", obj_label="Paris")], seen)


def test_history_joins(world):
    _, tok, facts, templates = world
    book = FactBook(0)
    history = pd.DataFrame([json.loads(l) for l in book.jsonl().splitlines()])
    history["count"] = [i % 70 for i in range(len(history))]
    hits = fact_hits(model("roberta", tok), tok, facts, templates)
    both = with_history(hits, history)
    assert len(both) == len(hits) and both["timing"].notna().all()
    rows = history_rows(hits, history)
    n = rows[(rows["metric"] == "p@1") & (rows["mode"] == "published")].groupby("task")["n"].sum()
    assert n.tolist() == [hits["rank vocabulary"].notna().sum()] * 4
    early = both[(both["timing"] == "early") & both["rank vocabulary"].notna()]["p@1 vocabulary"]
    assert rows[(rows["group"] == "early") & (rows["metric"] == "p@1") & (rows["mode"] == "published")][
        "value"
    ].item() == pytest.approx(early.mean())
    with pytest.raises(EmbryoError, match="is not in the history"):
        with_history(hits, history[1:])


def test_checkpoints_of_a_world(lab, tmp_path):
    "From the folder of a micro world and a series to rows and verdicts."
    from embryo.models.given import open_series

    facts, templates = read_lama(Path(lab["data"]) / "lama")
    assert set(templates) == set(RELATIONS) and len(facts) == len(FACTS)
    history = read_history(Path(lab["data"]) / "facts.jsonl")
    series = open_series(Path(lab["series"]) / "albert-english-s0")
    out = []
    for step in series.steps:
        m, tok = series.load(step)
        out.append(
            pd.concat(
                [ask(m, tok, facts, templates, history=history), complete_rows(m, tok, examples(facts, templates))]
            ).assign(step=step, family="albert", l1="english", seed=0)
        )
    rows = row_frame(pd.concat(out))
    write_rows(rows, tmp_path / "rows.csv")
    asked = rows[(rows["metric"] == "asked") & (rows["group"] == "all")]
    assert asked["n"].tolist() == [len(FACTS)] * 3 and asked["value"].nunique() == 1
    if asked["value"].iloc[0]:
        assert set(verdicts(rows)["verdict"]) == {"never"}
    said = complete(m, tok, "Paris is the capital of [MASK] .", top=2)
    assert (
        said.groupby("position")["probability"].is_monotonic_decreasing.all() and (said["piece"] == "<mask>").sum() == 2
    )


def test_verdicts_keep_seeds_apart():
    curve = lambda seed, *v: [
        dict(step=i, value=x, n=200, stderr=(x * (1 - x) / 200) ** 0.5, seed=seed) for i, x in enumerate(v)
    ]
    rows = row_frame(
        curve(0, 0, 0.3, 0.6, 0.6)
        + curve(1, 0, 0.6, 0.3, 0.1)
        + curve(2, 0, 0.01, 0, 0.02)
        + curve(3, 0, 0.6, 0.1, 0.6)
        + curve(4, 0.2, 0.6, 0.1, 0.6)
        + curve(5, 0.5, 0.2, 0.1, 0.1)
        + curve(6, 0.5, 0.1, 0.5, 0.5),
        evaluator="knowledge",
        task="vocabulary",
        mode="published",
        metric="p@1",
        group="P36",
        family="albert",
        l1="english",
    )
    # the order of rows does not matter
    v = verdicts(rows.sample(frac=1, random_state=0))
    assert v["verdict"].tolist() == ["learned", "forgotten", "never", "oscillating", "oscillating", "never", "never"]
    assert (v["peak_low"] <= v["peak"]).all() and (v["last"] <= v["last_high"]).all()
    with pytest.raises(EmbryoError, match="8 rows for 4 steps"):
        verdicts(pd.concat([rows[rows["seed"] == 0]] * 2))


@pytest.mark.skipif(not (DATA / "lama").is_dir(), reason="set EMBRYO_DATA to a data folder with lama/")
def test_real_lama():
    facts, templates = read_lama(DATA / "lama")
    assert (len(facts), set(templates)) == (20943, set(RELATIONS))
    assert templates == {r: RELATIONS[r].template for r in templates}
    assert examples(facts, templates)["P138"] == "Hamburg airport is named after [MASK] ."


def test_facts_are_counted_in_the_training_text_where_no_world_kept_a_record(world, tmp_path):
    from embryo.evaluation.evaluators import Asked, Checkpoint, run_knowledge

    lama, tok, facts, _ = world
    folder = tmp_path / "lama"
    folder.symlink_to(lama)  # without facts.jsonl beside it
    names = facts.drop_duplicates(["sub_label"])[:40]
    lines = [f"{f.sub_label} and {f.obj_label}." for f in names.itertuples() for _ in range(f.Index % 5)]
    (tmp_path / "wiki_en").mkdir()
    (tmp_path / "wiki_en" / "a.txt").write_text("\n".join(lines))
    net = model("bert", tok)
    text = dict(data=tmp_path, folders=["wiki_en"])
    asked = Asked(lama=str(folder), text=text, corpora=str(tmp_path / "corpora"))
    rows = run_knowledge(Checkpoint(net, tok, net, 0), asked)
    counted = rows[(rows["task"] == "by-count") & (rows["metric"] == "p@1") & (rows["mode"] == "published")]
    assert {"0", "1-3", "4-15"} >= set(counted["group"]) > {"0"}
    assert counted["n"].sum() == rows.query("task == 'facts' and metric == 'asked' and group == 'all'")["value"].sum()
    kept = list((tmp_path / "corpora" / "counted").glob("*.jsonl"))
    assert len(kept) == 1
    before = kept[0].stat().st_mtime_ns
    run_knowledge(Checkpoint(net, tok, net, 1), asked)
    assert kept[0].stat().st_mtime_ns == before  # the next checkpoint reads what the first counted
    none = run_knowledge(Checkpoint(net, tok, net, 0), Asked(lama=str(folder)))
    assert not (none["task"] == "by-count").any()
