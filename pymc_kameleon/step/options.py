"""The options that all samplers share: signature, documentation, checks."""

import inspect
from difflib import get_close_matches
from numbers import Integral, Real

import numpy as np

from pymc_kameleon.core.schedules import Decay

OPTION_TYPES = {"Decay": Decay}
"""Types of options besides numbers, text and arrays, which a result can hold; samplers add some."""

VARS_PARAMETER = """
vars : list of variables or their names, or a single one, optional
    What to sample: continuous free variables of the model. All of them by default; discrete
    ones are left to PyMC's own steps."""
"""What the docstring of a sampler says of its first argument."""

COMMON_PARAMETERS = {
    "steps_per_draw": """
steps_per_draw : int, optional
    Transitions per draw, max(10, d) by default. It multiplies the number of logp evaluations: where
    one takes milliseconds, ``steps_per_draw=1`` makes a draw cheap.""",
    "target_accept": """
target_accept : float, optional
    Acceptance rate that the scale is tuned to; 0.234, or 0.44 in one dimension, which are best
    for a random walk on normal targets.""",
    "keep_adapting": """
keep_adapting : bool, optional
    Go on adapting after tuning, less and less. The draws then converge to the posterior, under
    conditions on it (see docs/adaptation.md), but are not exact from the first one on.""",
    "region": """
region : dict, optional
    Least and largest value of some variables, ``{"x": (-10, 10)}``, each of them a number or
    of the variable's shape. The posterior is restricted to this box. A transformed variable is
    named and bounded as it is sampled: ``{"sigma_log__": (-5, 5)}``.""",
    "jitter": """
jitter : bool, optional
    Disperse starts, as PyMC does for NUTS: a chain that tunes, and begins at the model's initial
    point, first moves by a uniform number in (−1, 1) in each coordinate on the unconstrained scale.
    True by default. ``pk.sample`` disperses starts itself.""",
    "pool_tuning": """
pool_tuning : bool, optional
    Whether the chains of ``pk.sample`` learn from one another while they tune, True by default: see
    docs/adaptation.md. With False each learns alone, as in ``pm.sample``.""",
    "pseudo_marginal": """
pseudo_marginal : bool, optional
    Say that the log-density is the log of an unbiased estimate, whose random numbers come from
    ``pk.noise_seed()``: see docs/pseudo_marginal.md.""",
    "model": """
model : pm.Model, optional
    Taken from the context by default.""",
    "rng": """
rng : int or numpy.random.Generator, optional
    Only for use outside ``pm.sample``, which gives each chain its own.""",
    "initial_point": """
initial_point : dict, optional
    Gives the shapes of the variables; ``model.initial_point()`` by default.""",
    "compile_kwargs": """
compile_kwargs : dict, optional
    Passed to PyTensor. A mode that does not use numba makes the sampler slower.""",
}
"""What it says at ``{common parameters}``, except what the sampler says itself."""

COMMON_RAISES = """
Raises
------
ValueError
    For discrete variables, a model without continuous ones, or an impossible option."""
"""And after that."""


def signature_with_common_options(cls, base):
    """Return the signature of a sampler's class, with the options of `base`, which all have."""
    own, common = (inspect.signature(c.__init__).parameters for c in (cls, base))
    unused = {"self"} | options_unknown_to(cls)
    return inspect.Signature(
        p
        for name, p in (own | common).items()
        if name not in unused and p.kind is not p.VAR_KEYWORD
    )


def options_unknown_to(cls):
    """Return those of the common options that a sampler's class does not have."""
    has = {
        "target_accept": "target_accept" not in cls.lacks,
        "keep_adapting": "keep_adapting" not in cls.lacks,
        "pseudo_marginal": not cls.needs_exact_logp,
        "blocked": False,
        "pool_tuning": cls.learns != "alone" or cls.initial_search.follows,
    }
    return {name for name, is_there in has.items() if not is_there}


def docstring_with_common_options(cls):
    """Return the docstring of a sampler's class, with the options that it does not describe."""
    own = inspect.cleandoc(cls.__doc__)  # Python 3.13 dedents docstrings, 3.12 does not
    common = [
        text.lstrip()
        for name, text in COMMON_PARAMETERS.items()
        if name in cls.__signature__.parameters and f"\n{name} : " not in own
    ]
    if "\nvars : " not in own:
        heading = "Parameters\n----------"
        own = own.replace(heading, heading + VARS_PARAMETER)
    text = "\n".join([*common, COMMON_RAISES])
    return own.replace("{common parameters}", text)


def check_names(cls, options):
    """Raise a TypeError if a sampler's class lacks one of these options, and name the nearest."""
    known = list(inspect.signature(cls).parameters)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(known[1:])}."
            raise TypeError(f"{cls.__name__} has no option {name!r}; {hint}")


def checked_integer(name, value, at_least):
    """Return an option as int; raise a ValueError unless it is an integer that is large enough."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{name} must be an integer from {at_least} on, not {value!r}.")
    return int(value)


def checked_number(name, value, low, high):
    """Return an option as float; raise a ValueError unless it lies between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, Real) or not low < value < high:
        raise ValueError(f"{name} must be a number between {low} and {high}, not {value!r}.")
    return float(value)


def checked_bool(name, value):
    """Return an option as bool; raise a ValueError unless it is one."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, not {value!r}.")
    return bool(value)


def checked_choice(name, value, choices):
    """Return an option; raise a ValueError unless it is one of `choices`."""
    if not isinstance(value, str | None) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}.")
    return value


def checked_schedule(name, value):
    """Return a number or a Decay as a Decay of floats; raise a ValueError if it is impossible."""
    if not isinstance(value, Decay):
        return Decay(checked_number(name, value, 0, np.inf), 1.0, 0.0)
    return Decay(
        checked_number(f"{name}.start", value.start, 0, np.inf),
        checked_number(f"{name}.delay", value.delay, 0, np.inf),
        0.0 if value.power == 0 else checked_number(f"{name}.power", value.power, 0, np.inf),
    )


def checked_scaling_bounds(bounds):
    """Return logs of (low, high) as an array, or None; raise a ValueError unless low < high."""
    if bounds is None:
        return None
    if not isinstance(bounds, tuple | list) or len(bounds) != 2:
        raise ValueError(f"scaling_bounds must be a pair (low, high), not {bounds!r}.")
    low, high = (checked_number("scaling_bounds", bound, 0, np.inf) for bound in bounds)
    if not low < high:
        raise ValueError(f"scaling_bounds must have low < high, not {bounds!r}.")
    return np.log([low, high])
