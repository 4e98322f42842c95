"""A picture of the page of a finished job, as README shows it: ``python notebooks/page_picture.py``.

Needs the extra dev (Playwright) and Debian's chromium.
"""

import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

WIDTH, HEIGHT = 1200, 800


def picture(page: pathlib.Path, target: pathlib.Path) -> None:
    """Write what a browser first shows of a page, in the light theme, as PNG."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        view.goto(page.resolve().as_uri())
        view.wait_for_selector("h1")
        view.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "results/demo/compare")
    picture(folder / "report" / "index.html", pathlib.Path("notebooks/page.png"))
