"""Run the cells of the pages, two pages at a time, and keep what came out where Sphinx finds it.

    python docs/cells.py

`make docs` does this first. A page whose cells have not changed since is not run again. What has
run is told as it ends, with its time.
"""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

DOCS = Path(__file__).parent
CACHE = DOCS / "_build" / ".jupyter_cache"
LONGEST = 600
"""Seconds that a cell may take, the first of which may compile."""

AT_ONCE = 2
LONG_ONES = ("orange_trees", "hares", "cluster")
"""Pages that are begun first, so that none of them is left alone at the end."""


def notebooks():
    """Return the pages that have cells, by their paths, as Sphinx reads them."""
    from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
    from myst_parser.config.main import MdParserConfig

    pages = sorted(DOCS.glob("**/*.md"), key=lambda page: (page.stem not in LONG_ONES, page))
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    return {
        page: read_myst_markdown_notebook(text, MdParserConfig(), add_source_map=True, path=page)
        for page, text in texts.items()
        if is_myst_markdown_notebook(text)
    }


def run(page, notebook):
    """Run the cells of a page, and return how many seconds that took."""
    from nbclient import execute

    begin = time.perf_counter()
    execute(notebook, cwd=page.parent, timeout=LONGEST, record_timing=False)
    return time.perf_counter() - begin


def main():
    """Run what is not in the cache."""
    from jupyter_cache import get_cache
    from jupyter_cache.base import CacheBundleIn

    os.environ["MATPLOTLIBRC"] = str(DOCS)
    cache = get_cache(CACHE)
    known = {record.hashkey for record in cache.list_cache_records()}
    found = notebooks()
    new = {
        page: notebook
        for page, notebook in found.items()
        if cache.create_hashed_notebook(notebook)[1] not in known
    }
    if len(new) < len(found):
        print(f"{len(found) - len(new)} pages have run before")
    with ThreadPoolExecutor(AT_ONCE) as threads:
        running = {threads.submit(run, *item): item for item in new.items()}
        for n, ended in enumerate(as_completed(running), 1):
            page, notebook = running[ended]
            if ended.exception():
                threads.shutdown(cancel_futures=True)
                sys.exit(f"{page.relative_to(DOCS)} failed:\n{ended.exception()}")
            data = {"execution_seconds": ended.result()}
            bundle = CacheBundleIn(notebook, str(page), data=data)
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
            name = page.relative_to(DOCS).with_suffix("")
            print(f"{n} of {len(new)}: {name}, {ended.result():.0f} s", flush=True)


if __name__ == "__main__":
    main()
