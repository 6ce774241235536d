"""The names that users may rely on."""

import builtins
import inspect
import re
from types import ModuleType

import memgas
from memgas import errors

PUBLIC = {
    "LLM", "Added", "Association", "ClosedError", "Digest", "Embedder", "EmbedderError", "Evidence", "Explanation", "Granularity", "Hit",
    "InvalidConfigError", "InvalidInputError", "LLMError", "MemGAS", "MemGASConfig", "MemGASError", "MemoryUnit",
    "MissingExtraError", "ModelError", "NewSession", "NotFoundError", "Retrieval", "Session", "SessionConflictError",
    "SessionRecord", "ShapeError", "Stats", "Store", "StoreCorruptError", "StoreError", "StoreLockedError",
    "StoreMismatchError", "Trace", "Turn", "WhyNot",
}  # fmt: skip

TREE_LINE = re.compile(r"^(?P<indent>[│ ]*)[├└]── (?P<name>\w+) (?:\((?P<builtin>\w+)\))?")


def test_exported_names_are_all_there() -> None:
    """`memgas.__all__` is exactly what can be imported from `memgas`, each name once."""
    names = [
        name
        for name, value in vars(memgas).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]  # fmt: skip
    assert sorted(names) == sorted(memgas.__all__)


def test_public_names_are_pinned() -> None:
    """A public name comes or goes only together with this list and a line in CHANGELOG."""
    assert set(memgas.__all__) == PUBLIC


def drawn_tree() -> dict[str, tuple[str, str | None]]:
    """Return name to parent and builtin, as the docstring of `errors.py` draws them."""
    tree: dict[str, tuple[str, str | None]] = {}
    above = ["MemGASError"]
    for line in (inspect.getdoc(errors) or "").splitlines():
        if match := TREE_LINE.match(line):
            depth = len(match["indent"]) // 4 + 1
            tree[match["name"]] = (above[depth - 1], match["builtin"])
            above[depth:] = [match["name"]]
    return tree


def test_error_tree_is_as_drawn() -> None:
    """The tree drawn on top of `errors.py` is the tree of classes: names, parents, and the builtin each one also is."""
    tree = drawn_tree()
    classes = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}

    assert {*tree, "MemGASError"} == set(classes)
    for name, (parent, builtin) in tree.items():
        assert classes[parent] is classes[name].__bases__[0], name
        assert builtin is None or issubclass(classes[name], getattr(builtins, builtin)), name
