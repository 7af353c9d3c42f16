"""A figure of the reader's own: some lines in a file, drawn by the appendix template, and no change to the library."""

import re

import pandas as pd
import pytest
from execnb.nbio import read_nb
from execnb.shell import CaptureShell

from embryo.ground.errors import EmbryoError
from embryo.ground.profiles import repo_root
from embryo.ground.rows import row_frame
from embryo.micro.made_up import made_up_p1
from embryo.results.figures import FIGURES, draw_own, figure, figures_of

MINE = """
import matplotlib.pyplot as plt

def last_words(rows, family, evaluator="reconstruct"):
    d = rows[(rows["family"] == family) & (rows["evaluator"] == evaluator) & (rows["metric"] == "accuracy")]
    last = d[d["step"] == d["step"].max()].groupby("group", as_index=False)["value"].mean()
    fig, ax = plt.subplots()
    ax.barh(last["group"], last["value"])
    return fig, last

def counted(rows):
    return rows[rows["evaluator"] == "count"][["group", "value"]]

def broken(rows):
    return rows["no such column"]
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


# what the appendix draws of its own is drawn in test_embryology.py
DRAWS = re.compile(r"(page\.(show|tell|dates|show_ledger)\()|for ")


def run_template(**parameters):
    "Run the appendix of the first paper without its own figures, as papermill would; what it printed."
    nb = read_nb(repo_root() / "nbs" / "appendix" / "p1_embryology.ipynb")
    shell = CaptureShell()
    said = []
    for cell in [c for c in nb.cells if c.cell_type == "code"]:
        source = cell.source
        if "parameters" in cell.metadata.get("tags", []):
            source += "\n" + "\n".join(f"{k} = {v!r}" for k, v in parameters.items())
        if DRAWS.match(source):
            continue
        outputs = shell.run(source)
        assert not shell.exc, shell.exc
        said += ["".join(o["text"]) for o in outputs if o["output_type"] == "stream"]
    return "".join(said)


def test_the_appendix_draws_it(tmp_path, mine):
    own = {
        "last": dict(function=f"{mine}:last_words", family="albert", text="Where every word class ends."),
        "counts": dict(function=f"{mine}:counted"),
    }
    out = tmp_path / "figures"
    out.mkdir()
    said = run_template(figures=str(out), own=own)
    assert "figures of your own: own_counts own_last" in said and "own_" not in said.split("drawn: ")[1]
    numbers = pd.read_csv(out / "own_last.csv").set_index("group")["value"]
    made = made_up_p1()  # what the appendix shows where it is given no rows
    words = made[(made["evaluator"] == "reconstruct") & (made["family"] == "albert")]
    ends = words[(words["step"] == words["step"].max()) & (words["group"] == "det.")]
    assert numbers["det."] == pytest.approx(ends["value"].mean(), rel=1e-5) and (out / "own_last.pdf").is_file()
    assert "Where every word class ends." in (out / "own_last.png").read_bytes().decode("latin1")
    assert "| det." in (out / "own_counts.md").read_text() and (out / "own_counts.tex").is_file()


def test_faults_name_the_readers_file_and_line(tmp_path, mine):
    rows = row_frame([dict(metric="loss", value=1.0)])
    line = MINE.splitlines().index('    return rows["no such column"]') + 1
    with pytest.raises(EmbryoError, match=rf"mine.py, line {line}: KeyError: 'no such column'"):
        draw_own("mine", dict(function=f"{mine}:broken"), rows, tmp_path)
    with pytest.raises(EmbryoError, match="mine.py: TypeError: .*famliy"):
        draw_own("mine", dict(function=f"{mine}:last_words", famliy="bert"), rows, tmp_path)
    with pytest.raises(EmbryoError, match="unknown function 'count'; did you mean counted"):
        draw_own("mine", dict(function=f"{mine}:count"), rows, tmp_path)
    for name, asked in (("../up", dict(function=f"{mine}:counted")), ("mine", {})):
        with pytest.raises(EmbryoError, match="expected a name of letters"):
            draw_own(name, asked, rows, tmp_path)
    assert not list(tmp_path.glob("own_*")) and not list(tmp_path.parent.glob("own_*"))


def test_one_declaration_is_enough():
    "What an appendix or a test asks for is in the registry as soon as it is declared."

    @figure("x_one", text="One number.", title="One", table=lambda data: data)
    def one(rows):
        return rows[["value"]]

    try:
        assert list(figures_of("x")).count("x_one") == 1 and FIGURES["x_one"].data is one
    finally:
        del FIGURES["x_one"]
    assert "x_one" not in figures_of("x")
