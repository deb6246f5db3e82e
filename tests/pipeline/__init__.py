"""The pipeline on Spark: transforms as functions of frames, jobs on real stores."""
