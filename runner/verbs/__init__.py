"""The commands as click knows them: their options and words, no work."""
