"""Rules of every layout: each variable of a model has one, each tensor one variable."""

import pytest

from keras_vit import create_model
from keras_vit.weights import LAYOUTS
from tests.keras_vit.models import CONFIGS
from tests.keras_vit.models import LAYOUTS as NAMES


@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_every_variable_has_its_rule(layout):
    for name in NAMES[layout]:
        rules = LAYOUTS[layout].rules(CONFIGS[name])
        ours = [rule.ours for rule in rules]
        theirs = [tensor for rule in rules for tensor in rule.theirs]
        assert sorted(ours) == sorted(v.path for v in create_model(CONFIGS[name]).weights), name
        assert len(theirs) == len(set(theirs)), name
