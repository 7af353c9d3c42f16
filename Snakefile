# The batch as Snakemake sees it: one rule, because the graph itself comes from the profile (embryo.batch.plan).
# `make run` and `embryo_run` call this; to use a cluster:  embryo_run --options "--executor slurm --jobs 20"
import os, sys
from embryo.batch.plan import Plan
from embryo.ground.errors import EmbryoError

try: PLAN = Plan(os.environ.get("EMBRYO_PROFILE", "micro"), os.environ.get("EMBRYO_DATA", ""))  # as environment variables, so that jobs see the same
except EmbryoError as e: sys.exit(f"Snakefile: {e}")

PLAN_FILE = str(PLAN.save())
MISSING = {n.name for n in PLAN.todo()}                                              # what is done is not the engine's business: it would run again all that comes after a repair
rows = lambda n: os.path.relpath(PLAN.nodes[n].rows, PLAN.runs)

rule all:
    input: [rows(n) for n in MISSING]

rule node:
    input: lambda w: [rows(k) for k in PLAN.nodes[w.node].needs if k in MISSING]
    output: "runs/{node}/rows.parquet"
    params: key=lambda w: PLAN.nodes[w.node].key
    resources: mem_mb=lambda w: PLAN.nodes[w.node].cost["memory_mb"], runtime=lambda w: max(10, int(PLAN.nodes[w.node].cost["seconds"]/20))
    wildcard_constraints: node=r"[^/]+/[^/]+"
    message: "{wildcards.node}"
    shell: """{sys.executable:q} -c "from embryo.batch.worker import main; main()" embryo.batch.run:run_one {PLAN_FILE:q} {wildcards.node:q}"""
