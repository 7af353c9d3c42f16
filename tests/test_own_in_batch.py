"""The reader's own L1, evaluator, objective and figure, ten lines each in one file, in a profile of the batch."""

import crash
import pandas as pd
import pytest

from embryo.batch.plan import Plan
from embryo.batch.run import run_node
from embryo.ground.errors import EmbryoError

MINE = """
import torch.nn.functional as F
from embryo.pretraining.objectives import Part, masked_lm, objective


def palindromes(rng, n_ids, half):
    while True:
        left = rng.integers(0, n_ids, half).tolist()
        yield left + left[::-1]


@objective(parts=("mlm", "smooth"), weights={"smooth": 0.5}, over={"smooth": "selected"})
def smoothed(model, batch, cfg):
    "Masked-LM loss, and beside it the same answers against labels that are a little uncertain."
    words = masked_lm(model, batch)
    smooth = F.cross_entropy(words.logits, words.labels, label_smoothing=0.1)
    return {"mlm": words, "smooth": Part(smooth, words.logits, words.labels)}


def pieces(model, tokenizer, sentences, most=5):
    "Pieces of a sentence."
    lengths = [len(tokenizer(" ".join(s["tokens"]))["input_ids"]) for s in sentences[:most]]
    return [dict(metric="pieces", value=sum(lengths) / len(lengths), n=len(lengths))]


def growth(rows, metric="pieces"):
    "What the evaluator above said, step by step."
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots()
    d = rows[rows["metric"] == metric].sort_values("step")
    ax.plot(d["step"], d["value"])
    return fig
"""
PROFILE = (
    'profile = "own"'
    + crash.SIZES
    + """
[corpora.palindromes]
function = "mine.py:palindromes"
half = 15
[pretrain.roberta-palindromes]
objective = "mine.py:smoothed"
[examine]
max_sentences = 10
[evaluators.pieces]
function = "mine.py:pieces"
most = 4
[results.words]
template = "examine"
family = ["roberta"]
l1 = ["palindromes"]
step = [0, 6]
evaluators = ["reconstruct", "pieces"]
"""
)
FIGURE = """
[figures.growth]
function = "mine.py:growth"
metric = "pieces"
[results.x_plateau]
template = "appendix"
"""
SERIES = "pretrain/roberta-palindromes-s0"
ASKED = ["examine/roberta-palindromes-s0-step0", "examine/roberta-palindromes-s0-step6"]
APPENDIX = "x_plateau/appendix"


@pytest.fixture
def home(tmp_path):
    "A folder with a profile and mine.py."
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "klingon.txt").write_text(crash.KLINGON)
    (tmp_path / "own.toml").write_text(PROFILE)
    return tmp_path


def planned(home):
    return Plan(home / "own.toml", root=home)


def test_the_plan_knows_them(home):
    "Each function is a parameter of the nodes that run it, and its file is among their files."
    nodes = planned(home).nodes
    mine = str(home / "mine.py")
    assert nodes["corpus/palindromes"].params["maker"]["function"] == f"{mine}:palindromes"
    assert nodes[SERIES].params["training"]["objective"] == f"{mine}:smoothed"
    for name in ASKED:
        assert nodes[name].params["own"] == {"pieces": {"function": f"{mine}:pieces", "most": 4}}
        assert nodes[name].params["evaluators"] == ["reconstruct", "pieces"]
        assert nodes[name].cost["seconds"] > 0
    with_it = {n.name for n in nodes.values() if home / "mine.py" in n.files}
    assert with_it == {"corpus/palindromes", SERIES, *ASKED}


def test_the_plan_knows_a_figure(home):
    (home / "own.toml").write_text(PROFILE + FIGURE)
    n = planned(home).nodes[APPENDIX]
    assert n.params["own"] == {"growth": {"function": f"{home}/mine.py:growth", "metric": "pieces"}}
    assert n.files == [home / "own.toml", home / "mine.py"] and n.needs == ["rows/all"]


def test_an_edit_runs_again_what_depends_on_it(home):
    before = {k: (n.key, n.params.get("code")) for k, n in planned(home).nodes.items()}
    (home / "mine.py").write_text(MINE.replace("label_smoothing=0.1", "label_smoothing=0.2"))
    after = {k: (n.key, n.params.get("code")) for k, n in planned(home).nodes.items()}
    assert {k for k in before if before[k][0] != after[k][0]} == {"corpus/palindromes", SERIES, *ASKED, "rows/all"}
    # the series itself is made anew: its folder remembers its code
    assert before[SERIES][1] != after[SERIES][1]


WRONG = {
    'function = "mine.py:pieces"': (
        'function = "mine.py:peices"',
        r"\[evaluators.pieces\]: .*unknown function 'peices'",
    ),
    "most = 4": ("mots = 4", "unexpected keyword argument 'mots'"),
    "[evaluators.pieces]": ("[evaluators.reconstruct]", "reconstruct is one of the evaluators here|built-in"),
    '"reconstruct", "pieces"': ('"reconstruct", "peices"', "unknown evaluator 'peices'; did you mean pieces"),
    'function = "mine.py:growth"': ('function = "gone.py:growth"', r"\[figures.growth\]: .*gone.py: no such file"),
    "[figures.growth]": ('[figures."a/b"]', "'a/b' is no name for a figure"),
    'objective = "mine.py:smoothed"': ('objective = "mine.py:smothed"', "unknown function 'smothed'"),
    'function = "mine.py:pieces"\nmost = 4': ("", r"\[evaluators.pieces\]: is {}; expected function = "),
}


@pytest.mark.parametrize("old", WRONG)
def test_wrong_names_are_refused_in_one_sentence(home, old):
    new, says = WRONG[old]
    assert old in PROFILE + FIGURE
    (home / "own.toml").write_text((PROFILE + FIGURE).replace(old, new))
    with pytest.raises(EmbryoError, match=says) as e:
        planned(home)
    assert "\n" not in str(e.value) and "own.toml" in str(e.value)


def test_they_run(home):
    "Node by node, in this process: from the reader's file to rows."
    plan = planned(home)
    for n in plan.nodes.values():
        run_node(n, here=True)
        assert n.state() == "done", n.name
    found = pd.concat(pd.read_parquet(plan.nodes[name].rows) for name in ASKED)
    found = found[found["evaluator"] == "pieces"]
    assert set(found["step"]) == {0, 6} and (found["n"] == 4).all() and (found["value"] > 4).all()
    learned = pd.read_parquet(plan.nodes[SERIES].rows)
    assert {"mlm", "smooth"} <= set(learned["group"])
    assert not planned(home).todo()


def test_a_figure_is_drawn(home):
    "From made-up rows, as the template has them by default, to own_growth.png among the appendix's figures."
    (home / "own.toml").write_text(PROFILE + FIGURE.replace('"pieces"', '"accuracy"'))
    n = planned(home).nodes[APPENDIX]
    n.params.update(rows="", settings="")
    run_node(n, here=True)
    assert (home / "figures/own/own_growth.png").is_file() and n.state() == "done"
