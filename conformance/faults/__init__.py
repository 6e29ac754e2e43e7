"""Single faults of the forward pass, each of them measured on the golden models of every family."""
