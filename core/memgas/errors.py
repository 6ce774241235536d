"""Everything that MemGAS raises on purpose.

MemGASError
├── InvalidInputError (ValueError)        what was handed in cannot be used
│   ├── ShapeError                        an array has another shape than expected
│   └── InvalidConfigError                a setting is out of its range
├── SessionConflictError (ValueError)     other words stand where these were to be written
├── NotFoundError (LookupError)           no such session, turn or namespace
├── ModelError (RuntimeError)             a model failed
│   ├── EmbedderError                     the embedder raised, or returned what cannot be used
│   └── LLMError                          the language model raised, or returned what cannot be used
├── StoreError (RuntimeError)             the store cannot do it
│   ├── StoreLockedError                  another process has the store open
│   ├── StoreMismatchError                the store was made with another embedder
│   ├── StoreCorruptError                 what is on disk cannot be read
│   └── ClosedError                       the memory or its store is closed
└── MissingExtraError (ImportError)       an optional package is not installed
"""


class MemGASError(Exception):
    """Base of everything that MemGAS raises on purpose."""


class InvalidInputError(MemGASError, ValueError):
    """What was handed in cannot be used; nothing was written."""


class ShapeError(InvalidInputError):
    """An array has another shape than expected; the message names both."""


class InvalidConfigError(InvalidInputError):
    """A setting is out of its range."""


class SessionConflictError(MemGASError, ValueError):
    """Other words stand where these were to be written; nothing was written."""


class NotFoundError(MemGASError, LookupError):
    """No such session, turn or namespace."""


class ModelError(MemGASError, RuntimeError):
    """A model failed; what it was to work on is not lost."""


class EmbedderError(ModelError):
    """The embedder raised, or returned what cannot be used."""


class LLMError(ModelError):
    """The language model raised, or returned what cannot be used."""


class StoreError(MemGASError, RuntimeError):
    """The store cannot do what was asked."""


class StoreLockedError(StoreError):
    """Another process has the store open."""


class StoreMismatchError(StoreError):
    """The store was made with another embedder."""


class StoreCorruptError(StoreError):
    """What is on disk cannot be read."""


class ClosedError(StoreError):
    """The memory or its store is closed."""


class MissingExtraError(MemGASError, ImportError):
    """An optional package is not installed; the message holds the pip line."""
