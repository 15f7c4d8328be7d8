"""Databases of callers: transactions on their own pools, and receipts in their own tables."""
