"""MemGAS: long-term memory for chat agents."""
