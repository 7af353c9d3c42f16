# The batch as Snakemake sees it: a rule a job, because the graph comes from the profile (embryo.batch.plan).
# embryo_run (make run) has written what is left to do; each job of a cluster reads it twice, so nothing is imported.
import json
import os
import shlex
import sys

if "EMBRYO_JOBS" not in os.environ:
    sys.exit("Snakefile: is started by embryo_run")
with open(os.environ["EMBRYO_JOBS"]) as f:
    BATCH = json.load(f)
JOBS = BATCH["jobs"]
PLAN_FILE = BATCH["plan"]
START = "from embryo.batch.worker import main; main()"


# what is done is not the engine's business: it would run again all that comes after a repair
def rows(names):
    return [f"runs/{name}/rows.parquet" for name in names]


localrules: all


rule all:
    input: [f for job in JOBS.values() for f in rows(job["nodes"])]


for NAME, JOB in JOBS.items():

    rule:
        name: NAME
        input: rows(JOB["needs"])
        output: rows(JOB["nodes"])
        params: made_from=JOB["keys"], call=BATCH["call"], names=shlex.join(JOB["nodes"])
        threads: BATCH["threads"]
        resources: **JOB["resources"]
        message: NAME
        priority: JOB["priority"]
        shell: "{sys.executable:q} -P -c '{START}' {params.call} {PLAN_FILE:q} {params.names}"
