"""Who decides: the loop, the model clients, the prompts and the budget."""
