"""The drill: real engines, real kills, and a proof that nobody downstream noticed."""
