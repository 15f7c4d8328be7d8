"""The parts a program uses: a fabric, tasks, runs and a worker."""
