"""What may be done to a candidate, and the machinery that answers truthfully: build, judge, worker, clock."""
