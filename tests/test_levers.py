"""Each lever of pretraining against an independent computation; held-out losses that no lever touches."""

import json
from dataclasses import asdict, replace

import crash
import numpy as np
import pytest
import torch

from embryo.corpora.tokens import N_SPECIALS, SPECIALS, IdCorpus
from embryo.evaluation.tasks.finetune import first_logits
from embryo.ground.errors import EmbryoError
from embryo.models.given import open_series
from embryo.models.models import build
from embryo.pretraining import objectives
from embryo.pretraining.batches import training_batch
from embryo.pretraining.runs import MOVED, advice
from embryo.pretraining.settings import MuonInFp32, PretrainConfig, longest, make_optimizer
from embryo.pretraining.training.heldout import heldout_loss
from embryo.pretraining.training.loop import pretrain

V = 50
NET = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
CFG = PretrainConfig(steps=12, batch=64, length=32, lr=1e-3, warmup=2, save=6, heldout_batches=2, bf16=False)
MASK = SPECIALS.index("<mask>")


def corpus(seed, n=20_000):
    "Independent draws, so that nothing but chance decides what is selected."
    ids = np.random.default_rng(seed).integers(N_SPECIALS, V, n)
    return IdCorpus(ids, np.array([0, n]), dict(vocab_size=V, sha256=f"seed {seed}", maker="hand", pack="stream"))


TRAIN, HELDOUT = corpus(0), corpus(1, 6000)
LEVERS = dict(
    plain={},
    rate=dict(mask_rate=0.4),
    falling=dict(mask_rate=[0.3, 0.15]),
    hidden=dict(as_mask=1.0, as_random=0.0),
    random=dict(as_mask=0.5, as_random=0.5),
    short=dict(length=[[8, 0.5], [32, 1.0]], heldout_length=32),
    muon=dict(optimizer="muon", betas=(0.9, 0.98)),
    sharp=dict(attention_scale=3.0, start=0.5),
    neighbours=dict(attention_bias="neighbours", bias_weight=3.0, start=0.5),
    equal=dict(attention_bias="equal", bias_weight=3.0, start=1.0),
    signs=dict(signs=True, curve_every=4),
)


def net(cfg):
    return build("roberta", V, longest(cfg), **NET)


def batches(cfg, steps=range(60), purpose="train"):
    "Selected positions, what the model sees there and what the text has: three long arrays, and tokens in all."
    out = [training_batch(TRAIN, cfg, step, purpose) for step in steps]
    seen = torch.cat([b.ids.flatten()[b.positions] for b in out])
    labels = torch.cat([b.labels for b in out])
    real = sum(int((b.ids != 1).sum() - 2 * len(b.ids)) for b in out)
    return seen, labels, real


def near(share, expected, n):
    "Within four standard errors of a binomial share."
    return abs(share - expected) <= 4 * (max(expected * (1 - expected), 1e-12) / n) ** 0.5


@pytest.mark.parametrize("rate", [0.15, 0.3, 0.4, 1.0])
@pytest.mark.parametrize("masking", ["token", "word", "ngram"])
def test_share_of_selected_tokens(rate, masking):
    "As many tokens are selected as was asked for, counted."
    if masking == "ngram" and rate == 1.0:
        pytest.skip("runs of words are chosen one after the other: a share of 1 is token by token")
    seen, labels, real = batches(replace(CFG, mask_rate=rate, masking=masking))
    wide = 3 if masking == "ngram" else 1  # words of a run come together: fewer independent draws
    assert near(len(labels) / real, rate, real / wide)


@pytest.mark.parametrize("as_mask, as_random", [(0.8, 0.1), (1.0, 0.0), (0.8, 0.0), (0.5, 0.5), (0.0, 0.0)])
@pytest.mark.parametrize("rate", [0.15, 0.4])
def test_what_becomes_of_selected_tokens(as_mask, as_random, rate):
    "Hidden, random and shown, counted; a random id is the right one by chance once in 45."
    seen, labels, _ = batches(replace(CFG, mask_rate=rate, as_mask=as_mask, as_random=as_random))
    n = len(labels)
    hit = as_random / (V - N_SPECIALS)
    assert near((seen == MASK).double().mean().item(), as_mask, n)
    assert near((seen == labels).double().mean().item(), 1 - as_mask - as_random + hit, n)
    assert near(((seen != labels) & (seen != MASK)).double().mean().item(), as_random - hit, n)


def test_rate_falls_along_a_run():
    "The first and the last batches of a falling rate, counted."
    cfg = replace(CFG, steps=400, mask_rate=[0.3, 0.15])
    for steps, rate in ((range(40), 0.3 - 0.15 * 19.5 / 399), (range(360, 400), 0.15 + 0.15 * 19.5 / 399)):
        _, labels, real = batches(cfg, steps)
        assert near(len(labels) / real, rate, real)


def test_half_said_shares_are_refused():
    "What is said and what the objective adds must not be more than 1."
    with pytest.raises(EmbryoError, match="more than 1 together .one of them is that of objective mlm"):
        training_batch(TRAIN, replace(CFG, as_mask=0.95), 0)


MEANINGLESS = [
    ("attention_scale", -2, "a number above 0"),
    ("attention_scale", 0, "a number above 0"),
    ("attention_scale", float("nan"), "a number above 0"),
    ("bias_weight", -3, "a number from 0 on"),
    ("rtd_weight", -1.0, "a number from 0 on"),
    ("weight_decay", -0.01, "a number from 0 on"),
    ("lr", 0, "a number above 0"),
    ("lr", -1e-3, "a number above 0"),
    ("muon_lr", -1, "a number above 0"),
    ("muon_steps", 0, "a whole number from 1 to 99"),
    ("muon_steps", 200, "a whole number from 1 to 99"),
    ("betas", [0.9, 1.5], "two numbers from 0 to below 1"),
    ("betas", [0.9], "two numbers from 0 to below 1"),
    ("heldout_length", 2, "a whole number of positions above 3, or 0"),
    ("heldout_length", -32, "a whole number of positions above 3, or 0"),
]


@pytest.mark.parametrize("name, value, accepted", MEANINGLESS)
def test_a_lever_out_of_its_range_is_refused(name, value, accepted):
    "One sentence: which setting, what it is, what would be accepted; whatever the optimizer is."
    for optimizer in ("adamw", "muon"):
        with pytest.raises(EmbryoError) as told:
            replace(CFG, optimizer=optimizer, **{name: value})
        assert str(told.value).startswith(f"{name} is {value}; expected {accepted}")
        assert "\n" not in str(told.value)


RESULTS = dict(  # a plain run and a chain: what their settings are called in a message, and what a profile says
    plain=(
        "p.toml [pretrain.roberta-zipf]",
        """
[pretrain.roberta]
%s
[results.r]
template = "examine"
family = ["roberta"]
l1 = ["zipf"]
evaluators = ["reconstruct"]
""",
    ),
    chain=(
        "pretrain of zipf:1k~x",
        """
[variants.x]
pretrain = {%s}
[results.r]
template = "chain"
l1 = ["zipf:1k~x"]
""",
    ),
)


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize("line", ["attention_scale = -2", "betas = [0.9, 1.5]", "muon_steps = 0", "lr = 0"])
def test_a_lever_out_of_its_range_is_refused_when_it_is_planned(kind, line, run, tmp_path):
    "In one sentence that says where it stands, and before the world is made."
    where, text = RESULTS[kind]
    (tmp_path / "p.toml").write_text('profile = "p"' + crash.SIZES + text % line + "seed = [0]\n")
    (tmp_path / "klingon.txt").write_text(crash.KLINGON)
    code, _, err = run("embryo_run", "--profile", tmp_path / "p.toml")
    assert code == 2 and len(err.strip().splitlines()) == 1, err
    assert f"{where}: {line.replace(' = ', ' is ')}; expected" in err
    assert sorted(f.name for f in tmp_path.iterdir()) == ["klingon.txt", "p.toml"]


@pytest.mark.parametrize("lever", LEVERS)
def test_heldout_batches_know_no_lever(lever):
    "The same held-out bytes whatever the settings of training are."
    plain = training_batch(HELDOUT, CFG, 1, "heldout")
    other = training_batch(HELDOUT, replace(CFG, **LEVERS[lever]), 1, "heldout")
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(plain, other))


@pytest.mark.parametrize("pre_layer_norm", [False, True])
@pytest.mark.parametrize("lever", LEVERS)
def test_a_checkpoint_is_plain(lever, pre_layer_norm, tmp_path):
    "Opened again, without any help, every checkpoint has the held-out loss that was written beside it."
    cfg = replace(CFG, **LEVERS[lever])
    model = build("roberta", V, longest(cfg), pre_layer_norm=pre_layer_norm, **NET)
    series = pretrain(TRAIN, HELDOUT, model, None, cfg, tmp_path / "s", progress=False)
    assert series.steps == [0, 6, 12]
    for step in series.steps:
        again = build("roberta", V, longest(cfg), pre_layer_norm=pre_layer_norm, **NET)
        again.load_state_dict(type(again).from_pretrained(series.path(step)).state_dict())
        again.set_attn_implementation("eager")
        found = heldout_loss(again, HELDOUT, cfg)["heldout"]
        assert found == pytest.approx(series.entries[step]["loss"]["heldout"], abs=1e-6)


def weights(series):
    return {step: entry["sha256"] for step, entry in series.entries.items()}


@pytest.mark.parametrize("lever", LEVERS)
def test_a_stopped_run_goes_on(lever, tmp_path):
    "Stopped in the middle of what changes on the way, and after it: the same bytes."
    cfg = replace(CFG, **LEVERS[lever], state_every=5)
    runs = []
    for stops in ((), (3, 5)):
        out = tmp_path / str(len(stops))
        for stop in stops:
            pretrain(TRAIN, HELDOUT, net(cfg), None, cfg, out, progress=False, stop_after=stop)
        runs.append(pretrain(TRAIN, HELDOUT, net(cfg), None, cfg, out, progress=False))
    assert weights(runs[0]) == weights(runs[1])


def test_levers_do_something(tmp_path):
    "Every lever but looking changes the weights; looking changes none."
    ends = {}
    for lever, settings in LEVERS.items():
        cfg = replace(CFG, **settings)
        series = pretrain(TRAIN, HELDOUT, net(cfg), None, cfg, tmp_path / lever, progress=False)
        ends[lever] = weights(series)[12]
    assert ends.pop("signs") == ends["plain"]
    assert len(set(ends.values())) == len(ends)


def test_signs_are_taken_at_checkpoints_where_there_is_held_out_text(tmp_path):
    "Every checkpoint has them; without held-out text there is nothing to read them on, and the run goes on."
    cfg = replace(CFG, **LEVERS["signs"])
    read, unread = (
        pretrain(TRAIN, heldout, net(cfg), None, cfg, tmp_path / str(heldout is None), progress=False)
        for heldout in (HELDOUT, None)
    )
    assert all({"unigram", "bigram"} <= set(e["signs"]["crossed"]) for e in read.entries.values())
    assert not [e for e in unread.entries.values() if "signs" in e]
    assert weights(read) == weights(unread)


def test_help_ends_where_it_is_said(tmp_path):
    "With no help left, an update is the plain one: help that ends at the first update changes nothing."
    runs = []
    for settings in (dict(start=0.0, attention_bias="equal"), {}):
        cfg = replace(CFG, **settings)
        runs.append(pretrain(TRAIN, HELDOUT, net(cfg), None, cfg, tmp_path / str(len(settings)), progress=False))
    assert weights(runs[0]) == weights(runs[1])


@pytest.mark.parametrize("kind", ["neighbours", "equal"])
def test_both_models_of_electra_are_helped(kind, tmp_path, monkeypatch):
    "With draws that do not depend on the generator: help reaches the weights of both, and ends."

    def draw(batch, logits):
        fake = torch.zeros_like(batch.ids)
        fake.view(-1)[batch.positions[::2]] = 1
        return batch.ids, fake

    monkeypatch.setattr(objectives, "redraw", draw)
    ends = []
    for lever in ("none", kind):
        cfg = replace(CFG, objective="rtd", attention_bias=lever, bias_weight=2.0, start=1.0)
        model = build("electra", V, 32, **NET)
        pretrain(TRAIN, HELDOUT, model, None, cfg, tmp_path / lever, progress=False)
        assert not getattr(model.generator, "attention_help", None)
        ends.append({name: p.detach().clone() for name, p in model.named_parameters()})
    for part in ("generator", "discriminator"):
        queries = [name for name in ends[0] if name.startswith(part) and "query.weight" in name]
        assert queries and all(not torch.equal(ends[0][name], ends[1][name]) for name in queries)


@pytest.mark.parametrize("family", ["albert", "bert", "electra", "roberta"])
def test_muon_takes_the_matrices_of_the_layers(family):
    "Every matrix between embeddings and heads, and nothing else, counted by shape."
    model = build(family, V, 32, pairs=family in ("albert", "bert"), **NET)
    opt = make_optimizer(model, replace(CFG, optimizer="muon"))
    mine = [p for p in opt.muon.param_groups[0]["params"]]
    parts = 2 if family == "electra" else 1
    layers = 1 if family == "albert" else 2
    maps_in = 1 if family == "albert" else 0  # ALBERT's map from the embedding to the hidden size
    assert len(mine) == parts * layers * 6 + maps_in
    assert not any(V in p.shape or p.ndim != 2 for p in mine)
    assert sum(len(g["params"]) for g in opt.param_groups) == len({id(p) for p in model.parameters()})


@pytest.mark.parametrize("bf16", [(True, False), (False, True), (False, False)])
def test_muon_goes_on_where_nothing_multiplies_in_bf16(bf16, monkeypatch):
    "A state of a machine of either kind continues on the other, nearly the same way as where both have bf16."

    def trained(kinds):
        torch.manual_seed(0)
        model = build("roberta", V, 32, **NET)
        start = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
        state = None
        for fast in kinds:
            monkeypatch.setattr("embryo.pretraining.settings.has_bf16", lambda dev: fast)
            opt = make_optimizer(model, replace(CFG, optimizer="muon"))
            assert isinstance(opt.muon, MuonInFp32) != fast
            if state:
                opt.load_state_dict(state)
            for i, p in enumerate(model.parameters()):
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i))
            opt.step()
            state = opt.state_dict()
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach() - start

    here, there = trained(bf16), trained((True, True))
    assert 0 < (here - there).norm() < 0.02 * there.norm()


def test_untied_embeddings_are_two(tmp_path):
    "An untied model keeps two tables, trains both, and opens again with both."
    model = build("roberta", V, 32, tie_word_embeddings=False, **NET)
    first = [model.get_input_embeddings().weight.clone(), model.get_output_embeddings().weight.clone()]
    series = pretrain(TRAIN, HELDOUT, model, None, CFG, tmp_path / "s", progress=False)
    again = type(model).from_pretrained(series.path(12))
    tables = [again.get_input_embeddings().weight, again.get_output_embeddings().weight]
    assert not torch.equal(*tables)
    for old, new, trained in zip(first, tables, (model.get_input_embeddings(), model.get_output_embeddings())):
        assert not torch.equal(old, new) and torch.equal(new, trained.weight)


def test_layer_norm_before_the_sublayers_goes_on_to_tasks(tmp_path):
    "A series of such models opens as ours, and a classifier on its body reads its first position."
    from transformers import AutoModelForSequenceClassification

    model = build("roberta", V, 32, pre_layer_norm=True, **NET)
    series = pretrain(TRAIN, HELDOUT, model, None, CFG, tmp_path / "s", progress=False)
    again = open_series(series.folder)
    assert again.steps == series.steps
    classifier = AutoModelForSequenceClassification.from_pretrained(again.path(12)).eval()
    ids = torch.randint(N_SPECIALS, V, (3, 9))
    x = dict(input_ids=ids, attention_mask=torch.ones_like(ids))
    with torch.inference_mode():
        assert torch.allclose(first_logits(classifier, x), classifier(**x).logits)


@pytest.mark.parametrize("name", MOVED)
def test_advice_does_not_name_what_a_run_has(name):
    "Also where its settings come from JSON, as those of a finished series do."
    cfg = PretrainConfig(**json.loads(json.dumps(asdict(replace(CFG, **MOVED[name][0])))))
    assert f"{name} (" not in advice(cfg)
