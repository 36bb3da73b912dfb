"""Gates of what happened around a run, as its sidecar has it: a function of `Runs` each."""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

from bench.observations import schema
from bench.observations.gates import limits
from bench.observations.gates.measurements import Runs
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

Judge = Callable[[Fields], str]  # a sidecar in, the sentence that refuses its run out


def of_each(judge: Judge) -> Callable[[Runs], dict[int, str]]:
    """Decorator: the gate that asks `judge` for a sentence of every run, by its sidecar alone."""

    @functools.wraps(judge)
    def gate(runs: Runs) -> dict[int, str]:
        each = enumerate(map(judge, runs.sidecars))
        return {file: sentence for file, sentence in each if sentence}

    return gate


@of_each
def warm(sidecar: Fields) -> str:
    """Refuse a run whose GPU went on changing its clocks, or its times, up to the last warm-up request."""
    warmup = sidecar.get("warmup", [])
    if len(warmup) != limits.WARMUPS or limits.settled(warmup):
        return ""
    return (
        f"The warm-up had not settled: after {limits.WARMUPS} requests the last two still differ by "
        f"more than {limits.SETTLED:.0%} in time or clock: {warmup[-2:]}."
    )


def minds_contention(sidecar: Fields, experiment: str) -> bool:
    """Whether other processes would be in the run's times: scores are no times, and a server that ran already
    is one of the others."""
    return experiment not in schema.UNTIMED and not sidecar.get("parameters", {}).get("url")


def of_contention(judge: Callable[..., str | Literal[False]]) -> Callable[[Runs], dict[int, str]]:
    """The gate that asks `judge(busy_cores, threads)` for a sentence of every run that `minds_contention`.

    A run that says itself that it was `shared` passes, but among the published runs.
    """

    def gate(runs: Runs) -> dict[int, str]:
        return {
            file: sentence
            for file, sidecar in enumerate(runs.sidecars)
            if minds_contention(sidecar, runs.experiments[file])
            and not is_marked(runs, file)
            and (sentence := judge(sidecar.get("busy_cores", {}), sidecar.get("threads") or 1))
        }

    return gate


def is_marked(runs: Runs, file: int) -> bool:
    """Whether a run says itself that it shared its machine, and is none of the published ones."""
    return "shared" in runs.sidecars[file] and file not in runs.published


def sharing(sidecar: Fields, experiment: str) -> Fields:
    """How a run shared its machine: `shared`, the sentence of the first check that it fails, and `shared_by`,
    the same in a few words; empty where it had the machine to itself, or nobody minds."""
    if not minds_contention(sidecar, experiment):
        return {}
    busy, threads = sidecar.get("busy_cores", {}), sidecar.get("threads") or 1
    reasons = (
        (alone(busy, threads), f"others used {_cores(busy, 'others') / threads:.0%} of the CPU"),
        (
            not_stolen(busy),
            f"other virtual machines used {_cores(busy, 'steal') / threads:.0%} of the CPU",
        ),
        (unthrottled(busy), f"a quota held it back for {_cores(busy, 'throttled'):.0%} of the time"),
        (_clock_drift(sidecar), "the GPU's clock changed meanwhile"),
    )
    return next(({"shared": why, "shared_by": words} for why, words in reasons if why), {})


def _cores(busy: Fields, name: str) -> float:
    """The counter `name`, 0 where it has no value: what was not counted is `uncounted`."""
    value: Any = busy.get(name)
    return value if type(value) in (int, float) else 0


def alone(busy: Fields, threads: int = 1) -> str | Literal[False]:
    """A benchmark that shares its machine is void."""
    others = _cores(busy, "others")
    return others > limits.BUSY_SHARE * threads and (
        f"Other processes kept {others:.2f} cores busy during this run (allowed: {limits.BUSY_SHARE:.0%} of "
        f"its {threads}). Leave the machine idle and measure again."
    )


def not_stolen(busy: Fields, threads: int | None = None) -> str | Literal[False]:
    steal = _cores(busy, "steal")
    return steal > limits.STEAL_CORES and (
        f"The hypervisor gave {steal:.2f} of this machine's cores to other virtual machines during this run "
        f"(allowed: {limits.STEAL_CORES}). Measure again at another time, or on a machine that is not shared."
    )


def unthrottled(busy: Fields, threads: int | None = None) -> str | Literal[False]:
    throttled = _cores(busy, "throttled")
    return throttled > limits.THROTTLED_SHARE and (
        f"The container's CPU quota held this run's threads back for {throttled:.0%} of its time. Give the "
        "container whole cores, or as many threads as its quota has: -p threads."
    )


COUNTERS = ("others", "steal")


def uncounted(sidecar: Fields, experiment: str) -> str:
    """Why nobody knows who else used the machine, in a sentence; empty where it was counted, or does not
    matter."""
    busy = sidecar.get("busy_cores") or {}
    values: Fields = {name: busy.get(name) for name in COUNTERS}
    lacking = [
        name for name, value in values.items() if type(value) not in (int, float) or not 0 <= value < math.inf
    ]
    if not lacking or not minds_contention(sidecar, experiment):
        return ""
    return (
        f"busy_cores has no value of {' and '.join(lacking)}: nobody knows who else used the machine during "
        "this run. Measure it with the notebook, which counts them."
    )


def counted(runs: Runs) -> dict[int, str]:
    """Refuse a run of a layout of today that does not say who else used the machine."""
    return {
        file: sentence
        for file, sidecar in enumerate(runs.sidecars)
        if has_order(sidecar) and (sentence := uncounted(sidecar, runs.experiments[file]))
    }


def needs_probes(sidecar: Fields, experiment: str, gpu: str) -> bool:
    """Whether a run publishes rates of a processor of this machine, whose memory bounds them."""
    return naming.is_cpu(gpu) and minds_contention(sidecar, experiment)


def probed(runs: Runs) -> dict[int, str]:
    """Refuse a run on a processor that publishes rates without one probe of its memory."""
    gpus = runs.rows.drop_duplicates("file").set_index("file")["gpu"]
    return {
        file: "No probe of the memory's bandwidth lies beside this run, so nothing bounds what it says: on a "
        "processor the probes before, between and after its requests are part of it."
        for file, sidecar in enumerate(runs.sidecars)
        if needs_probes(sidecar, runs.experiments[file], gpus[file])
        and not any(probe > 0 for probe in sidecar.get("bandwidth_probes_bytes_per_s") or [])
    }


def clocks(sidecar: Fields) -> tuple[float | None, float | None]:
    """(clock of the GPU in the last warm-up request, after the run) in MHz; None where none was reported."""
    warm = next((r["clocks.sm"] for r in reversed(sidecar.get("warmup", [])) if r.get("clocks.sm")), None)
    return warm, sidecar.get("machine", {}).get("gpu_after", {}).get("clocks.sm")


def steady_clock(runs: Runs) -> dict[int, str]:
    """Refuse a run during which a GPU's clock drifted or was throttled, and that does not say so itself;
    nothing where none was reported."""
    each = {file: _clock_drift(sidecar) for file, sidecar in enumerate(runs.sidecars)}
    return {file: sentence for file, sentence in each.items() if sentence and not is_marked(runs, file)}


def _clock_drift(sidecar: Fields) -> str:
    warm, after = clocks(sidecar)
    if not (warm and after and abs(after - warm) > limits.CLOCK_DRIFT * warm):
        return ""
    return (
        f"The GPU's clock went from {warm:.0f} to {after:.0f} MHz during this run, more than "
        f"{limits.CLOCK_DRIFT:.0%}. Let it cool, or fix its clocks (nvidia-smi --lock-gpu-clocks), "
        "and measure again."
    )


def difference(git: Fields) -> list[str] | None:
    """Files of the instrument that differ from the revision, adapters apart; None where nobody looked."""
    if "uncommitted" in git:
        return [file for file in git["uncommitted"] if not is_adapter(file)]
    return [] if git.get("dirty") is False else None


def committed(sidecar: Fields) -> None:
    """Refuse a run of an instrument that differs from its revision; an adapter may, and is marked so.

    Called where a run goes into the repository's own observations.
    """
    if sentence := _differs(sidecar):
        raise limits.Refused(sentence)


def _differs(sidecar: Fields) -> str:
    changed = difference(sidecar.get("git", {}))
    if not changed:
        return ""
    more = " and more" if len(changed) > 3 else ""
    return (
        f"The instrument differs from its revision: {', '.join(changed[:3])}{more}. Commit the change before "
        "measuring, or measure into a folder of your own: -p results scratch."
    )


def of_revision(runs: Runs) -> dict[int, str]:
    """Refuse, of the repository's own observations, a run whose instrument differs from its revision."""
    return {
        file: sentence
        for file, sidecar in enumerate(runs.sidecars)
        if file in runs.published and (sentence := _differs(sidecar))
    }


VERDICTS = "same tokens", "near ties", "likely", "not judged"  # with which a run may be measured


@of_each
def right_tokens(sidecar: Fields) -> str:
    """Refuse a run whose engine gave other tokens than the model's, and one of a layout that has the verdict
    on them (`bench.experiments.judge`) without it."""
    if not has_verdict(sidecar):
        return ""
    entry = _verdict(sidecar)
    verdict, why = entry.get("verdict"), entry.get("why")
    if verdict == "refused":
        return f"The engine's tokens are not the model's. {why}"
    if verdict not in VERDICTS or (verdict == "not judged" and not why):
        return (
            "The sidecar's layout states what the judge found in the engine's tokens, and this one says "
            f"{entry or None!r}: measure with the notebooks, which judge the engine first."
        )
    return ""


def has_verdict(sidecar: Fields) -> bool:
    """Whether the layout that a sidecar claims has the verdict on the engine's tokens."""
    return "judge" in sidecar or sidecar.get("layout") in range(
        schema.SIDECAR_SINCE["judge"], schema.LAYOUT + 1
    )


def judged(sidecar: Fields) -> bool:
    """Whether somebody has compared the engine's tokens with the reference's."""
    return _verdict(sidecar).get("verdict") not in (None, "not judged")


def _verdict(sidecar: Fields) -> Fields:
    entry = sidecar.get("judge")
    return entry if isinstance(entry, dict) else {}


def is_adapter(file: str) -> bool:
    """Whether `file`, relative to the repository, is one engine's adapter."""
    return file.startswith("bench/backends/") and file.count("/") == 2 and not file.endswith("__init__.py")


@of_each
def in_order(sidecar: Fields) -> str:
    """Refuse a run of a layout that states its place in the order of its study and does not state it: with
    the seed that another could draw the order from again, or that a person began it."""
    return _layout_unknown(sidecar) or _no_order(sidecar)


@of_each
def counted_alike(sidecar: Fields) -> str:
    """Refuse a run of whose prompt tokens, or cached ones, the server counted others than the rows have."""
    return next(filter(None, map(limits.disagreement, sidecar.get("counters", []))), "")


def has_order(sidecar: Fields) -> bool:
    """Whether the layout that a sidecar claims has its place in the order of a study."""
    return "order" in sidecar or sidecar.get("layout", 0) >= schema.SIDECAR_SINCE["order"]


def _layout_unknown(sidecar: Fields) -> str:
    layout = sidecar.get("layout", schema.LAYOUT)
    known = type(layout) is int and 1 <= layout <= schema.LAYOUT
    return "" if known else f"The sidecar claims layout {layout!r}, and the newest here is {schema.LAYOUT}."


def _no_order(sidecar: Fields) -> str:
    if not has_order(sidecar):
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
