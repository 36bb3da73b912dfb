"""What servers are known to send, dialect by dialect, and what must be counted of it."""

from bench.instrument.load import protocols

SECRET = "hf_AnotherTokenThatNobodyMaySee9876543210"
# As many tokens as words, and no count that another one could be taken for.
PROMPT = protocols.Prompt((11, 12, 13, 14, 15), "one two three four five", 4)
WORDS = " alpha", " beta", " gamma", " delta"
IDS = 21, 22, 23, 24
# Until the first token, between two events, from the last token to what follows.
FIRST_S, GAP_S, END_S = 0.004, 0.003, 0.006
MARGIN_S = 2e-4  # between the clock in which the kernel stamps and the one that the server reads

# (dialect, quirks of the server, what the row must say, or the words of its error)
GOOD = {"output_tokens": 4, "chunks": 4, "prompt_tokens": 5, "gaps": True, "text": "".join(WORDS)}
PAIRS = GOOD | {"chunks": 2, "gaps": False}
# Of what the server makes of the text: a beginning-of-sequence token is one of its tokens.
TEXTS = GOOD | {"prompt_tokens": 6}
CASES = {
    "completions": ("completions", "", GOOD),
    "completions, no space after data:": ("completions", "no-space", GOOD),
    "completions, two tokens per event": ("completions", "pairs", PAIRS),
    "completions, two tokens per event with ids": (
        "completions",
        "pairs ids",
        PAIRS | {"gaps": True, "output_ids": list(IDS)},
    ),
    "completions, an id short": ("completions", "pairs ids lost-id", PAIRS),
    "completions, an empty last event": ("completions", "empty-last", GOOD),
    "completions, a last event without data": ("completions", "bare-last", GOOD),
    "completions, usage with the last event": ("completions", "last-usage", GOOD),
    "completions, usage in every event": ("completions", "every-usage", GOOD),
    "completions, never usage": ("completions", "no-usage", "did not report usage"),
    "completions, never usage but ids": ("completions", "no-usage ids pairs", PAIRS | {"gaps": True}),
    "completions, echoed prompt": ("completions", "echo", "5 events with text, 4 output tokens"),
    "completions, prompt counted as output": (
        "completions",
        "counts-prompt",
        "9 output tokens where 4 were asked for",
    ),
    "completions, BOS counted": ("completions", "bos", "6 prompt tokens where 5 were sent"),
    "completions, BOS counted as output": (
        "completions",
        "bos-out",
        "5 output tokens where 4 were asked for",
    ),
    "text": ("text", "", GOOD),
    "text, BOS counted": ("text", "bos", TEXTS),
    "text, BOS counted as output": ("text", "bos-out", "5 output tokens where 4 were asked for"),
    "text, empty first and last events": ("text", "empty-first empty-last", GOOD),
    "text, two tokens per event": ("text", "pairs", PAIRS),
    "text, echoed prompt and two tokens per event": ("text", "echo pairs", "sent the prompt back"),
    "text-bos": ("text-bos", "bos bos-out", TEXTS),
    "text-bos, two tokens per event": ("text-bos", "bos bos-out pairs", TEXTS | {"chunks": 2, "gaps": False}),
    "text-bos, BOS not counted": (
        "text-bos",
        "bos",
        "ended after 3 of 4 tokens (finish_reason 'length'): the server caps answers",
    ),
    "text-bos, echoed prompt": ("text-bos", "bos bos-out echo pairs", "sent the prompt back"),
    "chat": ("chat", "bos", TEXTS),
    "chat, two tokens per event": ("chat", "bos pairs", TEXTS | {"chunks": 2, "gaps": False}),
    "chat, echoed prompt and two tokens per event": ("chat", "echo pairs", "sent the prompt back"),
    "tgi": ("tgi", "bos", TEXTS | {"output_ids": list(IDS)}),
    "tgi, a token without text": ("tgi", "bos held", TEXTS | {"text": " alpha beta gamma"}),
    "tgi, several events per packet": ("tgi", "bos packets", TEXTS),
    "tgi, the whole text in the last event": ("tgi", "bos echo", TEXTS),
    "tgi 1, the prompt's tokens instead of their number": ("tgi", "bos old", TEXTS),
    "tgi, a count too high": ("tgi", "bos-out", "5 output tokens where 4 were asked for"),
    "llamacpp": ("llamacpp", "", GOOD | {"output_ids": list(IDS), "cached_tokens": 1}),
    "llamacpp, two tokens per event": ("llamacpp", "pairs", PAIRS),
    "llamacpp, never counts": ("llamacpp", "no-usage", "did not report usage"),
    "llamacpp, BOS counted": ("llamacpp", "bos", "6 prompt tokens where 5 were sent"),
    "llamacpp, BOS counted as output": ("llamacpp", "bos-out", "5 output tokens where 4 were asked for"),
    "llamacpp, echoed prompt": ("llamacpp", "echo", "5 events with text, 4 output tokens"),
}
