"""What is expected of a prefix cache where requests come one after the other."""

from bench import prefix_cache


def expected(requests, declared):
    """`prefix_cache.expected` of each request when every one before it has ended."""
    ended = [request.computed for request in requests]
    return [prefix_cache.expected([each], declared, ended[:k])[0] for k, each in enumerate(requests)]
