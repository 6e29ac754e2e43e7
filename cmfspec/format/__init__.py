"""Bytes to objects and back: the container of CMF v2."""
