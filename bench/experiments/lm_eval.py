"""Any engine of this study as a model of the EleutherAI **lm-evaluation-harness**, for those with a
connection to the Hugging Face hub.

    snakemake --cores 1 .venvs/lm-eval/ready
    .venvs/lm-eval/bin/python -m bench.experiments.lm_eval transformers int8 smollm2-135m arc_easy

The harness is optional: the first command makes it an environment of its own from `environments/lm-eval.txt`.
For an engine that has its own environment, install the same version of `lm-eval` there. Tasks whose data lie
on this machine need no connection: name the folder of their YAML files with `--include`. `--limit 100` is
enough to try it.

What differs from the harness's own models: an engine that gives no log-probabilities can only do tasks that
generate; generation is greedy; and this study's engines suppress the end of a sequence, so an answer ends at
the task's own stop strings or at its limit of tokens. At most CONTEXT_TOKENS tokens are looked at, the last
ones, which is what every engine here has room for.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from typing import Any

from bench import backends
from bench.backends.common.checkpoints import Checkpoint
from bench.backends.common.contract import Engine
from bench.experiments import target
from bench.machine import neighbours
from llm_measured.core.definitions import Fields

CONTEXT_TOKENS = 2048  # prompt and answer together
ANSWER_TOKENS = 256  # where a task does not say: the harness's own default


try:
    from lm_eval.api.model import TemplateLM
except ImportError:
    absent = (
        "lm-eval is not installed here. Make an environment with it: snakemake --cores 1 .venvs/lm-eval/ready"
    )
    raise (SystemExit if __name__ == "__main__" else ImportError)(absent) from None


class EngineLM(TemplateLM):
    """An `Engine` of bench/backends/ and the checkpoint that it has loaded, as a model of the harness; it
    turns text into ids and back."""

    def __init__(self, engine: Engine, checkpoint: Checkpoint) -> None:
        super().__init__()
        self.engine, self.checkpoint = engine, checkpoint
        self.max_length = min(
            CONTEXT_TOKENS, checkpoint.config.get("max_position_embeddings", CONTEXT_TOKENS)
        )

    @property
    def eot_token_id(self) -> int:
        """The token that ends a text."""
        return self.checkpoint.end_token_ids[0]

    @property
    def prefix_token_id(self) -> int:
        """The token before a text that has nothing before it: the one that begins texts, where there is
        one."""
        begin = self.checkpoint.config.get("bos_token_id")
        return self.eot_token_id if begin is None else begin

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Token ids of `string`; with special tokens as the tokenizer adds them, if they are not switched
        off."""
        return self.checkpoint.tokenizer.encode(
            string, add_special_tokens=add_special_tokens is not False
        ).ids

    def _loglikelihood_tokens(self, requests, disable_tqdm=False, **_):
        """[(sum of log-probabilities, whether greedy decoding gives the same)] of the requests.

        A request is ((texts), context ids, continuation ids).
        """
        return [
            self._scored(context, continuation)
            for _, context, continuation in self._bar(requests, disable_tqdm)
        ]

    def _scored(self, context, continuation):
        context = context[-max(1, self.max_length - len(continuation)) :]
        each = self._log_probabilities(context + continuation)[-len(continuation) :]
        return sum(each), self._greedy(context, continuation, each)

    def _log_probabilities(self, ids):
        if not hasattr(self.engine, "log_probabilities"):
            raise NotImplementedError(
                "This engine gives no log-probabilities; choose tasks that generate (generate_until)."
            )
        return self.engine.log_probabilities(ids)

    def _greedy(self, context, continuation, each):
        """Whether greedy decoding gives the same: more likely than not is the likeliest; else the engine is
        run. It never writes an end of sequence."""
        likely = all(one > math.log(0.5) for one in each)
        return likely or self.engine.generate([context], len(continuation), None)[0] == continuation

    def loglikelihood_rolling(self, requests: Sequence, disable_tqdm: bool = False) -> list[float]:
        """[sum of log-probabilities] of whole texts, each token after as many as there is room for."""
        return [
            self._whole(self.tok_encode(request.args[0])) for request in self._bar(requests, disable_tqdm)
        ]

    def _whole(self, ids):
        from lm_eval.utils import get_rolling_token_windows

        windows = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length - 1, context_len=1)
        return sum(
            sum(self._log_probabilities([*before, scored[-1]])[-len(scored) :]) for before, scored in windows
        )

    def generate_until(self, requests: Sequence, disable_tqdm: bool = False) -> list[str]:
        """The greedy answers, each up to the first of its stop strings or to its limit of tokens.

        ValueError for a task that samples, or whose answers have no room.
        """
        return [self._answer(*request.args) for request in self._bar(requests, disable_tqdm)]

    def _answer(self, context, settings):
        from lm_eval.models.utils import normalize_gen_kwargs, postprocess_generated_text

        settings = normalize_gen_kwargs(settings, ANSWER_TOKENS)
        if settings["do_sample"]:
            raise ValueError(
                "This task samples, and engines are greedy here; set temperature 0 or choose another task."
            )
        tokens = settings["max_gen_toks"]
        if tokens >= self.max_length:
            raise ValueError(
                f"This task needs answers of {tokens} tokens; prompt and answer together have room for "
                f"{self.max_length}."
            )
        (ids,) = self.engine.generate([self.tok_encode(context)[tokens - self.max_length :]], tokens, None)
        return postprocess_generated_text(self.checkpoint.decode(ids), settings["until"], None)

    def _bar(self, requests, hidden):
        from tqdm import tqdm

        return tqdm(requests, desc="requests", disable=hidden)


def evaluate(
    backend: str,
    option: str,
    model: str,
    tasks: Sequence[str],
    device: str = "auto",
    threads: int = 0,
    **harness: Any,
) -> Fields:
    """Results of `lm_eval.simple_evaluate` on `tasks` with an engine of this study; `harness` goes to it.

    Errors are those of `target.make`.
    """
    import lm_eval

    engine, kind = backends.get(backend), target.place_of({"device": device, "gpu": "auto"}).device
    option, threads = engine.option(option, kind), target.threads_for(threads)
    if absent := engine.missing(kind, option):
        raise RuntimeError(absent)
    target.set_threads(threads)
    checkpoint = engine.prepare(model, option, kind)
    with neighbours.take(kind):  # a study that measures beside it would be spoilt
        loaded = engine.load(checkpoint, option, kind, threads)
        try:
            return lm_eval.simple_evaluate(model=EngineLM(loaded, checkpoint), tasks=tasks, **harness)
        finally:
            loaded.close()


def main(arguments: Sequence[str] | None) -> None:
    """Print the harness's own table of results for the engine and the tasks named in `arguments`."""
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import make_table

    parser = argparse.ArgumentParser(
        prog="python -m bench.experiments.lm_eval",
        description="Run tasks of lm-evaluation-harness on an engine of this study.",
    )
    for name in ("backend", "option", "model"):
        parser.add_argument(name)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--include", help="a folder with the YAML files of further tasks")
    parser.add_argument("--limit", type=int, help="only so many examples of each task")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0)
    values = vars(parser.parse_args(arguments))
    known = TaskManager(include_path=values.pop("include"))
    print(make_table(evaluate(**values, task_manager=known)))


if __name__ == "__main__":
    main(sys.argv[1:])
