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
    "micro world": "02cc4fb3751b234f",
    "tokenizer": "b6cdf81167a0541c",
    "english": "fa63c826f53fbd45",
    "batch mlm token": "d5baf403546b8dd9",
    "batch mlm+sop ngram": "9d58f4d2a374d28d",
    "batch mlm+nsp word": "915ce8ee1c3e4cef",
    "batch rtd token": "b876230d8c2dd42d",
    "java": "3f41d024a34efd1c",
    "kannada": "b9d7c273468a083b",
    "amino-acid": "cbbe6ed43182b302",
    "uniform": "15825ab5fa63b4ac",
    "zipf": "d4f3e91e317db616",
    "nesting-uniform": "f0b4d3b955c4c919",
    "nesting-zipf": "755cde4567f3d7a1",
    "bigram": "5f3a14be7cdbe29c",
    "flat": "d07cee64a66bcf25",
    "nesting-closed": "1e44d0ad6dab1c01",
    "nesting-either": "f2a0bf46b35d6a13",
    "nesting-other": "6310b521b7884d48",
    "nesting-noisy": "184972919cd21fa9",
    "flat-other": "15c23296bbb1edf2",
    "copy": "74c0bad7b304b351",
    "pairs": "7a322ea3e71990cf",
    "nesting-500": "81462c9746647248",
    "nesting-50": "5434003bf66a2661",
    "flat-2": "64680afde690cb5c",
    "flat-4": "4587b2851b6413f1",
    "flat-6": "a9e5e6f7ffc472cf",
    "shuffle-4": "c451fa995c6cceeb",
    "shuffle-6": "70cdb4de46fa1236",
    "shuffle-8": "e3e7a6c2891634b0",
    "shuffle-16": "d30f984f9eb1bab4",
    "shuffle-32": "9829bf8b24dead64",
    "shuffle-64": "a7ce91df2f9c52ae",
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
