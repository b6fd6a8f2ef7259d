"""Which model of this process a result came from: it is remembered for as long as it lives."""

from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

MODEL_ID = "model_id"
"""Attribute of a result's groups, which other processes know nothing of."""

_ids, _models = WeakKeyDictionary(), WeakValueDictionary()


def id_of(model):
    """Return what a model is called in the results that it has."""
    name = _ids.setdefault(model, uuid4().hex)
    _models[name] = model
    return name


def model_of(group):
    """Return the model that a group of a result came from, None if it is gone."""
    return _models.get(group.attrs.get(MODEL_ID))
