"""Word examination time: reconstruction and mask prediction against a plain loop that does what the published scripts
do.

The loop tokenises word by word, shows one sentence at a time, hides one word in each of up to 16 copies at a time,
and computes logits at all positions. Same checkpoint, sentences and thread count; the two alternate in one process,
and a time is that of the whole call: tokenise, run, compare. In fp32 both must find the same words right. bf16 is
ours against the loop in fp32 and in bf16, with the share of words on which ours and the fp32 loop disagree. The
bound is the least time that our own matrix products can take at the rate this device reaches on products of these
shapes.

    python benchmarks/words.py [--data FOLDER] [--sentences 300] [--layers 4] [--hidden 128] [--vocab 8000]
            [--steps 150] [--precisions fp32,bf16] [--rounds 3] [--threads 1] [--quick]

Without --data the sentences are those of a small micro world, made first; the model is trained on them for --steps
batches, so that some words are right and others are not.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for k, v in dict(
    data="", sentences=300, layers=4, hidden=128, vocab=8000, steps=150, precisions="fp32,bf16", rounds=3, threads=1
).items():
    a.add_argument(f"--{k}", type=type(v), default=v)
a.add_argument("--quick", action="store_true", help="40 sentences, one round, 30 batches")
# folder and number of sentences: one process of the memory table
a.add_argument("--memory", default="", help=argparse.SUPPRESS)
a = a.parse_args()
if a.quick:
    a.sentences = min(a.sentences, 40)
    a.rounds = 1
    a.steps = min(a.steps, 30)
os.environ["OMP_NUM_THREADS"] = str(a.threads)
import numpy as np
import torch
import transformers

from embryo.corpora.tokens import train_tokenizer
from embryo.evaluation.annotations.folders import read
from embryo.evaluation.words.windows import lay_out, position_limit
from embryo.evaluation.words.words import mask_predict, reconstruct, word_hits
from embryo.ground.machine import device, has_bf16, provenance
from embryo.micro.world import jsonl, write_world
from embryo.models.models import build

torch.set_num_threads(a.threads)
transformers.logging.set_verbosity_error()


def load(folder):
    return transformers.AutoModelForMaskedLM.from_pretrained(folder).to(
        device()
    ).eval(), transformers.AutoTokenizer.from_pretrained(folder)


def ours(model, tok, sentences, masked, bf16=False):
    return word_hits(model, tok, sentences, masked, bf16=bf16)["hit"].to_numpy()


def plain(model, tok, sentences, masked, bf16=False):
    hits = []
    with torch.no_grad(), torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        for s in sentences:
            pieces = [tok(w, add_special_tokens=False)["input_ids"] for w in s["tokens"]]
            ids = torch.tensor(
                [tok.cls_token_id, *(p for w in pieces for p in w), tok.sep_token_id], device=model.device
            )
            ends = np.cumsum([1] + [len(w) for w in pieces])
            if masked:
                copies = ids.repeat(len(pieces), 1)
                for i, (b, e) in enumerate(zip(ends, ends[1:])):
                    copies[i, b:e] = tok.mask_token_id
                said = torch.cat(
                    [model(input_ids=copies[i : i + 16]).logits.argmax(-1) for i in range(0, len(copies), 16)]
                )
            else:
                said = model(input_ids=ids[None]).logits.argmax(-1).expand(len(pieces), -1)
            right = (said == ids).cpu().numpy()
            hits += [float(right[i, b:e].all()) for i, (b, e) in enumerate(zip(ends, ends[1:]))]
    return np.array(hits)


def timed(job):
    if device().type == "cuda":
        torch.cuda.synchronize()
    t = time.perf_counter()
    c = time.process_time()
    out = job()
    if device().type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - t, time.process_time() - c, out


def train(model, tok, sentences, steps):
    "A few batches of masked language modelling that also ask for the words shown: enough to know frequent words."
    rng = np.random.default_rng(0)
    wins = lay_out(tok, sentences, position_limit(model))[1]
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(steps):
        rows = [torch.from_numpy(wins[i]) for i in rng.integers(len(wins), size=16)]
        gold = torch.nn.utils.rnn.pad_sequence(rows, True, tok.pad_token_id).to(model.device)
        ids = gold.clone()
        attend = (gold != tok.pad_token_id).long()
        ids[(torch.rand(ids.shape, device=ids.device) < 0.15) & (attend == 1)] = tok.mask_token_id
        model.train()(input_ids=ids, attention_mask=attend, labels=gold.masked_fill(attend == 0, -100)).loss.backward()
        opt.step()
        opt.zero_grad()
    return model.eval()


def rate(bf16, rounds=3):
    "Multiply-adds per second on products of this model's shapes: body, and head."

    def best(n, k, m):
        x = torch.randn(n, k, device=device())
        w = torch.randn(m, k, device=device())
        if bf16:
            x = x.bfloat16()
            w = w.bfloat16()
        with torch.inference_mode():
            return (
                n
                * k
                * m
                / min(
                    timed(lambda: [torch.nn.functional.linear(x, w) for _ in range(8)])[0] / 8
                    for _ in range(rounds + 1)
                )
            )

    return best(2048, a.hidden, 4 * a.hidden), best(512, a.hidden, vocab)


def products(lengths, scored):
    """Multiply-adds of our passes, (body, head): all layers but the last at every position, the rest at scored ones.
    lengths, scored: (N,) of each input row.
    """
    H = a.hidden
    T = np.asarray(lengths, float)
    S = np.asarray(scored, float)
    body = (a.layers - 1) * (12 * H * H * T + 2 * H * T * T) + 2 * H * H * T + 10 * H * H * S + 2 * H * T * S
    return body.sum(), (S * (H * H + H * vocab)).sum()


def peak_mib(reset=False):
    "Peak resident memory; Linux can forget the peak of the imports."
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        return (
            int(next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM")).split()[1])
            / 1024
        )
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if a.memory:
    where, n = a.memory.rsplit(":", 1)
    (model, tok), some = load(where), read(Path(where) / "sentences.jsonl")
    some = [dict(some[i % len(some)]) for i in range(int(n))]
    before = peak_mib(reset=True)
    for masked in (False, True):
        word_hits(model, tok, some, masked)
    print(f"{before:.0f} {peak_mib():.0f}")
    sys.exit()

with tempfile.TemporaryDirectory() as where:
    where = Path(where)
    data = Path(
        a.data
        or write_world(
            where / "data",
            words=6000,
            heldout_words=1500,
            books_words=1500,
            probing=(a.sentences, 20, 20),
            tasks=0.03,
            l1s=0.01,
        )
    )
    sentences = read(data / "probing_gum/train.jsonl.gz")
    tok = train_tokenizer((" ".join(s["tokens"]) for s in sentences), a.vocab)
    # a small world has few words; the head costs what it costs
    if len(tok) < a.vocab:
        tok.add_tokens([f"unused{i}" for i in range(a.vocab - len(tok))])
    sentences = sentences[: a.sentences]
    longest = max(len(w) for w in lay_out(tok, sentences, 10**6)[1])
    torch.manual_seed(0)
    vocab = len(tok)
    model = build(
        "roberta",
        vocab,
        longest,
        hidden_size=a.hidden,
        num_hidden_layers=a.layers,
        num_attention_heads=max(1, a.hidden // 64),
        intermediate_size=4 * a.hidden,
    ).to(device())
    train(model, tok, sentences, a.steps)
    model.save_pretrained(where / "net")
    tok.save_pretrained(where / "net")
    (where / "net/sentences.jsonl").write_text(jsonl(sentences))
    model, tok = load(where / "net")
    laid, _, (words, wins) = timed(lambda: lay_out(tok, sentences, longest))
    length = np.array([len(w) for w in wins])
    work = {False: products(length, length - 2), True: products(length[words["window"]], words["pieces"])}
    print(
        f"roberta {a.layers} x {a.hidden}, vocabulary {vocab}; {len(sentences)} sentences, {len(words)} words,"
        f" {length.sum()} pieces; {a.threads} thread(s), {provenance()['device']}, torch {torch.__version__},"
        f" transformers {transformers.__version__}; {'data: ' + a.data if a.data else 'micro world'}",
        flush=True,
    )
    few = sentences[:8]
    table = []
    last = {}
    spent = timed(lambda: [tok(w, add_special_tokens=False) for s in sentences for w in s["tokens"]])[0]
    print(f"tokenising word by word takes the loop {spent:.2f} s of each call")
    for masked, name, asked in (
        (False, "reconstruction", dict(fp32=4, bf16=4)),
        (True, "mask prediction", dict(fp32=1.5, bf16=3)),
    ):
        for precision in a.precisions.split(","):
            bf16 = precision == "bf16"
            if bf16 and not has_bf16(device()):
                print("bf16: left out, this device does not compute in it")
                continue
            jobs = {"ours": lambda n: ours(model, tok, n, masked, bf16), "loop": lambda n: plain(model, tok, n, masked)}
            if bf16:
                jobs["loop bf16"] = lambda n: plain(model, tok, n, masked, True)
            for j in jobs.values():
                j(few)  # warm-up
            got = []
            for r in range(a.rounds):
                got.append({k: timed(lambda: jobs[k](sentences)) for k in (list(jobs) if r % 2 else list(jobs)[::-1])})
                print(
                    f"  {name} {precision} round {r}: " + ", ".join(f"{k} {t:.2f} s" for k, (t, *_) in got[-1].items()),
                    flush=True,
                )
            hit = {k: got[-1][k][2] for k in jobs}
            if not bf16:
                assert (hit["ours"] == hit["loop"]).all(), (
                    f"{name}: ours and the loop differ on {int((hit['ours'] != hit['loop']).sum())} of {len(words)}"
                    " words in fp32"
                )
            s = {k: statistics.median(g[k][0] for g in got) for k in jobs}
            ratio, ratio_cpu = (statistics.median(g["loop"][i] / g["ours"][i] for g in got) for i in (0, 1))
            least = sum(n / r for n, r in zip(work[masked], rate(bf16)))
            table.append(
                (
                    name,
                    precision,
                    s["ours"],
                    s["loop"],
                    s.get("loop bf16"),
                    ratio,
                    ratio_cpu,
                    asked.get(precision),
                    s["loop"] / least,
                    hit["ours"].mean(),
                    (hit["ours"] != hit["loop"]).mean(),
                )
            )
    print(
        f"\n{'task':16s} {'prec.':5s} {'ours s':>7s} {'loop s':>7s} {'ratio':>6s} {'of CPU':>6s} {'asked':>6s}"
        f" {'bound':>6s} {'loop bf16':>9s} {'right':>7s} {'disagree':>9s}"
    )
    for n, p, us, th, thb, ra, rc, wish, bound, h, dis in table:
        print(
            f"{n:16s} {p:5s} {us:7.2f} {th:7.2f} {ra:6.2f} {rc:6.2f} {'' if wish is None else format(wish, '6.1f'):>6s}"
            f" {bound:6.2f} {'' if thb is None else format(thb, '9.2f'):>9s} {h:7.1%} {dis:9.3%}"
        )
    for n, p, us, th, thb, ra, rc, wish, bound, h, dis in table:
        if wish and ra < wish:
            print(
                f"{n} {p}: {ra:.2f} instead of {wish}; our matrix products alone, at the rate of this device, take"
                f" {th / bound:.2f} s, so that no ratio above {bound:.2f} is possible with them; laying out the pieces"
                f" takes {laid:.2f} s of ours"
            )
    print(
        "ratio: fp32 loop / ours, median over rounds; of CPU: the same of CPU time, which other jobs disturb less;"
        " bound: fp32 loop / the least time of our products; right: words right (ours); disagree: words on which ours"
        " and the fp32 loop differ"
    )

    part = sentences[: max(8, len(sentences) // 4)]
    cost = []
    for k in (1, 2, 4):

        def series():
            for _ in range(k):
                m, t = load(where / "net")
                reconstruct(m, t, part)
                mask_predict(m, t, part)

        cost.append((k, statistics.median(timed(series)[device().type != "cuda"] for _ in range(a.rounds))))
    slope, base = np.polyfit(*zip(*cost), 1)
    print(
        f"\ncheckpoints, {len(part)} sentences, load included, {'s' if device().type == 'cuda' else 'CPU s'}: "
        + ", ".join(f"{k}: {t:.2f}" for k, t in cost)
        + f"; line: {base:.2f} s + {slope:.2f} s a checkpoint"
    )
    peak = {}
    for k in (1, 4):
        out = subprocess.run(
            [
                sys.executable,
                __file__,
                "--threads",
                str(a.threads),
                "--memory",
                f"{where / 'net'}:{k * len(sentences)}",
            ],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        ).stdout
        before, peak[k] = map(int, out.split()[-2:])
        print(
            f"memory, {k * len(sentences)} sentences, fp32: {peak[k]} MiB at most, {before} MiB before the first pass"
        )
    print(
        f"growth from n to 4n: {peak[4] - peak[1]} MiB, {(peak[4] - peak[1]) * 1024 / (3 * len(words)):.2f} KiB a word"
    )
