"""Rules of Iceberg tables and views: schemas, metadata, updates and requirements, as pure values."""
