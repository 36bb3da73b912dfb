"""One command of a list: run until a moment, and nothing that it started stays."""

import json
import subprocess
import time
from pathlib import Path

import psutil

from bench import files, processes
from bench.machine import neighbours
from bench.paths import ROOT

LOOK_S = 0.1
NOTE_S = 2.0  # between two notes of what is running
SAME_S = 1.0  # a process that began at another time bears the number of one that has ended


def call(command, end, log, note):
    """(exit status, last words) of a command; status None where the moment `end` (time.monotonic) came first.

    What it prints goes to the file `log`. The file `note` has the processes that run, for `end_noted` of the
    next call: this one may be ended by force.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as words:
        before, noted = neighbours.descendants(), -NOTE_S
        child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=words, stderr=words)
        while child.poll() is None and time.monotonic() < end:
            if time.monotonic() - noted > NOTE_S:
                noted = time.monotonic()
                _note(note, [one for one in neighbours.descendants() if one not in before])
            time.sleep(LOOK_S)
    code = child.poll()
    neighbours.end_descendants(spare=before)
    child.wait()
    Path(note).unlink(missing_ok=True)
    return code, "" if code is None else processes.last_words(log)


def _note(file, running):
    born = []
    for one in running:
        try:
            born.append((one.pid, one.create_time()))
        except psutil.Error:
            pass  # it has just ended
    files.write_whole(file, json.dumps(born))


def end_noted(file):
    """End what an earlier `call` left behind when it was ended by force; returns how many processes.

    An engine's worker may outlive whoever started it, with the GPU's memory in its hands: every step after it
    would be refused for sharing the GPU.
    """
    left = []
    for pid, born in json.loads(file.read_text()) if file.exists() else ():
        try:
            one = psutil.Process(pid)
            if abs(one.create_time() - born) < SAME_S:
                one.kill()
                left.append(one)
        except psutil.Error:
            pass  # gone, as it should be
    psutil.wait_procs(left, neighbours.END_S)
    file.unlink(missing_ok=True)
    return len(left)
