"""What tests of pages share: a browser, the site as Quarto renders it, and a page that is opened from its file."""

import functools
import http.server
import re
import shutil
import threading

import pytest
from rendering import FORK, checkout, render

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


@pytest.fixture(scope="session")
def rendered(tmp_path_factory):
    """The site of the committed tables in a fork, as Quarto renders it: rendered once for all tests."""
    folder = checkout(tmp_path_factory.mktemp("site"))
    setting = (folder / "_quarto.yml").read_text()
    setting = re.sub(r"^  # (repo-.*)$", r"  \1", setting, flags=re.M)
    setting = re.sub("repo-url:.*", f"repo-url: {FORK}", setting)
    (folder / "_quarto.yml").write_text(setting)
    done = render(folder, PYTHONPATH=folder)
    (folder / "render.log").write_text(done.stdout + done.stderr)
    return folder / "_site"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(rendered):
    """The address at which the rendered site is served."""
    handler = functools.partial(Quiet, directory=rendered)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine; install it to test the pages in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def opened(request, site, browser):
    """A function that opens the page `site` from its file, without a server, with a query, and waits for its
    element READY (a name in the test's module); nothing may leave the site."""
    pages = []

    def open_page(query="", file=site, **more):
        page = browser.new_page(
            **{"viewport": {"width": 1280, "height": 900}, "accept_downloads": True} | more
        )
        page.troubles = []
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        # Quarto's own modules are not loaded from disk; the pages' scripts are.
        ours = lambda m: m.type == "error" and "ERR_FAILED" not in m.text and "CORS policy" not in m.text
        page.on("console", lambda m: page.troubles.append(m.text) if ours(m) else None)
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else page.troubles.append(r.url),
        )
        page.goto(f"file://{file}{query}")
        page.wait_for_selector(f"{request.module.READY}[data-ready]")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        assert page.troubles == []
        page.close()
