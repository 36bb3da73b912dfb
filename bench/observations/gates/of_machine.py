"""Gates of what happened around a run, as its sidecar has it: a function of `Runs` each."""

from bench.observations.gates import limits


def warm(runs):
    """Refuse a run whose GPU went on changing its clocks, or its times, up to the last warm-up request."""
    found = {}
    for file, sidecar in enumerate(runs.sidecars):
        warmup = sidecar.get("warmup", [])
        if len(warmup) == limits.WARMUPS and not limits.settled(warmup):
            found[file] = (
                f"The warm-up had not settled: after {limits.WARMUPS} requests the last two still differ by "
                f"more than {limits.SETTLED:.0%} in time or clock: {warmup[-2:]}."
            )
    return found


def minds_company(sidecar, experiment):
    """Whether other processes would be in the run's times: scores are no times, and a server that ran already
    is one of the others."""
    return experiment != "quality" and not sidecar.get("parameters", {}).get("url")


def of_company(judge):
    """The gate that asks `judge(busy_cores)` for a sentence of every run that `minds_company`."""

    def gate(runs):
        return {
            file: sentence
            for file, sidecar in enumerate(runs.sidecars)
            if minds_company(sidecar, runs.experiments[file])
            and (sentence := judge(sidecar.get("busy_cores", {})))
        }

    return gate


def alone(busy):
    """A benchmark that shares its machine is void."""
    others = busy.get("others") or 0
    return others > limits.BUSY_CORES and (
        f"Other processes kept {others:.2f} cores busy during this run (allowed: {limits.BUSY_CORES}). "
        "Leave the machine idle and measure again."
    )


def not_stolen(busy):
    steal = busy.get("steal") or 0
    return steal > limits.STEAL_CORES and (
        f"The hypervisor gave {steal:.2f} of this machine's cores to other virtual machines during this run "
        f"(allowed: {limits.STEAL_CORES}). Measure again at another time, or on a machine that is not shared."
    )


def unthrottled(busy):
    throttled = busy.get("throttled") or 0
    return throttled > limits.THROTTLED_SHARE and (
        f"The container's CPU quota held this run's threads back for {throttled:.0%} of its time. Give the "
        "container whole cores, or as many threads as its quota has: -p threads."
    )


def clocks(sidecar):
    """(clock of the GPU in the last warm-up request, after the run) in MHz; None where none was reported."""
    warm = next((r["clocks.sm"] for r in reversed(sidecar.get("warmup", [])) if r.get("clocks.sm")), None)
    return warm, sidecar.get("machine", {}).get("gpu_after", {}).get("clocks.sm")


def steady_clock(runs):
    """Refuse a run during which a GPU's clock drifted or was throttled; nothing where none was reported."""
    found = {}
    for file, (warm, after) in enumerate(map(clocks, runs.sidecars)):
        if warm and after and abs(after - warm) > limits.CLOCK_DRIFT * warm:
            found[file] = (
                f"The GPU's clock went from {warm:.0f} to {after:.0f} MHz during this run, more than "
                f"{limits.CLOCK_DRIFT:.0%}. Let it cool, or fix its clocks (nvidia-smi --lock-gpu-clocks), "
                "and measure again."
            )
    return found


def difference(git):
    """Files of the instrument that differ from the revision, adapters apart; None where nobody looked."""
    if "uncommitted" in git:
        return [file for file in git["uncommitted"] if not is_adapter(file)]
    return [] if git.get("dirty") is False else None


def committed(sidecar):
    """Refuse a run of an instrument that differs from its revision; an adapter may, and is marked so.

    Called where a run goes into the repository's own observations.
    """
    if sentence := _differs(sidecar):
        raise limits.Refused(sentence)


def _differs(sidecar):
    changed = difference(sidecar.get("git", {}))
    if not changed:
        return ""
    more = " and more" if len(changed) > 3 else ""
    return (
        f"The instrument differs from its revision: {', '.join(changed[:3])}{more}. Commit the change before "
        "measuring, or measure into a folder of your own: -p results scratch."
    )


def of_revision(runs):
    """Refuse, of the repository's own observations, a run whose instrument differs from its revision."""
    return {
        file: sentence
        for file, sidecar in enumerate(runs.sidecars)
        if file in runs.published and (sentence := _differs(sidecar))
    }


def is_adapter(file):
    """Whether `file`, relative to the repository, is one engine's adapter."""
    return file.startswith("bench/backends/") and file.count("/") == 2 and not file.endswith("__init__.py")
