"""SyntaxGym for masked models: formulas, suites, surprisals held against a plain loop, chance, rows, the batch."""

import gzip
import json
import lzma
import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import test_minimal_pairs as minimal
import torch

from embryo.evaluation.minimal_pairs.formulas import (
    Region,
    can_be_tested,
    chance_of,
    evaluate,
    parse_formula,
    regions_of,
)
from embryo.evaluation.minimal_pairs.scoring import VARIANTS, encode, gap_scores, gaps_of, score_texts
from embryo.evaluation.minimal_pairs.syntaxgym import (
    CIRCUIT_OF,
    CIRCUITS,
    SyntaxGymConfig,
    asked_regions,
    judge_suites,
    read_gym_file,
    read_syntaxgym,
    region_surprisals,
    sentence_of,
    syntaxgym,
    syntaxgym_rows,
    words_between,
)
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import read_rows, row_frame

DATA = Path(os.environ.get("EMBRYO_DATA") or "/nonexistent")
tokenizer = minimal.tokenizer  # the same fixture: a WordPiece that knows few words, so that most have several pieces
untrained = minimal.untrained


def suite_of(conditions, predictions):
    "A suite as its file has it. conditions: name -> regions of each item, with | between."
    items = []
    for n in range(len(next(iter(conditions.values())))):
        about = []
        for name, texts in conditions.items():
            regions = [dict(region_number=i, content=t) for i, t in enumerate(texts[n].split("|"), 1)]
            about.append(dict(condition_name=name, regions=regions))
        items.append(dict(item_number=n + 1, conditions=about))
    formulas = [dict(type="formula", formula=p) for p in predictions]
    meta = dict(name="toy", metric="sum")
    return dict(meta=meta, region_meta={"1": "intro"}, predictions=formulas, items=items)


def store(folder, name, suite):
    "Write a suite packed, and return its file."
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(suite).encode()))
    return folder / f"{name}.json.gz"


NUMBER = suite_of(
    dict(
        sing=["The souvenir|of the zebras|is quilt|.", "the cat| |sees a zebra|."],
        sing_bad=["The souvenir|of the zebras|are quilt|.", "the cat||see a zebra|."],
        plur=["The zebras|of the souvenir|are quilt|.", "the cats||see a zebra|."],
        plur_bad=["The zebras|of the souvenir|is quilt|.", "the cats||sees a zebra|."],
    ),
    ["[(3;%sing%) < (3;%sing_bad%)] & [(3;%plur%) < (3;%plur_bad%)]", "(4;%sing%) = (4;%plur%)"],
)
COMMA = suite_of(
    dict(sub=["as the cat sees|, the souvenir quilt is old ."], no=["the cat sees|, the souvenir quilt is old ."]),
    ["(2;%sub%) < (2;%no%)"],
)


@pytest.fixture
def folder(tmp_path):
    "Two suites."
    store(tmp_path / "syntaxgym", "number_src", NUMBER)
    store(tmp_path / "syntaxgym", "mine", COMMA)
    return tmp_path / "syntaxgym"


# ---- formulas ------------------------------------------------------------------------------------------------------
A = dict(a=2.0, b=1.0, c=5.0, d=4.5)  # surprisals of region 3 in four conditions


@pytest.mark.parametrize(
    "text, truth",
    [
        ("{a} > {b}", True),
        ("{a} < {b}", False),
        ("{a} + {b} < {c}", True),
        ("{c} - {d} > 0.5", False),  # exactly 0.5
        ("{c} - {d} - {b} < 0", True),  # from the left: (5 - 4.5) - 1
        ("{c} - {d} + {b} > 1", True),  # from the left: (5 - 4.5) + 1
        ("[{a} > {b}] & [{c} < {d}]", False),
        ("[{a} > {b}] | [{c} < {d}]", True),
        ("{a} > {b} | {a} > {b} & {c} < {d}", True),  # & binds tighter
        ("[{a} > {b} | {a} > {b}] & {c} < {d}", False),
        ("[[{a} - {b}] > [{c} - {d}]] & [{a} > {b}]", True),  # 1 > 0.5
        ("({a} - ({c} - {d}) - {b}) = 0.5", True),
        ("  [{a}]>({b})  ", True),
    ],
)
def test_formulas_against_truth_by_hand(text, truth):
    regions = {k: f"(3;%{k}%)" for k in A}
    tree = parse_formula(text.format(**regions))
    values = {Region(3, k): np.array([v]) for k, v in A.items()}
    assert evaluate(tree, values).tolist() == [truth]
    assert set(regions_of(tree)) <= set(values)


def test_random_formulas_against_python():
    "400 formulas, each written twice: as suites write them, and as Python does; Python's own parser is the judge."
    rng = np.random.default_rng(5)
    names = {Region(n, c): rng.normal(size=20) for n in (1, 12) for c in ("no-sub_matrix", "what_gap", "x")}

    def number(depth):
        if depth == 0 or rng.random() < 0.3:
            if rng.random() < 0.2:
                return (f"{rng.integers(3)}.5",) * 2
            r = list(names)[rng.integers(len(names))]
            return f"({r.number};%{r.condition}%)", f"v[R({r.number}, {r.condition!r})]"
        sign = "+-"[rng.integers(2)]
        (one, py), (two, py2) = number(depth - 1), number(depth - 1)
        return f"[{one} {sign} {two}]", f"({py} {sign} {py2})"

    def claim(depth):
        if depth == 0 or rng.random() < 0.3:
            sign = "<>"[rng.integers(2)]
            (one, py), (two, py2) = number(1), number(1)
            return f"{one}{sign}{two}", f"({py} {sign} {py2})"
        sign = "&|"[rng.integers(2)]
        (one, py), (two, py2) = claim(depth - 1), claim(depth - 1)
        return f"({one}) {sign} [{two}]", f"({py} {sign} {py2})"

    seen = set()
    asked = 0
    while asked < 400:
        text, python = claim(2)
        if "%" not in text:
            continue
        want = np.broadcast_to(eval(python, dict(v=names, R=Region)), 20).tolist()  # the test's own text
        assert np.broadcast_to(evaluate(parse_formula(text), names), 20).tolist() == want, text
        seen.update(want)
        asked += 1
    assert seen == {True, False}


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "the end where a region, a number or a bracket should stand"),
        ("(3;%a%)", "it compares no regions"),
        ("0 < 1", "it compares no regions"),
        ("(3;%a%) < (3;%b%) > 0", "'>' stands between other things than numbers"),
        ("[(3;%a%) < (3;%b%)] + 1 > 0", "'\\+' stands between other things than numbers"),
        ("(3;%a%) | 1 < 2", "'\\|' stands between other things than comparisons"),
        ("[(3;%a%) < (3;%b%)", r"'\[' is not closed by '\]'"),
        ("[(3;%a%) < (3;%b%))", r"'\[' is not closed by '\]'"),
        ("(3;%a%) < (3;%b%) (3;%c%)", "where the formula should end"),
        ("(3;a) < 1", "';' has no meaning"),
        ("(3;%a%) <", "the end where a region"),
        ("-(3;%a%) < 0", "- where a region, a number or a bracket should stand"),
        ("__import__('os').system('x') < (3;%a%)", "'_' has no meaning"),
        ("[" * 100_000, "more than 100 regions, numbers, signs and brackets"),
        ("(3;%a%) < " + "1 + " * 2000 + "1", "more than 100 regions, numbers, signs and brackets"),
        ("(99999;%a%) < 0", "has no meaning"),
    ],
)
def test_what_is_no_formula_is_refused(text, says):
    with pytest.raises(EmbryoError, match=f"s.json, prediction 2: .*{says}.*expected a comparison of regions") as e:
        parse_formula(text, "s.json, prediction 2")
    assert len(str(e.value)) < 600 and "\n" not in str(e.value)


@pytest.mark.parametrize(
    "text, share",
    [
        ("{a} < {b}", 1 / 2),
        ("[{a} < {b}] & [{c} < {d}]", 1 / 4),
        ("[{a} < {b}] | [{c} < {d}]", 3 / 4),
        ("[{a} < {b}] & [{b} < {c}]", 1 / 6),  # one order of six
        ("[{a} < {c}] & [{b} < {d}] & [{a} < {d}]", 5 / 24),  # 5 orders of 24
        ("{a} + {b} > {c} + {d}", 1 / 2),
        ("[{a} > {b}] & [{a} > {c}] & [[{a} - {b}] > [{c} - {d}]]", 1 / 8 + (1 / 6 + 1 / 4 + 1 / 4) / 4),
        ("{a} < {b} & {b} < {a}", 0),
    ],
)
def test_chance_of_known_formulas(text, share):
    "Four standard errors of 200,000 draws are 0.0045."
    tree = parse_formula(text.format(**{k: f"(3;%{k}%)" for k in A}))
    assert chance_of(tree) == pytest.approx(share, abs=0.0045)
    assert chance_of(tree) == chance_of(tree)


def test_orders_are_counted():
    "The shares of orders above, by counting all permutations."
    from itertools import permutations

    tree = parse_formula("[(1;%x%) < (3;%x%)] & [(2;%x%) < (4;%x%)] & [(1;%x%) < (4;%x%)]")
    orders = np.array(list(permutations(range(4)))).T
    values = {Region(n, "x"): ranks for n, ranks in enumerate(orders, 1)}
    assert evaluate(tree, values).sum() == 5


# ---- reading -------------------------------------------------------------------------------------------------------
def test_sentences_and_spans(folder):
    s = sentence_of({1: " The dog ", 2: "", 3: "  ", 4: ", which", 5: "sleeps."})
    assert s.text == "The dog , which sleeps."
    assert {n: s.text[i:j] for n, (i, j) in s.spans.items()} == {1: "The dog", 2: "", 3: "", 4: ", which", 5: "sleeps."}
    suites = read_syntaxgym(folder)
    assert [x.name for x in suites] == ["mine", "number_src"]
    number = suites[1]
    assert number.items[2]["sing"].text == "the cat sees a zebra ."
    assert (len(number.formulas), number.left_out) == (1, 1)
    assert {r.number for r in number.regions()} == {3}  # region 4 stands only in the prediction that is left out


def test_plain_and_packed_files_are_the_same(tmp_path):
    text = json.dumps(NUMBER).encode()
    (tmp_path / "a.json").write_bytes(text)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(text))
    (tmp_path / "c.json.xz").write_bytes(lzma.compress(text))
    (tmp_path / "LICENSE.gz").write_bytes(gzip.compress(b"MIT"))
    suites = read_syntaxgym(tmp_path)
    assert [s.name for s in suites] == ["a", "b", "c"]
    assert suites[0].items == suites[1].items == suites[2].items
    (tmp_path / "a.json.xz").write_bytes(lzma.compress(text))
    with pytest.raises(EmbryoError, match="a.json.xz: a second file of the suite a; keep one of them"):
        read_syntaxgym(tmp_path)


def test_items_are_spread(tmp_path):
    many = suite_of(dict(x=[f"the cat|{'very ' * n} old" for n in range(10)]), ["(2;%x%) > 0"])
    path = store(tmp_path / "s", "many", many)
    assert list(read_gym_file(path, 4).items) == [1, 3, 6, 8]
    assert list(read_gym_file(path, 0).items) == list(range(1, 11))


@pytest.mark.parametrize(
    "old, new, says",
    [
        (
            '"content": "is quilt"',
            '"content": null',
            "item 1, condition 'sing', region 3: no field 'content' with a text",
        ),
        (
            '"region_number": 2',
            '"region_number": true',
            "item 1, condition 'sing': no field 'region_number' with a who",
        ),
        ('"region_number": 2', '"region_number": 1', "item 1, condition 'sing', region 1: is there twice"),
        ('"region_number": 3', '"region_number": 9', "item 1, condition 'plur': no region 3, which prediction 1 names"),
        ('"region_number": 4', '"region_number": 9', "item 1, condition 'plur': no region 4, which prediction 2 names"),
        ('"condition_name": "plur"', '"condition_name": "sing"', "item 1, condition 'sing': is there twice"),
        ('"condition_name": "plur"', '"condition_name": 5', "item 1: no field 'condition_name' with a text; expected"),
        ("%plur%", "%plural%", "item 1: no condition 'plural', which prediction 1 names; expected one of sing"),
        ('"regions": [', '"regions": [], "rest": [', "item 1, condition 'sing': no text in any region"),
        ('"formula": "(4', '"formula": "(4;', "prediction 2: .* in .*; expected a comparison of regions"),
        ('"formula"', '"formla"', "prediction 1: no field 'formula' with a text"),
        ('"items"', '"itms"', "no field 'items' with a list; expected SyntaxGym's layout"),
        ('"items": [', '"items": [7, ', "item 1: no field 'conditions' with a list"),
        ('"items": [', '"items": [], "rest": [', "no items in it; expected at least one"),
        ('"predictions": [', '"predictions": [], "rest": [', "no predictions in it; expected at least one"),
        ('"items"', '"meta"', "the key 'meta' twice"),
        ('"items": ', '"items": ' + "[" * 100_000, "nested too deep"),
        ('"items"', "items", "not valid JSON"),
    ],
)
def test_damage_is_told_with_its_place(old, new, says, tmp_path):
    text = json.dumps(NUMBER)
    assert old in text
    (tmp_path / "number.json").write_text(text.replace(old, new))
    with pytest.raises(EmbryoError, match=f"number.json.*{says}") as e:
        read_syntaxgym(tmp_path)
    assert len(str(e.value)) < 700 and "\n" not in str(e.value)


def test_a_late_item_is_checked_too(tmp_path):
    "A region that a formula names is missing in the second item only."
    damaged = json.loads(json.dumps(NUMBER))
    del damaged["items"][1]["conditions"][0]["regions"][2]
    with pytest.raises(
        EmbryoError, match="item 2, condition 'sing': no region 3, which prediction 1 names; .* 1, 2, 4"
    ):
        read_gym_file(store(tmp_path / "s", "x", damaged))


def test_damaged_and_missing_files(tmp_path):
    path = store(tmp_path / "s", "cut", NUMBER)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(EmbryoError, match="cut.json.gz.*damaged .gz file"):
        read_syntaxgym(tmp_path / "s")
    path.write_bytes(gzip.compress(b'{"items": "\xff"}'))
    with pytest.raises(EmbryoError, match="cut.json.gz, line 1: byte 0xff is not UTF-8"):
        read_syntaxgym(tmp_path / "s")
    path.unlink()
    with pytest.raises(EmbryoError, match="s: no suites here; expected <suite>.json, plain, .gz or .xz"):
        read_syntaxgym(tmp_path / "s")


# ---- surprisals ----------------------------------------------------------------------------------------------------
def slow(model, tokenizer, regions, number, variant):
    "The definition: one sentence, one mask, the whole model, one term; pieces by their place among the words."
    model.eval()
    words = [(n, w) for n, text in enumerate(regions, 1) for w in text.split()]
    ids = [0]
    of = [0]  # region of each piece
    rest = [0]  # how many pieces of its word come behind it
    for n, w in words:
        pieces = tokenizer.tokenize(w)
        ids += tokenizer.convert_tokens_to_ids(pieces)
        of += [n] * len(pieces)
        rest += range(len(pieces) - 1, -1, -1)
    assert [*ids, 2] == [0, *tokenizer(" ".join(w for _, w in words), add_special_tokens=False)["input_ids"], 2]
    total = 0.0
    for at in (k for k, n in enumerate(of) if n == number):
        x = torch.tensor([[*ids, 2]])
        x[0, at : at + 1 + (rest[at] if variant == "word-l2r" else 0)] = tokenizer.mask_token_id
        with torch.no_grad():
            total -= torch.log_softmax(model(input_ids=x).logits[0, at], -1)[ids[at]].item()
    return total


@pytest.mark.parametrize("family", ["albert", "bert", "roberta"])
def test_surprisals_equal_a_slow_loop(family, tokenizer, folder):
    model = untrained(family, len(tokenizer))
    suites = {s.name: s for s in read_syntaxgym(folder)}
    asked = region_surprisals(model, tokenizer, asked_regions(list(suites.values())))
    raw = dict(mine=COMMA, number_src=NUMBER)
    assert len(asked) == 2 * 1 + 4 * 2
    sums = set()
    for e in asked.itertuples():
        item = raw[e.suite]["items"][e.item - 1]
        (texts,) = [c["regions"] for c in item["conditions"] if c["condition_name"] == e.region.condition]
        for variant in VARIANTS:
            want = slow(model, tokenizer, [r["content"] for r in texts], e.region.number, variant)
            assert asked.loc[e.Index, variant] == pytest.approx(want, abs=1e-4)
            sums.add(round(want, 3))
    assert len(sums) == 2 * len(asked)  # conditions differ, and so do the variants: quilt and zebra are spelled


def test_predictions_follow_from_the_slow_loop(tokenizer, folder):
    model = untrained("bert", len(tokenizer))
    judged = judge_suites(model, tokenizer, read_syntaxgym(folder))
    for e in judged[judged["suite"] == "number_src"].itertuples():
        of = {
            c["condition_name"]: slow(model, tokenizer, [r["content"] for r in c["regions"]], 3, e.variant)
            for c in NUMBER["items"][e.item - 1]["conditions"]
        }
        assert e.holds == (of["sing"] < of["sing_bad"] and of["plur"] < of["plur_bad"])
        assert e.chance == pytest.approx(0.25, abs=0.0045) and e.circuit == "Agreement"


def test_batch_size_has_no_influence(tokenizer, folder):
    model = untrained("roberta", len(tokenizer))
    suites = read_syntaxgym(folder)
    small, large = (region_surprisals(model, tokenizer, asked_regions(suites), max_tokens=k) for k in (1, 4096))
    np.testing.assert_allclose(small[list(VARIANTS)], large[list(VARIANTS)], atol=1e-5, rtol=0)
    small, large = (judge_suites(model, tokenizer, suites, max_tokens=k) for k in (1, 4096))
    pd.testing.assert_frame_equal(small, large)


def test_only_regions_that_a_formula_names_are_asked(tokenizer, folder, monkeypatch):
    from embryo.evaluation.minimal_pairs import scoring

    seen = []

    def noted(model, tokenizer, ids, gaps, *more):
        seen.extend(tokenizer.convert_ids_to_tokens([int(ids[i][at]) for i, at, _ in gaps]))
        return gap_scores(model, tokenizer, ids, gaps, *more)

    monkeypatch.setattr(scoring, "gap_scores", noted)
    judge_suites(untrained("bert", len(tokenizer)), tokenizer, read_syntaxgym(folder)[1:], ("pll",))
    assert set(seen) == set(tokenizer.tokenize("is are see sees a quilt zebra"))
    assert "sou" not in seen and "." not in seen


def test_a_sentence_is_scored_by_words_as_it_is_whole(tokenizer, folder):
    "Regions of a sentence add up to its pseudo-log-likelihood."
    whole = suite_of(dict(x=["The souvenir|, a zebra quilt|is|old ."]), ["(1;%x%) + (2;%x%) + (3;%x%) + (4;%x%) > 0"])
    path = store(folder, "whole", whole)
    model = untrained("albert", len(tokenizer))
    asked = region_surprisals(model, tokenizer, asked_regions([read_gym_file(path)]))
    scores = score_texts(model, tokenizer, ["The souvenir , a zebra quilt is old ."])
    for variant in VARIANTS:
        assert asked[variant].sum() == pytest.approx(-scores[variant].item(), abs=1e-4)


def test_minimal_pairs_are_scored_bit_for_bit_as_before(tokenizer):
    "The sum over the pieces of different sentences, all gaps of both variants in one sorted run, as it was written."
    texts = ["the cat sees a souvenir", "the zebra is old .", "the cat sees a souvenir", "the " * 150, "quilt"]
    for family in ("albert", "bert", "roberta"):
        model = untrained(family, len(tokenizer))
        different = list(dict.fromkeys(texts))
        ids, words = encode(tokenizer, different)
        words = [w if len(w) <= 100 else w[:0] for w in words]
        asked = [gaps_of(words, v) for v in VARIANTS]
        gaps, where = np.unique(np.concatenate(asked), axis=0, return_inverse=True)
        nats = gap_scores(model, tokenizer, ids, gaps)[where.ravel()]
        found = score_texts(model, tokenizer, texts).set_index("text")
        for variant, own, x in zip(VARIANTS, asked, np.split(nats, [len(asked[0])])):
            want = np.bincount(own[:, 0], x, minlength=len(ids))
            for i, text in enumerate(different):
                got = np.unique(found.loc[[text], variant])
                assert np.isnan(got).all() if len(words[i]) == 0 else got.tolist() == [want[i]]


def test_words_of_regions():
    assert words_between("As he slept , the dog's owner", 12, 21) == (3, 6)  # , the dog
    assert words_between("He sleeps", 9, 9) == (2, 2)
    assert words_between("He sleeps", 0, 9) == (0, 2)


def test_too_long_and_unknown_items_are_counted(tokenizer, tmp_path):
    model = untrained("bert", len(tokenizer), max_position_embeddings=12)
    texts = ["the cat|is", "the cat|is " + "old " * 12, "the 日|is"]
    suite = suite_of(dict(a=texts, b=["the dog|is"] * 3), ["(2;%a%) < (2;%b%)", "(2;%a%) > (2;%b%)"])
    store(tmp_path / "syntaxgym", "number_src", suite)
    judged = judge_suites(model, tokenizer, read_syntaxgym(tmp_path / "syntaxgym"), ("pll",))
    assert (
        judged.loc[judged["item"] == 2, "holds"].isna().all() and judged.loc[judged["item"] != 2, "holds"].notna().all()
    )
    rows = syntaxgym(model, tokenizer, tmp_path / "syntaxgym", SyntaxGymConfig(variants=["pll"]))
    of_all = rows[rows["task"] == "pll-all"].set_index("metric")
    assert of_all.loc["skipped_items", ["value", "n"]].tolist() == [1, 3]
    assert of_all.loc["unknown_items", ["value", "n"]].tolist() == [1, 3]
    assert of_all.loc["accuracy", "n"] == of_all.loc["chance", "n"] == 4  # two items, two predictions


def test_a_difference_that_rounding_could_make_is_none(tokenizer, folder):
    "A model for which all pieces are equally good: regions of as many pieces are equal, and no prediction holds."
    model = untrained("roberta", len(tokenizer))
    with torch.no_grad():
        for w in (model.lm_head.decoder.weight, model.lm_head.bias):
            w.zero_()
    judged = judge_suites(model, tokenizer, read_syntaxgym(folder))
    assert (judged.loc[judged["suite"] == "mine", "holds"] == 0).all()


# ---- rows ----------------------------------------------------------------------------------------------------------
def made_up(holds, suites):
    "Judged items: suite -> (chance of each prediction, truth of items x predictions)."
    out = []
    for suite, (chances, table) in holds.items():
        for item, line in enumerate(table, 1):
            for k, (value, chance) in enumerate(zip(line, chances), 1):
                about = dict(
                    suite=suite, circuit=CIRCUIT_OF.get(suite, "other"), variant="pll", item=item, prediction=k
                )
                out.append(dict(about, holds=float(value), chance=chance, unknown=False))
    return syntaxgym_rows(pd.DataFrame(out), suites)


def test_rows_by_hand(folder):
    suites = read_syntaxgym(folder)
    mine = ([0.5, 0.25], [[1, 1], [1, 1], [0, 0], [0, 0]])
    found = made_up(dict(number_src=([0.25], [[1], [0], [1], [0]]), mine=mine), suites)
    rows = found.set_index(["task", "group", "metric"])
    assert rows.loc[("pll-suite", "mine", "accuracy"), ["value", "n"]].tolist() == [0.5, 8]
    assert rows.loc[("pll-suite", "mine", "chance"), ["value", "n"]].tolist() == [0.375, 8]
    assert rows.loc[("pll-circuit", "Agreement", "chance"), "value"] == 0.25
    assert rows.loc[("pll-all", "all", "chance"), "value"] == pytest.approx((4 * 0.25 + 8 * 0.375) / 12)
    assert rows.loc[("pll-all", "all", "left_out_predictions"), ["value", "n"]].tolist() == [1, 3]
    # both predictions of an item agree always, so that eight say no more than four do
    assert rows.loc[("pll-suite", "mine", "accuracy"), "stderr"] == pytest.approx(
        rows.loc[("pll-suite", "number_src", "accuracy"), "stderr"]
    )
    assert found.loc[found["metric"] == "chance", "stderr"].isna().all()
    assert set(found["split"]) == {"syntaxgym"} and set(found["evaluator"]) == {"syntaxgym"}


def test_items_of_two_suites_are_not_one_cluster(folder):
    "Item 1 of one suite is not item 1 of another."
    one = ([0.5], [[1], [0], [1], [0]])
    rows = made_up(dict(number_src=one, number_orc=one), read_syntaxgym(folder)).set_index(["task", "metric"])
    alone = made_up(dict(number_src=one), read_syntaxgym(folder)).set_index(["task", "metric"])
    assert (
        rows.loc[("pll-circuit", "accuracy"), "stderr"].item() < alone.loc[("pll-circuit", "accuracy"), "stderr"].item()
    )


def test_a_folder_without_anything_to_test_is_refused(tmp_path):
    equal = suite_of(dict(a=["the cat|is"], b=["the dog|is"]), ["(2;%a%) = (2;%b%)"])
    store(tmp_path / "syntaxgym", "equal", equal)
    assert not can_be_tested(parse_formula("(2;%a%) = (2;%b%)"))
    with pytest.raises(EmbryoError, match="syntaxgym: no prediction here can be tested, each has '='; expected"):
        read_syntaxgym(tmp_path / "syntaxgym")
    store(tmp_path / "syntaxgym", "number_src", NUMBER)
    assert [s.left_out for s in read_syntaxgym(tmp_path / "syntaxgym")] == [1, 1]


def test_circuits():
    assert len(CIRCUITS) == 6 and len(CIRCUIT_OF) == sum(len(names.split()) for names in CIRCUITS.values()) == 33
    assert "nn-nv-rpl" not in CIRCUIT_OF


# ---- the way into a batch ------------------------------------------------------------------------------------------
LAB = suite_of(
    dict(
        good=["The farmer|sleeps|.", "The teachers|sleep|.", "The dogs near the farmer|sleep|."],
        bad=["The farmer|sleep|.", "The teachers|sleeps|.", "The dogs near the farmer|sleeps|."],
    ),
    ["(2;%good%) < (2;%bad%)"],
)


@pytest.fixture
def data(lab, tmp_path):
    "The laboratory's data folder, and a suite."
    shutil.copytree(lab["data"], tmp_path / "data")
    store(tmp_path / "data/syntaxgym", "number_src", LAB)
    return tmp_path / "data"


def test_an_evaluator_by_its_name(lab, data):
    from embryo.evaluation.asking import examine
    from embryo.evaluation.evaluators import Asked, load_checkpoint
    from embryo.models.given import open_series

    checkpoint = load_checkpoint(open_series(lab["series"] + "/albert-english-s0"), 4)
    asked = Asked(pairs=dict(syntaxgym=str(data / "syntaxgym")), options=dict(syntaxgym=dict(most=2, variants=["pll"])))
    rows = examine(checkpoint, asked, ["syntaxgym"])
    assert rows.query("task == 'pll-suite' and metric == 'accuracy'")["n"].item() == 2
    assert set(rows["task"]) == {"pll-all", "pll-circuit", "pll-suite"}
    asked.options = dict(syntaxgym=dict(many=2))
    with pytest.raises(EmbryoError, match="examine.options.syntaxgym: unknown setting 'many'"):
        examine(checkpoint, asked, ["syntaxgym"])
    with pytest.raises(EmbryoError, match="syntaxgym reads syntaxgym, and there are none"):
        examine(checkpoint, Asked(), ["syntaxgym"])


def test_from_the_command_line(lab, data, run, tmp_path):
    series, sentences = lab["series"] + "/albert-english-s0", lab["data"] + "/probing_gum/test.jsonl.gz"
    out = tmp_path / "rows.csv"
    wanted = ("--evaluators", "syntaxgym", "--out", out)
    code, _, err = run("embryo_examine", series, sentences, "--data", data, *wanted)
    assert code == 0, err
    rows = read_rows(out)
    assert rows["step"].nunique() == 3 and set(rows["evaluator"]) == {"syntaxgym"}
    assert set(rows.loc[rows["metric"] == "chance", "value"].round(2)) == {0.5}
    code, _, err = run("embryo_examine", series, sentences, "--data", lab["data"], *wanted)
    assert code and "syntaxgym: no suites here; expected <suite>.json" in err
    code, _, err = run("embryo_examine", series, sentences, *wanted)
    assert code and "give --data, a folder with" in err and "syntaxgym (syntaxgym)" in err


PROFILE = """
profile = "gym"
[series]
given = "SERIES"
[examine]
max_sentences = 5
[examine.syntaxgym]
most = 2
[results.asked]
template = "examine"
family = ["given"]
step = [4]
evaluators = ["syntaxgym"]
"""


def test_a_batch_asks_where_the_profile_lists_it(lab, data, run, tmp_path):
    "A batch of one checkpoint; where the folder is absent, it is refused before anything runs."
    from embryo.batch.plan import Plan

    profile = tmp_path / "gym.toml"
    profile.write_text(PROFILE.replace("SERIES", lab["series"] + "/albert-english-s0"))
    node = Plan(profile, str(data), root=tmp_path).nodes["examine/given-english-s0-step4"]
    assert node.params["pairs"] == {"syntaxgym": str(data / "syntaxgym")}
    assert node.params["options"] == {"syntaxgym": {"most": 2}}
    assert [f.name for f in node.files if "syntaxgym" in f.parts] == ["number_src.json.gz"]
    code, _, err = run("embryo_run", "--profile", profile, "--data", data, timeout=300)
    assert code == 0, err
    rows = read_rows(tmp_path / "papermill_runs/gym/rows.csv")
    assert set(rows["evaluator"]) == {"syntaxgym"} and set(rows["family"]) == {"given"}
    assert rows.query("task == 'word-l2r-suite' and metric == 'accuracy'")["n"].item() == 2
    with pytest.raises(EmbryoError, match=r"syntaxgym/\*.json\*: no such file; this profile reads it"):
        Plan(profile, lab["data"], root=tmp_path)
    profile.write_text(profile.read_text().replace("most = 2", "most = -2"))
    with pytest.raises(EmbryoError, match="syntaxgym: most=-2; expected a number of items, 0 for all"):
        Plan(profile, str(data), root=tmp_path)
    profile.write_text(profile.read_text().replace("most = -2", "mosts = 2"))
    with pytest.raises(EmbryoError, match=r"examine.syntaxgym.*unknown setting 'mosts'; did you mean most"):
        Plan(profile, str(data), root=tmp_path)


def test_nodes_without_it_are_as_they_were(tmp_path):
    "So that nothing of theirs is made again."
    from conftest import ROOT

    from embryo.batch.plan import Plan

    micro = (ROOT / "nbs/profiles/micro.toml").read_text()
    (tmp_path / "more.toml").write_text(micro.replace('"probe", "minimal_pairs"]', '"probe", "syntaxgym"]'))
    before, after = (Plan(p, root=tmp_path).nodes for p in ("micro", tmp_path / "more.toml"))
    same = "examine/albert-english-s0-step1480"
    assert before[same].params["pairs"].keys() == {"blimp"} and before[same].params == after[same].params
    assert after["examine/bert-english-s0-step800"].params["pairs"].keys() == {"syntaxgym"}


# ---- the figure ----------------------------------------------------------------------------------------------------
def test_each_panel_has_its_own_chance():
    from embryo.results.grown.syntaxgym import plot_syntaxgym, syntaxgym_data

    made = []
    about = dict(family="bert", l1="english", seed=0, split="syntaxgym", stderr=0.05)
    for step in (0, 100, 400):
        for task, group, n, chance in (
            ("all", "all", 90, 0.3),
            ("circuit", "Licensing", 80, 0.21),
            ("suite", "x", 9, 0.5),
        ):
            here = dict(about, task=f"word-l2r-{task}", group=group, step=step, n=n)
            made.append(dict(here, metric="accuracy", value=0.3 + step / 1000))
            made.append(dict(here, metric="chance", value=chance))
    data = syntaxgym_data(row_frame(made, evaluator="syntaxgym"))
    assert set(data["phenomenon"]) == {"all", "Licensing"}
    fig = plot_syntaxgym(data)
    assert [ax.get_title() for ax in fig.axes] == ["all (n = 90)", "Licensing (n = 80)"]
    for ax, level in zip(fig.axes, (0.3, 0.21)):
        curve, chance = ax.lines
        assert curve.get_ydata() == pytest.approx([0.3, 0.4, 0.7]) and set(chance.get_ydata()) == {level}
        assert len(ax.collections) == 1  # the band


def test_one_item_is_no_evidence():
    "A circuit of one item has no measured error; its interval is all there is, and not a point."
    from embryo.results.grown.syntaxgym import syntaxgym_data

    about = dict(family="bert", l1="english", seed=0, step=5, split="s", task="pll-circuit", group="other", n=2)
    made = [dict(about, metric="accuracy", value=1.0), dict(about, metric="chance", value=0.5)]
    data = syntaxgym_data(row_frame(made, evaluator="syntaxgym"))
    assert data[["low", "high"]].values.tolist() == [[0, 1]]


# ---- the published suites ------------------------------------------------------------------------------------------
@pytest.mark.skipif(
    not (DATA / "syntaxgym").is_dir(),
    reason="set EMBRYO_DATA to a data folder with syntaxgym (layout: nbs/guide/00_data.ipynb)",
)
def test_the_published_suites():
    "Sizes, circuits, levels of chance, and a model of others on some of their items."
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    suites = read_syntaxgym(DATA / "syntaxgym")
    assert (len(suites), sum(len(s.items) for s in suites)) == (34, 842)
    assert {s.name for s in suites} - set(CIRCUIT_OF) == {"nn-nv-rpl"} and len(CIRCUIT_OF) == 33
    assert {s.name: s.left_out for s in suites if s.left_out} == {"fgd_hierarchy": 1}
    levels = {round(chance_of(tree), 2) for s in suites for tree in s.formulas}
    assert levels == {0.21, 0.25, 0.29, 0.5}
    first = {s.name: s for s in suites}["number_prep"].items[1]["match_sing"]
    assert " ".join(first.text[i:j] for i, j in first.spans.values() if j > i) == first.text
    if not (DATA / "public_model").is_dir():
        return
    loaded = [kind.from_pretrained(DATA / "public_model") for kind in (AutoModelForMaskedLM, AutoTokenizer)]
    rows = syntaxgym(*loaded, DATA / "syntaxgym", SyntaxGymConfig(most=4))
    accuracy = rows[rows["metric"] == "accuracy"]
    assert accuracy["value"].between(0, 1).all() and rows.query("metric == 'skipped_items'")["value"].eq(0).all()
    assert set(accuracy.loc[accuracy["task"] == "pll-circuit", "group"]) == {*CIRCUITS, "other"}
