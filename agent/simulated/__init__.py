"""A simulated model: it edits kernels of one parameterised family at random, by stated odds. Deterministic."""
