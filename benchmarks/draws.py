"""ELECTRA's draws: one random number a position (`embryo.ground.seeds.draw_tokens`) against Gumbel's way, noise on
every logit and an arg-max, which needs as many random numbers as the vocabulary has tokens.

Both draw from the same softmax; the two alternate in one process, and the time of a draw is the median.

    python benchmarks/draws.py [--positions 300] [--vocab 8000] [--rounds 20] [--threads 1]
"""

import argparse
import statistics
import time

import torch

from embryo.ground.seeds import draw_tokens


def gumbel(logits):
    "The largest logit after each got noise of its own."
    return (logits - torch.empty_like(logits).exponential_().log()).argmax(-1)


def stretch(logits):
    "The token in whose stretch of the summed probabilities a number falls."
    return draw_tokens(logits, torch.rand(len(logits)))


def seconds(draw, logits):
    "How long one draw takes."
    begun = time.perf_counter()
    draw(logits)
    return time.perf_counter() - begun


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in dict(positions=300, vocab=8000, rounds=20, threads=1).items():
        a.add_argument(f"--{name}", type=int, default=default)
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    logits = torch.randn(a.positions, a.vocab)
    taken = [(seconds(gumbel, logits), seconds(stretch, logits)) for _ in range(a.rounds)]
    plain, ours = (1000 * statistics.median(column) for column in zip(*taken))
    print(f"{a.positions} positions, vocabulary {a.vocab:,}, {a.threads} thread(s), median of {a.rounds}")
    print(f"noise on every logit {plain:.1f} ms, one number a position {ours:.1f} ms: {plain / ours:.1f} times")


if __name__ == "__main__":
    main()
