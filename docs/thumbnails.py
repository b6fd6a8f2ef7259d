"""Make the pictures of cards: one of each page of the gallery and of the tutorials, made small.

Run this after `make docs`, and commit docs/images/gallery_NAME.png and tutorials_NAME.png of the
pages that changed:

    python docs/thumbnails.py [NAME ...]
"""

import re
import sys
from pathlib import Path

import numpy as np
from PIL import Image

DOCS = Path(__file__).parent
SIZE = (560, 400)  # pixels, at most; shown at half of it
WHICH = {"gallery": 0, "tutorials": -1}
"""Pictures of pages that are shown: the first one, or the last one after those of priors."""
OTHERS = {"heat": 1}
"""Pages that show another one."""
BEST = 1.5
"""Width by height of a card."""


def first_panels(picture):
    """Return the left panels of a picture that is too wide for a card, whose words would be small.

    A panel ends at a dark line from top to bottom, every second one, and at what its ticks need.
    """
    grey = np.asarray(picture.convert("L"))
    lines = np.flatnonzero(np.diff(((grey < 100).mean(axis=0) > 0.4).astype(int)) == 1)
    white = np.flatnonzero((grey > 250).all(axis=0))
    ends = [white[white > right].min() for right in lines[1::2] if (white > right).any()]
    end = min(ends or [picture.width], key=lambda end: abs(np.log(end / picture.height / BEST)))
    return picture.crop((0, 0, end, picture.height))


def make_thumbnail(page):
    """Write the picture of the built page docs/FOLDER/NAME.html."""
    folder, name = page.parent.name, page.stem
    found = re.findall(r'<img[^>]* src="([^"]*/_images/[^"]+)"', page.read_text(encoding="utf-8"))
    picture = Image.open(page.parent / found[OTHERS.get(name, WHICH[folder])]).convert("RGB")
    picture = first_panels(picture)
    picture.thumbnail(SIZE)
    picture.quantize(64).save(DOCS / "images" / f"{folder}_{name}.png", optimize=True)


if __name__ == "__main__":
    for path in sorted(path for folder in WHICH for path in (DOCS / folder).glob("*.md")):
        if path.stem in sys.argv[1:] or not sys.argv[1:]:
            made = DOCS / "_build" / "html" / "docs" / path.parent.name
            make_thumbnail(made / f"{path.stem}.html")
