"""On a GPU: train, go on, make a step again, fine-tune and examine a tiny model in bf16, with the losses of a CPU.

Skipped where there is no CUDA.
"""

from functools import partial

import pytest
import torch

from embryo.corpora.laws import unstructured
from embryo.evaluation.asking import examine
from embryo.evaluation.evaluators import Asked, load_checkpoint
from embryo.evaluation.tasks.finetune import finetune
from embryo.evaluation.tasks.settings import FinetuneConfig
from embryo.ground.machine import same_bits
from embryo.models.models import build
from embryo.pretraining.again import again
from embryo.pretraining.batches import training_batch
from embryo.pretraining.objectives import add_gradients
from embryo.pretraining.runs import pretrain_run
from embryo.pretraining.settings import PretrainConfig, attention_at
from embryo.pretraining.training.recorded import Recordings, with_room

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


def asking(family, asked, **settings):
    "A model that asks on the GPU, and its settings."
    net = {k: v for k, v in WIDE.items() if k != "positions"}
    model = build(family, 60, 64, pairs=asked in ("mlm+sop", "mlm+nsp"), **net | settings.pop("net", {}))
    model.to(GPU).train().set_attn_implementation("sdpa")
    how = dict(objective=asked, batch=16, length=64, warmup=5, mask_rate=0.3, attention_bias="neighbours")
    return model, PretrainConfig(**how | settings)


def gradients(model, answer):
    "Loss, and the gradients of all weights in one row, of an answer; they are taken away."
    row = torch.cat([p.grad.flatten().float() for p in model.parameters() if p.grad is not None]).clone()
    model.zero_grad(set_to_none=True)
    return answer[0].item(), row


@pytest.mark.parametrize("steps", [100, 2000], ids=["recorded", "compiled"])
@pytest.mark.parametrize(("family", "asked"), [*ASKED.items(), ("roberta", "mlm")])
def test_a_recording_gives_the_gradients_of_the_plain_way(family, asked, steps):
    "Batch after batch, with help for attention (update 0) and without; in fp32, padded or not."
    model, cfg = asking(family, asked, steps=steps)
    corpus = unstructured(60_000, vocab_size=55, line=(62, 62) if family == "electra" else (50, 62), seed=0)
    corpus.header["pack"] = "line"
    recordings = Recordings(model, cfg, bf16=False)
    plainly = partial(add_gradients, model, cfg=cfg, bf16=False, dev=torch.device(GPU))
    with same_bits(torch.device(GPU)):
        for own in (0, 1, steps - 2, steps - 1):
            batch = training_batch(corpus, cfg, own)
            roomy = with_room(batch, 64, asked in ("mlm+sop", "mlm+nsp"))  # ELECTRA draws once for each place
            torch.manual_seed(own)
            with attention_at(model, cfg, own):
                plain = gradients(model, plainly(roomy))
            torch.manual_seed(own)
            recorded = gradients(model, recordings.answer(batch, own))
            assert recorded[0] == pytest.approx(plain[0], rel=1e-4)
            assert torch.allclose(recorded[1], plain[1], rtol=0.01, atol=1e-3 * plain[1].abs().max().item())
    assert len(recordings.made) >= 2 and {kind[-1] for kind in recordings.made} == {True, False}


def test_chance_in_a_recording_is_that_of_the_seed():
    "Dropout: the same numbers from one seed, also right after a recording was made, and others from another."
    model, cfg = asking("bert", "mlm", steps=100, net=dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1))
    corpus = unstructured(60_000, vocab_size=55, line=(62, 62), seed=0)
    corpus.header["pack"] = "line"
    batch = training_batch(corpus, cfg, 50)

    def loss(recordings, seed):
        torch.manual_seed(seed)
        return recordings.answer(batch, 50)[0].item()

    one, two = Recordings(model, cfg, bf16=True), Recordings(model, cfg, bf16=True)
    first = loss(one, 1)
    assert loss(one, 2) != first and loss(one, 1) == first == loss(two, 1)


def test_a_compiled_training_goes_on_bit_for_bit(lab, tmp_path, monkeypatch):
    "With dropout, and with early signs, which leave hooks in the layers of the run that was not stopped."
    monkeypatch.setenv("EMBRYO_DEVICE", GPU)
    net = NET | dict(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    how = HOW | dict(steps=1000, save=250, bf16=True, signs=True, objective="mlm+nsp")

    def made(out, **stops):
        return pretrain_run("bert", "english", 3, lab["corpora"], out, net, how, progress=False, **stops)

    whole = made(tmp_path / "whole")
    made(tmp_path / "stopped", stop_after=600)
    stopped = made(tmp_path / "stopped")
    assert [stopped.entries[k]["sha256"] for k in stopped.steps] == [whole.entries[k]["sha256"] for k in whole.steps]


def test_what_is_not_recorded_takes_the_plain_way():
    model, cfg = asking("electra", "rtd", steps=100)
    corpus = unstructured(60_000, vocab_size=55, line=(50, 60), seed=0)
    corpus.header["pack"] = "line"
    assert Recordings(model, cfg, bf16=False).answer(training_batch(corpus, cfg, 50), 50) is None  # padded
    model, cfg = asking("bert", "mlm", steps=100, attention_scale=2.0)
    recordings = Recordings(model, cfg, bf16=False)
    assert recordings.answer(training_batch(corpus, cfg, 0), 0) is None  # a factor on scores
    assert recordings.answer(training_batch(corpus, cfg, 50), 50) is not None


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
