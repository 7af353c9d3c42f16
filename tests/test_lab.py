"""`make lab` as a reader meets it: the front page opens, and its links lead to files that JupyterLab serves."""

import json
import re
import shlex
import socket
import subprocess
import time
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote
from urllib.request import urlopen

import pytest
from conftest import BIN, ROOT

INDEX = "nbs/index.ipynb"
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def lab_command():
    "What `make lab` would start, as make itself says it."
    lines = subprocess.run(["make", "-n", "lab"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    line = next(x for x in lines.splitlines() if " lab " in f"{x} ")
    program, *options = shlex.split(line)
    return [str(BIN / program.split("/")[-1]), *options]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    "The address of a running JupyterLab."
    port = free_port()
    more = ["--no-browser", f"--port={port}", "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--allow-root"]
    log = tmp_path_factory.mktemp("lab") / "log"
    with log.open("w") as out:
        server = subprocess.Popen([*lab_command(), *more], cwd=ROOT, stdout=out, stderr=out)
        address = f"http://127.0.0.1:{port}"
        for _ in range(120):
            try:
                urlopen(f"{address}/api", timeout=5).close()
                break
            except (URLError, ConnectionError, TimeoutError):
                assert server.poll() is None, log.read_text()[-2000:]
                time.sleep(0.5)
        yield address
        server.terminate()
        server.wait(20)


def served(lab, path):
    "What JupyterLab says a path is: file, notebook, directory, or None where there is nothing."
    try:
        with urlopen(f"{lab}/api/contents/{quote(path)}?content=0", timeout=20) as answer:
            return json.load(answer)["type"]
    except HTTPError:
        return None


def links(path, between=None):
    "Paths from the root that a notebook's text, or its part between two marks, links to, pictures included."
    cells = json.loads((ROOT / path).read_text())["cells"]
    text = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
    if between:
        text = text.partition(between[0])[2].partition(between[1])[0]
    inside = [unquote(x) for x in LINK.findall(text) if "://" not in x and not x.startswith("mailto:")]
    folder = (ROOT / path).parent
    return sorted({(folder / x).resolve().relative_to(ROOT).as_posix() for x in inside})


def test_lab_opens_on_the_front_page(lab):
    assert served(lab, INDEX) == "notebook"
    command = " ".join(lab_command())
    assert f"/lab/tree/{INDEX}" in command
    with urlopen(f"{lab}/lab/tree/{INDEX}", timeout=20) as page:
        assert page.status == 200


def test_every_link_of_the_front_page_is_served(lab):
    "A folder has no page of its own in JupyterLab: links lead to files."
    found = {x: served(lab, x) for x in links(INDEX)}
    assert len(found) > 40, found
    assert {x: kind for x, kind in found.items() if kind not in ("file", "notebook")} == {}


def test_the_front_page_links_every_room():
    "Every notebook of the library, every template and every executed appendix that git holds."
    listed = subprocess.run(
        ["git", "ls-files", "nbs/*.ipynb", "papermill_runs/*.ipynb"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(listed) - {INDEX} - set(links(INDEX)) == set()


def test_the_table_of_floors_has_every_room():
    "Also one that git does not know yet."
    rooms = [
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "nbs").rglob("*.ipynb")
        if ".ipynb_checkpoints" not in p.parts and "#| default_exp" in p.read_text()
    ]
    table = links(INDEX, ("<!-- floors -->", "<!-- /floors -->"))
    absent = sorted(set(rooms) - set(table))
    assert not absent, f"{absent}: link them in the table of floors in {INDEX}, then make readme"


def test_a_dead_link_is_seen(lab):
    assert served(lab, "nbs/no_such_room.ipynb") is None
    assert served(lab, "figures") == "directory"
