"""Compiling ahead of time."""

import pytest

from pymc_kameleon.compile import main


def test_compiles_what_is_named(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    main(["RWM", "--jobs", "1"])
    assert capfd.readouterr().out.split()[0] == "RWM"
    assert any(tmp_path.rglob("*samplers.random_walk*.draws*.nbc"))


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
