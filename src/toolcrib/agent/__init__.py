"""An agent: a model that is asked, and whose calls are answered, until its task is done."""
