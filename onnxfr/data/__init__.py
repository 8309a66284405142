"""Pairs of faces behind one contract, whatever the data set they come from."""
