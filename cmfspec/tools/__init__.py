"""Files to files: a model's folder to a container, a container to one of other encodings."""
