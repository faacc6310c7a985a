"""`sqlite:///file`: the queue in one file, shared by every process of the machine."""
