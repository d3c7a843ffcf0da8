"""What is asked: one file a task, and the loader that reads them and any KernelBench problem file."""
