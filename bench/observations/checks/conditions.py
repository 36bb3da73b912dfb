"""Checks of what happened around a run, as its sidecar has it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from bench.observations import schema
from bench.observations.checks.declaration import Check, Rejected, Run, check_each
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

# --- the GPU's warm-up and clock ---------------------------------------------------------------------------

WARMUPS = 20  # on a GPU: warm-up requests at most
SETTLED = 0.03  # how far time and clock of two warm-up requests in a row may be apart once a GPU has settled


def settled(warmup: Sequence[Fields]) -> bool:
    """Whether the last two warm-up requests took the same time at the same clock, within SETTLED.

    `warmup`: dicts with e2e_s and, where there is a GPU, clocks.sm in MHz.
    """
    if len(warmup) < 2:
        return False
    for name in ("e2e_s", "clocks.sm"):
        before: Any = warmup[-2].get(name)
        last: Any = warmup[-1].get(name)
        if before is None or last is None:
            continue
        if abs(before - last) > SETTLED * max(before, last):
            return False
    return True


def on_gpu(run: Run) -> bool:
    """Whether a run used a GPU."""
    return not naming.is_cpu(run.gpu)


@check_each(
    "the GPU's warm-up had settled", needs=lambda run: len(run.sidecar.get("warmup", [])) > 1, concerns=on_gpu
)
def warm(run: Run) -> str:
    """Reject a run whose GPU went on changing its clocks, or its times, up to the last warm-up request."""
    warmup = run.sidecar.get("warmup", [])
    if len(warmup) != WARMUPS or settled(warmup):
        return ""
    return (
        f"The warm-up had not settled: after {WARMUPS} requests the last two still differ by "
        f"more than {SETTLED:.0%} in time or clock: {warmup[-2:]}."
    )


CLOCK_DRIFT = 0.1  # how far a GPU's clock after a run may be from the one before


def clocks(sidecar: Fields) -> tuple[float | None, float | None]:
    """(clock of the GPU in the last warm-up request, after the run) in MHz; None where none was reported."""
    warm = next((r["clocks.sm"] for r in reversed(sidecar.get("warmup", [])) if r.get("clocks.sm")), None)
    return warm, sidecar.get("machine", {}).get("gpu_after", {}).get("clocks.sm")


def is_marked(run: Run) -> bool:
    """Whether a run says itself that it shared its machine, and is none of the published ones."""
    return "shared" in run.sidecar and not run.published


@check_each(
    "the GPU's clock was steady",
    concerns=on_gpu,
    unless=is_marked,
    needs=lambda run: None not in clocks(run.sidecar),
)
def steady_clock(run: Run) -> str:
    """Reject a run during which a GPU's clock drifted or was throttled, and that does not say so itself."""
    before, after = clocks(run.sidecar)
    if not (before and after and abs(after - before) > CLOCK_DRIFT * before):
        return ""
    return (
        f"The GPU's clock went from {before:.0f} to {after:.0f} MHz during this run, more than "
        f"{CLOCK_DRIFT:.0%}. Let it cool, or fix its clocks (nvidia-smi --lock-gpu-clocks), "
        "and measure again."
    )


# --- who else used the machine ----------------------------------------------------------------------------

# Cores that other processes may keep busy in one look of half a second before a run begins: a second job is
# seen, and a service that wakes is let pass.
BUSY_CORES = 0.5
# Share of a run's cores that other processes may keep busy in the mean over the run. On two idle cores it is
# 0.9 % (median of the committed runs, 2.7 % in 98 % of them), and rates fall with it long before a quarter of
# the machine is gone, which half a core of two would be.
BUSY_SHARE = 0.03
# Mean number of cores that the hypervisor may give to other virtual machines during a run, and the share of
# its time that a container's quota may hold the run's threads back.
STEAL_CORES = 0.1
THROTTLED_SHARE = 0.01
COUNTERS = "others", "steal"


def minds_contention(run: Run) -> bool:
    """Whether other processes would be in the run's times: scores are no times, and a server that ran already
    is one of the others."""
    return run.is_timed and not run.sidecar.get("parameters", {}).get("url")


def _cores(run: Run, name: str) -> float:
    """The counter `name`, 0 where it has no value: what was not counted is `uncounted`."""
    value: Any = run.sidecar.get("busy_cores", {}).get(name)
    return value if type(value) in (int, float) else 0


def threads(run: Run) -> int:
    """Return the threads of a run, of whose cores others may use a share."""
    return run.sidecar.get("threads") or 1


def contention(counter: str, name: str, most: Callable[[Run], float], sentence: str) -> Check:
    """Return the check `name`: what `busy_cores` counts as `counter` is at most `most`.

    `sentence` has places for value, most and threads. It rejects no run that says itself that it shared its
    machine, and none that does not mind.
    """

    def crowded(run: Run) -> str:
        value, limit = _cores(run, counter), most(run)
        if value <= limit:
            return ""
        return sentence.format(value=value, most=limit, threads=threads(run))

    declare = check_each(
        name,
        concerns=minds_contention,
        unless=lambda run: is_marked(run) or not minds_contention(run),
        fields=[f"busy_cores.{counter}"],
    )
    return declare(crowded)


alone = contention(
    "others",
    "no neighbours on the processor",
    lambda run: BUSY_SHARE * threads(run),
    f"Other processes kept {{value:.2f}} cores busy during this run (allowed: {BUSY_SHARE:.0%} of its "
    "{threads}). Leave the machine idle and measure again.",
)
not_stolen = contention(
    "steal",
    "no cores stolen by other virtual machines",
    lambda run: STEAL_CORES,
    "The hypervisor gave {value:.2f} of this machine's cores to other virtual machines during this run "
    "(allowed: {most}). Measure again at another time, or on a machine that is not shared.",
)
unthrottled = contention(
    "throttled",
    "no threads held back by a quota",
    lambda run: THROTTLED_SHARE,
    "The container's CPU quota held this run's threads back for {value:.0%} of its time. Give the container "
    "whole cores, or as many threads as its quota has: -p threads.",
)


def sharing(sidecar: Fields, experiment: str) -> Fields:
    """Return how a run shared its machine: `shared`, the sentence of the first check that it fails, and
    `shared_by`, the same in a few words; empty where it had the machine to itself, or nobody minds."""
    run = Run(experiment, sidecar)
    if not minds_contention(run):
        return {}
    others, steal = (f"{_cores(run, name) / threads(run):.0%}" for name in COUNTERS)
    reasons = {
        f"others used {others} of the CPU": alone,
        f"other virtual machines used {steal} of the CPU": not_stolen,
        f"a quota held it back for {_cores(run, 'throttled'):.0%} of the time": unthrottled,
        "the GPU's clock changed meanwhile": steady_clock,
    }
    for words, declared in reasons.items():
        if why := declared.sentence(run):
            return {"shared": why, "shared_by": words}
    return {}


def uncounted(run: Run) -> str:
    """Return why nobody knows who else used the machine, in a sentence; empty where it was counted, or does
    not matter."""
    busy = run.sidecar.get("busy_cores") or {}
    lacking = []
    for name in COUNTERS:
        value: Any = busy.get(name)
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            lacking.append(name)
    if not lacking or not minds_contention(run):
        return ""
    return (
        f"busy_cores has no value of {' and '.join(lacking)}: nobody knows who else used the machine during "
        "this run. Measure it with the notebook, which counts them."
    )


@check_each(
    "others on the machine were counted",
    concerns=minds_contention,
    needs=lambda run: (
        is_of_layout(run.sidecar, "order")
        or None not in map(run.field, ("busy_cores.others", "busy_cores.steal"))
    ),
)
def counted(run: Run) -> str:
    """Reject a run of a layout of today that does not say who else used the machine."""
    return uncounted(run) if is_of_layout(run.sidecar, "order") else ""


def needs_probes(run: Run) -> bool:
    """Whether a run publishes rates of a processor of this machine, whose memory bounds them."""
    return naming.is_cpu(run.gpu) and minds_contention(run)


@check_each("the memory was probed beside it", concerns=needs_probes)
def probed(run: Run) -> str:
    """Reject a run on a processor that publishes rates without one probe of its memory."""
    probes = run.sidecar.get("bandwidth_probes_bytes_per_s") or []
    if not needs_probes(run) or any(probe > 0 for probe in probes):
        return ""
    return (
        "No probe of the memory's bandwidth lies beside this run, so nothing bounds what it says: on a "
        "processor the probes before, between and after its requests are part of it."
    )


# --- the instrument's revision ----------------------------------------------------------------------------


def is_adapter(file: str) -> bool:
    """Whether `file`, relative to the repository, is one engine's adapter."""
    return file.startswith("bench/backends/") and file.count("/") == 2 and not file.endswith("__init__.py")


def difference(git: Fields) -> list[str] | None:
    """Files of the instrument that differ from the revision, adapters apart; None where nobody looked."""
    if "uncommitted" in git:
        return [file for file in git["uncommitted"] if not is_adapter(file)]
    return [] if git.get("dirty") is False else None


def committed(sidecar: Fields) -> None:
    """Reject a run of an instrument that differs from its revision; an adapter may, and is marked so.

    Called where a run goes into the repository's own observations.
    """
    if sentence := _differs(sidecar):
        raise Rejected(sentence)


def _differs(sidecar: Fields) -> str:
    changed = difference(sidecar.get("git", {}))
    if not changed:
        return ""
    more = " and more" if len(changed) > 3 else ""
    return (
        f"The instrument differs from its revision: {', '.join(changed[:3])}{more}. Commit the change before "
        "measuring, or measure into a folder of your own: -p results scratch."
    )


@check_each(
    "the instrument was its revision",
    concerns=lambda run: run.published,
    needs=lambda run: difference(run.sidecar.get("git", {})) is not None,
)
def of_revision(run: Run) -> str:
    """Reject, of the repository's own observations, a run whose instrument differs from its revision."""
    return _differs(run.sidecar) if run.published else ""


# --- the engine's tokens, the study's order, the server's counters ----------------------------------------

VERDICTS = "same tokens", "near ties", "likely", "not judged"  # with which a run may be measured


@check_each("the engine's tokens are the model's", needs=lambda run: judged(run.sidecar))
def right_tokens(run: Run) -> str:
    """Reject a run whose engine gave other tokens than the model's, and one of a layout that has the result
    of that check (`bench.experiments.judge`) without it."""
    if not is_of_layout(run.sidecar, "judge"):
        return ""
    entry = _verdict(run.sidecar)
    verdict, why = entry.get("verdict"), entry.get("why")
    if verdict == "refused":
        return f"The engine's tokens are not the model's. {why}"
    if verdict not in VERDICTS or (verdict == "not judged" and not why):
        return (
            "The sidecar's layout states what the judge found in the engine's tokens, and this one says "
            f"{entry or None!r}: measure with the notebooks, which judge the engine first."
        )
    return ""


def is_of_layout(sidecar: Fields, name: str) -> bool:
    """Whether the layout that a sidecar claims has the field `name`."""
    layouts = range(schema.SIDECAR_SINCE[name], schema.LAYOUT + 1)
    return name in sidecar or sidecar.get("layout") in layouts


def judged(sidecar: Fields) -> bool:
    """Whether somebody has compared the engine's tokens with the reference's."""
    return _verdict(sidecar).get("verdict") not in (None, "not judged")


def _verdict(sidecar: Fields) -> Fields:
    entry = sidecar.get("judge")
    return entry if isinstance(entry, dict) else {}


@check_each("the place in the study's order is stated", needs=lambda run: is_of_layout(run.sidecar, "order"))
def in_order(run: Run) -> str:
    """Reject a run of a layout that states its place in the order of its study and does not state it: with
    the seed that another could draw the order from again, or that a person began it."""
    sidecar = run.sidecar
    layout = sidecar.get("layout", schema.LAYOUT)
    if type(layout) is not int or not 1 <= layout <= schema.LAYOUT:
        return f"The sidecar claims layout {layout!r}, and the newest here is {schema.LAYOUT}."
    if not is_of_layout(sidecar, "order"):
        return ""
    order = sidecar.get("order")
    order = order if isinstance(order, dict) else {}
    numbers: list[Any] = [order.get(name) for name in ("seed", "round", "place")]
    by_hand = order.get("by") == "hand" and numbers == [None] * 3
    of_study = order.get("by") == "study" and all(type(number) is int and number >= 0 for number in numbers)
    if by_hand or (of_study and min(numbers[1:]) > 0):
        return ""
    return (
        "The sidecar's layout states the seed of the order in which a study measured, the round and the "
        f"place in it, and this one says {sidecar.get('order')!r}: measure with make study, or by hand with "
        "papermill, which both note it."
    )


def disagreement(found: dict) -> str:
    """Why the server's counters refuse a level, in a sentence; empty where they agree or say nothing.

    `found`: an entry of the sidecar's `counters`, differences over the level beside the sums of its rows.
    """
    if "why" in found:
        return ""
    for name in ("prompt_tokens", "cached_tokens"):
        counted, rows = found[name], found[f"rows_{name}"]
        if not rows <= counted <= rows + found["cut_tokens"]:
            words = name.replace("_", " ")
            return (
                f"The server counted {counted:.0f} {words} where the rows have {rows:.0f} and turns that "
                f"were cut at most {found['cut_tokens']:.0f} more: another client was there, or one of the "
                "two counts wrong. Give the run a server of its own."
            )
    return ""


@check_each(
    "the server's counters are the sum of the rows",
    concerns=lambda run: "session" in run.columns,
    needs=lambda run: any("why" not in level for level in run.sidecar.get("counters", [])),
)
def counted_alike(run: Run) -> str:
    """Reject a run of whose prompt tokens, or cached ones, the server counted others than the rows have."""
    for level in run.sidecar.get("counters", []):
        if why := disagreement(level):
            return why
    return ""
