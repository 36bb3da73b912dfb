"""Sentences of the topic client accuracy."""

from collections.abc import Iterator

import pandas as pd

from bench import html
from bench.instrument import peers
from bench.observations import store
from bench.report import words
from bench.topics import client_accuracy as accuracy_analysis


def client_findings(requests: pd.DataFrame) -> list[str]:
    """What the comparison of load clients on the default machine has shown: a list of Markdown sentences,
    empty where there was none."""
    table = accuracy_analysis.on_default_machine(store.load_accuracy(requests.attrs.get("folder")))
    sentences = own_error(table), *peers_errors(table), goal_met(table)
    return [words.about(table.iloc[0], sentence) for sentence in sentences if sentence]


def own_error(table: pd.DataFrame) -> str | None:
    """How far our own client was off at the most streams that it sustained."""
    ours = accuracy_analysis.sustained(table[table["client"] == accuracy_analysis.OURS])
    if ours.empty:
        return None
    top = ours.loc[ours["streams"].idxmax()]
    sentence = (
        f"At {accuracy_analysis.at(top['streams'])} ({words.two(top['events_per_s'])} events/s) "
        f"{_client(top)} is off by {words.ms(top['ttft_error_ms'])} in the mean TTFT{_spread(top)} and by "
        f"{words.ms(top['itl_p99_excess_ms'])} in the 99th percentile of ITL, for "
        f"{html.number(top['cpu_us_per_token'])} µs of CPU time per token"
    )
    if pd.notna(top["delay_mean_ms"]):
        sentence += (
            f"; event by event it is late by {words.ms(top['delay_mean_ms'])} in the mean and "
            f"{words.ms(top['delay_p99_ms'])} in the 99th percentile"
        )
    return f"{sentence}."


def _spread(row: pd.Series) -> str:
    """The interval over runs of the error; empty for one run."""
    half = row["ttft_error_ms_interval"]
    return "" if pd.isna(half) else f" (± {words.ms(half)} over {row['runs']} runs)"


def _client(row: pd.Series) -> str:
    return f"**{peers.title(row['client'])}**"


def peers_errors(table: pd.DataFrame) -> Iterator[str]:
    """One sentence per peer: how far it was off at every load that it sustained, as a multiple of ours, and
    what it takes of the CPU."""
    for _, rows in accuracy_analysis.against(table).groupby("client"):
        each = [f"{words.ms(row['peer_ms'])} at {html.number(row['streams'])}" for _, row in rows.iterrows()]
        ratio, cpu = (words.ratio_range(rows[column]) for column in ("error_ratio", "cpu_ratio"))
        streams = "streams" if rows["streams"].max() > 1 else "stream"
        yield (
            f"{_client(rows.iloc[0])} is off by {', '.join(each)} {streams} in the mean TTFT: {ratio} as far "
            f"as ours, with {cpu} the CPU time per token."
        )


def goal_met(table: pd.DataFrame) -> str | None:
    """Whether the goal that was set for our client was met, and where it was missed."""
    missed = accuracy_analysis.goal(table)
    if missed is None:
        return None
    return f"The goal was not met: {'; '.join(missed)}." if missed else "The goal was met at every load."
