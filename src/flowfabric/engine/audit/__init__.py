"""What `ff doctor` looks at."""
