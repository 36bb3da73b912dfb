"""The plan that the Snakefile carries out: which runs study.yaml asks for on this machine, in which order.

Every round is shuffled, and no configuration is measured twice in a row while another still wants a run.

python -m bench.workflow.plan show [key=value …]    the runs in their order, with round and place of each
python -m bench.workflow.plan in-budget RUN COMMAND … -- [key=value …]    COMMAND, if RUN is in the plan as of
now
"""

import collections
import hashlib
import itertools
import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace

import yaml

from bench import backends, inputs, paths
from bench.backends.common import checkpoints
from bench.machine import identity
from bench.observations import schema, store
from bench.paths import ROOT
from bench.workflow import durations
from bench.workflow.runs import Run, make
from llm_measured.core import naming
from llm_measured.core.definitions import Fields

MOST_SHARED = 2  # rounds of a configuration beside others: the first, and one repetition
AUTO = "auto"  # value of `seed` beside a number
BY_BUDGET = "budget"  # value of `repeats` beside a number of rounds
# Keys of study.yaml that are numbers: of which type, and which words stand beside them.
NUMBERS = {
    "budget": (float, ()),
    "repeats": (int, (BY_BUDGET,)),
    "seed": (int, (AUTO,)),
}


def load(overrides: Fields | None = None) -> Fields:
    """study.yaml, `overrides` on top, with what they mean worked out; ValueError for a key that
    study.yaml does not have.

    `experiments` keeps the requested ones: those named in `overrides`, of which none waits for a second
    round, all with `all`, else those of the first question, whose options replace their own. `rounds` is
    their number, None where `budget` decides.
    """
    study = inputs.study()
    overrides = dict(overrides or {})
    for key in overrides:
        naming.choose("key of study.yaml", key, study)
    names = overrides.pop("experiments", None)
    study |= overrides
    for model in study["models"]:
        checkpoints.check_name(str(model))
    study |= _of_models(study, overrides, names)
    study["all"] = str(study["all"]).lower() in ("true", "1")
    study["first_only"] = names is None and not study["all"]
    every = study["experiments"]
    if names is not None:
        names = [naming.choose("experiment of study.yaml", name, every) for name in str(names).split()]
        study["experiments"] = {name: _at_once(every[name]) for name in names}
        if refused := [n for n in names if every[n]["parameters"].get("run_generated_code") is False]:
            raise ValueError(
                f"{refused[0]} runs programs that a model has written, contained (HOWTO.md): say "
                "run_generated_code: true at it in study.yaml first."
            )
    elif study["first_only"]:
        study["experiments"] = {
            name: every[name] | {"options": which if isinstance(which, dict) else _always(which)}
            for name, which in study["first_question"].items()
        }
    else:
        study["experiments"] = {name: entry for name, entry in every.items() if not entry.get("by_name")}
    for key, (kind, words) in NUMBERS.items():
        study[key] = _number_of(study[key], key, kind, words)
    study["rounds"] = _rounds(study)
    return study


def _of_models(study, overrides, names):
    """What `studies` of study.yaml says of the study's models, of the first of several, where all have an
    entry there; without what `overrides` say otherwise. Nothing where experiments are requested."""
    entries = [study["studies"].get(str(model)) for model in study["models"]]
    if names is not None or "all" in overrides or None in entries or not entries:
        return {}
    # Who gives a budget wants it to decide.
    given = overrides.keys() | ({"repeats"} if "budget" in overrides else set())
    return {key: value for key, value in entries[0].items() if key not in given}


def _always(which):
    return {"first_round": which, "later_rounds": which}


def _at_once(entry):
    """`entry`, an experiment of study.yaml that is requested by name: its first round is never empty."""
    options = entry["options"]
    if options["first_round"] != "none":
        return entry
    if options["later_rounds"] == "none":
        return entry | {"options": _always("all")}
    return entry | {"options": options | {"first_round": options["later_rounds"]}}


def _number_of(value, key, kind, words=()):
    """The number above zero that `value` of the key `key` is, or one of `words`; ValueError naming both."""
    if value in words:
        return value
    try:
        number = kind(value)
    except (TypeError, ValueError):
        number = 0
    if 0 < number < math.inf:
        return number
    choice = " or ".join([f"a{' whole' if kind is int else ''} number above 0", *words])
    raise ValueError(f"{key} must be {choice}, not {value!r} (make study {key.upper()}=…).")


def _rounds(study):
    if study["repeats"] == BY_BUDGET:
        return None if study["first_only"] else 1
    return study["repeats"]


def device(study: Fields) -> tuple[str, str]:
    """('cpu' or 'cuda', slug) of the device that `study` asks for: this machine's, or the one named as `gpu`.

    A run on a device that is only named makes sure of it where it runs.
    """
    if study["gpu"] != "auto":
        return "cpu" if study["device"] == "cpu" else "cuda", str(study["gpu"])
    return identity.device_of(study["device"], "auto")


def engines(study: Fields, kind: str) -> dict[str, list[str]]:
    """Engine -> options to measure on a device of this kind: those named (`_chosen`), else all that are
    installed here."""
    named = str(study["engines"]).split()
    if named:
        return _chosen(named, kind)
    installed = {engine.name: engine.ready(kind) for engine in backends.usable()}
    return {name: options for name, options in installed.items() if options}


def _chosen(words, kind):
    """Engine -> options for words such as `vllm` (its options, but those on request and those that need an
    environment of their own
    that is not there) and `transformers/gptq-int4` (this option, whose environment will be made).

    ValueError naming what exists for a name that does not.
    """
    chosen = {}
    for word in words:
        name, _, option = word.partition("/")
        engine, options = backends.get(name), chosen.setdefault(name, set())
        if option:
            options.add(engine.option(option, kind))
            continue
        own, home = engine.options(kind), engine.environment(kind)
        if not own:
            raise ValueError(engine.missing(kind))
        usual = [o for o in own if not engine.by_name_only(o, kind)]
        options |= {o for o in usual if engine.environment(kind, o) == home or not engine.missing(kind, o)}
    return {
        name: [o for o in backends.get(name).options(kind) if o in options]
        for name, options in chosen.items()
    }


def _bits(option):
    """Bits per weight that the option's name states, 32 where it states none."""
    return naming.bits(option) or 32


# The words of study.yaml for the options of an engine. Of options with equally many bits the one offered
# first is taken.
CHOICES = {
    "all": list,
    "none": lambda offered: [],
    "default": lambda offered: offered[:1],
    "fewest_bits": lambda offered: [min(offered, key=_bits)],
    "default_and_fewest_bits": lambda offered: list(dict.fromkeys([offered[0], min(offered, key=_bits)])),
}


def measured_options(rounds: Fields, n: int, offered: Sequence[str]) -> Sequence[str]:
    """Those of the options `offered` that the n-th round measures; `rounds`: a word of CHOICES for
    first_round and for later_rounds."""
    word = rounds["first_round" if n == 1 else "later_rounds"]
    return CHOICES[naming.choose("choice of options in study.yaml", word, CHOICES)](offered)


def plan(study: Fields, generous: bool = False) -> list[Run]:
    """Every Run that `study` asks for on this machine, each on one device, in the order in which they are to
    be measured.

    Rounds of all configurations, each round shuffled by the study's seed; no configuration twice in a row
    while another still wants a run, whatever of the plan is measured already. Where the budget decides, later
    rounds end before the first run that would exceed it. A `generous` plan takes a machine whose speed is not
    known yet for faster than those that are (`durations.GENEROUS`): what then proves too much is not started.
    """
    if study["rounds"] is None:
        runs = list(_in_budget(study, generous))
    else:
        runs = itertools.chain(*itertools.islice(_rounds_of(study), study["rounds"]))
    gpu = device(study)[1]
    return _placed(interleaved(_with_predecessors(runs), last_measured(gpu)), seed_of(study))


def _placed(runs, seed):
    """`runs`, each with the seed and its place in its round."""
    places = collections.defaultdict(lambda: itertools.count(1))
    return [replace(run, seed=seed, place=next(places[run.round])) for run in runs]


def _rounds_of(study):
    """The runs of one round after the other, without end, each shuffled by the study's seed."""
    seed, last = seed_of(study), None
    for n in itertools.count(1):
        runs = shuffled(_round(study, n), seed, n, last)
        yield runs
        last = runs[-1].configuration if runs else last


def first_round(study: Fields) -> list[Run]:
    """The runs that `study` measures whatever its budget is."""
    return _round(study, 1)


def _round(study, n):
    """The runs of the n-th round."""
    kind, gpu = device(study)
    offers, named, runs = engines(study, kind), _named(study), []
    for name, entry in study["experiments"].items():
        for engine, offered in offers.items():
            if not backends.get(engine).can(entry.get("needs", "load")):
                continue
            chosen = measured_options(entry["options"], n, offered)
            if engine in named and chosen:
                chosen = offered
            pairs = itertools.product(chosen, study["models"])
            runs += [make(name, engine, option, model, kind, gpu, n) for option, model in pairs]
    return [replace(run, n=_number(run), round=n) for run in runs]


def _named(study):
    """Engines whose options the first question lists by name: all of these are measured."""
    words = str(study["engines"]).split() if study["first_only"] else []
    return {word.partition("/")[0] for word in words if "/" in word}


def _in_budget(study, generous):
    """The first round, then the runs of later ones for as long as the budget lasts."""
    each = _rounds_of(study)
    first = next(each)
    left = study["budget"] * 60 - sum(durations.expected_s(first, generous).values())
    yield from first
    failed = {run.configuration for run in first if not (generous or run.written)}
    shared = collections.Counter(run.configuration for run in first if run.marked)
    for later in each if first else ():
        # What failed in the first round is not tried again in the next; what was measured beside others twice
        # only a quiet machine measures again.
        stays = {run.configuration for run in later} - failed
        stays = {configuration for configuration in stays if shared[configuration] < MOST_SHARED}
        runs = [run for run in later if run.configuration in stays]
        shared.update(run.configuration for run in runs if run.marked)
        if not runs:
            return
        expected = durations.expected_s(runs, generous)
        for run in runs:
            left -= expected[run]
            if left < 0:
                return
            yield run


def _with_predecessors(runs):
    """`runs`, each after the run that it reads, which is measured first where it neither exists nor is
    planned."""
    runs = list(runs)
    planned, found = set(runs), []
    for run in runs:
        before = run.predecessor
        if before and before not in planned and not before.measured:
            found.append(replace(before, round=run.round))
        found.append(run)
    return list(dict.fromkeys(found))


def _number(run):
    """The number that the repeat `run.n` of a planned run gets.

    Those taken by hand-started runs on several devices are passed over, in every experiment, so that the runs
    of one repeat keep the
    same number.
    """
    every = inputs.study()["experiments"]
    own = (
        n
        for n in itertools.count(1)
        if all(store.devices(replace(run, experiment=name, n=n).id) < 2 for name in every)
    )
    return next(itertools.islice(own, run.n - 1, None))


# --- the order ----------------------------------------------------------------------------------------------
#
# What a fixed order confounds with the configuration (who ran before it, how long the machine had been busy)
# repeats cannot average out; a shuffle of each round can. The order follows from the seed alone: a study
# that was interrupted goes on in it, and what is installed later or fails leaves the order of the others.


def seed_of(study: dict) -> int:
    """The seed of the study's order: its own, or with `auto` one that this checkout's random id gives."""
    if study["seed"] != "auto":
        return study["seed"]
    return int.from_bytes(hashlib.sha256(identity.host().encode()).digest()[:4])


def shuffled(runs: list[Run], seed: int, number: int, last: str | None) -> list[Run]:
    """The runs of round `number` as `seed` shuffles them, none before the one whose answers it reads.

    `last`: the configuration that ended the round before. A shuffle that begins with it is drawn again.
    """
    openers = {run.configuration for run in runs if run.predecessor not in runs}
    draw = 0
    while True:
        names = {run: f"{seed} {number} {draw} {run.configuration}" for run in runs}
        place = {run: hashlib.sha256(name.encode()).hexdigest() for run, name in names.items()}
        # What reads the answers of another run of its round comes at that run's place at the earliest.
        reads = {run: place[run.predecessor] for run in runs if run.predecessor in place}
        found = sorted(runs, key=lambda run: (max(place[run], reads.get(run, "")), run.after))
        if not found or openers <= {last} or found[0].configuration != last:
            return found
        draw += 1


def interleaved(runs: list[Run], last: str | None) -> list[Run]:
    """`runs` with those that are not measured in the order in which they are to be: each the next of
    another configuration than the one before it, as long as there is one.

    `last`: the configuration that was measured last. What is measured keeps its place in the list.
    """
    waiting = [run for run in runs if not run.measured]
    names = {run: run.configuration for run in waiting}
    reads, to_come, turns = {run: run.predecessor for run in waiting if run.after}, set(waiting), []
    while waiting:
        others = (run for run in waiting if names[run] != last and reads.get(run) not in to_come)
        turn = next(others, None) or next(run for run in waiting if reads.get(run) not in to_come)
        turns.append(turn)
        last = names[turn]
        waiting.remove(turn)
        to_come.remove(turn)
    following = iter(turns)
    return [run if run.measured else next(following) for run in runs]


def last_measured(gpu: str) -> str | None:
    """The configuration (a run's name without its number) that this checkout has measured last on the device
    with the slug `gpu`; None if none."""
    name = f"*/*-{gpu}-{identity.host()}-*.json"
    files = [*store.RESULTS.glob(name), *store.shared_folder().glob(name)]
    ended = {
        file: json.loads(file.read_text())["ended"]
        for file in files
        if file.parent.name not in schema.NOT_RUNS and file.with_suffix(".csv").exists()
    }
    last = max(ended, key=lambda file: ended[file], default=None)
    return naming.split_number(f"{last.parent.name}/{last.stem}")[0] if last else None


# --- what is shown and carried out --------------------------------------------------------------------------


def left_out(kind: str) -> list[str]:
    """Why engines, or some of their options, are not measured on a device of this kind.

    One sentence for all that run elsewhere, one or more for each of the others.
    """
    usable = backends.usable()
    elsewhere = [engine.name for engine in usable if kind not in engine.devices]
    why = {name: [fault] for name, fault in backends.broken().items()}
    why |= {engine.name: engine.absent(kind) for engine in usable if engine.name not in elsewhere}
    lines = [reason for name in sorted(why) for reason in why[name]]
    return lines + ([f"Not for a {kind}: {', '.join(elsewhere)}."] if elsewhere else [])


def overrides(words: Iterable[str]) -> Fields:
    """`key=value` words as the overrides of `load`; what `as_words` has written is read as it was."""
    return {key: yaml.safe_load(value) for key, value in (word.split("=", 1) for word in words)}


def as_words(config: Fields) -> str:
    """Overrides of `load` as `key=value` words for a shell."""
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    return " ".join(shlex.quote(f"{key}={value}") for key, value in values.items())


def run_in_budget(identifier: str, *words: str) -> None:
    """Replace this process by the command among `words`, unless the budget is spent or the run is measured.

    What an earlier study has logged of a run that is not needed goes, for nobody misses it any more.
    """
    where = words.index("--")
    command, study = words[:where], load(overrides(words[where + 1 :]))
    waiting = [run.id for run in plan(study) if not run.measured]
    if identifier in waiting:
        os.execv(command[0], command)
    if not store.path(identifier).exists():
        for suffix in (".txt", ".ipynb"):
            (ROOT / paths.log(identifier).with_suffix(suffix)).unlink(missing_ok=True)


def show(*words: str) -> None:
    """Print the plan of the study `words` (key=value) in its order, one run per line."""
    study = load(overrides(words))
    runs = plan(study, generous=True)
    print(f"seed {seed_of(study)}; runs: {len(runs)}, of them measured: {sum(r.measured for r in runs)}")
    for run in runs:
        state = "measured" if run.measured else ""
        print(f"round {run.round:>2}, place {run.place:>2}: {run.id} {state}".rstrip())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["show", *words]:
            show(*words)
        case ["in-budget", *words]:
            run_in_budget(*words)
        case _:
            sys.exit(__doc__)
