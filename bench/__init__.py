"""How fast it is, told as ratios: `python -m bench`. Not part of the packages, and nothing imports it."""
