"""Artificial languages against slow plain Python that shares nothing with them: the same law, the same structure, the
same floors."""

import bisect
import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest

from embryo.corpora.artificial import floor, run_weight, shuffle_floor
from embryo.corpora.flat import (
    flat,
    flat_floor,
    matchings,
    shuffle,
    shuffles,
    tiled_weight,
    whole_line_floor,
)
from embryo.corpora.floors import chain_floor, iid_floor, lengths_by_position, pair_floor
from embryo.corpora.laws import CHUNK, alias_table, bigram, bigram_chain, restrict_law, unstructured
from embryo.corpora.nesting import match, nesting, nesting_statistics, parentheses
from embryo.corpora.tokens import N_SPECIALS, IdCorpus, open_ids
from embryo.ground.errors import EmbryoError
from embryo.ground.seeds import rng_for

# ---- plain generators: one token after the other, from the description of the language ----


def drawer(law, r):
    cum = list(itertools.accumulate(law))
    return lambda: min(bisect.bisect(cum, r.random() * cum[-1]), len(cum) - 1)


def plain_nesting(n, p_open, law, r):
    draw = drawer(law, r)
    stack = []
    out = []
    for _ in range(n):
        if r.random() < p_open or not stack:
            stack.append(draw())
            out.append(stack[-1])
        else:
            out.append(stack.pop())
    return out


def plain_flat(pairs, longest, draw, r):
    "One line: sizes until they fill it, tried again when they do not."
    while True:
        sizes = [pairs] if longest is None else []
        while sum(sizes) < pairs:
            sizes.append(1 if longest == 2 else r.randint(2, longest // 2))
        if sum(sizes) == pairs:
            break
    out = []
    for s in sizes:
        block = [draw() for _ in range(s)] * 2
        r.shuffle(block)
        out += block
    return out


def plain_shuffle(n, run, law, r):
    draw = drawer(law[: len(law) - run + 1], r)
    out = []
    while len(out) < n:
        block = [draw()]
        block += range(block[0] + 1, block[0] + run)
        r.shuffle(block)
        out += block
    return out[:n]


def plain_chain(n, law, rows, r):
    out = [drawer(law, r)()]
    draws = [drawer(row, r) for row in rows]
    while len(out) < n:
        out.append(draws[out[-1]]())
    return out


def same_law(a, b, what):
    "Two samples of hashable things: chi-square of their difference below its 99.99% quantile (normal approximation)."
    a = Counter(map(tuple, a))
    b = Counter(map(tuple, b))
    na = sum(a.values())
    nb = sum(b.values())
    keys = [k for k in a | b if a[k] + b[k] >= 10]
    rest = [sum(c.values()) - sum(c[k] for k in keys) for c in (a, b)]
    cells = [(a[k], b[k]) for k in keys] + ([tuple(rest)] if sum(rest) >= 10 else [])
    chi = sum((math.sqrt(nb / na) * x - math.sqrt(na / nb) * y) ** 2 / (x + y) for x, y in cells)
    d = len(cells) - 1
    assert chi < d + 3.8 * math.sqrt(2 * d) + 8, (what, chi, d)


def lines(c):
    return [l.tolist() for l in np.split(np.asarray(c.ids).astype(int) - N_SPECIALS, c.offsets[1:-1])]


LAW = [0.4, 0.3, 0.2, 0.1, 0.0]
N = 4000


def pattern(x):
    return tuple(x.index(t) for t in x)


@pytest.mark.parametrize("border", ["stream", "reset", "closed"])
def test_nesting_same_law(border):
    r = random.Random(1)
    ours = lines(nesting(10 * N, 0.4, LAW, 5, seed=1, border=border, line=(10, 10)))
    # plain: a line that must close has no choice once its depth is what is left
    if border == "closed":

        def line():
            draw = drawer(LAW, r)
            stack = []
            out = []
            for t in range(10):
                if len(stack) == 10 - t or (stack and r.random() >= 0.4):
                    out.append(stack.pop())
                else:
                    stack.append(draw())
                    out.append(stack[-1])
            assert not stack
            return out

        plain = [line() for _ in range(N)]
    elif border == "reset":
        plain = [plain_nesting(10, 0.4, LAW, r) for _ in range(N)]
    else:
        x = plain_nesting(10 * N, 0.4, LAW, r)
        plain = [x[i : i + 10] for i in range(0, 10 * N, 10)]
    same_law((l[:5] for l in ours), (l[:5] for l in plain), border)
    same_law((l[5:] for l in ours), (l[5:] for l in plain), border)
    same_law(map(pattern, ours), map(pattern, plain), border)


@pytest.mark.parametrize("longest,pairs", [(2, 5), (4, 4), (6, 5), (6, 7), (8, 6), (None, 3)])
def test_flat_same_law(longest, pairs):
    r = random.Random(2)
    ours = lines(flat(2 * pairs * N, longest, LAW, 5, seed=2, line=(2 * pairs, 2 * pairs)))
    plain = [plain_flat(pairs, longest, drawer(LAW, r), r) for _ in range(N)]
    assert len(ours) == N
    same_law((l[:5] for l in ours), (l[:5] for l in plain), longest)
    same_law((l[-5:] for l in ours), (l[-5:] for l in plain), longest)
    wide = lines(flat(2 * pairs * N, longest, None, 30_000, seed=3, line=(2 * pairs, 2 * pairs)))
    same_law(
        map(pattern, wide),
        (pattern(plain_flat(pairs, longest, lambda: r.randrange(30_000), r)) for _ in range(N)),
        longest,
    )


@pytest.mark.parametrize("run,n", [(2, 6), (3, 7), (4, 4), (5, 8)])
def test_shuffle_same_law(run, n):
    r = random.Random(3)
    law = [0.3, 0.1, 0.2, 0.1, 0.1, 0.1, 0.1]
    ours = lines(shuffle(n * N, run, law, 7, seed=3, line=(n, n)))
    plain = [plain_shuffle(n, run, law, r) for _ in range(N)]
    same_law((l[:4] for l in ours), (l[:4] for l in plain), run)
    same_law((l[-4:] for l in ours), (l[-4:] for l in plain), run)


def test_bigram_same_law():
    r = random.Random(4)
    ids, law, P = bigram_chain(vocab_size=6, successors=2, chain_seed=1)
    ours = lines(bigram(7 * N, vocab_size=6, line=(7, 7), successors=2, chain_seed=1))
    plain = [plain_chain(7, law, P.toarray().tolist(), r) for _ in range(N)]
    same_law((l[:3] for l in ours), (l[:3] for l in plain), "start")
    same_law((l[4:] for l in ours), (l[4:] for l in plain), "end")


@pytest.mark.parametrize("probs", [None, LAW])
def test_unstructured_same_law(probs):
    r = random.Random(5)
    ours = lines(unstructured(4 * N, probs, 5, line=(4, 4)))
    draw = drawer(probs or [1] * 5, r)
    same_law(ours, ([draw() for _ in range(4)] for _ in range(N)), probs)


def test_alias_table_is_the_law():
    "Summed in whole numbers, the 2^64 outcomes of the table give back every law, and none to what has none."
    g = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 64, 1000):
        for p in (
            np.ones(n),
            1 / np.arange(1, n + 1),
            g.random(n) ** 9 * (np.arange(n) % 3 != 1) + (np.arange(n) == 0) * 1e-9,
            np.eye(n)[n // 2] + 1e-13,
        ):
            p = p / p.sum()
            t, a, b = alias_table(p)
            got = [0] * (1 << b)
            for i, (x, y) in enumerate(zip(t.tolist(), a.tolist())):
                got[i] += x
                got[y] += (1 << 64 - b) - x
            got = np.array([x / 2**64 for x in got])
            assert abs(got[:n] - p).max() < 1e-13 and not got[n:].any() and not got[:n][p == 0].any()


# ---- structure, exactly ----


def test_nesting_structure():
    """A plain stack pops what our streams close, across chunks; reset and closed lines stand alone; the depth is the
    plain one."""
    opened, depth = parentheses(np.full(1, 50_000), 0.4, "stream", rng_for("t"))
    stack = []
    partner = [-1] * 50_000
    for t, o in enumerate(opened.tolist()):
        if o:
            stack.append(t)
        else:
            j = stack.pop()
            partner[t], partner[j] = j, t
        assert depth[t] == len(stack)
    assert match(opened, depth).tolist() == partner
    stack = []
    empty = []
    border = []
    # many ids: an opener that equals the top of the stack is rare, and then closes twice
    for t, x in enumerate(nesting(4 * CHUNK, vocab_size=600_000, seed=3).ids.tolist()):
        if not t % CHUNK:
            border.append(len(stack))
            empty.append(0)
        if stack and stack[-1] == x:
            stack.pop()
        else:
            stack.append(x)
        empty[-1] += not stack
    # what a chunk carried over is closed in the next: one wrong pop, and the stack would never be empty again
    assert max(border) > 1 and min(empty) > CHUNK / 7, (border, empty)
    for l in lines(nesting(20_000, border="closed", vocab_size=30_000)):
        stack = []
        for x in l:
            stack.pop() if stack and stack[-1] == x else stack.append(x)
        assert not stack and len(l) % 2 == 0


@pytest.mark.parametrize("longest", [2, 4, 6, 8, 12, None])
def test_flat_structure(longest):
    "Every id twice, no further apart than the block; lines of the lengths asked for."
    c = flat(CHUNK + 30_000, longest, vocab_size=600_000, line=(60, 90), seed=1)
    L = np.diff(c.offsets)
    assert (
        L.sum() == len(c.ids) >= CHUNK + 30_000 and L.max() <= 90 and (L < 60).sum() <= 3 and c.ids.dtype == np.uint32
    )
    for l in lines(c):
        where = {}
        for t, x in enumerate(l):
            where.setdefault(x, []).append(t)
        if all(len(w) == 2 for w in where.values()):
            assert longest is None or max(b - a for a, b in where.values()) < longest
        else:
            assert all(len(w) % 2 == 0 for w in where.values())  # an id drawn twice


@pytest.mark.parametrize("run", [4, 6, 8, 16, 32, 64])
def test_shuffle_structure(run):
    c = shuffle(CHUNK + 5000, run, 1 / np.arange(1, 30_001), 30_000)
    assert len(c.ids) == CHUNK + 5000 and c.ids.max() < 30_005
    for l in lines(c):
        for i in range(0, len(l), run):
            block = l[i : i + run]
            assert len(set(block)) == len(block) and max(block) - min(block) < run
            if len(block) == run:
                assert sorted(block) == list(range(min(block), min(block) + run))


def test_shuffles_are_uniform():
    x = shuffles(np.full(60_000, 4), rng_for("u")).reshape(-1, 4)
    c = np.unique(x, axis=0, return_counts=True)[1]
    assert len(c) == 24 and ((c - 2500) ** 2 / 2500).sum() < 23 + 3.8 * math.sqrt(46)
    # blocks of more than 256
    assert (np.sort(shuffles(np.array([300, 2, 299]), rng_for("v"))[302:]) == np.arange(299)).all()


def test_counted_chain_counts():
    """A chain counted on a small text, by hand: pairs across lines do not count, an id without successor goes on with
    the law."""
    text = [[0, 1, 0, 1, 2], [2, 0, 1], [3]]
    ids = np.concatenate(text).astype(np.uint16) + N_SPECIALS
    c = IdCorpus(ids, np.cumsum([0] + [len(l) for l in text]), dict(vocab_size=9, sha256="x"))
    got, law, P = bigram_chain(vocab_size=4, source=c)
    single = Counter(x for l in text for x in l)
    pairs = Counter(p for l in text for p in zip(l, l[1:]))
    assert got.tolist() == [5, 6, 7, 8] and np.allclose(law, [single[i] / 9 for i in range(4)])
    for i in range(4):
        total = sum(pairs[i, j] for j in range(4))
        assert np.allclose(P.toarray()[i], [pairs[i, j] / total for j in range(4)] if total else law)


def test_rotation_chain_is_stationary():
    for k in (1, 3, 8):
        _, law, P = bigram_chain(1 / np.arange(1, 2001) ** 1.1, 2000, successors=k)
        assert (
            np.allclose(law @ P, law, atol=1e-13)
            and np.allclose(P.sum(1), 1)
            and k <= np.diff(P.indptr)[1000:].mean() <= 2 * k + 1
        )


def test_restricted_ids():
    # the most frequent id is the last
    law = 1 / np.arange(1, 101)[::-1]
    assert set(np.unique(nesting(5000, probs=law, vocab_size=100, n_ids=7).ids)) == set(range(5, 12))
    assert set(np.unique(nesting(5000, probs=law, vocab_size=100, n_ids=3, frequent=True).ids)) == {102, 103, 104}
    c = nesting(5000, probs=law, vocab_size=100, n_ids=50)
    assert c.header["maker"] == "nesting-50" and c.vocab_size == 105


# ---- seeds, folders ----

MAKERS = dict(
    uniform=lambda **k: unstructured(**k),
    zipf=lambda **k: unstructured(probs=LAW * 100, **k),
    nesting=lambda **k: nesting(**k),
    reset=lambda **k: nesting(border="reset", **k),
    closed=lambda **k: nesting(border="closed", **k),
    flat=lambda **k: flat(**k),
    flat6=lambda **k: flat(longest=6, **k),
    shuffle=lambda **k: shuffle(run=6, **k),
    bigram=lambda **k: bigram(**k),
)


@pytest.mark.parametrize("name", MAKERS)
def test_seed_and_folder(name, tmp_path):
    """One seed, one corpus, in memory or in a folder; another seed, another one; a longer corpus begins with the
    chunks of a shorter one."""
    k = dict(n_tokens=CHUNK + 3000, vocab_size=500, seed=4)
    a = MAKERS[name](**k)
    b = MAKERS[name](**k, out=tmp_path / "c")
    assert (
        a.hash == b.hash == open_ids(tmp_path / "c").hash
        and np.array_equal(a.offsets, b.offsets)
        and a.hash != MAKERS[name](**dict(k, seed=5)).hash
    )
    longer = MAKERS[name](**dict(k, n_tokens=CHUNK + 9000))
    same = CHUNK // 2 if name == "flat6" else CHUNK
    assert np.array_equal(longer.ids[:same], a.ids[:same]) and a.ids.min() >= N_SPECIALS and a.ids.max() < 505


# ---- closed forms ----


def test_closed_forms():
    """Long-run facts at p = 0.4: empty stack 1/6, mean depth 2.5, 60% adjacent partners, mean distance 5, 4.8% orphans
    in lines of 80-124."""
    s = nesting_statistics(3_000_000, seed=1)
    for k, v, digits in (
        ("empty", 1 / 6, 0),
        ("depth", 2.5, 0),
        ("opens", 0.5, 0),
        ("adjacent", 0.6, 0),
        ("distance", 5, 0),
        ("orphan", 0.048, 5e-4),
    ):
        m, se = s[k]
        assert abs(m - v) < 3 * se + digits, (k, m, se, v)


# ---- floors: everything summed, on a tiny vocabulary ----

AT_ALL = (0.865, 0.12, 0.015)
SELECTED = (0.1, 0.8, 0.1)


def brute(law, V, others=AT_ALL):
    "Exact loss at a uniformly chosen selected position, from {line: probability}: all lines x all that can be shown."
    X = np.array(list(law))
    p = np.array(list(law.values()))
    T = X.shape[1]
    seen = np.array(list(itertools.product(range(-1, V), repeat=T)))

    def given(recipe, t):
        return np.where(seen[:, t, None] < 0, recipe[1], recipe[0] * (seen[:, t, None] == X[:, t]) + recipe[2] / V)

    nats = 0
    for i in range(T):
        joint = p * np.prod([given(SELECTED if t == i else others, t) for t in range(T)], 0)  # (shown, line)
        by = np.stack([joint[:, X[:, i] == s].sum(1) for s in range(V)], 1)
        by = by[by.sum(1) > 0]
        nats -= (by * np.log(np.where(by > 0, by, 1) / by.sum(1, keepdims=True))).sum()
    return nats / T


def all_lines(V, T, law):
    "Every line whose pairs follow one of `law`'s matchings (pairs, probability), ids from V with weights."
    out = Counter()
    for pairs, weight in law:
        for ids in itertools.product(range(V), repeat=len(pairs)):
            x = [0] * T
            for s, (i, j) in zip(ids, pairs):
                x[i] = x[j] = s
            out[tuple(x)] += weight * math.prod(P3[s] for s in ids)
    return out


P3 = [0.6, 0.3, 0.1]


def near(got, exact, slack=0):
    assert abs(got[0] - exact) < 3.5 * got[1] + slack, (got, exact)


def test_iid_floor():
    assert abs(floor("uniform")["all"] - 9.4165) < 5e-5
    assert abs(floor("zipf", P3, 3)["all"] - brute({(s,): p for s, p in enumerate(P3)}, 3)) < 1e-10
    assert abs(floor("zipf", [0.6, 0.4, 0, 0], 4)["all"] - brute({(0,): 0.6, (1,): 0.4}, 4)) < 1e-10


@pytest.mark.parametrize("longest,T,blocks", [(2, 4, [[2, 2]]), (4, 4, [[4]]), (6, 6, [[6]]), (None, 4, [[4]])])
def test_flat_floor(longest, T, blocks):
    m = []
    for tiling in blocks:
        start = np.cumsum([0] + tiling)
        options = [[[(a + i, a + j) for i, j in pairs] for pairs in matchings(n)] for a, n in zip(start, tiling)]
        m += [sum(o, []) for o in itertools.product(*options)]
    exact = brute(all_lines(3, T, [(x, 1 / len(m)) for x in m]), 3)
    if longest:
        near(flat_floor(P3, 3, longest, (T, T), 40_000)["all"], exact)
    else:
        got = whole_line_floor(P3, 3, (T, T), 40_000)["all"]
        # a replacement that is told is as good as hidden
        told = brute(all_lines(3, T, [(x, 1 / len(m)) for x in m]), 3, (0.865 + 0.015 / 3, 0.12 + 0.015 * 2 / 3, 0))
        near(got, told)
        assert told < exact
    if longest == 2:
        near(pair_floor(P3, 3)["pair"], exact)


def test_flat_floor_mixed_blocks():
    "flat-6 on six pairs (2+2+2 or, twice as likely, 3+3), against every tiling and matching - for two ids."
    law = [0.7, 0.3]
    out = Counter()
    for tiling, weight in (((4, 4, 4), 1 / 3 / 27), ((6, 6), 2 / 3 / 225)):
        for parts in itertools.product(*(matchings(n) for n in tiling)):
            pairs = [(i + a, j + a) for m, a in zip(parts, np.cumsum((0,) + tiling)) for i, j in m]
            for ids in itertools.product(range(2), repeat=6):
                x = [0] * 12
                for s, (i, j) in zip(ids, pairs):
                    x[i] = x[j] = s
                out[tuple(x)] += weight * math.prod(law[s] for s in ids)
    assert abs(sum(out.values()) - 1) < 1e-9
    X = np.array(list(out))
    ratio = tiled_weight(np.ones(X.shape), np.zeros(X.shape), X, np.array(law), np.full(len(X), 12), 6) - np.log(
        list(out.values())
    )
    # nothing hidden: the likelihood is the line's probability
    assert np.ptp(ratio) < 1e-9
    near(flat_floor(law, 2, 6, (12, 12), 60_000)["all"], *brute_sampled(out, 2, 30_000))


def test_lengths_by_position():
    L = lengths_by_position((4, 9), 50_000, rng_for("l"), 2)
    assert set(L) == {4, 6, 8} and abs(L.mean() - (16 + 36 + 64) / 18) < 4 * L.std() / math.sqrt(50_000)


def brute_sampled(law, V, draws):
    "As `brute`, for lines too long to list what they can show: a sample of it."
    g = np.random.default_rng(0)
    X = np.array(list(law))
    p = np.array(list(law.values()))
    nats = []
    T = X.shape[1]
    rows = np.arange(1000)
    for _ in range(draws // 1000):
        x = X[g.choice(len(X), 1000, p=p / p.sum())]
        i = g.integers(0, T, 1000)
        show = lambda x, recipe: np.where(
            (u := g.random(x.shape)) < recipe[0], x, np.where(u < recipe[0] + recipe[1], -1, g.integers(0, V, x.shape))
        )
        o = show(x, AT_ALL)
        o[rows, i] = show(x[rows, i], SELECTED)
        like = np.ones((1000, len(X)))
        for t in range(T):
            r = np.where((i == t)[:, None], [SELECTED], [AT_ALL])
            like *= np.where(o[:, t, None] < 0, r[:, 1:2], r[:, :1] * (o[:, t, None] == X[:, t]) + r[:, 2:] / V)
        like *= p
        nats += (-np.log((like * (X[:, i].T == x[rows, i][:, None])).sum(1) / like.sum(1))).tolist()
    return float(np.mean(nats)), 3 * float(np.std(nats)) / math.sqrt(draws)


@pytest.mark.parametrize("run,V,T", [(2, 4, 2), (3, 5, 3), (3, 4, 2), (4, 4, 4)])
def test_shuffle_floor(run, V, T):
    "Whole runs, and runs cut at the line's end."
    p = restrict_law(np.arange(V, 0, -1), V, V - run + 1)
    law = Counter()
    for y in range(V - run + 1):
        for x in itertools.permutations(range(y, y + run)):
            law[x[:T]] += p[y] / math.factorial(run)
    near(shuffle_floor(np.arange(V, 0, -1), V, run, (T, T), 40_000)["all"], brute(law, V))


def test_run_weight_is_the_sum_over_subsets():
    "Long runs: quadrature against the sum over how many of the shown ids are true."
    for N, n in ((16, 13), (64, 50)):
        # the run starts at id 100
        cdf = np.array([0.0] * 101 + [1.0] * 100)
        odds = 1e5
        seen = np.full((1, N), -1)
        seen[0, :n] = np.arange(100, 100 + n)
        terms = [
            math.log(math.comb(n, j)) + j * math.log(odds) + math.lgamma(N - j + 1) - math.lgamma(N + 1)
            for j in range(n + 1)
        ]
        assert abs(run_weight(seen, cdf, N, odds)[0] - np.logaddexp.reduce(terms)) < 1e-9


def test_chain_floor():
    chain = bigram_chain(P3, 3, successors=1, chain_seed=2)
    P = chain[2].toarray()
    law = {}
    for x in itertools.product(range(3), repeat=4):
        law[x] = chain[1][x[0]] * math.prod(P[a, b] for a, b in zip(x, x[1:]))
    near(chain_floor(chain, 3, (4, 4), 40_000)["all"], brute(law, 3))
    # ids of the table that the chain never says, and lines of several lengths
    part = bigram_chain([0.5, 0.4] + [0.01] * 6, 8, n_ids=2, successors=1)
    P = part[2].toarray()
    exact = {}
    for T in (2, 3, 4):
        exact[T] = brute(
            {
                x: part[1][x[0]] * math.prod(P[a, b] for a, b in zip(x, x[1:]))
                for x in itertools.product(range(2), repeat=T)
            },
            8,
        )
    near(chain_floor(part, 8, (3, 3), 200_000)["all"], exact[3])
    near(chain_floor(part, 8, (2, 4), 60_000)["all"], sum(T * e for T, e in exact.items()) / 9)


def test_nesting_floor_is_a_bound():
    "Closed lines of six, every one listed: the oracle that is told the partners loses less, and not nothing."
    law = Counter()

    def go(x, stack, weight):
        left = 6 - len(x)
        if not left:
            law[tuple(x)] += weight
            return
        close = 0 if not stack else 1 if len(stack) == left else 0.6
        if close:
            go(x + [stack[-1]], stack[:-1], weight * close)
        if close < 1:
            for s in range(3):
                go(x + [s], stack + [s], weight * (1 - close) * P3[s])

    go([], [], 1)
    assert abs(sum(law.values()) - 1) < 1e-12
    f = floor("nesting-zipf", P3, 3, border="closed", line=(6, 6))
    exact = brute(law, 3)
    assert 0.5 * exact < f["all"] < exact + 3 * f["stderr"] and f["kind"] == "bound" and f["share_orphan"] == 0


def test_floors_by_name():
    law = 1 / np.arange(1, 301)
    for name, kind in (
        dict(uniform="exact", zipf="exact", bigram="monte-carlo").items()
        | {
            "nesting-50": "bound",
            "flat-2": "monte-carlo",
            "flat-6": "monte-carlo",
            "flat-16": "bound",
            "flat": "bound",
            "shuffle-8": "monte-carlo",
        }.items()
    ):
        f = floor(name, law, 300)
        assert (
            f["kind"] == kind and 0 < f["all"] <= f["plateau"] + 1e-12 and f["stderr"] < 0.05 and np.isfinite(f["all"])
        ), (name, f)
    assert floor("nesting-50", law, 300)["orphan"] == iid_floor(restrict_law(law, 300, 50), 300)


# ---- input that cannot be used: one sentence each ----

BAD = {
    "p_open 0": (lambda: nesting(10, p_open=0), "p_open is 0"),
    "p_open 1": (lambda: nesting(10, p_open=1.0), "between 0 and 1"),
    "p_open nan": (lambda: nesting(10, p_open=math.nan), "p_open"),
    "border": (lambda: nesting(10, border="open"), "unknown border"),
    "too many ids": (lambda: nesting(10, vocab_size=100, n_ids=500), "n_ids is 500; expected 1 to 100"),
    "no ids": (lambda: nesting(10, n_ids=0), "n_ids is 0"),
    "floor too many ids": (lambda: floor("nesting-5000", [1] * 100, 100), "n_ids is 5000"),
    "odd block": (lambda: flat(10, 5), "even number"),
    "no block": (lambda: flat(10, 0), "even number"),
    "long block": (lambda: flat(10, 200), "do not fit"),
    "short line": (lambda: flat(10, line=(1, 1)), "at least 2 tokens"),
    "run": (lambda: shuffle(10, 1), "runs of 1 ids"),
    "long run": (lambda: shuffle(10, 64, vocab_size=20), "runs of 64 ids; expected 2 to 20"),
    "law": (lambda: flat(10, probs=[1, 2], vocab_size=3), "expected 3 non-negative"),
    "successors": (lambda: bigram(10, vocab_size=9, successors=0), "0 successors"),
    "chain ids": (lambda: bigram(10, vocab_size=9, n_ids=10), "n_ids is 10"),
    "source": (lambda: bigram(10, vocab_size=9, source=nesting(50, vocab_size=5)), "same vocabulary"),
    "tokens": (lambda: shuffle(0), "n_tokens is 0"),
    "floor": (lambda: floor("flaat-4"), "did you mean flat-4"),
    "window": (lambda: floor("shuffle-4", window=20), "do not fit in a window of 20"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(what):
    f, says = BAD[what]
    with pytest.raises(EmbryoError) as e:
        f()
    assert says in str(e.value) and "\n" not in str(e.value)
