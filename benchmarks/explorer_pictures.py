"""Take screenshots of every figure of the explorer's page, wide and narrow, light and dark.

    onehop explore "The cat sat because it was sleepy." --export page.html
    python benchmarks/explorer_pictures.py page.html pictures/

A state for the address may follow:

    python benchmarks/explorer_pictures.py page.html pictures/ "role=cross&layer=6&head=3"
"""

import sys
from pathlib import Path

from browser import chromium
from playwright.sync_api import Browser

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")


def take(browser: Browser, address: str, width: int, scheme: str, folder: Path) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page.goto(address)
    page.wait_for_selector("#page[data-ready]")
    page.screenshot(path=folder / f"top-{width}-{scheme}.png")
    page.add_style_tag(content=".bar { position: static !important; }")  # otherwise it covers what is scrolled to
    for figure in page.locator("figure").all():
        figure.screenshot(path=folder / f"{figure.get_attribute('data-figure')}-{width}-{scheme}.png")
    page.close()


def main(file: str, folder: str, state: str = "") -> None:
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        for width in WIDTHS:
            for scheme in SCHEMES:
                take(browser, f"{Path(file).resolve().as_uri()}#{state}", width, scheme, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
