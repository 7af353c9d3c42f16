"""The book: contents, captions and sliders without Sphinx; the whole site where Sphinx is; and the site in a browser
where Chromium is.

`EMBRYO_BOOK=_book/html pytest tests/test_book.py` looks at a site that has been built, instead of building one."""

import csv
import functools
import http.server
import importlib.util
import json
import os
import re
import resource
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import chromium
import pytest
from conftest import ROOT

from embryo.batch.costs.record import write_nodes
from embryo.book.captions import named
from embryo.book.contents import floors
from embryo.book.planned import planned_nodes, planned_page, save_planned
from embryo.book.site.addresses import LINK, Book, appendices, held_files
from embryo.book.site.site import put_all, sources
from embryo.book.slider import slider, unclosed

P1_PAGE = "papermill_runs/open/appendix/p1_embryology.html"


@pytest.fixture(scope="session")
def written():
    "What Sphinx would read: {path: text}."
    book = Book(ROOT, held_files(ROOT))
    return sources(book)


def test_contents_follow_the_folders(tmp_path):
    "Numbers order floors, wings and rooms; two digits come behind one."
    for name in ("10_last/00_z.ipynb", "2_mid/01_b.ipynb", "2_mid/00_wing/00_a.ipynb", "micro/00_m.ipynb"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "2_mid/.ipynb_checkpoints").mkdir()
    (tmp_path / "2_mid/.ipynb_checkpoints/x.ipynb").write_text("{}")
    house = floors(tmp_path)
    assert [p.path.name for p in house] == ["2_mid", "10_last", "micro"]
    assert [n.name for n in house[0].notebooks()] == ["00_a.ipynb", "01_b.ipynb"]


def test_every_page_is_listed_once(written):
    "A table of contents leads to each page, and to none twice."
    listed = []
    for path, text in written.items():
        for tree in re.findall(r"```{toctree}\n(.*?)```", text, re.S) if path.endswith(".md") else ():
            names = [re.sub(r".*<(.+)>", r"\1", n) for n in tree.splitlines() if n and not n.startswith(":")]
            listed += [os.path.normpath(os.path.join(os.path.dirname(path), n)) for n in names]
    pages = [os.path.splitext(p)[0] for p in written if p.endswith((".md", ".ipynb"))]
    assert sorted(listed + ["index"]) == sorted(pages)


def test_every_link_between_pages_leads_to_a_page(written):
    "Sphinx stops at a link that leads nowhere; so it is held without Sphinx, too."
    lost = []
    for path, text in written.items():
        if path.endswith(".ipynb"):
            cells = json.loads(text)["cells"]
            text = "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        elif not path.endswith(".md"):
            continue
        for link in LINK.finditer(text):
            to = urldefrag(link["to"] or "")[0]
            if to and not re.match(r"[a-z]+:", to):
                page = os.path.normpath(os.path.join(os.path.dirname(path), unquote(to)))
                lost += [] if page in written else [f"{path}: {to}"]
    assert not lost


def test_a_page_says_how_true_plans_were(written, tmp_path):
    "Every record that is there has a table, which counts what it should; a benchmark beside it keeps its own."
    assert "planned\n" in written["index.md"] and "benchmarks/planned.csv" in written["planned.md"]
    nodes = planned_nodes(ROOT, held_files(ROOT))
    assert set(re.findall(r"^## (.+)$", written["planned.md"], re.M)) == set(nodes["table"])
    done = {f"examine/{i}": dict(planned=dict(seconds=10), seconds=took) for i, took in enumerate((6, 7, 14, 16, None))}
    for profile in ("open", "micro"):  # what git does not keep has no place in the book
        write_nodes(done, list(done), tmp_path / f"papermill_runs/{profile}/nodes.csv")
    (tmp_path / ".gitignore").write_text("papermill_runs/*/*\n!papermill_runs/open/nodes.csv\n")
    page = planned_page(planned_nodes(tmp_path, held_files(tmp_path)))
    assert re.findall(r"^## (.+)$", page, re.M) == ["Profile open"]
    line = next(l for l in page.splitlines() if l.startswith("| examine"))
    cells = [c.strip() for c in line.strip("|").split("|")]
    assert cells == ["examine", "4", "40 s", "43 s", "50%", "`examine/0` x 0.60"]
    assert "4 nodes of [nodes.csv](papermill_runs/open/nodes.csv); 1 that went on after a stop not counted." in page
    alternative = re.search(r'<img [^>]*src="planned/nodes.png" alt="([^"]+)"', page)[1]
    assert "2 of 4 nodes (50%)" in alternative and "examine 2 of 4" in alternative
    png = save_planned(planned_nodes(tmp_path, held_files(tmp_path)), tmp_path / "html")
    assert png == tmp_path / "html/planned/nodes.png" and png.stat().st_size > 5000


def test_without_records_the_page_on_plans_is_one_sentence(tmp_path):
    "And one that is there and damaged is not passed over."
    from embryo.ground.errors import EmbryoError

    page = planned_page(planned_nodes(tmp_path, set()))
    title, said = page.strip().split("\n\n")
    assert title == "# Planned against taken" and said.count(". ") == 0 and "<img" not in page
    assert save_planned(planned_nodes(tmp_path, set()), tmp_path) is None and not list(tmp_path.iterdir())
    file = tmp_path / "papermill_runs/open/nodes.csv"
    file.parent.mkdir(parents=True)
    file.write_text("node,kind\n<<<<<<< ours\n")
    with pytest.raises(EmbryoError, match="papermill_runs/open/nodes.csv: is no record of a batch"):
        planned_nodes(tmp_path, held_files(tmp_path))


def test_every_committed_figure_has_a_caption_with_its_evidence(written):
    "Below each picture of an executed appendix: numbers, rows, profile, cell, and what made it."
    for page in [p for p in written if p.startswith("papermill_runs/")]:
        profile, prefix = Path(page).parts[1], Path(page).stem.split("_")[0]
        texts = ["".join(c["source"]) for c in json.loads(written[page])["cells"]]
        captions = {m[1]: t for t in texts for m in re.finditer(r'class="evidence" id="(\w+)"', t)}
        moving = {f.stem for f in (ROOT / "figures" / profile).glob(f"{prefix}_*.gif")}
        pictures = {f.stem for f in (ROOT / "figures" / profile).glob(f"{prefix}_*.png")} | moving
        assert pictures and not pictures - set(captions), pictures - set(captions)
        for name in pictures:
            mine = re.search(rf'id="{name}">.*?</div>', captions[name], re.S)[0]
            targets = re.findall(r'href="([^"]+)"', mine)
            paths = [os.path.normpath(os.path.join(os.path.dirname(page), urldefrag(t)[0])) for t in targets]
            numbers = name.rpartition("_layer")[0] if name in moving else name  # those of the figure it shows more of
            assert f"figures/{profile}/{numbers}.csv" in paths
            assert f"figures/{profile}/{name}.{'gif' if name in moving else 'png'}" in paths
            assert f"papermill_runs/{profile}/rows.csv" in paths
            assert f"nbs/profiles/{profile}.html" in paths
            assert page in paths and any("#cell-" in t for t in targets)
            assert any(p.startswith("nbs/5_results/") for p in paths) or name == "p1_history"


def test_words_for_pictures_end_with_a_sentence(written):
    "What is said of a picture begins where a sentence begins, and is not cut off."
    for page in [p for p in written if p.endswith(".ipynb")]:
        for cell in [c for c in json.loads(written[page])["cells"] if c["cell_type"] == "code"]:
            if not any(kind.startswith("image/") for o in cell["outputs"] for kind in o.get("data", {})):
                continue
            alt = cell["metadata"]["mystnb"]["image"]["alt"]
            own = any("alt" in about for o in cell["outputs"] for about in o.get("metadata", {}).values())
            assert own or re.search(r"(?<!\.\.)[.!?]$", alt), (page, alt)
            said = re.match(r"Drawing in the section (['\"]).*?\1\. (.)", alt)
            assert not said or said[2].isupper(), (page, alt)


def test_every_declared_figure_is_known():
    "The front desk imports all of the results floor; the book names its rooms."
    code = "from embryo.book.captions import all_figures; known = set(all_figures())\n"
    code += "import embryo; print(set(embryo.figures()) - known)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert said.stdout.strip() == "set()", said.stdout + said.stderr


def test_the_book_has_what_git_holds():
    "Where there is git: of notebooks, profiles, figures and runs exactly the committed files."
    asked = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("there is no git here")
    mine = lambda files: {f for f in files if re.match(r"(nbs|figures|papermill_runs)/", f) and (ROOT / f).is_file()}
    assert mine(held_files(ROOT)) == mine(done.stdout.splitlines())


def test_names_in_code_are_held_against_files():
    known = {"p1_fig1a", "p1_fig11a", "x_new"}
    assert named("draw('p1_fig1a')\nshow(f\"x_{kind}\")", known) == ["p1_fig1a", "x_new"]
    assert named("draw(name)", known) == []


def test_code_of_an_appendix_is_folded_and_that_of_the_library_is_not(written):
    tags = lambda page: [
        t for c in json.loads(written[page])["cells"] if c["cell_type"] == "code" for t in c["metadata"]["tags"]
    ]
    assert (
        {"hide-input"}
        <= set(tags("papermill_runs/open/appendix/p1_embryology.ipynb"))
        <= {
            "hide-input",
            "hide-cell",
            "remove-input",
        }
    )
    library = tags("nbs/1_corpora/01_laws.ipynb")
    assert "export" in library and "hide-input" not in library


def test_no_page_asks_another_host(written):
    "In what is ours: no script, picture, style or frame from elsewhere. (Links that are clicked may lead there.)"
    asks = re.compile(r"<(?:script|img|link|iframe|video|source)[^>]*(?:src|href)=\\?[\"'](?:https?:)?//|@import|url\(")
    for path, text in written.items():
        if path.endswith((".css", ".js", ".py")):
            assert not re.search(r"https?://|url\(|@import", text), path
            continue
        if path.endswith(".ipynb"):
            cells = json.loads(text)["cells"]
            parts = ["".join(c["source"]) for c in cells if c["cell_type"] == "markdown"]
            parts += ["".join(o.get("data", {}).get("text/html", "")) for c in cells for o in c.get("outputs", [])]
            text = "\n".join(parts)
        text = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.S)
        assert not asks.search(text), (path, asks.search(text)[0])


def test_the_first_page_says_which_claims_hold(written):
    "Each of the 22 sentences with the verdict of the run that tests most of its paper, and a link to what shows it."
    verdicts = {}
    runs = [Path(f) for f in appendices(held_files(ROOT), ROOT)]
    for paper in ("p1", "p2"):
        profile = next(f.parts[1] for f in runs if f.name.startswith(paper))
        with open(ROOT / f"figures/{profile}/{paper}_claims.csv", newline="") as f:
            verdicts |= {int(r["number"]): r["verdict"] for r in csv.DictReader(f) if r["mode"] == "corrected"}
    shown = re.findall(r'<b class="verdict \w+">([^<]+)</b> (\d+)\. [^<]+<a href="([^"]+)"', written["index.md"])
    assert {int(n): v.removesuffix(" (this model)") for v, n, _ in shown} == verdicts and len(verdicts) == 22
    for page in ("papers/p1.md", "papers/p2.md"):
        beside = re.findall(r'<b class="verdict \w+">([^<]+)</b> (\d+)\.', written[page])
        assert beside and set(beside) <= {(v, n) for v, n, _ in shown}
    for paper in ("P1", "P2"):
        assert f"({paper}) beside ours" in written["index.md"]
    effect = r"<p>[^<]+: [-+][\d.]+ \[[^]]+\][^<]*; asked: [^<]+; \d seeds?</p>"
    assert len(re.findall(effect, written["index.md"])) >= sum(v != "cannot be tested here" for v in verdicts.values())
    places = [written["index.md"].index(f"## {name}") for name in ("What was found", "What holds?", "Where to go on")]
    assert places == sorted(places)


def test_abstracts_are_answered_on_the_first_page(written):
    "In the same words as on the page of each paper."
    for page in ("papers/p1.md", "papers/p2.md"):
        said = re.findall(r"^- \*[^*]+\.\* \*\*[^*]+\.\*\* .*[Cc]laim.+$", written[page], re.M)
        assert len(said) == (5 if "p1" in page else 4)
        assert all(line in written["index.md"] for line in said)


def test_the_first_page_says_where_runs_disagree(written):
    "A claim on which the runs of a paper's page differ names each of them with its verdict."
    table = {int(n): line for line, n in re.findall(r"^(\| +(\d+)\. .*)$", written["papers/p1.md"], re.M)}
    item = r"(<li><p><b class=.verdict[^>]+>[^<]+</b> (\d+)\..*?</li>)"
    items = {int(n): text for text, n in re.findall(item, written["index.md"])}
    head = re.search(r"^\| claim +\|(.+)\|$", written["papers/p1.md"], re.M)[1]
    profiles = [name.strip() for name in head.split("|")]
    differ = 0
    for number, line in table.items():
        main, *others = [v.strip().partition(" (")[0] for v in line.strip("|").split("|")[1:]]
        for profile, verdict in zip(profiles[1:], others):
            trainings = r"(one training|\d+ trainings)"
            named = bool(re.search(f"{re.escape(profile)}, {trainings}: {verdict}", items[number]))
            untold = "cannot be tested here" in (main, verdict)
            assert named == (verdict != main and not untold), (number, profile)
            differ += named
    assert differ


def test_appendices_of_several_profiles_have_titles_of_their_own(written):
    "A search shows each by its profile."
    titles = []
    for page in [p for p in written if p.startswith("papermill_runs/")]:
        cells = [c for c in json.loads(written[page])["cells"] if c["cell_type"] == "markdown"]
        titles.append(re.search(r"^# (.+)$", "".join(cells[0]["source"]), re.M)[1])
    assert len(titles) == len(set(titles)) > 1


def test_no_table_with_a_caption_is_cut_off(written):
    "What a notebook shortens by three dots stands here in full."
    for page in [p for p in written if p.startswith("papermill_runs/")]:
        cells = json.loads(written[page])["cells"]
        for cell, below in zip(cells, cells[1:]):
            if 'class="evidence"' in "".join(below["source"]):
                shown = "".join("".join(o.get("data", {}).get("text/html", "")) for o in cell.get("outputs", ()))
                assert not re.search(r"\.\.\.</t[dh]>", shown), (page, below["source"][:60])


def test_the_sliders_are_valid(written):
    page = written["steps/open.md"]
    figures = re.findall(r'<figure class="steps".*?</figure>', page, re.S)
    assert len(figures) == 3
    for figure in figures:
        assert unclosed(figure) == []
        frames = re.findall(r'<div class="frame" data-step="[\d,]+"( hidden)?>', figure)
        assert frames[:-1] == [" hidden"] * (len(frames) - 1) and frames[-1] == ""
        assert f'max="{len(frames) - 1}" value="{len(frames) - 1}"' in figure
        caption = figure.partition('<figcaption class="evidence">')[2]
        for part in ("p1_embryology.html#p1_fig", "#cell-", "rows.csv", "profiles/open.html", "05_frames.html"):
            assert part in caption, (part, caption)
        assert len(re.findall(r'(?:aria-label|alt)="[^"]{20,}"', figure)) == len(re.findall("<svg|<img", figure))


def test_a_slider_that_cannot_slide_is_refused():
    from embryo.ground.errors import EmbryoError

    with pytest.raises(EmbryoError, match="expected 2 to 16"):
        slider("long", {k: "" for k in range(17)}, "")


def test_a_page_that_is_the_same_is_not_written_again(tmp_path):
    put_all(tmp_path, {"a.md": "x", "b/c.md": "y"})
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.md")}
    put_all(tmp_path, {"a.md": "x", "b/c.md": "y"})
    assert before == {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.md")}
    put_all(tmp_path, {"a.md": "z"})
    assert [p.read_text() for p in tmp_path.rglob("*.md")] == ["z"]


def test_without_sphinx_the_command_says_what_to_do(tmp_path, monkeypatch):
    from embryo.book.site import site
    from embryo.ground.errors import EmbryoError

    monkeypatch.setattr(site.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbryoError, match="make book"):
        site.lay_out(tmp_path, 1)


# ---- the site
# -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def html(tmp_path_factory):
    "The folder of the site."
    if given := os.environ.get("EMBRYO_BOOK"):
        return Path(given).resolve()
    if importlib.util.find_spec("myst_nb") is None:
        pytest.skip("Sphinx and myst-nb are not installed; `make book` installs them")
    out = tmp_path_factory.mktemp("book")
    code = f"from embryo.book.site.site import embryo_book; embryo_book(out={str(out)!r})"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, cwd=out)
    assert made.returncode == 0, made.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 240, f"the book took {seconds:.0f} s of computing; the limit is two minutes on two cores"
    return out / "html"


class Reader(HTMLParser):
    "Links, ids, pictures and what is fetched, of one page."

    def __init__(self, path):
        super().__init__()
        self.links, self.ids, self.mute, self.fetched = [], set(), [], []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        a = dict(attrs)
        self.ids |= {a[k] for k in ("id", "name") if a.get(k)}
        if tag == "a" and "href" in a:
            self.links.append(a["href"])
        if tag == "img" and not (a.get("alt") or "").strip():
            self.mute.append(a.get("src", "")[:80])
        if tag in ("script", "img", "iframe", "source", "video"):
            self.fetched.append(a.get("src") or "")
        if tag == "link" and a.get("rel") not in ("canonical", "author"):
            self.fetched.append(a.get("href") or "")


@pytest.fixture(scope="session")
def pages(html):
    return {p.relative_to(html).as_posix(): Reader(p) for p in sorted(html.rglob("*.html"))}


def test_a_complaint_of_sphinx_is_passed_on(tmp_path):
    "A page that nobody lists, for instance."
    from embryo.book.site import site
    from embryo.ground.errors import EmbryoError

    if importlib.util.find_spec("myst_nb") is None:
        pytest.skip("Sphinx and myst-nb are not installed; `make book` installs them")
    put_all(tmp_path / "source", {"conf.py": "", "index.rst": "Title\n=====\n", "lost.rst": "Lost\n====\n"})
    with pytest.raises(EmbryoError, match="lost.rst"):
        site.lay_out(tmp_path, 1)


def test_all_links_lead_somewhere(html, pages):
    "Every link within the site, to a page, to a place on a page, or to a file."
    broken = []
    for page, read in pages.items():
        for link in read.links:
            to, part = urldefrag(unquote(link))
            if re.match(r"[a-z]+:", to):
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(page), to)) if to else page
            if not (html / target).is_file():
                broken.append(f"{page}: {link}")
            elif part and target in pages and part not in pages[target].ids:
                broken.append(f"{page}: {link}, no such place")
    assert not broken, broken[:20]


def test_every_page_has_one_title(html, pages):
    "One heading of the first order in the text, and the same words as the name of the window."
    for page in set(pages) - {"genindex.html", "search.html"}:
        text = (html / page).read_text()
        if page.startswith("_static/"):
            continue
        heads = re.findall(r"<h1>(.+?)<a", text.partition("<article")[2], re.S)
        assert len(heads) == 1, page
        name = re.search(r"<title>(.+?) &#8212; embryo</title>|<title>(.+?)</title>", text, re.S)
        assert (name[1] or name[2]).strip(), page


def test_no_page_is_heavy(html, pages):
    "A page with its own pictures and files (what all pages share is fetched once): less than 5 MB."
    for page, read in pages.items():
        here = [
            os.path.normpath(os.path.join(os.path.dirname(page), unquote(x.partition("?")[0]))) for x in read.fetched
        ]
        own = {f for f in here if (html / f).is_file() and not f.startswith("_static/") and f != "searchindex.js"}
        size = sum((html / f).stat().st_size for f in own | {page})
        assert size < 5e6, f"{page}: {size / 1e6:.1f} MB"


def test_every_picture_has_words(pages):
    mute = [f"{page}: {src}" for page, read in pages.items() for src in read.mute]
    assert not mute, mute[:20]


def test_nothing_is_fetched_from_elsewhere(html, pages):
    outside = [f"{page}: {x}" for page, read in pages.items() for x in read.fetched if re.match(r"(https?:)?//", x)]
    assert not outside, outside[:20]
    for style in html.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//|@import ['\"]?http", style.read_text()), style


# ---- in a browser
# -------------------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def served(html):
    "The site's address; a browser keeps scripts of files from reading other files."
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="module")
def browser(html, tmp_path_factory):
    if chromium.FOUND is None:
        pytest.skip("there is no Chromium here; Debian has it as the package chromium")
    pytest.importorskip("websocket", reason="websocket-client, which comes with JupyterLab, is not installed")
    b = chromium.Browser(tmp_path_factory.mktemp("chromium"))
    yield b
    b.close()


LOOKED_AT = [
    "index.html",
    "papers/p1.html",
    "papers/p2.html",
    "steps/open.html",
    "planned.html",
    P1_PAGE,
    "papermill_runs/open/appendix/p2_transfer.html",
    "papermill_runs/nursery/appendix/x_nursery.html",
    "nbs/index.html",
    "nbs/1_corpora/02_floors.html",
    "nbs/profiles/open.html",
    "LOG.html",
]


def check_clean(browser, address):
    assert browser.errors == []
    asked = [r for r in browser.requests if not r.startswith((address, "data:", "about:", "blob:", "chrome"))]
    assert asked == [], asked


@pytest.mark.parametrize("page", LOOKED_AT)
@pytest.mark.parametrize("width", [400, 1600])
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_reads(browser, served, page, width, dark):
    "No error, no request to another host, nothing wider than the screen, text that stands out from its ground."
    browser.open(served + page, width, dark=dark)
    check_clean(browser, served)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("document.querySelector('h1').textContent.trim().length") > 2
    light = "(c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return (r + g + b) / 765 })"
    text = browser.run(f"{light}(getComputedStyle(document.querySelector('.bd-article p')).color)")
    ground = browser.run(f"{light}(getComputedStyle(document.body).backgroundColor)")
    assert (ground < 0.3 and text > 0.6) if dark else (ground > 0.9 and text < 0.4)


@pytest.mark.parametrize("width", [400, 1600])
def test_a_wide_table_scrolls(browser, served, width):
    "Nothing of a table is cut off: what does not fit lies in a box that scrolls."
    browser.open(served + "papermill_runs/open/appendix/p2_transfer.html", width)
    cut = """[...document.querySelectorAll('.bd-article table')].filter(t => {
        if (t.getBoundingClientRect().right <= document.documentElement.clientWidth + 1) return false;
        let box = t.parentElement;
        while (box.tagName !== 'ARTICLE' && !(box.scrollWidth > box.clientWidth
            && ['auto', 'scroll'].includes(getComputedStyle(box).overflowX))) box = box.parentElement;
        return box.tagName === 'ARTICLE';
    }).length"""
    assert browser.run("document.querySelectorAll('.bd-article table').length") > 8
    assert browser.run(cut) == 0


@pytest.mark.parametrize("width", [400, 1600])
def test_a_wide_table_says_that_it_scrolls(browser, served, width):
    "Its box can have the focus and has a name and a hint; that of a table that fits has none."
    boxes = "[...document.querySelectorAll('.sideways:has(> table)')].filter(b => b.offsetParent)"
    wide = "b.scrollWidth > b.clientWidth + 1"
    hint = "getComputedStyle(b, '::before').content.startsWith('\"scrolls sideways')"
    told = f"b.tabIndex === 0 && b.getAttribute('role') === 'region' && /^wide table/.test(b.ariaLabel) && {hint}"
    for page in (
        "papermill_runs/transfer/appendix/x_transfer.html",
        "papermill_runs/grown/appendix/p1_embryology.html",
    ):
        browser.open(served + page, width)
        browser.wait(f"{boxes}.some(b => {wide} && {told})")
        assert browser.run(f"{boxes}.filter(b => ({wide}) !== ({told})).length") == 0
        assert browser.run("document.documentElement.scrollWidth") <= width
    browser.run(f"{boxes}.find(b => {wide}).focus()")
    browser.press("ArrowRight", 39)
    browser.wait(f"{boxes}.some(b => b.scrollLeft > 0)")
    check_clean(browser, served)


def test_a_picture_of_many_panels_can_be_read(browser, served):
    "On a narrow screen it keeps two thirds of its size, in a box that scrolls by keyboard; on a wide one it is whole."
    wide = "document.querySelector('#p1_fig3').closest('section').querySelector('.sideways')"
    browser.open(served + P1_PAGE, 400)
    browser.wait(f"{wide} && {wide}.tabIndex === 0")
    assert browser.run(f"{wide}.querySelector('img').width / {wide}.querySelector('img').naturalWidth") > 0.6
    assert browser.run(f"{wide}.getAttribute('role') + {wide}.getAttribute('aria-label')").startswith("regionwide")
    assert browser.run(f"{wide}.getBoundingClientRect().right") <= 400
    browser.run(f"{wide}.focus()")
    browser.press("ArrowRight", 39)
    browser.wait(f"{wide}.scrollLeft > 0")
    browser.open(served + P1_PAGE, 1600)
    browser.wait(f"{wide} && {wide}.querySelector('img').complete")
    assert browser.run(f"{wide}.scrollWidth <= {wide}.clientWidth + 1 && !{wide}.hasAttribute('tabindex')")
    check_clean(browser, served)


SEEN = """[...document.querySelectorAll('#{0} .frame')].map((f, k) => f.offsetParent !== null ? k : -1)
    .filter(k => k >= 0).join()"""


@pytest.mark.parametrize("name", ["words", "probes", "maps"])
def test_the_slider_turns_the_figure_by_keyboard(browser, served, name):
    browser.open(served + "steps/open.html")
    seen = SEEN.format(name)
    last = browser.run(f"document.querySelector('#{name}-step').max")
    said = lambda: browser.run(f"document.querySelector('#{name} output').textContent")
    assert browser.run(seen) == last and said() == "16,000"
    spoken = f"document.querySelector('#{name}-step').getAttribute('aria-valuetext')"
    assert browser.run(spoken) == "step 16,000"  # and not the number of the frame
    browser.run(f"document.querySelector('#{name}-step').focus()")
    browser.press("ArrowLeft", 37)
    assert browser.run(seen) == str(int(last) - 1) and said() == "12,000"
    browser.press("Home", 36)
    assert browser.run(seen) == "0" and said() == "0"
    assert browser.run(spoken) == "step 0"
    check_clean(browser, served)


@pytest.mark.parametrize("width", [400, 1600])
def test_panels_of_a_frame_are_of_one_size(browser, served, width):
    browser.open(served + "steps/open.html", width)
    for name in ("words", "probes", "maps"):
        shown = f"[...document.querySelectorAll('#{name} .frame:not([hidden]) :is(svg, img)')]"
        widths = browser.run(f"{shown}.map(p => Math.round(p.getBoundingClientRect().width))")
        assert len(widths) > 1 and len(set(widths)) == 1, (name, widths)


def test_the_slider_turns_the_figure_by_touch(browser, served):
    browser.open(served + "steps/open.html", 400, 900)
    place = """(() => { const i = document.querySelector('#words-step'); i.scrollIntoView({block: 'center'});
        const b = i.getBoundingClientRect(); return [b.left + 6, b.top + b.height / 2, b.height] })()"""
    x, y, height = browser.run(place)
    assert height >= 40, "a slider for fingers"
    browser.touch(x, y)
    browser.wait(f"{SEEN.format('words')} === '0'".replace("\n", " "))


def test_without_javascript_the_last_step_is_shown(browser, served):
    browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(served + "steps/open.html")
        last = browser.run("document.querySelectorAll('#maps .frame').length") - 1
        assert last > 0 and browser.run(SEEN.format("maps")) == str(last)
        assert browser.run("document.querySelector('#maps .control').offsetParent === null")
        assert "last step" in browser.run("document.querySelector('#maps noscript').textContent")
    finally:
        browser.ask("Emulation.setScriptExecutionDisabled", value=False)


def test_search_finds(browser, served):
    browser.open(served + "search.html?q=Kannada")
    browser.wait("/Search finished/.test(document.querySelector('#search-results').textContent)")
    found = browser.run("[...document.querySelectorAll('#search-results li a')].map(a => a.href).join(' ')")
    assert "p2_transfer.html" in found
    check_clean(browser, served)
    browser.open(served + "search.html?q=xyzzyplugh")
    browser.wait("/did not match any documents/.test(document.body.textContent)")


def test_search_finds_on_a_disk(browser, html):
    "The site is read as files, too: no error, and the same pages found."
    browser.open(f"{(html / 'search.html').as_uri()}?q=Kannada")
    browser.wait("/Search finished/.test(document.querySelector('#search-results').textContent)")
    assert browser.run("document.querySelectorAll('#search-results li').length") > 3
    check_clean(browser, html.as_uri())


def test_folded_code_opens(browser, served):
    browser.open(served + P1_PAGE)
    code = "document.querySelector('details.hide pre')"
    assert browser.run(f"{code}.offsetParent === null || !{code}.checkVisibility()")
    browser.run("document.querySelector('details.hide summary').click()")
    assert browser.run(f"{code}.checkVisibility()")


def test_a_caption_leads_to_its_cell(browser, served):
    browser.open(served + P1_PAGE + "#p1_fig1a")
    browser.run("[...document.querySelectorAll('#p1_fig1a a')].find(a => a.textContent.startsWith('cell')).click()")
    browser.wait("location.hash.startsWith('#cell-')")
    place = browser.run("document.querySelector(location.hash).getBoundingClientRect().top")
    assert -50 < place < 500
