"""A real SLURM on this one machine: configured, started, stopped.

    python tests/slurm.py start [--folder F] [--cpus 4] [--gpus 2]     prints what sinfo says
    python tests/slurm.py stop [--folder F]

munged, slurmctld and slurmd of Debian's packages slurm-wlm and munge, as root and without systemd. Keys, states and
logs lie in the folder. /etc/slurm/slurm.conf and gres.conf must lie where they do, because Snakemake's executor does
not hand SLURM_CONF on to the steps of a job; a configuration that is not ours is not touched. CPUs may be more than
there are, and GPUs are files: what is tried is how jobs ask for them. No data base of accounts, as on many clusters.
"""

import argparse
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ETC = Path("/etc/slurm")
OURS = "# made by tests/slurm.py of embryo\n"
FOLDER = Path(tempfile.gettempdir()) / "embryo-slurm"
PROGRAMS = ("slurmctld", "slurmd", "munged")

CONF = """ClusterName={name}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmdPort={port1}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=sched_interval=2
MinJobAge=300
KillWait=5
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory_mb} Gres=gpu:{gpus} State=UNKNOWN
PartitionName=cpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=gpu-short Nodes=ALL MaxTime=60 State=UP
"""
GRES = "NodeName={host} Name=gpu File={folder}/gpu[0-{last}]\n"


def why_not():
    "Why a SLURM cannot be started here, in one sentence; None if it can."
    gone = [name for name in PROGRAMS if not shutil.which(name)]
    if gone:
        return f"{', '.join(gone)}: not installed here (apt-get install slurm-wlm munge)"
    if importlib.util.find_spec("snakemake_executor_plugin_slurm") is None:
        return "Snakemake's executor for SLURM is not installed (pip install snakemake-executor-plugin-slurm)"
    if os.geteuid() != 0:
        return "SLURM's daemons and /etc/slurm need root here"
    for f in (ETC / "slurm.conf", ETC / "gres.conf"):
        if f.exists() and not f.read_text().startswith(OURS):
            return f"{f}: there is a configuration that is not ours"
    if (ETC / "slurm.conf").exists() and subprocess.run(["sinfo"], capture_output=True, timeout=60).returncode == 0:
        return "a SLURM of another test is running here"
    return None


def free_port():
    "A port that nobody uses, nor the next."
    for port in range(26817, 27817, 2):
        with socket.socket() as a, socket.socket() as b:
            try:
                a.bind(("", port))
                b.bind(("", port + 1))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def configure(folder, cpus, gpus):
    "Write what the daemons read."
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for i in range(gpus):
        (folder / f"gpu{i}").touch()
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o400)
    port = free_port()
    memory_mb = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20
    names = dict(host=socket.gethostname().split(".")[0], folder=folder, port=port, port1=port + 1)
    names["name"] = f"embryo{os.getpid()}"
    (folder / "name").write_text(names["name"])
    names |= dict(cpus=cpus, gpus=gpus, last=gpus - 1, memory_mb=memory_mb)
    ETC.mkdir(exist_ok=True)
    (ETC / "gres.conf").write_text(OURS + GRES.format(**names))
    (ETC / "slurm.conf").write_text(OURS + CONF.format(**names))


def wait_until(true, seconds, what):
    "Look until something is true."
    end = time.time() + seconds
    while not true():
        if time.time() > end:
            raise RuntimeError(f"{what}: not within {seconds} s")
        time.sleep(0.2)


def says(*command):
    "What a command prints; empty if it fails."
    p = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return p.stdout if p.returncode == 0 else ""


def start(folder=FOLDER, cpus=4, gpus=2):
    "Configure and start; the node is idle when this returns."
    folder = Path(folder).resolve()
    why = why_not()
    if why:
        raise SystemExit(f"slurm.py: {why}")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # munged wants its socket where others cannot write
    configure(folder, cpus, gpus)
    munge = [f"--{k}-file={folder}/{f}" for k, f in dict(key="key", pid="munged.pid", log="munged.log").items()]
    munge += [f"--seed-file={folder}/munged.seed", f"--socket={folder}/munge.socket"]
    # munged looks at its folder's parents; /tmp is for all
    commands = [["munged", "--force", *munge], ["slurmctld"], ["slurmd"]]
    for command in commands:
        with open(folder / "start.log", "a") as log:
            subprocess.run(command, stdout=log, stderr=log, check=True, timeout=60)
    wait_until(lambda: "idle" in says("sinfo", "-h", "-o", "%T"), 60, f"an idle node (logs: {folder})")
    return folder


def end(pid_file):
    "End the process that a daemon's file names."
    try:
        pid = int(pid_file.read_text())
        os.kill(pid, signal.SIGTERM)
    except (FileNotFoundError, ValueError, ProcessLookupError):
        return
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30, f"{pid_file.stem} ends")


def end_strays(name):
    "Kill processes of our jobs that have outlived them: without cgroups, SLURM loses some."
    mark = f"SLURM_CLUSTER_NAME={name}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)
        except OSError:  # it has just ended
            pass


def stop(folder=FOLDER):
    "End all jobs and daemons, and remove what was configured."
    folder = Path(folder).resolve()
    if (ETC / "slurm.conf").exists() and str(folder) in (ETC / "slurm.conf").read_text():
        says("scancel", "--user=root")
        with_jobs = time.time() + 20
        while says("squeue", "-h") and time.time() < with_jobs:
            time.sleep(0.5)
    for name in ("slurmd", "slurmctld", "munged"):
        end(folder / f"{name}.pid")
    if (folder / "name").exists():
        end_strays((folder / "name").read_text())
    for f in (ETC / "slurm.conf", ETC / "gres.conf"):
        if f.exists() and f.read_text().startswith(OURS) and str(folder) in f.read_text():
            f.unlink()
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(folder, **options):
    "A SLURM for as long as the block lasts."
    try:
        yield start(folder, **options)
    finally:
        stop(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["start", "stop"])
    parser.add_argument("--folder", default=FOLDER)
    parser.add_argument("--cpus", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=2)
    args = parser.parse_args()
    if args.what == "stop":
        stop(args.folder)
    else:
        start(args.folder, args.cpus, args.gpus)
        print(says("sinfo"), end="")
