"""Make the pictures of docs/gallery.md: the first one of each page of the gallery, made small.

Run this after `make docs`, and commit docs/images/gallery_NAME.png of the pages that changed:

    python docs/thumbnails.py [NAME ...]
"""

import re
import sys
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parent
SIZE = (560, 400)  # pixels, at most; shown at half of it


def make_thumbnail(page):
    """Write docs/images/gallery_NAME.png from the built page docs/gallery/NAME.html."""
    first = re.search(r'<img[^>]* src="([^"]*/_images/[^"]+)"', page.read_text(encoding="utf-8"))
    picture = Image.open(page.parent / first[1]).convert("RGB")
    picture.thumbnail(SIZE)
    picture.quantize(64).save(DOCS / "images" / f"gallery_{page.stem}.png", optimize=True)


if __name__ == "__main__":
    built = DOCS / "_build" / "html" / "docs" / "gallery"
    for name in sys.argv[1:] or sorted(path.stem for path in (DOCS / "gallery").glob("*.md")):
        make_thumbnail(built / f"{name}.html")
