"""Adapters that come with the suite, one in each folder."""
