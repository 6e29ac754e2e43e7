"""The rules, one file per section of the spec; what their arguments are drawn from; and the wrong implementations."""
