"""What pk.sample shows while it runs: a bar for each chain, or for all, and the time left.

Where there is no terminal it is a line in the log now and then, and the bars at the end.
"""

import logging
import time
from contextlib import contextmanager, suppress
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

PROGRESSBAR_OPTIONS = {
    False: (False, False),
    True: (False, True),
    "split": (False, False),
    "combined": (True, False),
    "split+stats": (False, True),
    "stats+split": (False, True),
    "combined+stats": (True, True),
    "stats+combined": (True, True),
}
"""Values of `progressbar`: whether chains share a bar, and whether steps' statistics are shown."""

FIRST_LINE, LINE_INTERVAL = 10, 60
"""Seconds until the first line in the log, and between two."""

BAR_WIDTH, COLUMN_GAP, STATS_WIDTH = 10, 2, 14
"""Widths in characters: of the shortest bar, between columns, and of the column of a step."""


class Row(NamedTuple):
    """How far a chain is, or all of them are, in this run."""

    done: int  # draws, of tuning too
    total: int
    n_tune: int  # draws of tuning
    seconds: float  # its own computing time
    evaluations: int
    most: int  # evaluations of a draw, at most; the first one has looked for scales besides
    stats: list  # mean acceptance and scale of each step; empty before the first draw
    stuck: bool
    search: SearchSoFar  # on the way to the posterior; without evaluations if it is not there

    @classmethod
    def of(cls, chain):
        """Return how far a chain is."""
        stats = chain.last_stats or []
        return cls(
            chain.done - chain.begun,
            chain.total - chain.begun,
            chain.n_tune,
            chain.seconds,
            chain.evaluations,
            most_evaluations(chain.steps),
            [(own.mean_accept, float(own["scaling"])) for own in stats],
            any(own.stuck for own in stats),
            chain.state.search if chain.evaluations else SearchSoFar(),
        )

    @property
    def draw(self):
        """Draws of tuning, then after it."""
        return self.done - self.n_tune if self.done > self.n_tune else self.done

    @property
    def n_logp(self):
        """Evaluations of a draw to come; NaN before the first draw."""
        return min(self.evaluations / self.done, self.most) if self.done else np.nan

    @property
    def seconds_per_draw(self):
        """Seconds of a draw to come; NaN before the first draw."""
        share = self.n_logp * self.done / self.evaluations if self.evaluations else 1.0
        return self.seconds / self.done * share if self.done else np.nan


def combined(rows, seconds):
    """Return one row for all chains, which have been at work for `seconds`."""
    done, total, n_tune, _, evaluations, most, stats, stuck, searches = zip(*rows, strict=True)
    seen = [own for own in stats if own]
    mean = np.mean(seen, axis=0).tolist() if seen else []
    sums = map(sum, (done, total, n_tune))
    search = SearchSoFar.of_all(searches)
    return Row(*sums, seconds, sum(evaluations), most[0], mean, any(stuck), search)


def remaining(rows, what):
    """Return what the draws to come take of each chain, (n,) float64; NaN before the first draw.

    `what` names a property of rows. Chains that have not begun are taken for the mean of others.
    """
    values = np.array([getattr(row, what) for row in rows])
    begun = ~np.isnan(values)
    mean = values[begun].mean() if begun.any() else np.nan
    return np.where(begun, values, mean) * [row.total - row.done for row in rows]


def seconds_left(rows, elapsed, seconds=0.0):
    """Return how many seconds chains still take; NaN before the first draw.

    They go on at their own speeds, and as many at a time as in the last seconds, `elapsed`, since
    their computing times were `seconds` in all.
    """
    seconds = sum(row.seconds for row in rows) - seconds
    work = remaining(rows, "seconds_per_draw")
    return max(work.sum() * elapsed / seconds, work.max()) if seconds > 0 else np.nan


def speed(row):
    """Return draws per second, or seconds per draw, in words."""
    if row.done == 0 or row.seconds == 0:
        return ""
    rate = row.done / row.seconds
    if rate < 1:
        return f"{in_words(1 / rate)}/draw"
    thousands = min(2, int(np.log10(rate)) // 3)
    return f"{float(f'{rate / 1000**thousands:.3g}'):g}{['', 'k', 'M'][thousands]} draws/s"


def titles(steps):
    """Return what the steps' columns are called: the sampler, and one of its variables."""
    if len(steps) == 1:
        return [type(steps[0]).__name__]
    names = []
    for step in steps:
        first, *others = map(natural_name, step.var_names)
        names.append(f"{type(step).__name__} {first}{', …' if others else ''}")
    return names


class Progress:
    """Shows how far chains are, what time that took, and what is left.

    If it raises, it is given up, and says so in the log: no draw is lost for it. `most` limits the
    evaluations of all chains, if that is not None, of which `at_once` may be under way. The run
    keeps `under_way` up to date.
    """

    def __init__(
        self,
        chains,
        progressbar=True,
        most=None,
        at_once=1,
    ):
        self._most, self._at_once, self.under_way = most, at_once, 0
        if progressbar not in PROGRESSBAR_OPTIONS:
            options = ", ".join(map(repr, PROGRESSBAR_OPTIONS))
            raise ValueError(f"progressbar must be one of {options}, not {progressbar!r}.")
        self._rows, self._titles = [Row.of(chain) for chain in chains], titles(chains[0].steps)
        self._started, self._estimated, self._elapsed = time.perf_counter(), None, None
        self._searched = 0.0, 0.0  # time, and computing time, before any chain had draws
        self._combined, self._with_stats = PROGRESSBAR_OPTIONS[progressbar]
        self._display = NoDisplay()
        if progressbar:
            with self._or_give_up():  # PyMC may lack its parts
                self._display = Terminal(self)

    def __enter__(self):
        """Show it."""
        self._started = time.perf_counter()
        with self._or_give_up():
            self._display.start()
        return self

    def __exit__(self, *error):
        """Leave it as it is."""
        self._elapsed = self.elapsed
        with self._or_give_up():
            self._display.stop()

    def show(self, chain):
        """Show how far a chain is. To be called now and then if there is nothing new, too."""
        with self._or_give_up():
            row, before = Row.of(chain), self._rows[chain.row]
            if row.done > before.done or row.search != before.search:
                self._rows[chain.row], self._estimated = row, None
                if not any(row.done for row in self._rows):  # one may search for all of them
                    self._searched = self.elapsed, sum(row.seconds for row in self._rows)
            self._display.show()

    @property
    def _left(self):
        """Seconds left, which count down until there is news, never to zero."""
        now = time.perf_counter()
        if self._estimated is None:
            elapsed, seconds = self._searched
            left = seconds_left(self._rows, self.elapsed - elapsed, seconds)
            self._estimated = now, left if any(row.done for row in self._rows) else np.nan
        then, left = self._estimated
        return max(left - (now - then), 0.1 * left)

    @contextmanager
    def _or_give_up(self):
        try:
            yield
        except Exception as error:
            display, self._display = self._display, NoDisplay()
            with suppress(Exception):  # it may have left the terminal in disorder
                display.stop()
            say("progress_failed", error=repr(error))

    # ---- what displays show ---------------------------------------------------------------------

    @property
    def elapsed(self):
        """Seconds since the start."""
        return time.perf_counter() - self._started if self._elapsed is None else self._elapsed

    @property
    def rows(self):
        """The rows to show, one for each bar."""
        return [combined(self._rows, self.elapsed)] if self._combined else self._rows

    @property
    def titles(self):
        """Titles of the steps' columns, if their statistics are to be shown."""
        return self._titles if self._with_stats else []

    def summary(self, expensive=SLOW_LOGP):
        """Return lines on all chains: times, evaluations, and the way to the posterior.

        Evaluations are left out if one takes less than so many seconds.
        """
        whole = combined(self._rows, self.elapsed)
        made, seconds = whole.evaluations, sum(row.seconds for row in self._rows)
        slow = whole.done > 0 and seconds > expensive * made
        lines = [in_words(self.elapsed)]
        if slow:
            of = "" if self._most is None else f" of at most {grouped(self._most)}"
            lines.append(f"{grouped(made)}{of} evaluations, one per {in_words(seconds / made)}")
        if whole.done == whole.total or self._elapsed is not None:
            lines[0] += " in all"
        elif (left := self._left) > 0:
            lines[0] += f", about {in_words(left)} left"
            if slow:
                to_go = round(remaining(self._rows, "n_logp").sum())
                to_go = to_go if self._most is None else max(0, min(to_go, self._most - made))
                lines[1] += f", about {grouped(to_go)} to go"
        if slow and self._at_once > 1:
            rate = made / self.elapsed
            each = f"{rate:.3g} per second" if rate > 1 else f"one in {in_words(1 / rate)}"
            lines.append(
                f"{each}, round {made // self._at_once}, {self.under_way} of {self._at_once} under "
                "way"
            )
        if whole.search.evaluations:
            lines.append(whole.search.in_words())
        return lines

    def in_a_line(self):
        """Return the draws of all chains, their acceptance and the summary, in a line."""
        whole = combined(self._rows, self.elapsed)
        draws = f"{grouped(whole.done)} of {grouped(whole.total)} draws"
        if whole.stats:
            draws += f", acceptance {' and '.join(f'{accept:.2f}' for accept, _ in whole.stats)}"
        return "; ".join([draws, *self.summary(expensive=0)])


class NoDisplay:
    """Shows nothing."""

    def start(self):
        """Do nothing."""

    show = stop = start


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
        progress, rows = self._progress, self._progress.rows
        columns = [("Draw", 7, [str(row.draw) for row in rows])]
        for i, title in enumerate(progress.titles):
            title = title if len(title) <= STATS_WIDTH else f"{title[: STATS_WIDTH - 1]}…"
            cells = ["{:6.2f} {:7.2g}".format(*row.stats[i]) if row.stats else "" for row in rows]
            columns.append((f"{title}\naccept   scale", STATS_WIDTH, cells))
        columns.append(("Speed", 12, [speed(row) for row in rows]))
        columns.append(("Elapsed", 8, [in_words(row.seconds) for row in rows]))
        widths = [max(least, *map(len, cells)) for _, least, cells in columns]
        least_useful = [*range(len(progress.titles), 0, -1), len(columns) - 1, len(columns) - 2]
        shown = list(range(len(columns)))
        for i in least_useful:  # in a narrow terminal
            if BAR_WIDTH + sum(COLUMN_GAP + widths[j] for j in shown) > options.max_width:
                shown.remove(i)
        table = Table(
            Column("Progress", ratio=1, vertical="bottom"),
            box=None,
            padding=(0, COLUMN_GAP, 0, 0),
            pad_edge=False,
            expand=True,
        )
        for j in shown:
            header = Text(columns[j][0])  # brackets are no markup
            table.add_column(header, width=widths[j], no_wrap=True, justify="right")
        for k, row in enumerate(rows):
            table.add_row(_bar(row), *(Text(columns[j][2][k]) for j in shown))
        yield Group(*map(Text, progress.summary()), table)


def _bar(row):
    colour = {"complete_style": "red", "finished_style": "red"} if row.stuck else {}
    marker = row.n_tune if 0 < row.n_tune < row.total else None
    return MarkerProgressBar(total=row.total, completed=row.done, marker_pos=marker, **colour)
