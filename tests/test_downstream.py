"""Tasks of one's own through the command line, what is refused, padding without effect, and the published settings."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from embryo.corpora.tokens import train_tokenizer
from embryo.evaluation.tasks.batches import encode
from embryo.evaluation.tasks.finetune import finetune, load_body, new_classifier, predict
from embryo.evaluation.tasks.reading import as_task, find_task, read_task
from embryo.evaluation.tasks.scores import glue_metric, score_rows
from embryo.evaluation.tasks.settings import PAPER, FinetuneConfig
from embryo.evaluation.tasks.tasks import TASKS
from embryo.evaluation.tasks.trivial import trivial_rows
from embryo.ground.errors import EmbryoError
from embryo.models.models import build


def folder(root, name, header, train, dev, toml="", suffix=".tsv"):
    "Write one task; `train` and `dev` are lists of lines without the header."
    (root / name).mkdir(parents=True)
    for split, lines in (("train", train), ("dev", dev)):
        text = "\n".join([header, *lines]) + "\n"
        (root / name / f"{split}{suffix}").write_bytes(
            gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode()
        )
    if toml:
        (root / name / "task.toml").write_text(toml)
    return root


def lines(frame, *columns):
    return ["\t".join(map(str, r)) for r in frame[list(columns)].itertuples(index=False)]


def checkpoint(lab):
    return Path(lab["series"]) / "albert-english-s0/step4"


def refused(result, *words):
    code, out, err = result
    assert code == 2 and "Traceback" not in err and len(err.strip().splitlines()) == 1, (code, out, err)
    for w in words:
        assert w in err, (w, err)


def test_own_folder_without_toml(run, lab, tmp_path):
    d = {
        s: f.assign(label=f["label"].map(["down", "up"].__getitem__))
        for s, f in read_task(lab["data"] + "/glue", "SST-2").items()
    }
    folder(
        tmp_path / "glue",
        "My reviews",
        "sentence\tlabel",
        lines(d["train"], "text1", "label"),
        lines(d["dev"], "text1", "label"),
        suffix=".tsv.gz",
    )
    code, out, err = run("embryo_finetune", checkpoint(lab), tmp_path / "glue", "--task", "My reviews", "--epochs", "1")
    assert code == 0, err
    rows = pd.read_csv(tmp_path / "finetune.csv")
    assert set(rows["task"]) == {"My reviews"} and set(rows["evaluator"]) == {"finetune", "trivial"}
    assert set(rows["metric"]) == {"accuracy", "matthews", "tie_rate", "train_loss"} and set(rows["group"]) == {
        "final",
        "best",
        "majority",
        "all-positive",
    }
    # the same examples under another name: the same numbers
    same = finetune(
        checkpoint(lab), "SST-2", read_task(lab["data"] + "/glue", "SST-2"), FinetuneConfig(epochs=1, max_length=64)
    )
    final = lambda r: float(r[(r["metric"] == "accuracy") & (r["group"] == "final")]["value"].iloc[0])
    assert abs(final(rows) - final(same)) < 1e-9


def test_own_folder_with_toml(run, lab, tmp_path):
    d = read_task(lab["data"] + "/glue", "STS-B")
    toml = (
        '# similarity in percent\ntext1 = "left"\ntext2 = "right"\nlabel = "alike"\nlabels = []\nmetric ='
        ' "pearson"\nothers = []\nlow = 0\nhigh = 100\n'
    )
    made = {
        s: [
            f"{i}\t{a}\t{b}\t{round(20 * y)}"
            for i, (a, b, y) in enumerate(f[["text1", "text2", "label"]].itertuples(index=False))
        ]
        for s, f in d.items()
    }
    folder(tmp_path / "glue", "Alike", "n\tleft\tright\talike", made["train"], made["dev"], toml)
    code, out, err = run("embryo_finetune", checkpoint(lab), tmp_path / "glue", "--task", "Alike", "--epochs", "1")
    assert code == 0, err
    rows = pd.read_csv(tmp_path / "finetune.csv")
    assert (
        set(rows["task"]) == {"Alike"}
        and set(rows["metric"]) == {"pearson", "tie_rate", "train_loss"}
        and set(rows["group"]) == {"final", "best", "constant", "overlap-1", "overlap-7"}
    )
    refused(
        run("embryo_finetune", checkpoint(lab), tmp_path / "glue", "--task", "Alice"),
        "unknown task 'Alice'; did you mean Alike",
    )


def test_own_task_in_every_function(tmp_path):
    folder(
        tmp_path,
        "Tri",
        "premise\thypothesis\tlabel",
        ["a\tb\tx", "a\tb\ty", "a\tb\tz", "a\tb\ty"],
        ["a\tb\ty", "a\tb\tz"],
    )
    d = read_task(tmp_path, "Tri")
    assert (d.task.text2, d.task.labels, d.task.others) == ("hypothesis", ("x", "y", "z"), ()) and as_task(
        "Tri", d
    ) is d.task
    assert d["dev"]["label"].tolist() == [1, 2]
    t = trivial_rows(d, "Tri")
    assert set(t["group"]) == {"majority", "overlap-1", "overlap-7"}
    # all sentences alike: only the majority can be said
    assert t[t["metric"] == "accuracy"]["value"].tolist() == [0.5] * 3
    assert score_rows(d.task, [1, 2], [1, 1])[0]["task"] == "Tri"
    assert glue_metric(d.task).compute(predictions=[1, 1], references=[1, 2]) == {"accuracy": 0.5}
    with pytest.raises(EmbryoError, match="unknown task 'Tri'"):
        score_rows("Tri", [1, 2], [1, 1])
    with pytest.raises(EmbryoError, match="these are the data of Tri, but the task asked for is RTE"):
        trivial_rows(d, "RTE")


@pytest.mark.parametrize("name", ["../Own", "a/b", "..", "/etc", ".git", "a\\b", "*", "a\nb", ""])
def test_a_name_stays_in_the_folder(tmp_path, name):
    folder(tmp_path, "Own", "sentence\tlabel", ["a\t0", "b\t1"], ["a\t0"])
    (tmp_path / "glue").mkdir()
    with pytest.raises(EmbryoError, match="a task has the name of its folder"):
        find_task(tmp_path / "glue", name)


def test_patterns_stay_in_the_folder(tmp_path):
    folder(tmp_path, "Own", "sentence\tlabel", ["a\t0", "b\t1"], ["a\t0"])
    folder(
        tmp_path / "glue",
        "Mine",
        "sentence\tlabel",
        ["a\t0", "b\t1"],
        ["a\t0"],
        '[files]\ntrain = "../../Own/train.tsv"\ndev = "dev*"\n',
    )
    with pytest.raises(EmbryoError, match="no file ../../Own/train.tsv for the train split of Mine"):
        read_task(tmp_path / "glue", "Mine")


BAD = [  # (header, train, dev, task.toml, message)
    (
        "sentence\tlabel",
        ["a\tno", "b\tyes"],
        ["a\tno", "b\tmaybe"],
        "",
        "Own/dev.tsv, line 3: unknown label 'maybe'; accepted: no, yes",
    ),
    (
        "sentence\tlabel",
        ["a\tno", "b\tyes"],
        ["a\tno"],
        'label = "class"',
        "Own/train.tsv, line 1: no column 'class'; the header found is sentence, label",
    ),
    (
        "sentence\tlabel",
        ["a\tno", "b\tyes"],
        ["a\tno"],
        '\nmetrik = "f1"',
        "Own/task.toml, line 2: unknown key 'metrik'; did you mean metric",
    ),
    (
        "sentence\tlabel",
        ["a\tno", "b\tyes"],
        ["a\tno"],
        'metric = "bleu"',
        "Own/task.toml, line 1: unknown metric 'bleu'",
    ),
    (
        "sentence\tlabel",
        ["a\tx", "b\ty", "c\tz"],
        ["a\tx"],
        'metric = "matthews"',
        "Own/task.toml, line 1: matthews does not fit 3 labels; accepted: accuracy",
    ),
    (
        "sentence\tlabel",
        ["a\tx", "b\ty", "c\tz"],
        ["a\tx"],
        'others = ["f1"]',
        "Own/task.toml, line 1: f1 does not fit 3 labels",
    ),
    (
        "sentence\tscore",
        ["a\t1", "b\t2"],
        ["a\t1"],
        'metric = "accuracy"',
        "Own/task.toml, line 1: accuracy does not fit scores; accepted: pearson, spearman",
    ),
    ("sentence\tscore", ["a\t1", "b\t2"], ["a\tmany"], "", "Own/dev.tsv, line 2: score 'many' is not a number"),
    (
        "sentence\tscore",
        ["a\t1", "b\t2"],
        ["a\t3"],
        "low = 1\nhigh = 2.5",
        "Own/dev.tsv, line 2: score '3' is not a number from 1 to 2.5",
    ),
    (
        "sentence\tlabel",
        ["a\tno", "b\tyes"],
        ["a\tno"],
        'labels = ["yes", "yes"]',
        "Own/task.toml, line 1: labels yes, yes; expected at least two different ones",
    ),
    (
        "sentence\tlabel",
        ["a\tno", "b\tno\tb"],
        ["a\tno"],
        "",
        "Own/train.tsv, line 3: 3 fields, expected 2: sentence, label",
    ),
    (
        "words\tlabel",
        ["a\tno", "b\tyes"],
        ["a\tno"],
        "",
        "Own/train.tsv, line 1: no column for text1 in the header words, label",
    ),
    ("sentence\tlabel", [], ["a\tno"], "", "Own/train.tsv: no examples"),
]


@pytest.mark.parametrize("header,train,dev,toml,message", BAD)
def test_refused(tmp_path, header, train, dev, toml, message):
    with pytest.raises(EmbryoError) as e:
        read_task(folder(tmp_path, "Own", header, train, dev, toml), "Own")
    assert message in str(e.value) and "\n" not in str(e.value)


def qqp(root, lines, torn, name="QQP"):
    """A pair task with one training file of `lines` lines, of which those numbered in `torn` lack fields or have too
    many.
    """
    good = ["1\t1\t2\twhat is it ?\twhat is that ?\t1", "2\t3\t4\twho is he ?\twhere is she ?\t0"]
    bad = ["3\t5\t6\ta question that", "goes on\tin another line\t1", "4\t7\t8\ta\tstray\ttab\t0"]
    body = [bad[n % 3] if n in torn else good[n % 2] for n in range(2, lines + 1)]
    toml = "" if name == "QQP" else 'label = "is_duplicate"'
    return folder(root, name, "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", body, good, toml)


def test_torn_lines_of_a_published_file(tmp_path, capsys):
    "A few are left out and told; the rest is read."
    d = read_task(qqp(tmp_path, 3000, (7, 8, 2999)), "QQP")
    assert len(d["train"]) == 2996 and set(d["train"]["text1"]) == {"what is it ?", "who is he ?"}
    said = capsys.readouterr().out.removeprefix(str(tmp_path))
    assert said == "/QQP/train.tsv: left out 3 of 3,000 lines, which do not have 6 fields; the first is line 7\n"


TOO_MANY = [
    (3000, (7, 8, 9, 2999), "QQP", "(4 of 3,000 lines are like this; at most 0.1% are left out)"),
    (999, (999,), "QQP", "(1 of 999 lines"),
    (3, (2,), "QQP", "(1 of 3 lines"),
    (3000, (7,), "Mine", "mend or delete"),
]


@pytest.mark.parametrize("lines,torn,name,words", TOO_MANY)
def test_torn_lines_that_are_refused(tmp_path, capsys, lines, torn, name, words):
    "Too many; one in a small file; one in a file of one's own, which can be mended."
    where = f"{name}/train.tsv, line {torn[0]}: [347] fields, expected 6: id, qid1"
    with pytest.raises(EmbryoError, match=where) as e:
        read_task(qqp(tmp_path, lines, torn, name), name)
    assert words in str(e.value) and "\n" not in str(e.value) and capsys.readouterr().out == ""


def test_refused_on_the_command_line(run, lab, tmp_path):
    folder(tmp_path, "Own", "sentence\tlabel", ["a\tno", "b\tyes"], ["a\tmaybe"])
    refused(
        run("embryo_finetune", checkpoint(lab), tmp_path, "--task", "Own"), "Own/dev.tsv, line 2: unknown label 'maybe'"
    )
    refused(
        run("embryo_finetune", checkpoint(lab), tmp_path / "Own", "--task", "../Own"),
        "unknown task '../Own'; a task has the name of its folder",
    )


@pytest.mark.parametrize("family", ["roberta", "albert"])
@pytest.mark.parametrize("task", ["STS-B", "MNLI"])
def test_padding_is_without_effect(lab, family, task):
    "Length order and padding to the longest of a batch predict what fixed padding in file order predicts."
    d = read_task(lab["data"] + "/glue", task)["dev"]
    tok = train_tokenizer([*d["text1"], *d["text2"]], 300)
    torch.manual_seed(0)
    net = build(
        family,
        len(tok),
        64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.3,
    )
    model = new_classifier(*load_body((net, tok))[:2], TASKS[task], FinetuneConfig(), 0).eval()
    ours = predict(model, encode(d, tok, model.config, 64), TASKS[task], batch=16)
    x = tok(
        d["text1"].tolist(),
        d["text2"].tolist(),
        padding="max_length",
        max_length=64,
        truncation=True,
        return_tensors="pt",
        return_token_type_ids=family == "albert",
    )
    with torch.no_grad():
        logits = model(**x).logits.numpy()
    if TASKS[task].labels:
        assert (ours == logits.argmax(1)).all() and len(set(ours)) > 1
    else:
        np.testing.assert_allclose(ours, 5 * logits[:, 0], atol=1e-4)
        assert np.ptp(ours) > 1e-2


def test_published_settings():
    """Paper 1, table 7 and paper 2, table 5: learning rate, batch, updates, warm-up; the longest input is 512 tokens
    in the first paper and 128 in the second.
    """
    printed = """CoLA   1e-5  16  5336  320
                 STS-B  2e-5  16  3598  214
                 SST-2  1e-5  32 20935 1256
                 MNLI   3e-5 128 10000 1000
                 QNLI   1e-5  32 33112 1986
                 QQP    5e-5 128 14000 1000
                 RTE    3e-5  32   800  200
                 MRPC   2e-5  32   800  200"""
    for paper, length in dict(p1=512, p2=128).items():
        got = {
            t: (c.lr, c.batch, c.steps, c.warmup, c.max_length, c.model_dropout, c.classifier_dropout)
            for t, c in PAPER[paper].items()
        }
        assert got == {
            t: (float(lr), int(batch), int(steps), int(warmup), length, 0.0, 0.1)
            for t, lr, batch, steps, warmup in map(str.split, printed.splitlines())
        }


def test_a_batch_takes_the_pooler_that_pairs_have_trained(lab, tmp_path):
    "The template's numbers are those of the checkpoint's folder, not of a model that was opened for words."
    import papermill

    from embryo.batch.templates import template_path
    from embryo.batch.worker import register_engine
    from embryo.ground.rows import read_rows
    from embryo.pretraining.runs import pretrain_run

    sizes = dict(hidden_size=32, num_attention_heads=2, intermediate_size=64, num_hidden_layers=2, positions=32)
    training = dict(objective="mlm+sop", steps=4, batch=8, length=32, save=[], lr=1e-2)
    s = pretrain_run("albert", "english", 0, lab["corpora"], tmp_path / "series", sizes, training, progress=False)
    short = dict(epochs=0.2, batch=8, lr=1e-3, max_length=32)
    params = dict(series=str(tmp_path / "series"), glue=lab["data"] + "/glue", tasks=["STS-B"], intermediate="", step=4)
    params |= dict(finetuning={"STS-B": short}, out=str(tmp_path / "out"))
    how = dict(engine_name=register_engine(), kernel_name="python3", language="python", progress_bar=False)
    papermill.execute_notebook(str(template_path("finetune")), str(tmp_path / "n.ipynb"), params, **how)
    rows = read_rows(tmp_path / "out/rows.parquet")

    def loss(rows):
        return rows[(rows["metric"] == "train_loss") & (rows["group"] == "final")]["value"].item()

    data = read_task(params["glue"], "STS-B")
    config = FinetuneConfig(**short)
    for_words = s.load(4)
    assert not any("pooler" in name for name in load_body(for_words)[1])
    assert loss(rows) == pytest.approx(loss(finetune(s.path(4), "STS-B", data, config)), rel=1e-6)
    assert loss(rows) != pytest.approx(loss(finetune(for_words, "STS-B", data, config)), rel=1e-6)
