"""Mechanisms that mix the keys before a query reads them, or exchange tokens and channels."""
