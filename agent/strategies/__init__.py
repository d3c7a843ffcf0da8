"""Strategies: what each rollout of a run starts from, by what the transcripts of the others say."""
