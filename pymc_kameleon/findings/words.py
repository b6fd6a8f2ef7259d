"""Numbers and lists in words."""

MOST_IN_WORDS = 8
"""Numbers of a point, or of chains, that a message lists."""


def in_words(seconds):
    """Return a duration to two digits, or two units: 2.1 ms, 12 s, 3 min, 2 h 10 min."""
    rounded, minutes = float(f"{seconds:.2g}"), max(60, round(seconds / 60))
    if seconds >= 48 * 3600:
        hours = round(seconds / 3600)
        return f"{hours // 24} d {hours % 24} h"
    if rounded >= 3600:
        return f"{minutes // 60} h {minutes % 60} min"
    for unit, size in {"min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}.items():
        if rounded >= size:
            return f"{float(f'{max(1, seconds / size):.2g}'):g} {unit}"
    return "0 s"


def grouped(n):
    """Return an integer with a space before every three digits, if there are more than four."""
    return f"{n:,}".replace(",", " ") if n >= 10_000 else str(n)


def counted(n, what):
    """Return how many there are of something: 1 chain, 4 chains."""
    return f"{grouped(n)} {what}{'s' * (n != 1)}"


def chains_named(numbers, n=None):
    """Name some of n chains, or of others, by their numbers; of many the first three."""
    if len(numbers) > MOST_IN_WORDS:
        of_all = "" if n is None else f" of {n}"
        which = f"all {n}" if len(numbers) == n else f"{len(numbers)}{of_all}"
        return f"{which} chains ({', '.join(map(str, numbers[:3]))}, …)"
    return f"chain{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def capitalised(sentence):
    """Return a sentence with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def some(names):
    """List at most three names."""
    more = f" and {counted(len(names) - 3, 'other')}" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
