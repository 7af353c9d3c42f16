"""A transplant changes what it says and nothing else: held against slow references, raw weight files and plain
transformers."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from scipy.stats import ks_2samp
from transformers import AutoModelForMaskedLM

from embryo.corpora.identity.renaming import neighbours, renaming
from embryo.corpora.tokens import IdCorpus, open_ids, open_tokenizer
from embryo.evaluation.tasks.finetune import finetune
from embryo.evaluation.tasks.reading import read_task
from embryo.evaluation.tasks.settings import FinetuneConfig
from embryo.evaluation.tasks.twins.twins import read_with_twins
from embryo.ground.errors import EmbryoError
from embryo.ground.files import read_json, write_json
from embryo.ground.seeds import sha256
from embryo.models.given import open_series
from embryo.models.models import build
from embryo.pretraining import transplants
from embryo.pretraining.settings import PretrainConfig
from embryo.pretraining.transplants import (
    BODY,
    PARTS,
    arm_names,
    english_stage,
    part_hashes,
    parts,
    reinitialise,
    shuffle_weights,
    substitute,
    substitution,
    transplant,
    used_ids,
    write_transplant,
)

TINY = dict(vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
SMALL = {
    "Albert": dict(embedding_size=8),
    "Electra": dict(embedding_size=8),
    "RemBert": dict(input_embedding_size=8, output_embedding_size=12),
    "ModernBert": dict(pad_token_id=1),
}


def network(kind, seed=0):
    "A small model of any architecture whose biases are not all zero."
    torch.manual_seed(seed)
    cfg = (
        transformers.DistilBertConfig(vocab_size=40, dim=16, n_layers=2, n_heads=2, hidden_dim=32)
        if kind == "DistilBert"
        else getattr(transformers, kind + "Config")(**TINY, **SMALL.get(kind, {}))
    )
    m = getattr(transformers, kind + "ForMaskedLM")(cfg).eval()
    with torch.no_grad():
        for p in m.parameters():
            p += torch.randn(p.shape) * 0.1
    return m


@pytest.fixture(scope="module")
def series(lab):
    return open_series(Path(lab["series"]) / "albert-english-s0")


@pytest.fixture(scope="module")
def ids(lab):
    return [open_ids(Path(lab["corpora"]) / "english" / k) for k in ("train", "heldout")]


@pytest.fixture(scope="module")
def tok(lab):
    return open_tokenizer(Path(lab["corpora"]) / "tokenizer")


def reset(m):
    return {n: p.detach().clone() for n, p in m.named_parameters()}


@pytest.mark.parametrize(
    "kind",
    [
        "Albert",
        "Roberta",
        "Bert",
        "Electra",
        "DistilBert",
        "XLMRoberta",
        "Camembert",
        "MPNet",
        "Deberta",
        "DebertaV2",
        "ModernBert",
        "ConvBert",
        "MegatronBert",
        "RemBert",
    ],
)
def test_every_parameter_has_one_part(kind):
    m = network(kind)
    where = parts(m)
    assert list(where) == [n for n, _ in m.named_parameters()] and set(where.values()) <= set(PARTS)
    assert {"embeddings", "attention", "feed-forward", "layer-norm", "head"} <= set(where.values())
    assert [n for n, k in where.items() if k == "embeddings"] == [
        n for n, p in m.named_parameters() if p is m.get_input_embeddings().weight
    ]
    inside = {n for n, _ in m.base_model.named_parameters(prefix=m.base_model_prefix)}
    # some architectures name a tied table by its end in the head
    assert {n for n, k in where.items() if k == "head"} == {
        n for n in where if n not in inside and where[n] != "embeddings"
    }
    assert all(
        k == "layer-norm"
        for n, k in where.items()
        if n in inside and dict(m.named_parameters())[n].dim() == 1 and n.endswith("weight")
    )


def test_an_unknown_parameter_is_refused():
    with pytest.raises(
        EmbryoError, match="fnet.embeddings.projection.weight of FNetForMaskedLM belongs to none of embeddings"
    ):
        parts(network("FNet"))


def slow_cyclic(table, used, specials=5):
    "The rule of the page, row by row."
    used = sorted(used)
    out = [row for row in table]
    for i in range(specials, len(table)):
        if i not in used:
            out[i] = table[used[i % len(used)]]
    return torch.stack(out)


@pytest.mark.parametrize("kind", ["Albert", "Roberta", "Bert", "Electra", "RemBert"])
@pytest.mark.parametrize("used", [[7], [5, 6, 7], [39, 8, 21, 8], list(range(5, 40))])
def test_substitution_against_a_loop(kind, used):
    m = network(kind)
    before = reset(m)
    s = substitute(m, used)
    tied = m.get_output_embeddings().weight is m.get_input_embeddings().weight
    assert tied == (kind != "RemBert") and (s.get_output_embeddings().weight is s.get_input_embeddings().weight) == tied
    per_id = {
        id(t)
        for t in (m.get_input_embeddings().weight, m.get_output_embeddings().weight, m.get_output_embeddings().bias)
    }
    seen = 0
    for (name, old), new in zip(m.named_parameters(), s.parameters()):
        assert torch.equal(new, slow_cyclic(old, set(used)) if id(old) in per_id else old), name
        seen += id(old) in per_id
    assert seen == (2 if tied else 3)
    assert all(torch.equal(before[n], p) for n, p in m.named_parameters()), "the model that was given was changed"


def test_random_assignments():
    used = np.arange(5, 55)
    V = 1003
    for seed in range(4):
        source = substitution(V, used, seed)
        assert (source[:55] == np.arange(55)).all() and set(source[55:]) <= set(used)
        n = np.bincount(source[55:], minlength=55)[5:]
        assert n.max() - n.min() <= 1 and n.sum() == V - 55
    m = network("Roberta")
    a, b = (substitute(m, range(5, 12), k).get_input_embeddings().weight for k in (0, 1))
    assert torch.equal(a[:12], b[:12]) and not torch.equal(a, b)


def test_used_ids_are_those_that_occur(ids):
    c = IdCorpus(np.array([9, 2, 7, 7, 3, 12]), np.array([0, 6]), dict(vocab_size=20, sha256="x", maker="x"))
    assert used_ids(c).tolist() == [7, 9, 12]
    assert used_ids(ids[0]).tolist() == sorted(set(np.asarray(ids[0].ids).tolist()) - set(range(5)))


@pytest.mark.parametrize("kind", ["Albert", "Roberta", "Electra", "DebertaV2"])
@pytest.mark.parametrize("part", [*PARTS, "body"])
def test_a_fresh_part_is_fresh_and_the_rest_is_not(kind, part):
    m = network(kind)
    where = parts(m)
    before = reset(m)
    r = reinitialise(m, part, 1)
    fresh = BODY if part == "body" else (part,)
    for n, p in r.named_parameters():
        assert torch.equal(p, before[n]) == (where[n] not in fresh), n
    assert all(torch.equal(before[n], p) for n, p in m.named_parameters())
    again = reinitialise(network(kind, 5), part, 1)
    other = reinitialise(m, part, 2)
    for (n, p), q, o in zip(r.named_parameters(), again.parameters(), other.parameters()):
        if where[n] in fresh:
            assert torch.equal(p, q), "the draw depends on the old weights"
        if where[n] in fresh and where[n] not in ("layer-norm", "head") and p.dim() > 1:
            assert not torch.equal(p, o)


@pytest.mark.parametrize("family", ["albert", "roberta"])
def test_fresh_weights_follow_the_law_of_a_new_model(family):
    net = dict(
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=192,
        initializer_range=0.05,
        **({"embedding_size": 32} if family == "albert" else {}),
    )
    new, old = (build(family, 300, 64, seed=k, **net) for k in (0, 1))
    with torch.no_grad():
        for p in old.parameters():
            p.mul_(7).add_(1)
    for part in ("embeddings", "body", "head"):
        old = reinitialise(old, part, 0)
    for (n, a), (_, b) in zip(new.named_parameters(), old.named_parameters()):
        a = a.detach()
        b = b.detach()
        if a.dim() == 1:
            assert torch.equal(a, b), n  # ones and zeros
        else:
            assert not torch.equal(a, b), f"{n}: the draw of build(seed=0) itself"
            assert abs(a.std() - b.std()) < 6 * 0.05 / np.sqrt(a.numel()) and abs(b.mean()) < 5 * 0.05 / np.sqrt(
                b.numel()
            ), n
            assert ks_2samp(a.flatten(), b.flatten()).pvalue > 1e-3, n
    for m in (new, old):
        assert not m.get_input_embeddings().weight[m.config.pad_token_id].any()


@pytest.mark.parametrize("kind", ["Albert", "Roberta"])
def test_shuffled_keeps_the_numbers_of_each_matrix(kind):
    m = network(kind)
    s = shuffle_weights(m, 4)
    again = shuffle_weights(m, 4)
    for (n, p), q, r in zip(m.named_parameters(), s.parameters(), again.parameters()):
        assert torch.equal(q, r) and torch.equal(p.flatten().sort().values, q.flatten().sort().values)
        assert torch.equal(p, q) == (p.dim() < 2), n
    assert part_hashes(s) != part_hashes(shuffle_weights(m, 5))


def test_hashes_see_a_single_bit():
    m = network("Roberta")
    h = part_hashes(m)
    with torch.no_grad():
        w = m.roberta.encoder.layer[0].attention.self.key.weight.view(torch.int32)
        w[3, 2] ^= 1
    assert [k for k in PARTS if part_hashes(m)[k] != h[k]] == ["attention"]


def test_arms_of_two_seeds_draw_apart(series):
    a = open_series(series.folder)
    a.info["run"] = dict(a.info["run"], seed=1)
    for arm in ("body-only", "shuffled"):
        x, y, z = (transplant(s, 4, h)[0] for s, h in ((series, arm), (a, arm), (series, arm + "-1")))
        assert len({part_hashes(k)["embeddings"] for k in (x, y, z)}) == 3


@pytest.mark.parametrize(
    "arm", ["none", "substitute", "substitute-random-2", "body-only", "embeddings-only", "shuffled"]
)
def test_a_transplant_is_an_ordinary_series(series, ids, tmp_path, arm):
    s = write_transplant(series, arm, tmp_path / "t", corpus=ids[0])
    model, tok, note = transplant(series, 4, arm, ids[0])
    assert (
        s.steps == [4]
        and s.info["run"]["l1"] == f"english+{arm}"
        and s.info["transplant"]["changed"] == note["changed"]
    )
    assert (
        s.info["transplant"]["source"]["sha256"]
        == series.entries[4]["sha256"]
        == sha256(series.path(4) / "model.safetensors")
    )
    auto = AutoModelForMaskedLM.from_pretrained(s.path(4)).eval()
    assert (
        auto.get_output_embeddings().weight is auto.get_input_embeddings().weight
        and auto.get_output_embeddings().bias is auto.predictions.bias
    )
    x = tok("the man saw the red house .", return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        assert torch.equal(auto(x).logits, model(x).logits) and torch.equal(model(x).logits, s.load(4)[0](x).logits)
    assert not list((tmp_path / "t").rglob(".*"))


def test_default_folder_and_a_transplant_of_a_transplant(series, ids, tmp_path):
    shutil.copytree(series.folder, tmp_path / series.folder.name)
    s = write_transplant(open_series(tmp_path / series.folder.name), "substitute", corpus=ids[0])
    assert s.folder == tmp_path / "albert-english+substitute-s0"
    assert (
        write_transplant(s, dict(how="shuffled", seed=3)).folder == tmp_path / "albert-english+substitute+shuffled-3-s0"
    )


def test_written_once_and_never_half(series, ids, tmp_path, monkeypatch):
    out = tmp_path / "t"
    with monkeypatch.context() as m:
        # killed between the weights and series.json
        m.setattr(transplants, "write_json", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            write_transplant(series, "shuffled", out)
    assert (out / "step4").is_dir() and not (out / "series.json").exists()
    s = write_transplant(series, "shuffled", out)
    at = (out / "series.json").stat().st_mtime_ns
    with monkeypatch.context() as m:
        # nothing is computed for a series that is there
        m.setattr(transplants, "transplant", None)
        assert write_transplant(series, "shuffled", out).entries == s.entries
    assert (out / "series.json").stat().st_mtime_ns == at
    (out / "step4" / "model.safetensors").unlink()
    assert write_transplant(series, "shuffled", out).entries[4]["sha256"] == s.entries[4]["sha256"]
    for how, step in (("shuffled-1", 4), ("none", 4), ("shuffled", 2)):
        with pytest.raises(EmbryoError, match="holds another series than english"):
            write_transplant(series, how, out, step=step)
    with pytest.raises(EmbryoError, match="holds another series"):
        write_transplant(series, "none", series.folder)
    other = open_series(series.folder)
    other.entries[4] = dict(other.entries[4], sha256="0" * 64)
    with pytest.raises(EmbryoError, match="checksum differs"):
        write_transplant(other, "none", tmp_path / "u")
    assert not (tmp_path / "u").exists()


def test_a_foreign_checkpoint(series, tmp_path):
    shutil.copytree(series.path(4), tmp_path / "theirs" / "checkpoint-70")
    s = write_transplant(open_series(tmp_path / "theirs"), "body-only", tmp_path / "t")
    assert s.steps == [70] and s.info["run"] == dict(
        family="albert",
        l1="theirs+body-only",
        seed=0,
        source=dict(series="theirs", step=70, sha256=series.entries[4]["sha256"]),
        corpus=None,
    )


def test_fine_tuning_starts_from_a_transplant(lab, series, ids, tmp_path):
    s = write_transplant(series, "substitute", tmp_path / "t", corpus=ids[0])
    rows = finetune(
        s.load(4), "RTE", read_task(lab["data"] + "/glue", "RTE"), FinetuneConfig(epochs=1, max_length=64, max_train=32)
    )
    assert rows["value"].notna().all()


STAGE = PretrainConfig(steps=9, batch=8, length=32, lr=1e-2, warmup=2, save=3, heldout_batches=8, weight_decay=0.1)
# by hand, not by `parts`
FREE = {
    "albert": ("albert.embeddings.word_embeddings.", "predictions."),
    "roberta": ("roberta.embeddings.word_embeddings.", "lm_head."),
}


@pytest.mark.parametrize("family", ["albert", "roberta"])
@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_the_body_is_frozen_in_the_files(family, optimizer, ids, tok, tmp_path):
    m = build(
        family,
        len(tok),
        64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        **({"embedding_size": 16} if family == "albert" else {}),
    )
    before = reset(m)
    s = english_stage(
        m,
        *ids,
        tok,
        replace(STAGE, optimizer=optimizer),
        tmp_path / "s",
        dict(family=family, l1="x+english", seed=0),
        progress=False,
    )
    assert s.steps == [0, 3, 6, 9] and all(
        torch.equal(before[n], p) and p.requires_grad for n, p in m.named_parameters()
    )
    assert s.entries[9]["loss"]["heldout"] < s.entries[0]["loss"]["heldout"]
    for step in s.steps:
        with safe_open(s.path(step) / "model.safetensors", "pt") as f:
            assert set(f.keys()) == set(before)
            for n in before:
                assert torch.equal(f.get_tensor(n), before[n]) == (step == 0 or not n.startswith(FREE[family])), (
                    step,
                    n,
                )
    auto = AutoModelForMaskedLM.from_pretrained(s.path(9))
    assert auto.get_output_embeddings().weight is auto.get_input_embeddings().weight


def test_a_stopped_stage_goes_on(series, ids, tok, tmp_path):
    m = series.load(4)[0]
    run = lambda out, cfg=STAGE, model=m, **kw: english_stage(
        model, *ids, tok, cfg, tmp_path / out, arm_names(series, 4, "english"), progress=False, **kw
    )
    whole = run("whole")
    _ = run("stopped", replace(STAGE, state_every=2), stop_after=5)
    stopped = run("stopped", replace(STAGE, state_every=2))
    assert [stopped.entries[k]["sha256"] for k in stopped.steps] == [whole.entries[k]["sha256"] for k in whole.steps]
    assert (
        whole.info["run"]["source"] == dict(series="albert-english-s0", step=4, sha256=series.entries[4]["sha256"])
        and whole.info["run"]["l1"] == "english+english"
    )
    with pytest.raises(EmbryoError, match="made with other settings"):
        run("whole", model=series.load(2)[0])
    with pytest.raises(EmbryoError, match="made with other settings"):
        run("whole", model=shuffle_weights(m))


@pytest.mark.parametrize(
    "name,part",
    [
        ("albert.embeddings.position_embeddings.weight", "input"),
        ("albert.embeddings.LayerNorm.bias", "layer-norm"),
        ("albert.encoder.albert_layer_groups.0.albert_layers.0.attention.value.bias", "attention"),
        ("albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight", "feed-forward"),
    ],
)
def test_a_body_that_moved_is_found(series, ids, tok, tmp_path, name, part):
    s = english_stage(series.load(4)[0], *ids, tok, STAGE, tmp_path / "s", progress=False)
    f = s.path(6) / "model.safetensors"
    t = load_file(f)
    t[name].view(torch.int32).flatten()[0] ^= 1  # one bit
    save_file(t, f, {"format": "pt"})
    info = read_json(tmp_path / "s" / "series.json")
    for e in info["steps"]:
        if e["step"] == 6:
            e["sha256"] = sha256(f)
    write_json(tmp_path / "s" / "series.json", info)
    with pytest.raises(EmbryoError, match=f"step6: {part} moved although frozen"):
        english_stage(series.load(4)[0], *ids, tok, STAGE, tmp_path / "s", progress=False)


def test_partners_leaves_the_model_alone_and_notes_a_permutation(series, ids, tmp_path):
    s = write_transplant(series, "partners", tmp_path / "t", corpus=ids[0])
    s = open_series(s.folder)
    assert s.entries[4]["sha256"] == series.entries[4]["sha256"]
    second = np.array(s.info["transplant"]["second"])
    assert (second == renaming(ids[0])).all() and (np.sort(second) == np.arange(len(second))).all()
    assert s.info["run"]["l1"] == "english+partners"


def test_only_second_sentences_are_respelled(series, tok, lab):
    "A permutation that changes nothing changes no score; one that does changes those of pairs only."
    glue = Path(lab["data"]) / "glue"
    start = series.load(4)
    config = FinetuneConfig(steps=3, batch=8, max_length=48, max_train=24)
    for task, changed in (("STS-B", True), ("SST-2", False)):
        data = {k: d[:40] for k, d in read_task(glue, task).items()}
        plain = finetune(start, task, data, config)
        same = finetune(start, task, data, config, second=np.arange(len(tok)))
        other = finetune(start, task, data, config, second=neighbours(len(tok)))
        assert plain["value"].equals(same["value"])
        assert plain["value"].equals(other["value"]) != changed


def test_every_split_is_respelled(series, tok, lab, monkeypatch):
    "Training, development set and twins."
    from embryo.evaluation.tasks import finetune as room

    given = {}
    plain = room.encode

    def spy(frame, tokenizer, cfg, max_length, second=None):
        given[len(frame)] = second
        return plain(frame, tokenizer, cfg, max_length, second)

    monkeypatch.setattr(room, "encode", spy)
    data = read_with_twins(Path(lab["data"]) / "glue", "QNLI")
    data = {split: frame[: 20 + i] for i, (split, frame) in enumerate(data.items())}
    turn = neighbours(len(tok))
    finetune(series.load(4), "QNLI", data, FinetuneConfig(steps=1, batch=4, max_length=48), second=turn)
    assert len(data) >= 3 and set(given) == {len(frame) for frame in data.values()}
    assert all(second is turn for second in given.values())
