"""Our guides on making convolutions fast, Markdown files that a model may read."""
