"""Reports: a stream in the words of others."""
