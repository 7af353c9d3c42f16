"""What keeps the repository in one piece: exports, import direction, templates, README."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import BIN, ROOT

NOTEBOOKS = sorted(p for p in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts)
EXPORTS = {p: m[1] for p in NOTEBOOKS if (m := re.search(r"#\| default_exp ([\w.]+)", p.read_text()))}
LIBRARY = [p for p in EXPORTS if p.parent != ROOT / "nbs"]  # the front desk stands above all floors
TEMPLATES = [p for p in NOTEBOOKS if p.parent.name in ("experiments", "appendix")]
# not what a reader ran here
COMMITTED = [
    ROOT / f
    for f in subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "papermill_runs/*/appendix/*.ipynb"], capture_output=True, text=True
    ).stdout.splitlines()
]
cells = lambda p: json.loads(p.read_text())["cells"]


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
    for f in sorted((ROOT / "embryo").rglob("*.py")):
        name = f.relative_to(ROOT)
        assert (tmp_path / name).read_text() == f.read_text(), (
            f"{name} is not what its notebook exports: run nbdev_export"
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


def python_file(name):
    "The generated file of a module below embryo."
    return ROOT / "embryo" / f"{name.replace('.', '/')}.py"


def imported(source, name, modules):
    "Our modules that a source imports, wherever in it and however it is written; what is no module is an error."
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            ours = [a.name for a in node.names if a.name.split(".")[0] == "embryo"]
            assert not ours, f"{name}: import {ours[0]}; expected `from embryo.folder.module import name`"
        if not isinstance(node, ast.ImportFrom):
            continue
        if node.level:
            base = ["embryo", *name.split(".")][: -node.level]
            target = ".".join([*base, *([node.module] if node.module else [])])
        else:
            target = node.module
        if target.split(".")[0] != "embryo":
            continue
        for a in node.names:  # `from embryo.floor import room` and `from embryo.folder.module import name`
            whole = f"{target}.{a.name}".removeprefix("embryo.")
            found.add(whole if whole in modules else target.removeprefix("embryo."))
    unknown = found - set(modules)
    assert not unknown, f"{name} imports {unknown}, which no notebook exports"
    return found


@pytest.mark.parametrize("p", LIBRARY, ids=lambda p: EXPORTS[p])
def test_import_direction(p):
    "A module imports only from lower numbers of its own folder and from lower folders; micro is above all."
    order = {EXPORTS[q]: q.relative_to(ROOT / "nbs").as_posix() for q in LIBRARY}
    name = EXPORTS[p]
    for m in imported(python_file(name).read_text(), name, order):
        assert order[m] < order[name], f"{name} imports {m}, which stands above it"
        assert not m.startswith("micro.") or name.startswith("micro."), f"{name} handles real data and imports {m}"


def test_imports_are_found_however_written():
    "The test above has no holes: relative, of a module, inside a function."
    modules = ("ground.files", "ground.rows", "models.series")
    source = (
        "from ..ground import rows\ndef f():\n    from embryo.ground.files import atomic\nfrom .series import Series"
    )
    assert imported(source, "models.audit", modules) == set(modules)
    with pytest.raises(AssertionError, match="no notebook exports"):
        imported("from embryo import audit", "models.series", modules)
    with pytest.raises(AssertionError, match="expected `from"):
        imported("import embryo.models.series", "models.series", modules)


def test_floors_are_folders():
    "At most eight rooms a folder beside its wings, numbered by digits; a module's name is its notebook's place."
    for p, name in EXPORTS.items():
        place = [re.sub(r"^\d+_", "", x) for x in p.relative_to(ROOT / "nbs").with_suffix("").parts]
        assert name == ".".join(place), f"{p}: exports {name}"
    for folder in {p.parent for p in LIBRARY}:
        rooms = {q.name for q in folder.iterdir() if q.name != ".ipynb_checkpoints"}
        assert all(re.match(r"\d+_", r) for r in rooms), f"{folder}: a room without a number"
        notebooks = [r for r in rooms if r.endswith(".ipynb")]
        assert len(notebooks) <= 8, f"{folder}: {len(notebooks)} rooms"


@pytest.mark.parametrize("p", LIBRARY, ids=lambda p: EXPORTS[p])
def test_top_level_imports(p):
    "Training and examination import nothing at the top that a bare GPU box lacks."
    allowed = "torch transformers tokenizers safetensors numpy pandas sklearn scipy fastcore tqdm embryo".split()
    allowed = {*allowed, *sys.stdlib_module_names}
    for n in ast.parse(python_file(EXPORTS[p]).read_text()).body:
        names = []
        if isinstance(n, ast.Import):
            names = [a.name for a in n.names]
        elif isinstance(n, ast.ImportFrom) and not n.level:
            names = [n.module]
        assert {x.split(".")[0] for x in names} <= allowed, names


@pytest.mark.parametrize("p", TEMPLATES, ids=lambda p: p.stem)
def test_template_contract(p):
    "One parameters cell, one parameter a line with a comment, no outputs, rows written last."
    cs = cells(p)
    tagged = [c for c in cs if "parameters" in c["metadata"].get("tags", [])]
    assert len(tagged) == 1
    lines = "".join(tagged[0]["source"]).removeprefix("# fmt: off\n").splitlines()
    for line in lines:
        assert re.match(r"\w+: \w+ = .+#.+", line) and line.count(" = ") == 1, line
    assert not any(c.get("outputs") for c in cs)
    last = "".join("".join(c["source"]) for c in cs[-3:] if c["cell_type"] == "code")
    assert "finish(" in last or "page.close(" in last  # an appendix is closed by its page, which writes its rows
    assert {"profile", "caption", "out"} <= {l.split(":")[0] for l in lines}


APPENDICES = [p for p in TEMPLATES if p.parent.name == "appendix"]


@pytest.mark.parametrize("p", APPENDICES, ids=lambda p: p.stem)
def test_appendix_is_read_not_run(p):
    "Contents first; cells of code are one to three lines, imports at most eight: what is longer lives in the library."
    from embryo.book.pages import contents_of

    cs = cells(p)
    assert "".join(cs[1]["source"]) == contents_of(cs), f"{p.name}: the second cell should be\n{contents_of(cs)}"
    for c in cs:
        lines = "".join(c["source"]).splitlines()
        if c["cell_type"] == "code" and "parameters" not in c["metadata"].get("tags", []):
            assert len(lines) <= (8 if lines[0].startswith(("from ", "import ")) else 3), "\n".join(lines)


@pytest.mark.parametrize("done", COMMITTED, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_executed_appendix_is_its_template(done):
    "What is committed as executed was executed as it stands now."
    code = lambda p: [
        "".join(c["source"])
        for c in cells(p)
        if c["cell_type"] == "code" and "injected-parameters" not in c["metadata"].get("tags", [])
    ]
    profile = done.parts[-3]
    assert code(done) == code(ROOT / "nbs/appendix" / done.name), (
        f"{done.name}: the template has changed since {profile} was drawn; commit, then make figures PROFILE={profile},"
        " then commit figures/ and papermill_runs/"
    )


def outputs(p):
    "All text that a notebook printed or showed."
    found = [o for c in cells(p) for o in c.get("outputs", [])]
    return "\n".join("".join(o.get("text", o.get("data", {}).get("text/plain", ""))) for o in found)


@pytest.mark.parametrize("done", COMMITTED, ids=lambda p: "/".join(p.parts[-3:]))
def test_executed_appendix_names_nobodys_folders(done):
    "Paths are relative, and the data folder is DATA: where it lay is nobody's business."
    given = json.loads(done.read_text())["metadata"]["papermill"]["parameters"]
    assert not [v for v in given.values() if isinstance(v, str) and Path(v).is_absolute()]


@pytest.mark.parametrize("done", COMMITTED, ids=lambda p: f"{p.parts[-3]}-{p.stem}")
def test_executed_appendix_has_all_that_is_committed(done):
    """Every committed figure and table was drawn by the committed notebook, all at one revision, with nothing
    uncommitted."""
    from PIL import Image

    text = outputs(done)
    prefix = done.stem.split("_")[0]
    drawn = {
        p: set(re.search("(?m)^drawn: (.*)", outputs(p))[1].split()) for p in done.parent.glob(f"{prefix}_*.ipynb")
    }
    revision = re.search(r"made with: git (\w+\+?)", text)[1]
    folder = ROOT / "figures" / done.parts[-3]
    tracked = subprocess.run(
        ["git", "ls-files", str(folder)], capture_output=True, text=True, cwd=ROOT, check=True
    ).stdout.split()
    known = [ROOT / f for f in tracked if Path(f).name.startswith(prefix + "_")]
    assert {f.stem for f in known} == set.union(*drawn.values())
    mine = [f for f in known if f.stem in drawn[done]]
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


@pytest.mark.parametrize("name", ["embryo_plan", "embryo_run", "embryo_figures"])
def test_help_names_every_committed_profile(name, run):
    out = "".join(run(name, "--help")[1].split())  # a line may break inside a name
    assert {p.stem for p in (ROOT / "nbs" / "profiles").glob("*.toml") if p.stem not in out} == set()


def mentioned():
    "Names behind `embryo.` in texts, notebooks and settings that git holds: {name: files}."
    files = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True).stdout.split()
    kinds = (".md", ".ipynb", ".toml", ".py", ".ini", "Makefile", "Snakefile")
    found = {}
    for f in files:
        if not f.endswith(kinds) or f.startswith(("papermill_runs/", "embryo/")):
            continue
        for name in re.findall(r"\bembryo\.([a-z_]\w*(?:\.\w+)*)", (ROOT / f).read_text()):
            found.setdefault(name, set()).add(f)
    return found


def exists(name):
    "Is it a module below embryo, something in one, or a name of the front desk?"
    from importlib import import_module

    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        if (ROOT / "embryo" / "/".join(parts[:k])).is_dir() or python_file(".".join(parts[:k])).is_file():
            break
    else:
        return len(parts) == 1 and parts[0] in dir(import_module("embryo"))
    if k == len(parts):
        return True
    module = import_module(".".join(["embryo", *parts[:k]]))
    return hasattr(module, parts[k])


def test_no_stale_names():
    "Every `embryo.name` that is mentioned exists."
    # endings, an attribute, the name in the ledgers of micro worlds, and names that tests and examples make up
    known = "egg png pdf md __version__ microworld name nestling low top corpora_ folder".split()
    stale = {n: sorted(f) for n, f in mentioned().items() if n.split(".")[0] not in known and not exists(n)}
    assert stale == {}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md"])
def test_paths_of_a_page_exist(page):
    "Every notebook, folder or test that a page names."
    named = re.findall(r"\b(?:nbs|tests)/[\w/.-]*\w", (ROOT / page).read_text())
    twins = [p for p in named if p.endswith(".py") and p.startswith("nbs/")]  # the text form of a notebook, not kept
    assert {p for p in named if not (ROOT / p).exists()} == set(twins)
