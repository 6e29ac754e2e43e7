"""Talks to the world: starts implementations, judges them, reports."""
