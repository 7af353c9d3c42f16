"Held-out words in other windows: equal to a plain loop, the same words for all, one sentence where nothing is there."

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from embryo.corpora.tokens import open_ids
from embryo.evaluation.asking import examine
from embryo.evaluation.evaluators import Asked, load_checkpoint
from embryo.evaluation.words.heldout import WindowConfig, heldout_batches, window_rows
from embryo.ground.errors import EmbryoError
from embryo.models.given import open_series
from embryo.pretraining.batches import l1_marks

FORMS = ("mlm", "mlm+sop", "mlm+nsp")


@pytest.fixture(scope="module")
def series(lab):
    return open_series(Path(lab["series"]) / "albert-english-s0")


@pytest.fixture(scope="module")
def corpus(lab):
    return open_ids(f"{lab['corpora']}/english/heldout")


def plain(model, batches):
    "Nats and right answers of selected tokens, window by window, with all logits of transformers' own model."
    nats, right = [], []
    for b in batches:
        selected = set(b.positions.tolist())
        labels = dict(zip(b.positions.tolist(), b.labels.tolist()))
        for row, ids in enumerate(b.ids):
            types = None if b.types is None else b.types[row : row + 1]
            with torch.inference_mode():
                logits = model(input_ids=ids[None], token_type_ids=types).logits[0]
            for at in range(len(ids)):
                flat = row * len(ids) + at
                if flat in selected:
                    nats.append(-torch.log_softmax(logits[at].double(), -1)[labels[flat]].item())
                    right.append(logits[at].argmax().item() == labels[flat])
    return np.mean(nats), np.mean(right), len(nats)


@pytest.mark.parametrize("objective", FORMS)
def test_equals_a_plain_loop(objective, series, corpus, lab):
    model = series.load(4)[0].eval()
    marks = l1_marks(lab["corpora"], "english")
    cfg = WindowConfig(lengths=(24,), objectives=(objective,), tokens=1000)
    rows = window_rows(model, corpus, cfg, marks).set_index("metric")
    loss, right, n = plain(model, heldout_batches(corpus, objective, 24, 1000, marks))
    assert abs(rows.loc["loss", "value"] - loss) < 1e-5 and abs(rows.loc["accuracy", "value"] - right) < 1e-9
    assert set(rows["n"]) == {n} and n > 100


def test_every_checkpoint_is_asked_the_same_words(series, corpus):
    first, last = (window_rows(series.load(step)[0], corpus, WindowConfig(tokens=500)) for step in (0, 4))
    about = ["task", "group", "metric", "n", "split"]
    pd.testing.assert_frame_equal(first[about], last[about])
    assert (first["value"] != last["value"]).any()


def test_pairs_are_of_one_text_or_of_two(corpus):
    "Where the second segment goes on where the first ends (or, swapped, begins), and where it is from elsewhere."
    text = corpus.ids[:].tolist()
    where = {}
    for at in range(len(text) - 6):
        where.setdefault(tuple(text[at : at + 6]), set()).add(at)
    together = {}
    for form in ("mlm+sop", "mlm+nsp"):
        batch = next(heldout_batches(corpus, form, 48, 10**6))
        whole = batch.ids.flatten().clone()
        whole[batch.positions] = batch.labels
        found = []
        for ids, types, elsewhere in zip(whole.view_as(batch.ids).tolist(), batch.types.tolist(), batch.order.tolist()):
            border = types.index(1)
            second = ids[border:][: sum(types) - 1]
            first = ids[1 : border - 1]
            if min(len(first), len(second)) < 6:
                continue
            a, b = where.get(tuple(first[:6]), set()), where.get(tuple(second[:6]), set())
            near = any(y - x == len(first) or x - y == len(second) for x in a for y in b)
            found.append((near, elsewhere))
        together[form] = found
    assert len(together["mlm+sop"]) > 20 and all(near for near, _ in together["mlm+sop"])
    assert {order for _, order in together["mlm+sop"]} == {0, 1}
    assert all(near != bool(elsewhere) for near, elsewhere in together["mlm+nsp"])
    assert {order for _, order in together["mlm+nsp"]} == {0, 1}


def test_no_corpora_is_said_before_the_work(series, lab):
    for name in ("windows", "equality"):
        with pytest.raises(EmbryoError, match=f"{name} reads corpora, and there are none; give corpora or leave"):
            examine(None, Asked(), [name])
    with pytest.raises(EmbryoError, match="windows: no held-out text of klingon"):
        examine(
            load_checkpoint(series, 4),
            Asked(corpora=lab["corpora"], options=dict(windows=dict(l1="klingon"))),
            ["windows"],
        )


def test_the_command_asks_for_corpora(run, lab, tmp_path):
    ask = ("embryo_examine", Path(lab["series"]) / "albert-english-s0", lab["data"] + "/probing_gum/test.jsonl.gz")
    code, _, err = run(*ask, "--evaluators", "windows")
    assert code == 2 and "give --corpora" in err, err
    out = tmp_path / "forms.csv"
    code, _, err = run(*ask, "--evaluators", "windows", "--corpora", lab["corpora"], "--step", "4", "--out", out)
    assert code == 0, err
    assert set(pd.read_csv(out)["task"]) == {"mlm", "mlm+sop"}
