"""The sentence for a missing optional package."""

import re
import sys

import pytest

from memgas.errors import MissingExtraError
from memgas.extras import require_extra


def test_installed_package_passes_without_being_imported() -> None:
    """A package that is installed is found, not imported: a broken one is not reported as a missing one."""
    sys.modules.pop("xml.dom.expatbuilder", None)

    require_extra("xml.dom.expatbuilder", extra="some", purpose="This")

    assert "xml.dom.expatbuilder" not in sys.modules


@pytest.mark.parametrize("module", ["no_such_package", "no_such_package.part", "json.no_such_part"])
def test_missing_package_names_the_extra(module: str) -> None:
    """What is missing, what needs it and the pip line are all in the message, and the module is the error's name."""
    with pytest.raises(
        MissingExtraError, match=re.escape(f'This needs {module}: pip install "memgas[some]"')
    ) as caught:
        require_extra(module, extra="some", purpose="This")

    assert module == caught.value.name
