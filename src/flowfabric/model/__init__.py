"""What is remembered: frozen values without I/O and without a clock."""
