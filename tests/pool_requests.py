"""45 requests of five growing conversations with a shared first block of 32 tokens, made from a seed."""

import random

BLOCK = 32


def requests(blocks=14, seed=30):
    """[(prompt, answer, which of two under way ends before it)]; prompts stay below what `blocks` can hold."""
    rng = random.Random(seed)

    def drawn(low, high):
        return tuple(rng.randint(0, 999) for _ in range(rng.randint(low, high)))

    head = drawn(BLOCK, BLOCK)
    conversations, made = [head + drawn(1, 40) for _ in range(5)], []
    for _ in range(45):
        which, answer = rng.randrange(5), drawn(1, 12)
        prompt = conversations[which]
        if len(prompt) + len(answer) > BLOCK * (blocks - 3):
            prompt = head + drawn(1, 40)
        made.append((prompt, answer, rng.randrange(2)))
        conversations[which] = prompt + answer + drawn(1, 30)
    return made
