"""Stored answers: recipes of valid files and the cases that judge, drawn once."""
