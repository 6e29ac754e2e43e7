"""An adapter around a class that reads `.cmf` files: `python -m runner.adapters.python package.module:Class`."""
