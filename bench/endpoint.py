"""The address of a server that runs already: one reading of it, and one way to it, for every request.

An address may end where OpenAI's clients have it end (`/v1`), at the path of a request, and with a query,
which goes with every request. No request goes through a proxy: the load is measured over sockets.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

# How the address of a request may end, the request of a dialect or another one.
ENDS = ("/chat/completions", "/completions", "/responses", "/messages", "/models")
BASE = re.compile(r"/(v[0-9]+[a-z0-9]*|openai)$")  # of a path below which requests have no /v1 of their own


def checked(url: str) -> str:
    """Return `url` as it may be kept; ValueError for one that is no address of HTTP, and, without quoting it,
    for one that holds a user or a password."""
    if "@" in urlsplit(url).netloc:
        raise ValueError(
            "The address holds a user or a password, and addresses are kept with a run. Put an access token "
            'into BENCH_API_TOKEN, or a header into -p headers \'{"Authorization": "$NAME"}\', where NAME is '
            "a variable of the environment."
        )
    if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
        raise ValueError(f"url must be like http://localhost:8000, with http:// or https://, not {url!r}.")
    return url.rstrip("/")


def join(url: str, path: str) -> str:
    """The address of `path` at the server `url`, with the query of `url`.

    Where `url` is the address of a request itself, that of its kind or its neighbour of another kind; where
    it is a base as OpenAI's clients take one, `path` below it without its /v1.
    """
    parts = urlsplit(url)
    below, tail = parts.path.rstrip("/"), path.removeprefix("/v1")
    end = next((end for end in (path, *ENDS) if below.endswith(end)), "")
    base = below.removesuffix(end)
    if tail == path:  # no request of OpenAI's
        base = base.removesuffix("/v1")
    elif BASE.search(base) or (end and end != path):
        path = tail
    return urlunsplit((parts.scheme, parts.netloc, base + path, parts.query, ""))


def get(url: str, path: str, headers: Mapping[str, str], patience_s: float) -> bytes:
    """The body of `path` at the server `url`; the exceptions of urllib."""
    query = urllib.request.Request(join(url, path), headers=dict(headers))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)
    with opener.open(query, timeout=patience_s) as answer:
        return answer.read()


def past_proxy(url: str) -> str:
    """That the proxy of the environment is not used for `url`, in a sentence after a blank; else empty."""
    parts = urlsplit(url)
    named = urllib.request.getproxies().get(parts.scheme)
    if not named or urllib.request.proxy_bypass(parts.hostname or ""):
        return ""
    return f" The proxy in {parts.scheme}_proxy is not used: no request of a measurement goes through one."


def why(failure: Exception) -> str:
    """A failure in words that quote neither the request nor the answer: either may hold the access token."""
    if isinstance(failure, urllib.error.HTTPError):
        kind = failure.headers.get_content_type() if failure.headers else ""
        to = urlsplit(failure.headers.get("Location", ""))  # its path may quote the access token
        location = f", location {to.scheme}://{to.netloc}" if to.netloc else ""
        return f"HTTP {failure.code}{f', {kind}' if kind else ''}{location}"
    reason = f": {failure.reason}" if isinstance(failure, urllib.error.URLError) else ""
    return f"{type(failure).__name__}{reason}"


def refuses_token(failure: Exception) -> bool:
    """Whether a request failed for want of the right access token."""
    return isinstance(failure, urllib.error.HTTPError) and failure.code in (401, 403)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the access token would go along, wherever that leads."""

    def redirect_request(self, *arguments: Any) -> None:
        return None
