"""The model side: normal form, the two engines, the parity certificate."""
