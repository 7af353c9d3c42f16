"""On a GPU: train, go on, make a step again, fine-tune and examine a tiny model in bf16, with the losses of a CPU.

Skipped where there is no CUDA.
"""

import pytest
import torch

from embryo.evaluation.asking import examine
from embryo.evaluation.evaluators import Asked, load_checkpoint
from embryo.evaluation.tasks.finetune import finetune
from embryo.evaluation.tasks.settings import FinetuneConfig
from embryo.pretraining.again import again
from embryo.pretraining.runs import pretrain_run

GPU = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: torch.cuda.is_available() is False")

# no dropout: a GPU draws other numbers from a seed than a CPU
STILL = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
NET = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128, positions=64, **STILL)
HOW = dict(steps=12, batch=6, length=32, lr=2e-3, warmup=3, save=6, heldout_batches=2, keep_state_every=1)


def trained(lab, out, device, monkeypatch, **settings):
    monkeypatch.setenv("EMBRYO_DEVICE", device)
    how = {k: v for k, v in settings.items() if k != "stop_after"}
    names = ("roberta", "english", 3, lab["corpora"], out, NET, {**HOW, **how})
    return pretrain_run(*names, progress=False, stop_after=settings.get("stop_after"))


def losses(series):
    return [series.entries[k]["loss"]["heldout"] for k in series.steps]


@pytest.fixture
def series(lab, tmp_path, monkeypatch):
    "Twelve updates in bf16 on the GPU."
    return trained(lab, tmp_path / "whole", GPU, monkeypatch, bf16=True)


@pytest.mark.parametrize(("bf16", "tolerance"), [(False, 1e-3), (True, 3e-2)])
def test_the_losses_of_a_cpu(lab, tmp_path, monkeypatch, bf16, tolerance):
    "Held-out losses in nats; in bf16 sums are rounded to three digits on the way."
    there = trained(lab, tmp_path / "gpu", GPU, monkeypatch, bf16=bf16)
    here = trained(lab, tmp_path / "cpu", "cpu", monkeypatch, bf16=False)
    assert there.info["run"]["device"] == torch.device(GPU).type and here.info["run"]["device"] == "cpu"
    assert losses(there) == pytest.approx(losses(here), abs=tolerance)
    assert losses(there)[-1] < losses(there)[0]


def test_it_goes_on_bit_for_bit(lab, series, tmp_path, monkeypatch):
    for stop_after in (4, 3, None):
        stopped = trained(lab, tmp_path / "stopped", GPU, monkeypatch, bf16=True, stop_after=stop_after)
    assert [stopped.entries[k]["sha256"] for k in stopped.steps] == [series.entries[k]["sha256"] for k in series.steps]
    assert stopped.info["made_by"] == series.info["made_by"]


# a width and a length at which a GPU's quickest sums differ from one run to the next
WIDE = NET | dict(hidden_size=512, num_attention_heads=8, intermediate_size=2048, positions=128)
LONG = HOW | dict(batch=64, length=128, bf16=True)
ASKED = dict(albert="mlm+sop", bert="mlm+nsp", electra="rtd")


def wide(lab, out, family, **settings):
    how = LONG | dict(objective=ASKED[family]) | settings
    return pretrain_run(family, "english", 3, lab["corpora"], out, WIDE, how, progress=False)


@pytest.mark.parametrize("family", list(ASKED))
def test_the_same_bits_twice(lab, tmp_path, monkeypatch, family):
    monkeypatch.setenv("EMBRYO_DEVICE", GPU)
    made = [wide(lab, tmp_path / str(i), family) for i in range(2)]
    assert len({tuple(s.entries[k]["sha256"] for k in s.steps) for s in made}) == 1
    dense = wide(lab, tmp_path / "dense", family, save=1)
    again_made = again(made[0], 4, progress=False)
    assert again_made.entries[4]["files"] == dense.entries[4]["files"]


def test_a_step_again(lab, series, tmp_path, monkeypatch):
    dense = trained(lab, tmp_path / "dense", GPU, monkeypatch, bf16=True, save=1)
    for step in (4, 9):
        made = again(series, step, progress=False)
        assert made.entries[step]["files"] == dense.entries[step]["files"]
        assert made.entries[step]["again"]["differs"] == []


def test_examined(lab, series):
    "The same answers as the same checkpoint gives on a CPU, but for rounding."
    from embryo.evaluation.annotations.folders import read

    asked = Asked(read(lab["data"] + "/probing_gum/test.jsonl.gz")[:20], split="probing_gum-test")
    rows = [examine(load_checkpoint(series, 12, device), asked, ["reconstruct"]) for device in (GPU, "cpu")]
    assert len(rows[0]) == len(rows[1]) > 0
    assert rows[0]["value"].tolist() == pytest.approx(rows[1]["value"].tolist(), abs=0.05)


def test_fine_tuned(lab, series, monkeypatch):
    "Close to a CPU in fp32, and of the same kind in bf16."
    from embryo.evaluation.tasks.reading import read_task

    data = read_task(lab["data"] + "/glue", "STS-B")
    values = []
    for device, bf16 in ((GPU, True), (GPU, False), ("cpu", False)):
        monkeypatch.setenv("EMBRYO_DEVICE", device)
        config = FinetuneConfig(steps=8, batch=8, max_length=32, bf16=bf16, classifier_dropout=0.0)
        rows = finetune(series.path(12), "STS-B", data, config)
        values.append(rows[rows["metric"] == "train_loss"]["value"].tolist())
    assert values[1] == pytest.approx(values[2], abs=1e-3) and values[0] == pytest.approx(values[2], abs=3e-2)
