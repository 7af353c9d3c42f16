# make run [PROFILE=micro] [DATA=/path/to/data] [SEEDS=0,1]   every figure and table of a profile, or some of its seeds
# make test                                       nbdev_test over the notebooks, then pytest over tests/
# make lab                                        JupyterLab, opened on the front page, with the project's own kernel
# make style                                      ruff: mend and check the layout of notebooks, tests and benchmarks
# make book                                       the notebooks and executed appendices as a site, in _book/html
# make plan | figures | clean-notebooks | readme | clean
PROFILE ?= micro
DATA ?=
CORES ?= 0
SEEDS ?=
PYTHON ?= python3
BIN := .venv/bin
# the root of the repository is the root of what is served: the front page links results and figures, which lie beside nbs/
LAB := --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/nbs/index.ipynb --MultiKernelManager.default_kernel_name=embryo
export OMP_NUM_THREADS ?= 1

run: setup
	$(BIN)/embryo_run --profile $(PROFILE) --data "$(DATA)" --cores $(CORES) --seeds "$(SEEDS)"

plan: setup
	$(BIN)/embryo_plan --profile $(PROFILE) --data "$(DATA)" --seeds "$(SEEDS)"

figures: setup
	$(BIN)/embryo_figures --profile $(PROFILE) --data "$(DATA)"

# a batch cuts its text into pieces on all cores; tests fork processes that have done so
test: export TOKENIZERS_PARALLELISM ?= false
test: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" timeout 3600 $(BIN)/nbdev_test --n_workers 2
	$(BIN)/python -m pytest tests -n 2 --dist loadfile --no-loadscope-reorder

book: .venv/.book
	$(BIN)/embryo_book

lab: setup
	$(BIN)/jupyter lab $(LAB)

style: setup
	$(BIN)/ruff check --fix nbs tests benchmarks && $(BIN)/ruff format nbs tests benchmarks

check-style: setup
	$(BIN)/ruff check nbs tests benchmarks && $(BIN)/ruff format --check nbs tests benchmarks

setup: .venv/.done
.venv/.done: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v=sys.version_info[:2]; sys.exit(0 if v>=(3,11) else "embryo needs Python 3.11 or newer, this is %d.%d; choose one with make PYTHON=/path/to/python3.11" % v)'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -c constraints.txt torch==2.13.0
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -m ipykernel install --sys-prefix --name embryo --display-name embryo >/dev/null
	$(BIN)/python -c "import json,pathlib; p=pathlib.Path('.venv/share/jupyter/kernels/embryo/kernel.json'); k=json.loads(p.read_text()); k['argv'].append('--log-level=50'); p.write_text(json.dumps(k, indent=1))"
	touch $@

.venv/.book: .venv/.done
	$(BIN)/pip install -q -c constraints.txt -e '.[book]'
	touch $@

audit-pins: setup
	$(BIN)/python tests/test_security.py
	if [ -x $(BIN)/pip-audit ]; then $(BIN)/pip-audit -r constraints.txt --no-deps; fi

clean-notebooks: setup
	$(BIN)/nbdev_export && $(BIN)/nbdev_clean

readme: setup
	$(BIN)/python -m nbconvert --to markdown --log-level ERROR --stdout nbs/index.ipynb | sed 's#](\.\./#](#g' > README.md

clean:
	rm -rf papermill_runs/micro figures/micro _book

# make audit-pins                                 every pin beside what is installed; known vulnerabilities where pip-audit and a network are
# make check-style                                the same without mending, as CI does
.PHONY: run plan figures test book lab style check-style setup audit-pins clean-notebooks readme clean
