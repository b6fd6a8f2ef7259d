"""What pk.sample shows while it runs: a bar for each chain, or for all, and the time left.

Where there is no terminal it is a line in the log now and then, and the bars at the end.
"""

import logging
import time
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from pymc_kameleon.findings.finding import say
from pymc_kameleon.findings.words import grouped, in_words
from pymc_kameleon.model.pymc_internals import (
    MarkerProgressBar,
    default_progress_theme,
    natural_name,
)
from pymc_kameleon.sampling.workers import POLL_INTERVAL
from pymc_kameleon.step.draw_costs import SLOW_LOGP, most_evaluations
from pymc_kameleon.step.job import SearchSoFar

_log = logging.getLogger("pymc_kameleon")

PROGRESSBAR_OPTIONS = (
    *(False, True, "split", "combined"),
    *("split+stats", "stats+split", "combined+stats", "stats+combined"),
)
"""Values of `progressbar`, as PyMC has them; True is "split+stats"."""

FIRST_LINE, LINE_INTERVAL = 10, 60
"""Seconds until the first line in the log, and between two."""


class Row(NamedTuple):
    """How far a chain is, or all of them are, in this run."""

    done: int  # draws, of tuning too
    total: int
    n_tune: int  # draws of tuning
    seconds: float  # of a chain its own computing time
    evaluations: int
    most: int  # evaluations of a draw, at most; the first one has looked for scales besides
    stats: list  # mean acceptance and scale of each step; empty before the first draw
    stuck: bool
    search: SearchSoFar  # on the way to the posterior; without evaluations if it is not there

    @classmethod
    def of(cls, chains, seconds):
        """Return how far chains are, all together, that have been at work for `seconds`."""
        stats = [chain.last_stats for chain in chains if chain.last_stats]
        seen = [[(own.mean_accept, float(own["scaling"])) for own in every] for every in stats]
        return cls(
            sum(chain.done - chain.begun for chain in chains),
            sum(chain.total - chain.begun for chain in chains),
            sum(chain.n_tune for chain in chains),
            seconds,
            sum(chain.evaluations for chain in chains),
            most_evaluations(chains[0].steps),
            np.mean(seen, axis=0).tolist() if seen else [],
            any(own.stuck for every in stats for own in every),
            SearchSoFar.of_all([c.state.search for c in chains if c.evaluations]),
        )

    @property
    def draw(self):
        """Draws of tuning, then after it."""
        return self.done - self.n_tune if self.done > self.n_tune else self.done

    @property
    def to_go(self):
        """Evaluations that the draws to come take, about; 0 before the first draw."""
        each = min(self.evaluations / self.done, self.most) if self.done else 0
        return each * (self.total - self.done)


def speed(row):
    """Return draws per second, or seconds per draw, in words."""
    if row.done == 0 or row.seconds == 0:
        return ""
    rate = row.done / row.seconds
    if rate < 1:
        return f"{in_words(1 / rate)}/draw"
    power = min(int(np.log10(round(rate))) // 3, 2)
    return f"{rate / 1000**power:.3g}{('', 'k', 'M')[power]} draws/s"


def titles(steps):
    """Return what the steps' columns are called: the sampler, and one of its variables."""
    if len(steps) == 1:
        return [type(steps[0]).__name__]
    return [f"{type(step).__name__} {natural_name(step.var_names[0])}" for step in steps]


class Progress:
    """Shows how far chains are, what time that took, and what is left.

    If it raises, it is given up, and says so in the log: no draw is lost for it. `most` limits the
    evaluations of all chains, if that is not None.
    """

    def __init__(self, chains, progressbar=True, most=None):
        if progressbar not in PROGRESSBAR_OPTIONS:
            options = ", ".join(map(repr, PROGRESSBAR_OPTIONS))
            raise ValueError(f"progressbar must be one of {options}, not {progressbar!r}.")
        self._most, self._chains = most, [*chains]
        self._started, self._elapsed, self._display = time.perf_counter(), None, None
        self._combined = "combined" in str(progressbar)
        with_stats = progressbar is True or "stats" in str(progressbar)
        self.titles = titles(chains[0].steps) if with_stats else []
        if progressbar:
            self._or_give_up(self._begin)

    def _begin(self):
        self._display = Terminal(self)

    def __enter__(self):
        """Show it."""
        self._started = time.perf_counter()
        if self._display is not None:
            self._or_give_up(self._display.start)
        return self

    def __exit__(self, *error):
        """Leave it as it is."""
        self._elapsed = self.elapsed
        if self._display is not None:
            self._or_give_up(self._display.stop)

    def show(self, chain):
        """Show how far a chain is. To be called now and then if there is nothing new, too."""
        self._chains[chain.row] = chain
        if self._display is not None:
            self._or_give_up(self._display.show)

    def _or_give_up(self, task):
        try:
            task()
        except Exception as error:  # PyMC may lack parts, or the terminal be gone
            display, self._display = self._display, None
            with suppress(Exception):  # it may have left the terminal in disorder
                display.stop()
            say("progress_failed", error=repr(error))

    # ---- what is shown --------------------------------------------------------------------------

    @property
    def elapsed(self):
        """Seconds since the start."""
        return time.perf_counter() - self._started if self._elapsed is None else self._elapsed

    @property
    def rows(self):
        """The rows to show, one for each bar."""
        if self._combined:
            return [self._whole]
        return [Row.of([chain], chain.seconds) for chain in self._chains]

    @property
    def _whole(self):
        return Row.of(self._chains, self.elapsed)

    def summary(self, expensive=SLOW_LOGP):
        """Return lines on all chains: times, evaluations, and the way to the posterior.

        Evaluations are left out if one takes less than so many seconds. Those to come take as long
        as those that were made.
        """
        whole = self._whole
        made, seconds = whole.evaluations, sum(chain.seconds for chain in self._chains)
        lines = [in_words(self.elapsed)]
        slow = whole.done > 0 and seconds > expensive * made
        if slow:
            of = "" if self._most is None else f" of at most {grouped(self._most)}"
            lines.append(f"{grouped(made)}{of} evaluations, one per {in_words(seconds / made)}")
        if whole.done == whole.total or self._elapsed is not None:
            lines[0] += " in all"
        elif whole.done > 0:
            lines[0] += f", about {in_words(whole.to_go * self.elapsed / made)} left"
            if slow:
                most = np.inf if self._most is None else max(0, self._most - made)
                lines[1] += f", about {grouped(round(min(whole.to_go, most)))} to go"
        if whole.search.evaluations:
            lines.append(whole.search.in_words())
        return lines

    def in_a_line(self):
        """Return the draws of all chains, their acceptance and the summary, in a line."""
        whole = self._whole
        draws = f"{grouped(whole.done)} of {grouped(whole.total)} draws"
        if whole.stats:
            draws += f", acceptance {' and '.join(f'{accept:.2f}' for accept, _ in whole.stats)}"
        return "; ".join([draws, *self.summary(expensive=0)])


class Terminal:
    """Draws a Progress with rich, in a terminal or notebook; elsewhere it logs lines meanwhile."""

    def __init__(self, progress):
        self._progress, console = progress, Console(theme=default_progress_theme)
        self._live = Live(self, console=console, auto_refresh=False)
        self._moves = console.is_interactive or console.is_jupyter  # else only the end is drawn
        self._due = time.perf_counter() + (0 if self._moves else FIRST_LINE)

    def start(self):
        """Start the display; there is a row for each bar already."""
        self._live.start(refresh=True)

    def show(self):
        """Draw it again, or log a line, unless that was done just now."""
        now = time.perf_counter()
        if now < self._due:
            return
        if self._moves:
            self._live.refresh()
            self._due = now + POLL_INTERVAL
        else:
            _log.info(self._progress.in_a_line())
            self._due = now + LINE_INTERVAL

    def stop(self):
        """Draw it for the last time, and end its line, which rich does in a terminal only."""
        self._live.stop()
        console = self._live.console
        if not (console.is_terminal or console.is_jupyter):
            console.line()

    def __rich_console__(self, console, options):
        """Lay it out in the available width."""
        progress = self._progress
        table = Table(
            Column("Progress", ratio=1, vertical="bottom"),
            box=None,
            padding=(0, 2, 0, 0),
            pad_edge=False,
            expand=True,
        )
        headers = [("Draw", 7)]
        for title in progress.titles:
            title = title if len(title) <= 14 else f"{title[:13]}…"
            headers.append((f"{title}\naccept   scale", 14))
        for header, width in [*headers, ("Speed", 12), ("Elapsed", 8)]:
            header = Text(header)  # brackets are no markup
            table.add_column(header, min_width=width, no_wrap=True, justify="right")
        for row in progress.rows:
            stats = [f"{accept:6.2f} {scale:7.2g}" for accept, scale in row.stats]
            stats = stats[: len(progress.titles)] or [""] * len(progress.titles)
            table.add_row(_bar(row), str(row.draw), *stats, speed(row), in_words(row.seconds))
        yield Group(*map(Text, progress.summary()), table)


def _bar(row):
    colour = {"complete_style": "red", "finished_style": "red"} if row.stuck else {}
    marker = row.n_tune if 0 < row.n_tune < row.total else None
    return MarkerProgressBar(total=row.total, completed=row.done, marker_pos=marker, **colour)
