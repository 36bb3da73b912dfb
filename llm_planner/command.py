"""llm-planner: how many GPUs for a load, predictions for a table of serving points, and their coefficients.

llm-planner plan --rate 20 …     which GPUs x replicas hold a goal, cheapest first (plan --help: its options)
llm-planner check FILE [OUT]     what is predicted for each row of a CSV, and how far it is off
llm-planner validate             errors of fits that had left the predicted rows out (about half an hour)
llm-planner fit                  coefficients from the published table, half widths from what `validate` wrote
llm-planner worlds               the page's own question in 100 worlds whose step times are drawn (minutes)
"""

import argparse
from collections.abc import Sequence

from llm_measured.core.definitions import Fields
from llm_planner import candidates, check, page, planner, worlds

# The options of `plan`, which are the parameters of notebooks/plan.ipynb.
ASKED = {
    "model": "a row of core/models.csv, or the path of a config.json from the hub",
    "weights": "precisions, separated by spaces: bf16, fp8, nvfp4",
    "engine": "vllm, sglang or trtllm",
    "gpus": "rows of core/accelerators.csv, separated by spaces",
    "prompt_tokens": "tokens of every prompt",
    "answer_tokens": "tokens of every answer",
    "rate": "requests per second that arrive (Poisson)",
    "hit_rate": "share of all prompt tokens that a prefix cache serves, 0 or more and below 1",
    "ttft_s": "objective: seconds to the first token, at most",
    "tpot_s": "objective: seconds per output token, at most",
    "most_gpus": "GPUs that may be rented at most",
    "usd_per_gpu_hour": "what you pay; empty: the lowest price in llm_measured/predict/prices.csv",
    "api_usd_per_million_input": "an API's price, for the break-even; empty: none",
    "api_usd_per_million_output": "likewise, of its answers",
}


def main(words: Sequence[str] | None = None) -> str | int | None:
    """Do what the command line says; returns what the process exits with: a sentence where it could not."""
    parser = argparse.ArgumentParser(
        prog="llm-planner", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="plan | check | fit | validate | worlds"
    )
    planning = commands.add_parser("plan", help="answer one question, as notebooks/plan.ipynb does")
    for name, meaning in ASKED.items():
        usual = page.QUESTION[name]
        shown = f"{meaning} (default: {usual})" if usual != "" else meaning
        planning.add_argument(f"--{name.replace('_', '-')}", type=type(usual), default=usual, help=shown)
    checking = commands.add_parser("check", help="predict every row of a table, and count the errors")
    checking.add_argument("file", metavar="FILE", help="CSV with the columns of gpu_serving_measured.csv")
    checking.add_argument("out", metavar="OUT", nargs="?", help="write the predictions to this CSV")
    commands.add_parser("fit", help="fit the published table, and write data/planner_coefficients.csv")
    commands.add_parser("validate", help="predict rows left out, and write data/planner_validation.csv")
    commands.add_parser(
        "worlds", help="try the page's answer in drawn worlds, and write data/planner_worlds.csv"
    )
    options = parser.parse_args(words)
    if options.command == "plan":
        return plan({name: getattr(options, name) for name in ASKED})
    if options.command == "fit":
        check.commit_fit()
        return 0
    if options.command == "validate":
        check.validate()
        return 0
    if options.command == "worlds":
        worlds.commit(page.QUESTION)
        return 0
    return check.run(options.file, options.out)


def plan(parameters: Fields) -> str | None:
    """Print the answers to one question; returns a sentence where it has a fault or no answer."""
    try:
        table, refusals = planner.answers(parameters)
    except ValueError as failure:
        return str(failure)
    for sentence in (planner.verdict(table), candidates.BLIND, *planner.reasons(table), *refusals):
        print(sentence)
    print(planner.goal_table(table).to_string(index=False))
    return None
