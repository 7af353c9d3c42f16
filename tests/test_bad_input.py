"""Bad input: one sentence that names the file and what would be accepted, exit code 2, never a traceback."""

import gzip
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from embryo.ground.errors import EmbryoError


def refused(result, *words):
    code, out, err = result
    assert code == 2, (code, out, err)
    assert "Traceback" not in err and len(err.strip().splitlines()) == 1, err
    for w in words:
        assert w in err, (w, err)


def test_a_profile_that_draws_nothing(run, tmp_path):
    shutil.copy(Path(__file__).parent.parent / "papermill_runs/grown-pairs/rows.csv", tmp_path / "rows.csv")
    refused(run("embryo_figures", "--profile", "grown-pairs", "--rows", "rows.csv"), "draws nothing", "appendix")


def test_a_chain_of_electra_with_a_transplant(run):
    refused(
        run("embryo_pretrain", "--family", "electra", "--l1", "zipf:20k+shuffled,english:20k"),
        "+shuffled exchanges parts of one model, and electra is trained as two",
    )


def test_missing_data_folder(run, tmp_path):
    refused(
        run("embryo_run", "--profile", "open", "--data", tmp_path / "nowhere"), "nowhere: no such data folder", "DATA="
    )


def test_no_data_folder(run):
    refused(run("embryo_run", "--profile", "open"), "give DATA=/path/to/data")


def test_unknown_profile(run):
    refused(run("embryo_run", "--profile", "mirco"), "unknown profile 'mirco'; did you mean micro")


def test_unknown_family(run):
    refused(run("embryo_pretrain", "--family", "robreta"), "did you mean roberta")


def test_unknown_l1(run):
    refused(run("embryo_corpus", "nesting-zpif"), "did you mean nesting-zipf")


def test_unknown_task(run, lab):
    refused(
        run(
            "embryo_finetune", Path(lab["series"]) / "albert-english-s0/step4", lab["data"] + "/glue", "--task", "STSB"
        ),
        "unknown task 'STSB'; did you mean STS-B",
    )


def test_finetune_a_checkpoint_with_few_positions(run, lab, tmp_path):
    "Not bad input at all: the command takes the length that the model has."
    code, out, err = run(
        "embryo_finetune",
        Path(lab["series"]) / "albert-english-s0/step4",
        lab["data"] + "/glue",
        "--task",
        "STS-B",
        "--epochs",
        "1",
    )
    assert code == 0 and (tmp_path / "finetune.csv").is_file(), err


def test_data_folder_without_what_the_profile_reads(run, tmp_path):
    for f in ("wiki_en/enwiki-2014-00.txt", "wiki_en/enwiki-2021-heldout-00.txt", "books_en/books-00.txt"):
        (tmp_path / "d" / f).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "d" / f).write_text("one\n")
    refused(run("embryo_plan", "--profile", "open", "--data", tmp_path / "d"), "no such file", "probing_gum")


def test_empty_folder_and_empty_corpus(run, tmp_path, lab):
    (tmp_path / "d" / "wiki_en").mkdir(parents=True)
    (tmp_path / "d" / "books_en").mkdir()
    refused(
        run("embryo_plan", "--profile", "day", "--data", tmp_path / "d"), "no train text in wiki_en, books_en", ".txt"
    )
    refused(
        run("embryo_plan", "--profile", "open", "--data", tmp_path / "d"),
        "wiki_en/enwiki-2014-0*: no such folder, and no text file of this name or pattern",
        "wiki_en has no text",
    )
    from embryo.corpora.l1s import english_tokenizer

    (tmp_path / "d" / "wiki_en" / "a.txt").write_text("\n\n")
    with pytest.raises(EmbryoError, match="no text at all"):
        english_tokenizer(tmp_path / "d", tmp_path / "c", folders=["wiki_en", "books_en"])


def test_wrong_encoding(tmp_path):
    from embryo.corpora.l1s import english_tokenizer

    (tmp_path / "wiki_en").mkdir()
    (tmp_path / "wiki_en" / "a.txt").write_bytes("fine\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(EmbryoError, match="a.txt, line 2: byte 0xe9 is not UTF-8"):
        english_tokenizer(tmp_path, tmp_path / "c", folders=["wiki_en"])


def test_glue_file_with_a_missing_column(run, tmp_path, lab):
    shutil.copytree(lab["data"] + "/glue", tmp_path / "glue")
    f = next((tmp_path / "glue" / "RTE").glob("train.tsv*"))
    f.write_bytes(gzip.compress(gzip.decompress(f.read_bytes()).replace(b"sentence2", b"sentence_2", 1)))
    refused(
        run("embryo_finetune", Path(lab["series"]) / "albert-english-s0/step4", tmp_path / "glue", "--task", "RTE"),
        "train.tsv.gz",
        "sentence2",
    )


def test_truncated_checkpoint(run, tmp_path, lab):
    shutil.copytree(lab["series"], tmp_path / "series")
    w = tmp_path / "series/albert-english-s0/step4/model.safetensors"
    w.write_bytes(w.read_bytes()[:-50])
    refused(
        run(
            "embryo_examine",
            tmp_path / "series/albert-english-s0",
            lab["data"] + "/probing_gum/test.jsonl.gz",
            "--step",
            "4",
        ),
        "step4/model.safetensors",
        "truncated",
    )


def test_vocabulary_that_does_not_match(run, tmp_path, lab):
    from embryo.corpora.tokens import train_tokenizer

    shutil.copytree(lab["series"], tmp_path / "series")
    train_tokenizer(["a b c d"] * 9, 40).save_pretrained(tmp_path / "series/albert-english-s0/step4")
    refused(
        run(
            "embryo_examine",
            tmp_path / "series/albert-english-s0",
            lab["data"] + "/probing_gum/test.jsonl.gz",
            "--step",
            "4",
        ),
        "step4/tokenizer.json",
        "checksum differs",
    )


def test_full_disk(tmp_path, lab, monkeypatch):
    "Nothing half-written is taken for done when a write fails for want of space."
    import errno
    import os

    from embryo.ground.files import atomic
    from embryo.pretraining.runs import pretrain_run

    def full(fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EmbryoError, match="No space left on device.*make space"):
        with atomic(tmp_path / "x.json") as f:
            f.write_text("{}")
    assert not list(tmp_path.iterdir())
    with pytest.raises(EmbryoError, match="step0: No space left"):
        pretrain_run(
            "roberta",
            "english",
            0,
            lab["corpora"],
            tmp_path / "s",
            dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=1, intermediate_size=32),
            dict(steps=2, batch=2, length=32),
            progress=False,
        )
    assert not list((tmp_path / "s").rglob("model.safetensors")) and not list((tmp_path / "s").rglob("series.json"))
    monkeypatch.undo()
    s = pretrain_run(
        "roberta",
        "english",
        0,
        lab["corpora"],
        tmp_path / "s",
        dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=1, intermediate_size=32),
        dict(steps=2, batch=2, length=32, heldout_batches=1),
        progress=False,
    )
    assert s.steps == [0, 2]


def test_whoever_reads_may_stop_reading():
    "A plan whose reader has ended, as `head` does when it has its lines, ends without a traceback."
    reading, writing = os.pipe()
    os.close(reading)
    plan = "from embryo.batch.commands import embryo_plan; embryo_plan('paper', device='cuda')"
    ended = subprocess.run([sys.executable, "-P", "-c", plan], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (141, "")
