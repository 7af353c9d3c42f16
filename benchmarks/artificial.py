"""Corpus making against the plain way, in one process: `nesting` against a Python stack (row `predrawn`: against one whose random numbers numpy drew beforehand), `uniform` and `zipf` against numpy.random.choice line by line; and peak memory against corpus size.

    python benchmarks/artificial.py [--tokens 2000000] [--plain 200000] [--rounds 3]
"""
import argparse, random, statistics, subprocess, sys, time
import numpy as np
from embryo.artificial import check_law, nesting, unstructured
from embryo.tokenize import N_SPECIALS

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
for k,v in dict(tokens=2_000_000, plain=200_000, rounds=3, vocab=29_995).items(): a.add_argument(f"--{k}", type=int, default=v)
a = a.parse_args()
law = check_law(1/np.arange(1, a.vocab+1), a.vocab)

def plain_nesting(n):
    "The stack grammar as one writes it first: a coin and, for an opener, a draw from the law at each position."
    r,cum,ids,stack,out = random.Random(0), np.cumsum(law).tolist(), range(N_SPECIALS, a.vocab+N_SPECIALS), [], []
    for _ in range(n):
        if r.random()<.4 or not stack:
            stack.append(r.choices(ids, cum_weights=cum)[0]); out.append(stack[-1])
        else: out.append(stack.pop())
    return np.array(out)

def predrawn_nesting(n):
    "The same loop with everything random drawn by numpy beforehand; its ids are drawn in one go beforehand, so that only the loop is compared."
    rng = np.random.default_rng(0)
    fresh,coin,stack,out = iter(rng.choice(a.vocab, n, p=law).tolist()), rng.random(n).tolist(), [], []
    for c in coin:
        if c<.4 or not stack: stack.append(next(fresh)); out.append(stack[-1])
        else: out.append(stack.pop())
    return np.array(out)+N_SPECIALS

def plain_lines(n, p):
    "One call of numpy.random.choice a line, as the released scripts do."
    rng,out,k = np.random.RandomState(0), [], 0
    while k<n: out.append(rng.choice(a.vocab, rng.randint(90, 121), p=p)); k += len(out[-1])
    return np.concatenate(out)

def rate(f, n): t = time.perf_counter(); f(); return n/(time.perf_counter()-t)

cases = dict(nesting=(lambda: nesting(a.tokens, probs=law, vocab_size=a.vocab), lambda: plain_nesting(a.plain)), predrawn=(lambda: nesting(a.tokens, probs=law, vocab_size=a.vocab), lambda: predrawn_nesting(a.plain)), zipf=(lambda: unstructured(a.tokens, law, a.vocab), lambda: plain_lines(a.plain, law)),
             uniform=(lambda: unstructured(a.tokens, None, a.vocab), lambda: plain_lines(a.plain, np.full(a.vocab, 1/a.vocab))))
print(f"{'L1':10s} {'plain tok/s':>12s} {'ours tok/s':>12s} {'ratio (median, min-max)':>26s}")
for name,(ours,plain) in cases.items():
    pairs = [(rate(plain, a.plain), rate(ours, a.tokens)) for _ in range(a.rounds+1)][1:]
    r = [o/p for p,o in pairs]
    print(f"{name:10s} {statistics.median(p for p,_ in pairs):12,.0f} {statistics.median(o for _,o in pairs):12,.0f} {statistics.median(r):12.1f}  {min(r):.1f}-{max(r):.1f}")

print("\npeak memory of a process that writes a corpus to disk")
PEAK = "import resource, sys, tempfile; from embryo.artificial import nesting, unstructured; n=int(sys.argv[2]); {'nesting': nesting, 'uniform': unstructured}[sys.argv[1]](n, out=tempfile.mkdtemp()+'/c'); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss//1024)"
for name in ("nesting", "uniform"):
    mb = [int(subprocess.run([sys.executable, "-c", PEAK, name, str(n)], capture_output=True, text=True, check=True).stdout) for n in (5_000_000, 50_000_000)]
    print(f"{name:10s} 5M tokens {mb[0]:,} MB, 50M tokens {mb[1]:,} MB")
