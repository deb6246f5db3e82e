"""What is shipped beside the program: dashboards, alerts, packages, images, charts and units."""
