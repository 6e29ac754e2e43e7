"""Exit codes: 0 yes, 1 no, 2 usage (click's own), 3 the run itself broke."""

EXIT_FAILED, EXIT_BROKEN = 1, 3
