"""How jobs run: one loop to a module, put together in `runtime`."""
