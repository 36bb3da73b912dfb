"""Files as people published them, made anew for the tests: the same layout and mistake, with texts of this
repository."""

import csv

from bench import inputs

# Seconds per answer of 200 tokens where the prompt is among the 200: 25 tokens/s for what was generated.
CHARS_PER_TOKEN = 4
PACE_S = 0.0417


def older(file, rows):
    """Write rows (tok_count, time, question, answer, note) as the older llama-inference layout."""
    with open(file, "w", newline="", encoding="utf-8") as out:
        writer = csv.writer(out)
        writer.writerow(["tok_count", "time", "question", "answer", "note"])
        writer.writerows(rows)
    return file


def questions():
    """The prompts of the published study."""
    return list(inputs.prompts())


def answer(question, tokens):
    """A text of so many tokens, different for each question."""
    text = f"About {len(question)}: " + "all of it, again and again; "
    return (text * (tokens * CHARS_PER_TOKEN // len(text) + 1))[: tokens * CHARS_PER_TOKEN]


def clean(file, note="float16", pace=PACE_S):
    """Answers of 200 tokens without their prompt, at one pace with a little noise."""
    rows = [
        (200, 200 * pace * (1 + 0.004 * (k % 5 - 2)), q, answer(q, 200), note)
        for k, q in enumerate(questions())
    ]
    return older(file, rows)


def prompt_in_count(file, note="float16"):
    """Answers that begin with their question, which is among the 200 tokens that are counted."""
    rows = []
    for k, q in enumerate(questions()):
        n = 200 - len(q) // CHARS_PER_TOKEN
        rows.append((200, n * PACE_S * (1 + 0.004 * (k % 5 - 2)), q, q + answer(q, n), note))
    return older(file, rows)


def cached(file):
    """One of nine answers came from a cache."""
    clean(file)
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    fields = lines[4].split(",", 2)
    lines[4] = f"{fields[0]},0.61,{fields[2]}"
    file.write_text("".join(lines), encoding="utf-8")
    return file
