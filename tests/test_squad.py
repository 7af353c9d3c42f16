"""SQuAD2.0: scores by hand and against the official rules written out again, windows against characters, fine-tuning
from file to rows."""

import gzip
import json
import lzma
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from embryo.corpora.tokens import open_tokenizer
from embryo.evaluation.squad.reader import best_threshold, finetune_squad, new_reader, read_spans, squad_windows
from embryo.evaluation.squad.scores import answer_scores, squad_rows, trivial_squad
from embryo.evaluation.squad.squad import SquadConfig, read_squad, read_squad_folder
from embryo.evaluation.tasks.finetune import load_body
from embryo.evaluation.tasks.settings import FinetuneConfig
from embryo.ground.errors import EmbryoError
from embryo.ground.rows import COLUMNS, read_rows, write_rows

SMALL = dict(lr=2e-3, batch=8, epochs=2, max_length=64, bf16=False)


@pytest.fixture(scope="module")
def data(lab):
    return read_squad_folder(Path(lab["data"]) / "squad2")


@pytest.fixture(scope="module")
def tok(lab):
    return open_tokenizer(Path(lab["corpora"]) / "tokenizer")


def question(context="It was the red fox.", answers=("red fox",), **kw):
    return dict(
        id="q1",
        question="who?",
        answers=[dict(text=a, answer_start=context.index(a)) for a in answers],
        is_impossible=not answers,
        **kw,
    )


def write(path, qas, context="It was the red fox."):
    text = json.dumps(dict(version="v2.0", data=[dict(title="t", paragraphs=[dict(context=context, qas=qas)])]))
    {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)(path, "wt").write(text)
    return path


@pytest.mark.parametrize(
    "golds, said, exact, f1",
    [
        (["red fox"], "The red fox!", 1, 1),
        (["red fox"], "fox", 0, 2 / 3),
        (["fox", "red fox"], "red", 0, 2 / 3),
        (["a a b"], "a b b", 0, 2 / 3),
        (["b b c"], "b c c", 0, 2 / 3),
        ([], "", 1, 1),
        ([], "the", 1, 1),
        ([], "fox", 0, 0),
        (["fox"], "", 0, 0),
        (["fox"], "the", 0, 0),
        (["Anna's"], "annas", 1, 1),
        (["theatre"], "atre", 0, 0),
        (["  two   words "], "two words", 1, 1),
    ],
)
def test_scores_by_hand(golds, said, exact, f1):
    assert answer_scores(golds, said) == pytest.approx((exact, f1))


def test_threshold_is_the_official_one():
    "The official script walks through questions by the probability of no answer and keeps the best running score."
    rng = np.random.default_rng(0)
    for _ in range(30):
        n = 25
        has = rng.random(n) < 0.6
        f1 = rng.random(n)
        margin = np.round(rng.normal(size=n), 6)
        span = np.where(has, f1, 0.0)
        null = np.where(has, 0.0, 1.0)
        cur = best = (~has).sum()
        for i in np.argsort(-margin):
            cur += span[i] if has[i] else -1
            best = max(best, cur)
        t = best_threshold(span, null, margin)
        assert np.where(margin >= t, span, null).sum() == pytest.approx(best)


@pytest.mark.parametrize("end", ["json", "json.gz", "json.xz"])
def test_reading_is_the_same_from_any_file(tmp_path, end):
    df = read_squad(write(tmp_path / f"x.{end}", [question(), dict(question(answers=()), id="q2")]))
    assert (
        df["answers"].tolist() == [["red fox"], []]
        and df["starts"].tolist() == [[11], []]
        and df["title"].tolist() == ["t", "t"]
    )


@pytest.mark.parametrize(
    "change, said",
    [
        (
            dict(answers=[dict(text="red fox", answer_start=12)]),
            "x.json, question 'q1': the answer 'red fox' does not stand at character 12",
        ),
        (dict(answers=[dict(text="red fox", answer_start=-1)]), "does not stand at character -1"),
        (dict(answers=[dict(text="red fox")]), "question 'q1': no field 'answer_start' with a whole number"),
        (dict(answers="red fox"), "question 'q1': no field 'answers' with a list"),
        (dict(answers=[dict(text=" ", answer_start=2)]), "the answer ' '"),
        (dict(question=None), "question 'q1': no field 'question' with a text"),
        (dict(id=5), "paragraph 0, question 0: no field 'id'"),
        (dict(answers=[]), "no answer; a question without one has is_impossible true"),
        (dict(is_impossible="no"), "no field 'is_impossible' with true or false"),
        (dict(is_impossible=True), "it is_impossible and has the answer 'red fox'"),
    ],
)
def test_each_fault_is_one_sentence_with_its_place(tmp_path, change, said):
    path = write(tmp_path / "x.json", [dict(question(), **change)])
    with pytest.raises(EmbryoError) as e:
        read_squad(path)
    assert said in str(e.value) and str(path) in str(e.value) and "\n" not in str(e.value)


def test_damaged_files(tmp_path):
    path = write(tmp_path / "x.json.gz", [question(i=k) | dict(id=str(k)) for k in range(500)])
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(EmbryoError, match="damaged .gz file"):
        read_squad(path)
    (tmp_path / "y.json").write_bytes(b'{"data": "\xff"}')
    with pytest.raises(EmbryoError, match="line 1: byte 0xff is not UTF-8"):
        read_squad(tmp_path / "y.json")
    for name in ("dev-a.json", "dev-b.json", "train.json"):
        write(tmp_path / name, [question()])
    with pytest.raises(EmbryoError, match="question 'q1': two files of the dev split have it"):
        read_squad_folder(tmp_path)
    assert len(read_squad_folder(tmp_path, dict(train=("train*",), dev=("dev-a*",)))["dev"]) == 1


def word_tokenizer(between):
    "The ids of single letters and of whole words up to three letters; `between` as RoBERTa's or BERT's."
    letters = "abcdefghijklmnopqrstuvwxyz0123456789,.-?"
    t = Tokenizer(
        models.WordPiece(
            {
                w: i
                for i, w in enumerate(
                    [
                        "<s>",
                        "<pad>",
                        "</s>",
                        "<unk>",
                        "<mask>",
                        *letters,
                        *("##" + c for c in letters),
                        "fox",
                        "owl",
                        "the",
                    ]
                )
            },
            unk_token="<unk>",
        )
    )
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair=f"<s> $A {between} $B:1 </s>:1", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=t,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
    )


@pytest.mark.parametrize("between", ["</s>", "</s> </s>"])
def test_windows_equal_the_tokenizer_and_find_every_answer(between):
    rng = np.random.default_rng(0)
    tok = word_tokenizer(between)
    cfg = SimpleNamespace(max_position_embeddings=64, vocab_size=10**6, pad_token_id=1, model_type="bert")
    out = []
    for k in range(40):
        words = ["".join(rng.choice(list("abcABC"), rng.integers(1, 6))) for _ in range(rng.integers(3, 30))]
        context = "  ".join(words)
        i = rng.integers(0, len(words))
        j = rng.integers(i, min(len(words), i + 3))
        answer = "  ".join(words[i : j + 1])
        out.append((str(k), "t", "which a ?", context, [answer], [len("  ".join(words[:i])) + 2 * (i > 0)]))
    df = pd.DataFrame(out, columns=["id", "title", "question", "context", "answers", "starts"])
    coded, places, offsets = squad_windows(df, tok, cfg, SquadConfig(max_length=60, doc_stride=17))
    found = set()
    for (ids, seg), p in zip(coded, places.itertuples()):
        whole = tok(df["question"][p.question], df["context"][p.question], return_token_type_ids=True)
        assert len(ids) <= 60 and len(ids) == len(seg)
        # one window is what the tokenizer makes
        if p.piece == 0 and len(whole["input_ids"]) <= 60:
            assert ids.tolist() == whole["input_ids"] and seg.tolist() == whole["token_type_ids"]
        if p.end:
            a = p.start - p.at + p.piece
            b = p.end - p.at + p.piece
            o = offsets[p.question]
            assert df["context"][p.question][o[a, 0] : o[b, 1]] == df["answers"][p.question][0]
            found.add(p.question)
    assert found == set(range(40)) and places["question"].nunique() == 40 and len(places) > 60
    for k, g in places.groupby("question"):
        assert set(np.concatenate([np.arange(p.piece, p.piece + p.n) for p in g.itertuples()])) == set(
            range(len(offsets[k]))
        )


class Planted(torch.nn.Module):
    "Begins at a 'fox', ends at an 'owl', and is as sure that nothing is there as the constant `null`."

    def __init__(self, tok, null):
        super().__init__()
        self.config = SimpleNamespace(pad_token_id=1, type_vocab_size=2)
        self.device = torch.device("cpu")
        self.null = null
        self.fox, self.owl = (tok.convert_tokens_to_ids(w) for w in ("fox", "owl"))

    def forward(self, input_ids, attention_mask, token_type_ids):
        begin = (input_ids == self.fox).float() * 3
        end = (input_ids == self.owl).float() * 3
        # surer of an answer where an owl is seen
        begin[:, 0] = self.null - (input_ids == self.owl).any(1).float()
        return SimpleNamespace(start_logits=begin, end_logits=end)


def test_a_span_that_crosses_windows_is_found_where_it_is_whole():
    tok = word_tokenizer("</s>")
    cfg = SimpleNamespace(max_position_embeddings=64, vocab_size=10**6, pad_token_id=1, model_type="bert")
    context = "the a b c d e f g h i j Fox,  k l-OWL m n o p q r s t u v w x y z"
    df = pd.DataFrame(
        [
            dict(
                id="1",
                title="",
                question="the fox owl ?",
                context=context,
                answers=["Fox,  k l-OWL"],
                starts=[context.index("Fox")],
            ),
            dict(id="2", title="", question="a ?", context="a b c", answers=[], starts=[]),
        ]
    )
    windows = squad_windows(df, tok, cfg, SquadConfig(max_length=22, doc_stride=5, max_query=4))
    crossed = windows[1].query("question==0").assign(last=lambda p: p["piece"] + p["n"] - 1)
    # cut through the answer in one window, whole in another
    assert ((crossed["piece"] <= 11) & (crossed["last"].between(11, 15))).any() and (crossed["start"] > 0).any()
    said = read_spans(Planted(tok, 2.0), *windows, df)
    # the question's own fox and owl do not count; smallest null score
    assert said["text"][0] == "Fox,  k l-OWL" and said["margin"].tolist() == [6 - 1, 0 - 2]
    rows = squad_rows(df, said["text"].where(said["margin"] >= 0, ""), evaluator="finetune")
    assert set(rows["value"]) == {1.0}
    for batch in (1, 2, 50):
        pd.testing.assert_frame_equal(read_spans(Planted(tok, 2.0), *windows, df, batch=batch), said)
    # too long a span: begin or end alone
    assert read_spans(Planted(tok, 2.0), *windows, df, max_answer=5)["margin"][0] == 3 - 1


@pytest.mark.parametrize("kind", ["Albert", "Roberta", "Bert", "Electra"])
def test_every_family_becomes_a_reader(kind, data, tok):
    torch.manual_seed(0)
    m = getattr(transformers, kind + "ForMaskedLM")(
        getattr(transformers, kind + "Config")(
            vocab_size=len(tok),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=66,
            pad_token_id=1,
            **(dict(embedding_size=8) if kind in ("Albert", "Electra") else {}),
        )
    )
    reader = new_reader(*load_body((m, tok))[:2], SquadConfig(), 0)
    body = m.base_model.state_dict()
    for k, v in reader.base_model.state_dict().items():
        assert torch.equal(v, body[k]), k
    rows = finetune_squad((m, tok), data, SquadConfig(**dict(SMALL, steps=2)))
    assert rows["value"].notna().all() and {"final", "best"} == set(rows["group"])


def test_fine_tuning_from_the_folder_of_a_step(lab, data, tok, tmp_path):
    """The same seed gives the same rows, whatever else draws random numbers; another seed or another max_train gives
    others.
    """
    step = Path(lab["series"]) / "albert-english-s0" / "step4"
    rows = finetune_squad(step, data, SquadConfig(**SMALL), seed=3)
    torch.rand(7)
    again = finetune_squad(step, data, SquadConfig(**SMALL), seed=3)
    pd.testing.assert_frame_equal(rows, again)
    pd.testing.assert_frame_equal(
        read_rows(write_rows(rows, tmp_path / "rows.parquet")).sort_values(
            ["task", "group", "metric"], ignore_index=True
        ),
        rows.sort_values(["task", "group", "metric"], ignore_index=True),
    )
    assert list(rows) == list(COLUMNS) and set(rows["seed"]) == {3} and set(rows["evaluator"]) == {"finetune"}
    v = rows[rows["split"] == "dev"].set_index(["task", "group", "metric"])
    has, none, every = (v.loc[(t, "final", "f1")] for t in ("SQuAD2.0-HasAns", "SQuAD2.0-NoAns", "SQuAD2.0"))
    assert every["n"] == has["n"] + none["n"] == len(data["dev"]) and every["value"] * every["n"] == pytest.approx(
        has["value"] * has["n"] + none["value"] * none["n"]
    )
    t = trivial_squad(data).set_index(["task", "metric"])["value"]
    for m in ("exact", "f1", "mean"):
        assert t["SQuAD2.0", m] == none["n"] / every["n"]
    assert v.loc[("SQuAD2.0", "best", "f1"), "value"] >= max(
        v.loc[("SQuAD2.0", "final", "f1"), "value"], t["SQuAD2.0", "f1"]
    )
    loss = lambda r: r[r["metric"] == "train_loss"]["value"].iloc[0]
    assert loss(rows) != loss(finetune_squad(step, data, SquadConfig(**SMALL), seed=4))
    few = finetune_squad(step, data, FinetuneConfig(**SMALL, max_train=16), seed=3)
    assert (
        few[few["metric"] == "train_loss"]["n"].iloc[0] < rows[rows["metric"] == "train_loss"]["n"].iloc[0]
        and few[few["split"] == "dev"]["n"].tolist() == rows[rows["split"] == "dev"]["n"].tolist()
    )


def test_settings_are_checked(lab, data, tok):
    with pytest.raises(EmbryoError, match="windows would leave pieces out"):
        SquadConfig(max_length=64, doc_stride=50)
    with pytest.raises(EmbryoError, match="set max_length to 64 or less"):
        finetune_squad(Path(lab["series"]) / "albert-english-s0" / "step0", data, SquadConfig())
    from embryo.ground.profiles import settings

    assert settings(SquadConfig, dict(max_length=128, max_train=5), "profile").doc_stride == 42
    with pytest.raises(EmbryoError, match="unknown setting 'stride'"):
        settings(SquadConfig, dict(stride=3), "profile")


@pytest.mark.skipif(
    not Path(os.environ.get("EMBRYO_DATA") or "/nonexistent").is_dir(),
    reason="set EMBRYO_DATA to a data folder in the layout of nbs/guide/00_data.ipynb",
)
def test_real_files():
    real = read_squad_folder(Path(os.environ["EMBRYO_DATA"]) / "squad2")
    assert {s: (len(d), int((~d["answers"].map(bool)).sum())) for s, d in real.items()} == dict(
        train=(8982, 348), dev=(11873, 5943)
    )
