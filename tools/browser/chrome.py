"""Debian's Chromium as the tasks drive it, and what is watched meanwhile: other hosts, the policy, errors, 5xx."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, Response, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[2]
EXTRAS: Final = ROOT / "build" / "browser-extras"

EXECUTABLE: Final = "/usr/bin/chromium"
FLAGS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE, NARROW = (1280, 800), (390, 844)
SIZES: Final = (WIDE, NARROW)
SCHEMES: Final = ("light", "dark")
#: In milliseconds.
DEADLINE: Final = 20_000


@dataclass(slots=True)
class Watch:
    """What pages of one browser did that they must not: one line for each."""

    host: str
    requests: int = 0
    found: list[str] = field(default_factory=list)

    def context(self, context: BrowserContext) -> None:
        """Look at everything of ``context`` from now on."""
        context.on("request", lambda request: self._asked(request.url))
        context.on("response", self._answered)
        context.on("weberror", lambda error: self.found.append(f"error of a script: {error.error}"))
        context.on("console", lambda message: self._said(message.type, message.text))

    def _asked(self, url: str) -> None:
        self.requests += 1
        if urlsplit(url).netloc != self.host:
            self.found.append(f"a request to elsewhere: {url}")

    def _answered(self, response: Response) -> None:
        policy = response.headers.get("content-security-policy", "")
        if "default-src 'none'" not in policy or "unsafe" in policy:
            self.found.append(f"no policy, or a weak one, at {response.url}: {policy!r}")
        # 502 to 504 are sentences of the console about a broker that does not answer, or about a rush.
        if response.status in (500, 501):
            self.found.append(f"{response.status} at {response.url}")

    def _said(self, kind: str, text: str) -> None:
        # Chromium writes one for each answer of 400 and more; those are counted above.
        if kind == "error" and "Failed to load resource" not in text:
            self.found.append(f"the browser's log: {text}")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser, which ends with the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def tab(
    browser: Browser,
    watch: Watch,
    size: tuple[int, int] = WIDE,
    scheme: str = "light",
    script: bool = True,
    base_url: str | None = None,
) -> Iterator[Page]:
    """A page of a fresh visitor."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,  # type: ignore[arg-type]
        java_script_enabled=script,
        base_url=base_url,
        reduced_motion="reduce",
        has_touch=size == NARROW,
    )
    context.set_default_timeout(DEADLINE)
    watch.context(context)
    try:
        yield context.new_page()
    finally:
        context.close()


def axe(page: Page) -> list[str]:
    """What axe-core finds on the page that is open, at serious and critical: rule, element."""
    source = (EXTRAS / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
    # By the browser's debugger, which the page's policy does not bind.
    page.evaluate(source + "; null")
    found: dict[str, Any] = page.evaluate("axe.run({resultTypes: ['violations']})")
    return [
        f"{violation['impact']} {violation['id']}: {node['html'][:160]} ({json.dumps(node['failureSummary'])[:300]})"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"][:3]
    ]


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def keep(page: Page, path: Path, colours: int = 128, full: bool = False) -> int:
    """A screenshot with few colours; its size in bytes."""
    import io

    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.open(io.BytesIO(page.screenshot(full_page=full))).convert("RGB")
    few = image.quantize(colors=colours, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return path.stat().st_size
