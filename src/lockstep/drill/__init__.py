"""The drill: real engines, real kills, and a check that every block was delivered once and in order."""
