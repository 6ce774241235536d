"""What is said when an optional package is not installed."""

from importlib.util import find_spec

from memgas.errors import MissingExtraError


def require_extra(module: str, *, extra: str, purpose: str) -> None:
    """Raise unless an optional package is installed; a package that is there but broken is not looked at.

    Parameters
    ----------
    module
        Dotted name of what is needed.
    extra
        The extra of MemGAS that brings it.
    purpose
        What needs it; begins the message.

    Raises
    ------
    MissingExtraError
        It is not installed; the message holds the pip line.
    """
    if not _is_installed(module):
        raise MissingExtraError(f'{purpose} needs {module}: pip install "memgas[{extra}]"', name=module)


def _is_installed(module: str) -> bool:
    """Return whether a module can be found, asking for its parents first: `find_spec` imports them."""
    parent = module.rpartition(".")[0]
    return (not parent or _is_installed(parent)) and find_spec(module) is not None
