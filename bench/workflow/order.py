"""The order of a study's runs: every round is shuffled by the study's seed, and no configuration is measured
twice in a row while another still wants a run.

What a fixed order confounds with the configuration (who ran before it, how long the machine had been busy)
repeats cannot average out; a shuffle of each round can. The order follows from the seed alone: a study that
was interrupted goes on in it, and what is installed later or fails leaves the order of the others as it is.
"""

import hashlib
import json

from bench.machine import identity
from bench.observations import schema, store
from bench.workflow.runs import Run
from llm_measured.core import naming


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
