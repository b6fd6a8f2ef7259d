"""What a run is told."""

import numpy as np
import pytest

from pymc_kameleon.sampling.settings import Settings


def test_a_file_gives_back_what_was_told():
    settings = Settings.checked(draws=7, tune=0, chains=2, var_names=["a", "b"])
    attributes = settings.attributes()
    assert Settings.read(attributes | {"data": "00"}) == settings


def test_what_is_not_told_remains():
    settings = Settings.checked(draws=7, tune=None)
    assert settings == Settings(draws=7)
    assert settings.but(tune=3, draws=None) == Settings(draws=7, tune=3)
    assert type(Settings.checked(draws=np.int64(7)).draws) is int


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("chains", 0, "chains must be an integer from 1 on"),
        ("tune", -1, "tune must be an integer from 0 on"),
        ("draws", 1.5, "draws must be an integer from 0 on"),
        ("keeps_warmup", 1, "keeps_warmup must be True or False"),
    ],
)
def test_what_is_impossible(name, value, message):
    with pytest.raises(ValueError, match=message):
        Settings.checked(**{name: value})
