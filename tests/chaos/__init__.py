"""Many real servers on one store, killed and cut off all the time, and a judge who looks at what is left."""
