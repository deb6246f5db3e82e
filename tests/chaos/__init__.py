"""Many real servers on one store, killed and disconnected all the time, and a judge of the result."""
