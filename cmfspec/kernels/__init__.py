"""Compiled kernels: hash64, decoding and products on quantised storage, in numba.

Law: a kernel answers what the formula answers, bit for bit. It checks nothing: its caller has checked lengths and offsets.
Nothing here is imported before it is worth its start-up; `threads` and `worth` need no numba.
"""
