"""What a run tells: the console, the log, and the declarations of its metrics."""
