"""profiles/slurm against a real Slurm of one node, this host: every run asks for its GPU and for the whole node, none overlap, a killed one comes back.

The GPU is a word in Slurm's configuration, so that the asking can be seen; what is measured is the fake engine.
"""

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from datetime import datetime
from pathlib import Path

import psutil
import pytest
from commands import BIN

from bench import processes
from bench.machine import identity
from bench.paths import ROOT
from llm_measured.core import naming

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
MinJobAge=3600
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Gres=gpu:h200:1 State=UNKNOWN
PartitionName=gpu Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""
# Long runs, for a check looks at what else the machine computes meanwhile: here Snakemake, Slurm and this test.
OPTIONS = ("float32", "slow")
RUNS = [
    naming.run_id("latency", "fake", "smollm2-135m", option, identity.slug(), identity.host(), 1)
    for option in OPTIONS
]


def lacking():
    """Why no Slurm can be started here, None if one can."""
    programs = [name for name in ("slurmctld", "slurmd", "munged") if not shutil.which(name)]
    if programs:
        return f"{', '.join(programs)} not installed (Debian: slurm-wlm and munge)"
    if os.geteuid():
        return "slurmd has to be started by root"
    if not importlib.util.find_spec("snakemake_executor_plugin_slurm"):
        return "snakemake-executor-plugin-slurm not installed (make .venv/slurm)"
    return None


pytestmark = [
    pytest.mark.check,
    pytest.mark.timing,
    pytest.mark.skipif(bool(lacking()), reason=str(lacking())),
]


def wait_for(what, seconds, log=None):
    """`what()` as soon as it is true; an AssertionError with the end of `log` after so many seconds."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        if found := what():
            return found
        time.sleep(2)  # asking is work, and a run that had to share its machine is refused
    raise AssertionError(f"waited {seconds} s in vain\n{log.read_text()[-6000:] if log else ''}")


class Slurm:
    """munged, slurmctld and slurmd in a folder of their own; all that was started here, jobs included, is known by $SLURM_CONF and ends with `stop`."""

    def __init__(self, folder):
        self.folder, self.conf, self.daemons = folder, folder / "slurm.conf", []
        places = [str(folder / "bin"), str(BIN), os.environ["PATH"]]
        self.environment = os.environ | {"PATH": os.pathsep.join(places), "SLURM_CONF": str(self.conf)}

    def start(self):
        for name in ("state", "spool", "bin"):
            (self.folder / name).mkdir()
        # Snakemake's plugin takes $SLURM_CONF from the steps that it starts inside a job, as clusters have the file at its usual place.
        srun = self.folder / "bin" / "srun"
        srun.write_text(f'#!/bin/sh\nexport SLURM_CONF={self.conf}\nexec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        told = {
            "host": socket.gethostname().split(".")[0],
            "folder": self.folder,
            "cpus": os.cpu_count(),
            "controller": processes.free_port(),
            "node": processes.free_port(),
        }
        self.conf.write_text(CONF.format(**told))
        # A GPU counts if its device file is there; nothing opens it.
        (self.folder / "gres.conf").write_text("Name=gpu Type=h200 File=/dev/null\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        places = [f"--{name}-file={self.folder}/munge.{name}" for name in ("key", "log", "pid", "seed")]
        self._daemon("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *places)
        wait_for((self.folder / "munge.socket").exists, 20, self.folder / "munged.txt")
        self._daemon("slurmctld", "-D", "-f", self.conf)
        self._daemon("slurmd", "-D", "-f", self.conf)
        wait_for(
            lambda: self("sinfo", "--noheader", "--format=%T") == "idle", 60, self.folder / "slurmctld.txt"
        )

    def _daemon(self, *command):
        with open(self.folder / f"{command[0]}.txt", "w") as log:
            self.daemons.append(
                subprocess.Popen([str(c) for c in command], env=self.environment, stdout=log, stderr=log)
            )

    def __call__(self, *command):
        """What one of Slurm's commands prints."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30
        ).stdout.strip()

    def jobs(self):
        """Job number -> (state, what it asked for of each node, whether it shares the node), ended ones included."""
        lines = self("squeue", "--states=all", "--noheader", "--format=%i|%T|%b|%h").splitlines()
        return {int(number): about for number, *about in (line.split("|") for line in lines)}

    def stop(self):
        self("scancel", "--user=root")
        deadline = time.time() + 20
        while time.time() < deadline and self("squeue", "--noheader"):
            time.sleep(0.5)
        for process in reversed(self.daemons):
            process.terminate()
        psutil.wait_procs([psutil.Process(d.pid) for d in self.daemons if d.poll() is None], timeout=10)
        for process in self.left():
            process.kill()
        for process in self.daemons:
            process.wait(10)

    def left(self):
        """Processes that were started for this Slurm and still run."""
        found = []
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get("SLURM_CONF") == str(self.conf)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    found.append(process)
            except psutil.Error:
                pass
        return found


@pytest.fixture
def slurm():
    folder = Path(
        tempfile.mkdtemp(prefix="slurm-")
    )  # short: a socket's path may have about a hundred characters
    folder.chmod(0o755)
    cluster = Slurm(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        assert not cluster.left()
        shutil.rmtree(folder)


@pytest.fixture
def study(slurm, tmp_path):
    """The study of two runs, started through the profile as `make study PROFILE=slurm` does; its process and its log."""
    for run in RUNS:
        (ROOT / "logs" / f"{run}.ipynb").unlink(missing_ok=True)
    own = {
        "BENCH_RESULTS": tmp_path,
        "BENCH_SITE": tmp_path / "_site",
        "BENCH_FIGURES": tmp_path / "figures",
        "FAKE_OPTIONS": " ".join(OPTIONS),
        "GRES": "gpu:h200:1",
    }
    # No accounting on this Slurm, and no hour to wait between two looks at the queue.
    here = "--slurm-no-account --slurm-status-command squeue --slurm-init-seconds-before-status-checks 2"
    command = f"snakemake --workflow-profile profiles/slurm {here} --seconds-between-status-checks 2"
    command += " --config engines=fake repeats=1 experiments=latency all=1 -- measure"
    log = tmp_path / "log.txt"
    with open(log, "w") as words:
        process = subprocess.Popen(
            command.split(),
            cwd=ROOT,
            env=slurm.environment | {k: str(v) for k, v in own.items()},
            stdout=words,
            stderr=words,
        )
    yield process, log
    if process.poll() is None:
        process.kill()
        process.wait(10)


def spans(folder):
    """(start, end) of every run, in order."""
    abouts = [json.loads((folder / f"{run}.json").read_text()) for run in RUNS]
    return sorted((datetime.fromisoformat(a["started"]), datetime.fromisoformat(a["ended"])) for a in abouts)


def test_a_killed_run_is_submitted_again_and_no_two_overlap(slurm, study, tmp_path):
    process, log = study
    wait_for(
        lambda: process.poll() is not None or any((ROOT / "logs" / f"{run}.ipynb").exists() for run in RUNS),
        120,
        log,
    )
    assert process.poll() is None, log.read_text()
    time.sleep(2)  # into the middle of the measurement
    running = [number for number, (state, *_) in slurm.jobs().items() if state == "RUNNING"]
    assert len(running) == 1 and "PENDING" in [state for state, *_ in slurm.jobs().values()]
    assert f"CPUs={os.cpu_count()} " in slurm("scontrol", "show", "step", f"{running[0]}.0"), (
        "the run has not all cores"
    )
    slurm("scancel", str(running[0]))
    at_once = []
    wait_for(
        lambda: (
            at_once.append([s for s, *_ in slurm.jobs().values()].count("RUNNING"))
            or process.poll() is not None
        ),
        300,
        log,
    )
    jobs = slurm.jobs()
    print(*jobs.items(), log.read_text(), sep="\n")
    assert process.returncode == 0, log.read_text()
    # With all=1 the roofs of the device are a job as well.
    states = sorted(state for state, *_ in jobs.values())
    assert max(at_once) == 1 and states == ["CANCELLED", *["COMPLETED"] * (len(RUNS) + 1)]
    assert jobs[running[0]][0] == "CANCELLED"
    assert all("gpu:h200:1" in asked and shares == "NO" for _, asked, shares in jobs.values()), jobs
    assert all(
        (tmp_path / f"{run}{suffix}").exists() for run in RUNS for suffix in (".csv", ".json", ".ipynb")
    )
    (_, end), (start, _) = spans(tmp_path)
    assert end <= start
