"""The draws of a run in a Zarr store, appended while it runs.

The store has the groups of a result, and the array ``checkpoints`` with the state of each chain. A
chain's draws are written before its state, and a state at one blow. So whenever the process dies,
each state has all its draws.
"""

import json
import shutil
import time
import warnings
from math import prod
from pathlib import Path

import numpy as np
import xarray as xr
from filelock import FileLock, Timeout

from pymc_kameleon.core.conventions import MOST_BYTES
from pymc_kameleon.result.state import UNREADABLE, Saved, arrays_in, as_bytes, in_room
from pymc_kameleon.step.groups import (
    AHEAD,
    BEHIND,
    DRAWN_GROUPS,
    EVALUATIONS,
    KEPT_GROUPS,
    STATE_GROUP,
    WARMUP_GROUPS,
)

NUMBERS_PER_CHUNK = 2**16
"""Numbers in a chunk, which is a file that is written again when draws are appended."""

INTERVAL, BUSY_SHARE = 2.0, 0.05
"""Seconds between writes, about; and share of the time that these may take."""

DEATH_WAIT = 3.0
"""Seconds in which it should be seen that a process has died: those of its workers that still hold
a store end, and a pool gives up what it was doing."""

SPARE_BYTES = 4096
"""Bytes that a checkpoint may grow by: numbers in the text of a generator."""

CHUNKING = {"write_empty_chunks": True}
"""How draws are written: else a file that has only NaN or 0 is left out, as if it were lost."""


def zarr_module():
    """Return zarr, which is an optional requirement."""
    try:
        import zarr
    except ImportError:
        raise ImportError(
            "A store needs zarr, which is not installed: pip install '.[save]' in the checkout."
        ) from None
    return zarr


def new_store(path, columns, numbers):
    """Return a Store at a path where there is nothing yet, which `create` makes."""
    lock = locked(path)
    if path.exists():
        lock.release()
        raise ValueError(
            f"{path} exists. pk.resume({str(path)!r}) goes on with it; otherwise take "
            "another path, or delete it."
        )
    return Store(path, lock, columns, numbers)


def locked(path):
    """Return the lock of a store; raise a ValueError if another run writes to it."""
    file = Path(f"{path}.lock")
    try:  # a FileLock that may not be written waits, as if somebody held it
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise OSError(f"{path} cannot be written: {error}.") from None
    lock = FileLock(file)
    try:
        lock.acquire(timeout=DEATH_WAIT)
    except Timeout:
        raise ValueError(
            f"Another run writes to {path}: wait for its end, or take another store."
        ) from None
    return lock


def saved_store(path):
    """Return what a store holds of its run; raise a ValueError if it is none."""
    zarr = zarr_module()
    for file in sorted([*path.glob("*/zarr.json"), *path.glob("*/*/zarr.json")]):
        try:
            json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise _damaged(path, f"{file.relative_to(path)} cannot be read ({error})") from None
    try:
        root = zarr.open_group(path, mode="r", use_consolidated=False)
        checkpoints = root["checkpoints"]
    except (FileNotFoundError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a store of pk.sample ({error}).") from None
    draws = {}
    for group in (*DRAWN_GROUPS, *WARMUP_GROUPS, *KEPT_GROUPS):
        if group in root:
            try:
                draws[group] = xr.open_zarr(path, group=group, chunks=None, consolidated=False)
            except UNREADABLE as error:
                raise _damaged(path, f"{group} cannot be read ({error})") from None
    numbers = checkpoints.attrs["chains"]
    arrays = [_checkpointed(path, checkpoints, row) for row in range(len(numbers))]
    return Saved(dict(root.attrs), numbers, arrays, draws)


def _damaged(path, what):
    return ValueError(f"{path} is damaged: {what}. Go on from a copy of it, or begin again.")


def _checkpointed(path, checkpoints, row):
    """Return what the state of a chain is made from."""
    try:
        content = checkpoints[row]
        if content.any():
            return arrays_in(content)
    except UNREADABLE as error:
        number = checkpoints.attrs["chains"][row]
        raise _damaged(path, f"the state of chain {number} cannot be read ({error})") from None
    raise ValueError(f"{path} is incomplete, its run ended early: delete it, and begin again.")


class Store:
    """The draws of all chains, in a locked Zarr store; what is not written yet, in memory."""

    def __init__(self, path, lock, columns, numbers):
        self.path, self._lock = Path(path), lock
        self.columns, self._numbers = columns, numbers
        # zarr reads a file to find an array, so they are kept at hand.
        self._arrays, self._is_new = {}, False
        self._draws = {}  # that wait: (row, group, name) -> first draw, list of arrays (n, ...)
        self._states = {}  # row -> state of the chain after these draws
        self._bytes, self._written, self._took = 0, time.perf_counter(), 0.0

    # ---- a new one, and one to go on with -------------------------------------------------------

    def create(self, tune, draws, plan, states):
        """Make the files, with room for the states and with what the run was asked for."""
        zarr = zarr_module()
        self._is_new = True
        root = zarr.open_group(self.path, mode="w", attributes=plan)
        for group in self.columns.groups:
            like = self.columns.like(group, self._numbers)
            like.drop_vars([*like.data_vars, "draw"]).to_zarr(
                self.path, group=group, mode="a", consolidated=False
            )
            length, files = tune if group in WARMUP_GROUPS else draws, root[group]
            for name, variable in {"draw": like["draw"], **like.data_vars}.items():
                self._arrays[group, name] = self._created(files, name, variable, length)
            self._arrays[group, "draw"][:] = np.arange(length)
        self._root = root
        self._make_room(states)

    def _make_room(self, states):
        """Make the array that holds the states of chains."""
        size = max(len(as_bytes(state)) for state in states) + SPARE_BYTES
        self._checkpoints = self._root.create_array(
            "checkpoints",
            shape=(len(self._numbers), size),
            chunks=(1, size),
            dtype=np.uint8,
            dimension_names=("checkpoint", "byte"),  # xarray reads no array without
            fill_value=0,
            compressors=None,
            overwrite=True,
        )
        self._checkpoints.attrs["chains"] = self._numbers

    def _created(self, group, name, variable, length):
        shape = tuple(length if d == "draw" else n for d, n in variable.sizes.items())
        numbers = int(np.prod([n for d, n in variable.sizes.items() if d not in ("chain", "draw")]))
        most = max(1, min(length, NUMBERS_PER_CHUNK // max(1, numbers)))
        chunks = {"chain": 1, "draw": most}
        kind = variable.dtype.kind
        return group.create_array(
            name,
            config=CHUNKING,
            shape=shape,
            chunks=tuple(max(1, chunks.get(d, n)) for d, n in variable.sizes.items()),
            dtype=variable.dtype,
            dimension_names=variable.dims,
            fill_value=np.nan if kind == "f" else 0,
            compressors=None,
        )

    def extend(self, tune, draws, plan, states):
        """Make room for so many draws of tuning and after it, if those of the states are there."""
        zarr = zarr_module()
        # Consolidated metadata are those of the end before: the update below removes them.
        self._root = zarr.open_group(self.path, mode="a", use_consolidated=False)
        self._checkpoints = self._root["checkpoints"]
        with zarr.config.set({f"array.{option}": value for option, value in CHUNKING.items()}):
            for group, variables in self.columns.groups.items():
                for name in ("draw", *variables):
                    if f"{group}/{name}" not in self._root:
                        raise _damaged(self.path, f"it lacks {group}/{name}")
                    self._arrays[group, name] = self._root[f"{group}/{name}"]
        for row, state in enumerate(states):
            self._check_draws(row, state.monitor)
        self._before = dict(self._root.attrs)
        self._root.attrs.update(plan)
        self._resize(draws, tune)
        return self

    def settle(self, tune, draws, plan):
        """Make room for so many draws, as that is known now, before states know it."""
        self.flush()
        self._root.attrs.update(plan)
        self._resize(draws, tune)

    def _check_draws(self, row, monitor):
        """Raise a ValueError unless there are files with the draws that a chain has made."""
        for (group, name), array in self._arrays.items():
            if name == "draw" or 0 in array.shape:
                continue
            tuned = min(monitor.done, monitor.tune)
            made = tuned if group in WARMUP_GROUPS else monitor.done - tuned
            for chunk in range(-(-made // array.chunks[1])):
                key = array.metadata.encode_chunk_key((row, chunk, *[0] * (array.ndim - 2)))
                file = self.path / group / name / key
                size = file.stat().st_size if file.exists() else 0
                if size != prod(array.chunks) * array.dtype.itemsize:
                    number = self._numbers[row]
                    what = f"{group}/{name} of chain {number} lacks draws that its state has made"
                    raise _damaged(self.path, f"{what} ({file.relative_to(self.path)})")

    def _resize(self, draws, tune=None):
        """Give the groups of draws after tuning, or also of those before, this length."""
        for (group, name), array in self._arrays.items():
            sizes = dict(zip(array.metadata.dimension_names, array.shape, strict=True))
            length = tune if group in WARMUP_GROUPS else draws
            if length not in (None, sizes["draw"]):
                array.resize(tuple((sizes | {"draw": length}).values()))
                if name == "draw":
                    array[:] = np.arange(length)

    def put(self, row, start, group, name, values):
        """Write values (n, ...) of one variable."""
        self._arrays[group, name][row, start : start + len(values)] = values

    # ---- draws and states -----------------------------------------------------------------------

    def write(self, row, start, portion, tuning):
        """Keep draws of a chain, the first of which is its draw `start` of its group."""
        for group, name, values in self.columns.named(portion, tuning):
            parts = self._draws.setdefault((row, group, name), (start, []))[1]
            parts.append(values)
            self._bytes += values.nbytes

    def save(self, row, state):
        """Keep the state of a chain after the draws that were written last."""
        self._states[row] = state

    def flush_if_due(self):
        """Write what is in memory, if that is much, or has waited for long."""
        waited = time.perf_counter() - self._written
        if self._bytes > MOST_BYTES or waited > max(INTERVAL, self._took / BUSY_SHARE):
            self.flush()

    def flush(self):
        """Write what is in memory, which stays there if that fails."""
        start = time.perf_counter()
        for (row, group, name), (first, parts) in self._draws.items():
            self.put(row, first, group, name, np.concatenate(parts))
        for row, state in self._states.items():
            self._checkpoint(row, state)
        self._draws, self._states, self._bytes = {}, {}, 0
        self._written = time.perf_counter()
        self._took = self._written - start

    def _checkpoint(self, row, state):
        self._checkpoints[row] = in_room(as_bytes(state), self._checkpoints.shape[1])

    def dataset(self, group, rows, start, stop):
        """Return some draws of some chains, which are read when they are needed."""
        stored = xr.open_zarr(self.path, group=group, chunks=None, consolidated=False)
        stored = stored[list(self.columns.groups[group])]  # Zarr lists them in the disk's order
        stored = stored.isel(chain=rows, draw=slice(start, stop))
        if not self._draws:
            return stored
        stored = stored.load()
        for (row, of, name), (first, parts) in self._draws.items():
            if of == group and row in rows:
                values = np.concatenate(parts)
                begin, end = max(first, start), min(first + len(values), stop)
                if begin < end:
                    own = values[begin - first : end - first]
                    stored[name][rows.index(row), begin - start : end - start] = own
        return stored

    def finish(self, tree, longest):
        """Write the other groups of the result, and free the room of draws that were not made."""
        self._resize(longest)
        ended = ("settings", "draws_kept", "tuning_kept", "chains_kept")
        self._root.attrs.update({key: tree[STATE_GROUP].attrs[key] for key in ended})
        if EVALUATIONS in self._root and EVALUATIONS not in tree.children:  # of an earlier run
            del self._root[EVALUATIONS]
        for name in tree.children:
            if name in self.columns.groups:
                self._root[name].attrs.update(tree[name].attrs)
            elif name != STATE_GROUP and not name.startswith((AHEAD, BEHIND)):
                tree[name].to_dataset().to_zarr(self.path, group=name, mode="w", consolidated=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Zarr's, that others may not read it
            zarr_module().consolidate_metadata(self.path)  # else xarray warns that it is not there

    def close(self):
        """Release the store."""
        self._lock.release()

    def discard(self):
        """Release the store, and undo what `create` or `extend` has made: the run has not begun."""
        try:
            if self._is_new:
                shutil.rmtree(self.path, ignore_errors=True)
            else:
                self._root.attrs.update(self._before)
        finally:
            self._lock.release()


def add_group(path, name, dataset):
    """Write a group into the store of a run, if that has ended."""
    if zarr_module().open_group(path, mode="r", use_consolidated=False).attrs["draws_kept"] < 0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Zarr's, that others may not read it
        dataset.to_zarr(path, group=name, mode="w", consolidated=False)
        zarr_module().consolidate_metadata(path)
