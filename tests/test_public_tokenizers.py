"""Tokenizers that others made: words, windows, answers, bands and spans, held against the encoding of the running
sentence."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from embryo.corpora.tokens import train_tokenizer
from embryo.evaluation.annotations.sentences import annotated
from embryo.evaluation.attention import full_windows
from embryo.evaluation.probing.targets import control_types, span_places
from embryo.evaluation.words.windows import lay_out, tokenize_words
from embryo.evaluation.words.words import (
    band_rows,
    check_ranks,
    class_frequency,
    frequency_ranks,
    mask_predict,
    reconstruct,
    special_ids,
    word_hits,
)
from embryo.ground.errors import EmbryoError
from embryo.models.models import mlm_head

BERT = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
ROBERTA = dict(cls_token="<s>", pad_token="<pad>", sep_token="</s>", unk_token="<unk>", mask_token="<mask>")
ALBERT = dict(BERT, pad_token="<pad>", unk_token="<unk>")
SNOWMAN = "\u2603"  # in no alphabet but that of bytes


def word_pieces(texts, lowercase):
    "BERT's layout: padding at 0, unused places to 99, the other specials at 100 to 103."

    def parts(model):
        t = Tokenizer(model)
        t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return t

    learned = parts(models.WordPiece(unk_token="[UNK]"))
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]"], show_progress=False)
    learned.train_from_iterator(texts, trainer)
    pieces = sorted(set(learned.get_vocab()) - {"[UNK]"})
    order = ["[PAD]", *(f"[unused{i}]" for i in range(1, 100)), "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces]
    t = parts(models.WordPiece({piece: i for i, piece in enumerate(order)}, unk_token="[UNK]"))
    t.add_special_tokens(list(BERT.values()))
    return PreTrainedTokenizerFast(tokenizer_object=t, **BERT)


def bytewise(texts):
    "RoBERTa's layout: a space belongs to the word after it; the mask is the last id."
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.BpeTrainer(
        vocab_size=360, initial_alphabet=alphabet, special_tokens=specials, show_progress=False
    )
    t.train_from_iterator(texts, trainer)
    t.add_special_tokens(["<mask>"])
    return PreTrainedTokenizerFast(tokenizer_object=t, **ROBERTA)


def sentence_pieces(texts):
    "ALBERT's layout: five specials in front, in another order than ours, and pieces that begin with their space."
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizers.Lowercase()
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=specials, unk_token="<unk>", show_progress=False)
    t.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=t, **ALBERT)


LAYOUTS = dict(
    bert=lambda x: word_pieces(x, True),
    roberta=bytewise,
    albert=sentence_pieces,
    electra=lambda x: word_pieces(x, False),
    ours=lambda x: train_tokenizer(x, 150),
)  # ELECTRA's here keeps capitals
SPECIALS = dict(
    bert=[0, 100, 101, 102, 103],
    roberta=[0, 1, 2, 3, 360],
    albert=[0, 1, 2, 3, 4],
    electra=[0, 100, 101, 102, 103],
    ours=[0, 1, 2, 3, 4],
)


@pytest.fixture(scope="module")
def sentences(lab):
    "Tagged sentences, each second one with a capital, and one with a character that no vocabulary of words has."
    from embryo.evaluation.annotations.folders import read

    out = []
    for i, s in enumerate(read(Path(lab["data"]) / "probing_gum/test.jsonl.gz")[:14]):
        words = [s["tokens"][0].capitalize() if i % 2 else s["tokens"][0].lower(), *s["tokens"][1:]]
        out.append(annotated("demo", " ".join(words), words, s["tags"]))
    words = ["The", SNOWMAN, "the", SNOWMAN, "."]
    return [*out, annotated("demo", " ".join(words), words, ["DT", "NN", "DT", "NN", "."])]


@pytest.fixture(scope="module", params=LAYOUTS)
def layout(request, sentences):
    texts = [s["text"] for s in sentences if SNOWMAN not in s["text"]]
    return request.param, LAYOUTS[request.param](texts * 4)


def running(tok, s):
    "The pieces of each word, cut out of the encoding of the whole sentence (whose first word has its space, too)."
    e = tok(" " + " ".join(s["tokens"]), add_special_tokens=False, return_offsets_mapping=True)
    ends = np.cumsum([len(w) + 1 for w in s["tokens"]])
    # of the space before each word
    starts = ends - [len(w) + 1 for w in s["tokens"]]
    at = [a for a, _ in e["offset_mapping"]]
    return [[i for i, x in zip(e["input_ids"], at) if a <= x < b] for a, b in zip(starts, ends)]


def network(name, tok):
    "A small untrained model of the family, with two favourite words, so that some answers are right."
    kind = dict(ours="Roberta").get(name, name.capitalize())
    more = dict(embedding_size=8) if kind in ("Albert", "Electra") else {}
    torch.manual_seed(0)
    size = dict(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=200
    )
    config = getattr(transformers, kind + "Config")
    config = config(vocab_size=len(tok), pad_token_id=tok.pad_token_id, initializer_range=0.3, **size, **more)
    m = getattr(transformers, kind + "ForMaskedLM")(config).eval()
    head = mlm_head(m)
    bias = m.generator_lm_head.bias if kind == "Electra" else head.decoder.bias
    with torch.no_grad():
        bias[tokenize_words(tok, ["the"])["the"]] += 9
    return m


def test_special_ids(layout):
    name, tok = layout
    assert special_ids(tok).tolist() == SPECIALS[name]


def test_words_are_spelled_as_in_the_sentence(layout, sentences):
    name, tok = layout
    ids_of = tokenize_words(tok, (w for s in sentences for w in s["tokens"]))
    for s in sentences:
        assert [ids_of[w] for w in s["tokens"]] == running(tok, s)
    by_itself = {w: tok(w, add_special_tokens=False)["input_ids"] for w in ids_of}
    # as the paper does it
    if name != "roberta":
        assert ids_of == by_itself
    else:
        assert ids_of["the"] != by_itself["the"] and tok.convert_ids_to_tokens(ids_of["the"])[0].startswith("\u0120")


def test_windows(layout, sentences):
    _, tok = layout
    for limit in (200, 9):
        words, wins = lay_out(tok, sentences, limit)
        for i, s in enumerate(sentences):
            mine = words.loc[(words["sentence"] == i) & (words["window"] >= 0), "window"].unique()
            whole = [x for ids in running(tok, s) if len(ids) <= limit - 2 for x in ids]
            assert sum((wins[w][1:-1].tolist() for w in mine), []) == whole
        shape = {(tok.convert_ids_to_tokens(int(w[0])), tok.convert_ids_to_tokens(int(w[-1]))) for w in wins}
        assert shape == {(tok.cls_token, tok.sep_token)} and max(map(len, wins)) <= limit


@pytest.mark.parametrize("masked", [False, True])
def test_answers_equal_a_loop_over_running_sentences(layout, sentences, masked):
    name, tok = layout
    m = network(name, tok)
    want = []
    for s in sentences:
        pieces = running(tok, s)
        row = [tok.cls_token_id, *sum(pieces, []), tok.sep_token_id]
        at = 1
        for ids in pieces:
            shown = row[:at] + [tok.mask_token_id] * len(ids) + row[at + len(ids) :] if masked else row
            with torch.no_grad():
                said = m(input_ids=torch.tensor([shown])).logits[0].argmax(-1).tolist()
            want.append(float(said[at : at + len(ids)] == ids))
            at += len(ids)
    assert sum(want) > 0 and word_hits(m, tok, sentences, masked)["hit"].tolist() == want
    r = (mask_predict if masked else reconstruct)(m, tok, sentences)
    assert r.query("metric=='accuracy' and task=='all-words'")["value"].item() == pytest.approx(np.mean(want))


def test_bands(layout, sentences):
    "No special has a rank or is in a band, the unknown piece least of all."
    name, tok = layout
    counts = Counter(i for s in sentences for ids in running(tok, s) for i in ids)
    table = np.array([counts[i] for i in range(len(tok))])
    order = sorted(set(range(len(tok))) - set(SPECIALS[name]), key=lambda i: (-counts[i], i))
    ranks = frequency_ranks(table, special_ids(tok))
    assert [ranks[i] for i in order] == list(range(len(order))) and set(ranks[SPECIALS[name]]) == {-1}
    hits = word_hits(network(name, tok), tok, sentences, True)
    bands = [(0, 4), (5, len(tok))]
    got = band_rows(hits, tok, ranks, bands).query("metric=='accuracy'").groupby("task")["n"].apply(list)
    single = [ids[0] for s in sentences for ids in running(tok, s) if len(ids) == 1 and ids[0] not in SPECIALS[name]]
    for task, place in (("freq-count", order.index), ("freq-id", int)):
        n = [sum(a <= place(i) <= b for i in single) for a, b in bands]
        assert got[task] == [k for k in n if k], task
    nouns = [ids for s in sentences for ids, t in zip(running(tok, s), s["tags"]) if t in ("NN", "NNS")]
    known = [i for ids in nouns for i in ids if i not in SPECIALS[name]]
    mean = class_frequency(tok, sentences, table).query("group=='noun' and metric=='mean_rank' and mode=='corrected'")
    assert mean["value"].item() == pytest.approx(np.mean([order.index(i) for i in known])) and mean["n"].item() == len(
        known
    )
    if name in ("bert", "roberta", "electra"):  # not at 0 to 4
        with pytest.raises(EmbryoError, match="a special of this tokenizer, and has a rank"):
            check_ranks(frequency_ranks(table), tok)


def test_spans_and_types(layout, sentences):
    "A span's pieces are those of its words in the sentence; what the model sees alike is one type of the control task."
    name, tok = layout
    words, wins = lay_out(tok, [dict(tokens=s["tokens"], tags=s["tokens"]) for s in sentences], 200)
    offsets = np.r_[0, np.cumsum([len(s["tokens"]) for s in sentences])]
    asked = [(i, a, b) for i, s in enumerate(sentences) for a, b in ((0, 1), (1, 3), (0, len(s["tokens"])))]
    places = span_places(words, offsets, np.array([i for i, _, _ in asked]), np.array([[a, b] for _, a, b in asked]))
    for (i, a, b), (w, x, y) in zip(asked, places):
        assert wins[w][x:y].tolist() == sum(running(tok, sentences[i])[a:b], [])
    first = np.array([["the"], ["The"], [SNOWMAN], ["\u2604"]], object)
    the, capital, snowman, comet = control_types(first, tokenize_words(tok, first.ravel()))
    # lower-cased or not
    assert (the == capital) == (name in ("bert", "albert", "ours"))
    # both unknown, or bytes
    assert (snowman == comet) == (name != "roberta")


def test_text_in_windows_of_attention(layout, sentences):
    "Packed sentences are spelled as one running text."
    _, tok = layout
    texts = [" ".join(s["tokens"]) for s in sentences]
    w = next(full_windows(tok, texts, 40))
    together = tok(" " + " ".join(texts), add_special_tokens=False)["input_ids"]
    assert w == [tok.cls_token_id, *together[:38], tok.sep_token_id]


def test_a_tokenizer_of_another_script_is_refused(layout):
    name, tok = layout
    foreign = [annotated("demo", "", ["\u0995\u09be\u0995", "the", "\u0995\u09b2"], ["NN", "DT", "NN"])]
    # bytes know everything
    if name == "roberta":
        assert len(lay_out(tok, foreign, 200)[0]) == 3
    else:
        for ask in (lambda: lay_out(tok, foreign, 200), lambda: reconstruct(network(name, tok), tok, foreign)):
            with pytest.raises(EmbryoError, match=r"does not know 2 of 3 words \(67%\)"):
                ask()
