"""Wrong files, as data: named mutations, the grid of field x nasty value, havoc, and the one minimiser."""
