"""A step that was not saved, made again: the bytes of a run that saved it, the series as it was, and who is refused."""

import json
import os
import shutil
import signal

import crash
import pytest
from test_processes import codes, start

from embryo.ground.errors import EmbryoError
from embryo.models.given import open_series
from embryo.pretraining.again import again

NET = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, positions=64)
HOW = dict(batch=6, length=32, lr=2e-3, warmup=3, heldout_batches=2, bf16=False, state_every=2)
OBJECTIVES = {
    "roberta": dict(optimizer="muon", mask_rate=[0.3, 0.15], accumulate=2, attention_bias="neighbours"),
    "albert": dict(objective="mlm+sop", optimizer="lamb", length=[[24, 0.5], [40, 1.0]]),
    "bert": dict(objective="mlm+nsp", masking="word"),
    "electra": dict(objective="rtd", curve_every=2, signs=True, masked_first=0.5),
}
# an L1 that comes again, with a transplant at one border and moments that are carried over another
CHAIN = "english:2k+body-only,zipf:2k,english:2k"


@pytest.fixture(scope="module")
def zipf(lab):
    from embryo.corpora.l1s import make
    from embryo.corpora.tokens import open_tokenizer

    tok = open_tokenizer(f"{lab['corpora']}/tokenizer")
    for split in ("train", "heldout"):
        sizes = dict(n_tokens=20_000, heldout_tokens=2000, line=[30, 30])
        make("zipf", lab["data"], lab["corpora"], split=split, tokenizer=tok, **sizes)
    return lab


def plain(lab, out, family="roberta", steps=12, **settings):
    "A plain run; (its series)."
    from embryo.pretraining.runs import pretrain_run

    how = {**HOW, **OBJECTIVES[family], "steps": steps, **settings}
    net = dict(NET, embedding_size=32) if family in ("albert", "electra") else NET
    return pretrain_run(family, "english", 3, lab["corpora"], out, net, how, progress=False)


def chain(lab, out, l1=CHAIN, **settings):
    "A run through several L1s."
    from embryo.pretraining.chains import chain_run

    hows = [{**HOW, **settings}, {**HOW, **settings}, {**HOW, "moments": "carried", **settings}][: l1.count(",") + 1]
    return chain_run("roberta", l1, 3, lab["corpora"], out, NET, hows, progress=False)


def files(folder):
    "Everything below a folder, with its bytes."
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def same(made, dense, steps):
    "The folders of the steps are those of the run that saved them, and so are their held-out losses and tokens."
    for k in steps:
        a, b = made.entries[k], dense.entries[k]
        assert a["files"] == b["files"] and a["tokens"] == b["tokens"] and a["tensors"] == b["tensors"], k
        assert a["loss"]["heldout"] == b["loss"]["heldout"], k
        assert files(made.path(k)) == files(dense.path(k))
        assert a["again"]["differs"] == []


@pytest.mark.parametrize(("family", "keep"), zip(OBJECTIVES, (0, 1, 0, 1)))
def test_the_bytes_of_a_run_that_saved_it(lab, tmp_path, family, keep):
    "From a kept state, and from the beginning."
    dense = plain(lab, tmp_path / "dense", family, save=1)
    thin = plain(lab, tmp_path / "thin", family, save=[[5, 5], [7, 12]], keep_state_every=keep)
    before = files(thin.folder)
    for k in (3, 7, 11):
        made = again(thin, k, progress=False)
    same(made, dense, (3, 7, 11))
    assert [made.entries[k]["again"]["state"] for k in made.steps] == ([0, 5, 5] if keep else [0, 0, 0])
    after = files(thin.folder)
    assert {k: v for k, v in after.items() if not k.startswith("again/")} == before
    assert not [k for k in after if ".tmp" in k]


@pytest.mark.parametrize("keep", [0, 1])
def test_a_chain(zipf, tmp_path, keep):
    "Across borders, with a transplant at one and moments carried over another; and grown out of a shorter chain."
    dense = chain(zipf, tmp_path / "dense", save=1)
    if keep:
        chain(zipf, tmp_path / "thin", "english:2k+body-only,zipf:2k", save=[], keep_state_every=1)
    thin = chain(zipf, tmp_path / "thin", save=[], keep_state_every=keep)
    assert thin.steps == [0, 10, 20, 30] and len(dense.steps) == 31
    for k in (4, 11, 20, 23, 29):
        made = again(thin, k, progress=False)
    assert made.folder.name == "again" and made.steps == [4, 11, 23, 29]
    same(made, dense, made.steps)
    starts = [made.entries[k]["again"]["state"] for k in made.steps]
    assert starts == ([0, 0, 20, 20] if keep else [0, 0, 0, 0])


def test_load_makes_what_was_not_saved(lab, tmp_path, capfd):
    import torch

    dense = plain(lab, tmp_path / "dense", save=1)
    thin = plain(lab, tmp_path / "thin", save=6, keep_state_every=1)
    capfd.readouterr()
    theirs, ours = (s.load(8)[0].state_dict() for s in (dense, thin))
    assert all(torch.equal(theirs[k], ours[k]) for k in theirs)
    said = capfd.readouterr().err
    assert "step 8 is made again from the state of step 6: 2 updates, about " in said and " MB in " in said
    thin.load(8)  # lies there now
    assert "made again" not in capfd.readouterr().err
    (tmp_path / "thin/roberta-english-s3/again/step8/model.safetensors").write_bytes(b"")
    thin.load(8)  # damaged, so once more
    assert "made again" in capfd.readouterr().err
    # both folders elsewhere, as far from each other as before
    shutil.copytree(lab["corpora"], tmp_path / "moved/corpora")
    out = tmp_path / "moved/series"
    moved = plain(dict(corpora=tmp_path / "moved/corpora"), out, save=6)
    (tmp_path / "moved").rename(tmp_path / "there")
    here = open_series(tmp_path / "there/series" / moved.folder.name)
    assert here.load(7)[0].state_dict().keys() == theirs.keys()
    same(open_series(here.folder / "again"), dense, [7])


def test_who_is_refused(lab, tmp_path):
    "One sentence each, and nothing is written."
    shutil.copytree(lab["corpora"], tmp_path / "corpora")
    own = dict(corpora=tmp_path / "corpora")
    thin = plain(own, tmp_path / "thin", save=6)
    before = files(thin.folder)

    def refused(why, step=7, series=thin, **options):
        with pytest.raises(EmbryoError, match=why) as e:
            again(series, step, progress=False, **options)
        assert "\n" not in str(e.value) and files(thin.folder) == before

    for step in (-1, 13, 1.5, True, "last"):
        refused("it has 0, 6, 12, and whole numbers from 0 to 12 can be made again", step)
    with pytest.raises(EmbryoError, match="whole numbers from 0 to 12"):
        thin.load(13)
    given = open_series([str(thin.path(k)) for k in thin.steps])
    with pytest.raises(EmbryoError, match="no step 7; it has 0, 6, 12$"):
        given.load(7)
    refused("embryo did not train it", series=given)
    refused("holds another run \\(config.lr 0.002 -> 0.1", recipe=_recipe(thin, training=dict(lr=0.1)))
    refused("is the series itself", out=thin.folder)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    refused("is not empty", out=tmp_path / "full")
    other = plain(own, tmp_path / "other", "bert", save=6)
    again(other, 7, out=tmp_path / "others", progress=False)
    refused("holds steps of another run", out=tmp_path / "others")
    ids = tmp_path / "corpora/english/train/ids.bin"
    kept = ids.read_bytes()
    ids.write_bytes(kept[:-2] + b"\1\0")
    refused("checksum|SHA-256")
    ids.write_bytes(kept)
    shutil.rmtree(tmp_path / "corpora")
    refused("no such folder is there")


def _recipe(series, training):
    "What a series remembers, with other settings."
    recipe = series.info["recipe"]
    return dict(recipe, training={**recipe["training"], **training})


def test_other_ids(lab, tmp_path):
    "The corpus was made again, and is another one."
    shutil.copytree(lab["corpora"], tmp_path / "corpora")
    thin = plain(dict(corpora=tmp_path / "corpora"), tmp_path / "thin", save=6)
    shutil.rmtree(tmp_path / "corpora/english/train")
    shutil.copytree(tmp_path / "corpora/english/heldout", tmp_path / "corpora/english/train")
    with pytest.raises(EmbryoError, match="holds another run .*corpus"):
        thin.load(7)
    assert not (thin.folder / "again").exists()


def test_another_kind_of_machine(lab, tmp_path, capfd, monkeypatch):
    "Other threads, libraries, code or weights are refused by one sentence; or said, and kept in the line."
    import torch

    from embryo.pretraining import stages

    thin = plain(lab, tmp_path / "thin", save=6)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with pytest.raises(EmbryoError, match=rf"device cpu \({threads} threads\) -> cpu \({threads + 1} threads\)\)"):
            thin.load(7)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(stages, "updating_code", lambda: "other")
    with pytest.raises(EmbryoError, match="something else than what is here .code .* -> other."):
        thin.load(7)
    assert not (thin.folder / "again").exists()
    made = again(thin, 7, anyway=True, progress=False)
    assert "need not be the same" in capfd.readouterr().err and len(made.entries[7]["again"]["differs"]) == 1
    monkeypatch.undo()
    assert again(thin, 7, progress=False).entries[7]["again"]["differs"] == []  # made once more, since it may differ
    # one that says nothing of another machine, and is not what this one makes
    index = json.loads((thin.folder / "series.json").read_text())
    index["steps"][0]["sha256"] = "0" * 64
    index.pop("seal", None)
    (thin.folder / "series.json").write_text(json.dumps(index))
    with pytest.raises(EmbryoError, match="the weights of step 0 come out otherwise"):
        open_series(thin.folder).load(5)
    assert open_series(thin.folder / "again").steps == [7]


def make_again(out, step, end_at=None):
    "In a process of its own: make a step again, perhaps with a signal to itself at an update."
    from embryo.pretraining.training import run

    update = run.update_once

    def update_and_end(*args):
        if end_at and args[4] == end_at[0]:
            os.kill(os.getpid(), end_at[1])
        return update(*args)

    run.update_once = update_and_end
    open_series(out).load(step)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_stopped_or_killed(lab, tmp_path, number):
    "Nothing is kept of what was stopped, and the next attempt ends as if nothing had been."
    dense = plain(lab, tmp_path / "dense", save=1)
    thin = plain(lab, tmp_path / "thin", save=6)
    before = files(thin.folder)
    for step, at in ((8, 3), (8, 7)):
        started, log = start(1, thin.folder, f=make_again, log=tmp_path / "log", step=step, end_at=(at, number))
        assert codes(started)[0] not in (0, None), log.read_text()
        assert {k: v for k, v in files(thin.folder).items() if ".tmp" not in k} == before
    thin.load(8)
    same(open_series(thin.folder / "again"), dense, [8])
    assert not [k for k in files(thin.folder) if ".tmp" in k]


def train_some(out, lab, save, step=None):
    "In one of several processes: train, or make a step again."
    if step is None:
        plain(lab, out, save=save)
    else:
        again(open_series(out / "roberta-english-s3"), step, progress=False)


def test_several_processes(lab, tmp_path):
    "A run of two is made again by two; one is refused."
    for name, save in (("dense", 1), ("thin", 6)):
        started, log = start(2, tmp_path / name, f=train_some, lab=lab, save=save)
        assert codes(started) == [0, 0], log.read_text()
    dense, thin = (open_series(tmp_path / name / "roberta-english-s3") for name in ("dense", "thin"))
    with pytest.raises(EmbryoError, match="processes 2 -> 1"):
        thin.load(8)
    started, log = start(2, tmp_path / "thin", f=train_some, log=tmp_path / "log", lab=lab, save=6, step=8)
    assert codes(started) == [0, 0], log.read_text()
    assert log.read_text().count("is made again from") == 1
    same(open_series(thin.folder / "again"), dense, [8])


def without_made_by(series):
    "The series as an older version would have left it."
    index = json.loads((series.folder / "series.json").read_text())
    index.pop("made_by")
    index.pop("seal", None)
    (series.folder / "series.json").write_text(json.dumps(index))
    return open_series(series.folder)


def train_killed(out, lab, **settings):
    "In one of two processes: train, and die before an update."
    from embryo.pretraining.training import run

    update = run.update_once

    def update_or_die(*args):
        if args[4] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return update(*args)

    run.update_once = update_or_die
    plain(lab, out, **settings)


def test_a_run_that_went_on_with_fewer_processes(lab, tmp_path):
    """Killed as two, gone on with as one: what lies behind the mixture is refused, by one and by two, and what a state
    of one leads to is made.
    """
    started, log = start(2, tmp_path, f=train_killed, lab=lab, save=6)
    assert set(codes(started)) <= {1, -signal.SIGKILL}, log.read_text()
    mixed = plain(lab, tmp_path, save=6, keep_state_every=1)
    assert [(s["from"], s["until"], s["processes"]) for s in mixed.info["made_by"]] == [(0, 2, 2), (2, 12, 1)]
    with pytest.raises(EmbryoError, match="processes 2 -> 1 in updates 1 to 2.*not all made alike") as e:
        again(mixed, 4, progress=False)
    assert "machine" not in str(e.value) and "code" not in str(e.value)
    started, log = start(2, tmp_path, f=train_some, log=tmp_path / "log", lab=lab, save=6, step=4)
    assert 0 not in codes(started) and "processes 1 -> 2 in updates 3 to 4" in log.read_text()
    assert again(mixed, 9, progress=False).entries[9]["again"] == dict(state=6, differs=[])
    shutil.rmtree(mixed.folder / "again")
    # one that says nothing of it is walked to the next saved step, and that shows it
    with pytest.raises(EmbryoError, match="step 6 come out otherwise.*number of threads or processes"):
        again(without_made_by(mixed), 4, progress=False)
    assert not list(mixed.folder.glob("again/step*"))


def test_a_run_that_went_on_with_other_threads(lab, tmp_path):
    import torch

    threads = torch.get_num_threads()
    for n, stop_after in ((threads, 1), (threads + 1, None)):
        torch.set_num_threads(n)
        try:
            from embryo.pretraining.runs import pretrain_run

            how = {**HOW, "steps": 12, "save": 6}
            names = ("roberta", "english", 3, lab["corpora"], tmp_path, NET, how)
            mixed = pretrain_run(*names, progress=False, stop_after=stop_after)
        finally:
            torch.set_num_threads(threads)
    assert len(mixed.info["made_by"]) == 2
    with pytest.raises(
        EmbryoError, match=rf"cpu \({threads + 1} threads\) -> cpu \({threads} threads\) in updates 2 to 4"
    ):
        again(mixed, 4, progress=False)
    assert not (mixed.folder / "again").exists()


def test_an_older_series_is_proved(lab, tmp_path, capfd):
    "One that does not say what each update was made with: the next saved step must come out, and then it is the same."
    dense = plain(lab, tmp_path / "dense", save=1)
    older = without_made_by(plain(lab, tmp_path / "thin", save=6))
    made = again(older, 4, progress=False)
    same(made, dense, [4])
    assert "6 updates up to step 6, which must come out" in capfd.readouterr().err


def test_stops_leave_no_trace(lab, tmp_path):
    "A run that was stopped and went on alike says the same of its updates as one that was not."
    from embryo.pretraining.runs import pretrain_run

    names = ("roberta", "english", 3, lab["corpora"], tmp_path, NET, {**HOW, "steps": 12, "save": 6})
    for stop_after in (1, 4, None):
        stopped = pretrain_run(*names, progress=False, stop_after=stop_after)
    (stopped.folder / "step6" / "model.safetensors").write_bytes(b"")
    stopped = pretrain_run(*names, progress=False)
    assert stopped.info["made_by"] == plain(lab, tmp_path / "whole", save=6).info["made_by"]
    [stretch] = stopped.info["made_by"]
    assert (stretch["from"], stretch["until"], stretch["processes"]) == (0, 12, 1) and "threads" in stretch["device"]


def test_command(tiny, run, tmp_path):
    "`--at`: the cost, then the place; a step that cannot be, and a series that is not there, in one sentence."
    tiny.write_text(tiny.read_text().replace("save = 3", "save = 6"))
    options = ["--family", "roberta", "--profile", str(tiny)]
    at = lambda k, *more: run("embryo_pretrain", *options, "--at", k, *more)
    code, _, err = at(4)
    assert code == 2 and "no such series; train it first" in err and err.count("\n") == 1
    for lost in (["--to", str(tmp_path / "mine")], ["--anyway"]):
        code, out, err = run("embryo_pretrain", *options, *lost)
        assert code == 2 and f"{lost[0]} is for a step that is made again; give --at, too" in err and not out
        assert err.count("\n") == 1 and not (tmp_path / "papermill_runs").exists()
    assert run("embryo_pretrain", *options)[0] == 0
    folder = tmp_path / "papermill_runs/tiny/series/roberta-english-s0"
    index = (folder / "series.json").read_bytes()
    code, out, err = at(4)
    assert code == 0 and out.strip() == str(folder / "again/step4")
    assert err.index("step 4 is made again from the beginning, no earlier state was kept: 4 updates") == len(
        "roberta-english-s0: "
    )
    code, out, _ = at(4, "--to", str(tmp_path / "mine"))
    assert code == 0 and out.strip() == str(tmp_path / "mine/step4")
    assert files(tmp_path / "mine/step4") == files(folder / "again/step4")
    for k in (7, -1):
        code, _, err = at(k)
        assert code == 2 and "whole numbers from 0 to 6 can be made again" in err and err.count("\n") == 1
    assert (folder / "series.json").read_bytes() == index
    tiny.write_text(tiny.read_text().replace("batch = 4", "batch = 5"))
    code, _, err = at(3)
    assert code == 2 and "holds another run (config.batch 4 -> 5)" in err
    assert crash.SIZES.count("batch = 4") == 1
