"""Extensions of threads: hooks, skills, plugins; the contract of parts that register servers."""
