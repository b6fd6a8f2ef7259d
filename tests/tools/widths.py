"""What is wider than its column on the site, and which numbers break over two lines.

    python tests/tools/widths.py docs/_build/html [--width 1400] [--chromium /usr/bin/chromium]

It needs `pip install playwright`, and Chromium. At 1400 pixels there should be nothing. On a phone,
at 400, code and tables are scrolled within their column, so only pages that are wider are told.
"""

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

PHONE = 600
"""Pixels below which code and tables may be scrolled."""

LOOK = r"""
() => {
  const article = document.querySelector("article.bd-article");
  if (!article) return {wider: [], broken: [], page: 0};
  const right = article.getBoundingClientRect().right
    - parseFloat(getComputedStyle(article).paddingRight);
  const clips = node => getComputedStyle(node).overflowX != "visible";
  const wider = [];
  for (const node of article.querySelectorAll("*")) {
    if (node.closest("math, svg") && node.tagName.toLowerCase() != "math") continue;
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    let by = 0;
    if (clips(node) && node.clientWidth) by = node.scrollWidth - node.clientWidth - 1;
    else {
      let above = node.parentElement;
      while (above != article && !clips(above)) above = above.parentElement;
      if (above == article) by = box.right - right - 2;
    }
    const says = node.textContent.trim().slice(0, 60);
    if (by > 0) wider.push(`${Math.round(by)} ${node.tagName} ${says}`);
  }
  const broken = [], number = /\d{1,3}(?:[ \u202f]\d{3})+(?!\d)|\d[\d.,]*\d|\d\s?%/g;
  const texts = document.createTreeWalker(article, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (text.parentElement.closest("pre")) continue;
    for (const match of text.data.matchAll(number)) {
      const range = document.createRange();
      range.setStart(text, match.index);
      range.setEnd(text, match.index + match[0].length);
      const boxes = [...range.getClientRects()].filter(box => box.width);
      if (new Set(boxes.map(box => Math.round(box.top / 4))).size > 1) broken.push(match[0]);
    }
  }
  return {wider, broken, page: document.documentElement.scrollWidth - window.innerWidth};
}
"""


def main():
    """Print what there is, page by page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--width", type=int, default=1400, help="of the window, in pixels")
    parser.add_argument("--chromium", help="its program; by default the one of Playwright")
    options = parser.parse_args()
    counts = {"wider": 0, "broken": 0, "page": 0}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=options.chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        window = browser.new_page(viewport={"width": options.width, "height": 900})
        for page in sorted(options.site.resolve().rglob("*/*.html")):  # index.html leads on
            window.goto(page.as_uri())
            found = window.evaluate(LOOK)
            if options.width < PHONE:
                found["wider"] = []
            for line in (*found["wider"], *(f"broken: {number}" for number in found["broken"])):
                print(f"{page.relative_to(options.site.resolve())}: {line}")
            if found["page"] > 0:
                print(f"{page.name}: the page is wider than the window by {found['page']}")
            counts["wider"] += len(found["wider"])
            counts["broken"] += len(found["broken"])
            counts["page"] += found["page"] > 0
    print(
        "{wider} too wide, {broken} numbers broken, {page} pages wider than the window".format(
            **counts
        )
    )


if __name__ == "__main__":
    main()
