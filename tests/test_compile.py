"""Compiling ahead of time."""

import pytest

from pymc_kameleon.compile import main, seconds_to_compile
from pymc_kameleon.samplers.gradient.fisher_rule import compiled_learning


@pytest.mark.slow
def test_compiles_what_is_named(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    main(["RWM", "--jobs", "1"])
    assert capfd.readouterr().out.split()[0] == "RWM"
    assert any(tmp_path.rglob("*samplers.random_walk*.draws*.nbc"))


def test_compiles_what_chains_learn_together():
    compiled_learning.cache_clear()
    seconds_to_compile("GadMALA")
    assert compiled_learning.cache_info().currsize == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RWM", "KAMM"], "unknown samplers KAMM; there are RWM, AM"),
        (["--jobs", "0"], "--jobs must be at least 1"),
    ],
)
def test_says_what_is_impossible(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_compiles_what_needs_a_black_box():
    assert seconds_to_compile("EmulatorMetropolis") > 0
