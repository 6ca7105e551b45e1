"""A person at the page: a real Chromium on a running product."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field
from playwright.sync_api import Locator, Page, expect, sync_playwright
from tests.kit.parts import find_part

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, BrowserContext

# A browser that asks nobody for anything; it runs as whoever runs the tests.
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
PATIENCE = 15_000  # ms


@contextmanager
def open_browser() -> Generator[Browser]:
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=find_part("chromium"), args=list(QUIET)
        )
        yield launched
        launched.close()


@define(eq=False)
class Reader:
    """Somebody who looks at one page; what went wrong in it is kept in `faults`."""

    page: Page
    url: str
    faults: list[str] = field(factory=list[str])

    def __attrs_post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self._check(request.url))

    def _check(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.faults.append(f"asked another host: {url}")

    def open(self, target: str = "") -> Reader:
        self.page.goto(f"{self.url}/#{target}" if target else self.url)
        expect(self.writing).to_be_visible()
        return self

    @property
    def writing(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message")

    @property
    def messages(self) -> Locator:
        return self.page.locator(".message")

    def send(self, body: str) -> Locator:
        """Type it and press Enter; gives the message as it stands in the log."""
        seq = self.page.evaluate(_HEAD) + 1
        self.writing.fill(body)
        self.writing.press("Enter")
        message = self.page.locator(f"#m{seq}")
        expect(message).to_contain_text(body.splitlines()[0][:60])
        return message

    def more(self, message: Locator) -> Locator:
        """Open the menu of a message."""
        message.get_by_role("button", name="More about this message").click()
        menu = self.page.get_by_role("menu")
        expect(menu).to_be_visible()
        return menu

    def mark_urgent(self, message: Locator) -> None:
        self.more(message).get_by_role("menuitem", name="Mark urgent").click()

    def condition(self, agent: str) -> Locator:
        """Show what the left column says of an agent."""
        entry = self.page.locator("nav button", has_text=agent).first
        return entry.locator(".condition")


_HEAD = """() => Math.max(0, ...[...document.querySelectorAll(".message")].map(
  (each) => Number(each.id.slice(1))))"""


@contextmanager
def reader(browser: Browser, url: str, **look: Any) -> Generator[Reader]:
    """Open a window of its own; nothing may have gone wrong in it at the end."""
    look = {"viewport": DESKTOP, "locale": "en-GB", **look}
    context: BrowserContext = browser.new_context(**look)
    try:
        looking = Reader(context.new_page(), url)
        yield looking
        assert looking.faults == []
    finally:
        context.close()
