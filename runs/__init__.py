"""What happened: events, the store, replay and rendering of runs."""
