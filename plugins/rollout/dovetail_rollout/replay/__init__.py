"""Which earlier completions a step learns from again."""
