"""The ways to miscount, and to leak the token, that `test_protocol_mutations.py` puts into the client."""

from dataclasses import dataclass

import token_quotes

OPENAI = "completions", "text", "chat"
ALL = *OPENAI, "tgi", "llamacpp"
USAGE = '{"stream": True, "stream_options": {"include_usage": True}}'


def each(dialects, quirk):
    """The cases of `dialects` with one quirk."""
    return [f"{dialect}, {quirk}" for dialect in dialects]


@dataclass
class Mutation:
    """`new` in the place of `old` in bench.instrument.load.<module>; all of `cases` must fail then.

    Of `MUTATIONS` the cases are in `protocol_cases.CASES`, of `LEAKS` in `token_quotes.QUOTES`.
    """

    module: str
    old: str
    new: str
    cases: list


MUTATIONS = {
    "events are counted as tokens": Mutation(
        "decoding",
        "        total = sum(counts)\n",
        "        total = sum(counts)\n    total = len(spoken)\n",
        [
            *each(("completions", "text", "text-bos", "chat", "llamacpp"), "two tokens per event"),
            *each((*OPENAI, "text-bos"), "never usage"),
        ],
    ),
    "every event has one token's gap": Mutation(
        "decoding",
        "return [1] * len(spoken) if total == len(spoken) else None",
        "return [1] * len(spoken)",
        each(("completions", "llamacpp"), "two tokens per event"),
    ),
    "ids are believed against usage": Mutation(
        "decoding",
        "if all(counts) and total in (None, sum(counts)):",
        "if all(counts):",
        ["completions, an id short"],
    ),
    "ids are no count": Mutation(
        "protocols",
        "ids=list(ids),\n        tokens=len(ids) or None,\n",
        "ids=list(ids),\n",
        ["completions, never usage but ids", "completions, two tokens per event with ids"],
    ),
    "a held-back token's id is a count": Mutation(
        "protocols", "Piece(text, list(ids))", "Piece(text, list(ids), len(ids))", ["llamacpp, never counts"]
    ),
    "usage is forgotten": Mutation(
        "protocols",
        'usage, choices = event.get("usage") or {},',
        "usage, choices = {},",
        [*OPENAI, "completions, usage with the last event"],
    ),
    "usage is not asked for in completions": Mutation(
        "protocols",
        '"echo": False,\n    }\n    return body | ' + USAGE,
        '"echo": False,\n    }\n    return body | {"stream": True}',
        ["completions", "text", "completions, usage in every event"],
    ),
    "usage is not asked for in a chat": Mutation(
        "protocols",
        '"temperature": 0,\n    }\n    return body | ' + USAGE,
        '"temperature": 0,\n    }\n    return body | {"stream": True}',
        ["chat", "chat, usage in every event"],
    ),
    "the first usage is taken": Mutation(
        "decoding",
        "for piece in reversed(pieces))",
        "for piece in pieces)",
        each(("completions", "chat"), "usage in every event"),
    ),
    "usage is read only where there is no choice": Mutation(
        "protocols",
        'usage, choices = event.get("usage") or {}, event',
        'usage, choices = {} if event.get("choices") else event.get("usage") or {}, event',
        ["completions, usage with the last event", *each(("completions", "chat"), "usage in every event")],
    ),
    "prompt_tokens is taken for completion_tokens": Mutation(
        "protocols",
        'usage.get("completion_tokens")',
        'usage.get("prompt_tokens")',
        ["completions", "chat, no space after data:", "completions, prompt counted as output"],
    ),
    "total_tokens is taken for completion_tokens": Mutation(
        "protocols", 'usage.get("completion_tokens")', 'usage.get("total_tokens")', [*OPENAI]
    ),
    "completion_tokens is taken for prompt_tokens": Mutation(
        "protocols", 'usage.get("prompt_tokens")', 'usage.get("completion_tokens")', ["completions", "text"]
    ),
    "a count that is too high is let pass": Mutation(
        "decoding",
        "if output_tokens != call.new_tokens:",
        "if output_tokens < call.new_tokens:",
        [
            *each(("completions", "chat"), "prompt counted as output"),
            *each(("completions", "text", "llamacpp"), "BOS counted as output"),
            "tgi, a count too high",
        ],
    ),
    "BOS stays in the count of an answer": Mutation(
        "protocols",
        "piece.output_tokens -= 1",
        "piece.output_tokens -= 0",
        ["text-bos", "text-bos, BOS not counted"],
    ),
    "BOS is let pass in a prompt of ids": Mutation(
        "decoding",
        "prompt_tokens not in (None, call.prompt_tokens):",
        "prompt_tokens not in (None, call.prompt_tokens, call.prompt_tokens + 1):",
        each(("completions", "llamacpp"), "BOS counted"),
    ),
    "BOS is not expected in a prompt of text": Mutation(
        "schedule",
        'if served.dialect in ("completions", "llamacpp") else None',
        "",
        ["text, BOS counted", "chat", "tgi"],
    ),
    "a prompt's tokens are the client's own count": Mutation(
        "decoding",
        '"prompt_tokens": call.prompt_tokens or reported["prompt_tokens"]',
        '"prompt_tokens": call.prompt_tokens or 5',
        ["text, BOS counted", "chat", "tgi", "tgi 1, the prompt's tokens instead of their number"],
    ),
    "more events than tokens are let pass": Mutation(
        "decoding",
        "if events > output_tokens:",
        "if False:",
        each(("completions", "text", "llamacpp"), "echoed prompt"),
    ),
    "an echoed prompt is the first token": Mutation(
        "decoding",
        "if not call.prompt_tokens and protocols.echoed(call.payload, texts[0]):",
        "if False:",
        [*each(("text", "chat"), "echoed prompt and two tokens per event"), "text-bos, echoed prompt"],
    ),
    "text is sent as ids": Mutation(
        "protocols",
        'more) | {"prompt": prompt.text}',
        "more)",
        ["text", "text, two tokens per event"],
    ),
    "an event without text is a token": Mutation(
        "decoding",
        "for at, piece in zip(arrivals, pieces) if piece.text or piece.ids]",
        "for at, piece in zip(arrivals, pieces)]",
        ["completions, an empty last event", "text, empty first and last events", "chat", "llamacpp"],
    ),
    "a token without text is none": Mutation(
        "decoding", "if piece.text or piece.ids]", "if piece.text]", ["tgi, a token without text"]
    ),
    "a token without text has no id": Mutation(
        "protocols",
        'ids = [token["id"]] if token else []',
        'ids = [token["id"]] if token and token["text"] else []',
        ["tgi, a token without text"],
    ),
    "the end is the last event's": Mutation(
        "decoding",
        '"e2e_s": at[-1] - from_s',
        '"e2e_s": arrivals[-1] - from_s',
        ["completions, an empty last event", "completions", "chat", "llamacpp"],
    ),
    "the beginning is the first event's": Mutation(
        "decoding",
        '"ttft_s": at[0] - from_s',
        '"ttft_s": arrivals[0] - from_s',
        ["chat", "text, empty first and last events"],
    ),
    "the last event is dropped": Mutation(
        "decoding",
        "for piece, end in parsed if piece is not None]",
        "for piece, end in parsed if piece is not None][:-1]",
        [*ALL],
    ),
    "an event needs data": Mutation(
        "protocols",
        'if data.strip() in (b"", b"[DONE]"):',
        'if data.strip() == b"[DONE]":',
        ["completions, a last event without data", *each(("tgi", "llamacpp"), "an empty last event")],
    ),
    "data: needs a space": Mutation(
        "http1",
        'if line.startswith(b"data:")]',
        'if line.startswith(b"data: ")]',
        each(("completions", "text-bos", "chat", "tgi", "llamacpp"), "no space after data:"),
    ),
    "one event is read": Mutation(
        "http1",
        "found.append((content, end.start()))",
        "found.append((content, end.start())) if len(found) % 2 == 0 else None",
        ["tgi, several events per packet", "tgi"],
    ),
    "TGI's whole text is taken for a token's": Mutation(
        "protocols",
        'text=token["text"] if token else "",',
        'text=event.get("generated_text") or (token["text"] if token else ""),',
        ["tgi", "tgi, the whole text in the last event"],
    ),
    "TGI's details are not asked for": Mutation(
        "protocols", '"details": True', '"details": False', ["tgi", "tgi, no space after data:"]
    ),
    "TGI's ids are counted, its count is not read": Mutation(
        "protocols",
        'output_tokens=details.get("generated_tokens"),',
        "output_tokens=None,",
        ["tgi, a count too high"],
    ),
    "TGI 1 is forgotten": Mutation(
        "protocols",
        'details.get("input_length") or len(details.get("prefill") or ()) or None',
        'details.get("input_length")',
        ["tgi 1, the prompt's tokens instead of their number"],
    ),
    "TGI 2 is forgotten": Mutation(
        "protocols",
        'details.get("input_length") or len(details.get("prefill") or ()) or None',
        'len(details.get("prefill") or ()) or None',
        ["tgi"],
    ),
    "tokens_evaluated is taken for tokens_predicted": Mutation(
        "protocols",
        'prompt_tokens=event.get("tokens_evaluated"),\n        output_tokens=event.get("tokens_predicted"),',
        'prompt_tokens=event.get("tokens_predicted"),\n        output_tokens=event.get("tokens_evaluated"),',
        ["llamacpp", "llamacpp, BOS counted"],
    ),
    "llama.cpp's prompt is taken for text": Mutation(
        "protocols",
        'text=text,\n        prompt_tokens=event.get("tokens_evaluated"),',
        'text=event.get("prompt", ""),\n        prompt_tokens=event.get("tokens_evaluated"),',
        ["llamacpp"],
    ),
    "llama.cpp's ids are not asked for": Mutation(
        "protocols", '"stream": True,\n        "return_tokens": True', '"stream": True', ["llamacpp"]
    ),
}

# What hides the token is left out; the cases are answers of a server that would then be repeated.
LEAKS = {
    "nothing is hidden": Mutation(
        "decoding",
        "    if not token:\n        return content",
        "    return content",
        [*token_quotes.QUOTES],
    ),
    "only what came in one chunk is": Mutation(
        "decoding",
        "body = _without_token(body, payload)",
        "body = body",
        ["an error within the stream in two chunks", "a refusal in two chunks"],
    ),
    "only what came in one event is": Mutation(
        "decoding", "name: _without_token(value, payload) for", "name: value for", ["an answer in two events"]
    ),
    "only what was HTTP is": Mutation(
        "decoding",
        '"error": _failure(answer),',
        '"error": answer.error,',
        ["bytes that are no HTTP, cut"],
    ),
}
