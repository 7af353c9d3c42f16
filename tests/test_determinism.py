"""Same seed, same bytes, on any machine: content hashes of the micro world, tokenizer, corpora and batches, as one
machine printed them.

A difference here means that another machine (or a library that changed its mind) makes other data from the same
seed, and that numbers may not be compared.
`python tests/test_determinism.py` prints the table anew, for a change that is meant.
"""

import gzip
import hashlib
import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = {
    "micro world": "2f7c7770d4b50d61",
    "tokenizer": "8528a87c641753f9",
    "english": "52a2e7d14526d9ec",
    "batch mlm token": "bdb6421df1d73369",
    "batch mlm+sop ngram": "c568874f67e61495",
    "batch mlm+nsp word": "5776b9508fec014e",
    "batch rtd token": "29bbe60a888a02b3",
    "java": "3f41d024a34efd1c",
    "kannada": "b9d7c273468a083b",
    "amino-acid": "cbbe6ed43182b302",
    "uniform": "15825ab5fa63b4ac",
    "zipf": "f0049c3ffe2022f4",
    "nesting-uniform": "f0b4d3b955c4c919",
    "nesting-zipf": "e905b55aedfe8ace",
    "bigram": "8537c52f574f8c2c",
    "flat": "c3a95f8fbc9564dd",
    "nesting-other": "722f07922da0e464",
    "nesting-noisy": "7721dc9cfc023c81",
    "flat-other": "6b1e0f126f2f32c8",
    "copy": "809515500b3ee311",
    "pairs": "7a322ea3e71990cf",
    "nesting-500": "a5c6af42c59934c6",
    "nesting-50": "399483b2610373c6",
    "flat-2": "1970a93bb3069fd6",
    "flat-4": "6b8b7ac0db2bb6d0",
    "flat-6": "60c8257288e888a3",
    "shuffle-4": "5b6eea87dd74ce08",
    "shuffle-6": "2710b39e4adf02f1",
    "shuffle-8": "2704a36862abf2a8",
    "shuffle-16": "45b2cb6d9428b2ce",
    "shuffle-32": "1f0ab5968864ddbc",
    "shuffle-64": "6408ca8137ea832e",
}


# what the compressor makes of it may differ between versions of zlib
def text(f):
    return {".gz": gzip.decompress, ".xz": lzma.decompress}.get(f.suffix, bytes)(f.read_bytes())


def sha(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def made(root):
    "{what: hash} of everything that a seed decides before training."
    from embryo.corpora.l1s import ARTIFICIAL, english_tokenizer, make
    from embryo.micro.world import write_world
    from embryo.pretraining.batches import piece_marks, training_batch
    from embryo.pretraining.settings import PretrainConfig

    root = Path(root)
    w = write_world(
        root / "w", seed=0, words=6000, heldout_words=1500, books_words=1500, probing=(40, 20, 20), tasks=0.03, l1s=0.01
    )
    out = {
        "micro world": sha(
            *(
                f"{f.relative_to(w)} {sha(text(f))}\n".encode()
                for f in sorted(w.rglob("*"))
                if f.is_file() and f.name != "MANIFEST.json"
            )
        )
    }
    tok = english_tokenizer(w, root / "c", vocab_size=600)
    out["tokenizer"] = sha(tok.backend_tokenizer.to_str().encode())
    for n in ("english", "java", "kannada", "amino-acid", *ARTIFICIAL):
        if n == "nesting-5000":
            continue  # needs a larger table
        c = make(n, w, root / "c", 0, "train", tok, **(dict(n_tokens=20_000, line=[30, 30]) if n in ARTIFICIAL else {}))
        out[n] = c.hash[:16]
        if n != "english":
            continue
        for objective, masking in (("mlm", "token"), ("mlm+sop", "ngram"), ("mlm+nsp", "word"), ("rtd", "token")):
            b = training_batch(
                c,
                PretrainConfig(objective=objective, masking=masking, batch=8, length=32, steps=9, seed=3),
                5,
                marks=piece_marks(tok),
            )
            out[f"batch {objective} {masking}"] = sha(*(t.numpy().tobytes() for t in b if t is not None))
    return out


def differ(now):
    return {k: (GOLDEN.get(k), now.get(k)) for k in {*GOLDEN, *now} if GOLDEN.get(k) != now.get(k)}


def test_same_seed_same_bytes_as_elsewhere(tmp_path):
    assert not differ(made(tmp_path))


def test_same_bytes_without_vector_instructions():
    """A poorer CPU, played by this one: numpy and torch are told to leave AVX alone (x86; elsewhere this is the same
    test again)."""
    env = {
        **os.environ,
        "ATEN_CPU_CAPABILITY": "default",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "PYTHONHASHSEED": "1",
        "PYTHONWARNINGS": "ignore",
    }
    p = subprocess.run([sys.executable, __file__], capture_output=True, text=True, env=env)
    assert p.returncode == 0, p.stderr[-2000:]
    assert not differ(json.loads(p.stdout))


if __name__ == "__main__":
    print(json.dumps(made(tempfile.mkdtemp()), indent=1))
