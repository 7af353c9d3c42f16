"The same questions on a second treebank: rows equal a plain ask, other figures do not see them, a batch finds it."

from pathlib import Path

import pandas as pd
import pytest

from embryo.batch.graph.scores import evaluation_data, evaluation_files
from embryo.batch.plan import Plan
from embryo.book.captions import all_figures
from embryo.evaluation.annotations.folders import read
from embryo.evaluation.asking import examine
from embryo.evaluation.evaluators import EVALUATORS, Asked, load_checkpoint
from embryo.evaluation.words.words import mask_predict
from embryo.ground.errors import EmbryoError
from embryo.models.given import open_series
from embryo.results.curves import curve_data
from embryo.results.grown.treebanks import treebank_data


@pytest.fixture(scope="module")
def rows(lab):
    "Three steps, asked on both treebanks."
    series = open_series(Path(lab["series"]) / "albert-english-s0")
    first = read(lab["data"] + "/probing_gum/test.jsonl.gz")
    asked = Asked(first, split="probing_gum-test", second=lab["data"] + "/probing_ewt/test.jsonl.gz")
    names = ["reconstruct", "mask_predict", "second_treebank"]
    found = [examine(load_checkpoint(series, k), asked, names).assign(step=k) for k in series.steps]
    return pd.concat(found, ignore_index=True).assign(family="albert", l1="english", seed=0)


def test_rows_are_those_of_a_plain_ask(rows, lab):
    model = load_checkpoint(open_series(Path(lab["series"]) / "albert-english-s0"), 4)
    plain = mask_predict(model.speaker, model.tokenizer, read(lab["data"] + "/probing_ewt/test.jsonl.gz"))
    plain = plain.query("task == 'pos-class' and mode == 'corrected' and metric == 'accuracy'").set_index("group")
    here = rows.query(
        "evaluator == 'second_treebank' and task == 'mask_predict' and step == 4 and metric == 'accuracy'"
    )
    assert here.set_index("group")["value"].to_dict() == plain["value"].to_dict() and len(here) > 4
    assert set(here["split"]) == {"probing_ewt-test"}


def test_other_figures_do_not_see_them(rows):
    without = rows[rows["evaluator"] != "second_treebank"]
    for question in ("reconstruct", "mask_predict"):
        pd.testing.assert_frame_equal(curve_data(rows, question), curve_data(without, question))
    assert len(treebank_data(rows)) == 2 * len(treebank_data(rows).query("treebank == 'first'"))
    assert treebank_data(without).empty and "x_treebanks" in all_figures()


def test_a_batch_hands_over_the_file(tmp_path):
    profile = tmp_path / "both.toml"
    profile.write_text(
        'profile = "both"\n[data]\nprovider = "microworld"\nworld = {words = 2000}\n[tokenizer]\nvocab_size = 500\n'
        "[pretrain.default]\nsteps = 4\n"
        '[results.one]\ntemplate = "examine"\nfamily = ["albert"]\nl1 = ["english"]\nseed = [0]\nstep = "last"\n'
        'evaluators = ["second_treebank"]\n'
    )
    plan = Plan(profile, root=tmp_path, on="cpu")
    node = plan.nodes["examine/albert-english-s0-step4"]
    assert str(node.params["second"]).endswith("probing_ewt/test.jsonl.gz")
    read_too = evaluation_files(evaluation_data(plan.study), [EVALUATORS["second_treebank"]])
    assert read_too == ["probing_gum/test.jsonl.gz", "probing_ewt/test.jsonl.gz"]
    other = profile.read_text() + '[examine]\nsecond = "probing_gum/dev.jsonl.gz"\n'
    profile.write_text(other)
    node = Plan(profile, root=tmp_path, on="cpu").nodes["examine/albert-english-s0-step4"]
    assert str(node.params["second"]).endswith("probing_gum/dev.jsonl.gz")


def test_no_file_is_said_before_the_work():
    with pytest.raises(EmbryoError, match="second_treebank reads second, and there are none; give second or leave"):
        examine(None, Asked(), ["second_treebank"])


def test_the_command_asks_for_data(run, lab):
    series = Path(lab["series"]) / "albert-english-s0"
    sentences = lab["data"] + "/probing_gum/test.jsonl.gz"
    ask = ("embryo_examine", series, sentences, "--evaluators", "second_treebank")
    code, _, err = run(*ask)
    assert code == 2 and "give --data" in err and "second_treebank" in err
    code, _, err = run(*ask, "--data", lab["data"], "--step", "4")
    assert code == 0, err
