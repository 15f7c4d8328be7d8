"""What a program writes: a fabric, tasks, runs and a worker."""
