"""The address of a server that runs already: one reading of it, and one way to it, for every request.

An address may end where OpenAI's clients have it end (`/v1`), at the path of a request, and with a query,
which goes with every request. No request goes through a proxy: the load is measured over sockets.
"""

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

ENDS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1")


def checked(url: str) -> str:
    """`url` as it may be kept; ValueError, which does not quote it, where it holds a user or a password."""
    if "@" in urlsplit(url).netloc:
        raise ValueError(
            "The address holds a user or a password, and addresses are kept with a run. Put an access token "
            'into BENCH_API_TOKEN, or a header into -p headers \'{"Authorization": "$NAME"}\', where NAME is '
            "a variable of the environment."
        )
    return url.rstrip("/")


def join(url: str, path: str) -> str:
    """The address of `path` at the server `url`, with the query of `url`."""
    parts = urlsplit(url)
    below = parts.path.rstrip("/")
    end = next((end for end in (path, *ENDS) if below.endswith(end)), "")
    return urlunsplit((parts.scheme, parts.netloc, below.removesuffix(end) + path, parts.query, ""))


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
        return f"HTTP {failure.code}{f', {kind}' if kind else ''}"
    reason = f": {failure.reason}" if isinstance(failure, urllib.error.URLError) else ""
    return f"{type(failure).__name__}{reason}"


def refuses_token(failure: Exception) -> bool:
    """Whether a request failed for want of the right access token."""
    return isinstance(failure, urllib.error.HTTPError) and failure.code in (401, 403)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: the access token would go along, wherever that leads."""

    def redirect_request(self, *arguments: Any) -> None:
        return None
