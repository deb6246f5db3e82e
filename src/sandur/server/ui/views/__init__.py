"""What pages show: frozen values, made by pure functions from what operations return."""
