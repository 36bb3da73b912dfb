"""Whether the tokens of an engine are the model's: one judge for every engine, before anything is measured.

The engine answers the prompt of data/judge.txt greedily. Then transformers, the reference of this study,
reads prompt and answer once, in float32 on the CPU, in a process of the default environment that has ended
before anything is timed. At each place of the answer it says which token it finds likeliest after what the
engine has written so far, and by how many nats more than the engine's own (the margin). What is kept of such
a reading depends on its content alone, so the same answer of the same checkpoint is read once.

An option of 16 bits or more may take another token than the reference only where the reference itself hardly
prefers one: within `near_nats`, which is measured on this very answer, as what rounding to the option's
number format changes in the reference's own margins. With fewer bits, or where a server does not say how
many, the answer must be about as likely under the reference as the answers that such options of the same
model have given to the same prompt in the committed runs.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import inputs, processes
from bench.backends.common import checkpoints, weights
from bench.paths import COMMITTED, ROOT
from llm_measured.core import files, naming

TOKENS = 64  # of the answer
CANDIDATES = 8  # tokens at each place, the reference's likeliest, between which rounding could choose
# Rounding is measured on a few hundred margins, its tails are long, and an engine's kernels sum in another
# order: one token of the committed bfloat16 answers (200 tokens each) lies 2.6 times as far behind the
# reference's own as what is measured on one prompt.
ROUNDINGS = 3
NARROW = "int8", "fp8"  # formats of arithmetic with fewer than 16 bits
# Significant bits of a number, the leading one included. float32 is held against float16: TF32, in which GPUs
# may multiply it, has as many, and some engines keep the KV cache of a float32 model in float16.
SIGNIFICANT_BITS = {"bfloat16": 8, "float16": 11}
WIDE = 16, 32
# How much less likely an answer of fewer bits may be than the least likely that was kept of the same model
# and prompt: kept ones of one model differ by a factor of about two between options.
UNLIKELIER = 1.5
SEED = 28  # of the made noise
ROOM = 1.3  # memory that the reading takes, as a multiple of the model's float32 weights


@dataclass(frozen=True)
class Reading:
    """What the reference finds at each place of one answer, token by token.

    `best`: its likeliest token; `margins_nats`: by how much it prefers that to the answer's; `nll_nats`: of
    the answer's token; `rounding_nats`: the most that the same model in bfloat16 changes in a margin between
    likely tokens; `noise_nll_nats`: mean NLL of as many tokens drawn blindly after the same prompt;
    `vocabulary`: how many tokens there are; `reference`: the packages that have read.
    """

    best: list[int]
    margins_nats: list[float]
    nll_nats: list[float]
    rounding_nats: float
    noise_nll_nats: float
    vocabulary: int
    reference: str


def prompt(checkpoint: checkpoints.Checkpoint) -> list[int]:
    """Token ids of the judge's prompt, cut to what the model's context has room for beside the answer."""
    ids = checkpoint.encode(inputs.judged_text())
    most = checkpoint.config.get("max_position_embeddings") or math.inf
    return ids if len(ids) + TOKENS <= most else ids[: max(0, int(most) - TOKENS)]


def room(checkpoint: checkpoints.Checkpoint) -> int:
    """Tokens of the judge's request, prompt and answer."""
    return len(prompt(checkpoint)) + TOKENS


def number_format(option: str, arithmetic: str = "float32") -> str | None:
    """The format, float16 or bfloat16, within whose rounding `option` must keep the reference's tokens; None
    with fewer than 16 bits, or where the option's name states none."""
    bits = naming.bits(option)
    if bits not in WIDE or arithmetic in NARROW:
        return None
    return "bfloat16" if "bf" in option.lower() else "float16"


def near_nats(rounding: float, rounded_as: str) -> float:
    """Margin within which an option in the format `rounded_as` may take another token than the reference.

    `rounding`: what bfloat16 changes in a margin; each significant bit more halves it.
    """
    return ROUNDINGS * rounding * 2.0 ** (SIGNIFICANT_BITS["bfloat16"] - SIGNIFICANT_BITS[rounded_as])


def unjudged(why: str) -> dict:
    """The sidecar's entry of a run that nobody has judged; `why` is one sentence."""
    return {"verdict": "not judged", "why": why}


def of_answer(
    checkpoint: checkpoints.Checkpoint, prompt_ids: list[int], answer: list[int], rounded_as: str | None
) -> dict:
    """The verdict on one greedy `answer` as the sidecar keeps it: verdict, why, and what it was found by.

    verdict: `same tokens`, `near ties`, `likely`, `refused`, or `not judged` where the reference cannot read.
    `rounded_as` as `number_format` gives it.
    """
    if not answer:
        return unjudged(
            "The server sends no token ids, and its text does not split into as many tokens again."
        )
    outside = [token for token in answer if not 0 <= token < checkpoint.config["vocab_size"]]
    if outside:
        return {
            "verdict": "refused",
            "why": f"The engine answered with token {outside[0]}, which the model lacks.",
        }
    if lacking := _lacking_memory(checkpoint):
        return unjudged(lacking)
    try:
        found = reading(checkpoint, prompt_ids, answer)
    except RuntimeError as failure:
        last = str(failure).strip().splitlines()[-1]
        return unjudged(
            f"The reference, transformers in float32 on the CPU, could not read the answer: {last}"
        )
    facts = {
        "prompt_sha256": _sha256(prompt_ids),
        "prompt_tokens": len(prompt_ids),
        "output_ids": " ".join(map(str, answer)),
        "answer_nll_nats": sum(found.nll_nats) / len(answer),
        "reference": found.reference,
        "rounded_as": rounded_as,
    }
    if rounded_as is None:
        return _by_likelihood(checkpoint, prompt_ids, found, answer) | facts
    return _by_tokens(checkpoint, found, answer, rounded_as) | facts


def _by_tokens(checkpoint, found, answer, rounded_as):
    """The verdict on an option of 16 bits or more: every other token must be a near tie."""
    near = near_nats(found.rounding_nats, rounded_as)
    others = [place for place, margin in enumerate(found.margins_nats) if margin > 0]
    limits = {"near_nats": near, "differences": len(others)}
    if not others:
        return {"verdict": "same tokens", "why": ""} | limits
    limits["first"] = _place(checkpoint, found, answer, others[0])
    clear = next((place for place in others if found.margins_nats[place] > near), None)
    if clear is None:
        return {"verdict": "near ties", "why": _ties(len(others), limits["first"], near)} | limits
    shown = _place(checkpoint, found, answer, clear)
    why = (
        f"{_differs(shown)}. Rounding to {rounded_as} moves it by {near:.2g} at most: this is another model, "
        "or another computation, than the run says. Look at the engine's rotary base, vocabulary, first "
        "token of the prompt, head and number format."
    )
    return {"verdict": "refused", "why": why, "clear": shown} | limits


def _ties(count, first, near):
    others = "another token" if count == 1 else f"{count} other tokens"
    return f"{others}, each within the {near:.2g} nats that rounding moves; first: {_differs(first)}."


def _differs(shown):
    return (
        f"At token {shown['place']} of its answer the engine has {shown['token']} ({shown['text']!r}) where "
        f"the reference has {shown['reference_token']} ({shown['reference_text']!r}), which it prefers by "
        f"{shown['margin_nats']:.2g} nats"
    )


def _place(checkpoint, found, answer, place):
    """One token of an answer beside the reference's; places count from 1."""
    token, best = answer[place], found.best[place]
    return {
        "place": place + 1,
        "token": token,
        "text": checkpoint.tokenizer.decode([token], skip_special_tokens=False),
        "reference_token": best,
        "reference_text": checkpoint.tokenizer.decode([best], skip_special_tokens=False),
        "margin_nats": found.margins_nats[place],
    }


def _by_likelihood(checkpoint, prompt_ids, found, answer):
    """The verdict with fewer than 16 bits: the answer is as likely as such options' answers are, and no token
    of it less likely than one drawn blindly."""
    kept = kept_nll_nats(checkpoint.name, prompt_ids)
    mean, most = sum(found.nll_nats) / len(answer), most_nll_nats(kept, found.noise_nll_nats)
    worst = max(range(len(answer)), key=lambda place: found.nll_nats[place])
    limits = {"most_nll_nats": most, "noise_nll_nats": found.noise_nll_nats}
    if mean > most:
        why = (
            f"The reference finds the engine's answer too unlikely: {mean:.2f} nats per token, where "
            f"{most:.2f} is the limit between what options with fewer than 16 bits have answered in this "
            f"study and tokens drawn blindly ({found.noise_nll_nats:.2f})."
        )
        return {"verdict": "refused", "why": why} | limits
    if found.nll_nats[worst] > math.log(found.vocabulary):
        shown = _place(checkpoint, found, answer, worst)
        why = f"{_differs(shown)}: one drawn blindly from the vocabulary would be likelier."
        return {"verdict": "refused", "why": why, "clear": shown} | limits
    return {"verdict": "likely", "why": ""} | limits


def most_nll_nats(kept: list[float], noise: float) -> float:
    """The most nats per token that an answer may have: UNLIKELIER times the least likely answer that options
    of this model have given to the same prompt (`kept`), at most the geometric mean of that and `noise`;
    without any, the geometric mean of one nat and `noise`.

    ValueError where an answer that was kept is no likelier than noise.
    """
    if not kept:
        return math.sqrt(noise)
    if max(kept) >= noise:
        raise ValueError(
            f"A committed answer has {max(kept):.2f} nats per token, noise {noise:.2f}: "
            "likelihood parts nothing."
        )
    return min(UNLIKELIER * max(kept), math.sqrt(max(kept) * noise))


def kept_nll_nats(model: str, prompt_ids: list[int]) -> list[float]:
    """NLL per token of the answers that options of `model` with fewer than 16 bits have given to this very
    prompt, by the sidecars of the committed runs: another model's answers, or those to
    another prompt, say nothing of these."""
    asked, found = _sha256(prompt_ids), []
    for file in sorted(COMMITTED.glob(f"*/*-{model}-*.json")):
        entry = json.loads(file.read_text()).get("judge", {})
        likely = entry.get("verdict") == "likely" and entry.get("prompt_sha256") == asked
        if likely:
            found.append(entry["answer_nll_nats"])
    return found


def _sha256(ids):
    return hashlib.sha256(json.dumps(ids).encode()).hexdigest()


def _lacking_memory(checkpoint):
    """A sentence where this machine has no memory for the model in float32; else empty."""
    takes = ROOM * 4 * sum(tensor.values for tensor in weights.tensors(checkpoint.path))
    free = psutil.virtual_memory().available
    if takes <= free:
        return ""
    return f"The reference in float32 takes {takes / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are free."


def reading(checkpoint: checkpoints.Checkpoint, prompt_ids: list[int], answer: list[int]) -> Reading:
    """The Reading of `answer` after `prompt_ids`, made by the default environment's Python, once for each
    content of checkpoint, tokens and pins. RuntimeError with its last words where that fails."""
    pins = hashlib.sha256((ROOT / "environments/default.txt").read_bytes()).hexdigest()
    content = [checkpoint.digest(), checkpoint.end_token_ids, prompt_ids, answer, pins, READ_AS]
    name = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    ids = list(prompt_ids), list(answer)
    kept = files.made(
        checkpoints.folder(checkpoint.name) / "judge" / f"{name}.json",
        lambda to: processes.in_child(read, to, checkpoint, *ids, python=processes.maker()),
    )
    return Reading(**json.loads(kept.read_text()))


READ_AS = 1  # raise it where `read` finds something else in the same tokens


def read(file: Path, checkpoint: checkpoints.Checkpoint, prompt_ids: list[int], answer: list[int]) -> None:
    """Write the Reading of `answer` to `file`: the body of the judge's own process."""
    import torch
    import transformers

    torch.manual_seed(SEED)
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float32).eval()
    ids, begin = torch.tensor([prompt_ids + answer]), len(prompt_ids)

    def log_probabilities(tokens):
        with torch.no_grad():
            logits = model(input_ids=tokens, use_cache=False).logits[0, begin - 1 : -1].float()
        # Ends are suppressed, but for an engine that let one through: there it competes with the others.
        ended = [end for end in checkpoint.end_token_ids if end < logits.shape[1]]
        let_through = torch.isin(tokens[0, begin:], torch.tensor(ended, dtype=torch.long))
        logits[torch.nonzero(~let_through), torch.tensor(ended, dtype=torch.long)] = -torch.inf
        return logits.log_softmax(-1)

    logarithms = log_probabilities(ids)
    drawn = torch.randint(logarithms.shape[1], (1, len(answer)))
    noise = log_probabilities(torch.cat([ids[:, :begin], drawn], 1)).gather(1, drawn.T)
    best = logarithms.max(-1)
    own = logarithms.gather(1, ids[0, begin:, None])[:, 0]
    likely = logarithms.topk(CANDIDATES, -1)
    model = model.to(torch.bfloat16)
    rounded = log_probabilities(ids).gather(1, likely.indices)
    change = (rounded - rounded[:, :1]) - (likely.values - likely.values[:, :1])
    found = {
        "best": best.indices.tolist(),
        "margins_nats": (best.values - own).tolist(),
        "nll_nats": (-own).tolist(),
        "rounding_nats": change[torch.isfinite(change)].abs().max().item(),
        "noise_nll_nats": -noise[torch.isfinite(noise)].mean().item(),
        "vocabulary": logarithms.shape[1],
        "reference": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, cpu",
    }
    Path(file).write_text(json.dumps(found))
