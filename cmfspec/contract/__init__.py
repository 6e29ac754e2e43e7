"""What it means to be asked: rules, the wire protocol, subjects and outcomes."""
