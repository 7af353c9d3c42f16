"""Corpus making against the plain way, in one process: every artificial L1 against a plain loop of the same language
(row `predrawn`: nesting against a loop whose random numbers numpy drew beforehand; `uniform` and `zipf` against
numpy.random.choice line by line); and peak memory against corpus size.

    python benchmarks/artificial.py [--tokens 14000000] [--plain 200000] [--rounds 3] [--millions 50]

--millions: tokens of the larger corpus whose making is measured for memory; the smaller has a tenth.
"""

import argparse
import random
import statistics
import subprocess
import sys
import time

import numpy as np

from embryo.corpora.flat import flat, shuffle
from embryo.corpora.laws import bigram, bigram_chain, check_law, unstructured
from embryo.corpora.nesting import nesting
from embryo.corpora.tokens import N_SPECIALS

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for k, v in dict(tokens=14_000_000, plain=200_000, rounds=3, vocab=29_995, millions=50).items():
    a.add_argument(f"--{k}", type=int, default=v)
a = a.parse_args()
law = check_law(1 / np.arange(1, a.vocab + 1), a.vocab)
r = random.Random(0)
cum = np.cumsum(law).tolist()
ids = range(N_SPECIALS, a.vocab + N_SPECIALS)
draw = lambda k: r.choices(ids, cum_weights=cum, k=k)


def plain_nesting(n):
    "The stack grammar as one writes it first: a coin and, for an opener, a draw from the law at each position."
    stack = []
    out = []
    for _ in range(n):
        if r.random() < 0.4 or not stack:
            stack.append(draw(1)[0])
            out.append(stack[-1])
        else:
            out.append(stack.pop())
    return np.array(out)


def predrawn_nesting(n):
    "The same loop with everything random drawn by numpy beforehand, so that only the loop is compared."
    rng = np.random.default_rng(0)
    fresh = iter(rng.choice(a.vocab, n, p=law).tolist())
    coin = rng.random(n).tolist()
    stack = []
    out = []
    for c in coin:
        if c < 0.4 or not stack:
            stack.append(next(fresh))
            out.append(stack[-1])
        else:
            out.append(stack.pop())
    return np.array(out) + N_SPECIALS


def plain_lines(n, p):
    "One call of numpy.random.choice a line, as the released scripts do."
    rng = np.random.RandomState(0)
    out = []
    k = 0
    while k < n:
        out.append(rng.choice(a.vocab, rng.randint(90, 121), p=p))
        k += len(out[-1])
    return np.concatenate(out)


def plain_flat(n, longest):
    "Blocks one after the other: ids, written twice, shuffled."
    out = []
    while len(out) < n:
        block = draw(56 if longest is None else 1 if longest == 2 else r.randint(2, longest // 2)) * 2
        r.shuffle(block)
        out += block
    return np.array(out)


def plain_shuffle(n, run):
    "Runs one after the other, shuffled."
    out = []
    while len(out) < n:
        first = draw(1)[0]
        block = list(range(first, first + run))
        r.shuffle(block)
        out += block
    return np.array(out)


def plain_bigram(n):
    "A walk, one weighted choice a token."
    names, _, P = chain
    rows = [(P.indices[i:j].tolist(), np.cumsum(P.data[i:j]).tolist()) for i, j in zip(P.indptr, P.indptr[1:])]
    out = [0]
    for _ in range(n - 1):
        k, w = rows[out[-1]]
        out.append(r.choices(k, cum_weights=w)[0])
    return names[out]


# processor time: other work on the machine does not count
def rate(f, n):
    t = time.process_time()
    f()
    return n / (time.process_time() - t)


chain = bigram_chain(law, a.vocab)
N = a.tokens
p = dict(probs=law, vocab_size=a.vocab)
cases = {
    "uniform": (lambda: unstructured(N, None, a.vocab), lambda: plain_lines(a.plain, np.full(a.vocab, 1 / a.vocab))),
    "zipf": (lambda: unstructured(N, law, a.vocab), lambda: plain_lines(a.plain, law)),
    **{
        f"nesting {b}": (lambda b=b: nesting(N, border=b, **p), lambda: plain_nesting(a.plain))
        for b in ("stream", "reset", "closed")
    },
    "predrawn": (lambda: nesting(N, **p), lambda: predrawn_nesting(a.plain)),
    "nesting-50": (lambda: nesting(N, n_ids=50, **p), lambda: plain_nesting(a.plain)),
    **{
        f"flat-{k}" if k else "flat": (lambda k=k: flat(N, k, **p), lambda k=k: plain_flat(a.plain, k))
        for k in (2, 4, 6, None)
    },
    **{
        f"shuffle-{k}": (lambda k=k: shuffle(N, k, **p), lambda k=k: plain_shuffle(a.plain, k))
        for k in (4, 6, 8, 16, 32, 64)
    },
    "bigram": (lambda: bigram(N, **p), lambda: plain_bigram(a.plain)),
}
print(f"{'L1':15s} {'plain tok/s':>12s} {'ours tok/s':>12s} {'ratio (median, min-max)':>26s}")
for name, (ours, plain) in cases.items():
    pairs = [(rate(plain, a.plain), rate(ours, N)) for _ in range(a.rounds)]
    x = [o / q for q, o in pairs]
    print(
        f"{name:15s} {statistics.median(q for q, _ in pairs):12,.0f} {statistics.median(o for _, o in pairs):12,.0f}"
        f" {statistics.median(x):12.1f}  {min(x):.1f}-{max(x):.1f}",
        flush=True,
    )

print("\npeak memory of a process that writes a corpus to disk")
PEAK = (
    "import resource, sys, tempfile; from embryo.corpora.flat import flat, shuffle; from embryo.corpora.laws import"
    " bigram, unstructured; from embryo.corpora.nesting import nesting; n=int(sys.argv[2]);"
    " d=tempfile.TemporaryDirectory(); {'nesting': nesting, 'uniform': unstructured, 'flat': flat, 'shuffle': shuffle,"
    " 'bigram': bigram}[sys.argv[1]](n, out=d.name+'/c');"
    " print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss//1024)"
)
sizes = (max(1, a.millions // 10), a.millions)
for name in ("nesting", "uniform", "flat", "shuffle", "bigram"):
    mb = []
    for millions in sizes:
        made = [sys.executable, "-c", PEAK, name, str(millions * 1_000_000)]
        mb.append(int(subprocess.run(made, capture_output=True, text=True, check=True).stdout))
    print(f"{name:10s} {sizes[0]}M tokens {mb[0]:,} MB, {sizes[1]}M tokens {mb[1]:,} MB", flush=True)
