"""What `mutation_run.py` starts for one module: pytest, whose loop runs tests against mutants.

`python tests/mutation_loop.py MODULE OUT EVERY AGAIN` in a copy of the checkout; AGAIN 1: the survivors alone.
"""

import csv
import gc
import os
import select
import signal
import sys
import time
from pathlib import Path

import mutation_patch
import mutations
import pytest
from _pytest import runner

from bench.analysis import mutation

SLOWEST_S = 1.0  # slower tests are left out where a function has quicker ones
ENOUGH_S = 30.0  # of tests per mutant
ELSEWHERE = {"_Process.__init__"}  # where a process with the module begins
UNSTEADY_S = 0.2  # a test that takes longer, or measures time, must fail twice


class Bottom:
    """In place of a next test: what lives as long as the session is kept, the rest is torn down."""

    def __init__(self, session):
        self.session = session

    def listchain(self):
        return [self.session]


class Loop:
    """A pytest plugin: instead of running the tests once it runs them for every mutant of `module`."""

    def __init__(self, module, out, every, again):
        self.module, self.out, self.every, self.file = module, out, every, Path(module).resolve()
        self.again = again
        self.took, self.cost, self.entered = {}, {}, {}

    def pytest_runtestloop(self, session):
        self.session, self.items = session, list(session.items)
        gc.collect()
        gc.freeze()  # what is there is not looked through again in every process
        self._baseline()
        source = self.file.read_text()
        mutants = self._mutants(source)
        with open(self.out, "w", newline="") as file:
            writer = csv.DictWriter(file, mutation.MUTANT)
            writer.writeheader()
            for n, mutant in enumerate(mutants):
                outcome, test = self._outcome(mutant)
                writer.writerow(mutant.row() | {"outcome": outcome, "test": test})
                if n % 50 == 0:
                    print(f"{self.module} {n}/{len(mutants)} {time.strftime('%X')}", file=sys.__stderr__)
                self.file.write_text(source)
        return True

    def _mutants(self, source):
        """Every `every`-th mutant, of all or of those that survived."""
        found = list(mutations.mutants(source))
        if self.again:
            lived = mutation.survivors().query("module == @self.module")[["function", "before", "after"]]
            keys = set(lived.itertuples(index=False, name=None))
            found = [each for each in found if (each.function, each.before, each.after) in keys]
        return found[:: self.every]

    def _baseline(self):
        """How long each test takes unbroken, and which functions of the module it enters."""
        good = []
        for item in self.items:
            seen, name = set(), str(self.file)

            def look(frame, event, value):
                if frame.f_code.co_filename == name:
                    seen.add(frame.f_code.co_qualname.partition(".<locals>")[0])

            begun, spent = time.monotonic(), time.process_time()
            mutation_patch.trace(look)
            reports = runner.runtestprotocol(item, log=False, nextitem=Bottom(self.session))
            mutation_patch.trace(None)
            if any(report.failed for report in reports):
                print(f"left out, it fails unbroken: {item.nodeid}", file=sys.__stderr__)
                continue
            good.append(item)
            took = self.took[item] = time.monotonic() - begun
            self.cost[item], self.entered[item] = max(time.process_time() - spent, took / 4), seen
        self.items = sorted(good, key=self.cost.get)

    def _tests(self, mutant):
        """The tests that bear on a mutant: those that enter its function."""
        if mutant.function:
            chosen = [item for item in self.items if mutant.function in self.entered[item]]
        else:
            chosen = self.items
        if not chosen:  # another process may enter it
            chosen = [item for item in self.items if ELSEWHERE & self.entered[item]]
        chosen = sorted(chosen, key=lambda item: len(self.entered[item]))  # what tests little else first
        quick = [item for item in chosen if self.cost[item] < SLOWEST_S] or chosen[:3]
        total, kept = 0.0, []
        for item in quick:
            total += self.cost[item]
            if kept and total > ENOUGH_S:
                break
            kept.append(item)
        return kept

    def _outcome(self, mutant):
        """(outcome, test that killed it)."""
        tests, first = self._tests(mutant), 0
        while first < len(tests):
            outcome, at = self._run(mutant, tests[first:])
            if outcome in (mutation.SURVIVED, mutation.INVALID):
                return outcome, ""
            killer = tests[first + at]
            steady = self.cost[killer] < UNSTEADY_S and not killer.get_closest_marker("timing")
            if steady or self._run(mutant, [killer])[0] != mutation.SURVIVED:
                return outcome, killer.nodeid
            first += at + 1
        return mutation.SURVIVED, ""

    def _run(self, mutant, tests):
        """(outcome, place of the test that killed it) of one process with the mutant."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            self._child(mutant, tests, writing)
        os.close(writing)
        try:
            return self._watch(reading, tests)
        finally:
            for kill in (os.killpg, os.kill):
                try:
                    kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            os.waitpid(pid, 0)
            os.close(reading)

    def _watch(self, reading, tests):
        """Follow a child's tests: it writes a letter per test."""
        for n, item in enumerate(tests):
            ready, _, _ = select.select([reading], [], [], 4 * self.took[item] + 3 + (3 if n == 0 else 0))
            if not ready:
                return mutation.TIMEOUT, n
            letter = os.read(reading, 1)
            if letter == b"i":
                return mutation.INVALID, n
            if letter != b".":
                return mutation.KILLED, n
        return mutation.SURVIVED, None

    def _child(self, mutant, tests, writing):
        os.setsid()
        hole = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(hole, number)
        try:
            self.file.write_text(mutant.source)
            mutation_patch.put(self.module, mutant.source)
        except SyntaxError:
            os.write(writing, b"i")
            os._exit(0)
        except BaseException:
            os.write(writing, b"x")
            os._exit(1)
        for item in tests:
            reports = runner.runtestprotocol(item, log=False, nextitem=Bottom(self.session))
            failed = any(report.failed for report in reports)
            os.write(writing, b"x" if failed else b".")
            if failed:
                os._exit(1)
        os._exit(0)


def main(module, out, every, again="0"):
    # What is told apart by hand from a pattern of names: proofs that are committed do not hold for mutants.
    arguments = ["-p", "no:cacheprovider", "-p", "no:randomly", "-q", "-x", "-m", "not check or mutants"]
    arguments += ["--assert=plain", "--tb=native"]  # nobody reads why a test fails
    arguments += ["-k", "not committed_proof and not committed_mutation"]
    pytest.main([*arguments, *mutation.TESTS[module]], plugins=[Loop(module, out, int(every), again == "1")])


if __name__ == "__main__":
    main(*sys.argv[1:])
