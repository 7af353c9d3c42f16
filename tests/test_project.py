"""What keeps the repository in one piece: exports, import direction, templates, README."""

import ast, json, re, subprocess, sys
from pathlib import Path
import pytest
from conftest import BIN, ROOT

NOTEBOOKS = sorted(p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
LIBRARY = [p for p in NOTEBOOKS if re.match(r"\d", p.name) and "#| default_exp" in p.read_text()]
TEMPLATES = [p for p in NOTEBOOKS if p.parent.name in ("experiments", "appendix")]
# not what a reader ran here
COMMITTED = [
    ROOT / f
    for f in subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "papermill_runs/*/appendix/*.ipynb"], capture_output=True, text=True
    ).stdout.splitlines()
]
cells = lambda p: json.loads(p.read_text())["cells"]
module = lambda p: p.stem.split("_", 1)[1]


def test_export_in_sync(tmp_path):
    "embryo/ is what the notebooks export."
    for d in ("nbs", "embryo"):
        subprocess.run(["cp", "-r", str(ROOT / d), str(tmp_path / d)], check=True)
    for f in ("settings.ini", "pyproject.toml"):
        (tmp_path / f).write_text((ROOT / f).read_text())
    subprocess.run(
        [str(BIN / "nbdev_export")],
        cwd=tmp_path,
        check=True,
        env={"PATH": str(BIN) + ":/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)},
    )
    for f in sorted((ROOT / "embryo").glob("*.py")):
        assert (tmp_path / "embryo" / f.name).read_text() == f.read_text(), (
            f"{f.name} is not what its notebook exports: run nbdev_export"
        )


def test_notebooks_are_clean(tmp_path):
    "nbdev_clean has nothing to do, and keeps the parameters tag."
    subprocess.run(["cp", "-r", str(ROOT / "nbs"), str(tmp_path / "nbs")], check=True)
    (tmp_path / "settings.ini").write_text((ROOT / "settings.ini").read_text())
    subprocess.run(
        [str(BIN / "nbdev_clean")],
        cwd=tmp_path,
        check=True,
        env={"PATH": str(BIN) + ":/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)},
    )
    for p in NOTEBOOKS:
        assert json.loads((tmp_path / p.relative_to(ROOT)).read_text()) == json.loads(p.read_text()), (
            f"{p.name}: run nbdev_clean"
        )


@pytest.mark.parametrize("p", LIBRARY, ids=lambda p: p.stem)
def test_import_direction(p):
    "A module imports only from lower numbers."
    order = [module(q) for q in LIBRARY]
    source = (ROOT / "embryo" / f"{module(p)}.py").read_text()
    used = re.findall(r"^\s*from (?:embryo)?\.(\w+) import", source, re.M)
    # what asks the warm process must start in a moment
    assert used or p.stem in ("00_core", "16e_warm")
    for m in used:
        assert order.index(m) < order.index(module(p)), f"{p.stem} imports {m}"


@pytest.mark.parametrize("p", LIBRARY, ids=lambda p: p.stem)
def test_top_level_imports(p):
    "Training and examination import nothing at the top that a bare GPU box lacks."
    allowed = {
        "torch",
        "transformers",
        "tokenizers",
        "safetensors",
        "numpy",
        "pandas",
        "sklearn",
        "scipy",
        "fastcore",
        "tqdm",
        "embryo",
    } | set(sys.stdlib_module_names)
    for n in ast.parse((ROOT / "embryo" / f"{module(p)}.py").read_text()).body:
        names = (
            [a.name for a in n.names]
            if isinstance(n, ast.Import)
            else [n.module]
            if isinstance(n, ast.ImportFrom) and not n.level
            else []
        )
        assert {x.split(".")[0] for x in names} <= allowed, names


@pytest.mark.parametrize("p", TEMPLATES, ids=lambda p: p.stem)
def test_template_contract(p):
    "One parameters cell, one parameter a line with a comment, no outputs, rows written last."
    cs = cells(p)
    tagged = [c for c in cs if "parameters" in c["metadata"].get("tags", [])]
    assert len(tagged) == 1
    for line in "".join(tagged[0]["source"]).splitlines():
        assert re.match(r"\w+: \w+ = .+#.+", line) and line.count(" = ") == 1, line
    assert not any(c.get("outputs") for c in cs)
    assert "finish(" in "".join("".join(c["source"]) for c in cs[-3:] if c["cell_type"] == "code")
    assert {"profile", "caption", "out"} <= {l.split(":")[0] for l in "".join(tagged[0]["source"]).splitlines()}


@pytest.mark.parametrize("done", COMMITTED, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_executed_appendix_is_its_template(done):
    "What is committed as executed was executed as it stands now."
    code = lambda p: [
        "".join(c["source"])
        for c in cells(p)
        if c["cell_type"] == "code" and "injected-parameters" not in c["metadata"].get("tags", [])
    ]
    assert code(done) == code(ROOT / "nbs/appendix" / done.name)


def outputs(p):
    "All text that a notebook printed or showed."
    found = [o for c in cells(p) for o in c.get("outputs", [])]
    return "\n".join("".join(o.get("text", o.get("data", {}).get("text/plain", ""))) for o in found)


@pytest.mark.parametrize("done", COMMITTED, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_executed_appendix_has_all_that_is_committed(done):
    "Every committed figure and table was drawn by the committed notebook, all at one revision, with nothing uncommitted."
    from PIL import Image

    text = outputs(done)
    prefix = done.stem.split("_")[0]
    revision = re.search(r"'git': '(\w+\+?)'", text)[1]
    folder = ROOT / "figures" / done.parts[-3]
    tracked = subprocess.run(
        ["git", "ls-files", str(folder)], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.split()
    mine = [ROOT / f for f in tracked if Path(f).name.startswith(prefix + "_")]
    assert {f.stem for f in mine} == set(re.search("drawn: (.*)", text)[1].split())
    stamps = {f.name: Image.open(f).text["Software"] for f in mine if f.suffix == ".png"} | {
        f.name: re.search(r"\[(embryo \w+\+?)\]", f.read_text())[1] for f in mine if f.suffix == ".md"
    }
    assert set(stamps.values()) == {f"embryo {revision}"} and not revision.endswith("+"), stamps


def test_readme_in_step():
    "README.md is index.ipynb."
    made = subprocess.run(
        [
            sys.executable,
            "-m",
            "nbconvert",
            "--to",
            "markdown",
            "--log-level",
            "ERROR",
            "--stdout",
            str(ROOT / "nbs" / "index.ipynb"),
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert made.replace("](../", "](").strip() == (ROOT / "README.md").read_text().strip(), "run make readme"


def test_every_command_has_help(run):
    import tomllib

    for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]:
        code, out, err = run(name, "--help")
        assert code == 0 and "usage:" in out and "Traceback" not in err
