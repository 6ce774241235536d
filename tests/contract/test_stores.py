"""Every store keeps the contract."""

from __future__ import annotations

import pytest

from memgas.stores import InMemoryStore
from memgas.testing.store_contract import OpenStore, StoreContract


class TestInMemoryStore(StoreContract):
    """The reference."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Return empty stores."""
        return InMemoryStore
