# The batch as Snakemake sees it: one rule, because the graph itself comes from the profile (embryo.batch.plan).
# `make run` and `embryo_run` call this; to use a cluster:  embryo_run --options "--executor slurm --jobs 20"
import os
import sys
from embryo.batch.plan import Plan
from embryo.ground.errors import EmbryoError

# as environment variables, so that jobs see the same
try:
    PLAN = Plan(os.environ.get("EMBRYO_PROFILE", "micro"), os.environ.get("EMBRYO_DATA", ""))
except EmbryoError as e:
    sys.exit(f"Snakefile: {e}")

PLAN_FILE = str(PLAN.save())
# what is done is not the engine's business: it would run again all that comes after a repair
MISSING = {n.name for n in PLAN.todo()}
CALL = "from embryo.batch.worker import main; main()"


def rows(name):
    return os.path.relpath(PLAN.nodes[name].rows, PLAN.study.runs)


def minutes(name):
    return max(10, int(PLAN.nodes[name].cost["seconds"] / 20))


rule all:
    input: [rows(name) for name in MISSING]


rule node:
    input: lambda w: [rows(name) for name in PLAN.nodes[w.node].needs if name in MISSING]
    output: "runs/{node}/rows.parquet"
    params: key=lambda w: PLAN.nodes[w.node].key
    resources:
        mem_mb=lambda w: PLAN.nodes[w.node].cost["memory_mb"],
        runtime=lambda w: minutes(w.node),
    wildcard_constraints: node=r"[^/]+/[^/]+"
    message: "{wildcards.node}"
    shell: "{sys.executable:q} -P -c '{CALL}' embryo.batch.run:run_one {PLAN_FILE:q} {wildcards.node:q}"
